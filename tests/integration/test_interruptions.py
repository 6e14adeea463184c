"""Two at once, readers in the way, clocks and midnight, kill -9: no lost or doubled tick, never half of one."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.ticks.open_partition import open_partition
from tests.lab import DAY_MS, MONDAY_MS
from tests.machine import Machine, query
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_root, run_as_somebody, sampler_for_others

CARDS = 4
KILLED = -signal.SIGKILL


@pytest.fixture
def lab(machine: Machine) -> Machine:
    for _ in range(CARDS):
        machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    return machine


def assert_whole(machine: Machine, ticks: int) -> None:
    """Every tick has all its cards and processes, and the files are sound."""
    for path in machine.partitions():
        assert query(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    times = [tick["ts_ms"] for tick in machine.ticks()]
    assert len(times) == len(set(times)) == ticks
    for view in ("card_ticks", "process_ticks"):
        assert {row["ts_ms"] for row in machine.rows(view)} == set(times)
        assert len(machine.rows(view)) == ticks * CARDS


def count_read_by_report(path: Path) -> int:
    """What a reader sees, whatever state the file is in."""
    with open_partition(str(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ticks: int = connection.execute("SELECT count(*) FROM ticks").fetchone()[0]
        assert connection.execute("SELECT count(*) FROM card_ticks").fetchone()[0] == ticks * CARDS
    return ticks


@pytest.mark.parametrize("clock_ms", [None, MONDAY_MS, MONDAY_MS - 1, MONDAY_MS + DAY_MS // 3])
def test_samplers_at_the_same_time_each_record_their_tick_in_their_day(lab: Machine, clock_ms: int | None) -> None:
    """Also in the same millisecond."""
    variables = lab.environment(clock_ms=clock_ms)
    samplers = [subprocess.Popen(lab.command(), env=variables, stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [sampler.wait() for sampler in samplers] == [0] * 6
    assert_whole(lab, 6)
    if clock_ms is not None:
        assert {tick["ts_ms"] // DAY_MS for tick in lab.ticks()} == {clock_ms // DAY_MS}


def test_a_clock_set_back_loses_and_doubles_nothing(lab: Machine) -> None:
    complaints = [lab.sample(clock_offset_ms=days * DAY_MS).stderr for days in (0, -2, 0, 1, 0)]
    told = ["is of a day to come: was the clock set back?" in text for text in complaints]
    assert told == [False, True, False, False, True]
    assert_whole(lab, 5)
    assert len(lab.partitions()) == 3


def test_midnight_separates_the_files_and_nothing_else(lab: Machine) -> None:
    lab.scenario.cards[0].update(samples=[(1000, 10)], utilization_percent=7)
    lab.tick(clock_ms=MONDAY_MS - 1)
    lab.tick(clock_ms=MONDAY_MS)
    assert [path.name for path in lab.partitions()] == ["2026-11-15.sqlite", "2026-11-16.sqlite"]
    assert [tick["ts_ms"] for tick in lab.ticks()] == [MONDAY_MS - 1, MONDAY_MS]
    # The new day knows how far the old one had read the driver's buffer.
    assert [row["utilization_source"] for row in lab.cards("gpu_index = 0")] == ["samples", "rate"]


def test_ticks_are_kept_while_a_reader_holds_the_file_and_taken_in_once(lab: Machine) -> None:
    lab.tick()
    with closing(sqlite3.connect(lab.partitions()[0], isolation_level=None)) as reader:
        cursor = reader.execute("SELECT * FROM card_ticks")  # a notebook with an open cursor
        cursor.fetchone()
        for kept in (1, 2):
            done = lab.sample()
            assert (done.returncode, done.stderr) == (0, "")
            assert "kept in" in done.stdout
            assert len([name for name in lab.files() if name.endswith(".pending")]) == kept
        cursor.close()
    lab.tick()
    assert_whole(lab, 4)
    assert lab.files() == [lab.partitions()[0].name]


def test_ticks_kept_yesterday_are_taken_into_yesterday(lab: Machine) -> None:
    lab.tick(clock_ms=MONDAY_MS - 60_000)
    with closing(sqlite3.connect(lab.partitions()[0], isolation_level=None)) as reader:
        cursor = reader.execute("SELECT * FROM card_ticks")
        cursor.fetchone()
        assert "kept in" in lab.sample(clock_ms=MONDAY_MS - 30_000).stdout
        lab.tick(clock_ms=MONDAY_MS)  # still held: it waits on, and today is not held up by it
        cursor.close()
    lab.tick(clock_ms=MONDAY_MS + 30_000)
    assert_whole(lab, 4)
    assert [len(query(path, "SELECT * FROM ticks")) for path in lab.partitions()] == [2, 2]


@pytest.mark.real
def test_being_killed_at_any_moment_leaves_whole_ticks_readable_at_once_and_healed_by_the_next(lab: Machine) -> None:
    expected = 0
    for moment in range(1, 200):
        done = lab.sample(kill_at=moment)
        partitions = lab.partitions()
        if partitions and partitions[0].stat().st_size:
            # Readable meanwhile, journal or not: either the tick is in, or it is not.
            found = count_read_by_report(partitions[0])
            assert found - expected in (0, 1)
            expected = found
        lab.tick()
        expected += 1
        assert_whole(lab, expected)
        assert lab.files() == [path.name for path in lab.partitions()]
        if done.returncode == 0:
            assert moment > 20
            return
        assert done.returncode == KILLED
    pytest.fail("it never survived")


def leave_hot_journal(machine: Machine, clock_ms: int) -> Path:
    """Record a tick, and kill the sampler of the next one right before it would have committed it."""
    machine.tick(clock_ms=clock_ms)
    path = machine.samples / (time.strftime("%Y-%m-%d", time.gmtime(clock_ms / 1000)) + ".sqlite")
    journal = path.with_name(path.name + "-journal")
    saved = machine.folder / "saved"
    shutil.copytree(machine.data_dir, saved)

    def kill_at(moment: int) -> int:
        shutil.rmtree(machine.data_dir)
        shutil.copytree(saved, machine.data_dir)
        return machine.sample(clock_ms=clock_ms + 1000, kill_at=moment).returncode

    survivor = next(moment for moment in range(1, 200) if kill_at(moment) == 0)
    # After the journal was deleted, its folder is synced.
    next(moment for moment in range(survivor - 1, 0, -1) if kill_at(moment) == KILLED and journal.exists())
    assert journal.stat().st_size > 0
    shutil.rmtree(saved)
    return path


@pytest.mark.real
def test_hot_journals_of_today_and_yesterday_are_healed_by_the_next_run_and_readable_meanwhile(lab: Machine) -> None:
    yesterday = leave_hot_journal(lab, MONDAY_MS - 60_000)
    # Until then nobody rolls it back: today's first tick would, so its journal is put back.
    hot = {path: path.read_bytes() for path in (yesterday, yesterday.with_name(yesterday.name + "-journal"))}
    today = leave_hot_journal(lab, MONDAY_MS + 60_000)
    for path, content in hot.items():
        path.write_bytes(content)
    before = {name: (lab.samples / name).read_bytes() for name in lab.files()}
    assert len(before) == 4

    assert count_read_by_report(yesterday) == 1
    assert count_read_by_report(today) == 1
    assert {name: (lab.samples / name).read_bytes() for name in lab.files()} == before  # reading wrote nothing

    lab.tick(clock_ms=MONDAY_MS + 90_000)
    assert lab.files() == [yesterday.name, today.name]
    assert_whole(lab, 3)


@needs_root
def test_a_hot_journal_is_readable_without_write_access(lab: Machine, open_folder: Path) -> None:
    partition = leave_hot_journal(lab, MONDAY_MS)
    command = sampler_for_others(open_folder)
    package = ROOT / "gua_report"
    subprocess.run(["cp", "-r", str(package), str(open_folder / "library")], check=True)
    code = command[2].split("from gua_sample")[0] + (
        "from gua_report.ticks.open_partition import open_partition\n"
        f"with open_partition({str(partition)!r}) as connection:\n"
        " print(connection.execute('SELECT count(*) FROM card_ticks').fetchone()[0])"
    )
    done = run_as_somebody([command[0], "-c", code.replace("; from", "\nfrom")], os.environ, SOMEBODY)
    assert (done.stdout, done.stderr) == (f"{CARDS}\n", "")
