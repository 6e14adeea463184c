"""The gua-report command."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any, NoReturn

from gua_report.console import terminal
from gua_report.console.arguments import (
    add_place,
    add_window,
    choose,
    find_history,
    mebibytes,
    output_path,
    percent,
    positive,
)
from gua_report.console.whole_file import check_place, whole_file
from gua_sample import console, settings
from gua_sample.errors import GuaError, UsageError

PROG = "gua-report"
DESCRIPTION = """\
How much GPU memory was held on cards that did no work: how much, whose, since
when. Reads what gua-sample recorded, and writes nothing but the report."""
EPILOG = """\
examples:
  gua-report                               the last seven days
  gua-report --since 24h --section episodes
  gua-report --from 2026-11-01 --to 2026-12-01 --tz Europe/Berlin
  gua-report --since 30d --format json -o november.json
  gua-report --section gpus --format csv   one table, for a spreadsheet
  gua-report --format html -o week.html    a page with pictures
  gua-report --brief --quiet-if-clean 2h   for cron: a mail only if need be

durations: a number and ms, s, m, h, d or w. times: 2026-11-16 or
2026-11-16T08:30, in the time zone of the report unless they name their own.
exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to report.
"""
WIDTH, WIDEST = 78, 120  # in columns, in a mail or pipe and on a terminal
NARROWEST, BRIEF_WIDTH = 60, 72
BRIEF_FORMATS = ("text", "markdown")


def entry() -> NoReturn:
    """Run the command and exit: the entry point of the console script."""
    console.leave(main())


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments)


def build_parser() -> console.Parser:
    from gua_report.config import RECLAIM_AFTER
    from gua_report.render import FORMATS, SECTIONS
    from gua_report.render.attention import LEAST_COVERAGE, LONG_EPISODE, MOST_UNKNOWN

    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_window(parser)
    what = parser.add_argument_group("what")
    repeated = f"only this section; may be repeated: {', '.join(SECTIONS)}"
    what.add_argument("--section", metavar="NAME", action="append", help=repeated)
    what.add_argument("--top", metavar="N", type=positive, default=10, help="rows in the longer tables (default 10)")
    what.add_argument("--util-threshold", metavar="PERCENT", type=percent, help="active from this utilization on")
    what.add_argument("--memory-threshold", metavar="MIB", type=mebibytes, help="held above this much memory")
    rules = f"what such a rule would free; may be repeated (default {' '.join(RECLAIM_AFTER)})"
    what.add_argument("--reclaim-after", metavar="D", action="append", help=rules)
    how = parser.add_argument_group("how")
    how.add_argument("--format", metavar="NAME", help=f"{', '.join(FORMATS)} (default text)")
    how.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    how.add_argument("--brief", action="store_true", help="what fits a phone: what to act on, and the first people")
    widths = f"columns of the text (default {WIDTH}, up to {WIDEST} on a terminal)"
    how.add_argument("--width", metavar="N", type=positive, help=widths)
    how.add_argument("--color", metavar="WHEN", help="auto, always or never (default auto: on a terminal)")
    how.add_argument("--ascii", action="store_true", help="nothing but ASCII in the text")
    how.add_argument("-o", "--output", metavar="FILE", type=output_path, help="write there instead of printing")
    how.add_argument(
        "--quiet-if-clean",
        metavar="D",
        nargs="?",
        const=LONG_EPISODE,
        help="print and write nothing unless there is something to act on, and say what: an idle-held episode of D or"
        f" more (default {LONG_EPISODE}), less than {LEAST_COVERAGE:.0%}% of the time observed, a card unknown for over"
        f" {MOST_UNKNOWN:.0%}% of its time, a partition that can't be read, a sampler that has stopped, or that it is"
        " not known who holds what right now",
    )
    add_place(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from gua_report import render
    from gua_report.config import RECLAIM_AFTER, Reservations, load_config
    from gua_report.render.attention import LONG_EPISODE
    from gua_report.window import parse_window

    name = choose(options.format or "text", "format", render.FORMATS)
    sections = tuple(choose(section, "section", render.SECTIONS) for section in options.section or render.SECTIONS)
    if options.brief and (name not in BRIEF_FORMATS or options.section):
        raise UsageError(f"--brief is for {' and '.join(BRIEF_FORMATS)}, and chooses the sections itself")
    display = render.Options(
        sections, options.top, find_width(options), options.ascii, find_color(options), brief=options.brief
    )
    window = parse_window(options.since, options.start, options.end, options.tz)
    config = load_config(options.config)
    if "reservations" not in sections:
        config = config._replace(reservations=Reservations())  # reading them takes a while
    given = {"utilization_percent": options.util_threshold, "process_memory_mib": options.memory_threshold}
    thresholds = {name: value for name, value in given.items() if value is not None}
    config = config._replace(policy=config.policy._replace(**thresholds))
    reclaim = tuple(settings.duration_ms(text) for text in options.reclaim_after or RECLAIM_AFTER)
    quiet = options.quiet_if_clean is not None
    longest_ms = settings.duration_ms(options.quiet_if_clean if quiet else LONG_EPISODE)
    data_dir = find_history(PROG, options.data_dir)

    # Imported late: pandas takes longer than all the rest, and --help and usage errors don't need it.
    from gua_report.machine.as_owner import ask_as_owner
    from gua_report.render.attention import reasons
    from gua_report.reservations.sources import is_configured
    from gua_report.summary.build import build_report
    from gua_report.summary.reserved_hours import read_told

    renderer = render.renderer(name)
    if options.output is not None:
        check_writable(options.output)
    told = read_told(config, window.start_ms) if is_configured(config) else None

    def make() -> dict[str, Any]:
        report = build_report(data_dir, window, config, reclaim, terminal.progress_bar(), told)
        attention = tuple(reasons(report, longest_ms)) if quiet or options.brief or name == "html" else ()
        # Rendered even if nothing is printed: an error must show in a clean week too.
        text = renderer(report, display._replace(attention=attention))
        warnings = [*report.warnings, *report.reservation_problems]
        return {"text": text, "warnings": warnings, "is_clean": quiet and not attention}

    made = ask_as_owner(data_dir, make)
    for warning in made["warnings"]:
        console.complain(PROG, f"warning: {warning}")
    if made["is_clean"]:
        return 0
    if options.output is None:
        console.say(PROG, made["text"].rstrip("\n"))
    else:
        with whole_file(options.output) as file:
            file.write((made["text"].rstrip("\n") + "\n").encode())
    return 0


def find_width(options: argparse.Namespace) -> int:
    """The width that was requested, else that of the terminal, within limits."""
    if options.width is not None:
        if not NARROWEST <= options.width <= 400:
            raise UsageError(f"bad --width {options.width}: expected {NARROWEST} to 400 columns")
        return int(options.width)
    if options.brief:
        return BRIEF_WIDTH
    if options.output is not None or not terminal.is_terminal(sys.stdout):
        return WIDTH
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns))


def find_color(options: argparse.Namespace) -> bool:
    when = choose(options.color or "auto", "--color", ("auto", "always", "never"))
    return when == "always" or (when == "auto" and options.output is None and terminal.use_color())


def check_writable(path: str) -> None:
    """Raise GuaError if the file can't be written: before a report is made, which takes a while."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise GuaError(f"{path} is a folder: give a file with -o")
    if not os.path.isdir(folder):
        raise GuaError(f"no folder {folder}: create it, or give another file with -o")
    if not os.access(path if os.path.exists(path) and not os.path.isfile(path) else folder, os.W_OK):
        raise GuaError(f"{path} can't be written by this user: give another file with -o")
    check_place(path)
