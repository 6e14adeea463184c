"""How much was observed, why the rest was not, and what can't be read."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from gua_report.ticks.coverage import DRIVER_ERROR, HOST_DOWN, KILLED, NOT_READABLE, NOT_RUNNING, mark_days
from gua_report.ticks.history import History
from gua_sample import schema, store
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.partition_names import day_of, partition_path, samples_dir
from gua_sample.records import IMPORTED_BOOT, TIMEOUT, Tick
from tests.lab import (
    DAY_MS,
    MINUTE_MS,
    MONDAY_MS,
    SECOND_MS,
    Report,
    busy,
    free,
    held,
    hours,
    minutes,
    report_minutes,
    report_of,
    series,
    tick,
    write,
    write_story,
)


def gaps(report: Report) -> list[tuple[int, int, str]]:
    """In minutes from Monday on."""
    return [
        ((start - MONDAY_MS) // MINUTE_MS, (end - MONDAY_MS) // MINUTE_MS, kind)
        for start, end, kind in report.gaps.itertuples(index=False)
    ]


def watched(start: int, end: int, boot: str = "boot-1", error: str | None = None) -> list[Tick]:
    """Minutes of a card that is held, or of a driver that fails."""
    cards = [] if error else [held()]
    return minutes(start, end, *cards, interval_ms=MINUTE_MS, boot=boot, error=error)


def write_days(folder: Path, story: str) -> tuple[int, int]:
    """Write minutes of a card that is held. A driver that was killed is the error of a timeout."""
    return write_story(folder, story, {"held": held()}, interval_ms=MINUTE_MS)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("held 60", []),
        ("held 20 hole 30 held 10", [(20, 50, NOT_RUNNING)]),
        ("held 20 hole 10 held@boot-2 30", [(20, 30, HOST_DOWN)]),
        # What an import made up says nothing of the host.
        (
            f"held@{IMPORTED_BOOT}one 20 hole 10 held@{IMPORTED_BOOT}two 10 hole 10 held 10",
            [(20, 30, NOT_RUNNING), (40, 50, NOT_RUNNING)],
        ),
        ("held 20 driver_not_loaded 10 held 30", [(20, 30, DRIVER_ERROR)]),
        (f"held 20 {TIMEOUT} 5 unknown 5 held 30", [(20, 25, KILLED), (25, 30, DRIVER_ERROR)]),
        ("held 30 hole 1 held 29", []),  # a late tick
        ("-60: held 30 hole 60 held 30", [(-30, 30, NOT_RUNNING)]),  # over midnight
        (f"held 10 hole {5 * 24 * 60 - 10} held 10", [(10, 5 * 24 * 60, NOT_RUNNING)]),  # days without a partition
    ],
)
def test_why_a_time_was_not_observed(tmp_path: Path, story: str, expected: list[tuple[int, int, str]]) -> None:
    start, end = write_days(tmp_path, story)
    report = report_minutes(tmp_path, start, end)
    assert gaps(report) == expected
    observed = end - start - sum(until - since for since, until, _ in expected)
    assert report.observed_seconds == observed * 60
    assert report.coverage_share == pytest.approx(observed / (end - start))
    assert sum(hours(report).values()) == pytest.approx(observed / 60)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(5, 30, [(10, 30)]), (5, 55, [(10, 50)]), (0, 75, [(10, 50), (60, 75)])],
)
def test_gaps_are_cut_to_the_window_and_begin_when_an_interval_is_over(
    tmp_path: Path, start: int, end: int, expected: list[tuple[int, int]]
) -> None:
    write_days(tmp_path, "held 10 hole 40 held 10")
    assert gaps(report_minutes(tmp_path, start, end)) == [(*gap, NOT_RUNNING) for gap in expected]


def seconds_of(folder: Path, ticks: list[Tick], end: int) -> list[tuple[int, int, str]]:
    """The gaps of these ticks, in seconds from Monday on."""
    write(folder, ticks)
    found = report_of(folder, MONDAY_MS, MONDAY_MS + end * SECOND_MS).gaps
    return [((start - MONDAY_MS) // 1000, (end - MONDAY_MS) // 1000, kind) for start, end, kind in found.to_numpy()]


def half_minutes(start: int, end: int, boot: str = "boot-1") -> list[Tick]:
    """Ticks as the timer makes them, from one second on up to before another."""
    return series(
        MONDAY_MS + start * SECOND_MS,
        (end - start) // 30,
        held(),
        every_ms=30 * SECOND_MS,
        interval_ms=30 * SECOND_MS,
        boot=boot,
    )


def failed(start: int, seconds: int | None, error: str = TIMEOUT) -> list[Tick]:
    """A run that failed after so long."""
    nvml_ms = None if seconds is None else seconds * SECOND_MS
    return [tick(MONDAY_MS + start * SECOND_MS, interval_ms=30 * SECOND_MS, error=error, nvml_ms=nvml_ms)]


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        # A long rest afterwards is a sampler that did not run; one of two and a half intervals is due to the run, too.
        (failed(300, 95) + half_minutes(480, 900), [(300, 395, KILLED), (395, 480, NOT_RUNNING)]),
        (failed(300, 105) + half_minutes(480, 900), [(300, 480, KILLED)]),
        # It never accounts for the time of the next tick: somebody ran the sampler by hand meanwhile.
        (failed(300, 500) + half_minutes(390, 900), [(300, 390, KILLED)]),
        (failed(300, 95) + half_minutes(420, 900, "boot-2"), [(300, 395, KILLED), (395, 420, HOST_DOWN)]),
        ([one for at in range(300, 780, 120) for one in failed(at, 95)] + half_minutes(780, 900), [(300, 780, KILLED)]),
        # One that failed at once accounts for one interval.
        *(
            (
                failed(300, seconds, "unknown") + half_minutes(390, 900),
                [(300, 330, DRIVER_ERROR), (330, 390, NOT_RUNNING)],
            )
            for seconds in (0, 30, None)
        ),
        # A slow one that succeeded does not hide a hole.
        (
            [one._replace(nvml_ms=80_000) for one in half_minutes(300, 330)] + half_minutes(390, 900),
            [(330, 390, NOT_RUNNING)],
        ),
    ],
)
def test_the_time_of_a_run_that_hung(tmp_path: Path, ticks: list[Tick], expected: list[tuple[int, int, str]]) -> None:
    assert seconds_of(tmp_path, half_minutes(0, 300) + ticks, 900) == expected


@pytest.mark.parametrize(("error", "kind"), [(TIMEOUT, KILLED), ("unknown", DRIVER_ERROR)])
def test_a_run_that_hung_accounts_for_the_time_until_the_timer_fires_again(
    tmp_path: Path, error: str, kind: str
) -> None:
    ticks = half_minutes(0, 300) + failed(300, 95, error) + half_minutes(420, 900)
    assert seconds_of(tmp_path, ticks, 900) == [(300, 420, kind)]
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 900 * SECOND_MS)
    assert report.observed_seconds == 900 - 120
    assert sum(hours(report).values()) == pytest.approx((900 - 120) / 3600)


def test_of_the_newest_run_only_the_time_it_hung_is_known(tmp_path: Path) -> None:
    ticks = half_minutes(0, 300) + failed(300, 95)
    assert seconds_of(tmp_path, ticks, 400) == [(300, 395, KILLED), (395, 400, NOT_RUNNING)]
    assert seconds_of(tmp_path, [], 390) == [(300, 390, KILLED)]


def test_a_run_that_hung_over_midnight_is_one_gap_whatever_the_window(tmp_path: Path) -> None:
    write(tmp_path, half_minutes(-600, -30) + failed(-30, 95) + half_minutes(90, 600))
    for start, expected in ((-300, -30), (-20, -20)):
        found = report_of(tmp_path, MONDAY_MS + start * SECOND_MS, MONDAY_MS + 600 * SECOND_MS).gaps
        assert found.to_numpy().tolist() == [[MONDAY_MS + expected * SECOND_MS, MONDAY_MS + 90 * SECOND_MS, KILLED]]


def test_the_window_starts_at_the_oldest_sample_if_that_is_younger(tmp_path: Path) -> None:
    write(tmp_path, watched(10, 30))
    report = report_minutes(tmp_path, -1000, 30)
    assert report.window.start_ms == MONDAY_MS + 10 * MINUTE_MS
    assert report.requested.start_ms == MONDAY_MS - 1000 * MINUTE_MS
    assert report.coverage_share == 1
    assert gaps(report) == []


def test_a_driver_that_never_worked_is_no_report_but_a_line_with_its_error(tmp_path: Path) -> None:
    write(tmp_path, watched(0, 20, error="unknown") + watched(20, 30, error="driver_not_loaded"))
    with pytest.raises(NothingToReport) as raised:
        report_minutes(tmp_path, 0, 30)
    assert str(raised.value) == (
        "no card was seen from 2026-11-16 00:00 to 2026-11-16 00:30 UTC, as the driver failed (driver_not_loaded):"
        f" run gua doctor --data-dir {tmp_path}"
    )


def test_a_day_of_driver_errors_does_not_spoil_the_others(tmp_path: Path) -> None:
    day = DAY_MS // MINUTE_MS
    write(tmp_path, watched(0, 30) + watched(day, day + 30, error="unknown") + watched(2 * day, 2 * day + 30))
    report = report_minutes(tmp_path, 0, 3 * day)
    assert hours(report)["idle-held"] == pytest.approx(1)
    assert report.gpus["uuid"].tolist() == ["GPU-0"]


def test_no_history_at_all_is_nothing_to_report(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NothingToReport, match="run gua doctor") as caught:
            report_minutes(folder, 0, 60)
        assert caught.value.exit_code == 3
        assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("start", "end"), [(-600, -60), (-60, 0), (30, 60), (500, 600), (9000, 9060), (20_000, 20_001)]
)
def test_a_window_without_a_tick_is_nothing_to_report(tmp_path: Path, start: int, end: int) -> None:
    write(tmp_path, watched(0, 30) + watched(15_000, 15_030))
    with pytest.raises(NothingToReport):
        report_minutes(tmp_path, start, end)


def partition(folder: Path, ts_ms: int = MONDAY_MS) -> str:
    return partition_path(samples_dir(str(folder)), day_of(ts_ms))


def three_days(folder: Path) -> None:
    """Monday to Wednesday, an hour's idle holding on each, up to and from midnight on."""
    ticks = (
        watched(24 * 60 - 60, 24 * 60)
        + watched(24 * 60, 24 * 60 + 60)
        + watched(48 * 60 - 30, 48 * 60)
        + watched(48 * 60, 48 * 60 + 60)
    )
    write(folder, ticks)


def damage(path: str, table: str) -> None:
    """Overwrite the pages of one table: the file opens, its other tables can be read."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


def spoil(path: str, how: str) -> None:
    if how == "corrupt":
        Path(path).write_bytes(b"this was a partition" * 1000)
    elif how == "newer":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    elif how in ("foreign", "folder"):
        os.unlink(path)
        if how == "folder":
            os.mkdir(path)  # root, too, can't read that as a file
            return
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE recipes (name)")
    else:
        damage(path, how)


SPOILED = ["corrupt", "newer", "foreign", "folder", "tick", "card_sample", "process_sample", "card"]


@pytest.mark.parametrize("how", SPOILED)
def test_a_partition_that_can_not_be_read_is_named_and_costs_no_other_day(tmp_path: Path, how: str) -> None:
    three_days(tmp_path)
    path = partition(tmp_path, MONDAY_MS + DAY_MS)
    spoil(path, how)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 3 * DAY_MS)
    assert hours(report)["idle-held"] == pytest.approx(2)
    assert report.observed_seconds == pytest.approx(2 * 3600)
    (warning,) = report.warnings
    assert path in warning
    assert ("upgrade" in warning) == (how == "newer")


@pytest.mark.parametrize("how", SPOILED)
def test_the_only_partition_damaged_is_an_error_that_names_it(tmp_path: Path, how: str) -> None:
    write(tmp_path, watched(0, 60))
    spoil(partition(tmp_path), how)
    with pytest.raises(StoreError) as caught:
        report_minutes(tmp_path, 0, 60)
    assert partition(tmp_path) in str(caught.value)


def test_an_empty_partition_is_passed_over_in_silence(tmp_path: Path) -> None:
    three_days(tmp_path)
    Path(partition(tmp_path, MONDAY_MS + 3 * DAY_MS)).touch()
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 3 * DAY_MS)
    assert hours(report)["idle-held"] == pytest.approx(3.5)
    assert report.warnings == []


def test_a_partition_outside_the_window_is_not_even_looked_at(tmp_path: Path) -> None:
    write(tmp_path, [one for day in range(-9, 9) for one in watched(day * 24 * 60, day * 24 * 60 + 60)])
    for day in (-6, 6):
        Path(partition(tmp_path, MONDAY_MS + day * DAY_MS)).write_bytes(b"broken" * 1000)
    report = report_minutes(tmp_path, 0, 60)
    assert hours(report)["idle-held"] == pytest.approx(1)
    assert report.warnings == []


def test_a_tick_that_comes_late_while_a_report_is_made_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, series(MONDAY_MS, 10, busy()))
    timeline = History.timeline

    def look_and_then_wait(self: History, days: list[str]) -> pd.DataFrame:
        found = timeline(self, days)
        monkeypatch.undo()
        # What a run had to leave beside the partition is taken in by a later one.
        store.append_history(samples_dir(str(tmp_path)), [tick(MONDAY_MS + 5 * MINUTE_MS + 1, free(), free(1))])
        return found

    monkeypatch.setattr(History, "timeline", look_and_then_wait)
    assert hours(report_minutes(tmp_path, 0, 10)) == pytest.approx(
        {"active": 1 / 6, "idle-held": 0, "truly-idle": 0, "unknown": 0}
    )


def test_what_lies_in_a_partition_that_can_not_be_read_says_so() -> None:
    day, hour = DAY_MS, 60 * MINUTE_MS
    gaps = [(MONDAY_MS - hour, MONDAY_MS + 2 * day, NOT_RUNNING), (MONDAY_MS + 3 * day, MONDAY_MS + 4 * day, HOST_DOWN)]
    marked = mark_days(gaps, dict.fromkeys(["2026-11-16", "2026-11-19"], NOT_READABLE))
    assert marked == [
        (MONDAY_MS - hour, MONDAY_MS, "sampler not running"),
        (MONDAY_MS, MONDAY_MS + day, "partition not readable"),
        (MONDAY_MS + day, MONDAY_MS + 2 * day, "sampler not running"),
        (MONDAY_MS + 3 * day, MONDAY_MS + 4 * day, "host down"),
    ]
