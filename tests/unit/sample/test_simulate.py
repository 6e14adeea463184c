from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from gua_sample.containers import LABEL, MOUNT
from gua_sample.errors import UsageError
from gua_sample.identity import resolve
from gua_sample.policy import ACTIVE, DEFAULT, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN, card_state
from gua_sample.records import Card, Process, Tick, Usage
from gua_sample.simulate import LATEST_MS, Laboratory
from gua_sample.simulate_plan import A100, DAY_MS, DOWN_MS, HOUR_MS, MINUTE_MS, NAMES, WEEK_MS
from tests.repository import ROOT

REBOOT_MS = int(datetime.datetime(2026, 11, 2, 4, tzinfo=datetime.timezone.utc).timestamp() * 1000)  # a Monday
BOOT_MS = REBOOT_MS + DOWN_MS
INTERVAL_MS = 5 * MINUTE_MS


def simulate_week(seed: int, cards: int, interval_ms: int = INTERVAL_MS) -> list[Tick]:
    return list(Laboratory(seed, cards).history(REBOOT_MS, REBOOT_MS + WEEK_MS, interval_ms, latest_ms=0))


@pytest.fixture(scope="module")
def week() -> list[Tick]:
    return simulate_week(seed=0, cards=8)


@pytest.fixture(scope="module")
def small_week() -> list[Tick]:
    """Six cards are the fewest that have every scene."""
    return simulate_week(seed=0, cards=6)


def time_of_week(ts_ms: int) -> tuple[int, float]:
    moment = datetime.datetime.fromtimestamp(ts_ms / 1000, datetime.timezone.utc)
    return moment.weekday(), moment.hour + moment.minute / 60


def usages_of(ticks: list[Tick]) -> list[tuple[Tick, Card, Usage, Process]]:
    return [
        (tick, card, usage, tick.processes[usage.pid]) for tick in ticks for card in tick.cards for usage in card.usages
    ]


def unattributed_mib(card: Card) -> int:
    return (card.memory_used_mib or 0) - sum(usage.memory_mib or 0 for usage in card.usages)


# The contract of a laboratory


def test_the_same_seed_gives_the_same_week(week: list[Tick]) -> None:
    assert simulate_week(seed=0, cards=8) == week


def test_another_seed_gives_another_week(week: list[Tick]) -> None:
    other = simulate_week(seed=1, cards=8)
    assert {card.facts.uuid for card in other[0].cards}.isdisjoint(card.facts.uuid for card in week[0].cards)
    assert other[0].boot.id != week[0].boot.id
    assert [len(tick.processes) for tick in other] != [len(tick.processes) for tick in week]


def test_the_order_of_asking_does_not_matter(week: list[Tick]) -> None:
    laboratory = Laboratory(0, 8)
    for elsewhere in range(6, 0, -1):
        laboratory.source(REBOOT_MS + elsewhere * WEEK_MS).read(None)
    for tick in week[::-97]:
        assert laboratory.source(tick.ts_ms).read(None).cards == tick.cards


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_week_does_not_depend_on_hashing_or_on_the_process(week: list[Tick], hash_seed: str) -> None:
    program = (
        "from gua_sample.simulate import Laboratory\n"
        f"print(next(Laboratory(0, 8).history({week[500].ts_ms}, {week[500].ts_ms + 1}, {INTERVAL_MS}, 0)))"
    )
    root = str(ROOT.resolve())
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == repr(week[500])


def test_a_source_tells_the_same_as_history(week: list[Tick]) -> None:
    laboratory = Laboratory(0, 8)
    for tick in week[::53]:
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


def test_a_pid_is_one_process_within_a_week() -> None:
    seen: dict[int, Process] = {}
    for tick in simulate_week(seed=3, cards=64, interval_ms=HOUR_MS):
        for pid, process in tick.processes.items():
            assert seen.setdefault(pid, process) == process
    assert max(seen) < 4194304


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


def test_while_the_host_is_down_a_source_answers_as_it_will_come_up() -> None:
    laboratory = Laboratory(0, 8)
    down, up = laboratory.source(REBOOT_MS + MINUTE_MS), laboratory.source(BOOT_MS)
    assert down.boot() == up.boot()
    assert down.read(None) == up.read(None)


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
def test_any_number_of_cards_works(cards: int) -> None:
    for tick in simulate_week(seed=5, cards=cards, interval_ms=HOUR_MS):
        assert [card.facts.gpu_index for card in tick.cards] == list(range(cards))
        assert len({card.facts.uuid for card in tick.cards}) == cards


@pytest.mark.parametrize("cards", [0, 65])
def test_an_impossible_number_of_cards_is_refused(cards: int) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        Laboratory(0, cards)


def test_moments_before_1970_work_too() -> None:
    assert len(Laboratory(0, 2).source(-3 * WEEK_MS).read(None).cards) == 2


# The figures


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_week_is_a_healthy_mixture_of_states(seed: int) -> None:
    counts = Counter(card_state(card) for tick in simulate_week(seed, 8, 2 * INTERVAL_MS) for card in tick.cards)
    share = {state: counts[state] / counts.total() for state in STATES}
    assert 0.35 < share[ACTIVE] < 0.65
    assert 0.15 < share[IDLE_HELD] < 0.35
    assert share[TRULY_IDLE] > 0.05
    assert 0 < share[UNKNOWN] < 0.03


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twelve_cards_have_about_1_2_processes_each(seed: int) -> None:
    cards = [card for tick in simulate_week(seed, 12, 2 * INTERVAL_MS) for card in tick.cards]
    assert 1.0 < sum(len(card.usages) for card in cards) / len(cards) < 1.4


def test_energy_only_grows_and_follows_power(week: list[Tick]) -> None:
    for index in range(8):
        cards = [tick.cards[index] for tick in week]
        counter = [card.energy_joules for card in cards if card.energy_joules is not None]
        assert counter == sorted(counter)
        integral = sum((card.power_watts or 0.0) * INTERVAL_MS / 1000 for card in cards)
        assert counter[-1] - counter[0] == pytest.approx(integral, rel=0.1)


def test_power_and_temperature_follow_utilization(week: list[Tick]) -> None:
    cards = [card for tick in week for card in tick.cards if card.facts.name == A100[0]]
    idle = [card for card in cards if card.utilization_percent == 0]
    busy = [card for card in cards if (card.utilization_percent or 0) > 75]
    assert max(card.power_watts or 0 for card in idle) < 75 < 250 < min(card.power_watts or 0 for card in busy)
    assert max(card.temperature_celsius or 0 for card in idle) < min(card.temperature_celsius or 0 for card in busy)


def test_busy_values_change_with_every_tick() -> None:
    start_ms = REBOOT_MS + 2 * DAY_MS
    ticks = list(Laboratory(0, 8).history(start_ms, start_ms + HOUR_MS, 30_000))
    same = Counter(
        before.utilization_percent == after.utilization_percent
        for first, second in pairwise(ticks)
        for before, after in zip(first.cards, second.cards, strict=True)
        if before.utilization_percent and after.utilization_percent
    )
    assert same[True] < 0.02 * same[False]


def test_utilization_and_its_source_are_plausible(week: list[Tick]) -> None:
    for tick in week:
        for card in tick.cards:
            if card.utilization_percent is not None:
                assert 0 <= card.utilization_percent <= 100
                assert card.utilization_source == ("samples" if card.utilization_percent else "rate")
                busy = sum(usage.sm_percent or 0 for usage in card.usages)
                assert busy == pytest.approx(card.utilization_percent, abs=2)


def test_memory_in_use_is_the_processes_and_a_little_more(week: list[Tick]) -> None:
    for tick in week:
        for card in tick.cards:
            if card.memory_used_mib is not None:
                assert 0 < unattributed_mib(card) < (300 if card.facts.gpu_index != 3 else 300 + 6144)
                assert card.facts.memory_total_mib is not None
                assert card.facts.memory_reserved_mib is not None
                assert card.memory_used_mib <= card.facts.memory_total_mib - card.facts.memory_reserved_mib


def test_every_card_leaves_a_cursor_for_the_next_tick(week: list[Tick]) -> None:
    for tick in week[::50]:
        assert [cursor.uuid for cursor in tick.cursors] == [card.facts.uuid for card in tick.cards]
        assert {cursor.samples_cursor for cursor in tick.cursors} == {tick.ts_ms * 1000}
        assert {cursor.processes_cursor for cursor in tick.cursors} == {tick.ts_ms * 1000}
        assert {cursor.uptime_ms for cursor in tick.cursors} == {tick.ts_ms - BOOT_MS}


# The scenes


def test_training_runs_last_from_hours_to_days(small_week: list[Tick]) -> None:
    ticks_of = Counter(
        process.pid
        for _, card, usage, process in usages_of(small_week)
        if process.command in ("python", "python3", "torchrun") and process.login_uid and usage.sm_percent
        if card.facts.gpu_index != 5  # the same processes as on 4
    )
    hours = [ticks * INTERVAL_MS / HOUR_MS for ticks in ticks_of.values()]
    assert len(hours) >= 4
    assert max(hours) > 24
    assert max(hours) <= 72


def test_a_job_of_the_queue_is_on_two_neighbouring_cards_at_once(small_week: list[Tick]) -> None:
    shared = [
        (tick.processes[pid].cgroup or "")
        for tick in small_week
        for pid in {usage.pid for usage in tick.cards[4].usages} & {usage.pid for usage in tick.cards[5].usages}
    ]
    assert shared
    assert all(re.fullmatch(r"/system.slice/slurmstepd.scope/job_\d+/step_0/user/task_0", cgroup) for cgroup in shared)


def test_notebooks_are_forgotten_over_the_weekend(small_week: list[Tick]) -> None:
    sunday = [row for row in usages_of(small_week) if time_of_week(row[0].ts_ms)[0] == 6]
    notebooks = [row for row in sunday if row[3].command in ("jupyter-noteboo", "ipykernel_launc")]
    assert notebooks
    for _, _, usage, process in notebooks:
        assert usage.sm_percent == 0
        assert 4000 <= (usage.memory_mib or 0) <= 30_000
        assert time_of_week(process.start_time_ms or 0)[0] == 4


def test_notebooks_are_used_and_then_held_until_the_evening_or_the_next_day(small_week: list[Tick]) -> None:
    life: dict[int, list[tuple[Tick, Usage]]] = {}
    for tick, _, usage, process in usages_of(small_week):
        if process.command in ("jupyter-noteboo", "ipykernel_launc"):
            life.setdefault(usage.pid, []).append((tick, usage))
    used = Counter(bool(usage.sm_percent) for rows in life.values() for _, usage in rows)
    assert 0 < used[True] < 0.2 * used[False]
    last_hours = [time_of_week(rows[-1][0].ts_ms) for rows in life.values()]
    assert any(hour > 18 for day, hour in last_hours if day < 4)
    assert any(7 < hour < 11 for day, hour in last_hours if day <= 4)


def test_ollama_answers_in_bursts_and_more_in_office_hours(small_week: list[Tick]) -> None:
    busy: dict[bool, list[bool]] = {True: [], False: []}
    for tick in small_week[1:]:
        (usage,) = (usage for usage in tick.cards[0].usages if tick.processes[usage.pid].command == "ollama")
        assert tick.processes[usage.pid][2:] == (997, None, "ollama", None, "ollama", "/system.slice/ollama.service")
        day, hour = time_of_week(tick.ts_ms)
        busy[day < 5 and 8 <= hour < 19].append(bool(usage.sm_percent))
    office, night = (sum(busy[key]) / len(busy[key]) for key in (True, False))
    assert 0 < 1.5 * night < office < 0.6


def test_xorg_is_too_small_to_hold_its_card(small_week: list[Tick]) -> None:
    rows = [row for row in usages_of(small_week) if row[3].command == "Xorg"]
    assert rows
    for _, card, usage, process in rows:
        assert (card.facts.gpu_index, usage.type, process.uid, process.login_uid) == (0, "graphics", 0, None)
        assert (usage.memory_mib or 0) < DEFAULT.process_memory_mib


@pytest.mark.parametrize("seed", range(6))
def test_on_card_1_an_idle_notebook_sits_beside_somebody_elses_training(seed: int) -> None:
    found = 0
    for tick in simulate_week(seed, cards=2):
        busy = {tick.processes[usage.pid].login_user for usage in tick.cards[1].usages if usage.sm_percent}
        idle = {tick.processes[usage.pid].login_user for usage in tick.cards[1].usages if usage.sm_percent == 0}
        assert busy.isdisjoint(idle)
        found += bool(busy and idle)
    assert found > 24  # two hours


def test_a_container_belongs_to_root_and_to_nobodys_login(small_week: list[Tick]) -> None:
    rows = [row for row in usages_of(small_week) if "docker" in (row[3].cgroup or "")]
    assert rows
    for _, _, _, process in rows:
        assert (process.uid, process.user, process.login_uid, process.login_user) == (0, "root", None, None)
        assert re.fullmatch(r"/system\.slice/docker-[0-9a-f]{64}\.scope", process.cgroup or "")


def test_a_zombie_holds_memory_for_some_hours(small_week: list[Tick]) -> None:
    ticks = [tick for tick in small_week if unattributed_mib(tick.cards[3]) > DEFAULT.unattributed_memory_mib]
    assert 2 <= len(ticks) * INTERVAL_MS / HOUR_MS <= 10


def test_the_last_card_is_lost_for_an_hour_and_keeps_its_uuid(small_week: list[Tick]) -> None:
    uuid = small_week[0].cards[-1].facts.uuid
    lost = [tick for tick in small_week if tick.cards[-1].facts.status == "gpu_is_lost"]
    assert len(lost) == HOUR_MS // INTERVAL_MS
    assert lost[-1].ts_ms - lost[0].ts_ms == HOUR_MS - INTERVAL_MS
    assert time_of_week(lost[0].ts_ms)[0] == 2
    for tick in lost:
        assert tick.cards[-1].facts.uuid == tick.cursors[-1].uuid == uuid
        assert tick.cards[-1][1:] == (None, None, None, None, None, None, [])
    assert all(card.facts.status == "ok" for tick in small_week for card in tick.cards[:-1])


def test_work_is_mostly_started_in_office_hours(week: list[Tick]) -> None:
    people = {process.pid: process for _, _, _, process in usages_of(week) if process.login_user}
    starts = [time_of_week(process.start_time_ms or 0) for process in people.values()]
    in_office = sum(day < 5 and 8 <= hour < 19 for day, hour in starts)
    assert 0.75 < in_office / len(starts) < 1.0


def test_people_have_logins_and_short_command_names(week: list[Tick]) -> None:
    processes = [row[3] for row in usages_of(week)]
    people = {process.user: process for process in processes if process.login_uid is not None}
    assert 8 <= len(people) <= len(NAMES)
    for process in people.values():
        assert (process.uid, process.user) == (process.login_uid, process.login_user)
        assert process.uid is not None
        assert process.uid >= 1000
    assert all(len(process.command or "") <= 15 for process in processes)
    assert {process.user for process in processes if process.login_uid is None} == {"root", "ollama"}


def test_memory_of_training_wobbles_now_and_then(week: list[Tick]) -> None:
    sizes: dict[int, Counter[int | None]] = {}
    for _, _, usage, _ in usages_of(week):
        if usage.sm_percent:
            sizes.setdefault(usage.pid, Counter())[usage.memory_mib] += 1
    wobbly = [counter for counter in sizes.values() if len(counter) > 1 and counter.total() > 200]
    assert wobbly
    assert all(counter.most_common(1)[0][1] > 0.6 * counter.total() for counter in wobbly)


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
