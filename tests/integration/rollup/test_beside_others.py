"""gua rollup beside readers, samplers, reports and itself: none hinders another, and no tick is lost."""

import json
import os
import pty
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rollup import five_days as five
from tests.integration.rollup.runs import Runs
from tests.lab import MINUTE_MS, Report, report_of
from tests.machine import SCRIPTS, one_line, query
from tests.rolling import OLD, RECENT, partition


def held_by_a_reader(data_dir: Path) -> closing[sqlite3.Connection]:
    """A notebook with an open cursor."""
    reader = sqlite3.connect(f"file:{data_dir}/rollups.sqlite?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM card_hour").fetchone()
    return closing(reader)


def test_a_person_at_a_terminal_sees_progress_and_a_reader_is_waited_for(rolled_up: Path) -> None:
    terminal, end = pty.openpty()
    with held_by_a_reader(rolled_up):
        process = subprocess.Popen(five.command(rolled_up, "--rebuild"), stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        journal = rolled_up / "rollups.sqlite-journal"
        deadline = time.monotonic() + 20
        while not journal.exists():
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.05)
        time.sleep(0.6)
    shown = b""
    with suppress(OSError):  # what the other end's closing looks like
        while data := os.read(terminal, 1000):
            shown += data
    os.close(terminal)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert b"rolled up 4 days" in output
    assert b" %\x1b[K" in shown
    assert shown.endswith(b"\r\x1b[K")  # and nothing of it stays
    assert b"\n" not in shown


def test_a_reader_that_never_leaves_is_named(
    rolled_up: Path, expected: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    five.add_late_tick(rolled_up, five.START_MS + 1)
    connect: Any = sqlite3.connect

    def impatient(*arguments: Any, timeout: float = 5.0, **keywords: Any) -> sqlite3.Connection:
        """It would be half a minute."""
        connection: sqlite3.Connection = connect(*arguments, timeout=min(timeout, 0.3), **keywords)
        return connection

    with held_by_a_reader(rolled_up):
        monkeypatch.setattr(sqlite3, "connect", impatient)
        done = five.here("rollup", rolled_up)
        monkeypatch.setattr(sqlite3, "connect", connect)
        assert done.returncode == 1
        assert one_line(done.stderr)
        assert f"{rolled_up}/rollups.sqlite is held by another process" in done.stderr
    report = report_of(rolled_up, five.START_MS, five.END_MS)
    assert report.headline["gpu_hours"].sum() == pytest.approx(expected.headline["gpu_hours"].sum())
    done = five.here("rollup", rolled_up)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rolled up 1 day " in done.stdout


def test_sampler_rollups_and_reports_do_not_hinder_each_other(rolled_up: Path) -> None:
    stop = threading.Event()
    sample = [str(SCRIPTS / "gua-sample"), "--simulate", "1", "--data-dir", str(rolled_up)]
    report = [str(SCRIPTS / "gua-report"), "--since", "10d", "--json", "--data-dir", str(rolled_up)]

    def run(words: list[str]) -> five.Done:
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def until_stopped(words: list[str]) -> list[five.Done]:
        found = [run(words)]
        while not stop.is_set():
            found.append(run(words))
        return found

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(until_stopped, words) for words in (sample, report)]
        done = list(pool.map(run, [five.command(rolled_up, "--rebuild")] * 3))
        stop.set()
        samples, reports = (future.result() for future in others)
    samples.append(run(sample))  # takes in what had to wait
    for one in [*samples, *done, *reports]:
        assert (one.returncode, one.stderr) == (0, ""), one.args
    assert len(samples) > 5
    for one in reports:
        assert json.loads(one.stdout)["headline"]["states"]["active"]["gpu_hours"] > 0
    today = query(partition(rolled_up, five.TODAY), "SELECT ts_ms FROM ticks")
    assert len({row["ts_ms"] for row in today}) == len(today) == 1 + len(samples)
    assert not [name for name in five.files(rolled_up) if name.endswith(".pending")]


def test_some_at_once_do_it_once_and_none_fail(untouched: Path, expected: Report, driver: Path, tmp_path: Path) -> None:
    path = five.write_config(tmp_path / "gua.toml", raw_days=five.KEPT_DAYS, csv_days=five.KEPT_DAYS)
    with Runs(driver, tmp_path, "--config", path) as runs:
        for number in range(2):
            data_dir = five.copy(untouched, tmp_path / f"data-{number}")
            statuses = runs.run(data_dir, count=3)
            assert runs.errors() == ""
            assert statuses == [0] * 3
            assert five.files(data_dir) == five.whole([*RECENT, five.TODAY], RECENT)
            five.assert_report(data_dir, expected)


def test_a_tick_during_the_compaction_counts(rolled_up: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits to write to the partition gets in at the very moment when it is packed, and before that is noted."""
    utime, writers = os.utime, []
    count = len(query(partition(rolled_up, OLD[0]), "SELECT * FROM ticks"))  # a laboratory misses some now and then

    def add_and_set_times(path: Any, *arguments: Any, **keywords: Any) -> None:
        if str(path) == str(partition(rolled_up, OLD[0])):
            writers.append(
                threading.Thread(target=five.add_late_tick, args=(rolled_up, five.START_MS + 30 * MINUTE_MS))
            )
            writers[0].start()
            writers[0].join(0.3)
            assert writers[0].is_alive()  # it waits
        utime(path, *arguments, **keywords)

    monkeypatch.setattr(os, "utime", add_and_set_times)
    assert five.here("rollup", rolled_up, "--compact").returncode == 0
    monkeypatch.undo()
    writers[0].join()
    assert len(query(partition(rolled_up, OLD[0]), "SELECT * FROM ticks")) == count + 1
    done = five.here("rollup", rolled_up, "--config", config, "--json")
    assert json.loads(done.stdout)["rolled_up"] == OLD[:1]  # the one beside it takes nothing from that tick
