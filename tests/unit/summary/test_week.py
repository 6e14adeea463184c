"""The hours of the week before a window's end, against limits."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Config, Limit, Limits, Notes
from gua_report.people.containers import write_containers
from gua_report.people.identities import Wanted
from gua_report.render.attention import reasons
from gua_report.summary.names import number_people, select, with_groups, without_names
from gua_report.window import LEAST_COVERAGE
from gua_sample.containers import LABEL, Container, Known
from gua_sample.errors import NothingToReport
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Job,
    Report,
    busy,
    free,
    held,
    report_of,
    series,
    write,
)
from tests.notes import content, make_spool, put
from tests.rolling import assert_same, expire, upkeep

TEN_MINUTES_MS = 10 * MINUTE_MS
ALICE, BOB, DORA = Job(100, "alice"), Job(200, "bob"), Job(400, "dora")
CONTAINED = Job(300, "root", uid=0, cgroup="0::/system.slice/docker-3f2a9c81d0b7" + 52 * "0" + ".scope")
START_MS, END_MS = MONDAY_MS, MONDAY_MS + 9 * DAY_MS
LIMITS = Limits(Limit(50, 400), {"bob": Limit(gpu_hours=100)}, {"us": Limit(gpu_hours=300)})
LIMITED = CONFIG._replace(limits=LIMITS, groups={"us": ("alice", "bob"), "others": ("dora",)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine days: alice holds a card, bob works for half of each day, dora held one until noon of the third day."""
    path = tmp_path_factory.mktemp("nine-days")
    for half_day in range(18):
        third = held(DORA, index=2) if half_day < 5 else free(2)
        cards = held(ALICE), free(1) if half_day % 2 else busy(BOB, index=1), third, held(CONTAINED, index=3)
        start_ms = START_MS + half_day * DAY_MS // 2
        write(path, series(start_ms, 72, *cards, every_ms=TEN_MINUTES_MS, interval_ms=TEN_MINUTES_MS))
    hint = Container("docker", "train", None, "bob", LABEL, START_MS)
    write_containers(str(path), Known({"3f2a9c81d0b7": hint}))
    return path


def by_name(report: Report) -> dict[str, dict[str, Any]]:
    assert report.limits is not None
    rows: list[dict[Any, Any]] = report.limits.to_dict("records")
    return {row["identity"]: row for row in rows}


def stands(report: Report) -> dict[str, tuple[float, object]]:
    """The share of the nearest limit that was used, and whether it is over, of those who have one."""
    rows = by_name(report).items()
    return {who: (round(row["limit_share"], 3), row["over_limit"]) for who, row in rows if row["limit_share"] >= 0}


EXPECTED = {"alice": (3.36, True), "bob": (0.84, False), "dora": (0.24, False)}


@pytest.mark.parametrize("since_ms", [HOUR_MS, DAY_MS, 7 * DAY_MS - 1, 7 * DAY_MS, 7 * DAY_MS + 1, 9 * DAY_MS])
def test_the_week_is_the_7_days_before_the_end_whichever_window_is_shown(folder: Path, since_ms: int) -> None:
    report = report_of(folder, END_MS - since_ms, END_MS, config=LIMITED)
    assert report.week == (END_MS - 7 * DAY_MS, END_MS, 1.0)
    assert stands(report) == EXPECTED
    alice = by_name(report)["alice"]
    assert (alice["week_gpu_hours"], alice["week_idle_held_gpu_hours"]) == (168, 168)
    assert (alice["limit_gpu_hours"], alice["limit_idle_held_gpu_hours"]) == (400, 50)
    assert report.group_limits is not None
    (us,) = report.group_limits.to_dict("records")
    assert (us["group"], us["week_gpu_hours"], us["over_limit"]) == ("us", 168 + 84, False)


def test_it_ends_where_the_window_ends(folder: Path) -> None:
    end_ms = END_MS - DAY_MS - 7 * HOUR_MS  # in the second half of a day
    dora = by_name(report_of(folder, end_ms - HOUR_MS, end_ms, config=LIMITED))["dora"]
    assert dora["week_gpu_hours"] == 43


def test_closed_days_say_the_same_as_their_ticks_also_when_these_have_expired(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    windows = [(END_MS - DAY_MS - 5 * MINUTE_MS, END_MS - 5 * MINUTE_MS), (START_MS, END_MS)]
    from_ticks = [report_of(folder, *window, config=LIMITED) for window in windows]
    upkeep(copy, END_MS + DAY_MS)
    for window, report in zip(windows, from_ticks, strict=True):
        from_rollups = report_of(copy, *window, config=LIMITED)
        assert from_rollups.from_rollups_seconds > 0
        assert_same(from_rollups, report)
        assert from_rollups.week == report.week
    expire(copy, *(f"2026-11-{day}" for day in (18, 19)))
    assert stands(report_of(copy, END_MS - DAY_MS, END_MS, config=LIMITED)) == EXPECTED


def test_a_container_with_a_hint_is_nobodys(folder: Path) -> None:
    rows = by_name(report_of(folder, END_MS - DAY_MS, END_MS, config=LIMITED))
    contained = rows["docker:3f2a9c81d0b7"]
    assert contained["week_idle_held_gpu_hours"] == 168
    assert (contained["limit_share"] != contained["limit_share"], contained["over_limit"]) == (True, None)
    assert rows["bob"]["week_gpu_hours"] == 84


def test_what_is_meant_counts_and_is_said(folder: Path, tmp_path: Path) -> None:
    spool = make_spool(tmp_path, 0o700)
    about = content(END_MS - 3 * DAY_MS, END_MS - DAY_MS, identity="alice")
    put(spool, f"{os.geteuid()}.0", about)
    config = LIMITED._replace(notes=Notes(str(spool)))
    for since_ms in (HOUR_MS, 7 * DAY_MS):
        alice = by_name(report_of(folder, END_MS - since_ms, END_MS, config=config))["alice"]
        assert (alice["week_meant_gpu_hours"], alice["over_limit"]) == (48, True)


def test_where_too_little_was_observed_nobody_is_called_fine(tmp_path: Path) -> None:
    write(tmp_path, series(END_MS - DAY_MS, 144, held(ALICE), busy(BOB, index=1), every_ms=TEN_MINUTES_MS))
    for since_ms in (HOUR_MS, 7 * DAY_MS):
        report = report_of(tmp_path, END_MS - since_ms, END_MS, config=LIMITED)
        assert report.week is not None
        assert report.week.observed_share == pytest.approx(1 / 7)
        assert {who: over for who, (_, over) in stands(report).items()} == {"alice": None, "bob": None}
    strict = LIMITED._replace(limits=Limits(Limit(23)))
    assert stands(report_of(tmp_path, END_MS - HOUR_MS, END_MS, config=strict))["alice"] == (1.043, True)


def test_a_week_without_a_tick_has_no_hours(tmp_path: Path) -> None:
    write(tmp_path, series(START_MS, 144, held(ALICE), every_ms=TEN_MINUTES_MS))
    report = report_of(tmp_path, START_MS, END_MS, config=LIMITED)
    assert report.week is not None
    assert (report.week.observed_share, len(by_name(report))) == (0, 0)
    assert report.group_limits is not None
    assert report.group_limits["over_limit"].tolist() == [None]


def test_a_damaged_day_was_not_observed(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "samples" / "2026-11-20.sqlite").write_bytes(b"garbage, more than sixteen bytes of it")
    for since_ms in (DAY_MS, 7 * DAY_MS):
        report = report_of(copy, END_MS - since_ms, END_MS, config=LIMITED)
        assert report.week is not None
        assert 0.8 < report.week.observed_share < 6.1 / 7 < LEAST_COVERAGE
        assert stands(report)["bob"][1] is None


def test_time_of_unknown_state_is_not_called_fine(tmp_path: Path) -> None:
    unknown = held(ALICE)._replace(utilization=None)
    write(tmp_path, series(END_MS - 7 * DAY_MS, 7 * 144, unknown, every_ms=TEN_MINUTES_MS))
    alice = by_name(report_of(tmp_path, END_MS - DAY_MS, END_MS, config=LIMITED))["alice"]
    assert (alice["week_unknown_gpu_hours"], alice["week_idle_held_gpu_hours"], alice["over_limit"]) == (168, 0, None)


def test_of_a_group_that_is_not_known_nothing_is_said(folder: Path) -> None:
    config = LIMITED._replace(groups={"us": ("alice", "@no-such-group-here")})
    report = report_of(folder, END_MS - DAY_MS, END_MS, config=config)
    assert report.group_limits is not None
    (row,) = report.group_limits.to_dict("records")
    assert (row["week_gpu_hours"] != row["week_gpu_hours"], row["over_limit"]) == (True, None)
    assert not any("group" in reason for reason in reasons(report, 30 * DAY_MS))


def test_who_is_over_a_limit_is_to_act_on(folder: Path) -> None:
    limits = LIMITS._replace(groups={"us": Limit(gpu_hours=250)})
    report = report_of(folder, END_MS - DAY_MS, END_MS, config=LIMITED._replace(limits=limits))
    assert reasons(report, 30 * DAY_MS) == [
        "1 person over a limit (alice 168.0 of 50 idle-held GPU-hours)",
        "1 group over a limit (us 252.0 of 250 GPU-hours)",
    ]
    strict = LIMITED._replace(limits=Limits(Limit(10, 80)))
    report = report_of(folder, END_MS - DAY_MS, END_MS, config=strict)
    assert reasons(report, 30 * DAY_MS) == [
        "3 people over a limit (alice 168.0 of 10 idle-held GPU-hours, dora 12.0 of 10 idle-held GPU-hours, bob 84.0 of"
        " 80 GPU-hours)"
    ]
    within = LIMITED._replace(limits=Limits(Limit(168, 168)))
    assert reasons(report_of(folder, END_MS - DAY_MS, END_MS, config=within), 30 * DAY_MS) == []


def test_a_report_of_some_people_has_their_limits_alone_and_pages_without_names_have_none(folder: Path) -> None:
    report = report_of(folder, END_MS - DAY_MS, END_MS, config=LIMITED)
    for hidden in (without_names(report, number_people([report])), with_groups(report)):
        assert (hidden.week, hidden.limits, hidden.group_limits) == (None, None, None)
    assert "dora" in by_name(report)  # who was seen in the week alone, and is not in the window
    with pytest.raises(NothingToReport, match="nobody of the name 'dora'"):
        select(report, Wanted("dora", ("dora",)))
    alone = select(report, Wanted("bob", ("bob",)))
    assert (list(by_name(alone)), alone.group_limits) == (["bob"], None)
    group = select(report, Wanted("us"))
    assert set(by_name(group)) == {"alice", "bob"}
    assert group.group_limits is not None
    assert group.group_limits["group"].tolist() == ["us"]


def test_two_identities_of_a_person_are_one(folder: Path) -> None:
    config: Config = LIMITED._replace(people={"dora": "bob"})
    for since_ms in (DAY_MS, 7 * DAY_MS):
        bob = by_name(report_of(folder, END_MS - since_ms, END_MS, config=config))["bob"]
        assert (bob["week_gpu_hours"], bob["week_idle_held_gpu_hours"]) == (84 + 12, 12)
