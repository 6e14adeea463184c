"""A stored day, recounted from all ticks ever written: a tick at a time, in plain Python, without shortcuts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from gua_report.people.identities import resolve
from gua_report.rollups.reader import Day
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES
from gua_sample.records import Tick
from tests.judged import Judged
from tests.lab import HOUR_MS

TRULY_IDLE = "truly-idle"
MOST_ACTIVE_FIRST = ("active", "idle-held", "unknown")


class Counted(NamedTuple):
    """Everything stored of a day, in no particular order."""

    cards: dict[tuple[int, str, str], tuple[int, int, int]]  # hour, card, state: ms, joules, ms with known energy
    identities: dict[tuple[int, str, str, str], int]  # hour, card, identity, state: ms
    holds: list[tuple[str, int, int]]
    episodes: list[tuple[str, int, int, int, bool, bool]]  # card, pid, start, end, joins before, joins after
    spans: list[tuple[int, int, str, str | None]]
    facts: list[tuple[str, int]]
    unpartitioned: dict[tuple[int, str], int]  # hour, physical card: ms that no MIG instance covers


class Recount:
    def __init__(self, ticks: Iterable[Tick]) -> None:
        self.ticks = sorted(ticks, key=lambda tick: tick.ts_ms)
        self.intervals = self._intervals()
        self.joined = [self._is_joined(position) for position in range(len(self.ticks))]
        self.ends = [self._end(position) for position in range(len(self.ticks))]
        self.judged = Judged(self.ticks, self.intervals, self.joined)
        self.states = self.judged.processes

    def _intervals(self) -> list[float]:
        by_day: dict[int, list[int]] = defaultdict(list)
        for tick in self.ticks:
            by_day[tick.ts_ms // DAY_MS].append(tick.ts_ms)
        found: list[float] = []
        for times in by_day.values():
            gaps = [later - earlier for earlier, later in pairwise(times)]
            for place in range(len(times)):
                middle = min(place, len(gaps) - 1)  # the last tick has no gap after it: use the one before
                around = [gap for gap in gaps[max(0, middle - 10) : middle + 10] if gap <= 2 * HOUR_MS]
                found.append(median(around) if around else 30_000)
        return [found[place] if tick.interval_ms is None else tick.interval_ms for place, tick in enumerate(self.ticks)]

    def _is_joined(self, position: int) -> bool:
        if position + 1 == len(self.ticks):
            return False
        one, following = self.ticks[position : position + 2]
        return following.ts_ms - one.ts_ms <= 2.5 * self.intervals[position] and one.boot.id == following.boot.id

    def _end(self, position: int) -> int:
        own = self.ticks[position].ts_ms + round(self.intervals[position])
        if position + 1 == len(self.ticks):
            return own
        following = self.ticks[position + 1].ts_ms
        return following if self.joined[position] else min(own, following)

    def day(self, number: int) -> Counted:
        """The counts of the UTC day of that number since 1970."""
        start, end = number * DAY_MS, (number + 1) * DAY_MS
        reaching = [place for place, tick in enumerate(self.ticks) if self.ends[place] > start and tick.ts_ms < end]
        own = [place for place in reaching if self.ticks[place].ts_ms >= start]
        return Counted(
            self._cards(reaching, start, end),
            self._identities(reaching, start, end),
            self._holds(reaching, start, end),
            self._episodes(own),
            self._spans(own),
            sorted({(card.facts.uuid, card.facts.gpu_index) for place in reaching for card in self.ticks[place].cards}),
            self._unpartitioned(reaching, start, end),
        )

    def _pieces(self, place: int, start: int, end: int) -> list[tuple[int, int]]:
        begin, until = max(start, self.ticks[place].ts_ms), min(end, self.ends[place])
        cuts = [begin, *range((begin // HOUR_MS + 1) * HOUR_MS, until, HOUR_MS), until]
        return [(one // HOUR_MS * HOUR_MS, other - one) for one, other in pairwise(cuts) if other > one]

    def _cards(self, places: list[int], start: int, end: int) -> dict[tuple[int, str, str], tuple[int, int, int]]:
        sums: dict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0, 0, 0])
        for place in places:
            tick = self.ticks[place]
            after: dict[str, int | None] = {}
            if self.joined[place]:
                after = {card.facts.uuid: card.energy_joules for card in self.ticks[place + 1].cards}
            for card in (card for card in tick.cards if card.facts.status != "unpartitioned"):
                then, now = after.get(card.facts.uuid), card.energy_joules
                used = None if then is None or now is None or then < now else then - now
                for hour, length in self._pieces(place, start, end):
                    known = sums[hour, card.facts.uuid, self.judged.card_state(place, card)]
                    known[0] += length
                    if used is not None:
                        known[1] += used * length / (self.ends[place] - tick.ts_ms)
                        known[2] += length
        return {key: (round(one), round(two), round(three)) for key, (one, two, three) in sums.items()}

    def _unpartitioned(self, places: list[int], start: int, end: int) -> dict[tuple[int, str], int]:
        """What no instance covers, by slices: of instances that all tell theirs, or of a card without any."""
        sums: dict[tuple[int, str], float] = defaultdict(float)
        for place in places:
            cards = [card.facts for card in self.ticks[place].cards]
            left = {facts.uuid: 7 for facts in cards if facts.status == "unpartitioned"}
            for facts in cards:
                if facts.parent_uuid is not None:
                    left[facts.parent_uuid] = left.get(facts.parent_uuid, 7) - (facts.compute_slices or 7)
            for hour, length in self._pieces(place, start, end):
                for uuid, sevenths in left.items():
                    if sevenths > 0:
                        sums[hour, uuid] += length * sevenths / 7
        return {key: round(ms) for key, ms in sums.items()}

    def _identities(self, places: list[int], start: int, end: int) -> dict[tuple[int, str, str, str], int]:
        sums: dict[tuple[int, str, str, str], int] = defaultdict(int)
        for place in places:
            tick = self.ticks[place]
            best: dict[tuple[str, str], int] = {}
            for (uuid, pid), (state, counts) in self.states[place].items():
                if counts and state != TRULY_IDLE:
                    who = tick.processes[pid]
                    key = uuid, resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup)
                    best[key] = min(best.get(key, 9), MOST_ACTIVE_FIRST.index(state))
            for (uuid, name), rank in best.items():
                for hour, length in self._pieces(place, start, end):
                    sums[hour, uuid, name, MOST_ACTIVE_FIRST[rank]] += length
        return dict(sums)

    def _holds(self, places: list[int], start: int, end: int) -> list[tuple[str, int, int]]:
        found = []
        for uuid in {card.facts.uuid for place in places for card in self.ticks[place].cards}:
            run: list[int] = []
            for place in [*places, -1]:
                cards = [] if place < 0 else [card for card in self.ticks[place].cards if card.facts.uuid == uuid]
                is_held = bool(cards) and self.judged.card_state(place, cards[0]) == "idle-held"
                if run and not (is_held and self.joined[run[-1]]):
                    found.append((uuid, max(start, self.ticks[run[0]].ts_ms), min(end, self.ends[run[-1]])))
                    run = []
                if is_held:
                    run.append(place)
        return sorted(hold for hold in found if hold[1] < hold[2])

    def _link(self, place: int, step: int) -> int | None:
        """The nearest tick in that direction that saw cards, if an episode may continue across the ticks between."""
        other = place + step
        while 0 <= other < len(self.ticks) and not self.ticks[other].cards:
            other += step
        if not 0 <= other < len(self.ticks):
            return None
        first, last = sorted((place, other))
        near = self.ticks[last].ts_ms - self.ticks[first].ts_ms <= 2.5 * self.intervals[first]
        return other if near and len({tick.boot.id for tick in self.ticks[first : last + 1]}) == 1 else None

    def _episodes(self, own: list[int]) -> list[tuple[str, int, int, int, bool, bool]]:
        def holds(place: int | None, key: tuple[str, int]) -> bool:
            return place is not None and self.states[place].get(key, ("", False))[0] == "idle-held"

        found = []
        for key in {key for place in own for key in self.states[place]}:
            run: list[int] = []
            for place in own:
                if not holds(place, key):
                    continue
                following = self._link(place, 1)
                run.append(place)
                if following not in own or not holds(following, key):
                    joins = [holds(self._link(run[0], -1), key), holds(following, key)]
                    found.append((*key, self.ticks[run[0]].ts_ms, self.ends[place], *joins))
                    run = []
        return sorted(found)  # type: ignore[arg-type]

    def _spans(self, own: list[int]) -> list[tuple[int, int, str, str | None]]:
        found: list[tuple[int, int, str, str | None]] = []
        for place in own:
            tick = self.ticks[place]
            kind = None if tick.error is None else "driver error"
            if found and found[-1][1:] == (tick.ts_ms, tick.boot.id, kind):
                found[-1] = (found[-1][0], self.ends[place], tick.boot.id, kind)
            else:
                found.append((tick.ts_ms, self.ends[place], tick.boot.id, kind))
        return found


def as_stored(day: Day) -> Counted:
    """The stored day in the form of a recount, for comparison."""
    cards, identities, holds, facts, unpartitioned = day.rollup
    episodes, spans = day.episodes, day.spans
    energy = zip(cards["weight_ms"], cards["energy_joules"], cards["energy_ms"], strict=True)
    return Counted(
        dict(zip(_keys(cards, "hour_ms", "gpu_uuid"), (tuple(map(round, row)) for row in energy), strict=True)),
        dict(
            zip(_keys(identities, "hour_ms", "gpu_uuid", "identity"), map(round, identities["weight_ms"]), strict=True)
        ),
        sorted(zip(holds["gpu_uuid"], holds["start_ms"], holds["end_ms"], strict=True)),
        sorted(
            zip(
                *(episodes[name].tolist() for name in ("gpu_uuid", "pid", "start_ms", "end_ms")),
                *(episodes[name].astype(bool).tolist() for name in ("joins_before", "joins_after")),
                strict=True,
            )
        ),
        [
            (start, end, boot, kind if isinstance(kind, str) else None)
            for start, end, boot, _, kind in spans.itertuples(index=False)
        ],
        sorted(zip(facts["uuid"], facts["gpu_index"], strict=True)),
        {(hour, uuid): round(ms) for hour, uuid, ms in unpartitioned.itertuples(index=False)},
    )


def _keys(frame: Any, *names: str) -> list[tuple[Any, ...]]:
    columns = [frame[name].tolist() for name in names]
    return list(zip(*columns, [STATES[state] for state in frame["state"].tolist()], strict=True))


def differences(one: Counted, other: Counted) -> list[str]:
    """Descriptions of all differences. Joules may differ by 1, as they are stored as whole numbers."""
    found = []
    for name in Counted._fields:
        left, right = getattr(one, name), getattr(other, name)
        if name == "cards" and left.keys() == right.keys():
            off = [
                key
                for key in left
                if any(abs(a - b) > (k == 1) for k, (a, b) in enumerate(zip(left[key], right[key], strict=True)))
            ]
            found += [f"cards {key}: {left[key]} {right[key]}" for key in off]
        elif left != right:
            found.append(f"{name}: {sorted({*left} ^ {*right}, key=repr)}")
    return found
