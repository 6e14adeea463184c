"""kill -9 of the commands that write, at each step and at any moment, with concurrent readers.

Each case is the life of a folder. After each kill the next run must repair everything.
"""

import os
import random
from contextlib import nullcontext
from pathlib import Path

from tests.torture import workshop as work
from tests.torture.commands import KILLED, Ran, Running
from tests.torture.jobs import IMPORT, ROLLUP, Job

TICK_MS = 30_000
KILLS_OF_A_LIFE = 50
LONGEST_SECONDS = {"sample": 0.05, "rollup": 0.7, "import": 0.15, "export": 0.08}  # latest moment of a kill
STEPS = {"sample": 30, "rollup": 1000, "import": 90, "export": 10}  # approximate number in a run
STEPS_OF_LITTLE = 250  # in a rollup of days that were rolled up before


class Killer:
    """Starts a command and kills it: at the next step in sequence, a random step, the last step, or a random moment."""

    def __init__(self, rng: random.Random, verb: str, number: int, steps: int | None = None) -> None:
        self.rng, self.verb, self.steps = rng, verb, steps or STEPS[verb]
        self.step = 1 + number % self.steps
        self.last_steps: dict[bool, int] = {}  # key: whether ticks wait in the folder
        self.kills = self.runs = 0
        self.problems: list[work.Problem] = []

    def run(self, stage: work.Stage, words: list[str], clock_ms: int) -> Ran:
        kind = self.rng.choice(("next", "some", "last", "any"))
        if kind == "some":
            ran = stage.run(words, clock_ms, work.Step(self.rng.randint(1, self.steps)))
        elif kind == "next":
            ran = stage.run(words, clock_ms, work.Step(self.step))
            self.step = self.step + 1 if ran.status == KILLED else 1
        elif kind == "last":
            are_waiting = any((stage.data / "samples").glob("*.pending"))
            at = max(1, self.last_steps.get(are_waiting, self.steps) + self.rng.randint(-1, 1))
            ran = stage.run(words, clock_ms, work.Step(at))
            # Converges to the last step.
            self.last_steps[are_waiting] = at + 1 if ran.status == KILLED else at - 1
        else:
            running = stage.start(words, clock_ms)
            running.kill_after(self.rng.uniform(0, LONGEST_SECONDS[self.verb]))
            ran = running.wait()
        self.runs += 1
        self.kills += ran.status == KILLED
        self.problems += ran.problems((0, KILLED))
        return ran

    def run_undisturbed(self, stage: work.Stage, words: list[str], clock_ms: int) -> Ran:
        ran = stage.run(words, clock_ms)
        self.problems += ran.problems((0,))
        return ran


class Ticks:
    """The ticks that must be in the partitions of a folder, and those that may be."""

    def __init__(self) -> None:
        self.promised: set[int] = set()
        self.possible: set[int] = set()

    def check(self, stage: work.Stage, days: set[str] | None = None) -> list[work.Problem]:
        """Check that these days, by default all, hold each tick once and complete."""
        days = days or {work.day_name(ts_ms) for ts_ms in self.promised | self.possible}
        problems: list[work.Problem] = []
        found: set[int] = set()
        for path in stage.partitions():
            if path.stem in days and path.stat().st_size:  # an empty file was only begun
                if damage := work.find_damage(path):
                    return damage
                counts = work.read(
                    path,
                    "SELECT ts_ms, (SELECT count(*) FROM card_sample s WHERE s.tick_id = t.id),"
                    " (SELECT count(*) FROM process_sample s WHERE s.tick_id = t.id) FROM tick t",
                )
                found |= {row[0] for row in counts}
                problems += [
                    work.Problem("corrupt", f"half a tick: {row}")
                    for row in counts
                    if row[1:] != (work.CARDS, work.CARDS)
                ]
        promised = {ts_ms for ts_ms in self.promised if work.day_name(ts_ms) in days}
        problems += [work.Problem("lost", f"the tick of {ts_ms}") for ts_ms in sorted(promised - found)]
        problems += [
            work.Problem("doubled", f"a tick of {ts_ms} that nobody took")
            for ts_ms in sorted(found - self.promised - self.possible)
        ]
        self.promised |= found
        return problems


def kill_sample(workshop: work.Workshop, number: int, rng: random.Random) -> tuple[int, list[work.Problem]]:
    """Kill every second tick; some are kept because a reader holds the partition, some are at midnight."""
    stage = workshop.stage("kill")
    killer, ticks = Killer(rng, "sample", number), Ticks()
    words = ["sample", "--interval", "30s"]
    if number % 4 == 0:
        words += ["--textfile", str(stage.data / "gua.prom")]
    clock_ms = work.START_MS + work.DAY_MS - rng.randrange(KILLS_OF_A_LIFE) * 4 * TICK_MS
    reader: Running | None = None
    while killer.kills < KILLS_OF_A_LIFE:
        first_ms = clock_ms
        path = stage.partition(work.day_name(clock_ms))
        if reader is None and path.exists() and rng.random() < 0.05:
            reader = stage.start(work.report_words(clock_ms - work.HOUR_MS, clock_ms), clock_ms)
        if path.exists() and rng.random() < 0.3:
            with work.hold(path):
                if killer.run_undisturbed(stage, words, clock_ms).status == 0:
                    ticks.promised.add(clock_ms)
            clock_ms += TICK_MS
        with work.hold(path) if path.exists() and rng.random() < 0.1 else nullcontext():
            ran = killer.run(stage, words, clock_ms)
        (ticks.promised if ran.status == 0 else ticks.possible).add(clock_ms)
        clock_ms += TICK_MS
        if killer.run_undisturbed(stage, words, clock_ms).status == 0:
            ticks.promised.add(clock_ms)
        if reader is not None:
            killer.problems += reader.wait().problems()
            reader = None
            clock_ms += TICK_MS  # ticks that the reader kept from being written wait for one more run
            if killer.run_undisturbed(stage, words, clock_ms).status == 0:
                ticks.promised.add(clock_ms)
        killer.problems += ticks.check(stage, {work.day_name(first_ms), work.day_name(clock_ms)})
        clock_ms += TICK_MS
    killer.problems += ticks.check(stage)
    return killer.kills, killer.problems


READERS = [
    work.report_words(work.START_MS, work.END_MS),
    ["export", "--from", work.DAY_NAMES[0], "--what", "card_ticks"],
    ["export", "--from", work.DAY_NAMES[0], "--what", "card_hours"],
    ["status", "--simulate"],
]


def kill_job(
    job: Job, verb: str, workshop: work.Workshop, number: int, rng: random.Random
) -> tuple[int, list[work.Problem]]:
    stage, words = job.prepare(workshop, rng)
    is_done = (stage.data / "rollups.sqlite").exists()
    killer = Killer(rng, verb, number * 2, STEPS_OF_LITTLE if is_done else None)
    for _ in range(rng.randint(1, 4)):
        beside = stage.start(rng.choice(READERS), work.LATER_MS) if rng.random() < 0.3 else None
        killer.run(stage, words, work.LATER_MS)
        if beside:
            killer.problems += beside.wait().problems()
    if verb == "rollup" and rng.random() < 0.3:  # half done, it already reads as a whole
        killer.problems += workshop.compare_since(stage, work.DAY_NAMES[1], work.LATER_MS)
    for later_ms in rng.choice(((0,), (0,), (0, work.DAY_MS // 2))):
        killer.run_undisturbed(stage, words, work.LATER_MS + later_ms)
    return killer.kills, killer.problems + job.check(workshop, stage)


def kill_rollup(workshop: work.Workshop, number: int, rng: random.Random) -> tuple[int, list[work.Problem]]:
    return kill_job(ROLLUP, "rollup", workshop, number, rng)


def kill_import(workshop: work.Workshop, number: int, rng: random.Random) -> tuple[int, list[work.Problem]]:
    return kill_job(IMPORT, "import", workshop, number, rng)


def kill_export(workshop: work.Workshop, number: int, rng: random.Random) -> tuple[int, list[work.Problem]]:
    """Kill exports: a file, or each file of a Parquet folder, must be either the old one or the new one."""
    stage = workshop.stage("kill", workshop.rolled_up)
    killer = Killer(rng, "export", number)
    target = stage.data / "exported"  # inside the data folder, which the shim watches
    words = ["export", "-o", str(target), "--from", work.DAY_NAMES[0], "--to", work.day_name(work.END_MS)]
    words += rng.choice(
        (["--format", "csv"], ["--format", "csv", "--what", "card_hours"], ["--format", "parquet", "--host", "lab"])
    )
    killer.run_undisturbed(stage, words, work.LATER_MS)
    new = _files(target)
    old = dict.fromkeys(new, b"what was there before\n")
    while killer.kills < 8:
        if rng.random() < 0.5:
            for path in old:
                path.write_bytes(old[path])
        killer.run(stage, words, work.LATER_MS)
        for path, found in _files(target).items():
            if found not in (old.get(path), new.get(path)) and not path.name.startswith("."):
                killer.problems.append(work.Problem("corrupt", f"{path.name} is neither the old nor the new one"))
    killer.run_undisturbed(stage, words, work.LATER_MS)
    for hidden in target.parent.rglob(".*exported.*") if target.is_file() else target.rglob(".*"):
        os.utime(hidden, (0, 0))  # as if the kills were long ago
    killer.run_undisturbed(stage, words, work.LATER_MS)
    if _files(target) != new:
        killer.problems.append(work.Problem("lost", f"{target} is not what it was at first"))
    return killer.kills, killer.problems


def _files(target: Path) -> dict[Path, bytes]:
    paths = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in paths}
