"""What is held without work for long, as the history and a fresh look at the driver agree, and what is in doubt."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

from gua_report.console.spelling import duration
from gua_report.live.cards_now import CardSeen, ProcessNow, Scene
from gua_report.live.meant_now import mark_meant
from gua_report.live.observer import Observer
from gua_sample.identity import find_person, resolve
from gua_sample.policy import IDLE_HELD, UNKNOWN
from gua_sample.processes import CLOCK_TICKS_PER_SECOND
from gua_sample.records import Boot

FRESH_SECONDS = 10.0  # an older look is repeated before somebody is told
LOOK_BACK_SECONDS = 30.0  # of CPU time: nobody waits for it


class Episode(NamedTuple):
    """A process on a card, told from all others that there are or were."""

    boot_id: str
    gpu_uuid: str
    pid: int
    start_time_ms: int


class Held(NamedTuple):
    """A process that holds a card without work, not on purpose."""

    episode: Episode
    who: str  # the identity
    gpu: str  # as the driver's tools number it
    gpu_name: str | None
    since_ms: int
    memory_mib: int | None
    command: str
    slurm_job: str | None
    uid: int | None
    person_uid: int | None  # of the person whose process it is, as the kernel tells; None: a container's, or not known
    start_clock_ticks: int  # as /proc/PID/stat has it, since the boot
    unmapped: str  # the identity before [people] and the owners of containers were looked at
    since_is_exact: bool  # whether the beginning was seen; else it may have lasted longer

    @property
    def earliest_ms(self) -> int:
        """When it may have begun at the earliest: at any time, if the beginning was not seen."""
        return self.since_ms if self.since_is_exact else 0


class Sight(NamedTuple):
    """What one look has found."""

    now_ms: int
    held: list[Held]  # for longer than asked for, the longest first
    meant: int  # number of processes that are left out because a note or the configuration says that they are meant
    unknown: list[str]  # cards of which it is not known what they do
    doubts: list[str]  # why nobody is to be told of any of it


class Watch:
    """Looks again whenever what it saw is old, so that nobody is told of what is over."""

    def __init__(self, options: argparse.Namespace, after_ms: int) -> None:
        self._complaints: list[str] = []
        self.observer = Observer(options, lambda text: self._complaints.append(text.removeprefix("warning: ")))
        self.observer.look_back_seconds = LOOK_BACK_SECONDS
        self.after_ms = after_ms
        self._looked = float("-inf")

    def look(self) -> Sight:
        """Look at the cards. Raises DriverError if the driver can't be asked."""
        observer = self.observer
        scene = mark_meant(observer.look_back(observer.look()), observer.config, observer.complain_once)
        self._looked, self._boot = time.monotonic(), scene.tick.boot
        self.sight = see(scene, self.after_ms, self._complaints)
        return self.sight

    def is_still_so(self, held: Held) -> bool:
        """Whether the very same process still holds the card without work; looks again if the last look is old."""
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self.look()
        is_held = any(one.episode == held.episode for one in self.sight.held)
        return is_held and not self.sight.doubts and self._is_there(held.episode)

    def _is_there(self, episode: Episode) -> bool:
        """Whether the process is there, by /proc and not by what the sampler stored: same boot, pid and start."""
        source = self.observer.source
        if source is None or source.boot().id != episode.boot_id:
            return False
        return source.describe(episode.pid, self._boot).start_time_ms == episode.start_time_ms


def see(scene: Scene, after_ms: int, complaints: list[str]) -> Sight:
    now_ms = scene.tick.ts_ms
    idle = [
        (seen, one)
        for seen in scene.cards
        for one in seen.processes
        if seen.state != UNKNOWN and one.state == IDLE_HELD and _lasts(one, now_ms, after_ms)
    ]
    found = [_describe(scene, seen, one) for seen, one in idle if one.meant is None]
    unknown = [seen.card.facts.number for seen in scene.cards if seen.state == UNKNOWN]
    meant = sum(one.meant is not None for _, one in idle)
    return Sight(now_ms, sorted(found, key=_longest_first), meant, unknown, [*_doubts(scene), *complaints])


def _lasts(one: ProcessNow, now_ms: int, after_ms: int) -> bool:
    # A process whose start is not known may be another one with the same pid.
    return one.start_time_ms is not None and one.since is not None and now_ms - one.since.ts_ms > after_ms


def _describe(scene: Scene, seen: CardSeen, one: ProcessNow) -> Held:
    facts, boot, process = seen.card.facts, scene.tick.boot, scene.tick.processes[one.pid]
    assert one.start_time_ms is not None  # see _lasts
    assert one.since is not None
    return Held(
        Episode(boot.id, facts.uuid, one.pid, one.start_time_ms),
        one.user,
        facts.number,
        facts.name,
        one.since.ts_ms,
        one.memory_mib,
        one.command,
        one.slurm_job,
        process.uid,
        find_person(process.uid, process.login_uid, process.cgroup),
        clock_ticks(one.start_time_ms, boot),
        resolve(process.uid, process.login_uid, process.user, process.login_user, process.cgroup),
        one.since.is_exact,
    )


def clock_ticks(start_time_ms: int, boot: Boot) -> int:
    """The start of a process as the kernel counts it: the smallest count that is stored as this time."""
    return -((boot.time_ms - start_time_ms) * CLOCK_TICKS_PER_SECOND // 1000)


def _longest_first(held: Held) -> tuple[int, str, int]:
    return held.since_ms, held.gpu, held.episode.pid


def _doubts(scene: Scene) -> Iterator[str]:
    """Why the history does not tell for sure what is going on now."""
    newest, files, now_ms = scene.newest, scene.files, scene.tick.ts_ms
    if files.hidden:
        yield f"the history can't be looked into ({files.hidden})"
    elif newest is None:
        yield "there is no tick that can be read"
    elif newest.error is not None:
        yield f"the newest tick failed ({newest.error})"
    elif newest.is_stale(now_ms):
        yield f"the newest tick is {duration((now_ms - newest.ts_ms) / 1000)} old: does the sampler run?"
    for name in files.strange:
        yield f"{name} in the history is no regular file"
