"""How long a tick stands for, and how windows and hours cut it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gua_report.ticks.tick_weights import DEFAULT_INTERVAL_MS, Pieces, cut, with_weights
from gua_sample.records import Tick
from tests.lab import HOUR_MS, MINUTE_MS, MONDAY_MS, SECOND_MS, busy, expect, held, report_of, tick, write
from tests.naive import Naive

modest = settings(deadline=None, max_examples=40)

gaps = st.sampled_from([10, 30, 60, 75, 76, 150, 151, 3600, 10_000]).map(lambda seconds: seconds * SECOND_MS)
told = st.sampled_from([None, None, 10_000, 30_000, 60_000])
steps = st.lists(st.tuples(gaps | st.integers(1, 200_000), told, st.booleans()), min_size=1, max_size=50)
offsets = st.sampled_from([0, 15, 30, 45]).map(lambda minutes: minutes * MINUTE_MS)


def frame(rows: list[tuple[int, int | None, str]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["ts_ms", "interval_ms", "boot_id"])
    return table.astype({"ts_ms": "int64", "interval_ms": "float64"})


def rows_of(drawn: list[tuple[int, int | None, bool]]) -> list[tuple[int, int | None, str]]:
    rows, ts_ms, boot = [], MONDAY_MS, 0
    for gap, interval_ms, reboots in drawn:
        rows.append((ts_ms, interval_ms, f"boot-{boot}"))
        ts_ms += gap
        boot += reboots
    return rows


def weights(*rows: tuple[int, int | None, str]) -> list[int]:
    return [int(weight) for weight in with_weights(frame(list(rows)))["weight_ms"]]


def steady(count: int, interval_ms: int | None, every_ms: int = 30_000, start: int = 0) -> list[Any]:
    return [(start + number * every_ms, interval_ms, "a") for number in range(count)]


def test_a_tick_stands_for_the_time_until_the_next() -> None:
    assert weights((0, 30_000, "a"), (29_000, 30_000, "a"), (61_000, 30_000, "a")) == [29_000, 32_000, 30_000]


def test_a_tick_is_late_up_to_two_and_a_half_intervals_and_missing_beyond() -> None:
    assert weights((0, 30_000, "a"), (75_000, 30_000, "a")) == [75_000, 30_000]
    assert weights((0, 30_000, "a"), (75_001, 30_000, "a")) == [30_000, 30_000]


def test_a_tick_does_not_reach_over_a_reboot() -> None:
    assert weights((0, 30_000, "a"), (60_000, 30_000, "b")) == [30_000, 30_000]


def test_a_reboot_sooner_than_an_interval_counts_no_time_twice() -> None:
    assert weights((0, 30_000, "a"), (20_000, 30_000, "b")) == [20_000, 30_000]


def test_the_interval_that_was_told_is_taken_though_the_ticks_come_otherwise() -> None:
    assert weights(*steady(4, 10_000, every_ms=60_000)) == [10_000] * 4


def test_the_interval_that_was_not_told_is_the_median_of_the_gaps_around() -> None:
    rows = steady(20, None)
    assert weights(*rows, (10_000_000, None, "a")) == [30_000] * 21


def test_without_an_interval_a_missing_tick_is_bridged_and_a_hole_is_not() -> None:
    rows = steady(30, None)
    assert weights(*(row for row in rows if row[0] != 300_000)) == [30_000] * 9 + [60_000] + [30_000] * 19
    rows = [row for row in rows if row[0] not in (300_000, 330_000)]
    assert weights(*rows) == [30_000] * 28


def test_the_median_is_that_of_the_ticks_around_not_of_the_whole_history() -> None:
    rows = steady(200, None, every_ms=10_000) + steady(30, None, every_ms=300_000, start=2_000_000)
    assert sum(weights(*rows)) == 2_000_000 + 30 * 300_000


def test_a_single_tick_that_was_told_nothing_stands_for_what_the_timer_has() -> None:
    assert weights((0, None, "a")) == [DEFAULT_INTERVAL_MS]
    assert weights((0, 5000, "a")) == [5000]


def test_no_ticks_have_no_weights() -> None:
    assert weights() == []


def test_a_manual_run_between_two_ticks_divides_the_time() -> None:
    rows = [*steady(5, 30_000), (37_000, None, "a")]
    assert weights(*rows) == [30_000, 7_000, 23_000, 30_000, 30_000, 30_000]


@modest
@given(steps)
def test_weights_are_what_the_rule_says(drawn: list[tuple[int, int | None, bool]]) -> None:
    rows = rows_of(drawn)
    naive = Naive([tick(ts_ms, interval_ms=interval_ms, boot=boot) for ts_ms, interval_ms, boot in rows])
    assert weights(*rows) == naive.weights


@modest
@given(steps)
def test_no_time_counts_twice_and_none_is_less_than_a_millisecond(drawn: list[tuple[int, int | None, bool]]) -> None:
    ticks = with_weights(frame(rows_of(drawn)))
    ends = ticks["ts_ms"] + ticks["weight_ms"]
    assert (ends.iloc[:-1].to_numpy() <= ticks["ts_ms"].iloc[1:].to_numpy()).all()
    assert (ticks["weight_ms"] >= 1).all()
    assert ticks["weight_ms"].dtype == np.int64
    assert ticks["interval_ms"].notna().all()


@modest
@given(steps, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(drawn: list[tuple[int, int | None, bool]], random: Any) -> None:
    rows = rows_of(drawn)
    shuffled = rows.copy()
    random.shuffle(shuffled)
    pd.testing.assert_frame_equal(with_weights(frame(rows)), with_weights(frame(shuffled)))


@pytest.mark.parametrize("kind", ["int64", "object", "Int64"])
def test_intervals_may_come_in_any_type(kind: str) -> None:
    ticks = frame(steady(3, 30_000)).astype({"interval_ms": kind})
    assert with_weights(ticks)["weight_ms"].tolist() == [30_000] * 3


bounds = st.integers(MONDAY_MS - HOUR_MS, MONDAY_MS + 4 * HOUR_MS)


@modest
@given(steps, bounds, bounds, bounds, offsets)
@example([(60_000, None, False)] * 5, MONDAY_MS, MONDAY_MS + 90_000, MONDAY_MS + 120_000, 0)
def test_a_window_cut_in_two_adds_up_to_the_whole(
    drawn: list[tuple[int, int | None, bool]], one: int, two: int, three: int, offset_ms: int
) -> None:
    ticks = with_weights(frame(rows_of(drawn)))
    start, middle, end = sorted((one, two, three))
    whole, left, right = (
        _sums(cut(ticks, *window, offset_ms)) for window in [(start, end), (start, middle), (middle, end)]
    )
    assert whole == left + right


def _sums(pieces: Pieces) -> Counter[tuple[int, int]]:
    """Milliseconds by tick and hour."""
    sums: Counter[tuple[int, int]] = Counter()
    for position, hour_ms, weight_ms in zip(*(column.tolist() for column in pieces), strict=True):
        sums[position, hour_ms] += weight_ms
    return sums


@modest
@given(steps, bounds, bounds, offsets)
def test_weights_never_exceed_the_window_and_every_piece_lies_in_its_hour(
    drawn: list[tuple[int, int | None, bool]], one: int, two: int, offset_ms: int
) -> None:
    ticks = with_weights(frame(rows_of(drawn)))
    start, end = sorted((one, two))
    pieces = cut(ticks, start, end, offset_ms)
    assert (pieces.weight_ms > 0).all()
    assert (pieces.weight_ms <= HOUR_MS).all()
    assert pieces.weight_ms.sum() <= end - start
    assert ((pieces.hour_ms - offset_ms) % HOUR_MS == 0).all()
    # Each piece within the hour it is said to be of, within the window, and within its tick.
    begins = np.maximum(np.maximum(pieces.hour_ms, start), ticks["ts_ms"].to_numpy()[pieces.tick])
    last = (ticks["ts_ms"] + ticks["weight_ms"]).to_numpy()[pieces.tick]
    ends = np.minimum(np.minimum(pieces.hour_ms + HOUR_MS, end), last)
    assert (pieces.weight_ms == ends - begins).all()


@modest
@given(steps, offsets)
def test_the_hours_of_a_window_that_has_it_all_add_up_to_the_weights(
    drawn: list[tuple[int, int | None, bool]], offset_ms: int
) -> None:
    ticks = with_weights(frame(rows_of(drawn)))
    pieces = cut(ticks, 0, 2 * MONDAY_MS, offset_ms)
    assert np.bincount(pieces.tick, weights=pieces.weight_ms).tolist() == ticks["weight_ms"].tolist()


def test_an_hour_of_a_zone_that_is_off_by_half_begins_at_half_past() -> None:
    ticks = with_weights(frame([(MONDAY_MS + 20 * MINUTE_MS, 40 * MINUTE_MS, "a")]))
    pieces = cut(ticks, 0, 2 * MONDAY_MS, 30 * MINUTE_MS)
    assert pieces.hour_ms.tolist() == [MONDAY_MS - 30 * MINUTE_MS, MONDAY_MS + 30 * MINUTE_MS]
    assert pieces.weight_ms.tolist() == [10 * MINUTE_MS, 30 * MINUTE_MS]


def test_a_tick_longer_than_hours_is_cut_at_each() -> None:
    ticks = with_weights(frame([(MONDAY_MS + 30 * MINUTE_MS, 3 * HOUR_MS, "a")]))
    pieces = cut(ticks, MONDAY_MS, MONDAY_MS + 24 * HOUR_MS)
    assert pieces.weight_ms.tolist() == [30 * MINUTE_MS, HOUR_MS, HOUR_MS, 30 * MINUTE_MS]
    assert pieces.tick.tolist() == [0] * 4


def test_a_tick_that_ends_on_the_hour_has_no_piece_in_the_next() -> None:
    ticks = with_weights(frame([(MONDAY_MS + 59 * MINUTE_MS, MINUTE_MS, "a")]))
    assert cut(ticks, MONDAY_MS, MONDAY_MS + 24 * HOUR_MS).hour_ms.tolist() == [MONDAY_MS]


def test_what_lies_outside_the_window_gives_no_pieces() -> None:
    ticks = with_weights(frame(steady(3, 30_000, start=MONDAY_MS)))
    assert len(cut(ticks, 0, MONDAY_MS).tick) == 0
    assert len(cut(ticks, MONDAY_MS + 90_000, MONDAY_MS + 120_000).tick) == 0
    assert len(cut(ticks, MONDAY_MS, MONDAY_MS).tick) == 0


def at_intervals(*stretches: tuple[int, int, bool]) -> list[Tick]:
    """Stretches of (interval in seconds, length in minutes, told or not) of a card that works, then idles."""
    ticks, ts_ms = [], MONDAY_MS
    total = sum(length for _, length, _ in stretches) * MINUTE_MS
    for seconds, length, told in stretches:
        until = ts_ms + length * MINUTE_MS
        while ts_ms < until:
            gpu = busy() if ts_ms < MONDAY_MS + total // 2 else held()
            ticks.append(tick(ts_ms, gpu, interval_ms=seconds * SECOND_MS if told else None))
            ts_ms += seconds * SECOND_MS
    return ticks


@pytest.mark.parametrize(
    "stretches",
    [
        [(60, 120, True)],
        [(10, 120, False)],
        [(10, 60, True), (60, 60, True)],
        [(60, 60, True), (10, 60, True)],
        [(10, 60, False), (60, 60, False)],
        [(60, 60, False), (10, 60, False)],
        [(10, 60, True), (60, 60, False)],
        [(10, 60, False), (60, 60, True)],
        [(30, 40, False), (10, 40, True), (60, 40, False)],
    ],
)
def test_intervals_do_not_change_gpu_hours(tmp_path: Path, stretches: list[tuple[int, int, bool]]) -> None:
    write(tmp_path, at_intervals(*stretches))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    expect(report, idle_held=1, active=1)
    assert report.coverage_share == 1


def test_missed_ticks_do_not_change_gpu_hours(tmp_path: Path) -> None:
    ticks = at_intervals((30, 120, False))
    missed = [one for number, one in enumerate(ticks) if number % 7 != 3]
    write(tmp_path, missed)
    expect(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS), idle_held=1, active=1)


def test_manual_runs_do_not_change_gpu_hours(tmp_path: Path) -> None:
    ticks = at_intervals((60, 120, True))
    manual = [one._replace(ts_ms=one.ts_ms + 7000 + 10 * number, interval_ms=None) for number, one in enumerate(ticks)]
    write(tmp_path, sorted(ticks + manual[20:40], key=lambda one: one.ts_ms))
    expect(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS), idle_held=1, active=1)
