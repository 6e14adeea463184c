"""Power cuts: all changes that commands make to files are recorded, then replayed up to some moment; any of those that
no fsync had made safe by then may be left out. The next runs must restore a complete folder.

There are two models of a file system. "Strict": a name is safe once its folder was synced, and unsynced changes may be
there or not, in any order. "Ordered", like ext4 and XFS: any fsync makes all names before it safe, and names are lost
from the end only. A tick that a command reported as recorded is there afterwards, except the newest one: SQLite
(synchronous = FULL) does not sync the folder again after removing the journal, which is what commits.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.torture.commands import STATUSES
from tests.torture.faults import undisturbed
from tests.torture.jobs import IMPORT, ROLLUP
from tests.torture.kills import TICK_MS, Ticks
from tests.torture.workshop import (
    DAY_MS,
    DAY_NAMES,
    END_MS,
    LATER_MS,
    START_MS,
    Problem,
    Stage,
    Workshop,
    day_name,
    hold,
    report_words,
)

SECTOR = 512
NAMES = ("create", "unlink", "rename", "link", "mkdir")
HELD = (False, False, True, True, False, False, True, False)  # ticks that wait for a reader


class Event(NamedTuple):
    what: str
    file: int  # unique, unlike inode numbers, which are reused
    mtime_ns: int
    offset: int
    data: bytes
    path: str  # relative to the data folder
    other: str


class File(NamedTuple):
    data: bytearray
    mtime_ns: list[int]  # a single, mutable value


class Recording(NamedTuple):
    files: dict[int, tuple[bytes, int]]  # at the start: content and modification time
    names: dict[str, int]
    folders: set[str]
    events: list[Event]
    promises: list[tuple[int, int]]  # number of events after which this was reported as done


class Recorder:
    """Runs commands on a stage's data folder and records their changes."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.log = stage, stage.folder / "record"
        found = sorted(stage.data.rglob("*")) if stage.data.exists() else []
        self._inodes = {path.stat().st_ino: number for number, path in enumerate(found) if path.is_file()}
        self._files = {
            number: (path.read_bytes(), path.stat().st_mtime_ns) for number, path in enumerate(found) if path.is_file()
        }
        self._names = {self._relative(str(path)): number for number, path in enumerate(found) if path.is_file()}
        self._folders = {self._relative(str(path)) for path in found if path.is_dir()}
        self.promises: list[tuple[int, int]] = []

    def run(self, words: list[str], clock_ms: int, promise: int) -> None:
        ran = self.stage.start(words, clock_ms, variables={"GUA_TEST_RECORD": str(self.log)}).wait()
        if ran.status != 0:
            raise RuntimeError(f"{words} ended with {ran.status}: {ran.err}")
        self.promises.append((len(self.finish().events), promise))

    def finish(self) -> Recording:
        inodes, rest = dict(self._inodes), self.log.read_bytes()
        events: list[Event] = []
        while rest:
            line, _, rest = rest.partition(b"\n")
            what, inode, mtime, offset, length, *paths = line.decode().split("\t")
            if what == "create":
                inodes[int(inode)] = len(inodes) + len(events)  # a new file
            data, rest = rest[: int(length)], rest[int(length) :]
            path, other = map(self._relative, paths)
            events.append(Event(what, inodes.get(int(inode), -1), int(mtime), int(offset), data, path, other))
        return Recording(self._files, self._names, self._folders, events, self.promises)

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.stage.data) if path else ""


def replay(recording: Recording, cut: int, rng: random.Random, target: Path) -> str:
    """Write the state after a power cut into a folder; returns a description of the choice."""
    events = recording.events[:cut]
    is_strict = rng.random() < 0.5
    share = rng.choice((0.0, 0.5, 0.9, 1.0))  # of unsynced changes that survive
    is_torn = rng.random() < 0.5
    last_sync = max((number for number, event in enumerate(events) if event.what == "sync"), default=-1)
    names_end = rng.randint(last_sync + 1, cut) if share < 1 else cut
    synced: set[int | str] = set()
    chosen: list[Event] = []
    for number, event in reversed(list(enumerate(events))):
        if event.what == "sync":
            synced |= {event.file, event.path}  # the path stands for a folder
        elif event.what in NAMES:
            folder = os.path.dirname(event.other or event.path) or "."
            is_kept = folder in synced or rng.random() < share if is_strict else number < names_end
            chosen += [event] if is_kept else []
        elif (event.file >= 0 and event.file in synced) or rng.random() < share:
            chosen.append(event)
        elif event.what == "write" and is_torn:
            chosen += _tear(event, rng)
    _materialize(recording, reversed(chosen), target)
    return f"{'strict' if is_strict else 'ordered'}, {share:.0%} of what was not synced{', torn' * is_torn}"


def _tear(event: Event, rng: random.Random) -> list[Event]:
    """Some sectors of a write; others keep their content, or are zero where the file grew."""
    return [
        event._replace(offset=event.offset + start, data=event.data[start : start + SECTOR])
        for start in range(0, len(event.data), SECTOR)
        if rng.random() < 0.5
    ]


def _materialize(recording: Recording, events: Iterable[Event], target: Path) -> None:
    """Apply these changes to the recorded files, and write the result."""
    files = {number: File(bytearray(data), [mtime]) for number, (data, mtime) in recording.files.items()}
    names, folders = dict(recording.names), set(recording.folders)
    for event in events:
        if event.what == "mkdir":
            folders.add(event.path)
        elif event.what in NAMES:
            if event.what in ("unlink", "rename"):
                names.pop(event.path, None)
            if event.what != "unlink":
                names[event.other or event.path] = event.file
        elif event.what in ("write", "truncate", "times"):
            file = files.setdefault(event.file, File(bytearray(), [0]))
            file.mtime_ns[0] = event.mtime_ns
            if event.what != "times":
                file.data.extend(bytes(max(0, event.offset - len(file.data))))
                end = event.offset + len(event.data) if event.what == "write" else len(file.data)
                file.data[event.offset : end] = event.data
    _write(target, folders, {name: files.get(number, File(bytearray(), [0])) for name, number in names.items()})


def _write(target: Path, folders: set[str], files: dict[str, File]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name in sorted(folders - {"."}):
        (target / name).mkdir()
    for name, file in files.items():
        if (target / name).parent.is_dir():
            (target / name).write_bytes(file.data)
            os.utime(target / name, ns=(file.mtime_ns[0],) * 2)


# -- recordings, and their checks


def _record_first_ticks(workshop: Workshop) -> Recording:
    return _record_samples(workshop.stage("record"))


def _record_ticks(workshop: Workshop) -> Recording:
    stage = workshop.stage("record")
    (stage.data / "samples").mkdir(parents=True)
    return _record_samples(stage)


def _record_samples(stage: Stage) -> Recording:
    """Record ticks around a midnight, some of them kept."""
    recorder = Recorder(stage)
    for number, is_held in enumerate(HELD):
        clock_ms = START_MS + DAY_MS + (number - 5) * TICK_MS
        path = stage.partition(day_name(clock_ms))
        with hold(path) if is_held and path.exists() else nullcontext():
            recorder.run(["sample"], clock_ms, clock_ms)
    return recorder.finish()


def _check_ticks(workshop: Workshop, stage: Stage, recording: Recording, cut: int) -> list[Problem]:
    ticks = Ticks()
    ticks.possible = {ts_ms for _, ts_ms in recording.promises}
    ticks.promised = set([ts_ms for after, ts_ms in recording.promises if after <= cut][:-1])
    next_ms = recording.promises[-1][1] + TICK_MS
    ran = stage.run(report_words(START_MS, START_MS + 2 * DAY_MS), next_ms)
    problems = ran.problems(STATUSES)
    for clock_ms in (next_ms, next_ms + TICK_MS):
        problems += undisturbed(stage, ["sample"], clock_ms)
        ticks.promised.add(clock_ms)
    return problems + ticks.check(stage)


def _record_rollup(workshop: Workshop) -> Recording:
    recorder = Recorder(workshop.stage("record", workshop.ticks))
    recorder.run(["rollup", "--compact", "--config", str(recorder.stage.config)], LATER_MS, 0)
    return recorder.finish()


def _check_rollup(workshop: Workshop, stage: Stage, recording: Recording, cut: int) -> list[Problem]:
    words = ["rollup", "--compact", "--config", str(stage.config)]
    return undisturbed(stage, words, LATER_MS) + ROLLUP.check(workshop, stage)


def _record_import(workshop: Workshop) -> Recording:
    recorder = Recorder(workshop.stage("record"))
    recorder.run(["import", str(workshop.ticks)], LATER_MS, 0)
    return recorder.finish()


def _check_import(workshop: Workshop, stage: Stage, recording: Recording, cut: int) -> list[Problem]:
    return undisturbed(stage, ["import", str(workshop.ticks)], LATER_MS) + IMPORT.check(workshop, stage)


def _record_export(workshop: Workshop) -> Recording:
    stage = workshop.stage("record", workshop.rolled_up)
    (stage.data / "exported.csv").write_text("what was there before\n")
    recorder = Recorder(stage)
    words = ["export", "-o", str(stage.data / "exported.csv"), "--from", DAY_NAMES[0], "--to", day_name(END_MS)]
    recorder.run(words, LATER_MS, 0)
    return recorder.finish()


def _check_export(workshop: Workshop, stage: Stage, recording: Recording, cut: int) -> list[Problem]:
    found = (stage.data / "exported.csv").read_text()
    is_new = found.startswith("ts_ms,") and found.endswith("\n")
    if cut == len(recording.events) and not is_new:
        return [Problem("lost", "an export that was said to be done")]
    is_whole = is_new or found == "what was there before\n"
    return [] if is_whole else [Problem("corrupt", f"half an export: {found[:40]!r}")]


KINDS: list[
    tuple[Callable[[Workshop], Recording], Callable[[Workshop, Stage, Recording, int], list[Problem]], float]
] = [
    (_record_first_ticks, _check_ticks, 0.1),
    (_record_ticks, _check_ticks, 0.4),
    (_record_rollup, _check_rollup, 0.3),
    (_record_import, _check_import, 0.15),
    (_record_export, _check_export, 0.05),
]


@cache
def _recording(workshop: Workshop, kind: int) -> Recording:
    return KINDS[kind][0](workshop)


def cut_power(workshop: Workshop, number: int, rng: random.Random) -> tuple[int, list[Problem]]:
    kind = rng.choices(range(len(KINDS)), [share for _, _, share in KINDS])[0]
    recording = _recording(workshop, kind)
    cut = rng.randint(1, len(recording.events)) if rng.random() < 0.9 else len(recording.events)
    stage = workshop.stage("cut")
    how = replay(recording, cut, rng, stage.data)
    problems = KINDS[kind][1](workshop, stage, recording, cut)
    what = KINDS[kind][0].__name__.removeprefix("_record_")
    told = f" ({what}, cut after {cut} of {len(recording.events)} changes: {how})"
    return 1, [problem._replace(text=problem.text + told) for problem in problems]
