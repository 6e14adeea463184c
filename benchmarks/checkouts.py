"""What this checkout costs against another: python benchmarks/checkouts.py ../gua-before

Runs the same commands on the same data in both, in turn, each with the Python that runs this, and prints the medians
of their CPU time and of the ratios of each turn. It has no bounds: what is slower by more than a twentieth is marked.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import ENVIRONMENT, ratio, run_once
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from tests.driver import Scenario, build, environment
from tests.untidy import untidy

HERE = Path(__file__).parents[1]
END_MS = 1_794_398_400_000  # 2026-11-11 12:00 UTC
DAYS, CARDS, SEED, INTERVAL_MS = 14, 8, 1, 30_000
WINDOW = ["--from", "2026-10-29", "--to", "2026-11-11", "--tz", "UTC", "--config", "/dev/null"]
HOUR = ["--from", "2026-11-11T11:00Z", "--to", "2026-11-11T12:00Z", "--tz", "UTC", "--config", "/dev/null"]
SLOWER = 1.05


def command(checkout: Path, words: list[str]) -> list[str]:
    """The command of that checkout, whatever is installed."""
    package = "gua_sample.cli" if words[0] == "gua-sample" else "gua_report.main"
    arguments = words[1:] if words[0] == "gua-sample" else words
    code = f"import sys; sys.path.insert(0, {str(checkout)!r}); from {package} import main; sys.exit(main())"
    return [sys.executable, "-c", code, *arguments]


def own_folder(folder: Path, name: str, checkout: Path) -> str:
    return str(folder / f"{name}-of-{'this' if checkout == HERE else 'other'}")


def prepare(folder: Path, other: Path) -> dict[str, list[str]]:
    """Record some days, let each checkout roll up a copy of its own, and return the commands to compare."""
    ticks, rollups = folder / "ticks", "ROLLUPS"
    history = untidy(Laboratory(SEED, CARDS).history(END_MS - DAYS * DAY_MS, END_MS, INTERVAL_MS), SEED)
    store.append_history(store.prepare(str(ticks)), history)
    roll_up = ["rollup", "--data-dir", rollups, "--config", "/dev/null"]
    for checkout in (other, HERE):  # what one made, the other may make anew
        own = own_folder(folder, "rollups", checkout)
        shutil.copytree(ticks, own)
        words = [own if word == rollups else word for word in roll_up]
        subprocess.run(command(checkout, words), env=ENVIRONMENT, check=True, capture_output=True)
    return {
        "gua-sample": ["gua-sample", "--data-dir", "DATA"],
        "gua report, from ticks": ["report", *WINDOW, "--data-dir", str(ticks)],
        "gua report, from rollups": ["report", *WINDOW, "--data-dir", rollups],
        "gua report, one hour": ["report", *HOUR, "--data-dir", str(ticks)],
        "gua status": ["status", "--simulate", "--data-dir", str(ticks)],
        "gua rollup, nothing due": roll_up,
        "gua rollup, all days": [*roll_up, "--rebuild"],
        "gua export, one day": ["export", "--from", "2026-11-10", "--to", "2026-11-11", "--data-dir", str(ticks)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", default="", help="the commands with this in their description")
    options = parser.parse_args()
    other = options.other.resolve()
    with tempfile.TemporaryDirectory(prefix="gua-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        scenario = Scenario()
        for _ in range(CARDS):
            scenario.add_card(compute=[(1, 4000)])
        path = scenario.write(folder / "scenario")
        variables = environment(build(folder), path, ENVIRONMENT)
        commands = {what: words for what, words in prepare(folder, other).items() if options.only in what}
        for what, words in commands.items():
            costs: dict[Path, list[float]] = {other: [], HERE: []}
            for turn in range(options.turns + 1):
                for checkout, found in costs.items():
                    scenario.write(path)  # the driver has filled its buffers since
                    own = {"DATA": own_folder(folder, "data", checkout)}
                    own["ROLLUPS"] = own_folder(folder, "rollups", checkout)
                    cost = run_once(command(checkout, [own.get(word, word) for word in words]), variables)
                    if turn:  # the first time there is no bytecode
                        found.append(cost.cpu_seconds)
            before, after = (statistics.median(found) * 1000 for found in costs.values())
            times = ratio(costs[HERE], costs[other])
            mark = "   SLOWER" if times > SLOWER else ""
            print(f"{what:<28} {before:8.1f} ms  {after:8.1f} ms  {times:5.2f} x{mark}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
