"""gua demo: the report of a made-up laboratory. Needs no GPU, leaves nothing behind unless asked to."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator

from gua_report.commands import report
from gua_report.console import terminal
from gua_report.console.arguments import positive
from gua_report.people.containers import write_containers
from gua_sample import console, settings
from gua_sample.errors import StoreError, UsageError
from gua_sample.note_spool import open_spool, put_note
from gua_sample.notes import Note
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Tick
from gua_sample.simulate_plan import EXAMPLE_END_MS
from gua_sample.whole_file import replace_file

PROG = "gua demo"
DESCRIPTION = """\
Simulate some days of a laboratory with eight cards and a dozen people, and
print its report."""
EPILOG = """\
examples:
  gua demo                      a week
  gua demo --days 30 --seed 7   a month of another laboratory
  gua demo --keep ./try         keep the history, to play with:
                                gua-report --data-dir ./try
                                --config ./try/gua.toml has groups and a note
"""
INTERVAL_MS = 30_000
HOUR_MS = DAY_MS // 24
MOST_DAYS = 366
NOTE_MS = 3 * DAY_MS
GROUPS = """\
[groups]
vision = ["ada", "anna", "ben", "emil", "eva"]
speech = ["finn", "hana", "ivo", "jan", "kim"]
robots = ["liam", "mei", "omar", "rosa", "ada"]

"""


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments)


def build_parser() -> console.Parser:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--days", metavar="N", type=positive, default=7, help="how many (default 7)")
    parser.add_argument("--seed", metavar="N", default="0", help="which laboratory (default 0)")
    parser.add_argument("--keep", metavar="DIR", help="write the history there and keep it")
    parser.add_argument("--now", action="store_true", help="let it end now instead of on an example Wednesday")
    return parser


def run(options: argparse.Namespace) -> int:
    import time

    seed = settings.seed(options.seed, "--seed")
    if options.days > MOST_DAYS:
        raise UsageError(f"bad --days {options.days}: expected 1 to {MOST_DAYS}")
    if options.keep and os.path.exists(options.keep) and os.listdir(options.keep):
        raise UsageError(
            f"{options.keep} is not empty: give a new folder, as made-up ticks do not belong in a real history"
        )
    end_ms = time.time_ns() // 1_000_000 if options.now else EXAMPLE_END_MS
    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="gua-demo-"))
        simulate(folder, seed, end_ms - options.days * DAY_MS, end_ms)
        iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end_ms / 1000))
        zone = [] if options.now else ["--tz", "UTC"]
        place = ["--data-dir", folder, "--config", furnish(folder, end_ms)]
        return report.main([*place, "--since", f"{options.days}d", "--to", iso, *zone])


def simulate(folder: str, seed: int, start_ms: int, end_ms: int) -> None:
    from gua_sample import store
    from gua_sample.simulate import Laboratory

    laboratory = Laboratory(seed)
    history = laboratory.history(start_ms, end_ms, INTERVAL_MS)
    store.append_history(store.prepare(folder), show_progress(history, start_ms, end_ms))
    write_containers(folder, laboratory.containers(start_ms, end_ms))


def furnish(folder: str, end_ms: int) -> str:
    """Write a configuration with groups, and a note that is in force at the end; returns the configuration's path."""
    spool, config = (os.path.join(os.path.abspath(folder), name) for name in ("notes", "gua.toml"))
    os.mkdir(spool, 0o755)
    note = Note(end_ms - NOTE_MS, end_ms + NOTE_MS, "answers the wiki's questions", os.geteuid(), True, "ollama")
    with contextlib.suppress(StoreError), open_spool(spool) as opened:  # where others may write, notes are not used
        put_note(opened, note, end_ms)
    replace_file(config, GROUPS + f"[notes]\nspool = {json.dumps(spool, ensure_ascii=False)}\n")
    return config


def show_progress(history: Iterator[Tick], start_ms: int, end_ms: int) -> Iterator[Tick]:
    """Yield the ticks; on a terminal, show how much of the time has been simulated."""
    show = terminal.progress_bar("simulating")
    for tick in history:
        if show and tick.ts_ms % HOUR_MS < INTERVAL_MS:
            show(tick.ts_ms - start_ms, end_ms - start_ms)
        yield tick
    if show:
        show(1, 1)
