"""gua demo: a few ticks of a made-up laboratory, and what its cards were doing. Needs no GPU, leaves nothing behind."""

from __future__ import annotations

import argparse
import tempfile

from gua_sample import command
from gua_sample.errors import UsageError

PROG = "gua demo"
DESCRIPTION = "Sample a made-up laboratory a few times and show what its cards were doing."
EPILOG = """\
examples:
  gua demo               three ticks
  gua demo --seed 7      another laboratory
"""
TICKS = 3
INTERVAL_MS = 30_000
# A Wednesday morning, when something of everything is going on.
END_MS = 1_794_391_200_000


def main(arguments: list[str] | None = None) -> int:
    return command.run(build_parser(), run, arguments)


def build_parser() -> command.Parser:
    parser = command.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--seed", metavar="N", default="0", help="which laboratory (default 0)")
    return parser


def run(options: argparse.Namespace) -> int:
    if not (options.seed.isascii() and options.seed.isdigit()):
        raise UsageError(f"bad --seed {options.seed!r}: expected a whole number, such as 42")
    from gua_report import listing
    from gua_sample import store
    from gua_sample.simulate import Laboratory

    start_ms = END_MS - TICKS * INTERVAL_MS
    with tempfile.TemporaryDirectory(prefix="gua-demo-") as data_dir:
        history = Laboratory(int(options.seed)).history(start_ms, END_MS, INTERVAL_MS)
        count = store.append_history(store.prepare(data_dir), history)
        cards, _ = listing.load_cards(data_dir, start_ms, END_MS)
    command.say(PROG, f"{count} simulated ticks: each row is one card at one tick")
    command.say(PROG, listing.render(cards))
    return 0
