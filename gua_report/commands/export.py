"""The gua export command."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO

from gua_report.commands.report import choose
from gua_report.console import terminal
from gua_report.console.arguments import add_window, output_path
from gua_report.console.whole_file import StandardOutput, is_database, whole_file
from gua_report.exporting.rows import OTHER_NAMES, TABLES, Row
from gua_sample import console, settings
from gua_sample.errors import GuaError, StoreError, UsageError
from gua_sample.rights import check_folder

if TYPE_CHECKING:
    from gua_report.config import Config
    from gua_report.exporting.days import Days, Progress
    from gua_report.window import Window

Message = tuple[str, bytes]
Encoder = Callable[["Days", "Progress | None"], Iterator[Message]]

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
PROBLEMS = "problems"  # the label, in place of a day, of a message with warnings
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments)


def build_parser() -> console.Parser:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_window(parser)
    what = parser.add_argument_group("what")
    what.add_argument("--what", metavar="TABLE", default="card_ticks", help=f"{', '.join(TABLES)} (default card_ticks)")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--format", metavar="NAME", help=f"{', '.join(FORMATS)} (default as the output's name ends, else csv)"
    )
    how.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=output_path,
        help="the file to write instead of printing; with parquet a folder, unless it ends in .parquet",
    )
    how.add_argument("--host", metavar="NAME", help="in a folder of parquet files (default this machine's name)")
    where = parser.add_argument_group("where")
    where.add_argument("--data-dir", metavar="DIR", help="where the history lives")
    where.add_argument("--config", metavar="FILE", help="instead of /etc/gua/gua.toml: thresholds and people")
    return parser


def run(options: argparse.Namespace) -> int:
    from gua_report.config import load_config
    from gua_report.window import parse_window

    name = choose(options.what, "table", (*TABLES, *OTHER_NAMES))
    name = OTHER_NAMES.get(name, name)
    form = choose(options.format or format_of(options.output), "format", FORMATS)
    is_folder = form == "parquet" and options.output is not None and not is_parquet_file(options.output)
    check(options, name, form, is_folder)
    window = parse_window(options.since, options.start, options.end, options.tz)
    config = load_config(options.config)
    data_dir = settings.data_dir(options.data_dir)

    # Imported late: --help and usage errors don't need pandas.
    from gua_report.exporting.days import whole_days
    from gua_report.machine.as_owner import stream_as_owner

    # Part of a day must not replace the whole of it that an earlier export wrote.
    window = whole_days(window) if is_folder else window
    if warning := check_folder(data_dir):
        console.complain(PROG, f"warning: {warning}")
    encoder = find_encoder(name, form, is_folder)
    progress = terminal.progress_bar() if options.output is not None or not terminal.is_terminal(sys.stdout) else None
    blocks = Blocks(
        stream_as_owner(data_dir, lambda: read_blocks(data_dir, window, name, config, encoder, progress)), progress
    )
    try:
        if is_folder:
            write_folder(blocks, name, options.output, options.host or socket.gethostname())
        else:
            with output(options.output) as file:
                for _, block in blocks:
                    file.write(block)
    except BrokenPipeError:
        pass  # the reader has left
    return 1 if blocks.problems else 0


class Blocks:
    """The parts of an export, by day; warnings among them are printed as they arrive."""

    def __init__(self, messages: Iterator[Message], progress: Progress | None) -> None:
        self._messages, self._progress = messages, progress
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Message]:
        try:
            for label, content in self._messages:
                if label == PROBLEMS:
                    self._hear(**json.loads(content))
                else:
                    yield label, content
        finally:
            if self._progress:
                self._progress(1, 1)  # clears the line of the progress bar

    def _hear(self, problems: list[str], left_out: str | None) -> None:
        if self._progress:
            self._progress(1, 1)
        self.problems = problems
        for text in [*problems, *([left_out] if left_out else [])]:
            console.complain(PROG, f"warning: {text}")


def read_blocks(
    data_dir: str, window: Window, name: str, config: Config, encoder: Encoder, progress: Progress | None
) -> Iterator[Message]:
    """The encoded days, and at the end, even after an error, the warnings about them."""
    from gua_report.exporting.days import Days, RolledUpDays

    days = (RolledUpDays if TABLES[name].is_of_rollups else Days)(data_dir, window, name, config)
    try:
        yield from encoder(days, progress)
    except GuaError:
        yield PROBLEMS, json.dumps({"problems": days.problems, "left_out": None}).encode()
        raise
    yield PROBLEMS, json.dumps({"problems": days.problems, "left_out": days.left_out()}).encode()


def find_encoder(name: str, form: str, is_folder: bool) -> Encoder:
    """The function that encodes days as bytes. Its modules are imported here: later they may be unreadable for us."""
    columns = TABLES[name].columns
    if form != "parquet":
        from gua_report.exporting.text import csv_text, json_lines

        encode, header = (csv_text, csv_text((), [columns])) if form == "csv" else (json_lines, b"")
        return lambda days, progress: text_blocks(days, progress, columns, encode, header)
    from gua_report.exporting import parquet

    schema = parquet.schema_of(name, columns)

    def to_block(rows: Iterator[Row]) -> Any:
        return parquet.block_of(schema, rows)

    if is_folder:
        return lambda days, progress: days.read(to_block, progress, lambda blocks: parquet.to_file(schema, blocks))
    return lambda days, progress: (
        ("", part) for part in parquet.to_stream(schema, (block for _, block in days.read(to_block, progress)))
    )


def text_blocks(
    days: Days,
    progress: Progress | None,
    columns: tuple[str, ...],
    encode: Callable[[tuple[str, ...], Iterable[Row]], bytes],
    header: bytes,
) -> Iterator[Message]:
    for day, block in days.read(lambda rows: encode(columns, rows), progress):
        yield day, header + block
        header = b""


def format_of(path: str | None) -> str:
    return ENDINGS.get(os.path.splitext(path or "")[1].lower(), "csv")


def is_parquet_file(path: str) -> bool:
    return format_of(path) == "parquet" and not os.path.isdir(path)


def check(options: argparse.Namespace, name: str, form: str, is_folder: bool) -> None:
    """Raise UsageError if these options don't go together."""
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


def output(path: str | None) -> AbstractContextManager[BinaryIO | StandardOutput]:
    return nullcontext(StandardOutput()) if path is None else whole_file(path)


def write_folder(blocks: Blocks, name: str, path: str, host: str) -> None:
    from gua_report.exporting import parquet
    from gua_report.window import is_day

    folder = parquet.Folder(path, host, parquet.schema_of(name, TABLES[name].columns))
    for day, content in blocks:
        if not is_day(day):  # the day becomes part of a path
            raise StoreError("what reads the folder sends nonsense: is a file in it damaged?")
        folder.write(day, content)
