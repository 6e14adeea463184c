"""The gua import command."""

import argparse
import os
import textwrap
import time

from gua_report.console.arguments import find_data_dir
from gua_report.console.spelling import as_json, first_of
from gua_report.importing.intake import Intake, Tally, iso
from gua_report.importing.opening import open_source_safely
from gua_sample import console
from gua_sample.console import plural
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.processes import printable

PROG = "gua import"
DESCRIPTION = """\
Take in the history that another tool, or gua itself elsewhere, has recorded:
a gpu-usage-audit database, gpu_stats_service CSV files, a gua data folder.
What SOURCE is, is seen by looking; it is never altered. What is there already
is passed over, so it may be run again."""
EPILOG = """\
examples:
  gua import ~/.gua/gua.db              a gpu-usage-audit database
  gua import ~/gpu_stats                a folder of gpu_stats_service CSVs
  gua import /mnt/backup/gua            a copy of a gua data folder
  gua import --dry-run ~/.gua/gua.db    what would be taken, and what not
  gua import --data-dir ./node7 /mnt/node7/gua
                                        another host's, into a folder of its own

A data folder is one host's history. docs/import.md says what each source can
tell. exit status: 0 done, 1 failed or days were refused, 2 wrong usage,
3 nothing to import.
"""
WIDTH = 78
REASONS = 5
NAMED = 3
MARGIN = 10


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("source", metavar="SOURCE", help="a file or a folder")
    parser.add_argument("--data-dir", metavar="DIR", help="where the history lives; made if it is missing")
    parser.add_argument("--dry-run", action="store_true", help="say what would be taken, and write nothing")
    parser.add_argument("--json", action="store_true", help="print what was taken as JSON")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    data_dir = find_data_dir(PROG, options.data_dir)
    path = os.path.abspath(options.source)
    tally = Tally()
    with open_source_safely(path, data_dir, tally) as source:
        kind = source.kind
        intake = Intake(data_dir, tally, time.time_ns() // 1_000_000, options.dry_run)
        try:
            intake.take(source)
        except StoreError as error:
            if not tally.ticks:
                raise
            raise StoreError(
                f"{error} (before that, {amount(tally)} were taken: run this again for the rest)"
            ) from error
    document = {"source": path, "kind": kind, "data_dir": data_dir, "dry_run": options.dry_run, **tally.to_dict()}
    console.say(PROG, as_json(**document) if options.json else text(tally, path, kind, data_dir, options))
    for line in refusals(tally):
        console.complain(PROG, f"error: {line}")
    if tally.is_empty:
        raise NothingToReport(f"nothing to import in {path}")
    return 1 if tally.refused else 0


def text(tally: Tally, path: str, kind: str, data_dir: str, options: argparse.Namespace) -> str:
    lines = [printable(f"{kind}: {path}")]
    taken = "would take" if options.dry_run else "took"
    if tally.ticks:
        lines += entry(taken, f"{amount(tally)}, into {data_dir}")
    else:
        lines += entry(taken, "nothing new" if tally.there_already else "nothing")
    if tally.there_already:
        lines += entry("there", f"{plural(tally.there_already, 'tick')} already")
    for left in tally.left_out.values():
        more = ", ..." if left.count > len(left.examples) else ""
        lines += entry("left out", f"{plural(left.count, left.what)} {left.reason}: {', '.join(left.examples)}{more}")
    if tally.refused:
        lines += entry("refused", first_of(list(tally.refused), NAMED))
    for warning in tally.warnings:
        lines += entry("warning", warning)
    return "\n".join(lines)


def refusals(tally: Tally) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for what, reason in tally.refused.items():
        by_reason.setdefault(reason, []).append(what)
    lines = [f"{first_of(whats, NAMED)} refused: {reason}" for reason, whats in by_reason.items()]
    more = [f"and {len(lines) - REASONS} more reasons: see --json"] if len(lines) > REASONS else []
    return lines[:REASONS] + more


def entry(word: str, sentence: str) -> list[str]:
    wrapped = textwrap.wrap(printable(sentence), WIDTH - MARGIN, break_on_hyphens=False, break_long_words=False)
    return [f"{word if number == 0 else '':<{MARGIN}} {line}".rstrip() for number, line in enumerate(wrapped)]


def amount(tally: Tally) -> str:
    taken = tally.to_dict()["taken"]
    days, cards = plural(len(tally.days), "day"), plural(taken["cards"], "card")
    processes = plural(taken["processes"], "process", "es")
    span = f"{iso(tally.first_ms or 0)} to {iso(tally.last_ms or 0)}"
    return f"{plural(tally.ticks, 'tick')} of {days} ({span}) with {cards} and {processes}"
