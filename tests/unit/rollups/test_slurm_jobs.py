"""The Slurm job of an episode, from ticks and from closed days, beside versions of gua that don't know it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gua_report
from gua_report.rollups.index import path_of
from gua_report.summary.names import number_people, without_names
from gua_report.window import number_of
from gua_sample.partition_names import day_of
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Job, Report, held, report_of, series, tick, write
from tests.rolling import assert_same, change, expire, upkeep

SCOPE = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
ADA = Job(100, "ada", cgroup=SCOPE.format(4711))
BOB = Job(200, "bob")
CAROL = Job(300, "carol", cgroup="/slurm_node1/uid_1003/job_9/step_batch")
DAYS = [day_of(MONDAY_MS + day * DAY_MS) for day in range(3)]
END_MS = MONDAY_MS + 3 * DAY_MS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three days of three people who hold a card each, rolled up; ada and carol in jobs."""
    write(tmp_path, series(MONDAY_MS, 3 * 144, held(ADA), held(BOB, index=1), held(CAROL, index=2), every_ms=600_000))
    upkeep(tmp_path, END_MS + DAY_MS)
    return tmp_path


def jobs(report: Report) -> dict[str, str | None]:
    found = report.episodes
    return {
        who: job if isinstance(job, str) else None
        for who, job in zip(found["identity"], found["slurm_job"], strict=True)
    }


def whole(folder: Path) -> Report:
    return report_of(folder, MONDAY_MS, END_MS)


EXPECTED = {"ada": "4711", "bob": None, "carol": "9"}


def test_closed_days_tell_the_jobs_that_ticks_tell(folder: Path) -> None:
    from_rollups = whole(folder)
    assert from_rollups.from_rollups_seconds > 2 * DAY_MS / 1000
    assert jobs(from_rollups) == EXPECTED
    Path(path_of(str(folder))).unlink()
    assert jobs(whole(folder)) == EXPECTED
    assert_same(from_rollups, whole(folder))


def test_a_job_is_the_one_that_the_process_was_last_seen_in(tmp_path: Path) -> None:
    moved = ADA._replace(cgroup=SCOPE.format(4712))  # an ssh session that another job has adopted
    write(tmp_path, [tick(MONDAY_MS, held(ADA)), tick(MONDAY_MS + MINUTE_MS, held(moved))])
    assert jobs(report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)) == {"ada": "4712"}


def test_views_have_it_as_their_last_column(folder: Path) -> None:
    with closing(sqlite3.connect(path_of(str(folder)))) as connection:
        for view, count in ("episode_days", 9), ("episodes", 3):
            assert [row[1] for row in connection.execute(f"PRAGMA table_info({view})")][-1] == "slurm_job"
            rows = connection.execute(f"SELECT identity, slurm_job FROM {view}").fetchall()
            assert (len(rows), dict(rows)) == (count, EXPECTED)


def test_rows_in_notebooks_have_it_too(folder: Path) -> None:
    frame = gua_report.load(start=DAYS[0], end=DAYS[1], tz="UTC", data_dir=str(folder)).processes
    found = {
        who: job if isinstance(job, str) else None
        for who, job in zip(frame["identity"], frame["slurm_job"], strict=True)
    }
    assert found == EXPECTED


def test_where_days_meet_the_one_that_knows_tells(folder: Path) -> None:
    change(path_of(str(folder)), f"UPDATE episode SET slurm_job = NULL WHERE day_id = {number_of(DAYS[0])}")
    expire(folder, *DAYS[:2])
    assert jobs(whole(folder)) == EXPECTED


@pytest.mark.parametrize("job", ["x'00ff'", "'" + "9" * 20_000 + "'"])
def test_a_job_that_no_gua_writes_costs_the_rollups_but_not_the_report(folder: Path, job: str) -> None:
    change(
        path_of(str(folder)),
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'STRICT, ', '')",
    )
    change(path_of(str(folder)), f"UPDATE episode SET slurm_job = {job} WHERE day_id = {number_of(DAYS[0])}")
    report = whole(folder)
    assert report.from_rollups_seconds < 2.5 * DAY_MS / 1000
    assert jobs(report) == EXPECTED


def test_a_report_without_names_has_no_jobs(folder: Path) -> None:
    report = whole(folder)
    nameless = without_names(report, number_people([report]))
    assert nameless.episodes["slurm_job"].isna().all()
