"""The sums of each group: what counting tick by tick gives, from ticks and from rollups alike."""

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.people.groups import NO_GROUP
from gua_report.summary.groups import GROUP_COLUMNS
from gua_sample.errors import NothingToReport
from gua_sample.records import Tick
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Job,
    busy,
    free,
    held,
    hour,
    report_of,
    row,
    tick,
    write,
    written,
)
from tests.naive import Naive
from tests.rolling import assert_same, lab_days, roll_up_days

GROUPS = {"one": ("user0", "user1"), "two": ("user1", "mig", "gdm"), "nobody": ("zoe",)}
PRICED = CONFIG._replace(groups=GROUPS, price_per_gpu_hour=2.0, price_per_kwh=0.5)
HOURS = ("active", "idle-held", "unknown")
NAN = float("nan")


def with_energy(ticks: list[Tick], seed: int) -> list[Tick]:
    """The ticks with counters of all cards, which are missing at times and start again at others."""
    random = Random(seed)
    counters: dict[str, int] = defaultdict(int)
    made = []
    for one in ticks:
        cards = []
        for card in one.cards:
            counters[card.facts.uuid] = counters[card.facts.uuid] * (random.random() > 0.1) + random.randint(0, 90_000)
            told = random.random() > 0.3
            cards.append(card._replace(energy_joules=counters[card.facts.uuid] if told else None))
        made.append(one._replace(cards=cards))
    return made


def recount(ticks: list[Tick], start: int, end: int) -> dict[str, list[float]]:
    """The figures of each group, in the order of GROUP_COLUMNS from `gpu_hours` on, a tick at a time."""
    naive = Naive(ticks)
    then: dict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    always: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for begin, uuid, state, told, length in naive.energies(start, end):
        for sums in () if told is None else (then[begin // HOUR_MS, uuid, state], always[uuid, state]):
            sums[0] += told or 0.0
            sums[1] += length
    hours: dict[tuple[str, str], float] = defaultdict(float)
    energy: dict[tuple[str, str], float] = defaultdict(float)
    for begin, uuid, who, state, length, share in naive.presences(start, end, HOUR_MS):
        joules, known = then[begin // HOUR_MS, uuid, state]
        if not known:
            joules, known = always[uuid, state]
        for group in [name for name, members in GROUPS.items() if who in members] or [NO_GROUP]:
            hours[group, state] += length * share / HOUR_MS
            if known:
                energy[group, state] += joules / known * length / 3.6e6
    found = {}
    for group in [*GROUPS, NO_GROUP]:
        active, idle, unknown = (hours[group, state] for state in HOURS)
        known_kwh = [energy[group, state] for state in HOURS if (group, state) in energy]
        kwh = sum(known_kwh) if known_kwh or not active + idle + unknown else NAN
        idle_kwh = energy.get((group, "idle-held"), NAN if idle else 0.0)
        found[group] = [
            *(active + idle + unknown, active, idle, unknown, idle / (active + idle) if active + idle else NAN),
            *(kwh, idle * 2.0 + idle_kwh * 0.5),
        ]
    if not found[NO_GROUP][0]:
        del found[NO_GROUP]
    return found


@settings(many, max_examples=10)
@given(histories(), part, part, part, st.integers(0, 1000))
def test_the_sums_of_groups_are_what_counting_tick_by_tick_gives(
    moments: list[Moment], midnight: float, one: float, two: float, seed: int
) -> None:
    ticks = with_energy(ticks_of(moments, midnight), seed)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    with written(ticks) as folder:
        try:
            from_ticks = report_of(folder, start, end + 1, config=PRICED)
        except NothingToReport:
            return
        roll_up_days(folder)
        from_rollups = report_of(folder, start, end + 1, config=PRICED)
    expected = recount(ticks, start, end + 1)
    # Joules are stored as whole numbers, and those of a moment may have to stand for an hour.
    for report, exact in ((from_ticks, 1e-9), (from_rollups, 2e-4)):
        assert report.groups is not None
        found = report.groups.set_index("group")[GROUP_COLUMNS[2:]].T.to_dict("list")
        assert found.keys() == expected.keys()
        for group, values in expected.items():
            assert found[group] == pytest.approx(values, rel=1e-6 if exact < 1e-6 else 1e-3, abs=exact, nan_ok=True)


def test_groups_are_the_same_from_ticks_and_from_rollups(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    config = CONFIG._replace(groups={"a": ("ivo", "emil"), "b": ("emil", "jan")}, price_per_kwh=0.3)
    window = start + 17 * MINUTE_MS, end - 31 * MINUTE_MS
    from_ticks = report_of(tmp_path, *window, config=config)
    roll_up_days(str(tmp_path))
    from_rollups = report_of(tmp_path, *window, config=config)
    assert from_rollups.from_rollups_seconds > from_ticks.from_rollups_seconds == 0
    assert from_ticks.groups is not None
    assert (from_ticks.groups["energy_kwh"] > 0).all()
    assert_same(from_ticks, from_rollups)


def group_of(folder: Path, ticks: list[Tick], name: str, **groups: tuple[str, ...]) -> dict[str, object]:
    write(folder, ticks)
    config = CONFIG._replace(groups=groups, price_per_gpu_hour=2.0, price_per_kwh=0.5)
    report = report_of(folder, MONDAY_MS, MONDAY_MS + 4 * HOUR_MS, config=config)
    assert report.groups is not None
    return row(report.groups, "group", name)


def test_who_is_in_two_groups_counts_in_both_and_who_is_in_none_in_the_last_row(tmp_path: Path) -> None:
    other = Job(300, "docker", cgroup=f"/docker/3f2a9c81d0b7{'0' * 52}", uid=0)
    write(tmp_path, hour(held(ALICE), busy(BOB, index=1), held(other, index=2)))
    groups = {"big": ("alice", "bob"), "small": ("alice",), "none": ("zoe",)}
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=CONFIG._replace(groups=groups))
    assert report.groups is not None
    figures = report.groups[["group", "people", "gpu_hours", "idle_held_gpu_hours"]]
    assert [tuple(one) for one in figures.itertuples(index=False)] == [
        ("big", 2, pytest.approx(2), pytest.approx(1)),
        ("small", 1, pytest.approx(1), pytest.approx(1)),
        ("none", 0, 0, 0),
        (NO_GROUP, 0, pytest.approx(1), pytest.approx(1)),  # a container is no person
    ]
    assert report.memberships is not None
    assert report.memberships.of == {"alice": ("big", "small"), "bob": ("big",)}


def test_what_is_listed_counts_as_one_of_the_people_though_it_is_a_container(tmp_path: Path) -> None:
    other = Job(300, "docker", cgroup=f"/docker/3f2a9c81d0b7{'0' * 52}", uid=0)
    assert group_of(tmp_path, hour(held(other)), "box", box=("docker:3f2a9c81d0b7",))["people"] == 1


def test_energy_is_by_the_power_of_the_card_in_the_state_that_the_person_was_in(tmp_path: Path) -> None:
    joules, ticks = 0, []
    for minute in range(120):  # an hour at work, at 300 W, then an hour idle, at 60 W
        ticks.append(tick(MONDAY_MS + minute * MINUTE_MS, (busy if minute < 60 else held)(ALICE, energy=joules)))
        joules += 60 * (300 if minute < 60 else 60)
    found = group_of(tmp_path, ticks, "us", us=("alice",))
    assert found["energy_kwh"] == pytest.approx(0.36, rel=0.02)
    assert found["idle_held_cost"] == pytest.approx(2.0 + 0.5 * 0.06, rel=0.02)


def test_without_a_reading_in_the_hour_the_mean_of_the_window_stands_in(tmp_path: Path) -> None:
    ticks = [tick(MONDAY_MS + minute * MINUTE_MS, held(ALICE, energy=minute * 6000)) for minute in range(60)]
    ticks += [tick(MONDAY_MS + minute * MINUTE_MS, held(ALICE)) for minute in range(60, 180)]
    found = group_of(tmp_path, ticks, "us", us=("alice",))
    assert (found["gpu_hours"], found["energy_kwh"]) == (pytest.approx(3), pytest.approx(0.3))


def test_where_no_reading_tells_energy_and_cost_are_unknown_not_zero(tmp_path: Path) -> None:
    ticks = [tick(MONDAY_MS + minute * MINUTE_MS, held(ALICE), free(1, energy=minute * 6000)) for minute in range(60)]
    found = group_of(tmp_path, ticks, "us", us=("alice",))
    assert found["energy_kwh"] != found["energy_kwh"]
    assert found["idle_held_cost"] != found["idle_held_cost"]


def test_of_a_group_that_is_not_known_nothing_is_told(tmp_path: Path) -> None:
    write(tmp_path, hour(held(ALICE), busy(BOB, index=1)))
    config = CONFIG._replace(groups={"odd": ("alice", "@no-such-group"), "fine": ("bob",)})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.groups is not None
    assert report.groups["group"].tolist() == ["fine", "odd"]
    assert report.groups.set_index("group").loc["odd"].isna().all()


def test_a_window_without_people_has_rows_of_zeros(tmp_path: Path) -> None:
    found = group_of(tmp_path, hour(free()), "us", us=("alice",))
    assert (found["people"], found["gpu_hours"], found["energy_kwh"], found["idle_held_cost"]) == (0, 0, 0, 0)
