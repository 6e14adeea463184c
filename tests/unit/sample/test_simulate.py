import datetime
import re
from hashlib import blake2b
from itertools import pairwise

import pytest

from gua_sample.containers import LABEL, MOUNT
from gua_sample.errors import UsageError
from gua_sample.identity import resolve
from gua_sample.records import Process, Tick
from gua_sample.simulate import LATEST_MS, Laboratory
from gua_sample.simulate_plan import DAY_MS, DOWN_MS, HOUR_MS, MINUTE_MS, NAMES, WEEK_MS

REBOOT_MS = int(datetime.datetime(2026, 11, 2, 4, tzinfo=datetime.timezone.utc).timestamp() * 1000)  # a Monday
BOOT_MS = REBOOT_MS + DOWN_MS
INTERVAL_MS = 5 * MINUTE_MS


def simulate_week(seed: int, cards: int, interval_ms: int = INTERVAL_MS) -> list[Tick]:
    return list(Laboratory(seed, cards).history(REBOOT_MS, REBOOT_MS + WEEK_MS, interval_ms, latest_ms=0))


@pytest.fixture(scope="module")
def week() -> list[Tick]:
    return simulate_week(seed=0, cards=8)


# The contract of a laboratory


@pytest.mark.parametrize(
    ("seed", "cards", "digest"),
    [
        (0, 8, "f5ed4d73fb84bc256b31e707c2ce65af"),
        (1, 6, "a9a180f64d3124bd2c50efa888b0c691"),
        (2, 12, "179d9fdd2a6bdcfa3240766f9c94065c"),
    ],
)
def test_a_week_is_always_the_same(seed: int, cards: int, digest: str) -> None:
    """Whatever Python it is simulated by, hash seeds and all. Whoever changes it looks at its report again."""
    week = repr(simulate_week(seed, cards, 2 * INTERVAL_MS))
    assert blake2b(week.encode(), digest_size=16).hexdigest() == digest


def test_a_source_tells_the_same_as_history(week: list[Tick]) -> None:
    laboratory = Laboratory(0, 8)
    for tick in week[::-53]:
        source = laboratory.source(tick.ts_ms)
        reading = source.read(None)
        assert source.boot() == tick.boot
        assert (reading.driver_version, reading.cards, reading.cursors) == (*tick[3:4], tick.cards, tick.cursors)
        assert {pid: source.describe(pid, tick.boot) for pid in tick.processes} == tick.processes


def test_every_pid_on_a_card_is_described_and_no_other(week: list[Tick]) -> None:
    for tick in week:
        assert {usage.pid for card in tick.cards for usage in card.usages} == set(tick.processes)
    boot = week[0].boot
    assert Laboratory(0, 8).source(BOOT_MS).describe(7, boot) == Process(7, *[None] * 7)


def test_the_host_is_down_for_four_minutes_and_comes_back_as_another_boot() -> None:
    ticks = list(Laboratory(0, 3).history(REBOOT_MS - HOUR_MS, REBOOT_MS + HOUR_MS, 30_000, latest_ms=0))
    assert [b.ts_ms - a.ts_ms for a, b in pairwise(ticks) if b.ts_ms - a.ts_ms != 30_000] == [DOWN_MS + 30_000]
    before, after = (tick for tick in ticks if tick.ts_ms in (REBOOT_MS - 30_000, BOOT_MS))
    assert before.boot.time_ms == BOOT_MS - WEEK_MS
    assert after.boot.time_ms == BOOT_MS
    assert before.boot.id != after.boot.id
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", after.boot.id)
    assert before.processes
    assert not after.processes
    assert all(card.energy_joules == 0 for card in after.cards)
    assert all((process.start_time_ms or 0) >= BOOT_MS for process in ticks[-1].processes.values())


def test_ticks_come_in_order_from_start_up_to_end() -> None:
    ticks = list(Laboratory(0, 1).history(BOOT_MS, BOOT_MS + 10 * MINUTE_MS, 30_000))
    delays_ms = [tick.ts_ms - due for tick, due in zip(ticks, range(BOOT_MS, ticks[-1].ts_ms, 30_000), strict=True)]
    assert len(ticks) == 20
    assert all(0 <= delay_ms <= LATEST_MS for delay_ms in delays_ms)
    assert len(set(delays_ms)) > 10, "as late as a timer's ticks, each by another time"
    assert {(tick.interval_ms, tick.error) for tick in ticks} == {(30_000, None)}
    assert all(tick.nvml_ms is not None and 4 <= tick.nvml_ms <= 20 for tick in ticks)
    assert len({tick.nvml_ms for tick in ticks}) > 1


@pytest.mark.parametrize("cards", [1, 2, 64])
def test_with_any_number_of_cards_a_pid_is_one_process_within_a_week(cards: int) -> None:
    seen: dict[int, Process] = {}
    for tick in simulate_week(seed=3, cards=cards, interval_ms=HOUR_MS):
        assert [card.facts.gpu_index for card in tick.cards] == list(range(cards))
        assert len({card.facts.uuid for card in tick.cards}) == cards
        for pid, process in tick.processes.items():
            assert seen.setdefault(pid, process) == process
    assert max(seen) < 4194304


@pytest.mark.parametrize("cards", [0, 65])
def test_an_impossible_number_of_cards_is_refused(cards: int) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        Laboratory(0, cards)


# The figures


# The scenes


def test_its_containers_have_names_and_some_a_hint_at_their_owner() -> None:
    laboratory = Laboratory(0)
    ticks = list(laboratory.history(REBOOT_MS, REBOOT_MS + WEEK_MS, 60 * MINUTE_MS))
    known = laboratory.containers(REBOOT_MS, REBOOT_MS + WEEK_MS)
    seen = {resolve(*one[2:6], one.cgroup) for tick in ticks for one in tick.processes.values()}
    identities = {who for who in seen if who.startswith("docker:")}
    found = {who: known.find(who) for who in identities}
    assert len(found) >= 4
    assert None not in found.values()
    assert {one.how for one in found.values() if one} == {LABEL, MOUNT, None}
    assert {one.owner for one in found.values() if one} - {None} <= set(NAMES)
    assert laboratory.containers(REBOOT_MS, REBOOT_MS + WEEK_MS) == known


def test_a_container_is_not_known_before_it_starts() -> None:
    whole, half = (Laboratory(0).containers(REBOOT_MS, REBOOT_MS + days * DAY_MS).containers for days in (6, 2))
    assert 0 < len(half) < len(whole)
    assert all(one.seen_ms < REBOOT_MS + 2 * DAY_MS for one in half.values())
    assert half.items() <= whole.items()
