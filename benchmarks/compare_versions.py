"""What users see, compared between two checkouts: python benchmarks/compare_versions.py ../gua-before --worlds 20

Makes untidy histories with the old checkout's code, gives each checkout a copy, runs the same commands in both with the
clock stopped at the same time, and prints what is equal, what differs in numbers within a bound (0.1 %, or two
intervals per card and day), and what differs otherwise. Each checkout has an environment of its own (make venv). As
root, the folders belong to a user without rights, who also runs the commands in every second world. Exits 1 if
something differs otherwise. The time is in the year 2030: files are older than any tick, as the kernel dates them.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.versions.commands import DAY_MS, Step, plan, plan_fleet, stage, stage_fleet
from benchmarks.versions.verdict import Slack, Verdict, normalise

PARTS = Path(__file__).with_name("versions")
FLEET = 4  # worlds that are hosts of one fleet
NOBODY = 65534
SHOWN = 3  # diffs of a kind
MAKE_DRIVER = """\
import pathlib, sys
sys.path[0] = sys.argv[1]
from tests.driver import build
build(pathlib.Path(sys.argv[2]))
"""


class Version:
    """A checkout, and the process that runs its commands."""

    def __init__(self, checkout: Path, root: Path, driver: Path) -> None:
        self.checkout, self.root = checkout, root
        variables = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        variables |= {"LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC", "LD_LIBRARY_PATH": str(driver)}
        variables["LD_PRELOAD"] = str(driver / "shift_clock.so")
        command = [str(checkout / ".venv/bin/python"), str(PARTS / "serve.py"), str(checkout)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, text=True)

    def close(self) -> None:
        self._process.communicate()

    def run(self, world: str, step: Step, user: int) -> dict[str, str]:
        """The texts of a command: its status, what it printed and wrote, without what differs anyway."""
        root = str(self.root / world)
        variables = {"GUA_TEST_CLOCK_MS": str(step.now_ms), "GUA_STAND_IN_SCENARIO": f"{root}/scenario"}
        variables |= {"TMPDIR": f"{root}/.tmp", "HOME": f"{root}/.tmp"}
        words = [word.replace("ROOT", root) for word in step.words]
        files = step.files and step.files.replace("ROOT", root)
        question = {"words": words, "variables": variables, "uid": user, "files": files}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline()
        if not reply:
            raise SystemExit(f"the process of {self.checkout} has ended")
        places = (
            (root, "ROOT"),
            (root.replace("_", r"\_"), "ROOT"),
            (str(self.checkout), "CHECKOUT"),
        )  # in markdown, too
        texts: dict[str, str] = json.loads(reply)
        for name, text in texts.items():
            for place, instead in places:
                text = text.replace(place, instead)
            texts[name] = normalise(text)
        return texts


class Row:
    """What became of the pairs of a kind."""

    def __init__(self) -> None:
        self.pairs = self.equal = self.near = self.other = self.failed = 0
        self.largest, self.where = 0.0, ""
        self.diffs: list[str] = []


class Table:
    def __init__(self, kept: Path) -> None:
        self.kept, self.rows = kept, defaultdict[str, Row](Row)

    def add(self, step: Step, old: dict[str, str], new: dict[str, str], slack: Slack, world: str) -> None:
        row, verdict = self.rows[step.kind], Verdict(slack)
        row.pairs += 1
        row.failed += old["status"] == new["status"] != "0"
        if old == new:
            row.equal += 1
            return
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        is_alike = old.keys() == new.keys() and "status" not in changed
        if is_alike and all(verdict.is_near(old[name], new[name]) for name in changed):
            row.near += 1
            if verdict.largest >= row.largest:
                row.largest, row.where = verdict.largest, f"{world}, {verdict.where}"
            return
        row.other += 1
        place = self.kept / f"{step.kind.replace(' ', '_').replace(',', '')}-{world}-{row.pairs}"
        place.mkdir(parents=True)
        (place / "command").write_text(f"gua {' '.join(step.words)}\n")
        lines = [f"--- {step.kind}, {world}: gua {' '.join(step.words)}", f"    {place}"]
        for name in changed:
            texts = [side.get(name, "(not there)\n") for side in (old, new)]
            for side, text in zip(("old", "new"), texts, strict=True):
                (place / f"{name.replace('/', '_')}.{side}").write_text(text)
            before, after = (text.splitlines() for text in texts)
            lines += difflib.unified_diff(before, after, f"{name}.old", f"{name}.new", n=0, lineterm="")
        row.diffs.append("\n".join(line[:160] for line in lines[:14]))

    def show(self) -> bool:
        print(f"{'kind':<26} {'pairs':>6} {'equal':>6} {'near':>5} {'other':>6} {'status not 0':>12}  largest near")
        for kind, row in self.rows.items():
            largest = f"{row.largest:.3%} {row.where}" if row.near else ""
            print(f"{kind:<26} {row.pairs:>6} {row.equal:>6} {row.near:>5} {row.other:>6} {row.failed:>12}  {largest}")
        for row in self.rows.values():
            for diff in row.diffs[:SHOWN]:
                print(f"\n{diff}")
        return any(row.other for row in self.rows.values())


class Comparison:
    """Two versions, and what became of all that was compared."""

    def __init__(self, folder: Path, old: Path, new: Path, only: str) -> None:
        self.folder, self.only, self.table = folder, only, Table(folder / "differences")
        self.python, self.old = str(old / ".venv/bin/python"), str(old)
        driver = folder / "driver"
        driver.mkdir()
        subprocess.run([self.python, "-c", MAKE_DRIVER, self.old, str(driver)], check=True)
        self.versions = [Version(old, folder / "old", driver), Version(new, folder / "new", driver)]

    def compare_world(self, number: int, seed: int) -> dict[str, Any]:
        """Compare the commands on one history; returns what is known of it."""
        source = self.folder / f"w{number:02}"
        source.mkdir()
        command = [self.python, str(PARTS / "make_world.py"), self.old, str(source), str(number), str(seed)]
        world: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for path in source.rglob("*"):
            os.utime(path, (world["now_ms"] / 1000,) * 2)
        owner, user = users(number)
        for version in self.versions:
            stage(source, version.root / source.name, user, owner)
        self._run(source.name, plan(world, seed), user, [world])
        shutil.rmtree(source)
        return world

    def compare_fleet(self, worlds: list[dict[str, Any]]) -> None:
        """Compare the commands on what these worlds have published, and remove what is left of them."""
        name = f"fleet{worlds[0]['number']:02}"
        for version in self.versions:
            stage_fleet(version.root, version.root / name, worlds)
        self._run(name, plan_fleet(worlds), users(0)[0], worlds)
        for version in self.versions:
            shutil.rmtree(version.root)

    def _run(self, name: str, planned: Iterable[Step], user: int, worlds: list[dict[str, Any]]) -> None:
        steps = [step for step in planned if self.only in step.kind or step.kind in ("rollup", "sample")]
        began, slack = time.monotonic(), slack_of(worlds)
        with ThreadPoolExecutor() as pool:
            done = pool.map(lambda version: [version.run(name, step, user) for step in steps], self.versions)
            for step, old, new in zip(steps, *done, strict=True):
                self.table.add(step, old, new, slack, name)
        facts = ", ".join(f"{world['ticks']} ticks of {world['seconds']} s" for world in worlds)
        other = sum(row.other for row in self.table.rows.values())
        seconds = time.monotonic() - began
        print(f"{name}: {len(steps)} pairs in {seconds:.0f} s ({facts}); {other} differ so far", file=sys.stderr)


def users(number: int) -> tuple[int, int]:
    """The owner of a world's folder, and who runs the commands."""
    if os.geteuid() != 0:
        return os.geteuid(), os.geteuid()
    return NOBODY, 0 if number % 2 else NOBODY


def slack_of(worlds: list[dict[str, Any]]) -> Slack:
    """Two intervals for each card and each day that these worlds touch, or a thousandth."""
    interval_hours = max(world["seconds"] for world in worlds) / 3600
    days = max((world["end_ms"] - world["start_ms"]) // DAY_MS + 2 for world in worlds)
    cards = sum(world["cards"] for world in worlds)
    hours = 2 * interval_hours * days
    return Slack(hours * cards, hours, max(0.001, 2 * interval_hours / 24), 2 * interval_hours * 3600 + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout with an environment")
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1], help="another (default: this)")
    parser.add_argument("--worlds", type=int, default=20, help="so many (default 20; four are a fleet)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first, to repeat one of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds of output with this in their names")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gua-compare-"))
    folder.chmod(0o755)
    worlds: list[dict[str, Any]] = []
    comparison = Comparison(folder, options.old.resolve(), options.new.resolve(), options.only)
    try:
        for number in range(options.first, options.first + options.worlds):
            worlds.append(comparison.compare_world(number, options.seed))
            if len(worlds) == FLEET or number == options.first + options.worlds - 1:
                comparison.compare_fleet(worlds)
                worlds = []
        for version in comparison.versions:
            version.close()
    except KeyboardInterrupt:
        print("stopped; so far:", file=sys.stderr)
    finally:
        for path in folder.iterdir():
            if path.name != "differences":
                shutil.rmtree(path)
        with suppress(OSError):
            folder.rmdir()
    return int(comparison.table.show())


if __name__ == "__main__":
    sys.exit(main())
