"""The commands that compare_versions.py runs in two versions, and the folders that it runs them on."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
CONFIG = Path(__file__).with_name("gua.toml")
SECTIONS = (
    *("headline", "now", "timeline", "trend", "capacity", "breakdown", "gpus", "identities", "groups"),
    *("identity_days", "heatmap", "episodes", "coverage", "reservations"),
)


OF_TICKS = ("card_ticks", "process_ticks", "ticks")
SUMS = ("card_hours", "identity_hours", "episode_days", "spans")
LIVE = """\
status
status -v --ascii
status --json
status --simulate
free
free --uuid
free -n 4
free --simulate
note --until 2d serving
note --list
status
remind
remind --json
remind --log
hook --dry-run
hook --dry-run --json
mail --dry-run
report --since 1d
"""


class Planned(NamedTuple):
    """A command without its folder."""

    kind: str
    words: list[str]
    files: str | None  # what it writes: a file or folder, compared and removed


class Step(NamedTuple):
    """A command to compare. ROOT in its words is the folder of a version's copies."""

    kind: str
    words: list[str]
    now_ms: int
    files: str | None = None


def stage(source: Path, target: Path, uid: int, owner: int) -> None:
    """Give a version its copies of a world: of ticks, to roll up, and to look at the cards now."""
    target.mkdir(parents=True)
    for name in ("ticks", "rolled", "live"):
        shutil.copytree(source / "data", target / name)
    for name in ("scenario", "reservations.csv"):
        shutil.copyfile(source / name, target / name)
    config = CONFIG.read_text() + (source / "retention.toml").read_text()
    (target / "gua.toml").write_text(config.replace("ROOT", str(target)))
    (target / ".tmp").mkdir()
    (target / "notes").mkdir()
    if os.geteuid() == 0:
        for folder in ("ticks", "rolled", "live"):
            for path in (target / folder, *(target / folder).rglob("*")):
                os.chown(path, owner, owner)
        os.chown(target / "notes", uid, uid)
    (target / ".tmp").chmod(0o1777)
    (target / "notes").chmod(0o1733)


def plan(world: dict[str, Any], seed: int) -> Iterator[Step]:
    """The commands for a world, in their order."""
    chance = random.Random(f"plan {seed} {world['number']}")
    rollup = ["rollup", *place("rolled")]
    for hours in (0, chance.choice((1, 26))):
        yield Step("rollup", [*rollup, "--json"], world["now_ms"] + hours * HOUR_MS)
    yield Step("rollup", [*rollup, "--dry-run"], world["now_ms"] + DAY_MS, "ROOT/rolled/csv")
    for folder in ("ticks", "rolled"):
        windows = [draw_window(chance, world) for _ in range(3)]
        windows += [["--since", "9d"], ["--since", f"{chance.randrange(1, 50)}h"]]
        words = [*place(folder), "--tz", world["zone"]]
        for kind, more, files in (
            *plan_reports(chance, windows, chance.choice(world["people"] or ["ada"])),
            *plan_exports(chance, windows, OF_TICKS if folder == "ticks" else (*OF_TICKS, *SUMS)),
            *plan_pages(chance),
        ):
            yield Step(f"{kind}, {folder}", [*more, *words], world["now_ms"], files)
    yield from plan_live(world["now_ms"] + 3 * HOUR_MS)


def place(folder: str) -> list[str]:
    return ["--data-dir", f"ROOT/{folder}", "--config", "ROOT/gua.toml"]


def plan_reports(chance: random.Random, windows: list[list[str]], who: str) -> Iterator[Planned]:
    for window in windows[:4]:
        yield Planned("report json", ["report", *window, "--json"], None)
    for window in windows[2:]:
        yield Planned("report text", ["report", *window], None)
    yield Planned("report who", ["report", "--who", who, "--since", "9d"], None)
    for kind, *options in (
        ("ascii", "--ascii"),
        ("markdown", "--format", "markdown"),
        ("html", "--format", "html"),
        ("who", "--who", who, "--json"),
        ("brief", "--brief"),
        ("group", "--group", chance.choice(("vision", "speech"))),
        ("thresholds", "--util-threshold", "30", "--json"),
        ("wide", "--width", "120", "--top", "30"),
        *(("csv", "--format", "csv", "--section", section) for section in chance.sample(SECTIONS, 5)),
    ):
        yield Planned(f"report {kind}", ["report", *chance.choice(windows), *options], None)


def plan_exports(chance: random.Random, windows: list[list[str]], tables: tuple[str, ...]) -> Iterator[Planned]:
    for table in chance.sample(tables, 3):
        form = chance.choice(("csv", "jsonl"))
        yield Planned(f"export {form}", ["export", *chance.choice(windows), "--what", table, "--format", form], None)
    out = "ROOT/.tmp/table.parquet"
    yield Planned("export parquet", ["export", "--since", "9d", "--what", chance.choice(tables), "-o", out], out)
    yield Planned("export csv", ["export", *chance.choice(windows), "--what", "csv"], None)


def plan_pages(chance: random.Random) -> Iterator[Planned]:
    names, page = chance.choice(("people", "groups", "none")), chance.choice(("week", "month", "year"))
    yield Planned("page", ["page", "ROOT/.tmp/pages", "--names", names, "--page", page], "ROOT/.tmp/pages")
    yield Planned("mail", ["mail", "--dry-run"], None)


def plan_live(now_ms: int) -> Iterator[Step]:
    """Two hours of ticks from the stand-in driver, and then what there is to know about now."""
    for minutes in range(125, 0, -10):
        words = ["sample", "--data-dir", "ROOT/live", "--interval", "10m", "--textfile", "ROOT/.tmp/gua.prom"]
        at_ms = now_ms - minutes * MINUTE_MS
        yield Step("sample", words, at_ms, "ROOT/.tmp/gua.prom" if minutes < 20 else None)
    for line in LIVE.splitlines():
        words = line.split()
        yield Step(f"{words[0]}, live", [*words, *place("live")], now_ms)


def draw_window(chance: random.Random, world: dict[str, Any]) -> list[str]:
    """A window that starts and ends anywhere, on a midnight, or on a full hour."""
    begin, end = world["start_ms"] - 12 * HOUR_MS, world["now_ms"]
    grid = chance.choice((1, SECOND_MS, HOUR_MS, DAY_MS))
    times = sorted({chance.randrange(begin, end) // grid * grid for _ in range(2)})
    if len(times) == 1:
        times = [times[0], times[0] + DAY_MS]
    found = [datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds") for ms in times]
    return ["--from", found[0], "--to", found[1]]


def plan_fleet(worlds: list[dict[str, Any]]) -> Iterator[Step]:
    latest = max(world["now_ms"] for world in worlds) + 27 * HOUR_MS
    here = ["--fleet", "ROOT", "--config", "ROOT/gua.toml", "--tz", worlds[0]["zone"], "--since", "9d"]
    for at_ms in (latest, latest + 10 * HOUR_MS):
        for words in (["status", "ROOT"], ["status", "ROOT", "--json", "--since", "30d"]):
            yield Step("fleet status", ["fleet", *words, "--config", "ROOT/gua.toml"], at_ms)
    for host in range(len(worlds)):
        words = ["fleet", "check", f"ROOT/host{host}/rollups.sqlite", "--config", "ROOT/gua.toml"]
        yield Step("fleet check", words, latest)
    for by in ("host", "group", "model"):
        yield Step("fleet text", ["report", *here, "--by", by], latest)
        yield Step("fleet json", ["report", *here, "--by", by, "--json"], latest)
    for words in (["--format", "markdown"], ["--format", "html"], ["--who", "ada"], ["--hosts", "host[01]"]):
        yield Step("fleet, other", ["report", *here, *words], latest)
    for section in (*SECTIONS[:-1], "hosts", "not_used"):
        yield Step("fleet csv", ["report", *here, "--format", "csv", "--section", section], latest)
    yield Step("fleet, other", ["mail", *here[:4], "--dry-run"], latest)


def stage_fleet(root: Path, target: Path, worlds: list[dict[str, Any]]) -> None:
    """Collect what worlds have published, each as a machine of its own."""
    target.mkdir()
    (target / "gua.toml").write_text(CONFIG.read_text().replace("ROOT", str(target)))
    (target / "reservations.csv").write_text("gpu,user,from,to,note\n")
    (target / ".tmp").mkdir()
    (target / ".tmp").chmod(0o1777)
    for number, world in enumerate(worlds):
        source, host = root / f"w{world['number']:02}" / "rolled/publish/rollups.sqlite", target / f"host{number}"
        host.mkdir()
        if not source.exists():  # the difference shows in what is said of the host
            continue
        shutil.copyfile(source, host / source.name)
        with closing(sqlite3.connect(host / source.name)) as connection, connection:
            values = (("machine", f"{number + 1:032x}"), ("host", host.name))
            connection.executemany("UPDATE meta SET value = ?2 WHERE key = ?1", values)
            ((published_ms,),) = connection.execute("SELECT value FROM meta WHERE key = 'published_ms'")
        os.utime(host / source.name, (published_ms / 1000,) * 2)
