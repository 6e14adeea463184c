"""The gua export command."""

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gua_report.config import Config, load_config
from gua_report.console import terminal
from gua_report.console.arguments import add_place, add_window, choose, find_history, output_path
from gua_report.console.terminal import Progress
from gua_report.console.whole_file import is_database, standard_output, whole_file
from gua_report.exporting.rows import OTHER_NAMES, TABLES
from gua_report.machine.child import Message, stream_as_owner
from gua_report.window import Window, is_day, parse_window
from gua_sample import console
from gua_sample.errors import GuaError, StoreError, UsageError
from gua_sample.partition_names import DAY_MS

if TYPE_CHECKING:
    from gua_report.exporting.days import Encode

PROG = "gua export"
DESCRIPTION = """\
Write what was recorded as CSV, JSON lines or Parquet: rows of the views that
docs/schema.md describes, those of cards with their state and those of
processes with whom they belong to. Closed days as their sums, too."""
EPILOG = """\
tables:
  card_ticks      each card at each tick
  process_ticks   each process on each card at each tick
  ticks           each run of the sampler
  csv             as in the daily csv/ files: timestamp,user,pid,gpu,usage
                  and more, for a spreadsheet
tables of closed days, as gua rollup summed them up:
  card_hours      each state of each card in each hour; or say rollups
  identity_hours  the same for each identity on each card
  episode_days    idle-held episodes, cut where UTC days end
  spans           stretches of ticks without a break

examples:
  gua export --since 1d > cards.csv
  gua export --what process_ticks --from 2026-11-01 --to 2026-12-01 \\
             -o november.jsonl
  gua export --since 2d --format parquet -o /archive/cards
                  host=NAME/day=DATE/part.parquet for each UTC day that
                  the window touches, whole: run it daily, on each machine
  gua export --what csv -o week.csv
  gua export --what rollups --since 52w -o year.csv

durations: a number and ms, s, m, h, d or w. times: 2026-11-16 or
2026-11-16T08:30, in the time zone given unless they name their own.
exit status: 0 done, 1 failed, or a day could not be read or is not rolled up
(the others are written), 2 wrong usage, 3 nothing to export.
"""
FORMATS = ("csv", "jsonl", "parquet")
WARNINGS = "warnings"  # the label, in place of a day, of a message with warnings
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_window(parser)
    what = parser.add_argument_group("what")
    what.add_argument("--what", metavar="TABLE", default="card_ticks", help=f"{', '.join(TABLES)} (default card_ticks)")
    how = parser.add_argument_group("how")
    formats = f"{', '.join(FORMATS)} (default as the output's name ends, else csv)"
    how.add_argument("--format", metavar="NAME", help=formats)
    output = "the file to write instead of printing; with parquet a folder, unless it ends in .parquet"
    how.add_argument("-o", "--output", metavar="PATH", type=output_path, help=output)
    how.add_argument("--host", metavar="NAME", help="in a folder of parquet files (default this machine's name)")
    add_place(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    name = choose(options.what, "table", (*TABLES, *OTHER_NAMES))
    name = OTHER_NAMES.get(name, name)
    form = choose(options.format or format_of(options.output), "format", FORMATS)
    path = options.output
    is_folder = form == "parquet" and path is not None and (format_of(path) != "parquet" or os.path.isdir(path))
    check(options, name, form, is_folder)
    window = parse_window(options.since, options.start, options.end, options.tz)
    config = load_config(options.config)
    data_dir = find_history(PROG, options.data_dir)

    if is_folder:  # part of a day must not replace the whole of it that an earlier export wrote
        start_ms, end_ms = window.start_ms // DAY_MS * DAY_MS, -(-window.end_ms // DAY_MS) * DAY_MS
        window = window._replace(start_ms=start_ms, end_ms=end_ms)
    encode = find_encoding(name, form)
    progress = terminal.progress_bar() if options.output is not None or not terminal.is_terminal(sys.stdout) else None
    read = partial(read_parts, data_dir, window, name, config, encode, is_folder, progress)
    problems: list[str] = []
    parts = print_warnings(stream_as_owner(data_dir, read), problems)
    try:
        if is_folder:
            write_folder(parts, name, options.output, options.host or socket.gethostname())
        else:
            with standard_output() if options.output is None else whole_file(options.output) as file:
                file.writelines(part for _, part in parts)
    except BrokenPipeError:
        pass  # the reader has left
    finally:
        if progress:
            progress(1, 1)  # what showed it may have been killed
    return 1 if problems else 0


def find_encoding(name: str, form: str) -> "Encode":
    """What encodes a table. Its modules are imported here: later they may be unreadable for us."""
    from gua_report.exporting.days import csv_file, json_file

    columns = TABLES[name].columns
    if form == "parquet":
        from gua_report.exporting.parquet import parquet_file

        return partial(parquet_file, name, columns)
    return partial(csv_file if form == "csv" else json_file, columns)


def read_parts(
    data_dir: str, window: Window, name: str, config: Config, encode: "Encode", by_day: bool, progress: Progress | None
) -> Iterator[Message]:
    from gua_report.exporting.days import Days

    days = Days(data_dir, window, name, config)
    try:
        yield from days.encode(encode, by_day, progress)
    except GuaError:
        yield WARNINGS, json.dumps([days.problems, []]).encode()
        raise
    yield WARNINGS, json.dumps([days.problems, days.notes()]).encode()


def print_warnings(messages: Iterator[Message], problems: list[str]) -> Iterator[Message]:
    for label, content in messages:
        if label != WARNINGS:
            yield label, content
            continue
        failures, notes = json.loads(content)
        problems += failures
        for text in [*failures, *notes]:
            console.complain(PROG, f"warning: {text}")


def format_of(path: str | None) -> str:
    return ENDINGS.get(os.path.splitext(path or "")[1].lower(), "csv")


def check(options: argparse.Namespace, name: str, form: str, is_folder: bool) -> None:
    path = options.output
    if name == "csv" and form != "csv":
        raise UsageError(f"the table csv can't be written as {form}: take process_ticks, or --format csv")
    if path == "":
        raise UsageError("--output is empty: give a file, for example -o week.csv")
    if form == "parquet" and path is None and terminal.is_terminal(sys.stdout):
        raise UsageError("parquet is not for a terminal: give a folder with -o, or redirect it")
    if is_folder and os.path.exists(path) and not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder: give one, or a name that ends in .parquet for a single file")
    if not is_folder and path is not None and (os.path.isdir(path) or path.endswith(os.sep)):
        raise UsageError(f"{path} is a folder: give a file, or --format parquet")
    if not is_folder and path is not None and is_database(path):
        raise UsageError(f"{path} is a database, which this would replace: give another file")
    if options.host is not None and not (is_folder and options.host):
        raise UsageError("--host names a part of a folder of parquet files: give it with --format parquet -o DIR")


def write_folder(parts: Iterator[Message], name: str, folder: str, host: str) -> None:
    from gua_report.exporting import parquet

    parquet.check_folder(folder, name)
    for day, content in parts:
        if not is_day(day):  # the day becomes part of a path
            raise StoreError("what reads the folder sends nonsense: is a file in it damaged?")
        with whole_file(parquet.path_in(folder, host, day), is_ours=True) as file:
            file.write(content)
