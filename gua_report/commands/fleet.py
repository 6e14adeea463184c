"""The gua fleet command."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from gua_report.config import load_config
from gua_report.console.arguments import choose
from gua_report.console.fitting import fit, join
from gua_report.console.spelling import duration
from gua_report.console.terminal import progress_bar
from gua_report.fleet.asked import AskedFleet, refuse_root
from gua_report.fleet.suspicions import KINDS, NO_DAY, end_ms, look_at_hosts
from gua_report.window import DEFAULT_SINCE, parse_window
from gua_sample import console
from gua_sample.console import plural
from gua_sample.errors import StoreError, UsageError
from gua_sample.policy import Policy
from gua_sample.processes import printable

if TYPE_CHECKING:
    from gua_report.fleet.build import Mapped

PROG = "gua fleet"
DESCRIPTION = """\
Whether the files of many hosts have arrived, how old they are, and what a
report leaves out of them, or doubts: it makes the same sums as gua-report.
DIR has a folder for each host, DIR/<host>/rollups.sqlite."""
EPILOG = """\
examples:
  gua fleet status /srv/gua                 each host's newest day, age, version
  gua fleet status /srv/gua --hosts 'gpu0*'
  gua fleet status /srv/gua --since 30d     before a report of 30 days
  gua fleet status /srv/gua --json | jq -r '.with_problems[]'
  gua-report --fleet /srv/gua --since 30d   the report of all of them
  gua fleet check new.sqlite rollups.sqlite whether it can take the place of that

A host is late if yesterday (UTC) is not there by 06:00 UTC. Hosts that are
expected are those with a folder, and those in [hosts] of the config.
exit status: 0 all is well, 1 a report would leave something out, or doubts it
(check: it can't use the file), 2 wrong usage, 3 there is no host.
"""
VERBS = ("status", "check")
OK = "ok"
WIDTH, WIDEST_NAME, WIDEST_VERSION = 79, 24, 12


class HostStatus(NamedTuple):
    host: str
    state: str  # OK, or the most important of its problems, one of KINDS
    newest_day: str | None
    age_seconds: int | None  # since the end of that day
    days: int | None
    gua_version: str | None
    machine: str | None
    thresholds: dict[str, float] | None  # those of most days
    days_other: int | None  # of all days: those under other thresholds than the reader's, or by another rule
    problems: list[str]

    @property
    def is_bad(self) -> bool:
        return self.state not in (OK, NO_DAY)


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("verb", metavar="|".join(VERBS), help="of all hosts, or of one new file")
    parser.add_argument("path", metavar="DIR|FILE", help="where the hosts' files are collected, or the new file")
    parser.add_argument("last", metavar="LAST", nargs="?", help="its newest day is printed if FILE begins anew")
    parser.add_argument("--hosts", metavar="GLOB", help="only hosts with names like this: 'gpu0*'")
    parser.add_argument("--since", metavar="D", help=f"how many days to look at (default {DEFAULT_SINCE})")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/fleet.md")
    parser.add_argument("--config", metavar="FILE", help="thresholds and hosts, instead of /etc/gua/gua.toml")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    choose(options.verb, "verb", VERBS)
    refuse_root()
    if options.verb == "check":
        return check(options.path, options.last)
    if options.last:
        raise UsageError(f"one folder at a time, and not {options.last} too")
    config = load_config(options.config)
    window = parse_window(options.since, None, None, None)

    # Imported late: pandas takes longer than all the rest.
    from gua_report.fleet.build import map_fleet

    asked = AskedFleet(options.path, window, config, options.hosts, since=options.since, progress=progress_bar())
    found = find_statuses(map_fleet(asked), config.policy, window.end_ms)
    console.say(PROG, json.dumps(to_document(options.path, found), indent=2) if options.json else show(found))
    return int(any(status.is_bad for status in found))


def check(new: str, last: str | None) -> int:
    from gua_report.fleet.executors import map_in_children
    from gua_report.fleet.host_files import HostFile, Listed

    files = [HostFile(path, path, path) for path in (new, last) if path]
    # At time 0, as no file is too old to be kept.
    _, looks, problems, _ = look_at_hosts(Listed(files, {}), map_in_children, 0, is_thorough=True)
    for problem in problems:
        if problem.host == new and problem.is_left_out and new not in looks:
            raise StoreError(problem.detail)
    found, before = looks.get(new), looks.get(last or "")
    if before and not (found and before.first_day <= found.newest_day and found.first_day <= before.newest_day):
        console.say(PROG, before.newest_day)
    return 0


def find_statuses(mapped: Mapped, policy: Policy, now_ms: int) -> list[HostStatus]:
    looks, found = mapped.looked.looks, []
    for name in sorted({*looks, *(problem.host for problem in mapped.problems)}):
        own = [problem for problem in mapped.problems if problem.host == name]
        own.sort(key=lambda problem: KINDS.index(problem.kind))
        facts: list[Any] = [None] * 7
        if look := looks.get(name):
            others = sum(days for found, days in look.thresholds if found != policy) + look.other_rule_days
            usual = look.thresholds[0][0]._asdict() if look.thresholds else None
            age = max(0, now_ms - end_ms(look)) // 1000
            facts = [look.newest_day, age, look.days, look.version, look.machine, usual, others]
        found.append(HostStatus(*(name, own[0].kind if own else OK, *facts, [problem.detail for problem in own])))
    return found


def to_document(folder: str, statuses: list[HostStatus]) -> dict[str, Any]:
    bad = [status.host for status in statuses if status.is_bad]
    return {"schema_version": 1, "folder": folder, "with_problems": bad, "hosts": [s._asdict() for s in statuses]}


def show(found: list[HostStatus]) -> str:
    titles = ["host", "state", "newest day", "age", "days", "gua"]
    cells = [
        [
            fit(printable(status.host), WIDEST_NAME),
            status.state,
            status.newest_day or "-",
            "-" if status.age_seconds is None else duration(status.age_seconds),
            "-" if status.days is None else f"{status.days:,}",
            fit(printable(status.gua_version or "-"), WIDEST_VERSION),
        ]
        for status in found
    ]
    sizes = [max(len(row[place]) for row in [titles, *cells]) for place in range(len(titles))]
    right = [title in ("age", "days") for title in titles]
    lines = [join(titles, sizes, right)]
    for status, row in zip(found, cells, strict=True):
        lines.append(join(row, sizes, right))
        for problem in status.problems:
            wrapped = textwrap.wrap(printable(problem), WIDTH - 4, break_on_hyphens=False, break_long_words=False)
            lines += [("    " if number else "  ") + line for number, line in enumerate(wrapped)]
    bad = sum(status.is_bad for status in found)
    lines.append(f"{plural(len(found), 'host')}, {bad or 'none'} with problems")
    return "\n".join(lines)
