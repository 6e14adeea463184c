"""A fleet's report names whoever is not well, and is never calm because it does not know."""

import shutil
from pathlib import Path

import pytest

from gua_report.commands.fleet import HostStatus, find_statuses, show
from gua_report.fleet.asked import AskedFleet
from gua_report.fleet.build import map_fleet
from gua_report.people.identities import Wanted
from gua_report.render import Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.mail import subject_of
from gua_report.summary.names import select
from gua_report.summary.report import Report
from gua_sample.policy import DEFAULT, RULE, Policy
from tests.fleets import (
    END_MS,
    NOW_MS,
    PUBLISHED_MS,
    START_MS,
    add_host,
    change,
    fleet_report,
    is_complete,
    make_fleet,
    problems,
    record_host,
)
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    hour,
    hours,
    report_of,
    series,
    tick,
    window,
)

EVERY_MS = 5 * MINUTE_MS
TICKS_A_DAY = DAY_MS // EVERY_MS


def statuses(folder: Path, policy: Policy = DEFAULT) -> dict[str, HostStatus]:
    config = CONFIG._replace(policy=policy)
    asked = AskedFleet(str(folder), window(START_MS, END_MS), config, now_ms=NOW_MS)
    return {status.host: status for status in find_statuses(map_fleet(asked), policy, NOW_MS)}


def text(report: Report, *sections: str) -> str:
    return renderer("text")(report, Options(sections=sections) if sections else Options())


def test_a_long_episode_is_seen_though_very_many_others_go_on(tmp_path: Path) -> None:
    alone, empty = (Gpu(0, 0.0, jobs, uuid="GPU-a") for jobs in ((Job(1, "ben"),), ()))
    many = tuple(Job(100 + number, "ada", memory_mib=200) for number in range(101))
    record_host(
        tmp_path,
        "a",
        [
            *series(START_MS, 240, alone, every_ms=EVERY_MS),
            *series(START_MS + 240 * EVERY_MS, TICKS_A_DAY - 240, empty, every_ms=EVERY_MS),
        ],
    )
    record_host(
        tmp_path,
        "b",
        [
            *series(START_MS, TICKS_A_DAY - 4, Gpu(0, 0.0, (), uuid="GPU-b"), every_ms=EVERY_MS),
            *series(START_MS + (TICKS_A_DAY - 4) * EVERY_MS, 4, Gpu(0, 0.0, many, uuid="GPU-b"), every_ms=EVERY_MS),
        ],
    )
    report = fleet_report(tmp_path, end_ms=START_MS + DAY_MS, now_ms=START_MS + DAY_MS + 8 * HOUR_MS)
    assert len(report.episodes) == 101
    assert any("(ben ≥ 20h)" in reason for reason in reasons(report, HOUR_MS))
    own = text(select(report, Wanted("ben", ("ben",))), "episodes")
    assert "20h" in own
    assert "more" not in own


def test_each_person_keeps_some_episodes(tmp_path: Path) -> None:
    """Those of one who holds much must not hide those of another."""
    record_host(tmp_path, "a", hour(held(*(Job(number, "ada") for number in range(1, 151)), Job(200, "ben"))))
    report = fleet_report(tmp_path)
    assert report.episodes["identity"].value_counts().to_dict()["ben"] == 1
    assert "and 140 more" in text(select(report, Wanted("ada", ("ada",))), "episodes")


def test_hosts_that_were_hardly_observed_or_have_stopped_are_to_act_on(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small", "lab1")  # small has three hours of two days
    found = reasons(fleet_report(tmp_path), 100 * HOUR_MS)
    assert "1 host observed for under 95% of the time (small 6.2%)" in found
    add_host(tmp_path, "lab1", published_ms=PUBLISHED_MS, newest_tick_ms=PUBLISHED_MS - 2 * HOUR_MS)
    report = fleet_report(tmp_path)
    assert problems(report) == {"lab1": ["stopped"]}
    assert "the sampler of 1 host seems to have stopped (lab1)" in reasons(report, 100 * HOUR_MS)


def test_a_host_with_earlier_files_alone_is_named(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1")
    add_host(tmp_path, "gpu07", "small", file="rollups-2025.sqlite")
    report = fleet_report(tmp_path)
    assert problems(report) == {"gpu07": ["not usable"]}
    assert not is_complete(report)
    assert statuses(tmp_path)["gpu07"].is_bad


@pytest.mark.parametrize(("days", "state"), [(1, "no day yet"), (3, "not usable"), (-1, "clock")])
def test_a_file_without_days_is_that_of_a_new_host_for_two_days(tmp_path: Path, days: int, state: str) -> None:
    make_fleet(tmp_path, "lab1")
    change(add_host(tmp_path, "empty", "small", published_ms=NOW_MS - days * DAY_MS), "DELETE FROM day")
    report = fleet_report(tmp_path)
    assert problems(report) == {"empty": [state]}
    assert statuses(tmp_path)["empty"].state == state
    assert "1 of 2 hosts missing" in subject_of(report)


def test_a_reinstalled_host_has_its_cards_once_on_average(tmp_path: Path) -> None:
    whole = fleet_report(make_fleet(tmp_path / "whole", "lab1"))
    for file, day in (("rollups.sqlite", "2026-11-16"), ("rollups-2025.sqlite", "2026-11-17")):
        path = add_host(tmp_path / "split", "lab1", file=file)
        of_day = f"WHERE day_id = (SELECT id FROM day WHERE day = '{day}')"
        tables = ("card_day", "card_hour", "identity_hour", "hold", "episode", "span")
        change(path, *(f"DELETE FROM {table} {of_day}" for table in tables), f"DELETE FROM day WHERE day = '{day}'")
    split = fleet_report(tmp_path / "split")
    assert hours(split) == pytest.approx(hours(whole))
    averages = [report.capacity["equivalent_gpus"].tolist() for report in (split, whole)]
    assert averages[0] == pytest.approx(averages[1], rel=0.01)
    observed = [report.trend["observed_seconds"].tolist() for report in (split, whole)]
    assert observed[0] == pytest.approx(observed[1], rel=0.01)
    earlier = split.episodes[split.episodes["host"] == "lab1~2025"]
    assert len(earlier)
    assert not earlier["ongoing"].any()


def test_a_reinstalled_host_has_its_free_cards_once_in_an_hour_of_the_week(tmp_path: Path) -> None:
    path = record_host(tmp_path, "gpu07", hour(free(), start_ms=START_MS))
    path.rename(path.with_name("rollups-2025.sqlite"))
    shutil.copyfile(
        record_host(tmp_path / "new", "gpu07", hour(free(), held(index=1), start_ms=START_MS + 7 * DAY_MS)), path
    )
    record_host(tmp_path, "gpu08", hour(free(), start_ms=START_MS))
    report = fleet_report(tmp_path, end_ms=START_MS + 8 * DAY_MS, now_ms=NOW_MS + 6 * DAY_MS)
    assert report.heatmap["free_gpus"][0] == pytest.approx(2.0, abs=0.01)


def test_a_name_with_an_at_sign_is_a_persons(tmp_path: Path) -> None:
    record_host(tmp_path, "one", hour(held(Job(1, "ada@corp.example")), start_ms=START_MS))
    days = fleet_report(tmp_path).identity_days
    assert days["identity"].unique().tolist() == ["ada@corp.example"]
    assert days["idle_held_gpu_hours"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("left_out", ["utilization_percent = 25", f"rule = {RULE - 1}"])
def test_days_that_are_left_out_claim_no_card(tmp_path: Path, left_out: str) -> None:
    alone = hours(fleet_report(make_fleet(tmp_path / "alone", "lab1")))
    add_host(tmp_path / "both", "new", "lab1")
    change(add_host(tmp_path / "both", "old", "lab1"), f"UPDATE day SET {left_out}")
    assert hours(fleet_report(tmp_path / "both")) == alone


def test_hours_without_time_claim_no_card(tmp_path: Path) -> None:
    alone = hours(fleet_report(make_fleet(tmp_path / "alone", "lab1")))
    add_host(tmp_path / "both", "lab1")
    change(add_host(tmp_path / "both", "evil", "lab1"), "UPDATE card_hour SET weight_ms = 0, gpu_ms = 0")
    assert hours(fleet_report(tmp_path / "both")) == alone


def test_a_past_window_says_what_went_on_and_who_is_late_now_is_not_late_then(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1", "lab2")
    change(tmp_path / "lab2" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-17'")
    report = fleet_report(tmp_path, end_ms=START_MS + DAY_MS, end="2026-11-17")
    assert problems(report) == {}
    shown = text(report)
    assert "Held without work in this window, and at the last tick" in shown
    assert "Nobody held a card idle" not in shown


def test_a_status_is_bad_where_no_day_can_be_used(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1")
    assert statuses(tmp_path)["lab1"].state == "ok"
    other = statuses(tmp_path, Policy(utilization_percent=20.0))["lab1"]
    assert (other.state, other.days_other) == ("not usable", 2)
    path = tmp_path / "lab1" / "rollups.sqlite"
    change(path, "UPDATE day SET utilization_percent = 20 WHERE day = '2026-11-16'")
    assert statuses(tmp_path)["lab1"].state == "days"
    change(path, f"UPDATE day SET rule = {RULE - 1} WHERE day = '2026-11-17'")
    both = statuses(tmp_path)["lab1"]
    assert (both.state, both.days_other) == ("not usable", 2)


def test_a_status_has_all_that_a_report_leaves_out_or_doubts(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1", "small")
    assert not any(status.is_bad for status in statuses(tmp_path).values())
    add_host(tmp_path, "quiet", "lab2", published_ms=PUBLISHED_MS, newest_tick_ms=PUBLISHED_MS - 2 * HOUR_MS)
    add_host(tmp_path, "twin", "small", machine="f" * 32)
    add_host(tmp_path, "ahead", "lab2", machine="e" * 32, published_ms=NOW_MS + DAY_MS)
    change(tmp_path / "ahead" / "rollups.sqlite", "UPDATE card SET uuid = 'ahead-' || uuid")
    change(add_host(tmp_path, "plain", "lab2"), "DROP TABLE meta", "UPDATE card SET uuid = 'plain-' || uuid")
    failed = [tick(START_MS + number * MINUTE_MS, error="driver gone") for number in range(60)]
    record_host(tmp_path, "broken", failed)
    found = statuses(tmp_path)
    states = {name: status.state for name, status in found.items()}
    assert states == {
        "lab1": "ok",
        "quiet": "stopped",
        "small": "same card",
        "twin": "same card",
        "ahead": "clock",
        "plain": "plain copy",
        "broken": "not usable",
    }
    assert {name for name, status in found.items() if status.is_bad} == set(states) - {"lab1"}
    report = fleet_report(tmp_path)
    assert report.fleet is not None
    rows = zip(report.fleet.problems["host"], report.fleet.problems["detail"], strict=True)
    assert sorted(rows) == sorted((name, detail) for name, status in found.items() for detail in status.problems)


def test_the_change_is_that_of_hosts_that_were_there_before(tmp_path: Path) -> None:
    cards = [busy(Job(number + 1, "ada"), index=number)._replace(uuid=f"GPU-{number}") for number in range(10)]
    record_host(tmp_path, "old", series(START_MS, 2 * TICKS_A_DAY, *cards, every_ms=EVERY_MS))
    idle = held(Job(1, "ben"))._replace(uuid="GPU-new")
    record_host(tmp_path, "new", series(START_MS + DAY_MS, TICKS_A_DAY, idle, every_ms=EVERY_MS))
    report = fleet_report(tmp_path, start_ms=START_MS + DAY_MS)
    assert report.change is not None
    assert report.change.tolist() == [0.0] * 4
    assert "idle-held did not change" in text(report)
    alone = report_of(tmp_path / "old", START_MS + DAY_MS, END_MS)
    assert alone.change is not None
    assert alone.change.tolist() == [0.0] * 4


def test_a_status_fits_a_terminal(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1")
    add_host(tmp_path, "x" * 100, "small", gua_version="1.2.3-" + "long" * 50)
    change(tmp_path / "lab1" / "rollups.sqlite", "DROP TABLE meta")
    lines = show(list(statuses(tmp_path).values())).splitlines()
    assert max(map(len, lines)) <= 79
    assert "plain copy" in "\n".join(lines)


def test_why_there_is_nothing_of_a_host_is_told_for_the_machine_that_reads(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1")
    failed = [tick(START_MS + number * MINUTE_MS, error="driver gone") for number in range(60)]
    record_host(tmp_path, "broken", failed)
    report = fleet_report(tmp_path)
    assert report.fleet is not None
    rows = report.fleet.problems
    (detail,) = rows[(rows["host"] == "broken") & (rows["kind"] == "not usable")]["detail"]
    assert detail.startswith("no card was seen from 2026-11-16 00:00 to 2026-11-18 00:00 UTC, as the driver failed")
    assert "doctor" not in detail


def test_episodes_of_containers_without_a_name_of_their_own_are_counted(tmp_path: Path) -> None:
    cgroups = [f"/system.slice/docker-{number:012x}{0:052x}.scope" for number in range(1, 31)]
    jobs = [Job(number, None, uid=0, cgroup=cgroup) for number, cgroup in enumerate(cgroups, start=1)]
    record_host(tmp_path, "one", hour(held(*jobs), start_ms=START_MS))
    report = fleet_report(tmp_path)
    assert report.fleet is not None
    assert sum(report.fleet.episodes.values()) == 30
    assert report.fleet.episodes["docker:others@one"] == 20
