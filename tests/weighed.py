"""The ticks of a history with the time that each stands for: day by day, in plain Python, without shortcuts."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gua_sample.partition_names import DAY_MS
from gua_sample.records import Tick

HOUR_MS = 3_600_000


class Weighed(NamedTuple):
    """Ticks in time order. The time before a day's first tick is a copy of it, at the beginning of that time."""

    ticks: list[Tick]
    intervals: list[float]
    joined: list[bool]
    ends: list[int]
    leads: set[int]  # the places of those copies

    def used_joules(self, place: int, uuid: str) -> float | None:
        """The energy that the card used in the tick's time; beside midnight, at the nearest rate."""
        if place in self.leads:
            return self._at_rate_of(place + 1, place, uuid)
        if self.joined[place]:
            then, now = (self._counter(one, uuid) for one in (place, place + 1))
            return None if then is None or now is None or now < then else now - then
        if self.ends[place] % DAY_MS == 0 and place and self.joined[place - 1] and place - 1 not in self.leads:
            return self._at_rate_of(place - 1, place, uuid)
        return None

    def _at_rate_of(self, near: int, place: int, uuid: str) -> float | None:
        used = self.used_joules(near, uuid) if self.joined[near] else None
        if used is None or self._counter(place, uuid, any_card=True) is None:
            return None
        return used * self.length_ms(place) / self.length_ms(near)

    def length_ms(self, place: int) -> int:
        return self.ends[place] - self.ticks[place].ts_ms

    def _counter(self, place: int, uuid: str, any_card: bool = False) -> int | None:
        found = [card.energy_joules for card in self.ticks[place].cards if card.facts.uuid == uuid]
        return (0 if any_card else found[0]) if found else None


def weigh(ticks: Iterable[Tick]) -> Weighed:
    days: dict[int, list[Tick]] = defaultdict(list)
    for tick in sorted(ticks, key=lambda tick: tick.ts_ms):
        days[tick.ts_ms // DAY_MS].append(tick)
    found = Weighed([], [], [], [], set())
    for number, day in days.items():
        _weigh_day(found, day, number * DAY_MS)
    return found


def _weigh_day(found: Weighed, day: list[Tick], midnight: int) -> None:
    gaps = [later.ts_ms - one.ts_ms for one, later in pairwise(day)]
    for place, tick in enumerate(day):
        interval = _interval(tick, place, gaps)
        reach, own_ms = 1.5 * interval, tick.ts_ms
        if place == 0 and own_ms - midnight <= reach and (begin := max(midnight, tick.boot.time_ms)) < own_ms:
            found.leads.add(len(found.ticks))
            _add(found, tick._replace(ts_ms=begin), interval, True, own_ms)
        if place + 1 == len(day):
            is_near = midnight + DAY_MS - own_ms <= reach
            _add(found, tick, interval, False, midnight + DAY_MS if is_near else own_ms + round(interval))
            continue
        following = day[place + 1]
        joined = following.ts_ms - own_ms <= 2.5 * interval and tick.boot.id == following.boot.id
        end = following.ts_ms if joined else min(following.ts_ms, own_ms + round(interval))
        _add(found, tick, interval, joined, end)


def _add(found: Weighed, tick: Tick, interval: float, joined: bool, end: int) -> None:
    found.ticks.append(tick)
    found.intervals.append(interval)
    found.joined.append(joined)
    found.ends.append(end)


def _interval(tick: Tick, place: int, gaps: list[int]) -> float:
    if tick.interval_ms is not None:
        return tick.interval_ms
    middle = min(place, len(gaps) - 1)  # the day's last tick has no gap after it: use the one before
    around = [gap for gap in gaps[max(0, middle - 10) : middle + 10] if gap <= 2 * HOUR_MS]  # a longer one is an outage
    return median(around) if around else 30_000
