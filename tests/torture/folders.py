"""Damaged and hostile folders: whatever they contain, each command ends in time and in order and touches nothing
outside, and a damaged day does not affect other days."""

import contextlib
import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture.commands import LARGEST_FILE_MIB, SOMEBODY, STATUSES
from tests.torture.mutations import Recipe, apply, draw_damage, draw_malice
from tests.torture.workshop import DAY_NAMES, END_MS, LATER_MS, START_MS, Problem, Stage, Workshop, read, report_words

SEEDS = Path(__file__).parent / "seeds"
SAMPLER_STATUSES = (*STATUSES, 75)
WHOLE = report_words(START_MS, END_MS)
READERS = [
    WHOLE,
    [*WHOLE[2:], "--format", "text"],
    [*WHOLE[2:], "--format", "html"],
    ["status", "--simulate", "-v"],
    ["status", "--simulate", "--json"],
    ["free", "--simulate"],
    ["doctor", "--json"],
    ["export", "--from", DAY_NAMES[0], "--what", "card_ticks", "--format", "jsonl"],
    ["export", "--from", DAY_NAMES[0], "--what", "process_ticks"],
    ["export", "--from", DAY_NAMES[0], "--what", "card_hours"],
    ["export", "--from", DAY_NAMES[0], "--what", "episode_days"],
    ["rollup", "--dry-run"],
    ["import", "--dry-run", "{source}"],
]
WRITERS = [["rollup"], ["rollup", "--compact"], ["sample", "--simulate"], ["sample"], ["import", "{source}"]]
FROM_HERE = ["import", "{data}"]  # with the tortured folder as the source


class Trial(NamedTuple):
    base: str  # an attribute of the workshop
    steps: Recipe
    commands: list[list[str]]
    owner: int  # of the folder; a different one needs root
    user: int  # runs the commands
    other_day: str | None = None  # a day whose report must not change

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=1)


def damaged(workshop: Workshop, number: int, rng: random.Random) -> tuple[int, list[Problem]]:
    """A trial with damaged bytes in one day's partition, or in any files."""
    files = _files(workshop.full)
    day = rng.choice(DAY_NAMES)
    if is_of_one_day := rng.random() < 0.5:
        files = {name: size for name, size in files.items() if name == f"samples/{day}.sqlite"}
    steps = [draw_damage(rng, files) for _ in range(rng.choice((1, 1, 2, 5)))]
    far = [other for other in DAY_NAMES if abs(DAY_NAMES.index(other) - DAY_NAMES.index(day)) > 1]
    return 1, _examine(workshop, _trial(rng, steps, rng.choice(far) if is_of_one_day else None))


def hostile(workshop: Workshop, number: int, rng: random.Random) -> tuple[int, list[Problem]]:
    tables = _tables(workshop)
    day = rng.choice(DAY_NAMES)
    files = _files(workshop.full)
    tables = {f"samples/{day}.sqlite" if name.startswith("samples") else name: found for name, found in tables.items()}
    steps = [draw_malice(rng, files, tables) for _ in range(rng.choice((1, 1, 1, 2)))]
    return 1, _examine(workshop, _trial(rng, steps, None))


def replay_seed(workshop: Workshop, number: int, rng: random.Random) -> tuple[int, list[Problem]]:
    """Repeat a failure that was found before."""
    path = sorted(SEEDS.glob("*.json"))[number]
    trial = Trial(**{"owner": os.geteuid(), "user": os.geteuid(), **json.loads(path.read_text())})
    if os.geteuid() != 0:
        trial = trial._replace(owner=os.geteuid(), user=os.geteuid())
    return 1, [problem._replace(text=f"{path.stem}: {problem.text}") for problem in try_out(workshop, trial)]


def count_seeds() -> int:
    return len(list(SEEDS.glob("*.json")))


def _trial(rng: random.Random, steps: Recipe, other_day: str | None) -> Trial:
    commands = [*rng.sample(READERS, 2), rng.choice([*WRITERS, FROM_HERE])]
    myself = os.geteuid()
    owner, user = (
        rng.choice(((myself, myself), (SOMEBODY, 0), (SOMEBODY, SOMEBODY))) if myself == 0 else (myself, myself)
    )
    if owner == user:  # who may put the folder of samples on another disk, by a link of their own
        steps = [step for step in steps if not _moves_a_folder(step)]
    return Trial(rng.choice(("ticks", "full", "full")), steps, commands, owner, user, other_day)


def _moves_a_folder(step: tuple[str, dict[str, Any]]) -> bool:
    name, options = step
    return name == "replace" and options["by"] == "link" and "." not in options["file"]


def _examine(workshop: Workshop, trial: Trial) -> list[Problem]:
    """The trial's problems; the first one names a single step and command that reproduce it, if there are such."""
    problems = try_out(workshop, trial)
    if problems:
        column = problems[0].column
        smaller = [trial._replace(commands=[command], other_day=None) for command in trial.commands]
        if len(trial.steps) > 1:
            smaller = [one._replace(steps=[step]) for one in smaller for step in trial.steps]
        tried = (one for one in smaller if any(found.column == column for found in try_out(workshop, one)))
        problems[0] = problems[0]._replace(text=f"{problems[0].text}\n{next(tried, trial).to_json()}")
    return problems


def try_out(workshop: Workshop, trial: Trial) -> list[Problem]:
    stage = workshop.stage("folder", getattr(workshop, trial.base))
    apply(stage, trial.steps)
    for path in [stage.data, *stage.data.rglob("*"), stage.temporary, stage.folder / "home"]:
        os.lchown(path, trial.owner, trial.owner)
    stage.temporary.chmod(0o777)
    outside = _outside(stage)
    # The limit for files kills who copies such a file, be it a child that has become the owner.
    sizes = [options["size"] for name, options in trial.steps if name == "sparse" and "size" in options]
    copies_die = max(sizes, default=0) > LARGEST_FILE_MIB << 20
    problems: list[Problem] = []
    if trial.other_day:
        problems += workshop.compare_day(stage, trial.other_day, LATER_MS, trial.user)
    for command in trial.commands:
        before = _tree(stage.data)
        words = [word.format(source=workshop.ticks, data=stage.data) for word in command]
        if command == FROM_HERE:  # the last --data-dir wins
            words += ["--data-dir", str(stage.folder / "home" / "taken")]
        ran = stage.run(words, LATER_MS, user=trial.user if trial.user else None)
        problems += ran.problems(SAMPLER_STATUSES)
        if command in READERS and _tree(stage.data) != before and not ran.is_late:
            problems.append(Problem("outside", f"gua {' '.join(words)} changed the folder that it reads"))
        if left := [path.name for path in stage.temporary.iterdir()]:
            problems += (
                [] if ran.status < 0 or copies_die else [Problem("outside", f"gua {' '.join(words)} left {left}")]
            )
            for name in left:
                shutil.rmtree(stage.temporary / name, ignore_errors=True)
        if _outside(stage) != outside:
            problems.append(Problem("outside", f"gua {' '.join(words)} changed what is outside of its folder"))
            break
    return problems


def _outside(stage: Stage) -> dict[str, str]:
    found = {}
    for path in sorted(stage.canary.rglob("*")):
        state = path.lstat()
        digest = hashlib.sha1(path.read_bytes()).hexdigest() if path.is_file() else ""  # noqa: S324 - to compare
        found[str(path)] = f"{state.st_mode} {state.st_uid} {state.st_mtime_ns} {digest}"
    return found | {path.name: "" for path in stage.folder.iterdir()}


def _tree(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            with contextlib.suppress(OSError):
                state = os.lstat(os.path.join(root, name))
                times = () if name in folders else (state.st_mtime_ns, state.st_size)
                found[os.path.join(root, name)] = (state.st_mode, state.st_ino, *times)
    return found


def _files(folder: Path) -> dict[str, int]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {str(path.relative_to(folder)): path.stat().st_size for path in paths}


def _tables(workshop: Workshop) -> dict[str, dict[str, list[str]]]:
    """Columns by file and table, of a partition and of the rollups."""
    return {
        name: {
            table: [row[1] for row in read(workshop.full / name, f"PRAGMA table_info({table})")]
            for (table,) in read(workshop.full / name, "SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        for name in (f"samples/{DAY_NAMES[0]}.sqlite", "rollups.sqlite")
    }
