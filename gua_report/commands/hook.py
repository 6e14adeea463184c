"""gua hook: run the administrator's program once for each process that holds a card without work for long."""

import argparse
import json
import os
from typing import Any, NamedTuple

from gua_report.config import SYSTEM_CONFIG, Hook, load_config
from gua_report.console.arguments import find_history
from gua_report.console.spelling import as_json
from gua_report.live.observer import add_look_options
from gua_report.machine.program import check_target, run_program
from gua_report.telling.log import BEGUN, DONE, FAILED, HOOK_LOG, UNSURE, Act, Log, open_log, read_log, show_log
from gua_report.telling.watch import Held, Sight, Watch
from gua_report.window import parse_zone
from gua_sample import console, settings
from gua_sample.errors import UsageError
from gua_sample.held_file import spell_held, spell_since
from gua_sample.processes import printable

PROG = "gua hook"
DESCRIPTION = """\
Run the program in [hook] run of gua.toml, once for each process that holds a
card without work for longer than [hook] idle_after. It gets the facts as JSON
on its standard input. gua itself ends nothing."""
EPILOG = """\
examples:
  gua hook --dry-run        what would be run, with which facts
  gua hook                  run it
  sudo gua hook --log       what it was run for, and what it said
  gua hook --dry-run --json | jq '.runs[].facts'

The program and all folders above it must be root's, and writable by nobody
else. It gets no environment and [hook] timeout to finish, and runs with the
rights of whoever runs this: user gua in gua-hook.service (contrib/hooks, which
has examples too). What is meant (gua note, [exempt]) is left out.
exit status: 0 done, 1 failed, or in doubt, 2 wrong usage.
"""
SCHEMA_VERSION = 1
MOST_RUNS = 50  # in one run of ours: the next one goes on
LONGEST_LINE = 200


class Ran(NamedTuple):
    held: Held
    facts: dict[str, Any]
    outcome: str | None = None  # it was only to be shown
    status: int | None = None
    said: str | None = None


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--dry-run", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument("--log", action="store_true", help="what it was run for, and what it said")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/people.md")
    add_look_options(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.dry_run and options.log:
        raise UsageError("--dry-run and --log are two commands: give one of them")
    config = load_config(options.config)
    data_dir = find_history(PROG, options.data_dir)
    if options.log:
        console.say(PROG, show_log(read_log(data_dir, HOOK_LOG), parse_zone(None), options.json))
        return 0
    if config.hook.run is None:
        raise UsageError(f"there is no hook: set run in [hook] of {SYSTEM_CONFIG}")
    program = config.hook.run
    check_target(program)
    from gua_report.summary.last_week import read_ongoing

    watch = Watch(options, settings.duration_ms(config.hook.idle_after), read_ongoing)
    log, found = (None, read_log(data_dir, HOOK_LOG)) if options.dry_run else open_log(data_dir, HOOK_LOG)
    sight = watch.look()
    doubts = [*sight.doubts, *found.problems]
    ran = [] if doubts else run_all(program, config.hook, watch, found.acts, log)
    return report(options, program, doubts, sight, ran)


def run_all(program: str, hook: Hook, watch: Watch, acts: list[Act], log: Log | None) -> list[Ran]:
    ran, seconds, now_ms = list[Ran](), settings.duration_ms(hook.timeout) / 1000, watch.observer.now_ms
    for held in watch.sight.held:
        was_run = any(act.is_about(held.episode, held.earliest_ms) for act in acts)
        if was_run or len(ran) == MOST_RUNS or not watch.is_still_so(held):
            continue
        one = Ran(held, tell_facts(held, watch.sight))
        if log is not None:
            check_target(program)  # it may have been exchanged since
            act = log.begin(now_ms(), held.who, None, [held.episode])
            status, said = run_hook(program, json.dumps(one.facts) + "\n", seconds)
            outcome = UNSURE if status is None else DONE if status == 0 else FAILED
            log.end(act, outcome, said if status is None else f"exit {status}: {said}")
            one = Ran(held, one.facts, outcome, status, said)
        ran.append(one)
    return ran


def run_hook(program: str, facts: str, seconds: float) -> tuple[int | None, str]:
    try:
        status, output, errors = run_program([program], seconds, facts.encode(), {})
    except OSError as error:
        return None, f"{program} can't be run ({error})"
    if status is None:
        return None, f"{program} was not done within {seconds:g} s"
    said = (output.strip() or errors.strip()).split(b"\n")[0]
    return status, printable(said)[:LONGEST_LINE]


def tell_facts(held: Held, sight: Sight) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "host": os.uname().nodename,
        "ts_ms": sight.now_ms,
        "boot_id": held.episode.boot_id,
        "pid": held.episode.pid,
        "start_time_ms": held.episode.start_time_ms,
        "start_clock_ticks": held.start_clock_ticks,
        "identity": held.who,
        "uid": held.uid,
        "person_uid": held.person_uid,
        "command": held.command,
        "slurm_job": held.slurm_job,
        "gpu_uuid": held.episode.gpu_uuid,
        "gpu": held.gpu,
        "gpu_name": held.gpu_name,
        "memory_mib": held.memory_mib,
        "idle_since_ms": held.since_ms,
        "idle_since_is_exact": held.since_is_exact,
        "idle_seconds": (sight.now_ms - held.since_ms) / 1000,
    }


def report(options: argparse.Namespace, program: str, doubts: list[str], sight: Sight, ran: list[Ran]) -> int:
    if options.json:
        runs = [{"facts": one.facts, "outcome": one.outcome, "status": one.status, "said": one.said} for one in ran]
        console.say(PROG, as_json(run=program, doubts=doubts, runs=runs))
    elif ran or options.dry_run or not console.is_journal():  # in which a normal run leaves no line
        lines = [spell(one, sight) for one in ran]
        first = f"{'would run' if options.dry_run else 'ran'} {program} for {console.plural(len(ran), 'process', 'es')}"
        console.say(PROG, "\n".join(printable(line) for line in [*lines, first]))
    if doubts:
        console.complain(PROG, f"error: nothing is run: {'; '.join(doubts)}")
    failed = [one for one in ran if one.outcome in (FAILED, UNSURE, BEGUN)]
    for one in failed:
        status = "" if one.status is None else f"exit status {one.status}: "
        console.complain(PROG, f"error: {program} failed for pid {one.held.episode.pid}: {status}{one.said}")
    return 1 if doubts or failed else 0


def spell(one: Ran, sight: Sight) -> str:
    held = one.held
    since = spell_since(held.since_ms, sight.now_ms, is_exact=held.since_is_exact)
    sentence = spell_held(held.gpu, held.memory_mib, since, held.episode.pid, held.command, held.who)
    said = f"{one.outcome}: {one.said}" if one.said else one.outcome
    return sentence if one.outcome is None else f"{sentence} {said}"
