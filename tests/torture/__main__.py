"""Kill, starve, cut the power of, and feed nonsense to the real commands, and count what is lost or broken.

Ends with 1 if anything is, and says in the log how to repeat it.
"""

import argparse
import contextlib
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.driver import Scenario, build, environment, with_clock
from tests.torture import faults, folders, kills, power_loss
from tests.torture.commands import import_everything
from tests.torture.table import Table
from tests.torture.workshop import CARDS, Problem, Workshop

PREPARED = "GUA_TORTURE_FOLDER"
CASES_OF_A_WORKER = 40  # then a new one takes its place: hostile files leave it large, and slow to fork


class Kind(NamedTuple):
    case: Callable[[Workshop, int, random.Random], tuple[int, list[Problem]]]
    option: str  # for the number of runs
    share: float  # of that number
    size: float  # runs in a case


KINDS = {
    "kill sample": Kind(kills.kill_sample, "kills", 0.8, kills.KILLS_OF_A_LIFE),
    "kill rollup": Kind(kills.kill_rollup, "kills", 0.1, 1.4),
    "kill import": Kind(kills.kill_import, "kills", 0.06, 1),
    "kill export": Kind(kills.kill_export, "kills", 0.04, 8),
    "faults": Kind(faults.fault, "faults", 1, 1),
    "power loss": Kind(power_loss.cut_power, "cuts", 1, 1),
    "damaged folders": Kind(folders.damaged, "folders", 0.5, 1),
    "hostile folders": Kind(folders.hostile, "folders", 0.5, 1),
    "seeds": Kind(folders.replay_seed, "seeds", 1, 1),
}


class Unit(NamedTuple):
    kind: str
    number: int


class Done(NamedTuple):
    unit: Unit
    runs: int
    problems: list[Problem]


class Run:
    """A function that runs one case; everything it needs exists before workers are forked."""

    def __init__(self, workshop: Workshop, seed: int, until: float) -> None:
        self.workshop, self.seed, self.until = workshop, seed, until

    def __call__(self, unit: Unit) -> Done:
        if time.monotonic() > self.until:
            return Done(unit, 0, [])
        rng = random.Random(f"{self.seed} {unit.kind} {unit.number}")
        try:
            return Done(unit, *KINDS[unit.kind].case(self.workshop, unit.number, rng))
        except Exception:  # the other cases must still run
            return Done(unit, 1, [Problem("tracebacks", f"of the torture itself: {traceback.format_exc()}")])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=10_500, help="kill -9 of sample, rollup, import and export")
    parser.add_argument("--faults", type=int, default=1200, help="calls that fail: I/O error, no space, half a write")
    parser.add_argument("--cuts", type=int, default=1000, help="power cuts")
    parser.add_argument("--folders", type=int, default=5000, help="damaged and hostile folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so many")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", metavar="KIND", action="append", choices=list(KINDS), help="such as 'kill sample'")
    parser.add_argument("--case", type=int, help="only this one, as the log names it")
    parser.add_argument("--log", type=Path, default=Path("torture.log"), help="where failures are listed")
    parser.set_defaults(seeds=folders.count_seeds())
    return parser.parse_args()


def plan(options: argparse.Namespace) -> list[Unit]:
    planned = []
    for name, kind in KINDS.items():
        if not options.only or name in options.only:
            count = math.ceil(getattr(options, kind.option) * kind.share / kind.size)
            planned += [Unit(name, number) for number in range(count)]
    if options.case is not None:
        planned = [Unit(unit.kind, options.case) for unit in planned if unit.number == 0]
    random.Random(options.seed).shuffle(planned)  # with --minutes, some of each kind are run
    return planned


def torture(options: argparse.Namespace, folder: Path) -> int:
    import_everything()
    started = time.monotonic()
    workshop = Workshop(folder / "work", folder / "scenario")
    units, table = plan(options), Table(KINDS)
    run = Run(workshop, options.seed, started + options.minutes * 60)
    pool_of = multiprocessing.get_context("fork").Pool
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with (
        options.log.open("w") as log,
        pool_of(options.workers, signal.signal, ignore, CASES_OF_A_WORKER) as pool,
        contextlib.suppress(KeyboardInterrupt),  # the table then tells of the cases so far
    ):
        for number, (unit, runs, problems) in enumerate(pool.imap_unordered(run, units), 1):
            table.add(unit.kind, runs, problems)
            again = f"--seed {options.seed} --only '{unit.kind}' --case {unit.number}"
            for problem in problems:
                print(f"{unit.kind}: {problem.column}: {problem.text}\n  again: {again}", file=log, flush=True)
            if sys.stderr.isatty():
                print(f"\r{number:,} of {len(units):,} cases\x1b[K", end="", file=sys.stderr, flush=True)
    print(table)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes, seed {options.seed}")
    if not table.is_clean():
        print(f"what went wrong, and how to repeat it: {options.log}")
    return 0 if table.is_clean() else 1


def prepare() -> int:
    """Run again in a process with the driver and the shims loaded, and with a temporary folder."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else None  # nothing here tests a disk, so none need slow it down
    with tempfile.TemporaryDirectory(prefix="gua-torture-", dir=root) as name:
        folder = Path(name)
        folder.chmod(0o755)
        scenario = Scenario()
        for _ in range(CARDS):
            scenario.add_card(compute=[(os.getpid(), 8192)])
        variables = with_clock(environment(build(folder), scenario.write(folder / "scenario")), folder)
        variables["LD_PRELOAD"] += f":{folder / 'kill_at.so'}"
        variables |= {PREPARED: name, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TZ": "UTC"}
        process = subprocess.Popen([sys.executable, "-m", "tests.torture", *sys.argv[1:]], env=variables)
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the process gets it too, and ends
                return process.wait()


def main() -> int:
    options = parse()
    return torture(options, Path(os.environ[PREPARED])) if PREPARED in os.environ else prepare()


if __name__ == "__main__":
    sys.exit(main())
