"""How long a tick stands for, and how windows and hours cut it."""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gua_report.ticks.tick_weights import Pieces, cut, with_weights
from gua_sample.policy import DEFAULT_INTERVAL_MS
from gua_sample.records import Tick
from tests.lab import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    NOON_MS,
    SECOND_MS,
    busy,
    expect,
    held,
    report_of,
    tick,
    write,
)
from tests.naive import Naive

modest = settings(deadline=None, max_examples=40)

gaps = st.sampled_from([10, 30, 60, 75, 76, 150, 151, 3600, 10_000]).map(lambda seconds: seconds * SECOND_MS)
told = st.sampled_from([None, None, 10_000, 30_000, 60_000])
steps = st.lists(st.tuples(gaps | st.integers(1, 200_000), told, st.booleans()), min_size=1, max_size=50)
offsets = st.sampled_from([0, 15, 30, 45]).map(lambda minutes: minutes * MINUTE_MS)


def frame(rows: list[tuple[int, int | None, str]]) -> pd.DataFrame:
    """Ticks with weights, day by day; the boots are old."""
    table = pd.DataFrame(rows, columns=["ts_ms", "interval_ms", "boot_id"]).assign(boot_time_ms=0)
    table = table.astype({"ts_ms": "int64", "interval_ms": "float64"}).sort_values("ts_ms")
    days = [with_weights(day, number * DAY_MS) for number, day in table.groupby(table["ts_ms"] // DAY_MS)]
    return pd.concat(days, ignore_index=True)


def rows_of(drawn: list[tuple[int, int | None, bool]]) -> list[tuple[int, int | None, str]]:
    rows, ts_ms, boot = [], MONDAY_MS, 0
    for gap, interval_ms, reboots in drawn:
        rows.append((ts_ms, interval_ms, f"boot-{boot}"))
        ts_ms += gap
        boot += reboots
    return rows


def weights(*rows: tuple[int, int | None, str]) -> list[int]:
    found = frame([(ts_ms + NOON_MS, interval_ms, boot) for ts_ms, interval_ms, boot in rows])
    return [int(weight) for weight in found["weight_ms"]]


def steady(count: int, interval_ms: int | None, every_ms: int = 30_000, start: int = 0) -> list[Any]:
    return [(start + number * every_ms, interval_ms, "a") for number in range(count)]


DAY_END = DAY_MS - 12 * HOUR_MS  # `weights` begins at noon


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A tick stands for the time until the next; it is late up to two and a half intervals, and missing beyond.
        ([(0, 30_000, "a"), (29_000, 30_000, "a"), (61_000, 30_000, "a")], [29_000, 32_000, 30_000]),
        ([(0, 30_000, "a"), (75_000, 30_000, "a")], [75_000, 30_000]),
        ([(0, 30_000, "a"), (75_001, 30_000, "a")], [30_000, 30_000]),
        # It does not reach over a reboot, and no time counts twice.
        ([(0, 30_000, "a"), (60_000, 30_000, "b")], [30_000, 30_000]),
        ([(0, 30_000, "a"), (20_000, 30_000, "b")], [20_000, 30_000]),
        # The interval is what was told, else the median of the gaps around, else what the timer has.
        (steady(4, 10_000, every_ms=60_000), [10_000] * 4),
        ([*steady(20, None), (10_000_000, None, "a")], [30_000] * 21),
        ([row for row in steady(30, None) if row[0] != 300_000], [30_000] * 9 + [60_000] + [30_000] * 19),
        ([row for row in steady(30, None) if row[0] not in (300_000, 330_000)], [30_000] * 28),
        (
            steady(200, None, every_ms=10_000) + steady(30, None, every_ms=300_000, start=2_000_000),
            [10_000] * 200 + [300_000] * 30,
        ),
        ([(0, None, "a")], [DEFAULT_INTERVAL_MS]),
        ([(0, 5000, "a")], [5000]),
        # A manual run divides the time between two ticks.
        ([*steady(5, 30_000), (37_000, None, "a")], [30_000, 7_000, 23_000, 30_000, 30_000, 30_000]),
        # Ticks beside midnight reach to it if it is near.
        *(
            ([(DAY_END - before * 1000, 30_000, "a"), (DAY_END + after * 1000, 30_000, "a")], expected)
            for before, after, expected in (
                *((20, 25, [20_000, 25_000, 30_000]), (45, 45, [45_000, 45_000, 30_000])),
                *((46, 46, [30_000, 30_000]), (30, 0, [30_000, 30_000])),
            )
        ),
    ],
)
def test_how_long_ticks_stand_for(rows: list[tuple[int, int | None, str]], expected: list[int]) -> None:
    assert weights(*rows) == expected


def test_a_first_tick_does_not_reach_back_beyond_the_boot() -> None:
    ticks = pd.DataFrame({"ts_ms": [20_000], "interval_ms": [30_000.0], "boot_id": ["a"], "boot_time_ms": [5_000]})
    found = with_weights(ticks, 0)
    assert found[["ts_ms", "weight_ms"]].to_numpy().tolist() == [[5_000, 15_000], [20_000, 30_000]]
    assert len(with_weights(ticks.assign(boot_time_ms=20_000), 0)) == 1


@modest
@given(steps)
def test_weights_are_what_the_rule_says(drawn: list[tuple[int, int | None, bool]]) -> None:
    rows = rows_of(drawn)
    ticks = [tick(ts_ms, interval_ms=interval_ms, boot=boot) for ts_ms, interval_ms, boot in rows]
    assert frame(rows)["weight_ms"].tolist() == Naive(ticks).weights


bounds = st.integers(MONDAY_MS - HOUR_MS, MONDAY_MS + 4 * HOUR_MS)


@modest
@given(steps, bounds, bounds, bounds, offsets)
@example([(60_000, None, False)] * 5, MONDAY_MS, MONDAY_MS + 90_000, MONDAY_MS + 120_000, 0)
def test_a_window_cut_in_two_adds_up_to_the_whole(
    drawn: list[tuple[int, int | None, bool]], one: int, two: int, three: int, offset_ms: int
) -> None:
    ticks = frame(rows_of(drawn))
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
    ticks = frame(rows_of(drawn))
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


EVEN = at_intervals((30, 120, False))
TOLD = at_intervals((60, 120, True))
MANUAL = [one._replace(ts_ms=one.ts_ms + 7000 + 10 * number, interval_ms=None) for number, one in enumerate(TOLD)]


@pytest.mark.parametrize(
    "ticks",
    [
        TOLD,
        at_intervals((10, 120, False)),
        *(at_intervals((10, 60, one), (60, 60, other)) for one, other in product((False, True), repeat=2)),
        *(at_intervals((60, 60, told), (10, 60, told)) for told in (False, True)),
        at_intervals((30, 40, False), (10, 40, True), (60, 40, False)),
        [one for number, one in enumerate(EVEN) if number % 7 != 3],  # some were missed
        sorted(TOLD + MANUAL[20:40], key=lambda one: one.ts_ms),
    ],
)
def test_neither_intervals_nor_missed_ticks_nor_manual_runs_change_gpu_hours(tmp_path: Path, ticks: list[Tick]) -> None:
    write(tmp_path, ticks)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    expect(report, idle_held=1, active=1)
    assert report.coverage_share == 1
