"""gua demo: the report of a made-up laboratory, or of several. Needs no GPU, leaves nothing behind unless asked to."""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator

from gua_report.commands import report
from gua_report.config import Retention, load_config
from gua_report.console import terminal
from gua_report.console.arguments import positive
from gua_report.fleet.asked import refuse_root
from gua_report.people.containers import write_containers
from gua_report.rollups.index import FILE_NAME, Meta, path_of, published_path
from gua_sample import __version__, console, idle_state, settings, store
from gua_sample.errors import GuaError, StoreError, UsageError
from gua_sample.idleness import begin, follow
from gua_sample.notes import Note, open_spool, put_note
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Tick
from gua_sample.safe_file import replace_file
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import A100, A6000, EXAMPLE_END_MS, H100, L40S, NAMES, make_uuid

PROG = "gua demo"
DESCRIPTION = """\
Simulate some days of a laboratory with eight cards and a dozen people, and
print its report; or those of many hosts, and the report of all of them."""
EPILOG = """\
examples:
  gua demo                      a week
  gua demo --days 30 --seed 7   a month of another laboratory
  gua demo --now --keep ./try   keep the history, to play with:
                                gua-report --data-dir ./try
                                --config ./try/gua.toml has groups and a note
  gua demo --hosts 8            a fleet, up to now: one host is late, the file
                                of one is broken, and the report says so
  gua demo --hosts 8 --keep ./fleet
                                gua fleet status ./fleet
                                gua-report --fleet ./fleet --by model

With --hosts of 3 or more the exit status is 1, as of a real fleet from which
something is missing. As root there is no report of a fleet.
"""
SIMULATED = "This is simulated, a made-up laboratory and not this machine."
INTERVAL_MS = 30_000
HOUR_MS = DAY_MS // 24
MOST_DAYS = 366
NOTE_MS = 3 * DAY_MS
# A fleet: few ticks, so that eight hosts take seconds.
FLEET_INTERVAL_MS = 120_000
MOST_HOSTS = 99
LATE_DAYS = 2  # of which nothing was collected
FEWEST_FLEET_DAYS = LATE_DAYS + 2
PUBLISHED_AFTER_MS = HOUR_MS // 2  # midnight
CARDS_OF_HOSTS = (8, 4, 6, 2, 8, 4, 3, 8)
PEOPLE_OF_A_HOST = 8
HOST_GROUPS = """\
[hosts]
"the cellar" = ["gpu0[1-4]"]
"the attic" = ["gpu0[5-9]", "gpu[1-9]*"]
"""
GROUPS = """\
[groups]
vision = ["ada", "anna", "ben", "emil", "eva"]
speech = ["finn", "hana", "ivo", "jan", "kim"]
robots = ["liam", "mei", "omar", "rosa", "ada"]

"""


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.hints = {"--ticks": "not needed: --days N says how long a history to make"}
    parser.add_argument("--days", metavar="N", type=positive, default=7, help="how many (default 7)")
    parser.add_argument("--seed", metavar="N", default="0", help="which laboratory (default 0)")
    parser.add_argument("--keep", metavar="DIR", help="write the history there and keep it")
    parser.add_argument("--hosts", metavar="N", type=positive, help="of so many hosts, in one report")
    parser.add_argument("--now", action="store_true", help="let it end now instead of on an example Wednesday")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    seed = settings.seed(options.seed, "--seed")
    if options.days > MOST_DAYS:
        raise UsageError(f"bad --days {options.days}: expected 1 to {MOST_DAYS}")
    if options.keep and os.path.exists(options.keep) and os.listdir(options.keep):
        raise UsageError(
            f"{options.keep} is not empty: give a new folder, as made-up ticks do not belong in a real history"
        )
    if options.hosts is not None:
        check_fleet(options)
    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="gua-demo-"))
        make = make_history if options.hosts is None else make_fleet
        arguments = make(folder, options, seed)
        console.say(PROG, f"{SIMULATED}\n")
        status = report.main(arguments)
        if options.keep:
            console.say(PROG, f"\nThe same report again: {shlex.join(['gua-report', *arguments])}")
        return status


def make_history(folder: str, options: argparse.Namespace, seed: int) -> list[str]:
    end_ms = time.time_ns() // 1_000_000 if options.now else EXAMPLE_END_MS
    simulate(folder, seed, end_ms - options.days * DAY_MS, end_ms)
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end_ms / 1000))
    zone = [] if options.now else ["--tz", "UTC"]
    place = ["--data-dir", folder, "--config", furnish(folder, end_ms)]
    return [*place, "--since", f"{options.days}d", "--to", iso, *zone]


def check_fleet(options: argparse.Namespace) -> None:
    refuse_root()
    if options.hosts > MOST_HOSTS:
        raise UsageError(f"bad --hosts {options.hosts}: expected 1 to {MOST_HOSTS}")
    if options.days < FEWEST_FLEET_DAYS:
        raise UsageError(f"bad --days {options.days}: expected {FEWEST_FLEET_DAYS} to {MOST_DAYS} of a fleet")


def make_fleet(folder: str, options: argparse.Namespace, seed: int) -> list[str]:
    """Make a fleet's folder. It ends now, as whether a host is late depends on the clock."""
    now_ms, config = time.time_ns() // 1_000_000, os.path.join(folder, "gua.toml")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise GuaError(f"{folder} can't be made ({error.strerror}): give another folder with --keep") from error
    replace_file(config, GROUPS + HOST_GROUPS)
    for number in terminal.tracked(range(options.hosts), terminal.progress_bar("simulating hosts")):
        make_host(folder, number, options.hosts, seed, options.days, now_ms)
    return ["--fleet", folder, "--config", config, "--since", f"{options.days}d"]


def make_host(folder: str, number: int, hosts: int, seed: int, days: int, now_ms: int) -> None:
    from gua_report.upkeep.nightly import Upkeep
    from gua_report.upkeep.outputs import write_copy

    is_late, is_broken = (hosts > 2 and number == hosts - place for place in (2, 1))
    midnight_ms = now_ms // DAY_MS * DAY_MS
    end_ms = min(now_ms, midnight_ms - is_late * LATE_DAYS * DAY_MS + PUBLISHED_AFTER_MS)
    models = ((A100, A6000), (H100, L40S), (H100, A6000))[number % 3]
    people = [name for place, name in enumerate(NAMES) if (place + number) % len(NAMES) < PEOPLE_OF_A_HOST]
    name = f"gpu{number + 1:02}"
    laboratory = Laboratory(seed + number, CARDS_OF_HOSTS[number % len(CARDS_OF_HOSTS)], models, people)
    with tempfile.TemporaryDirectory(prefix="gua-demo-") as data_dir:
        ticks = laboratory.history(midnight_ms - days * DAY_MS, end_ms, FLEET_INTERVAL_MS)
        store.append_history(store.prepare(data_dir), ticks)
        config = load_config(os.devnull)._replace(retention=Retention(csv_days=0))
        Upkeep(data_dir, config, end_ms, False, lambda text: console.complain(PROG, f"warning: {text}")).run(
            False, False, None
        )
        machine = make_uuid(seed, number).replace("-", "")
        write_copy(path_of(data_dir), data_dir, Meta(name, machine, __version__, end_ms, end_ms - FLEET_INTERVAL_MS))
        os.mkdir(os.path.join(folder, name))
        target = os.path.join(folder, name, FILE_NAME)
        shutil.copyfile(published_path(data_dir), target)
    if is_broken:
        os.truncate(target, os.path.getsize(target) // 2)
    os.utime(target, ns=(end_ms * 1_000_000, end_ms * 1_000_000))


def simulate(folder: str, seed: int, start_ms: int, end_ms: int) -> None:
    laboratory = Laboratory(seed)
    history = leave_state(folder, laboratory.history(start_ms, end_ms, INTERVAL_MS), end_ms - DAY_MS)
    ticks = terminal.tracked(history, terminal.progress_bar("simulating"), (end_ms - start_ms) // INTERVAL_MS)
    store.append_history(store.prepare(folder), ticks)
    write_containers(folder, laboratory.containers(start_ms, end_ms))


def leave_state(folder: str, history: Iterator[Tick], start_ms: int) -> Iterator[Tick]:
    """Yield the ticks; at the end, leave for gua status what a sampler that began at that time would have left."""
    carried = begin()
    for tick in history:
        if tick.ts_ms >= start_ms:
            carried = follow(carried, tick)
        yield tick
    replace_file(os.path.join(folder, idle_state.NAME), idle_state.to_text(carried))


def furnish(folder: str, end_ms: int) -> str:
    spool, config = (os.path.join(os.path.abspath(folder), name) for name in ("notes", "gua.toml"))
    os.mkdir(spool, 0o755)
    note = Note(end_ms - NOTE_MS, end_ms + NOTE_MS, "answers the wiki's questions", os.geteuid(), True, "ollama")
    with contextlib.suppress(StoreError), open_spool(spool) as opened:  # where others may write, notes are not used
        put_note(opened, note, end_ms)
    replace_file(config, GROUPS + f"[notes]\nspool = {json.dumps(spool, ensure_ascii=False)}\n")
    return config
