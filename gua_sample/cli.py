"""The gua-sample command: one tick, and what others read at once: since when cards idle, metrics, who holds what."""

import argparse
import gc
import os
import time
from typing import NamedTuple, NoReturn

from gua_sample import console, processes, service, settings, store
from gua_sample.errors import DriverError, GuaError, StoreError, TextfileError, UsageError
from gua_sample.idle_state import carry_on
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import EARLIEST_MS, day_of
from gua_sample.policy import DEFAULT, STATES, UNPARTITIONED, Policy, card_state, parse_policy
from gua_sample.records import TIMEOUT, Previous, Reading, Source, Tick
from gua_sample.rights import become_owner, others_who_may_write
from gua_sample.safe_file import replace_file

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


class Done(NamedTuple):
    tick: Tick
    outcome: store.Outcome
    driver_error: DriverError | None  # recorded with the tick
    previous_ms: int | None  # the tick of this boot that was stored before


def entry() -> NoReturn:
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
    parser.add_argument("--policy", metavar="P", help="thresholds other than 10,100,1024; see [policy] in gua.toml")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--record-timeout", action="store_true", help="for the unit: record that its run was killed")
    return parser


def run(options: argparse.Namespace) -> int:
    interval_ms = settings.duration_ms(options.interval) if options.interval is not None else None
    data_dir = settings.data_dir(options.data_dir)
    policy = parse_policy(options.policy) if options.policy is not None else DEFAULT
    metrics_path = check_file(
        options.textfile, "--textfile", "a file *.prom, as node_exporter reads no others", ".prom"
    )
    files = metrics_path, check_file(options.held_file, "--held-file", "a file, such as /run/gua/held")
    ts_ms = time.time_ns() // 1_000_000
    if options.record_timeout:
        if service.folder_of_runs() is None:
            raise UsageError("--record-timeout is for the unit alone: it says that the unit's run was killed")
        started_ms = service.read_start_ms(ts_ms)
        source = unusable(TIMEOUT, "a run had to be killed at its start timeout")
        killed = take(data_dir, source, None, started_ms, nvml_ms=ts_ms - started_ms)
        for problem in publish(files, data_dir, policy, killed):
            warn(str(problem))
        warn(f"{killed.driver_error}: the driver hangs? see 'gua doctor'")
        return 0
    is_hanging = service.mark_start() is not None
    simulate = options.simulate is not None
    source = simulation(options.simulate, options.data_dir, ts_ms) if simulate else machine(is_hanging)
    try:
        done = take(data_dir, source, interval_ms, ts_ms)
    except StoreError:
        for problem in publish(files, data_dir, policy, None):
            warn(str(problem))
        raise
    errors: list[GuaError] = [*publish(files, data_dir, policy, done)]
    if options.simulate is None:
        service.ask_for_names((process.cgroup for process in done.tick.processes.values()), data_dir)
    if done.driver_error:
        errors.insert(0, done.driver_error)
    else:
        console.say(PROG, summary(done, policy, options.json))
    for error in errors[1:]:
        warn(str(error))
    if errors:
        raise errors[0]
    return 0


def take(data_dir: str, source: Source, interval_ms: int | None, ts_ms: int, nvml_ms: int | None = None) -> Done:
    """Take one tick and store it. No lock is held while the driver is read."""

    def recall_names() -> dict[int, str]:
        warn("the directory of users does not answer: names come from earlier ticks where they are known")
        return store.read_names(folder, ts_ms)

    # A machine without a clock battery may boot in 1970: nobody would look for such a tick.
    if ts_ms < EARLIEST_MS:
        raise StoreError(f"the clock says {day_of(ts_ms)}: nothing is recorded until it is set; see 'timedatectl'")
    folder = store.prepare(data_dir)
    if opening := others_who_may_write(data_dir):
        warn(str(opening))
    try:
        store.heal(folder, warn)
        boot = source.boot()
        previous = store.read_previous(folder, ts_ms, boot.id, warn)
        if previous:
            boot = previous.boot  # with the boot time as first seen: the clock may have been set since
        started = time.monotonic()
        reading, driver_error = Reading(None, [], []), None
        try:
            reading = source.read(previous)
        except DriverError as error:
            driver_error = error
        tick = Tick(
            ts_ms=ts_ms,
            interval_ms=interval_ms,
            boot=boot,
            driver_version=reading.driver_version,
            nvml_ms=round((time.monotonic() - started) * 1000) if nvml_ms is None else nvml_ms,
            error=driver_error.name if driver_error else None,
            cards=reading.cards,
            processes=processes.describe_all(reading.cards, boot, source, recall_names),
            cursors=reading.cursors,
        )
        outcome = store.append(folder, tick, warn)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from error
    return Done(tick, outcome, driver_error, previous.ts_ms if previous else None)


def check_file(option: str | None, name: str, expected: str, ending: str = "") -> str | None:
    """The absolute path of a file to write. Raises UsageError if it can't be one."""
    if option is not None and (not option or not option.endswith(ending) or os.path.isdir(option)):
        raise UsageError(f"bad value {option!r} for {name}: expected {expected}")
    return None if option is None else os.path.abspath(option)


def publish(
    files: tuple[str | None, str | None], data_dir: str, policy: Policy, done: Done | None
) -> list[TextfileError]:
    """Write `idle.state` and the files that are asked for. Errors are returned."""
    metrics_path, held_path = files
    taken, previous_ms = (done.tick, done.previous_ms) if done else (None, None)
    if taken is None and metrics_path is None and held_path is None:
        return []
    try:
        become_owner(data_dir)  # a run that failed early may still be root's
    except StoreError as error:
        return [TextfileError(f"{metrics_path or held_path} is not written: {error}")]
    carried = carry_on(data_dir, policy, taken, previous_ms, warn)
    texts = {}
    if metrics_path is not None:
        from gua_sample import metrics

        known = metrics.read_known(data_dir, taken, warn)
        texts[metrics_path] = metrics.describe(taken, carried, os.environ, known)
    if held_path is not None and taken is not None:  # without a tick it stays as it is, and is soon too old to be shown
        from gua_sample import held_file

        texts[held_path] = held_file.describe(taken, carried)
    problems = []
    for path, text in texts.items():
        try:
            replace_file(path, text, mode=0o644, durable=True)  # everybody may read it
        except OSError as error:
            advice = "its folder must be there and open to the user of the sampler"
            problems.append(TextfileError(f"{path} can't be written ({error.strerror}): {advice}"))
    return problems


def warn(text: str) -> None:
    if not service.said_this_hour(text):
        console.complain(PROG, f"warning: {text}")


def machine(is_hanging: bool) -> Source:
    try:
        # Import now: after root has become the folder's owner, its Python may be out of reach.
        from gua_sample import nvml
    except ModuleNotFoundError as error:
        name = "nvidia_ml_py_missing"
        return unusable(name, f"NVML failed ({name}): {error}; run 'pip install nvidia-ml-py' for this Python")

    def read(previous: Previous | None) -> Reading:
        if is_hanging:
            raise nvml.driver_error("driver_hangs")
        return nvml.read(previous)

    return Source(processes.read_boot, read, processes.describe, processes.user_names)


def unusable(name: str, message: str) -> Source:
    def read(previous: Previous | None) -> Reading:
        raise DriverError(name, message)

    return Source(processes.read_boot, read, processes.describe, processes.user_names)


def simulation(seed: str, data_dir: str | None, ts_ms: int) -> Source:
    if not data_dir:
        raise UsageError("--simulate needs --data-dir: made-up ticks do not belong in the real history")
    number = settings.seed(seed, "--simulate")
    from gua_sample.simulate import Laboratory

    return Laboratory(number).source(ts_ms)


def summary(done: Done, policy: Policy, as_json: bool) -> str:
    tick, outcome = done.tick, done.outcome
    states = [card_state(card, policy) for card in tick.cards]
    counts = {state: states.count(state) for state in (*STATES, UNPARTITIONED)}
    if as_json:
        import json

        of_states = {state: counts[state] for state in STATES}
        found = {"ts_ms": tick.ts_ms, "cards": len(states), "states": of_states, UNPARTITIONED: counts[UNPARTITIONED]}
        found |= {"processes": len(tick.processes), "nvml_ms": tick.nvml_ms, **outcome._asdict()}
        return json.dumps(found)
    shown = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    cards = console.plural(len(tick.cards), "card")
    people = console.plural(len(tick.processes), "process", "es")
    where = f"kept in {outcome.path} until the partition is free" if outcome.kept else outcome.path
    return f"{cards} ({shown}), {people}, NVML {tick.nvml_ms} ms: {processes.printable(where)}"
