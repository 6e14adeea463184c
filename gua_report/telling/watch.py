"""What is held without work for long, as the history and a fresh look at the driver agree, and what is in doubt."""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import duration
from gua_report.live.cards_now import Scene, mark_meant
from gua_report.live.observer import Observer
from gua_sample.identity import find_person, resolve
from gua_sample.policy import IDLE_HELD, UNKNOWN
from gua_sample.processes import CLOCK_TICKS_PER_SECOND
from gua_sample.records import Boot

FRESH_SECONDS = 10.0  # an older look is repeated before somebody is told

# The report's ongoing episodes up to the newest tick of a folder: since when, and whether the beginning was seen, by
# card and pid; and doubts (summary/last_week). What reads them is handed in, because it takes pandas.
Ongoing = dict[tuple[str, int], tuple[int, bool]]
ReadOngoing = Callable[[str, Config, int], tuple[Ongoing, list[str]]]


class Episode(NamedTuple):
    """A process on a card, told from all others that there are or were."""

    boot_id: str
    gpu_uuid: str
    pid: int
    start_time_ms: int


class Held(NamedTuple):
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
        return self.since_ms if self.since_is_exact else 0


class Sight(NamedTuple):
    now_ms: int
    held: list[Held]  # for longer than asked for, the longest first
    meant: int  # number of processes that are left out because a note or the configuration says that they are meant
    unknown: list[str]  # cards of which it is not known what they do
    doubts: list[str]  # why nobody is to be told of any of it


class Watch:
    """Looks again whenever what it saw is old, so that nobody is told of what is over."""

    def __init__(self, options: argparse.Namespace, after_ms: int, read_ongoing: ReadOngoing) -> None:
        self._complaints: list[str] = []
        self.observer = Observer(options, lambda text: self._complaints.append(text.removeprefix("warning: ")))
        self.after_ms = after_ms
        self._read_ongoing = read_ongoing
        self._looked = float("-inf")

    def look(self) -> Sight:
        observer = self.observer
        scene = mark_meant(observer.look(), observer.config, observer.complain_once)
        self._looked, self._boot = time.monotonic(), scene.tick.boot
        ongoing, doubts = Ongoing(), list[str]()
        if scene.newest:
            ongoing, doubts = self._read_ongoing(observer.data_dir, observer.config, scene.newest.ts_ms)
        self.sight = see(scene, ongoing, self.after_ms, [*self._complaints, *doubts])
        return self.sight

    def is_still_so(self, held: Held) -> bool:
        if time.monotonic() - self._looked > FRESH_SECONDS:
            self.look()
        episode, source = held.episode, self.observer.source
        if self.sight.doubts or episode not in [one.episode for one in self.sight.held]:
            return False
        # By /proc, and not by what the sampler stored.
        if source is None or source.boot().id != episode.boot_id:
            return False
        return source.describe(episode.pid, self._boot).start_time_ms == episode.start_time_ms


def see(scene: Scene, ongoing: Ongoing, after_ms: int, complaints: list[str]) -> Sight:
    now_ms, boot, recent = scene.tick.ts_ms, scene.tick.boot, scene.recent
    stored = recent.processes if recent and recent.boot.id == boot.id else {}
    held, meant = list[Held](), 0
    for seen in scene.cards:
        facts = seen.card.facts
        for one in seen.processes if seen.state != UNKNOWN else ():
            # A process whose start is not known may be another one with the same pid.
            start_ms, since = one.start_time_ms, ongoing.get((facts.uuid, one.pid))
            if one.state != IDLE_HELD or start_ms is None or since is None or now_ms - since[0] <= after_ms:
                continue
            if one.pid not in stored or stored[one.pid].start_time_ms != start_ms:
                continue
            if one.meant is not None:
                meant += 1
                continue
            process = scene.tick.processes[one.pid]
            held.append(
                Held(
                    Episode(boot.id, facts.uuid, one.pid, start_ms),
                    one.user,
                    facts.number,
                    facts.name,
                    since[0],
                    one.memory_mib,
                    one.command,
                    one.slurm_job,
                    process.uid,
                    find_person(process.uid, process.login_uid, process.cgroup),
                    clock_ticks(start_ms, boot),
                    resolve(process.uid, process.login_uid, process.user, process.login_user, process.cgroup),
                    since[1],
                )
            )
    held.sort(key=lambda one: (one.since_ms, one.gpu, one.episode.pid))
    unknown = [seen.card.facts.number for seen in scene.cards if seen.state == UNKNOWN]
    return Sight(now_ms, held, meant, unknown, [*_doubts(scene), *complaints])


def clock_ticks(start_time_ms: int, boot: Boot) -> int:
    return -((boot.time_ms - start_time_ms) * CLOCK_TICKS_PER_SECOND // 1000)


def _doubts(scene: Scene) -> Iterator[str]:
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
