"""Any history: a report is what counting tick by tick gives, and any division of time adds up."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gua_sample.errors import NothingToReport
from gua_sample.policy import STATES
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import gap_seconds, hours, hours_by, report_of, same, written
from tests.naive import Naive

ZONES = st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York", "Asia/Kathmandu"])


@many
@example([Moment(60, None, 0, None, 0, (2, 2), 1, instances) for instances in (4, 3, 3)], 0.5, "UTC", 0.0, 1.0)
@example([Moment(gap, None, 0, "unknown", 0, (0, 0), 1, None) for gap in (10, 10, 90, 10)], 0.13, "UTC", 0.0, 1.0)
@given(histories(), part, ZONES, part, part)
def test_a_report_is_what_counting_tick_by_tick_gives(
    moments: list[Moment], midnight: float, zone: str, one: float, two: float
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    naive = Naive(ticks)
    with written(ticks) as folder:
        try:
            report = report_of(folder, start, end + 1, zone)
        except NothingToReport:
            assert not naive.observed_ms(start, end + 1)
            return
    same(hours_by(report.gpus, "uuid"), naive.gpus(start, end + 1))
    found = dict(zip(report.unpartitioned["uuid"], report.unpartitioned["gpu_hours"], strict=True))
    assert found == pytest.approx(naive.unpartitioned(start, end + 1))
    same(hours_by(report.identities, "identity"), _without_truly_idle(naive.identities(start, end + 1)))
    assert report.observed_seconds * 1000 == pytest.approx(naive.observed_ms(start, end + 1))
    assert gap_seconds(report) == pytest.approx(naive.gaps(start, end + 1))
    expected = naive.heatmap(start, end + 1, zone)
    active = {
        (weekday, hour): share
        for weekday, hour, share, _ in report.heatmap.itertuples(index=False)
        if not np.isnan(share)
    }
    assert active == pytest.approx(expected)
    # Shares sum to 1, hours to the time of the cards, and gaps to what was not observed.
    assert sum(hours(report).values()) == pytest.approx(sum(naive.gpus(start, end + 1).values()))
    if sum(hours(report).values()):
        assert report.headline["share"].sum() == pytest.approx(1)
        weighed = report.gpus[report.gpus["gpu_hours"] > 0]  # an instance may be left with nothing beside its siblings
        shares = weighed[[f"{state.replace('-', '_')}_share" for state in STATES]]
        assert shares.sum(axis=1).tolist() == pytest.approx([1] * len(shares))
    window_seconds = (end + 1 - start) / 1000
    assert report.observed_seconds + sum(gap_seconds(report).values()) == pytest.approx(window_seconds)
    # Nobody frees more than is held.
    assert report.reclaim["freed_gpu_hours"].max() <= hours(report)["idle-held"] + 1e-9
    assert report.reclaim["freed_gpu_hours"].is_monotonic_decreasing


def _without_truly_idle(sums: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {key: value for key, value in sums.items() if key[1] != "truly-idle"}


def _parts(folder: str, start: int, end: int) -> dict[tuple[str, str], float]:
    """Everything of a report that adds up."""
    try:
        report = report_of(folder, start, end)
    except NothingToReport:
        return {("gaps", "all"): float("nan")}
    sums = {("headline", state): value for state, value in hours(report).items()}
    sums |= {(f"gpu {name}", state): value for (name, state), value in hours_by(report.gpus, "uuid").items()}
    sums |= {(f"who {name}", state): value for (name, state), value in hours_by(report.identities, "identity").items()}
    sums |= {("energy", str(state)): float(value) for state, value in report.capacity["energy_kwh"].fillna(0).items()}
    rest = report.unpartitioned
    sums |= {("unpartitioned", uuid): value for uuid, value in zip(rest["uuid"], rest["gpu_hours"], strict=True)}
    sums["gaps", "all"] = sum(gap_seconds(report).values())
    sums["observed", "all"] = report.observed_seconds
    return sums


@many
@given(histories(), part, part, part, part)
def test_a_window_cut_in_two_adds_up_to_the_whole(
    moments: list[Moment], midnight: float, one: float, two: float, three: float
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, middle, end = sorted(first + round(place * (last - first)) for place in (one, two, three))
    middle, end = middle + 1, end + 2
    with written(ticks) as folder:
        whole, left, right = (_parts(folder, *period) for period in [(start, end), (start, middle), (middle, end)])
    for sums, length in ((whole, end - start), (left, middle - start), (right, end - middle)):
        if np.isnan(sums["gaps", "all"]):
            sums["gaps", "all"] = length / 1000
    added = {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {*left, *right, *whole}}
    for key, value in added.items():
        assert whole.get(key, 0.0) == pytest.approx(value, abs=1e-9), key
