"""What gua doctor makes of the history: ticks, clock, partitions, rollups and the published copy."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.config import load_config
from gua_report.doctor import driver as doctor_driver
from gua_report.doctor import history as doctor_history
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, ok, warning
from gua_report.doctor.history import check_published
from gua_report.rollups import schema
from gua_report.rollups.index import Meta, path_of, published_path
from gua_report.rollups.writer import RollupWriter
from gua_report.ticks.newest import list_history
from gua_report.upkeep.nightly import Upkeep
from gua_report.upkeep.outputs import write_copy
from gua_sample import pending, store
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Boot, Tick
from tests.facts import history, newest, statuses
from tests.lab import HOUR_MS, NOON_MS, SECOND_MS


def every(seconds: int, count: int, end_ms: int) -> list[int]:
    """Times that far apart, up to the last one."""
    return [end_ms - seconds * SECOND_MS * place for place in reversed(range(count))]


@pytest.mark.parametrize(
    ("seconds", "age_seconds", "status"),
    [(30, 75, OK), (30, 76, ERROR), (60, 150, OK), (60, 151, ERROR), (1, 75, OK), (1, 76, ERROR)],
)
def test_a_tick_is_stale_after_2_and_a_half_intervals(
    tmp_path: Path, seconds: int, age_seconds: int, status: str
) -> None:
    samples = history(tmp_path, *every(seconds, 30, NOON_MS - age_seconds * SECOND_MS))
    found = newest(samples)
    assert found.status == status
    assert found.remedy == (None if status == OK else "JOURNAL")


def test_the_interval_is_measured_across_midnight_unless_it_was_told(tmp_path: Path) -> None:
    midnight_ms = NOON_MS - DAY_MS // 2
    samples = history(tmp_path, *every(300, 30, midnight_ms))
    assert len(os.listdir(samples)) == 2
    told = history(tmp_path / "told", *every(30, 5, NOON_MS), interval_ms=600_000)
    for folder, end_ms, seconds in ((samples, midnight_ms, 750), (told, NOON_MS, 1500)):
        assert newest(folder, end_ms + seconds * SECOND_MS).status == OK
        assert newest(folder, end_ms + (seconds + 1) * SECOND_MS).status == ERROR


@pytest.mark.parametrize(
    ("problem", "words", "remedy"),
    [
        ("driver_not_loaded", "not loaded", "sudo modprobe nvidia; nvidia-smi"),
        ("driver_hangs", "reboot", "sudo reboot"),
        ("timeout", "killed", "sudo dmesg | grep -i nvrm"),
        ("something_new", "something_new", doctor_driver.OTHER_COMMAND),
    ],
)
def test_a_recorded_error_is_explained(tmp_path: Path, problem: str, words: str, remedy: str) -> None:
    found = newest(history(tmp_path, NOON_MS, problem=problem))
    assert (found.status, found.remedy) == (ERROR, remedy)
    assert words in found.text


def test_ticks_of_the_future_do_not_hide_that_the_newest_is_stale(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000, NOON_MS + 3_600_000, NOON_MS + 3 * DAY_MS)
    assert newest(samples).status == ERROR
    first, second = doctor_history.check_clock(list_history(samples), NOON_MS)
    future = f"{samples}/2026-11-19.sqlite"
    assert first == warning(
        "clock",
        f"{future} is of a day to come: was the clock set back, or wrong?",
        f"timedatectl; sudo mv -T {future} {future}.future",
    )
    assert (second.status, second.text[:6]) == (WARNING, "1 tick")


def test_a_clock_before_gua_existed_is_an_error_and_judges_nothing(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    found = list_history(samples)
    assert statuses(doctor_history.check_clock(found, 0)) == [ERROR]
    assert newest(samples, 0).status == WARNING
    assert statuses(doctor_history.check_clock(found, NOON_MS)) == [OK]


def test_a_tick_that_waits_beside_its_partition_is_the_newest_if_it_is_a_small_file_of_gua(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000)
    kept = Path(pending.keep(samples, Tick(NOON_MS, None, Boot("boot", 5), None, 1, None, [], {}, [])))
    found = newest(samples)
    assert (found.status, "waits" in found.text) == (OK, True)
    text = kept.read_text()
    for other in ("no kept tick", text[0] + " " * pending.MOST_BYTES + text[1:]):  # the latter the same to JSON
        kept.write_text(other)
        assert newest(samples).status == ERROR
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    recorded = list_history(samples)
    assert (recorded.strange, recorded.others) == ((kept.name,), [])
    assert check_partitions(samples)[1].text.startswith(f"{kept.name} is no regular file")


def check_partitions(samples: str) -> list[Finding]:
    return doctor_history.check_partitions(list_history(samples), NOON_MS, "START")


def test_partitions_are_counted_and_progress_is_told(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (9, 2, 1, 0)))
    steps: list[tuple[int, int]] = []
    found = list_history(samples)
    (summary,) = doctor_history.check_partitions(found, NOON_MS, "START", lambda *step: steps.append(step))
    assert summary.text.startswith("4 days, 2026-11-07 to 2026-11-16, ")
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (1, 1)]
    assert check_partitions(str(tmp_path / "nowhere")) == [ok("partitions", "none")]


def test_what_lies_beside_the_partitions_is_mentioned(tmp_path: Path) -> None:
    folder = Path(history(tmp_path, NOON_MS))
    for name in ("2026-11-15.sqlite.corrupt-1", "2026-11-15.sqlite.corrupt-1-journal", "2026-11-14.0a.pending"):
        (folder / name).touch()
    (folder / "2026-11-13.sqlite-journal").touch()
    found = check_partitions(str(folder))[1:]
    assert [one.text.split(":")[0] for one in found] == [
        "1 file set aside as corrupt",
        "1 tick waiting, as somebody holds 2026-11-14.sqlite",
    ]
    assert statuses(found) == [WARNING, WARNING]
    os.utime(folder / "2026-11-13.sqlite-journal", (0, 0))  # no run is going on any more
    left = check_partitions(str(folder))[-1]
    assert (left.status, left.remedy) == (WARNING, "START")
    assert left.text.startswith("2026-11-13.sqlite-journal was left")


@pytest.mark.parametrize("name", ["2026-11-15.sqlite", "2026-11-15.sqlite-journal", "2026-11-15.sqlite-wal"])
def test_a_pipe_among_the_partitions_is_named_and_not_opened(tmp_path: Path, name: str) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS, NOON_MS))
    (samples / name).unlink(missing_ok=True)
    os.mkfifo(samples / name)
    recorded = list_history(str(samples))
    assert recorded.partitions == [f"{samples}/2026-11-16.sqlite"]
    found = check_partitions(str(samples))[1]
    assert (found.status, found.text) == (WARNING, f"{name} is no regular file, and was not looked into")
    assert found.remedy == f"sudo mv -T {samples}/{name} {samples}/{name}.strange"


def test_what_can_not_be_todays_partition_is_an_error(tmp_path: Path) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS))
    today = samples / "2026-11-16.sqlite"
    today.mkdir()
    assert statuses(check_partitions(str(samples))) == [OK, ERROR]
    today.rmdir()
    today.symlink_to("2026-11-15.sqlite")  # the sampler can write through it
    assert statuses(check_partitions(str(samples))) == [OK, WARNING]


def check_rollups(samples: str) -> list[Finding]:
    return doctor_history.check_rollups(list_history(samples), NOON_MS, "ROLL UP")


def test_closed_days_that_are_not_rolled_up_are_a_warning(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (1, 0)))
    assert check_rollups(samples) == []  # yesterday may still wait for the timer
    store.append(samples, Tick(NOON_MS - 2 * DAY_MS, None, Boot("boot", 5), None, 1, None, [], {}, []), pytest.fail)
    (finding,) = check_rollups(samples)
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert finding.text.startswith("1 closed day not rolled up, 2026-11-14 for one")
    Upkeep(str(tmp_path / "data"), load_config(None), NOON_MS, False, print).run(False, False, None)
    (finding,) = check_rollups(samples)
    assert finding.status == OK
    assert finding.text.startswith("2 days, 2026-11-14 to 2026-11-15, ")


def test_rollups_that_are_damaged_or_newer_are_a_warning(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    rollups = tmp_path / "data" / "rollups.sqlite"
    rollups.write_text("garbage, and more than sixteen bytes of it")
    (finding,) = check_rollups(samples)
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert finding.text.endswith("reports do without it")
    rollups.unlink()
    with closing(sqlite3.connect(rollups)) as connection:
        for statement in (*schema.TABLES.values(), f"PRAGMA application_id = {schema.APPLICATION_ID}"):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 99")
    (finding,) = check_rollups(samples)
    assert "upgrade gua" in finding.text


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A data folder with a copy that was published at noon."""
    with RollupWriter(path_of(str(tmp_path))):
        pass
    write_copy(path_of(str(tmp_path)), str(tmp_path), Meta("lab7", None, "0.1.0", NOON_MS, None))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("is_wanted", "hours", "status", "said"),
    [
        (True, 5, OK, "as lab7, 5h ago, "),
        (True, 48, OK, "as lab7, 2d ago, "),
        (True, 49, WARNING, "as lab7, 2d 1h ago, "),  # two nights did not renew it
        (False, 0, WARNING, "names people"),
    ],
)
def test_a_copy_is_told_by_name_and_age(folder: str, is_wanted: bool, hours: int, status: str, said: str) -> None:
    (finding,) = check_published(folder, is_wanted, NOON_MS + hours * HOUR_MS, "ROLL UP")
    assert (finding.status, said in finding.text) == (status, True)
    assert is_wanted or finding.remedy == "ROLL UP"


def test_a_copy_that_is_missing_or_damaged_is_a_warning_if_one_is_asked_for(folder: str) -> None:
    Path(published_path(folder)).write_bytes(b"garbage, and more than sixteen bytes of it")
    for _ in range(2):
        (finding,) = check_published(folder, True, NOON_MS, "ROLL UP")
        assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
        Path(published_path(folder)).unlink(missing_ok=True)
    assert check_published(folder, False, NOON_MS, "ROLL UP") == []
