"""The hours of §8: what was reserved, used and left idle, counted again millisecond by millisecond."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.config import Reservations
from gua_report.render import Options, renderer
from gua_report.reservations.reservation import Reservation
from gua_report.summary import reserved_hours
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS, SUMS
from gua_report.upkeep.nightly import Upkeep
from gua_sample.policy import ACTIVE, IDLE_HELD
from gua_sample.records import Card, Tick
from tests.bookings import configured, with_jobs
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    lost,
    report_of,
    series,
    tick,
    unpartitioned,
    write,
    written,
)
from tests.naive import Naive

ALICE, BOB = Job(100, "alice"), Job(200, "bob", start_time_ms=6000)


def iso(ts_ms: int) -> str:
    return str(ts_ms)  # 13 digits: epoch milliseconds


def hours_of(report: Report) -> dict[tuple[str, str], list[float]]:
    """The hours of each person and card, in the order of SUMS without the last: not used is idle without held."""
    found = all_hours_of(report)
    assert all(hours[6] == pytest.approx(hours[2] - hours[3], abs=1e-12) for hours in found.values())
    return {key: hours[:6] for key, hours in found.items()}


def all_hours_of(report: Report) -> dict[tuple[str, str], list[float]]:
    assert report.reservations is not None
    return {(row[0], row[1]): list(row[4:]) for row in report.reservations.itertuples(index=False)}


def test_hours_by_hand(tmp_path: Path) -> None:
    start = MONDAY_MS
    ticks = series(start, 60, busy(ALICE), free(1))  # one hour at work,
    ticks += series(start + HOUR_MS, 30, held(ALICE), busy(BOB, index=1))  # half an hour without,
    ticks += series(start + HOUR_MS + 30 * MINUTE_MS, 30, lost(0), free(1))  # half an hour nobody knows
    write(tmp_path, ticks)
    config = configured(
        tmp_path,
        f"0,alice,{iso(start + 15 * MINUTE_MS + 1)},{iso(start + 3 * HOUR_MS)},",  # the last hour nobody looked
        f"GPU-1,alice,{iso(start)},{iso(start + 90 * MINUTE_MS)},",
        f"1,bob,{iso(start + 80 * MINUTE_MS)},,",
    )
    report = report_of(tmp_path, start, start + 3 * HOUR_MS, config=config)
    ms = 1 / HOUR_MS
    found = hours_of(report)
    assert found.keys() == {("alice", "GPU-0"), ("alice", "GPU-1"), ("bob", "GPU-1")}
    # reserved, used, idle, of which held, unknown, unreserved
    assert found["alice", "GPU-0"] == pytest.approx([2.75 - ms, 0.75 - ms, 0.5, 0.5, 1.5, 0.25 + ms], abs=1e-12)
    assert found["alice", "GPU-1"] == pytest.approx([1.5, 0, 1.5, 0, 0, 0], abs=1e-12)
    assert found["bob", "GPU-1"] == pytest.approx([100 / 60, 10 / 60, 30 / 60, 0, 1, 20 / 60], abs=1e-12)
    (overlap,) = report.reservation_problems
    assert overlap.startswith("GPU-1 is reserved twice from ")


def test_reservations_for_very_many_names_do_not_hold_a_report_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write to canhazgpu's Redis could fill it with tens of thousands, which would take hours."""
    monkeypatch.setattr(reserved_hours, "MOST_PAIRS", 3)
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    rows = [f"0,{name},{iso(MONDAY_MS)},," for name in ("alice", "bob", "carol", "dave")]
    for count in (3, 4):
        report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=configured(tmp_path, *rows[:count]))
        reserved, *_, unreserved = hours_of(report)["alice", "GPU-0"]
        assert (reserved, unreserved) == pytest.approx((1, 0) if count == 3 else (0, nan), nan_ok=True)
    assert report.reservation_problems == ["reservations are left out: they are of more than 3 people and cards"]


def test_who_works_where_nobody_is_seen_is_not_known(tmp_path: Path) -> None:
    # The process list fails while the card is at work; and memory that no process shows.
    ticks = series(MONDAY_MS, 30, Gpu(0, 90.0, (), 5000, "not_permitted"))
    ticks += series(MONDAY_MS + 30 * MINUTE_MS, 30, Gpu(0, 0.0, (), 5000))
    write(tmp_path, ticks)
    end = MONDAY_MS + HOUR_MS
    report = report_of(tmp_path, MONDAY_MS, end, config=configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,"))
    assert hours_of(report) == {("alice", "GPU-0"): [1, 0, 0.5, 0, 0.5, 0]}
    report = report_of(tmp_path, MONDAY_MS, end, config=configured(tmp_path))
    assert hours_of(report) == {("(unattributed)", "GPU-0"): [0, 0, 0, 0, 0, 0.5]}


TUESDAY_MS = MONDAY_MS + DAY_MS
INSTANCES = [Gpu(0, 90.0, (ALICE,), mig_index=place, parent="GPU-0", total_mib=9856) for place in range(2)]
OLD, NEW = (Gpu(0, 90.0, (ALICE,), uuid=f"GPU-{name}") for name in ("old", "new"))


@pytest.mark.parametrize(
    ("days", "booked", "expected"),
    [
        # An index means the card that was there that day.
        (
            [series(MONDAY_MS, 60, OLD), series(TUESDAY_MS, 60, NEW, boot="boot-2")],
            ["0,alice"],
            {("alice", "GPU-old"): [24, 1, 0, 0, 23, 0], ("alice", "GPU-new"): [1, 1, 0, 0, 0, 0]},
        ),
        # A card that is gone stays reserved.
        (
            [
                series(MONDAY_MS, 60, busy(ALICE), busy(BOB, index=1)),
                series(TUESDAY_MS, 60, busy(ALICE)),
                series(TUESDAY_MS + DAY_MS, 60, error="driver_not_loaded"),
            ],
            ["0,alice", "1,bob"],
            {("alice", "GPU-0"): [49, 2, 0, 0, 47, 0], ("bob", "GPU-1"): [49, 1, 0, 0, 48, 0]},
        ),
        # The index and the uuid of a card mean all of its MIG instances, while it has some.
        (
            [series(MONDAY_MS, 60, *INSTANCES)],
            ["0,alice", "MIG-0-1,root"],
            {
                ("alice", "MIG-0-0"): [1, 1, 0, 0, 0, 0],
                ("alice", "MIG-0-1"): [1, 1, 0, 0, 0, 0],
                ("root", "MIG-0-1"): [1, 0, 1, 0, 0, 0],
            },
        ),
        (
            [series(MONDAY_MS, 60, busy(ALICE)), series(TUESDAY_MS, 60, *INSTANCES)],
            ["GPU-0,alice"],
            {
                ("alice", "GPU-0"): [24, 1, 0, 0, 23, 0],
                ("alice", "MIG-0-0"): [1, 1, 0, 0, 0, 0],
                ("alice", "MIG-0-1"): [1, 1, 0, 0, 0, 0],
            },
        ),
        # A card that nothing can use is there, and its hours are unknown.
        ([series(MONDAY_MS, 60, unpartitioned(0))], ["0,root"], {("root", "GPU-0"): [1, 0, 0, 0, 1, 0]}),
        ([series(MONDAY_MS, 60, free())], [], {}),
    ],
)
def test_what_an_index_or_a_uuid_means(
    tmp_path: Path, days: list[list[Tick]], booked: list[str], expected: dict[tuple[str, str], list[float]]
) -> None:
    for day in days:
        write(tmp_path, day)
    end_ms = days[-1][0].ts_ms + HOUR_MS
    config = configured(tmp_path, *(f"{one},{iso(MONDAY_MS)},{iso(end_ms)}," for one in booked))
    report = report_of(tmp_path, MONDAY_MS, end_ms, config=config)
    assert hours_of(report) == expected
    assert [line for line in report.reservation_problems if "twice" not in line] == []
    assert report.reservations is not None
    assert list(report.reservations.columns) == RESERVATION_COLUMNS
    said = "Nothing was reserved, and nothing used." in renderer("text")(report, Options())
    assert said == (not expected)


def test_people_are_mapped_on_both_sides(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    config = configured(tmp_path, f"0,a.liddell,{iso(MONDAY_MS)},,")
    config = config._replace(people={"alice": "Alice", "a.liddell": "Alice"})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("Alice", "GPU-0"): [1, 1, 0, 0, 0, 0]}


def test_if_a_source_is_silent_nobody_is_called_unreserved(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    config = CONFIG._replace(reservations=Reservations(file=str(tmp_path / "none.csv")))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.reservations is not None
    assert report.reservations["unreserved_hours"].isna().all()
    (problem,) = report.reservation_problems
    assert "none.csv (No such file or directory)" in problem
    assert "—" in renderer("text")(report, Options(sections=("reservations",)))


def test_ticks_that_have_expired_are_said(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)) + series(MONDAY_MS + DAY_MS, 60, busy(ALICE)))
    assert Upkeep(str(tmp_path), CONFIG, MONDAY_MS + 5 * DAY_MS, False, print).run(False, False, None).rolled_up
    (tmp_path / "samples" / "2026-11-16.sqlite").unlink()
    config = configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,")
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + DAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("alice", "GPU-0"): [25, 1, 0, 0, 24, 0]}
    assert report.reservation_problems == ["ticks have expired: who used what in 2026-11-16 is not known here"]


class Count:
    """The same figures, in the order of SUMS, a tick at a time: cut at every boundary there is."""

    def __init__(self, ticks: list[Tick], rows: list[Reservation], start: int, end: int) -> None:
        self.rows = rows
        self.sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(SUMS))
        cuts = {start, end, *(cut for one in rows for cut in (one.start_ms, one.end_ms) if start < cut < end)}
        for begin, until in pairwise(sorted(cuts)):
            for place in range(2):
                for who in self.owners(place, begin):
                    self.sums[who, f"GPU-{place}"][0] += until - begin
                    self.sums[who, f"GPU-{place}"][4] += until - begin
            naive = Naive(ticks)
            for place, _, length in naive.pieces(begin, until, DAY_MS):
                one = naive.ticks[place]  # which may stand for the time before the first tick of a day
                for card in one.cards:
                    there = states_of(one, card, naive.judged.processes[place])
                    self.add(one.ts_ms, card, naive.judged.card_state(place, card), there, begin, length)

    def owners(self, place: int, begin: int) -> set[str]:
        return {one.user for one in self.rows if one.gpu == str(place) and one.start_ms <= begin < one.end_ms}

    def in_job(self, who: str, place: int, ts_ms: int) -> bool:
        own = [one for one in self.rows if one.job and one.user == who and one.gpu == str(place)]
        return any(one.start_ms <= ts_ms < one.end_ms for one in own)

    def add(self, ts_ms: int, card: Card, on_card: str, there: dict[str, str], begin: int, length: int) -> None:
        uuid, owners = card.facts.uuid, self.owners(card.facts.gpu_index, begin)
        is_without_them = on_card not in (ACTIVE, "unknown") or (on_card == ACTIVE and ACTIVE in there.values())
        for who in owners:
            state = there.get(who, "" if is_without_them else "unknown")
            if state != "unknown":
                sums = self.sums[who, uuid]
                sums[4] -= length
                sums[1 if state == ACTIVE else 2] += length
                sums[3] += length if state == IDLE_HELD else 0
                sums[6] += length if state == "" else 0
        for who in there.keys() - owners:
            if there[who] in (ACTIVE, IDLE_HELD) and not self.in_job(who, card.facts.gpu_index, ts_ms):
                self.sums[who, uuid][5] += length


def states_of(one: Tick, card: Card, judged: dict[tuple[str, int], tuple[str, bool]]) -> dict[str, str]:
    """The state of each person on a card; each of them has one process."""
    found = {one.processes[usage.pid].user or "": judged[card.facts.uuid, usage.pid] for usage in card.usages}
    return {who: state for who, (state, counts) in found.items() if counts and state != "truly-idle"}


JOBS = [ALICE, BOB._replace(sm_percent=95), Job(300, "carol", start_time_ms=7000, sm_percent=0)]
some_jobs = st.sets(st.sampled_from(JOBS), min_size=1).map(lambda jobs: tuple(sorted(jobs, key=lambda job: job.pid)))
cards = (
    st.sampled_from([free, lost])
    | some_jobs.map(lambda jobs: lambda index: busy(*jobs, index=index))
    | some_jobs.map(lambda jobs: lambda index: held(*jobs, index=index))
)
steps = st.lists(st.tuples(st.integers(1, 7 * MINUTE_MS), cards, cards), min_size=2, max_size=12)
moments = st.integers(-HOUR_MS, HOUR_MS)
bookings = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["alice", "bob", "dora"]), moments, moments, st.booleans()), max_size=6
)


@given(steps, bookings, moments, st.integers(1, HOUR_MS))
@settings(max_examples=40, deadline=None)
def test_used_and_idle_and_unknown_are_what_was_reserved_to_the_millisecond(
    history: list[tuple[int, Callable[[int], Gpu], Callable[[int], Gpu]]],
    booked: list[tuple[int, str, int, int, bool]],
    begin: int,
    length: int,
) -> None:
    # Around midnight, so that ticks, reservations and windows are cut there too.
    now, ticks = MONDAY_MS - 20 * MINUTE_MS, []
    for step, one, other in history:
        now += step
        ticks.append(tick(now, one(0), other(1), interval_ms=MINUTE_MS))
    rows = [
        Reservation(str(card), who, MONDAY_MS + min(a, b), MONDAY_MS + max(a, b), "", "", "", "7" if is_job else None)
        for card, who, a, b, is_job in booked
        if a != b
    ]
    start = max(ticks[0].ts_ms, min(MONDAY_MS + begin, ticks[-1].ts_ms))
    end = max(start + length, next(one.ts_ms for one in ticks if one.ts_ms >= start) + 1)  # there is a tick in it
    with written(ticks) as folder:
        lines = {one: f"{one.gpu},{one.user},{iso(one.start_ms)},{iso(one.end_ms)}," for one in rows}
        config = configured(folder, *(line for one, line in lines.items() if not one.job))
        config = with_jobs(config, Path(folder) / "jobs", *(f"{line}job 7" for one, line in lines.items() if one.job))
        report = report_of(folder, start, end, config=config)
    found = {key: [round(hours * HOUR_MS) for hours in values] for key, values in all_hours_of(report).items()}
    for reserved, used, idle, idle_held, unknown, _, not_used in found.values():
        assert idle_held + not_used == idle
        assert used + idle + unknown == reserved
        assert 0 <= idle_held <= idle
        assert min(used, unknown) >= 0
    again = Count(ticks, rows, start, end).sums
    assert found == {key: values for key, values in again.items() if any(values)}


def test_nobody_is_blamed_for_the_time_between_the_end_of_a_job_and_the_next_tick(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 30, busy(ALICE)) + series(MONDAY_MS + 30 * MINUTE_MS, 30, free()))
    end = iso(MONDAY_MS + 29 * MINUTE_MS + 15_000)  # it was last seen 15 s before
    job = f"GPU-0,alice,{iso(MONDAY_MS)},{end},job 4711"
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=with_jobs(CONFIG, tmp_path / "jobs", job))
    assert hours_of(report)["alice", "GPU-0"][5] == 0
    # But for one who stays on the card when the job is over,
    early = f"GPU-0,alice,{iso(MONDAY_MS)},{iso(MONDAY_MS + 9 * MINUTE_MS + 15_000)},job 4711"
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=with_jobs(CONFIG, tmp_path / "jobs", early))
    assert hours_of(report)["alice", "GPU-0"][5] == pytest.approx(20 / 60)
    # and a reservation by hand counts to the millisecond.
    report = report_of(
        tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},{end},")
    )
    assert hours_of(report)["alice", "GPU-0"][5] == pytest.approx(45 / 3600)
