"""The gua rollup command."""

import argparse
import json
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from gua_report.config import load_config
from gua_report.console import terminal
from gua_report.console.arguments import add_place, find_history
from gua_sample import console
from gua_sample.console import plural
from gua_sample.processes import printable
from gua_sample.rights import become_owner

if TYPE_CHECKING:
    from gua_report.upkeep.nightly import Done

PROG = "gua rollup"
DESCRIPTION = """\
Sum up every closed day that has not been yet, or whose ticks or thresholds
have changed since; write its CSV file; remove what is older than [retention]
in the configuration allows; with [fleet] publish = true, leave a copy of the
sums for a fleet to collect. Reports use the sums by themselves. A timer runs
it daily."""
EPILOG = """\
examples:
  gua rollup              what is left to do
  gua rollup --dry-run    say what that would be, and what would be removed
  gua rollup --rebuild    all days anew
  gua rollup --compact    and closed days packed: a tenth less on disk

It can be stopped at any time, and goes on where it was. A day is closed when
it has been over for five minutes. Ticks are only removed if their sums were
read back and found right, and neither has changed on disk since.
exit status: 0 done, 1 failed (days that can't be read, or have rotted, are
named; so is a copy that can't be published), 2 wrong usage, 3 there is no such
data folder.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_place(parser)
    parser.add_argument("--rebuild", action="store_true", help="sum up all days anew")
    parser.add_argument("--compact", action="store_true", help="pack the partitions of closed days, each once")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    from gua_report.upkeep.nightly import Upkeep, alone

    config = load_config(options.config)
    data_dir = find_history(PROG, options.data_dir)
    become_owner(data_dir)
    with nullcontext() if options.dry_run else alone(data_dir):
        now_ms, warn = time.time_ns() // 1_000_000, lambda text: console.complain(PROG, f"warning: {text}")
        upkeep = Upkeep(data_dir, config, now_ms, options.dry_run, warn)
        done = upkeep.run(options.rebuild, options.compact, terminal.progress_bar("rolling up"))
    if options.json:
        console.say(PROG, json.dumps({"dry_run": options.dry_run, **done._asdict()}, indent=2))
    else:
        console.say(PROG, summary(done, options.dry_run))
    return 1 if done.failed or done.failed_check or done.publish_failed or done.csv_failed else 0


def summary(done: "Done", dry_run: bool) -> str:
    first = f"{'would roll up' if dry_run else 'rolled up'} {plural(len(done.rolled_up), 'day')}"
    if done.rolled_up:
        first += f" ({' to '.join(dict.fromkeys([done.rolled_up[0], done.rolled_up[-1]]))})"
    counts = (
        (done.unchanged, "day", " done before"),
        (len(done.open), "day", " not closed yet"),
        (len(done.failed), "day", " not readable"),
        (len(done.csv), "CSV file", ""),
        (len(done.compacted), "day", " to compact" if dry_run else " compacted"),
    )
    lines = [", ".join([first, *(f"{plural(count, noun)}{what}" for count, noun, what in counts if count)])]
    lines += [f"{'would publish' if dry_run else 'published'} {printable(done.published)}"] if done.published else []
    lines += [f"{'would remove' if dry_run else 'removed'} {printable(path)}" for path in done.removed]
    lines += [f"kept {day}: it is old enough, but it could not be rolled up" for day in done.kept]
    lines += [f"kept {day}: it failed its check for bit rot" for day in done.failed_check]
    return "\n".join(lines)
