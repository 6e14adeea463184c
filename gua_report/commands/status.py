"""gua status: the cards now, who is on them, and since when."""

import argparse
import sys
import time

from gua_report.console import terminal
from gua_report.live.cards_now import Scene, mark_limits, mark_meant
from gua_report.live.observer import Observer, Sampling, add_options, look_at_sampling
from gua_report.live.shown import Style, render_json, render_text
from gua_sample import console, settings
from gua_sample.errors import DriverError, UsageError

PROG = "gua status"
DESCRIPTION = """\
What each card is doing now and who is on it, with one fresh look at the driver;
and since when, from the history. Works without a history, and stores nothing."""
EPILOG = """\
examples:
  gua status                        all cards
  gua status -v                     with all processes, and how long each idles
  gua status --watch                again every 2 s, until Ctrl-C
  gua status --memory-threshold 500 call a card free up to 500 MiB
  gua status --json | jq '.gpus[] | select(.state == "idle-held")'
  gua status --simulate             no GPU here: a made-up laboratory

"for" is how long a card has been in its state. "≥ 3h": it was so for at least
3 h; before that, no tick tells. "-": the sampler does not run, has not yet, or
goes by other thresholds (after a change of [policy], run make install again).
"unknown" as a user or command: gua doctor says why.
exit status: 0 done, 1 the driver can't be used, 2 wrong usage.
"""
WATCH_EVERY = "2s"
CLEAR = "\x1b[H\x1b[2J"


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.hints = {"-l": "nvidia-smi's: give --watch"}
    parser.add_argument("-v", "--verbose", action="store_true", help="all processes, and how long each idles")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/status.md")
    again = f"again and again (every {WATCH_EVERY})"
    parser.add_argument("--watch", metavar="D", nargs="?", const=WATCH_EVERY, help=again)
    parser.add_argument("--ascii", action="store_true", help="nothing but ASCII in the text")
    add_options(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.watch and options.json:
        raise UsageError("--watch is for people and --json for programs: give one of them")
    every_ms = settings.duration_ms(options.watch) if options.watch is not None else None
    observer = Observer(options, lambda text: console.complain(PROG, text))
    if every_ms is None:
        console.say(PROG, show(observer, options))
        return 0
    try:
        return watch(observer, options, every_ms / 1000)
    except KeyboardInterrupt:
        return 0


def watch(observer: Observer, options: argparse.Namespace, seconds: float) -> int:
    is_screen = terminal.is_terminal(sys.stdout)
    shown = show(observer, options)
    while True:
        if not console.say(PROG, CLEAR + shown if is_screen else shown + "\n"):
            return 0
        time.sleep(seconds)
        try:
            shown = show(observer, options)
        except DriverError as error:  # shown, not raised: people watch for it
            shown = f"{PROG}: {error}"


def show(observer: Observer, options: argparse.Namespace) -> str:
    scene = mark_meant(observer.look(), observer.config, observer.complain_once)
    if observer.config.limits.are_set:
        config = observer.config._replace(policy=observer.stored_policy)
        scene = mark_limits(scene, config, observer.data_dir, observer.complain_once)
    validations = observer.validate(scene)
    sampling = look_at(observer, scene)
    if options.json:
        return render_json(scene, observer.config.policy, validations, sampling)
    return render_text(scene, validations, sampling, Style(options.ascii, options.verbose))


def look_at(observer: Observer, scene: Scene) -> Sampling:
    newest, files, now_ms = scene.newest, scene.files, scene.tick.ts_ms
    if observer.seed is None:
        return look_at_sampling(observer.data_dir, files, newest, now_ms)
    is_fresh = newest is not None and not newest.is_stale(now_ms)
    return Sampling(None, None, newest and newest._replace(error=None), files._replace(hidden=None), is_fresh)
