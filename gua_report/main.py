"""The gua command: dispatches to its verbs, each imported only when it is called."""

import importlib
import sys
from typing import NoReturn

from gua_sample import __version__, console
from gua_sample.errors import UsageError

VERBS = {
    "sample": ("gua_sample.cli", "take one snapshot of all cards, and exit"),
    "report": ("gua_report.commands.report", "how much was idle-held, whose, since when"),
    "status": ("gua_report.commands.status", "what each card is doing now, who is on it, since when"),
    "free": ("gua_report.commands.free", "cards that nobody holds, for CUDA_VISIBLE_DEVICES"),
    "note": ("gua_report.commands.note", "say that you hold a card on purpose, why and until when"),
    "rollup": ("gua_report.commands.rollup", "sum up closed days, so that long reports stay fast"),
    "doctor": ("gua_report.commands.doctor", "whether sampling works here, and what to do if not"),
    "import": ("gua_report.commands.import_", "take in what another tool, or gua elsewhere, recorded"),
    "export": ("gua_report.commands.export", "what was recorded, as CSV, JSON lines or Parquet"),
    "page": ("gua_report.commands.page", "the report as pages with pictures, for a web server"),
    "fleet": ("gua_report.commands.fleet", "whether the files of many hosts have arrived, and are good"),
    "mail": ("gua_report.commands.mail", "the report in brief by mail, with its page attached"),
    "remind": ("gua_report.commands.remind", "tell people by mail what they hold without work"),
    "hook": ("gua_report.commands.hook", "run a program for what is held without work for long"),
    "demo": ("gua_report.commands.demo", "the report of a made-up laboratory; needs no GPU"),
}
# For who comes from gpu-usage-audit.
HINTS = {
    **dict.fromkeys(("daemon", "start"), "gua-sample is run by a timer: sudo make install, or else make install-user"),
    "stop": "gua-sample is run by a timer: sudo systemctl disable --now gua-sample.timer",
    **dict.fromkeys(("enroll", "sync-once"), "nothing is sent anywhere; docs/fleet.md has one report of many machines"),
}
HELP = """\
usage: gua VERB [OPTION ...]

sar for idle GPUs: memory held on cards that do no work.

verbs:
{verbs}
  version  print the version

examples:
  gua demo                          see it without a GPU
  gua sample --data-dir ./try       one tick
  gua report --since 7d             the report of a week
  gua status                        who is on which card now
  gua note --until friday "serving the demo"
  gua doctor                        why is nothing recorded?
  gua import ~/.gua/gua.db          a gpu-usage-audit database
  gua export --since 1d -o day.csv  every card at every tick
  gua fleet status /srv/gua         which hosts are late
  gua mail --dry-run                what a mail to the administrator would say

gua VERB --help says more.
"""


def entry() -> NoReturn:
    console.leave(main(), needs_output=True)


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    verb, rest = (words[0], words[1:]) if words else ("--help", [])
    if verb in ("-h", "--help", "help"):
        verbs = "\n".join(f"  {verb:<7}  {text}" for verb, (_, text) in VERBS.items())
        console.say("gua", HELP.format(verbs=verbs).rstrip())
        return 0
    if verb in ("--version", "version"):
        console.say("gua", f"gua {__version__}")
        return 0
    if verb not in VERBS:
        console.complain("gua", f"error: {unknown(verb)}")
        return UsageError.exit_code
    return int(importlib.import_module(VERBS[verb][0]).main(rest))


def unknown(verb: str) -> str:
    if verb in HINTS:
        return f"no verb {verb!r}: {HINTS[verb]}"
    import difflib

    near = difflib.get_close_matches(verb, [*VERBS, "version"], 1)
    return f"unknown verb {verb!r}" + (f": did you mean {near[0]}?" if near else " (see gua --help)")
