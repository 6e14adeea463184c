"""What an import does to a data folder that has ticks of its own, or had some, or got these before."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.commands import import_
from gua_report.config import Retention, load_config
from gua_report.upkeep.nightly import Done, Upkeep
from gua_sample import store
from tests.gpu_usage_audit import FIRST_SEEN_MS, NOON_MS, PeerDatabase, Seen, times
from tests.import_target import Target, left_out
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Gpu, busy, series, tick, write


def roll_up(folder: Path, raw_days: int | None = None) -> Done:
    config = load_config(None)._replace(retention=Retention(raw_days=raw_days, csv_days=0))
    return Upkeep(str(folder), config, NOON_MS + 9 * DAY_MS, False, print).run(False, False, None)


def test_days_whose_ticks_have_expired_are_final_which_is_said_and_no_failure(
    new: PeerDatabase, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    new.start(NOON_MS)
    new.add(times(NOON_MS, 5), Seen(3))
    target.imports(new.path)
    assert len(roll_up(target.folder, raw_days=1).removed) == 1
    before = target.report(NOON_MS, NOON_MS + HOUR_MS)
    capsys.readouterr()
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 0
    said = capsys.readouterr()
    assert "took       nothing\nleft out   5 ticks of days whose ticks were removed, and whose sums are" in said.out
    assert said.err == ""
    new.add(times(NOON_MS + HOUR_MS, 5) + times(NOON_MS + DAY_MS, 5), Seen(3))
    told = target.imports(new.path)
    assert told["taken"]["ticks"] == 5
    (left,) = told["left_out"]
    assert (left["count"], left["reason"]) == (10, "of days whose ticks were removed, and whose sums are final")
    assert target.report(NOON_MS, NOON_MS + HOUR_MS)["headline"] == before["headline"]


def test_a_second_import_takes_nothing_and_a_later_one_what_is_new(new: PeerDatabase, target: Target) -> None:
    new.add(times(NOON_MS, 5), Seen(50))
    assert target.imports(new.path)["taken"]["ticks"] == 5
    again = target.imports(new.path)
    assert (again["taken"]["ticks"], again["there_already"]["ticks"]) == (0, 5)
    new.add(times(NOON_MS + 150 * SECOND_MS, 2), Seen(50))
    new.start(NOON_MS + 3 * MINUTE_MS)
    new.add(times(NOON_MS + 205 * SECOND_MS, 3), Seen(50))
    later = target.imports(new.path)
    assert (later["taken"]["ticks"], later["there_already"]["ticks"], later["left_out"]) == (5, 5, [])
    assert len(target.rows("ticks")) == 10


def test_a_dry_run_says_the_same_and_writes_nothing(new: PeerDatabase, target: Target) -> None:
    new.add([*times(NOON_MS, 3), "2999-01-01T00:00:00+00:00"], Seen(50))
    planned = target.imports(new.path, "--dry-run")
    assert not target.folder.exists()
    done = target.imports(new.path)
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    assert planned | {"dry_run": False} == done


def test_times_that_our_sampler_has_recorded_are_left_to_it(new: PeerDatabase, target: Target) -> None:
    """It had a hole of some minutes, which is filled."""
    ours = series(NOON_MS, 20, busy(), every_ms=30_000) + series(NOON_MS + 20 * MINUTE_MS, 20, busy(), every_ms=30_000)
    write(target.folder, ours)
    new.add(times(NOON_MS - 10 * MINUTE_MS + 7000, 80), Seen(0))
    said = target.imports(new.path)
    taken = [row["ts_ms"] for row in target.rows("ticks") if row["boot_id"] != "boot-1"]
    assert said["taken"]["ticks"] == len(taken) == 38
    assert all(abs(ts_ms - tick.ts_ms) >= 30_000 for ts_ms in taken for tick in ours)
    assert left_out(said) == {"tick at times that another sampler has recorded there": 42}
    again = target.imports(new.path)
    assert (again["taken"]["ticks"], left_out(again)) == (0, left_out(said))


def test_days_with_another_hosts_ticks_are_refused(new: PeerDatabase, target: Target) -> None:
    write(target.folder, series(NOON_MS, 20, Gpu(uuid="GPU-other"), every_ms=30_000))
    new.add(times(NOON_MS + 5000, 10), Seen(0))
    new.add(times(NOON_MS + DAY_MS, 10), Seen(0))
    said = target.imports(new.path, status=1)
    assert [one["what"] for one in said["refused"]] == ["2026-10-05"]
    assert "one host's: give another --data-dir" in target.errors
    assert "is this the same host?" in said["warnings"][0]
    assert said["taken"]["days"] == ["2026-10-06"]


def test_a_partition_that_is_held_is_refused_after_some_tries(
    new: PeerDatabase, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_sample.partition_file.BUSY_SECONDS", 0.01)
    new.add(times(NOON_MS, 3), Seen(50))
    new.add(times(NOON_MS + DAY_MS, 3), Seen(50))
    target.imports(new.path, "--dry-run")
    samples = store.prepare(str(target.folder))
    write(target.folder, [tick(FIRST_SEEN_MS, Gpu(uuid="GPU-0"))])
    with closing(sqlite3.connect(Path(samples) / "2026-10-05.sqlite", isolation_level=None)) as reader:
        cursor = reader.execute("SELECT * FROM sqlite_master")
        reader.execute("BEGIN IMMEDIATE")
        said = target.imports(new.path, status=1)
        cursor.close()
    assert [one["what"] for one in said["refused"]] == ["2026-10-05"]
    assert "is held by another process" in target.errors
    assert said["taken"]["days"] == ["2026-10-06"]
    assert target.imports(new.path)["taken"]["days"] == ["2026-10-05"]
