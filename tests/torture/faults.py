"""Faults in a call that changes a file: an I/O error, no space left, half a write; at each position in turn.

The command reports it in a line and ends with 1, or continues where it promises to; the next run finds all in order.
"""

import errno
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from tests.torture import workshop as work
from tests.torture.commands import Ran
from tests.torture.jobs import IMPORT, ROLLUP, Job
from tests.torture.kills import TICK_MS, Ticks

# An I/O error once; no space from then on, as on a full disk; no space once, as if somebody made room; half a write.
FAULTS = ((errno.EIO, False), (errno.ENOSPC, True), (errno.ENOSPC, False), (0, False))
FAILED = (0, 1)
LINES = 4  # most lines of complaints: one error, and warnings


def fault(workshop: work.Workshop, number: int, rng: random.Random) -> tuple[int, list[work.Problem]]:
    """Try one fault in one command. Numbers go through commands, kinds of faults and positions, in that order."""
    number, command = divmod(number, len(COMMANDS))
    number, kind = divmod(number, len(FAULTS))
    positions, try_one = COMMANDS[command]
    # Later numbers take a random position, as a run may have more positions than there are numbers.
    at = number + 1 if number < positions // 4 else rng.randint(1, positions)
    return 1, try_one(workshop, work.Step(at, *FAULTS[kind]), rng)


def judge(ran: Ran) -> list[work.Problem]:
    problems = ran.problems(FAILED)
    if ran.status == 1 and not 1 <= ran.err.count("\n") <= LINES:
        problems.append(work.Problem("tracebacks", f"not a line: {ran.err!r}"))
    return problems


def undisturbed(stage: work.Stage, words: list[str], clock_ms: int) -> list[work.Problem]:
    return stage.run(words, clock_ms).problems((0,))


def fault_in_sample(workshop: work.Workshop, step: work.Step, rng: random.Random) -> list[work.Problem]:
    """A fault in a tick while other ticks wait, or in one that has to wait itself, around midnight."""
    stage, ticks = workshop.stage("fault"), Ticks()
    words = ["sample", *rng.choice(([], ["--textfile", str(stage.data / "gua.prom")]))]
    clock_ms = work.START_MS + work.DAY_MS - rng.randrange(4) * TICK_MS
    problems: list[work.Problem] = []

    def take(step: work.Step | None, is_held: bool) -> None:
        nonlocal clock_ms, problems
        path = stage.partition(work.day_name(clock_ms))
        with work.hold(path) if is_held and path.exists() else nullcontext():
            ran = stage.run(words, clock_ms, step)
        problems += judge(ran) if step else ran.problems((0,))
        (ticks.promised if ran.status == 0 else ticks.possible).add(clock_ms)
        clock_ms += TICK_MS

    for _ in range(rng.randrange(3)):
        take(None, rng.random() < 0.5)
    take(step, rng.random() < 0.3)
    take(None, False)
    return problems + ticks.check(stage)


def fault_in_job(job: Job, workshop: work.Workshop, step: work.Step, rng: random.Random) -> list[work.Problem]:
    stage, words = job.prepare(workshop, rng)
    problems = judge(stage.run(words, work.LATER_MS, step)) + undisturbed(stage, words, work.LATER_MS)
    return problems + job.check(workshop, stage)


def fault_in_export(workshop: work.Workshop, step: work.Step, rng: random.Random) -> list[work.Problem]:
    """A fault in an export: the file is the old one if the command failed, and the new one if it did not."""
    stage = workshop.stage("fault", workshop.rolled_up)
    target = stage.data / "exported.csv"
    words = ["export", "-o", str(target), "--from", work.DAY_NAMES[0], "--to", work.day_name(work.END_MS)]
    problems = undisturbed(stage, words, work.LATER_MS)
    new, old = target.read_bytes(), b"what was there before\n"
    target.write_bytes(old)
    ran = stage.run(words, work.LATER_MS, step)
    problems += judge(ran)
    if target.read_bytes() != (old if ran.status else new):
        problems.append(work.Problem("lost", f"after status {ran.status} the file is neither the old one nor the new"))
    left = [path.name for path in stage.data.iterdir() if path.name.startswith(".exported")]
    if left:
        problems.append(work.Problem("corrupt", f"left behind: {left}"))
    problems += undisturbed(stage, words, work.LATER_MS)
    return (
        problems if target.read_bytes() == new else [*problems, work.Problem("lost", "the file that was to be written")]
    )


# The approximate number of changes to files in a run; a fault after the last change never happens.
COMMANDS: list[tuple[int, Callable[[work.Workshop, work.Step, random.Random], list[work.Problem]]]] = [
    (60, fault_in_sample),
    (1000, partial(fault_in_job, ROLLUP)),
    (400, partial(fault_in_job, IMPORT)),
    (10, fault_in_export),
]
