"""The gua-sample command."""

from __future__ import annotations

import argparse
import gc
import os
import time
from typing import NoReturn

from gua_sample import console, processes, service, settings, tick
from gua_sample.errors import DriverError, StoreError, TextfileError, UsageError
from gua_sample.policy import STATES, UNPARTITIONED, card_state
from gua_sample.records import TIMEOUT, Previous, Reading, Source, Tick
from gua_sample.rights import become_owner
from gua_sample.whole_file import replace_file

PROG = "gua-sample"
DESCRIPTION = """\
Take one snapshot of all NVIDIA cards and their processes into a daily SQLite
file, and exit. A systemd timer runs it every 30 s."""
EPILOG = """\
examples:
  gua-sample                               one tick into the data folder
  gua-sample --data-dir ./try              somewhere else
  gua-sample --simulate --data-dir ./try   no GPU here: a made-up laboratory
  gua-sample --interval 30s                note how often it is run
  gua-sample --textfile /var/lib/prometheus/node-exporter/gua.prom
                                           and metrics for Prometheus
  gua-sample --held-file /run/gua/held     and who holds a card without work,
                                           for contrib/profile.d/gua.sh

data folder, first that applies: --data-dir, $GUA_DATA_DIR, $STATE_DIRECTORY,
/var/lib/gua if it exists, $XDG_STATE_HOME/gua (~/.local/state/gua).
exit status: 0 recorded, 1 failed (recorded all the same, if it was the driver
or one of these files), 2 wrong usage, 75 the unit logged the same failure this
hour.
"""


def entry() -> NoReturn:
    """Run the command as the installed console script."""
    gc.disable()  # the process ends soon: looking for garbage would take a twentieth of its time
    console.leave(main())


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments, service.said_this_hour)


def build_parser() -> console.Parser:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("--data-dir", metavar="DIR", help="where the history lives; made if it is missing")
    parser.add_argument("--interval", metavar="D", help="how often this is run, such as 30s; stored with the tick")
    parser.add_argument(
        "--simulate", metavar="SEED", nargs="?", const="0", help="sample a made-up laboratory; needs --data-dir"
    )
    parser.add_argument("--textfile", metavar="FILE", help="write the tick's metrics too, for node_exporter; *.prom")
    parser.add_argument("--held-file", metavar="FILE", help="write who holds a card without work, for a line at login")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--record-timeout", action="store_true", help="for the unit: record that its run was killed")
    return parser


def run(options: argparse.Namespace) -> int:
    interval_ms = settings.duration_ms(options.interval) if options.interval is not None else None
    data_dir = settings.data_dir(options.data_dir)
    files = settings.textfile(options.textfile), settings.held_file(options.held_file)
    ts_ms = time.time_ns() // 1_000_000
    if options.record_timeout:
        if service.folder_of_runs() is None:
            raise UsageError("--record-timeout is for the unit alone: it says that the unit's run was killed")
        started_ms = service.read_start_ms(ts_ms)
        source = unusable(DriverError(TIMEOUT, "a run had to be killed at its start timeout"))
        killed = tick.run(data_dir, source, None, started_ms, warn, nvml_ms=ts_ms - started_ms)
        if problem := publish(files, data_dir, killed.tick):
            warn(str(problem))
        warn(f"{killed.driver_error}: the driver hangs? see 'gua doctor'")
        return 0
    service.mark_start()
    source = simulation(options.simulate, options.data_dir, ts_ms) if options.simulate is not None else machine()
    try:
        done = tick.run(data_dir, source, interval_ms, ts_ms, warn)
    except StoreError:
        if problem := publish(files, data_dir, None):
            warn(str(problem))
        raise
    problem = publish(files, data_dir, done.tick)
    if options.simulate is None:
        service.ask_for_names((process.cgroup for process in done.tick.processes.values()), data_dir)
    if done.driver_error:
        if problem:
            warn(str(problem))
        raise done.driver_error
    console.say(PROG, json_summary(done) if options.json else summary(done))
    if problem:
        raise problem
    return 0


def publish(files: tuple[str | None, str | None], data_dir: str, taken: Tick | None) -> TextfileError | None:
    """Write the files that are asked for: metrics, and who holds what.

    Errors are returned, not raised: the tick is stored by then.
    """
    textfile, held = files
    if textfile is None and held is None:
        return None
    from gua_sample.carried_state import carry_on

    try:
        become_owner(data_dir)  # a run that failed early may still be root's
        carried = carry_on(data_dir, taken, warn)
    except StoreError as error:
        return TextfileError(f"{textfile or held} is not written: {error}")
    texts = {}
    if textfile is not None:
        from gua_sample import metrics

        known = metrics.read_known(data_dir, taken, warn)
        texts[textfile] = metrics.describe(taken, carried, os.environ, known)
    if held is not None and taken is not None:  # without a tick it stays as it is, and is soon too old to be shown
        from gua_sample import held_file

        texts[held] = held_file.describe(taken, carried)
    problems = [problem for path, text in texts.items() if (problem := write(path, text))]
    for problem in problems[1:]:
        warn(str(problem))
    return problems[0] if problems else None


def write(path: str, text: str) -> TextfileError | None:
    """Replace a file that everybody may read; returns why that was not possible."""
    try:
        replace_file(path, text, mode=0o644, durable=True)
    except OSError as error:
        advice = "its folder must be there and open to the user of the sampler"
        return TextfileError(f"{path} can't be written ({error.strerror}): {advice}")
    return None


def warn(text: str) -> None:
    if not service.said_this_hour(text):
        console.complain(PROG, f"warning: {text}")


def machine() -> Source:
    """The source that reads this machine. A missing NVML binding is recorded as a driver error."""
    try:
        # Import now: after root has become the folder's owner, its Python may be out of reach.
        from gua_sample import nvml
    except ModuleNotFoundError as error:
        name = "nvidia_ml_py_missing"
        text = f"NVML failed ({name}): {error}; run 'pip install nvidia-ml-py' for this Python"
        return unusable(DriverError(name, text))

    def read(previous: Previous | None) -> Reading:
        if service.folder_of_runs() is not None and service.find_hanging_run() is not None:
            raise nvml.driver_error("driver_hangs")
        return nvml.read(previous)

    return Source(processes.read_boot, read, processes.describe, processes.user_names)


def unusable(error: DriverError) -> Source:
    """The source of a tick without cards: reading this machine's driver raises the error."""

    def read(previous: Previous | None) -> Reading:
        raise error

    return Source(processes.read_boot, read, processes.describe, processes.user_names)


def simulation(seed: str, data_dir: str | None, ts_ms: int) -> Source:
    if not data_dir:
        raise UsageError("--simulate needs --data-dir: made-up ticks do not belong in the real history")
    number = settings.seed(seed, "--simulate")
    from gua_sample.simulate import Laboratory

    return Laboratory(number).source(ts_ms)


def summary(done: tick.Done) -> str:
    counts = state_counts(done)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    cards = console.plural(len(done.tick.cards), "card")
    people = console.plural(len(done.tick.processes), "process", "es")
    where = f"kept in {done.outcome.path} until the partition is free" if done.outcome.kept else done.outcome.path
    return f"{cards} ({shown}), {people}, NVML {done.tick.nvml_ms} ms: {processes.printable(where)}"


def json_summary(done: tick.Done) -> str:
    import json

    counts = state_counts(done)
    return json.dumps(
        {
            "ts_ms": done.tick.ts_ms,
            "cards": len(done.tick.cards),
            "states": {state: counts[state] for state in STATES},
            UNPARTITIONED: counts[UNPARTITIONED],
            "processes": len(done.tick.processes),
            "nvml_ms": done.tick.nvml_ms,
            "path": done.outcome.path,
            "kept": done.outcome.kept,
        }
    )


def state_counts(done: tick.Done) -> dict[str, int]:
    states = [card_state(card) for card in done.tick.cards]
    return {state: states.count(state) for state in (*STATES, UNPARTITIONED)}
