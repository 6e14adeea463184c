"""gua remind: tell people by mail what they hold without work."""

import argparse
from typing import Any, NamedTuple

from gua_report.config import Config, load_config
from gua_report.console.addresses import is_address
from gua_report.console.arguments import ZONE, find_history
from gua_report.console.spelling import as_json, first_of
from gua_report.live.observer import add_look_options
from gua_report.mailing.message import build_message, show_message
from gua_report.telling.letters import Occasion, find_problems, load_templates
from gua_report.telling.log import DONE, REMIND_LOG, UNSURE, open_log, read_log, show_log
from gua_report.telling.reminders import MOST_REMINDERS, Mailed, Plan, deliver, find_persons, make_plan, why_not_now
from gua_report.telling.watch import Held, Sight, Watch
from gua_report.window import parse_zone
from gua_sample import console, settings
from gua_sample.errors import UsageError
from gua_sample.processes import printable
from gua_sample.rights import become_owner

PROG = "gua remind"
DESCRIPTION = """\
Tell people by mail what they hold without work, for longer than [remind] after
in gua.toml. Without --send it only prints what it would send."""
EPILOG = f"""\
examples:
  sudo gua remind                  who would be told, and in which words
  gua remind --check               whether templates and addresses are good
  sudo gua remind --send --to me@lab.example     all of it goes to you
  sudo gua remind --send           send it
  sudo gua remind --log            who was told when
  sudo gua remind --json | jq '.reminders[].who'

Nobody gets two mails a day, or two about the same within 7 days. What
is meant (gua note, [exempt]) is left out, and so are containers, services and
jobs. Nobody is told if it is in doubt: old ticks, gaps, a log that can't be
written, or more than {MOST_REMINDERS} people at once. contrib/remind has a timer.
exit status: 0 done, 1 failed, or held back in doubt, 2 wrong usage.
"""
SHOWN_NAMES = 5
NOBODY_LEFT = (
    "too many to tell, and nobody to tell that: administrator is not set in [mail], or got a mail today; see gua remind"
)
BETWEEN = f"\n{'=' * 72}\n"  # after each mail that is shown


class RunResult(NamedTuple):
    sight: Sight
    plan: Plan
    doubts: list[str]  # why nobody is told, though it is time
    pause: str | None  # why it is not
    mailed: list[Mailed]


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.hints = {"--dry-run": "not needed: nothing is sent without --send"}
    parser.add_argument("--send", action="store_true", help="send the mails")
    parser.add_argument("--to", metavar="ADDRESS", help="send all of them to this address, to try it out")
    parser.add_argument("--after", metavar="D", help="held for longer than this (default [remind] after)")
    parser.add_argument("--check", action="store_true", help="check templates and addresses, and do nothing")
    parser.add_argument("--log", action="store_true", help="who was told when")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/people.md")
    parser.add_argument("--tz", metavar="ZONE", help=ZONE)
    add_look_options(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.check + options.log + (options.send or options.to is not None) > 1:
        raise UsageError("--check, --log and --send are three commands: give one of them")
    if options.to is not None and not is_address(options.to):
        raise UsageError(f"bad address {options.to!r} for --to: expected one such as ada@lab.example")
    config = load_config(options.config)
    if options.check:
        return check(config)
    data_dir = find_history(PROG, options.data_dir)
    if options.log:
        zone = parse_zone(options.tz)
        console.say(PROG, show_log(read_log(data_dir, REMIND_LOG), zone, options.json))
        return 0
    done = remind(options, config, data_dir)
    console.say(PROG, to_json(done, options.send) if options.json else to_text(done, config, options.send))
    if done.doubts:
        console.complain(PROG, f"error: nobody is told: {'; '.join(done.doubts)}")
    failed = [one for one in done.mailed if one.outcome not in (None, DONE)]
    for one in failed:
        what = "not known whether it was sent" if one.outcome == UNSURE else "not sent"
        console.complain(PROG, f"error: {what} to {one.to}: {one.why}")
    if done.plan.too_many and done.plan.summary_to is None:
        console.complain(PROG, f"error: {NOBODY_LEFT}")
    return 1 if done.doubts or failed or done.plan.too_many else 0


def remind(options: argparse.Namespace, config: Config, data_dir: str) -> RunResult:
    from gua_report.summary.last_week import NO_WEEK, read_last_week, read_ongoing

    zone, after = parse_zone(options.tz), options.after or config.remind.after
    words = load_templates(config.remind.templates)
    watch = Watch(options, settings.duration_ms(after), read_ongoing)
    if options.send:
        become_owner(data_dir)  # for good: all that follows is done with its rights
    log, told = open_log(data_dir, REMIND_LOG) if options.send else (None, read_log(data_dir, REMIND_LOG))
    sight = watch.look()
    is_trial = options.to is not None
    names = {name for one in sight.held for name in (one.who, one.unmapped)}
    persons = find_persons(names, watch.observer.config.people)
    plan = make_plan(sight.held, persons, [] if is_trial else told.acts, config.mail, sight.now_ms, zone)
    doubts = [*sight.doubts, *told.problems]
    pause = None if is_trial else why_not_now(config.remind, sight.now_ms, zone)
    # A dry run shows what waits, too; unless it is not known what is held.
    is_shown = not (options.send or sight.doubts or told.problems)
    is_due = bool(plan.reminders or plan.summary_to) and (is_shown or not (doubts or pause))
    week = read_last_week(data_dir, config, sight.now_ms, zone) if is_due else NO_WEEK
    doubts += [*week.doubts, *([] if is_trial else week.gaps)]
    occasion = Occasion(config, words, sight.now_ms, zone, after, week.idle_held_hours, week.over_limits)
    mailed = deliver(plan, watch, occasion, log, options.to) if is_shown or not (doubts or pause) else []
    return RunResult(sight, plan, doubts, pause, mailed)


def check(config: Config) -> int:
    problems = find_problems(config)
    for problem in problems:
        console.complain(PROG, f"error: {problem}")
    if not problems:
        console.say(PROG, "templates, addresses and the way to send mail look good")
    return 1 if problems else 0


def to_text(done: RunResult, config: Config, sends: bool) -> str:
    shown = [] if sends else [show_message(build_message(one.letter, config.mail.sender)) for one in done.mailed]
    text = "".join(f"{one}{BETWEEN}" for one in shown) + summarize(done, sends)
    return "\n".join(map(printable, text.split("\n")))


def summarize(done: RunResult, sends: bool) -> str:
    outcomes = [one.outcome for one in done.mailed]
    due = 0 if done.doubts or done.pause else len(outcomes)
    parts = [f"sent {outcomes.count(DONE)}" if sends else f"would send {due} (with --send)"]
    parts += [f"failed {len(outcomes) - outcomes.count(DONE)}"] if sends and set(outcomes) - {DONE} else []
    parts += [f"held back {len(done.plan.held_back)} ({spell_held_back(done.plan)})"] if done.plan.held_back else []
    if done.doubts or done.pause:
        waiting = len(done.plan.reminders)
        parts += [f"held back {waiting} ({done.pause or 'in doubt'})"] if waiting or done.pause else []
    parts += [f"meant {done.sight.meant}"] if done.sight.meant else []
    others = list(dict.fromkeys(one.who for one in done.plan.others))
    parts += [f"no person {len(others)} ({first_of(others, SHOWN_NAMES)})"] if others else []
    parts += [f"not known of GPU {', '.join(done.sight.unknown)}"] if done.sight.unknown else []
    return ", ".join(parts)


def spell_held_back(plan: Plan) -> str:
    reasons = dict.fromkeys(one.why for one in plan.held_back)
    names = {why: [one.who for one in plan.held_back if one.why == why] for why in reasons}
    return "; ".join(f"{why}: {first_of(some, SHOWN_NAMES)}" for why, some in names.items())


def to_json(done: RunResult, sends: bool) -> str:
    return as_json(
        ts_ms=done.sight.now_ms,
        sends=sends,
        doubts=done.doubts,
        pause=done.pause,
        reminders=[
            {
                "who": one.who,
                "to": one.to,
                "subject": one.letter.subject,
                "outcome": one.outcome,
                "why": one.why,
                "held": [describe(held) for held in one.held],
            }
            for one in done.mailed
        ],
        held_back=[one._asdict() for one in done.plan.held_back],
        others=[describe(held) for held in done.plan.others],
        meant=done.sight.meant,
        unknown_gpus=done.sight.unknown,
    )


def describe(held: Held) -> dict[str, Any]:
    values = {**held._asdict(), **held.episode._asdict()}
    del values["episode"], values["unmapped"]
    return values
