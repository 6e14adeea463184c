"""The gua fleet command."""

from __future__ import annotations

import argparse
import json
import textwrap
import time
from typing import TYPE_CHECKING

from gua_report.console.arguments import choose
from gua_report.console.fitting import fit, join
from gua_report.console.spelling import duration
from gua_report.console.terminal import progress_bar
from gua_sample import console
from gua_sample.console import plural
from gua_sample.processes import printable

if TYPE_CHECKING:
    from gua_report.fleet.status import HostStatus

PROG = "gua fleet"
DESCRIPTION = """\
Whether the files of many hosts have arrived, how old they are and whether a
report can use them. DIR has a folder for each host, DIR/<host>/rollups.sqlite."""
EPILOG = """\
examples:
  gua fleet status /srv/gua                 each host's newest day, age, version
  gua fleet status /srv/gua --hosts 'gpu0*'
  gua fleet status /srv/gua --json | jq -r '.late_or_not_usable[]'
  gua-report --fleet /srv/gua --since 30d   the report of all of them

A host is late if yesterday (UTC) is not there by 06:00 UTC. Hosts that are
expected are those with a folder, and those in [hosts] of the config.
exit status: 0 all are there, 1 a host is late or its file can't be used,
2 wrong usage, 3 there is no host.
"""
VERBS = ("status",)
WIDTH, WIDEST_NAME, WIDEST_VERSION = 79, 24, 12


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments)


def build_parser() -> console.Parser:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("verb", metavar="status", help="the one thing to ask so far")
    parser.add_argument("folder", metavar="DIR", help="where the hosts' files are collected")
    parser.add_argument("--hosts", metavar="GLOB", help="only hosts with names like this: 'gpu0*'")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/fleet.md")
    parser.add_argument("--config", metavar="FILE", help="thresholds and hosts, instead of /etc/gua/gua.toml")
    return parser


def run(options: argparse.Namespace) -> int:
    from gua_report.config import load_config
    from gua_report.fleet.asked import refuse_root
    from gua_report.fleet.host_files import expected_hosts, list_hosts
    from gua_report.fleet.in_children import map_in_children
    from gua_report.fleet.look_at_hosts import look_at_hosts
    from gua_report.fleet.status import find_statuses, to_document

    choose(options.verb, "verb", VERBS)
    refuse_root()
    config = load_config(options.config)
    now_ms = time.time_ns() // 1_000_000
    listed = list_hosts(options.folder, options.hosts, expected_hosts(config.hosts))
    looked = look_at_hosts(listed, map_in_children, now_ms, progress_bar())
    found = find_statuses(looked, config.policy, now_ms)
    if options.json:
        console.say(PROG, json.dumps(to_document(options.folder, found), indent=2))
    else:
        console.say(PROG, show(found))
    return int(any(status.is_bad for status in found))


def show(found: list[HostStatus]) -> str:
    """A line for each host, and below it what is wrong; then how many are well."""
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
            lines += textwrap.wrap(
                printable(problem),
                WIDTH,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
                break_long_words=False,
            )
    bad = sum(status.is_bad for status in found)
    lines.append(f"{plural(len(found), 'host')}, {bad or 'none'} late or not usable")
    return "\n".join(lines)
