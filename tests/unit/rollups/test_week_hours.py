"""The hours of a week of closed days, by plain SQL: as reports have them, or a lower bound that says so."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gua_report.limits import WEEK_MS
from gua_report.rollups.index import path_of
from gua_report.rollups.week_hours import ClosedWeek, read_closed_week
from gua_sample.errors import CorruptPartition
from gua_sample.partition_names import list_partitions
from gua_sample.policy import DEFAULT, Policy
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MONDAY_MS, Job, busy, held, mig, report_of, series, write
from tests.rolling import change, expire, upkeep

ALICE, BOB, CONTAINED = Job(100, "alice"), Job(200, "bob"), Job(300, "root", uid=0, cgroup="/docker/" + 64 * "a")
END_MS = MONDAY_MS + 9 * DAY_MS
NOW_MS = END_MS + 5 * HOUR_MS
DAYS = [f"2026-11-{16 + day}" for day in range(9)]


def fill(folder: Path) -> Path:
    """Nine days and five hours: alice idles and bob works on card 0, alice works on a MIG instance now and then."""
    for half_day in range(19):
        start_ms = MONDAY_MS + half_day * DAY_MS // 2
        shared = held(ALICE) if half_day % 3 else busy(BOB)
        small = mig(1, 0, 90.0 if half_day % 2 else None, (ALICE, CONTAINED))
        count = 72 if start_ms < END_MS else 30
        write(folder, series(start_ms, count, shared, small, every_ms=600_000, interval_ms=600_000))
    upkeep(folder, NOW_MS)
    return folder


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("week"))


@pytest.fixture
def folder(shared_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(shared_folder, tmp_path / "copy")
    return tmp_path / "copy"


def read(folder: Path, people: dict[str, str] | None = None, policy: Policy = DEFAULT) -> ClosedWeek:
    partitions = list_partitions(str(folder / "samples"))
    return read_closed_week(str(folder), partitions, policy, people or {}, NOW_MS)


def test_the_hours_are_those_of_a_report_of_the_7_days_up_to_midnight(shared_folder: Path) -> None:
    found = read(shared_folder)
    assert found.week == (END_MS - WEEK_MS, END_MS, 1.0)
    report = report_of(shared_folder, *found.week[:2], config=CONFIG)
    assert len(report.identities) == len(found.people) == 3
    for row in report.identities.to_dict("records"):
        used = found.people[row["identity"]]
        assert used[:3] == pytest.approx([row["gpu_hours"], row["idle_held_gpu_hours"], row["unknown_gpu_hours"]])
        assert used[3:] == (None, True)


def test_what_is_not_rolled_up_is_not_observed_and_what_is_counts(folder: Path) -> None:
    change(path_of(str(folder)), f"DELETE FROM day WHERE day = '{DAYS[-1]}'")
    found = read(folder)
    assert found.week.observed_share == pytest.approx(6 / 7, abs=0.01)
    assert found.people["alice"].gpu_hours > 60
    Path(path_of(str(folder))).unlink()
    assert read(folder) == ClosedWeek(found.week._replace(observed_share=0.0), {})


def test_days_whose_ticks_have_expired_count_as_they_were(folder: Path) -> None:
    before = read(folder)
    change(path_of(str(folder)), "UPDATE day SET is_expired = 1")
    expire(folder, *DAYS)
    assert read(folder) == before


def test_a_day_that_has_changed_since_is_not_believed(folder: Path) -> None:
    write(folder, series(END_MS - HOUR_MS + 1, 1, held(ALICE)))
    assert read(folder).week.observed_share < 6.5 / 7


def test_days_under_other_thresholds_are_not_counted(folder: Path) -> None:
    other = DEFAULT._replace(process_memory_mib=5000.0)
    assert read(folder, policy=other).week.observed_share == 0
    change(path_of(str(folder)), "UPDATE day SET is_expired = 1")
    assert read(folder, policy=other).week.observed_share == 0


def test_two_identities_of_a_person_are_added_where_they_can_not_overlap(folder: Path) -> None:
    alone, together = read(folder).people, read(folder, {"bob": "Bo", "uid:9": "Bo"}).people
    assert together["Bo"] == alone["bob"]
    # alice and bob are never on card 0 in the same hour, and bob is not on the other card.
    both = read(folder, {"alice": "Bo", "bob": "Bo"}).people["Bo"]
    assert both.gpu_hours == pytest.approx(alone["alice"].gpu_hours + alone["bob"].gpu_hours)
    assert both.is_whole


def test_where_they_may_overlap_the_hour_is_left_out_and_the_sum_is_a_lower_bound(folder: Path) -> None:
    contained = next(name for name in read(folder).people if name.startswith("docker:"))
    alone, together = read(folder).people, read(folder, {contained: "alice"}).people
    assert contained not in together
    # All of the hours of either on the MIG instance, which they share, are left out.
    assert alone["alice"].gpu_hours > together["alice"].gpu_hours == 5 * 24
    assert together["alice"].idle_held_hours == pytest.approx(alone["alice"].idle_held_hours)
    assert not together["alice"].is_whole


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE OR REPLACE identity_hour SET state = 7",
        "UPDATE OR REPLACE identity_hour SET state = -1",
        "UPDATE identity_hour SET gpu_ms = -5",
        "UPDATE identity_hour SET weight_ms = 9000000000000000000, gpu_ms = NULL",
        "UPDATE identity_hour SET gpu_ms = 3600001",
    ],
)
def test_numbers_that_no_gua_writes_are_an_error_and_no_hours(folder: Path, damage: str) -> None:
    change(path_of(str(folder)), damage)
    with pytest.raises(CorruptPartition):
        read(folder)


def test_time_in_which_the_driver_failed_is_not_observed(folder: Path) -> None:
    change(path_of(str(folder)), "UPDATE span SET kind = (SELECT min(id) FROM word)")
    assert read(folder).week.observed_share == 0


def test_spans_can_not_make_a_week_longer(folder: Path) -> None:
    change(path_of(str(folder)), "UPDATE span SET end_ms = 9000000000000000000")
    assert read(folder).week.observed_share <= 1


def test_odd_names_in_the_folder_are_passed_over(folder: Path) -> None:
    partitions = [*list_partitions(str(folder / "samples")), str(folder / "samples" / "2026-13-41.sqlite")]
    assert read_closed_week(str(folder), partitions, DEFAULT, {}, NOW_MS) == read(folder)


def test_it_needs_no_pandas() -> None:
    code = "import sys, gua_report.live.cards_now; print({'pandas', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
