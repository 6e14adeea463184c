"""The log of what was done: `remind.log` and `hook.log` in the data folder, a JSON object in each line.

A line is written, and on the disk, before something is done, and another one after it with the outcome. So whatever
ends a run in between, it is known that it may have been done. The file is private to the folder's owner.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gua_report.machine.as_owner import ask_as_owner
from gua_report.machine.child import understanding
from gua_report.telling.watch import Episode
from gua_sample.errors import CorruptPartition, StoreError
from gua_sample.notes import LATEST_MS
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import printable
from gua_sample.rights import others_on_the_way, owner_to_become, refuse_as_root
from gua_sample.safe_file import check_regular, read_regular
from gua_sample.store import lock_within

REMIND_LOG, HOOK_LOG = "remind.log", "hook.log"
MOST_BYTES = 64 << 20
WAIT_SECONDS = 10.0  # for another run
LONGEST_TEXT = 300
REMEMBER_MS = 7 * DAY_MS  # nothing older makes a difference
BEGUN, DONE, FAILED, UNSURE = "begun", "done", "failed", "unsure"
MODE = 0o600  # whoever could open it could hold its lock


class Act(NamedTuple):
    """Something that was done or begun: a mail, or a run of the hook."""

    id: str
    ts_ms: int  # when it was begun
    who: str
    to: str | None  # the address of a mail
    episodes: tuple[Episode, ...]
    is_trial: bool = False  # it went to somebody who tries it out
    outcome: str = BEGUN  # that is all that is known of what has no other one
    text: str | None = None  # why it failed, or what the hook said

    def is_about(self, episode: Episode, earliest_ms: int) -> bool:
        """Whether it was about this episode: one that may have begun by then, of the same process on the same card."""
        return episode in self.episodes and earliest_ms <= self.ts_ms


class Read(NamedTuple):
    """What a log says."""

    acts: list[Act]  # oldest first
    problems: list[str]  # lines that can't be understood, and may hide something that was done lately


def read_log(data_dir: str, name: str, now_ms: int) -> Read:
    """What the log says; nothing if there is none. Raises StoreError if it can't be read.

    As root, a child that becomes the folder's owner reads it.
    """
    path = os.path.join(data_dir, name)
    acts, problems = ask_as_owner(data_dir, lambda: _read(path, now_ms))
    with understanding():
        return Read([_restore(*act) for act in acts], [str(problem) for problem in problems])


def _read(path: str, now_ms: int) -> Read:
    try:
        content = read_regular(path, MOST_BYTES)
    except FileNotFoundError:
        return Read([], [])
    except CorruptPartition as error:
        raise StoreError(f"{error}: move it away once you have looked at it") from error
    except OSError as error:
        raise StoreError(f"{path} can't be read ({error.strerror}): run this as the owner of the folder") from error
    return parse_log(content, path, now_ms)


def _restore(*values: Any) -> Act:
    act = Act(*values)
    return act._replace(episodes=tuple(Episode(*one) for one in act.episodes))


def parse_log(content: bytes, path: str, now_ms: int) -> Read:
    """What the lines say.

    A line without an end was not finished, so what it announces was not done. Any other bad line may hide that somebody
    was told, unless a later line is so old that it makes no difference.
    """
    acts: dict[str, Act] = {}
    bad: list[int] = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            act = _parse_line(line)
        except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
            bad.append(number)
            continue
        bad = [] if act.ts_ms < now_ms - REMEMBER_MS else bad
        begun = acts.get(act.id)
        if act.outcome == BEGUN:
            acts[act.id] = act
        elif begun:
            acts[act.id] = begun._replace(outcome=act.outcome, text=act.text)
    what = f"{path}: line {bad[0]} can't be understood, and may hide that somebody was told" if bad else ""
    return Read(list(acts.values()), [f"{what}: move the file away once you have looked at it"] if bad else [])


def _parse_line(line: bytes) -> Act:
    """The act in a line. Raises ValueError, TypeError and others if there is none."""
    values = json.loads(line)
    id_, ts_ms, who, to, text = (values[name] for name in ("id", "ts_ms", "who", "to", "text"))
    outcome, is_trial = values["outcome"], values["is_trial"]
    episodes = tuple(_parse_episode(**one) for one in values["episodes"])
    texts = [one for one in (id_, who, to, text) if one is not None]
    if not all(isinstance(one, str) for one in texts) or id_ is None or who is None:
        raise ValueError("no texts")
    if (
        type(ts_ms) is not int
        or not 0 <= ts_ms <= LATEST_MS
        or outcome not in (BEGUN, DONE, FAILED, UNSURE)
        or type(is_trial) is not bool
    ):
        raise ValueError("no act")
    return Act(id_, ts_ms, who, to, episodes, is_trial, outcome, text)


def _parse_episode(boot_id: str, gpu_uuid: str, pid: int, start_time_ms: int) -> Episode:
    if not all(isinstance(one, str) for one in (boot_id, gpu_uuid)):
        raise ValueError("no texts")
    if not all(type(one) is int for one in (pid, start_time_ms)):
        raise ValueError("no numbers")
    return Episode(boot_id, gpu_uuid, pid, start_time_ms)


class Log:
    """A log that is open for writing, and locked, so that no other run does anything meanwhile."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def begin(self, ts_ms: int, who: str, to: str | None, episodes: Iterable[Episode], is_trial: bool = False) -> Act:
        """Write down that something is about to be done. Raises StoreError if that is not on the disk."""
        act = Act(os.urandom(8).hex(), ts_ms, who, to, tuple(episodes), is_trial)
        self._append(act)
        return act

    def end(self, act: Act, outcome: str, text: str | None) -> Act:
        """Write down what became of it."""
        done = act._replace(outcome=outcome, text=text and printable(text)[:LONGEST_TEXT])
        self._append(done)
        return done

    def _append(self, act: Act) -> None:
        values = {**act._asdict(), "episodes": [one._asdict() for one in act.episodes]}
        data = json.dumps(values).encode() + b"\n"
        try:
            if os.write(self._descriptor, data) < len(data):
                raise StoreError(f"{self.path} can't be written whole: is the disk full?")
            os.fsync(self._descriptor)
        except OSError as error:
            raise storage_error(error, self.path) from error


@contextmanager
def open_log(data_dir: str, name: str) -> Iterator[Log]:
    """Open the log, alone. Raises StoreError, or PartitionBusy if another run goes on.

    As root, the file is given to the folder's owner if it is new, and must be that owner's otherwise.
    """
    path = os.path.join(data_dir, name)
    owner = owner_to_become(data_dir)
    descriptor = _open(path, owner)
    try:
        text = f"{path} is held by another run: wait for that, or see 'fuser -v {path}'"
        lock_within(WAIT_SECONDS, descriptor, text)
        _cut_unfinished(descriptor)
        yield Log(path, descriptor)
    finally:
        os.close(descriptor)


def _open(path: str, owner: tuple[int, int] | None) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    name = os.path.basename(path)
    try:
        with suppress(FileNotFoundError):
            check_regular(path, MOST_BYTES)
        with _open_folder(os.path.dirname(path), owner) as folder:
            try:
                descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, MODE, dir_fd=folder)
                if owner is not None:
                    os.fchown(descriptor, *owner)
                os.fsync(folder)  # so that the new name survives a power cut
            except FileExistsError:
                descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise StoreError(
            f"{path} can't be written ({error.strerror}), and nothing is done without it: run this as the folder's"
            " owner, or as root"
        ) from error
    found = os.fstat(descriptor)
    expected = os.geteuid() if owner is None else owner[0]
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != expected:
        os.close(descriptor)
        raise StoreError(f"{path} is no file of uid {expected}'s own: move it away once you have looked at it")
    return descriptor


@contextmanager
def _open_folder(path: str, owner: tuple[int, int] | None) -> Iterator[int]:
    """The folder, opened once. As root, it must be the owner's, who may have put a link to a folder of root's there."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if owner is not None and os.fstat(folder).st_uid != owner[0]:
            refuse_as_root(others_on_the_way(path, 0))
        yield folder
    finally:
        os.close(folder)


def _cut_unfinished(descriptor: int) -> None:
    """Remove a last line that has no end: a killed run has begun it, and done nothing yet."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, min(size, 1 << 20), max(0, size - (1 << 20)))
    rest = len(tail) - (tail.rfind(b"\n") + 1)
    if rest:
        os.ftruncate(descriptor, size - rest)
