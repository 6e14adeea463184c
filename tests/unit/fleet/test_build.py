"""A fleet's report against the reports of its hosts: every figure is their sum, to the millisecond."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest

from gua_report.fleet.executors import Outcome, Work, map_in_children
from gua_report.fleet.host_files import HostFile
from gua_report.fleet.together import MOST_LISTED
from gua_report.render import Options, renderer
from gua_report.summary.report import Report
from gua_sample.policy import STATES
from tests.fleets import END_MS, HOSTS, START_MS, change, fleet_report, make_fleet
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, Job, held, report_of, series, write
from tests.rolling import roll_up_days

MS = 1.01 / HOUR_MS  # a millisecond, in hours


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Report:
    return fleet_report(folder)


@pytest.fixture(scope="module")
def own(folder: Path) -> dict[str, Report]:
    """The hosts' own reports, each from its file alone."""
    return {host: report_of(folder / host, START_MS, END_MS) for host in HOSTS}


def add(columns: list[pd.Series[float]]) -> list[float]:
    return [sum(values) for values in zip(*columns, strict=True)]


def test_cards_on_average_are_the_sum_of_the_hosts(fleet: Report, own: dict[str, Report]) -> None:
    for state in STATES:
        total = sum(report.capacity["equivalent_gpus"][state] for report in own.values())
        assert fleet.capacity["equivalent_gpus"][state] == pytest.approx(total, abs=1e-6)


def test_of_thousands_of_containers_the_first_keep_their_names(tmp_path: Path) -> None:
    jobs = [Job(number, None, uid=4000 + number, memory_mib=1000) for number in range(14)]
    for number in range(14):  # the first one is there for longest
        write(tmp_path / "data", series(START_MS + number * MINUTE_MS, 1, held(*jobs[: 14 - number])))
    roll_up_days(str(tmp_path / "data"))
    target = tmp_path / "fleet" / "gpu07"
    target.mkdir(parents=True)
    shutil.copy(tmp_path / "data" / "rollups.sqlite", target)
    own = report_of(target, START_MS, START_MS + DAY_MS)
    found = fleet_report(tmp_path / "fleet", end_ms=START_MS + DAY_MS)
    hours = found.identities.set_index("identity")["idle_held_gpu_hours"]
    assert sorted(hours.index) == sorted([*(f"uid:{4000 + number}@gpu07" for number in range(10)), "uid:others@gpu07"])
    assert hours.sum() == pytest.approx(own.identities["idle_held_gpu_hours"].sum())
    assert hours["uid:others@gpu07"] == pytest.approx(own.identities["idle_held_gpu_hours"][10:].sum())
    # Episodes have the name of whom they are about.
    assert "uid:4013@gpu07" in found.episodes["identity"].tolist()


def test_cards_free_in_an_hour_of_the_week_are_the_sum_of_the_hosts(fleet: Report, own: dict[str, Report]) -> None:
    free = add([report.heatmap["free_gpus"].fillna(0) for report in own.values()])
    assert fleet.heatmap["free_gpus"].fillna(0).tolist() == pytest.approx(free, abs=1e-5)


def test_episodes_are_the_hosts_longest_in_one_order(fleet: Report, own: dict[str, Report]) -> None:
    rows = [
        (bool(row["ongoing"]), row["seconds"], host, row["gpu_uuid"], row["pid"])
        for host, report in own.items()
        for row in report.episodes.to_dict("records")
    ]
    rows.sort(key=lambda row: (not row[0], -row[1], *row[2:]))
    found = fleet.episodes[["ongoing", "seconds", "host", "gpu_uuid", "pid"]].itertuples(index=False, name=None)
    listed, going_on = [tuple(row) for row in found], [row for row in rows if row[0]]
    assert listed == sorted(listed, key=rows.index)
    for some in (going_on, [row for row in rows if not row[0]]):
        assert set(some[:MOST_LISTED]) <= set(listed)
    assert fleet.fleet is not None
    assert sum(fleet.fleet.episodes.values()) == len(rows)


def test_coverage_is_each_hosts_own(fleet: Report, own: dict[str, Report]) -> None:
    assert fleet.fleet is not None
    hosts = fleet.fleet.hosts.set_index("host")
    assert hosts.index.tolist() == sorted(HOSTS)
    for host, report in own.items():
        assert hosts["coverage_share"][host] == pytest.approx(report.coverage_share)
        assert hosts["observed_seconds"][host] == pytest.approx(report.observed_seconds)
    assert fleet.coverage_share != fleet.coverage_share


def test_the_window_before_is_compared_with_if_hosts_have_it(folder: Path) -> None:
    second = fleet_report(folder, start_ms=START_MS + DAY_MS)
    own = [report_of(folder / host, START_MS + DAY_MS, END_MS) for host in HOSTS]
    known = [report.before for report in own if report.before is not None]
    assert second.before is not None
    for state in STATES:
        total = sum(before["gpu_hours"][state] for before in known)
        assert second.before["gpu_hours"][state] == pytest.approx(total, abs=3 * MS)


def test_time_before_the_first_tick_of_a_host_was_not_observed(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1", "lab2")
    change(tmp_path / "lab2" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-16'")
    trend = fleet_report(tmp_path).trend
    days = trend.groupby(trend["start_ms"] // DAY_MS)["observed_seconds"].sum()
    length = days.iloc[1]
    assert days.tolist() == pytest.approx([length / 2, length], rel=0.01)
    assert length == pytest.approx(86_400, rel=0.01)


def test_groups_of_people_add_up_across_hosts(folder: Path) -> None:
    config = CONFIG._replace(groups={"everybody": ("ada", "ben")})
    fleet = fleet_report(folder, config)
    own = [report_of(folder / host, START_MS, END_MS, config=config) for host in HOSTS]
    assert fleet.groups is not None
    for column in ("gpu_hours", "idle_held_gpu_hours", "energy_kwh"):
        total = sum(report.groups[column][0] for report in own if report.groups is not None)
        assert fleet.groups[column][0] == pytest.approx(total, abs=1e-5)


def test_an_open_window_ends_with_the_newest_whole_day(folder: Path) -> None:
    now_ms = END_MS + 9 * HOUR_MS
    report = fleet_report(folder, start_ms=now_ms - DAY_MS, end_ms=now_ms, now_ms=now_ms)
    assert (report.window.start_ms, report.window.end_ms) == (END_MS - DAY_MS, END_MS)
    # It must not look calm when nothing has been collected for days.
    now_ms += 3 * DAY_MS
    stale = fleet_report(folder, start_ms=now_ms - 4 * DAY_MS, end_ms=now_ms, now_ms=now_ms)
    assert stale.window.end_ms == END_MS + 3 * DAY_MS
    assert stale.fleet is not None
    assert stale.fleet.late == sorted(HOSTS)


@pytest.mark.parametrize("most", [1, 2])
def test_hosts_may_be_added_in_any_order_and_some_at_a_time(folder: Path, fleet: Report, most: int) -> None:
    def backwards(files: Sequence[HostFile], work: Work, _: int) -> Iterator[Outcome]:
        yield from reversed(list(map_in_children(files, work, most)))

    other = fleet_report(folder, executor=backwards)
    for form in ("json", "html"):
        assert renderer(form)(other, Options()) == renderer(form)(fleet, Options())
