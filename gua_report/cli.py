"""The gua-report command."""

from __future__ import annotations

import argparse
import time

from gua_sample import command, settings

PROG = "gua-report"
DESCRIPTION = """\
List what every card was doing at every tick: active, idle-held, truly-idle or
unknown."""
EPILOG = """\
examples:
  gua-report                               the last ten minutes
  gua-report --since 1h --data-dir ./try   the last hour of another folder
  gua-report --json | jq '.[].state'       for machines

exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to report.
"""


def main(arguments: list[str] | None = None) -> int:
    return command.run(build_parser(), run, arguments)


def build_parser() -> command.Parser:
    parser = command.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--data-dir", metavar="DIR", help="where the history lives")
    parser.add_argument(
        "--since", metavar="D", default="10m", help="how far to go back, such as 30m or 7d (default 10m)"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    since_ms = settings.duration_ms(options.since)
    data_dir = settings.data_dir(options.data_dir)
    now_ms = time.time_ns() // 1_000_000
    from gua_report import listing  # pandas takes longer than all the rest: not for --help

    cards, warnings = listing.load_cards(data_dir, now_ms - since_ms, now_ms + 1)
    for warning in warnings:
        command.complain(PROG, f"warning: {warning}")
    command.say(PROG, cards.to_json(orient="records") if options.json else listing.render(cards))
    return 0
