"""Find in the history since when a card is in its state, since when a process idle-holds it, and a card's last use.

The rules are those of the reports: a state begins with its first tick, ticks are linked as in an episode, and an
ongoing episode begins at the same time as in a report. A hole ends the search.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from gua_report.live.state_history import DOES_NOTHING, IS_LARGE, RESTS, TOGETHER, Key, Row, Situation, Timeline
from gua_sample.policy import ACTIVE, IDLE_HELD, is_idle


class Run(NamedTuple):
    """An ongoing state."""

    since_ms: int
    began: bool  # whether the beginning was seen; else the state may have lasted longer


class Past(NamedTuple):
    newest_ms: int | None  # the newest tick when this was found
    cards: dict[str, Run | None]  # None: even the newest tick is too long ago
    idle: dict[Key, Run | None]  # the processes that idle-hold a card now


NOTHING = Past(None, {}, {})


def to_plain(told: Past) -> list[Any]:
    """The findings as plain lists, for JSON."""
    return [told.newest_ms, list(told.cards.items()), list(told.idle.items())]


def restore(newest_ms: int | None, cards: list[Any], idle: list[Any]) -> Past:
    def run(values: Any) -> Run | None:
        return None if values is None else Run(*values)

    return Past(
        newest_ms,
        {uuid: run(values) for uuid, values in cards},
        {(uuid, pid, start): run(values) for (uuid, pid, start), values in idle},
    )


class Walk:
    """A walk back from now, tick by tick, until the beginning of every state is found."""

    def __init__(self, now: Situation, now_ms: int) -> None:
        self.now = now
        self.newer_ms = self.before_newer_ms = now_ms
        self.is_now = True  # no tick has been reached yet
        self.cards = set(now.cards)
        self.found: dict[str, Run | None] = {}
        self.processes: set[Key] = set()
        self.doubtful: set[Key] = set()  # their idleness at the newer tick depends on the tick before it
        self.idle: dict[Key, Run | None] = {}
        for key, code in now.processes.items():
            if is_held(now, key):
                self.processes.add(key)
            elif code & RESTS:
                self.processes.add(key)
                self.doubtful.add(key)

    def goes_on(self) -> bool:
        return bool(self.cards or self.processes)

    def visit(self, row: Row, is_near: bool, did_nothing_before: Callable[[Key], bool]) -> None:
        """Visit a tick linked to the newer one. `did_nothing_before` is about the tick before the newer one."""
        at = row.situation()
        for uuid in [uuid for uuid in self.cards if at.state(uuid) != self.now.state(uuid)]:
            self.cards.remove(uuid)
            self.found[uuid] = Run(self.newer_ms, True)
        for key in list(self.processes):
            code = at.processes.get(key)
            is_doubtful = key in self.doubtful
            if code is None and is_doubtful:
                self._end_doubt(key, True, did_nothing_before(key))
            elif code is None:
                self._end(key, Run(self.newer_ms, True))
            elif is_doubtful and not (is_near and code & DOES_NOTHING):
                self._end_doubt(key, True, False)
            elif is_held(at, key):
                self.doubtful.discard(key)
            elif code & RESTS:
                self.doubtful.add(key)
            else:
                self._end(key, Run(self.newer_ms, True))

    def move_to(self, ts_ms: int) -> None:
        self.newer_ms, self.before_newer_ms = ts_ms, self.newer_ms
        self.is_now = False

    def adopt(self, known: Past) -> None:
        """Take over the findings of an earlier walk, whose newest tick is the one just reached."""
        for uuid in [uuid for uuid in self.cards if _reaches(known.cards.get(uuid), self.newer_ms)]:
            self.cards.remove(uuid)
            self.found[uuid] = known.cards[uuid]
        for key in self.processes - self.doubtful:
            if _reaches(known.idle.get(key), self.newer_ms):
                self._end(key, known.idle[key])

    def finish(self, newest_ms: int | None, did_nothing_before: Callable[[Key], bool]) -> Past:
        """End the walk and return the findings: a state without a beginning so far may have begun earlier."""
        run = None if self.is_now else Run(self.newer_ms, False)
        for uuid in self.cards:
            self.found[uuid] = run
        for key in list(self.processes):
            if key in self.doubtful:
                self._end_doubt(key, False, did_nothing_before(key))
            else:
                self._end(key, run)
        return Past(newest_ms, self.found, self.idle)

    def _end_doubt(self, key: Key, began: bool, was_idle: bool) -> None:
        """Settle a doubtful process: `was_idle` tells whether it was idle at the newer tick already."""
        self.doubtful.discard(key)
        if was_idle:
            self._end(key, Run(self.newer_ms, began))
        elif self.is_now:
            self.processes.remove(key)
        else:
            self._end(key, Run(self.before_newer_ms, began))

    def _end(self, key: Key, run: Run | None) -> None:
        self.processes.remove(key)
        self.idle[key] = run


def is_held(at: Situation, key: Key) -> bool:
    """Whether the process idle-holds the card because the card is idle-held."""
    uuid, code = key[0], at.processes[key]
    holds = bool(code & IS_LARGE) or at.cards[uuid] >= TOGETHER
    return bool(is_idle(at.state(uuid) == IDLE_HELD, holds, False, False))


def look_back(timeline: Timeline, now: Situation, now_ms: int, boot_id: str, known: Past = NOTHING) -> Past:
    """The beginnings of the present states. `known`: earlier findings, taken over at their newest tick."""
    walk = Walk(now, now_ms)
    position, reached, newer = 0, 0, None

    def did_nothing_before(key: Key) -> bool:
        """Whether the process did nothing at the last tick that saw it before the newer one, be it beyond a hole."""
        before = reached + 1 if newer else 0
        while (row := timeline.row(before)) and timeline.joins(reached, walk.newer_ms - row.ts_ms):
            code = row.situation().processes.get(key)
            if code is not None:
                return bool(code & DOES_NOTHING)
            before += 1
        return False

    following_ms, following_boot, is_whole = now_ms, boot_id, True
    first = timeline.row(0)
    while walk.goes_on() and (row := timeline.row(position)) is not None:
        # Ticks without cards in between don't break a link; a reboot or a hole does.
        is_whole &= row.boot_id == following_boot and timeline.joins(position, following_ms - row.ts_ms)
        following_ms, following_boot = row.ts_ms, row.boot_id
        if row.cards is not None:
            gap_ms = walk.newer_ms - row.ts_ms
            if not (is_whole and timeline.joins(position, gap_ms)):
                break
            is_near = newer is None or timeline.joins(reached, gap_ms)
            if not (newer and is_near and row[3:] == newer[3:]):
                walk.visit(row, is_near, did_nothing_before)
            walk.move_to(row.ts_ms)
            if row.ts_ms == known.newest_ms:
                walk.adopt(known)
            newer, reached = row, position
        position += 1
    return walk.finish(first.ts_ms if first else None, did_nothing_before)


def find_last_use(timeline: Timeline, uuids: set[str]) -> dict[str, int]:
    """The time at which each card was last active or idle-held; cards that no tick shows so are absent."""
    found: dict[str, int] = {}
    position, newer = 0, None
    while len(found) < len(uuids) and (row := timeline.row(position)) is not None:
        if not (newer and row[3:] == newer[3:]):
            at = row.situation()
            for uuid in uuids - found.keys():
                if at.state(uuid) in (ACTIVE, IDLE_HELD):
                    found[uuid] = row.ts_ms
        position, newer = position + 1, row
    return found


def _reaches(run: Run | None, ts_ms: int) -> bool:
    return run is not None and run.since_ms <= ts_ms
