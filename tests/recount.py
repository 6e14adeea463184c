"""A stored day, recounted from all ticks ever written: a tick at a time, in plain Python, without shortcuts."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from gua_report.rollups.reader import Day
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES
from gua_sample.records import Tick
from tests.lab import HOUR_MS
from tests.naive import Naive


class Counted(NamedTuple):
    """Everything stored of a day, in no particular order."""

    cards: dict[tuple[int, str, str], tuple[int, int, int]]  # hour, card, state: ms, joules, ms with known energy
    identities: dict[tuple[int, str, str, str], int]  # hour, card, identity, state: ms
    holds: list[tuple[str, int, int]]
    episodes: list[tuple[str, int, int, int, bool, bool]]  # card, pid, start, end, joins before, joins after
    spans: list[tuple[int, int, str, str | None]]
    facts: list[tuple[str, int]]
    unpartitioned: dict[tuple[int, str], int]  # hour, physical card: ms that no MIG instance covers


class Recount(Naive):
    def __init__(self, ticks: Iterable[Tick]) -> None:
        super().__init__(ticks)
        _, self.intervals, self.joined, self.ends, _ = self.weighed
        self.states = self.judged.processes

    def day(self, number: int) -> Counted:
        """The counts of the UTC day of that number since 1970."""
        start, end = number * DAY_MS, (number + 1) * DAY_MS
        own = [place for place, tick in enumerate(self.ticks) if start <= tick.ts_ms < end]
        return Counted(
            self._cards(start, end),
            self.by_hour(start, end),
            self._holds(own, start, end),
            self._episodes(own, start, end),
            self._spans(own),
            sorted({(card.facts.uuid, card.facts.gpu_index) for place in own for card in self.ticks[place].cards}),
            self._unpartitioned(start, end),
        )

    def _cards(self, start: int, end: int) -> dict[tuple[int, str, str], tuple[int, int, int]]:
        sums: dict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0, 0, 0])
        for begin, uuid, state, joules, length in self.energies(start, end):
            known = sums[_hour(begin), uuid, state]
            known[0] += length
            if joules is not None:
                known[1] += joules
                known[2] += length
        return {key: (round(one), round(two), round(three)) for key, (one, two, three) in sums.items()}

    def _unpartitioned(self, start: int, end: int) -> dict[tuple[int, str], int]:
        sums: dict[tuple[int, str], float] = defaultdict(float)
        for begin, uuid, ms in self.uncovered(start, end):
            sums[_hour(begin), uuid] += ms
        return {key: round(ms) for key, ms in sums.items()}

    def by_hour(self, start: int, end: int) -> dict[tuple[int, str, str, str], int]:
        """Milliseconds by hour, card, identity and state."""
        sums: dict[tuple[int, str, str, str], int] = defaultdict(int)
        for begin, uuid, name, state, length, _ in self.presences(start, end, HOUR_MS):
            sums[_hour(begin), uuid, name, state] += length
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

    def _episodes(self, own: list[int], start: int, end: int) -> list[tuple[str, int, int, int, bool, bool]]:
        """Runs among the day's ticks that saw cards. One that is there at the first or last of them, close to midnight,
        reaches to it."""
        seen = [place for place in own if self.ticks[place].cards]
        found = []
        for key in {key for place in seen for key in self.states[place]}:
            run: list[int] = []
            for place, following in pairwise([*seen, None]):
                if place is None or self.states[place].get(key, ("", False))[0] != "idle-held":
                    continue
                run.append(place)
                goes_on = following is not None and self._are_near(place, following)
                if following is None or not goes_on or self.states[following].get(key, ("",))[0] != "idle-held":
                    found.append((*key, *self._ends_of(run, seen, start, end)))
                    run = []
        return sorted(found)

    def episodes(self) -> list[tuple[str, int, int, int]]:
        """Card, pid, start and end of all episodes; those that midnight cuts are one."""
        found: list[tuple[str, int, int, int, bool, bool]] = []
        for number in sorted({tick.ts_ms // DAY_MS for tick in self.ticks}):
            for one in self.day(number).episodes:
                before = [other for other in found if other[:2] == one[:2] and other[3] == one[2] and other[5]]
                if before and one[4]:
                    found.remove(before[0])
                    one = (*one[:2], before[0][2], one[3], before[0][4], one[5])
                found.append(one)
        return [one[:4] for one in sorted(found)]

    def _are_near(self, one: int, other: int) -> bool:
        near = self.ticks[other].ts_ms - self.ticks[one].ts_ms <= 2.5 * self.intervals[one]
        return near and len({tick.boot.id for tick in self.ticks[one : other + 1]}) == 1

    def _ends_of(self, run: list[int], seen: list[int], start: int, end: int) -> tuple[int, int, bool, bool]:
        """Beginning and end of a run, whether it may have begun earlier, and whether it may go on after midnight."""
        first, last = run[0], run[-1]
        place = seen.index(first)
        from_midnight = (
            place == 0
            and self.ticks[first].ts_ms - start <= 2.5 * self.intervals[first]
            and self.ticks[first].boot.time_ms <= start
        )
        to_midnight = last == seen[-1] and end - self.ticks[last].ts_ms <= 2.5 * self.intervals[last]
        return (
            start if from_midnight else self.ticks[first].ts_ms,
            end if to_midnight else self.ends[last],
            place == 0 or not self._are_near(seen[place - 1], first),
            to_midnight,
        )

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


def _hour(ms: int) -> int:
    return ms // HOUR_MS * HOUR_MS


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
