"""The gua-report command."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gua_report import render
from gua_report.config import RECLAIM_AFTER, Config, Limits, Reservations, load_config
from gua_report.console import terminal
from gua_report.console.arguments import (
    DATABASE_HINT,
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
from gua_report.fleet.asked import AskedFleet, ask_fleet, refuse_root
from gua_report.machine.child import ask_as_owner
from gua_report.people.identities import Wanted, find_person
from gua_report.render import FORMATS, LONG_EPISODE, OF_PEOPLE, SECTIONS, WHAT_COUNTS
from gua_report.summary.of_hosts import HOST, KEYS
from gua_report.window import Window, parse_window
from gua_sample import console, settings
from gua_sample.errors import GuaError, UsageError

if TYPE_CHECKING:
    from gua_report.summary.report import Report

Make = Callable[["Report"], dict[str, Any]]  # text, warnings, is_clean, left_out

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
  gua-report --who me                      your own: what you hold, and held
  gua-report --group vision --since 30d    that of the people in a group
  gua-report --fleet /srv/gua --since 30d  that of many hosts

durations: a number and ms, s, m, h, d or w. times: 2026-11-16 or
2026-11-16T08:30, in the time zone of the report unless they name their own.
exit status: 0 done, 1 failed, or incomplete: of a fleet not all could be used
(the report is printed), 2 wrong usage, 3 nothing to report.
"""
WAIT = "60s"
SCHEDULER = "on this Dask cluster: tcp://..., tls://..., or its scheduler's file"
WIDTH, WIDEST = 78, 120  # in columns, in a mail or pipe and on a terminal
NARROWEST, BRIEF_WIDTH = 60, 72
BRIEF_FORMATS = ("text", "markdown")
ENDINGS = {".html": "html", ".json": "json", ".csv": "csv", ".md": "markdown"}


def entry() -> NoReturn:
    console.leave(main(), needs_output=True)


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.hints = {"--interval": "not needed: it is recorded with each tick", **DATABASE_HINT}
    add_window(parser)
    what = parser.add_argument_group("what")
    repeated = f"only this section; may be repeated: {', '.join(SECTIONS)}"
    what.add_argument("--section", metavar="NAME", action="append", help=repeated)
    what.add_argument("--top", metavar="N", type=positive, default=10, help="rows in the longer tables (default 10)")
    what.add_argument("--util-threshold", metavar="PERCENT", type=percent, help="active from this utilization on")
    what.add_argument("--memory-threshold", metavar="MIB", type=mebibytes, help="held above this memory of processes")
    rules = f"what such a rule would free; may be repeated (default {' '.join(RECLAIM_AFTER)})"
    what.add_argument("--reclaim-after", metavar="D", action="append", help=rules)
    whose = parser.add_argument_group("whose", "the report of some people names nobody else")
    whose.add_argument("--group", metavar="NAME", help="of those in this group of the config")
    many = parser.add_argument_group("of many hosts", "docs/fleet.md says how their files are collected")
    many.add_argument("--fleet", metavar="DIR", help="of all hosts with a file in DIR/<host>/, in one report")
    many.add_argument("--hosts", metavar="GLOB", help="only hosts with names like this: 'gpu0*'")
    many.add_argument("--by", metavar="KEY", help=f"hours by {', '.join(KEYS)} (default host)")
    many.add_argument("--scheduler", metavar="ADDRESS", help=SCHEDULER)
    many.add_argument("--wait", metavar="D", help=f"give up if it has no worker for this long (default {WAIT})")
    own = "of this person, as reports call them; me is the user who runs this, under sudo that is root"
    whose.add_argument("--who", metavar="NAME", help=own)
    how = parser.add_argument_group("how")
    formats = f"{', '.join(FORMATS)} (default as the output's name ends, else text)"
    how.add_argument("--format", metavar="NAME", help=formats)
    how.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    how.add_argument("--brief", action="store_true", help="what fits a phone: what to act on, and the first people")
    widths = f"columns of the text (default {WIDTH}, up to {WIDEST} on a terminal)"
    how.add_argument("--width", metavar="N", type=positive, help=widths)
    how.add_argument("--color", metavar="WHEN", help="auto, always or never (default auto: on a terminal)")
    how.add_argument("--ascii", action="store_true", help="nothing but ASCII in the text")
    how.add_argument("-o", "--output", metavar="FILE", type=output_path, help="write there instead of printing")
    quiet = f"print and write nothing unless there is something to act on, and say what: {WHAT_COUNTS}"
    how.add_argument("--quiet-if-clean", metavar="D", nargs="?", const=LONG_EPISODE, help=quiet)
    add_place(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    ending = os.path.splitext(options.output or "")[1].lower()
    name = choose(options.format or ENDINGS.get(ending, "text"), "format", render.FORMATS)
    config = load_config(options.config)
    wanted, sections = find_wanted(options, config), find_sections(options, name, config)
    if options.brief and (name not in BRIEF_FORMATS or options.section):
        raise UsageError(f"--brief is for {' and '.join(BRIEF_FORMATS)}, and chooses the sections itself")
    width, color = find_width(options), find_color(options)
    display = render.Options(sections, options.top, width, options.ascii, color, brief=options.brief)
    window = parse_window(options.since, options.start, options.end, options.tz)
    quiet = options.quiet_if_clean is not None
    says_what_to_act_on = quiet or options.brief or name == "html"
    config = leave_out(config, options, sections, says_what_to_act_on)
    given = {"utilization_percent": options.util_threshold, "process_memory_mib": options.memory_threshold}
    thresholds = {name: value for name, value in given.items() if value is not None}
    config = config._replace(policy=config.policy._replace(**thresholds))
    reclaim = tuple(settings.duration_ms(text) for text in options.reclaim_after or RECLAIM_AFTER)
    longest_ms = settings.duration_ms(options.quiet_if_clean if quiet else LONG_EPISODE)
    has_times = not (name in BRIEF_FORMATS and display.is_whole)  # which would not show them
    ask = find_question(options, config, window, reclaim, has_times)

    from gua_report.render.attention import reasons
    from gua_report.summary.names import select

    renderer = render.renderer(name, display)
    if options.output is not None:
        check_writable(options.output)

    def make(report: "Report") -> dict[str, Any]:
        report = select(report, wanted) if wanted else report
        attention = tuple(reasons(report, longest_ms)) if says_what_to_act_on else ()
        # Rendered even if nothing is printed: an error must show in a clean week too.
        text = renderer(report, display._replace(attention=attention))
        problems = [*report.people_problems, *(report.memberships.problems if report.memberships else [])]
        warnings = [*report.warnings, *report.reservation_problems, *problems]
        left_out = report.fleet is not None and not report.fleet.is_complete
        return {"text": text, "warnings": warnings, "is_clean": quiet and not attention, "left_out": left_out}

    made = ask(make)
    for warning in made["warnings"]:
        console.complain(PROG, f"warning: {warning}")
    if made["is_clean"]:
        return 0
    if name == "csv" and not options.section:
        table, known = ("gpus", render.SECTIONS) if wanted is None else ("identities", render.OF_PEOPLE)
        console.complain(PROG, f"csv is one table, here {table}; for another give --section: {', '.join(known)}")
    if options.output is None:
        console.say(PROG, made["text"].rstrip("\n"))
    else:
        with whole_file(options.output) as file:
            file.write((made["text"].rstrip("\n") + "\n").encode())
    if made["left_out"]:
        console.complain(PROG, "incomplete: not all hosts could be used; the report names them (--section not_used)")
    return int(made["left_out"])


def find_question(
    options: argparse.Namespace, config: Config, window: Window, reclaim: tuple[int, ...], has_times: bool
) -> Callable[[Make], dict[str, Any]]:
    if options.fleet is not None:
        if options.data_dir is not None:
            raise UsageError("--fleet and --data-dir are two reports: give one of them")
        refuse_root()
        by = choose(options.by or HOST, "--by", KEYS)
        times = (options.since, options.start, options.end)
        if options.wait is not None and options.scheduler is None:
            raise UsageError("--wait is for a Dask cluster: give --scheduler ADDRESS too")
        wait_ms = settings.duration_ms(options.wait or WAIT)
        asked = AskedFleet(
            options.fleet, window, config, options.hosts, by, options.scheduler, *times, wait_ms, reclaim
        )
        return lambda make: make(ask_fleet(asked._replace(progress=terminal.progress_bar())))
    if given := [name for name in ("hosts", "by", "scheduler", "wait") if getattr(options, name) is not None]:
        raise UsageError(f"--{given[0]} is for many hosts: give --fleet DIR too")
    data_dir = find_history(PROG, options.data_dir)

    def ask(make: Make) -> dict[str, Any]:
        from gua_report.summary.build import build_report
        from gua_report.summary.reserved_hours import read_told

        told, now_ms = read_told(config, window.start_ms), time.time_ns() // 1_000_000
        build = partial(
            build_report, data_dir, window, config, reclaim, terminal.progress_bar(), told, now_ms, has_times
        )
        made: dict[str, Any] = ask_as_owner(data_dir, lambda: make(build()))
        return made

    return ask


def find_wanted(options: argparse.Namespace, config: Config) -> Wanted | None:
    if options.group is None:
        return None if options.who is None else find_person(options.who, config.people)
    if options.who is not None:
        raise UsageError("--group and --who are two reports: give one of them")
    if not config.groups:
        raise UsageError("no groups are configured: see [groups] in gua.toml")
    return Wanted(choose(options.group, "group", tuple(config.groups)))


def find_sections(options: argparse.Namespace, format_name: str, config: Config) -> tuple[str, ...]:
    of_some = options.group is not None or options.who is not None
    known, what = (OF_PEOPLE, "section about people") if of_some else (SECTIONS, "section")
    if options.section:
        return tuple(choose(section, what, known) for section in options.section)
    if of_some and format_name == "csv":
        return ("identities",)
    left_out = {"groups"} if options.group is None else set()
    left_out |= set() if any(config.reservations) else {"reservations"}
    return tuple(section for section in known if not of_some or section not in left_out)


def leave_out(
    config: Config, options: argparse.Namespace, sections: tuple[str, ...], says_what_to_act_on: bool
) -> Config:
    if "reservations" not in sections:
        config = config._replace(reservations=Reservations())
    if not says_what_to_act_on and not {"identities", "groups"}.intersection(sections):
        config = config._replace(limits=Limits())  # their week may have to be read as well
    has_group_limits = says_what_to_act_on and options.who is None and config.limits.groups
    if "groups" not in sections and options.group is None and not has_group_limits:
        config = config._replace(groups={})  # the directory of users may be slow
    return config


def find_width(options: argparse.Namespace) -> int:
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
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise GuaError(f"{path} is a folder: give a file with -o")
    if not os.path.isdir(folder):
        raise GuaError(f"no folder {folder}: create it, or give another file with -o")
    if not os.access(path if os.path.exists(path) and not os.path.isfile(path) else folder, os.W_OK):
        raise GuaError(f"{path} can't be written by this user: give another file with -o")
    check_place(path)
