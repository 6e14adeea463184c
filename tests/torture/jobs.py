"""Commands that repair what an earlier run of theirs left: how a folder is prepared for each, and what must hold."""

import os
import random
import shutil
from collections.abc import Callable
from typing import NamedTuple

from tests.torture import workshop as work


class Job(NamedTuple):
    prepare: Callable[[work.Workshop, random.Random], tuple[work.Stage, list[str]]]  # the words of the command
    check: Callable[[work.Workshop, work.Stage], list[work.Problem]]


def prepare_rollup(workshop: work.Workshop, rng: random.Random) -> tuple[work.Stage, list[str]]:
    """Sums, CSV files, compaction and retention of days that were or were not rolled up, or were touched since."""
    stage = workshop.stage("job", rng.choice((workshop.ticks, workshop.ticks, workshop.rolled_up)))
    for path in rng.sample(stage.partitions(), rng.choice((0, 0, 1, 2))):
        os.utime(path)
    how = rng.choice(([], ["--compact"], ["--compact", "--rebuild"]))
    return stage, ["rollup", "--config", str(stage.config), *how]


def check_rollup(workshop: work.Workshop, stage: work.Stage) -> list[work.Problem]:
    problems = workshop.compare_since(stage, work.DAY_NAMES[1], work.LATER_MS)  # older days are removed completely
    for path in [*stage.partitions(), stage.data / "rollups.sqlite"]:
        problems += work.find_damage(path)
    for path in sorted((stage.data / "csv").glob("*.csv")):
        if path.read_bytes() != (workshop.rolled_up / "csv" / path.name).read_bytes():
            problems.append(work.Problem("corrupt", f"csv/{path.name} is not whole"))
    return problems + work.compare_contents(stage, workshop.contents, work.DAY_NAMES[-2:])


def prepare_import(workshop: work.Workshop, rng: random.Random) -> tuple[work.Stage, list[str]]:
    """Another folder's days into one that has some of them."""
    stage = workshop.stage("job")
    (stage.data / "samples").mkdir(parents=True)
    for day in rng.sample(work.DAY_NAMES, rng.choice((0, 1, 2))):
        shutil.copy2(workshop.ticks / "samples" / f"{day}.sqlite", stage.data / "samples")
    return stage, ["import", str(workshop.ticks)]


def check_import(workshop: work.Workshop, stage: work.Stage) -> list[work.Problem]:
    return work.compare_contents(stage, workshop.contents, work.DAY_NAMES)


ROLLUP, IMPORT = Job(prepare_rollup, check_rollup), Job(prepare_import, check_import)
