"""gua rollup: what is done once a day: sums of closed days, their CSV files, and what is old enough goes."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gua_report import terminal
from gua_sample import command, settings
from gua_sample.errors import CorruptPartition, StoreError

if TYPE_CHECKING:
    from gua_report.config import Config
    from gua_report.history import History
    from gua_report.rollup_file import Day, Origin
    from gua_sample.policy import Policy

PROG = "gua rollup"
DESCRIPTION = """\
Sum up every closed day that has not been yet, or whose ticks or thresholds
have changed since; write its CSV file; remove what is older than [retention]
in the configuration allows. Reports use the sums by themselves. A timer runs
it daily."""
EPILOG = """\
examples:
  gua rollup              what is left to do
  gua rollup --dry-run    say what that would be, and what would be removed
  gua rollup --rebuild    all days anew

It can be stopped at any time, and goes on where it was. A day is closed when
the ticks after it are there too, by which its last ones are weighed. Ticks
are only removed if their sums were read back and found right.
exit status: 0 done, 1 failed (days that can't be read are named), 2 wrong
usage.
"""


class Done(NamedTuple):
    rolled_up: list[str]
    unchanged: int
    open: list[str]  # not closed yet
    failed: list[str]
    csv: list[str]
    removed: list[str]  # files, and days of rollups
    kept: list[str]  # days that would have expired, if their sums were there and right


def main(arguments: list[str] | None = None) -> int:
    return command.run(build_parser(), run, arguments)


def build_parser() -> command.Parser:
    parser = command.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--data-dir", metavar="DIR", help="where the history lives")
    parser.add_argument("--config", metavar="FILE", help="thresholds, retention; /etc/gua/gua.toml unless given")
    parser.add_argument("--rebuild", action="store_true", help="sum up all days anew")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    from gua_report.config import load_config
    from gua_sample import store

    data_dir = settings.data_dir(options.data_dir)
    config = load_config(options.config)
    if not options.dry_run:
        store.become_owner(data_dir)
    done = roll_up(data_dir, config, options.rebuild, options.dry_run, time.time_ns() // 1_000_000)
    if options.json:
        import json

        command.say(PROG, json.dumps(done._asdict()))
    else:
        command.say(PROG, summary(done, options.dry_run))
    return 1 if done.failed else 0


def roll_up(data_dir: str, config: Config, rebuild: bool, dry_run: bool, now_ms: int) -> Done:
    from gua_report.daily import is_closed
    from gua_report.history import History

    history = History(data_dir)
    stored = read_stored(data_dir, dry_run)
    current = {day for day in history.days if is_current(history, day, stored, config.policy)}
    closed = [day for day in history.days if is_closed(history, day, now_ms)]
    due = [day for day in closed if rebuild or day not in current]
    still_open = [day for day in history.days if day not in closed and day not in current]
    rolled_up = due if dry_run else store_days(data_dir, history, due, config.policy)
    unchanged = len(current - set(due))
    csv = write_csvs(data_dir, closed, config, dry_run)
    removed, kept = expire(data_dir, config, dry_run, now_ms)
    for text in history.warnings:
        command.complain(PROG, f"warning: {text}")
    failed = [day for day in due if day not in rolled_up]
    return Done(rolled_up, unchanged, still_open, failed, csv, removed, kept)


def is_current(history: History, day: str, stored: dict[str, Origin], policy: Policy) -> bool:
    from gua_report.rollup_file import origin_of

    return day in stored and stored[day] == origin_of(history.paths[day], policy)


def store_days(data_dir: str, history: History, days: list[str], policy: Policy) -> list[str]:
    """Each in a transaction of its own: who is killed has done what is done."""
    from gua_report.daily import roll_up_day
    from gua_report.rollup_file import origin_of
    from gua_report.rollup_writer import RollupWriter

    done: list[str] = []
    progress = terminal.progress_bar()
    if not days:
        return done
    with RollupWriter(data_dir) as writer:
        for number, day in enumerate(days, 1):
            origin = origin_of(history.paths[day], policy)  # before it is read: what comes later is to be seen as such
            made = roll_up_day(history, day, policy)
            if made is not None:
                writer.write(day, made, origin)
                verify(data_dir, day, made)
                writer.mark_verified(day)
                done.append(day)
            if progress:
                progress(number, len(days))
    return done


def verify(data_dir: str, day: str, made: Day) -> None:
    """Raises StoreError unless what was stored is what was made."""
    from gua_report.rollup_file import read_days

    if fingerprint(made) != fingerprint(read_days(data_dir, day, day)):
        raise StoreError(f"the rollup of {day} does not read back as it was written: is the disk in order?")


def fingerprint(day: Day) -> list[list[tuple[object, ...]]]:
    """All that counts in it, as whole numbers and texts."""
    rollup = day.rollup
    hours = rollup.cards[["hour_ms", "gpu_uuid", "state", "weight_ms", "gpu_ms", "energy_joules"]]
    presences = rollup.identities[["hour_ms", "gpu_uuid", "identity", "state", "weight_ms", "gpu_ms"]]
    episodes = day.episodes[["gpu_uuid", "pid", "identity", "start_ms", "end_ms", "joins_before", "joins_after"]]
    spans = day.spans[["start_ms", "end_ms", "boot_id"]]
    found = []
    for frame in (hours, presences, rollup.holds, episodes, spans):
        rows = frame.itertuples(index=False, name=None)
        found.append(
            sorted(tuple(round(value) if isinstance(value, float) else value for value in row) for row in rows)
        )
    return found


def write_csvs(data_dir: str, closed: list[str], config: Config, dry_run: bool) -> list[str]:
    """The files of closed days that are not there yet, or are older than the ticks."""
    from gua_report.daily_csv import csv_path, write_daily_csv
    from gua_report.retention import is_old
    from gua_sample.partition import partition_path, samples_dir

    written = []
    for day in closed:
        path, partition = csv_path(data_dir, day), partition_path(samples_dir(data_dir), day)
        if is_old(day, config.retention.csv_days, time.time_ns() // 1_000_000):
            continue
        if os.path.exists(path) and os.stat(path).st_mtime_ns >= os.stat(partition).st_mtime_ns:
            continue
        try:
            if dry_run or write_daily_csv(data_dir, day, config):
                written.append(path)
        except CorruptPartition:
            continue  # said already, as its rollup can't be made either
    return written


def expire(data_dir: str, config: Config, dry_run: bool, now_ms: int) -> tuple[list[str], list[str]]:
    """What was removed, and the days that were kept although they are old enough."""
    from gua_report.daily_csv import csv_dir
    from gua_report.history import History
    from gua_report.retention import find_expired, list_csvs, remove
    from gua_report.rollup_file import read_verified
    from gua_report.rollup_writer import RollupWriter

    if not any(config.retention):
        return [], []
    history = History(data_dir)
    stored = read_stored(data_dir, dry_run)
    verified = read_verified(data_dir)
    current = {day for day in history.days if day in verified and is_current(history, day, stored, config.policy)}
    csvs = list_csvs(csv_dir(data_dir))
    expired = find_expired(history.paths, csvs, set(stored), current, config.retention, now_ms)
    if not dry_run:
        remove(expired.partitions + expired.csvs)
        if expired.rollups:
            with RollupWriter(data_dir) as writer:
                writer.delete(expired.rollups)
    return [*expired.partitions, *expired.csvs, *(f"rollup of {day}" for day in expired.rollups)], expired.kept


def read_stored(data_dir: str, dry_run: bool) -> dict[str, Origin]:
    """What is stored. A file that is corrupt is set aside, and made again from the ticks that are there."""
    from gua_report.rollup_file import path_of, read_origins

    try:
        return read_origins(data_dir)
    except CorruptPartition as error:
        if dry_run:
            command.complain(PROG, f"warning: {error}: it would be made again from ticks")
            return {}
        path = path_of(data_dir)
        number = 1
        while os.path.exists(f"{path}.corrupt-{number}"):
            number += 1
        try:
            os.rename(path, f"{path}.corrupt-{number}")
        except OSError as problem:
            raise StoreError(f"{path} is corrupt and can't be renamed ({problem.strerror})") from problem
        command.complain(PROG, f"warning: {error}: it was set aside as {path}.corrupt-{number}, and is made again")
        return {}


def summary(done: Done, dry_run: bool) -> str:
    would = "would have " if dry_run else ""
    first = f"{would}rolled up {days(len(done.rolled_up))}"
    if done.rolled_up:
        first += f" ({' to '.join(dict.fromkeys([done.rolled_up[0], done.rolled_up[-1]]))})"
    parts = [first]
    parts += [f"{days(done.unchanged)} done before"] if done.unchanged else []
    parts += [f"{days(len(done.open))} not closed yet"] if done.open else []
    parts += [f"{days(len(done.failed))} not readable"] if done.failed else []
    parts += [f"{len(done.csv)} CSV files written"] if done.csv else []
    lines = [", ".join(parts)]
    lines += [f"{would}removed {path}" for path in done.removed]
    lines += [f"kept {day}: it is old enough, but its rollup is missing or under other thresholds" for day in done.kept]
    return "\n".join(lines)


def days(count: int) -> str:
    return f"{count} day" if count == 1 else f"{count} days"
