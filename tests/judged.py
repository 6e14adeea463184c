"""The states of cards and processes from each tick to the next, judged in plain Python, without the policy's code."""

from collections.abc import Sequence
from functools import cache

from gua_report.people import identities
from gua_sample.records import Card, Tick, Usage

Key = tuple[str, int]  # a card's uuid, and a pid
resolve = cache(identities.resolve)
THRESHOLD_PERCENT, HELD_MIB, UNATTRIBUTED_MIB, LONGEST_BRIEF_MS = 10, 100, 1024, 60_000


class Judged:
    """What each of the ticks, in time order, says of the time up to the next one.

    `joined` tells whether there is no hole between a tick and the next one.
    """

    def __init__(self, ticks: Sequence[Tick], intervals: Sequence[float], joined: Sequence[bool]) -> None:
        self._ticks, self._intervals, self._joined = ticks, intervals, joined
        self._cards = [{card.facts.uuid: card for card in tick.cards} for tick in ticks]
        self._dark = [{uuid for uuid, card in cards.items() if _is_dark(card)} for cards in self._cards]
        self.cards = [
            {uuid: self._card_state(place, card) for uuid, card in cards.items()}
            for place, cards in enumerate(self._cards)
        ]
        self.processes = [self._process_states(place) for place in range(len(ticks))]

    def card_state(self, place: int, card: Card) -> str:
        return self.cards[place][card.facts.uuid]

    def _beside(self, place: int, step: int, card: Card) -> Card | None:
        """The card at the tick before or after, if both can be judged together."""
        other, uuid = place + step, card.facts.uuid
        if not 0 <= other < len(self._ticks) or not self._joined[min(place, other)] or uuid in self._dark[place]:
            return None
        return None if uuid in self._dark[other] else self._cards[other].get(uuid)

    def _is_passing(self, place: int, card: Card, usage: Usage) -> bool:
        before, after = self._beside(place, -1, card), self._beside(place, 1, card)
        if before is None or after is None or self._intervals[place] > LONGEST_BRIEF_MS:
            return False
        return not any(one.pid == usage.pid for other in (before, after) for one in other.usages)

    def _card_state(self, place: int, card: Card) -> str:
        after = self._beside(place, 1, card)
        first, second = card.utilization_percent, (after or card).utilization_percent
        known = [percent for percent in (first, second) if percent is not None]
        held, held_later = _is_held(card), _is_held(after or card)
        reached = [percent >= THRESHOLD_PERCENT for percent in known]
        if held and held_later:
            works = bool(known) and sum(known) / len(known) >= THRESHOLD_PERCENT
            before = self._beside(place, -1, card)
            if before is not None and after is not None:
                works = works and not self._is_over(place, [before.utilization_percent, first, second])
        elif held:
            works = any(reached)
        else:
            works = not held_later and reached == [True, True]
        if works:
            return "active"
        if _is_dark(card) or (held and first is None):
            return "unknown"
        return "idle-held" if held and self._holds_on(place, card) else "truly-idle"

    def _is_over(self, place: int, percents: list[float | None]) -> bool:
        """Whether work had ended before the second of three readings. Every 20 s or less, they tell all of the time."""
        if None in percents or self._intervals[place] <= 20_000:
            return False
        before, first, second = (percent or 0 for percent in percents)
        return second < 1 and first < 0.9 * before

    def _holds_on(self, place: int, card: Card) -> bool:
        holders = _holders(card)
        passing = [usage for usage in holders if self._is_passing(place, card, usage)]
        return _is_unattributed(card) or not passing or len(passing) < len(holders)

    def _process_states(self, place: int) -> dict[Key, tuple[str, bool]]:
        """The state of each process on each card, and whether it counts."""
        found = {}
        for uuid, card in self._cards[place].items():
            for usage in card.usages:
                lasts = usage in _holders(card) and not self._is_passing(place, card, usage)
                state = self._process_state(place, card, usage, lasts)
                found[uuid, usage.pid] = state, lasts or (usage.sm_percent or 0) > 0
        return found

    def _process_state(self, place: int, card: Card, usage: Usage, lasts: bool) -> str:
        on = self.cards[place][card.facts.uuid]
        known = self._percents(place, card, usage)
        if self._company(place, card) == {self._who(place, usage)}:
            if on == "active" or (lasts and on in ("unknown", "idle-held")):
                return on
            return "truly-idle"
        works = self._is_at_work(place, card, usage)
        if on == "active" and not self._has_worker(place, card):
            works = works or any(percent > 0 for percent in known)
        if works and not _is_dark(card):
            return "active"
        if not lasts:
            return "truly-idle"
        if on in ("idle-held", "truly-idle"):
            return on
        return "unknown" if _is_dark(card) or not known else "idle-held"

    def _percents(self, place: int, card: Card, usage: Usage) -> list[int]:
        """The known readings of a process at both ends."""
        percents = usage.sm_percent, self._reading(place, 1, card, usage)
        return [percent for percent in percents if percent is not None]

    def _is_at_work(self, place: int, card: Card, usage: Usage) -> bool:
        known = self._percents(place, card, usage)
        beside = [self._reading(place, step, card, usage) for step in (-1, 1)]
        if self._is_over(place, [beside[0], usage.sm_percent, beside[1]]):
            return False
        return bool(known) and sum(known) / len(known) >= THRESHOLD_PERCENT

    def _reading(self, place: int, step: int, card: Card, usage: Usage) -> int | None:
        """The reading of the same process at the tick before or after, if it is there."""
        other = self._beside(place, step, card)
        start = self._start(place, usage.pid)
        for one in other.usages if other else ():
            if one.pid == usage.pid and self._start(place + step, one.pid) == start:
                return one.sm_percent
        return None

    def _has_worker(self, place: int, card: Card) -> bool:
        for usage in card.usages:
            if self._is_at_work(place, card, usage):
                return True
            if (
                not self._percents(place, card, usage)
                and usage in _holders(card)
                and not self._is_passing(place, card, usage)
            ):
                return True
        return False

    def _company(self, place: int, card: Card) -> set[str]:
        here = [usage for usage in _holders(card) if not self._is_passing(place, card, usage)]
        names = {self._who(place, usage) for usage in here or card.usages}
        after = self._beside(place, 1, card)
        return names if after is None else names | {self._who(place + 1, usage) for usage in _holders(after)}

    def _start(self, place: int, pid: int) -> int | None:
        process = self._ticks[place].processes.get(pid)
        return process.start_time_ms if process else None

    def _who(self, place: int, usage: Usage) -> str:
        one = self._ticks[place].processes.get(usage.pid)
        return "" if one is None else resolve(one.uid, one.login_uid, one.user, one.login_user, one.cgroup)


def _process_mib(card: Card) -> int | None:
    memories = [usage.memory_mib for usage in card.usages]
    return None if None in memories else sum(memory or 0 for memory in memories)


def _is_dark(card: Card) -> bool:
    return card.facts.status != "ok" or (_process_mib(card) is None and card.memory_used_mib is None)


def _is_unattributed(card: Card) -> bool:
    known = _process_mib(card)
    return known is not None and card.memory_used_mib is not None and card.memory_used_mib - known > UNATTRIBUTED_MIB


def _is_held(card: Card) -> bool:
    known = _process_mib(card)
    if known is None:
        return (card.memory_used_mib or 0) > HELD_MIB
    return known > HELD_MIB or _is_unattributed(card)


def _holders(card: Card) -> list[Usage]:
    large = [
        usage
        for usage in card.usages
        if (usage.memory_mib is None and usage.type != "graphics") or (usage.memory_mib or 0) > HELD_MIB
    ]
    if large:
        return large
    return list(card.usages) if (_process_mib(card) or 0) > HELD_MIB else []
