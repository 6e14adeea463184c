"""A report's figures, computed a tick at a time and without pandas, to compare the report with."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from zoneinfo import ZoneInfo

from gua_report.people.identities import resolve
from gua_sample.records import Card, Tick
from tests.judged import Judged
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS
from tests.weighed import weigh

MOST_ACTIVE_FIRST = ("active", "idle-held", "unknown")


class Naive:
    """The rules of the design, implemented again without shortcuts, for ticks in time order."""

    def __init__(self, ticks: Iterable[Tick]) -> None:
        self.weighed = weigh(ticks)
        self.ticks = self.weighed.ticks
        self.weights = [self.weighed.length_ms(place) for place in range(len(self.ticks))]
        self.judged = Judged(self.ticks, self.weighed.intervals, self.weighed.joined)

    def pieces(self, start_ms: int, end_ms: int, step_ms: int) -> Iterator[tuple[int, int, int]]:
        """Parts of ticks that don't cross a multiple of `step_ms`: place of the tick, beginning and length."""
        for place, (one, weight) in enumerate(zip(self.ticks, self.weights, strict=True)):
            begin, end = max(one.ts_ms, start_ms), min(one.ts_ms + weight, end_ms)
            while begin < end:
                until = min(end, (begin // step_ms + 1) * step_ms)
                yield place, begin, until - begin
                begin = until

    def gpus(self, start_ms: int, end_ms: int) -> dict[tuple[str, str], float]:
        """GPU-hours by uuid and state, without zeros."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for place, _, length in self.pieces(start_ms, end_ms, DAY_MS):
            one = self.ticks[place]
            for card in _usable(one):
                state = self.judged.card_state(place, card)
                sums[card.facts.uuid, state] += length * self._share(card, one) / HOUR_MS
        return {key: value for key, value in sums.items() if value}

    def unpartitioned(self, start_ms: int, end_ms: int) -> dict[str, float]:
        """GPU-hours that no MIG instance covers, by the uuid of the physical card."""
        sums: dict[str, float] = defaultdict(float)
        for _, uuid, ms in self.uncovered(start_ms, end_ms):
            sums[uuid] += ms / HOUR_MS
        return dict(sums)

    def uncovered(self, start_ms: int, end_ms: int) -> Iterator[tuple[int, str, float]]:
        """What no MIG instance covers in each piece of an hour: its beginning, physical card, milliseconds."""
        for place, begin, length in self.pieces(start_ms, end_ms, HOUR_MS):
            one = self.ticks[place]
            for card in one.cards:
                if card.facts.status == "unpartitioned":
                    yield begin, card.facts.uuid, length
            for parent in {card.facts.parent_uuid for card in one.cards if card.facts.parent_uuid is not None}:
                slices = [self._told(card, one)[0] for card in one.cards if card.facts.parent_uuid == parent]
                known = [share for share in slices if share is not None]
                if len(known) == len(slices) and sum(known) < Fraction(1):
                    yield begin, parent, length * float(1 - sum(known))

    def presences(self, start_ms: int, end_ms: int, step_ms: int) -> Iterator[tuple[int, str, str, str, int, float]]:
        """Everyone on each card in each piece of a tick: its beginning, uuid, identity, state, length, share."""
        for place, begin, length in self.pieces(start_ms, end_ms, step_ms):
            one = self.ticks[place]
            for card in _usable(one):
                states: dict[str, str] = {}
                for usage in card.usages:
                    state, counts = self.judged.processes[place][card.facts.uuid, usage.pid]
                    if counts and state != "truly-idle":
                        who = one.processes[usage.pid]
                        name = resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup)
                        states[name] = min(states.get(name, state), state, key=MOST_ACTIVE_FIRST.index)
                known = sum(usage.memory_mib or 0 for usage in card.usages)
                is_held = self.judged.card_state(place, card) == "idle-held"
                if is_held and (card.memory_used_mib or 0) - known > 1024:
                    states["(unattributed)"] = "idle-held"
                for name, state in states.items():
                    yield begin, card.facts.uuid, name, state, length, self._share(card, one)

    def identities(self, start_ms: int, end_ms: int) -> dict[tuple[str, str], float]:
        """GPU-hours by identity and state."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for _, _, name, state, length, share in self.presences(start_ms, end_ms, DAY_MS):
            sums[name, state] += length * share / HOUR_MS
        return dict(sums)

    def energies(self, start_ms: int, end_ms: int) -> Iterator[tuple[int, str, str, float | None, int]]:
        """The energy of each piece of an hour: its beginning, uuid, state, joules, if they are known, and length."""
        for place, begin, length in self.pieces(start_ms, end_ms, HOUR_MS):
            one = self.ticks[place]
            for card in _usable(one):
                used = self.weighed.used_joules(place, card.facts.uuid)
                joules = None if used is None else used * length / self.weights[place]
                yield begin, card.facts.uuid, self.judged.card_state(place, card), joules, length

    def heatmap(self, start_ms: int, end_ms: int, zone: str) -> dict[tuple[int, int], float]:
        """The active share of known time by weekday and hour. Zones change by no less than 15 minutes."""
        known: dict[tuple[int, int], float] = defaultdict(float)
        active: dict[tuple[int, int], float] = defaultdict(float)
        for place, begin, length in self.pieces(start_ms, end_ms, 15 * MINUTE_MS):
            one = self.ticks[place]
            local = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=begin)
            local = local.astimezone(ZoneInfo(zone))
            for card in _usable(one):
                state = self.judged.card_state(place, card)
                key = (local.weekday(), local.hour)
                if state != "unknown":
                    known[key] += length * self._share(card, one)
                if state == "active":
                    active[key] += length * self._share(card, one)
        return {key: active[key] / value for key, value in known.items()}

    def _told(self, card: Card, one: Tick) -> list[Fraction | None]:
        """An instance's share by slices, and its share by memory. A failed one's are of the same day."""
        same_day = (tick for tick in self.ticks if tick.ts_ms // DAY_MS == one.ts_ms // DAY_MS)
        seen = dict.fromkeys(other.facts for tick in same_day for other in tick.cards)
        own = [card.facts]
        if card.facts.status != "ok":
            own += [facts for facts in reversed(seen) if facts.uuid == card.facts.uuid]
        found: list[Fraction | None] = []
        for part, whole in (
            ("compute_slices", "most_compute_slices"),
            ("memory_total_mib", "parent_memory_mib"),
        ):
            known = [(getattr(facts, part), getattr(facts, whole)) for facts in own]
            found.append(next((Fraction(one, other) for one, other in known if one and other), None))
        return found

    def _share(self, card: Card, one: Tick) -> float:
        """The share of a card in a GPU: 1, or of a MIG instance by slices, else by memory, else what others leave."""
        if card.facts.parent_uuid is None:
            return 1.0
        family = [self._told(other, one) for other in one.cards if other.facts.parent_uuid == card.facts.parent_uuid]
        slices, memory = self._told(card, one)
        if slices or memory:
            return float(slices or memory or 0)
        shares = [other[0] or other[1] for other in family]
        return float(max(Fraction(0), 1 - sum(share or 0 for share in shares)) / shares.count(None))

    def gaps(self, start_ms: int, end_ms: int) -> dict[str, float]:
        """Seconds without card time by kind, from the first tick on."""
        sums: dict[str, float] = defaultdict(float)

        def add(kind: str, begin: float, until: float) -> None:
            begin, until = max(begin, start_ms), min(until, end_ms)
            if begin < until:
                sums[kind] += (until - begin) / 1000

        for position, (one, weight) in enumerate(zip(self.ticks, self.weights, strict=True)):
            following = self.ticks[position + 1] if position + 1 < len(self.ticks) else None
            next_ms = following.ts_ms if following else float("inf")
            rebooted = following is not None and following.boot.id != one.boot.id
            known_until: float = one.ts_ms + weight
            after = "host down" if rebooted else "sampler not running"
            if one.error is not None:
                kind = "sampler killed (timeout)" if one.error == "timeout" else "driver error"
                run_end = one.ts_ms + (one.nvml_ms or 0)
                if run_end > known_until:
                    waits = next_ms - run_end <= 2.5 * self.weighed.intervals[position] and not rebooted
                    midnight = (one.ts_ms // DAY_MS + 1) * DAY_MS
                    known_until = min(midnight, next_ms if waits else min(run_end, next_ms))
                add(kind, one.ts_ms, known_until)
                # A day ends at midnight, what has failed then need not: it goes on, as long as a run may hang.
                if known_until % DAY_MS == 0 and next_ms - known_until <= 300_000:
                    after = kind
            add(after, known_until, next_ms)
        return dict(sums)

    def observed_ms(self, start_ms: int, end_ms: int) -> int:
        return sum(length for place, _, length in self.pieces(start_ms, end_ms, DAY_MS) if self.ticks[place].cards)


def _usable(one: Tick) -> list[Card]:
    """The cards that are in one of the four states."""
    return [card for card in one.cards if card.facts.status != "unpartitioned"]
