"""gua import, source by source: what is taken, what is left out and why, and what a report makes of it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import import_
from gua_report.config import Retention, load_config
from gua_report.importing import foreign_file
from gua_report.upkeep.nightly import Done, Upkeep
from gua_sample import store
from gua_sample.partition_names import list_partitions
from gua_sample.records import Tick
from tests.gpu_usage_audit import FIRST_SEEN_MS, NOON_MS, PeerDatabase, Seen, text_of, times
from tests.import_target import Target, left_out, photograph
from tests.lab import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Gpu,
    Job,
    at,
    busy,
    free,
    held,
    lost,
    mig,
    series,
    tick,
    write,
)
from tests.machine import query


@pytest.fixture
def target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Target:
    return Target(tmp_path / "data", capsys)


@pytest.fixture
def new(tmp_path: Path) -> PeerDatabase:
    """A database of 1.8.0, with one run of its daemon."""
    database = PeerDatabase(tmp_path / "gua.db")
    database.start(FIRST_SEEN_MS)
    return database


@pytest.fixture
def old(tmp_path: Path) -> PeerDatabase:
    """A database of 1.0.2."""
    return PeerDatabase(tmp_path / "old.db", is_old=True)


# gpu-usage-audit ------------------------------------------------------------------------------------------------------


def test_a_database_of_1_8_0_tells_cards_and_processes(new: PeerDatabase, target: Target) -> None:
    with new.open() as connection:
        connection.execute("INSERT INTO gpu_device VALUES ('GPU-0', 'NVIDIA A100', 81920, '', '')")
    card = Seen(
        83, ((4711, 2000, "alice", "alice", "python3", "compute"), (9, 120, None, "gdm", "Xorg", "graphics")), 2600
    )
    new.add([NOON_MS, NOON_MS + 30_000], card, Seen(0))

    said = target.imports(new.path)

    assert said["kind"] == "gpu-usage-audit database (schema of 1.8.0)"
    assert said["taken"] == {
        "days": ["2026-10-05"],
        "ticks": 2,
        "cards": 2,
        "processes": 2,
        "first_ms": NOON_MS,
        "last_ms": NOON_MS + 30_000,
    }
    assert said["left_out"] == said["refused"] == said["warnings"] == []
    first = target.rows("ticks")[0]
    assert first == {
        "ts_ms": NOON_MS,
        "interval_ms": 30_000,
        "boot_id": f"imported:gpu-usage-audit:{text_of(FIRST_SEEN_MS)}",
        "driver_version": "570.86.10",
        "nvml_ms": None,
        "error": None,
    }
    busy_card, free_card, *_ = target.rows("card_ticks")
    told = {"utilization_percent": 83.0, "utilization_source": "rate", "memory_used_mib": 2600, "power_watts": 77.0}
    told |= {
        "temperature_celsius": 41,
        "process_memory_mib": 2120,
        "status": "ok",
        "gpu_index": 0,
        "gpu_name": "NVIDIA A100",
    }
    assert told.items() <= busy_card.items()
    assert (busy_card["memory_total_mib"], busy_card["energy_joules"], busy_card["missing"]) == (81920, None, None)
    assert (free_card["gpu_uuid"], free_card["gpu_index"], free_card["memory_total_mib"]) == ("GPU-1", 1, None)
    assert [
        (row["pid"], row["login_user"], row["user"], row["command"], row["type"], row["memory_mib"], row["sm_percent"])
        for row in target.rows("process_ticks")[:2]
    ] == [(4711, "alice", "alice", "python3", "compute", 2000, None), (9, None, "gdm", "Xorg", "graphics", 120, None)]


def test_a_database_of_1_0_2_tells_what_it_can(old: PeerDatabase, target: Target) -> None:
    old.add(
        [NOON_MS, NOON_MS + 30_000], Seen(3, ((4711, 2000, "alice"),)), Seen(0, uuid="GPU-b"), Seen(0, uuid="GPU-a")
    )
    assert target.imports(old.path)["kind"] == "gpu-usage-audit database (schema of 1.0.2)"
    first = target.rows("ticks")[0]
    assert (first["interval_ms"], first["driver_version"]) == (None, None)
    assert first["boot_id"] == f"imported:gpu-usage-audit:{text_of(FIRST_SEEN_MS)}"  # since when the host is known
    cards = target.rows("card_ticks")[:3]
    # Cards are written in the order of their index, which has no column.
    assert [(card["gpu_uuid"], card["gpu_index"]) for card in cards] == [("GPU-0", 0), ("GPU-b", 1), ("GPU-a", 2)]
    assert {card["memory_used_mib"] for card in cards} == {card["power_watts"] for card in cards} == {None}
    (process,) = target.rows("process_ticks")[:1]
    assert (process["pid"], process["login_user"], process["user"], process["command"]) == (4711, "alice", None, None)


def test_each_run_of_its_daemon_is_a_boot_with_its_interval(new: PeerDatabase, target: Target) -> None:
    new.add([NOON_MS], Seen())
    new.start(NOON_MS + HOUR_MS, 60.0)
    new.add([NOON_MS + HOUR_MS], Seen())
    new.start(NOON_MS + 2 * HOUR_MS, "soon")
    new.add([NOON_MS + 2 * HOUR_MS], Seen())
    new.run_id = 99  # that nobody knows of
    new.add([NOON_MS + 3 * HOUR_MS], Seen())
    target.imports(new.path)
    found = [(row["interval_ms"], row["driver_version"]) for row in target.rows("ticks")]
    assert found == [(30_000, None), (60_000, None), (None, "570.86.10"), (None, None)]
    assert len({row["boot_id"] for row in target.rows("ticks")}) == 4


def test_rows_from_before_an_upgrade_belong_to_no_run(new: PeerDatabase, target: Target) -> None:
    new.run_id = None
    new.add([NOON_MS], Seen(5, ((1, 300, "alice"),), state=None))
    new.run_id = 1
    new.add([NOON_MS + HOUR_MS], Seen(5, ((1, 300, "alice"),)))
    target.imports(new.path)
    assert [row["interval_ms"] for row in target.rows("ticks")] == [None, 30_000]
    assert [row["status"] for row in target.rows("card_ticks")] == ["ok", "ok"]


def test_a_process_list_that_could_not_be_had_is_unknown_not_idle(new: PeerDatabase, target: Target) -> None:
    new.add(times(NOON_MS, 2), Seen(0, state=None), Seen(0), Seen(50, state=None))
    target.imports(new.path)
    assert [row["status"] for row in target.rows("card_ticks")[:3]] == [
        "process_list_unavailable",
        "ok",
        "process_list_unavailable",
    ]
    states = target.report(NOON_MS, NOON_MS + MINUTE_MS)["headline"]["states"]
    assert {state: value["gpu_hours"] for state, value in states.items()} == pytest.approx(
        {"active": 1 / 60, "idle-held": 0, "truly-idle": 1 / 60, "unknown": 1 / 60}, abs=1e-4
    )


def test_without_any_usage_state_nothing_is_concluded_from_that(new: PeerDatabase, target: Target) -> None:
    new.add([NOON_MS], Seen(0, state=None))
    target.imports(new.path)
    assert target.rows("card_ticks")[0]["status"] == "ok"


def test_what_cant_be_is_not_known(new: PeerDatabase, target: Target) -> None:
    odd = Seen(250, ((7, "much", "u1"), (-1, 5, "u1"), (8, -3, "u1")), used=-1)
    new.add([NOON_MS], odd, Seen("half"), Seen(12.7), Seen(1, uuid=""), Seen(1, uuid=b"\xff\x00"))
    said = target.imports(new.path)
    cards = target.rows("card_ticks")
    assert [card["utilization_percent"] for card in cards[:3]] == [None, None, 12.0]
    assert [card["missing"] for card in cards[:3]] == ["utilization:implausible", "utilization:implausible", None]
    assert (cards[0]["memory_used_mib"], cards[0]["process_memory_mib"]) == (None, None)
    assert [row["memory_mib"] for row in target.rows("process_ticks")] == [None, None]
    assert cards[3]["gpu_uuid"] == r"\xff\x00"
    assert left_out(said) == {"process row whose pid can't be": 1, "card without a name": 1}


def test_hostile_names_are_made_printable(new: PeerDatabase, target: Target) -> None:
    nasty = "\x1b]0;owned\x07\n=cmd()"
    new.add([NOON_MS], Seen(0, ((7, 500, nasty, nasty, nasty, nasty),), uuid=nasty))
    with new.open() as connection:
        connection.execute("UPDATE daemon_run SET started_at = ?", (nasty,))
        connection.execute("UPDATE host SET driver_version = ?", ("x" * 100_000,))
        connection.execute("UPDATE proc_sample SET process_name = CAST(x'ff41' AS TEXT)")
    target.imports(new.path)
    (process,) = target.rows("process_ticks")
    assert process["login_user"] == process["user"] == r"\x1b]0;owned\x07\n=cmd()"
    assert process["command"].isprintable()
    assert process["type"] == "compute"
    for row in target.rows("ticks") + target.rows("card_ticks"):
        assert all(value.isprintable() and len(value) < 1000 for value in row.values() if isinstance(value, str))


def test_a_pid_that_is_twice_on_a_card_is_one_process(new: PeerDatabase, target: Target) -> None:
    twice = ((7, 500, None, "alice", None, "compute"), (7, 900, "al", None, "python", "graphics"))
    new.add([NOON_MS], Seen(0, twice), Seen(0, twice[:1]))
    target.imports(new.path)
    rows = target.rows("process_ticks")
    assert [(row["pid"], row["type"], row["memory_mib"]) for row in rows] == [
        (7, "compute+graphics", 900),
        (7, "compute", 500),
    ]
    assert {(row["user"], row["login_user"], row["command"]) for row in rows} == {("alice", "al", "python")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-10-05T12:00:00.123456+00:00", NOON_MS + 123),
        ("2026-10-05T12:00:00+00:00", NOON_MS),
        ("2026-10-05T12:00:00.987654321Z", NOON_MS + 987),
        ("2026-10-05 12:00:00", NOON_MS),
        ("2026-10-05T14:00:00.5+02:00", NOON_MS + 500),
        ("2026-10-05T23:30:00-02:00", at("2026-10-06 01:30")),
    ],
)
def test_its_times_are_understood(new: PeerDatabase, target: Target, text: str, expected: int) -> None:
    new.add([text], Seen())
    target.imports(new.path)
    assert [row["ts_ms"] for row in target.rows("ticks")] == [expected]


def roll_up(folder: Path, raw_days: int | None = None) -> Done:
    config = load_config(None)._replace(retention=Retention(raw_days=raw_days, csv_days=0))
    return Upkeep(str(folder), config, NOON_MS + 9 * DAY_MS, False, print).run(False, False, None)


def test_days_whose_ticks_have_expired_are_final(new: PeerDatabase, target: Target) -> None:
    new.start(NOON_MS)
    new.add(times(NOON_MS, 5), Seen(3))
    target.imports(new.path)
    assert len(roll_up(target.folder, raw_days=1).removed) == 1
    before = target.report(NOON_MS, NOON_MS + HOUR_MS)
    new.add(times(NOON_MS + HOUR_MS, 5) + times(NOON_MS + DAY_MS, 5), Seen(3))
    said = target.imports(new.path)
    assert said["taken"]["ticks"] == 5
    (left,) = said["left_out"]
    assert (left["count"], left["reason"]) == (10, "of days whose ticks were removed, and whose sums are final")
    assert target.report(NOON_MS, NOON_MS + HOUR_MS)["headline"] == before["headline"]


def test_nothing_but_days_whose_ticks_have_expired_is_no_failure_and_said(
    new: PeerDatabase, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    new.add(times(NOON_MS, 5), Seen(3))
    target.imports(new.path)
    assert len(roll_up(target.folder, raw_days=1).removed) == 1
    capsys.readouterr()
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 0
    said = capsys.readouterr()
    assert "took       nothing\nleft out   5 ticks of days whose ticks were removed, and whose sums are" in said.out
    assert said.err == ""
    assert target.rows("ticks") == []


def test_a_day_whose_edge_an_import_changed_is_rolled_up_anew(new: PeerDatabase, target: Target) -> None:
    midnight_ms = NOON_MS + DAY_MS // 2
    new.start(NOON_MS)
    new.add(times(midnight_ms - 90_000, 3) + times(NOON_MS + 2 * DAY_MS, 5) + times(NOON_MS + 3 * DAY_MS, 5), Seen(3))
    target.imports(new.path)
    assert len(roll_up(target.folder).rolled_up) == 3
    assert roll_up(target.folder).rolled_up == []
    new.add(times(midnight_ms, 5), Seen(3))
    target.imports(new.path)
    # The day after has ticks at noon alone, which nothing that was added reaches.
    assert roll_up(target.folder).rolled_up == ["2026-10-05", "2026-10-06"]


def test_rows_whose_time_makes_no_sense_are_left_out(new: PeerDatabase, target: Target) -> None:
    nonsense = [
        "soon",
        "2026-10-05Tnoon",
        5,
        "2026-13-77T00:00:00",
        "1970-01-01T00:05:00+00:00",
        "2999-01-01T00:00:00+00:00",
    ]
    new.add([NOON_MS, *(str(text) for text in nonsense)], Seen())
    said = target.imports(new.path)
    assert said["taken"]["ticks"] == 1
    assert left_out(said) == {
        "row whose time can't be read": 4,
        "tick of the future": 1,
        "tick of a clock that was never set": 1,
    }
    future = next(left for left in said["left_out"] if left["reason"] == "of the future")
    assert future["examples"] == ["2999-01-01 00:00:00 UTC"]


def test_processes_without_their_card_are_left_out(new: PeerDatabase, target: Target) -> None:
    new.add([NOON_MS], Seen(0, ((7, 500),)))
    with new.open() as connection:
        connection.execute(
            "INSERT INTO proc_sample (ts, gpu_uuid, pid, run_id) SELECT ts, 'GPU-9', 8, 1 FROM gpu_sample"
        )
        connection.execute("INSERT INTO proc_sample (ts, gpu_uuid, pid) SELECT ts, 'GPU-0', 9 FROM gpu_sample")
    said = target.imports(new.path)
    assert left_out(said) == {"process row without a row of their card": 2}
    assert [row["pid"] for row in target.rows("process_ticks")] == [7]


def laboratory(database: PeerDatabase) -> list[tuple[Any, ...]]:
    """Two hours of four cards; returns a row for each card and tick: card, utilization, memory by login user."""
    rows = []
    for number, moment in enumerate(times(NOON_MS, 240)):
        part = number // 30
        cards = (
            Seen(95 if part % 2 else 4, ((100 + part, 20_000, "alice", "alice"), (200, 700, "bob", "bob")), 21_200),
            Seen(9, ((300, 8000, "bob", "bob"), (301, 60, "bob", "bob")), 8600),
            Seen(10, ((400, 40_000, None, None),), 40_500) if part < 3 else Seen(0),
            Seen(0),
        )
        database.add([moment], *cards)
        for index, card in enumerate(cards):
            memory: dict[str, int] = {}
            for process in card.processes:
                memory[process[2] or "unknown"] = memory.get(process[2] or "unknown", 0) + process[1]
            rows.append((f"GPU-{index}", card.utilization, memory))
    return rows


@pytest.mark.parametrize("is_old", [True, False])
def test_the_report_gives_the_figures_that_its_own_rules_give(tmp_path: Path, target: Target, is_old: bool) -> None:
    database = PeerDatabase(tmp_path / "gua.db", is_old)
    if not is_old:
        database.start(NOON_MS)
    rows = laboratory(database)
    target.imports(database.path)
    report = target.report(NOON_MS, NOON_MS + 240 * 30 * SECOND_MS)

    def shares(of: list[tuple[Any, ...]]) -> dict[str, float]:
        states = [
            "active" if use >= 10 else "idle-held" if sum(held.values()) > 100 else "truly-idle" for _, use, held in of
        ]
        return {state: states.count(state) / len(states) for state in ("active", "idle-held", "truly-idle", "unknown")}

    def told(states: dict[str, Any]) -> dict[str, float]:
        return {state: value["share"] for state, value in states.items()}

    assert told(report["headline"]["states"]) == pytest.approx(shares(rows), abs=1e-4)
    for gpu in report["gpus"]:
        assert told(gpu["states"]) == pytest.approx(shares([row for row in rows if row[0] == gpu["uuid"]]), abs=1e-4)
    mine = {one["identity"]: (one["gpu_hours"], one["idle_held_share"]) for one in report["identities"]}
    theirs = {}
    for user in ("alice", "bob", "unknown"):
        present = [(use, held[user]) for _, use, held in rows if user in held]
        idle = sum(use < 10 and memory > 100 for use, memory in present)
        theirs[user] = (len(present) * 30 / 3600, idle / len(present))
    assert mine.keys() == theirs.keys()
    for user, figures in theirs.items():
        assert mine[user] == pytest.approx(figures, abs=1e-3), user


def test_memory_that_is_not_told_and_memory_of_nobody_are_judged_by_our_rule(new: PeerDatabase, target: Target) -> None:
    """It counts all three as truly idle: NULL is 0 to it, and nobody's memory nothing."""
    not_told = Seen(0, ((7, None, None, "alice"),), used=9000)
    nobodys = Seen(0, used=9000)
    small = Seen(0, ((8, 90, "carol", "carol"),), used=600)
    new.add(times(NOON_MS, 2), not_told, nobodys, small)
    target.imports(new.path)
    report = target.report(NOON_MS, NOON_MS + MINUTE_MS)
    assert [max(gpu["states"], key=lambda state: gpu["states"][state]["share"]) for gpu in report["gpus"]] == [
        "idle-held",
        "idle-held",
        "truly-idle",
    ]
    assert {one["identity"] for one in report["identities"]} == {"alice", "(unattributed)"}


# Again and beside others ----------------------------------------------------------------------------------------------


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


# gpu_stats_service ----------------------------------------------------------------------------------------------------


HEADER = "timestamp,user,pid,gpu,usage\n"
NOON = NOON_MS // 1000


def stats(path: Path, *lines: str, header: str = HEADER) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def states_of(target: Target, start_ms: int = NOON_MS, minutes: int = 5) -> dict[str, str]:
    """The state of each card over some minutes in which it does not change."""
    gpus = target.report(start_ms, start_ms + minutes * MINUTE_MS)["gpus"]
    return {gpu["uuid"]: next(state for state, value in gpu["states"].items() if value["share"] == 1) for gpu in gpus}


def test_stats_files_tell_utilization_and_who_but_no_memory(tmp_path: Path, target: Target) -> None:
    folder = stats(
        tmp_path / "gpu_stats" / "20261005_gpu_stats.csv",
        f"{NOON - 300},carol,7,2,90",
        f"{NOON},alice,4711,0,83",
        f"{NOON},bob,4712,1,3",
        f"{NOON + 300},-,-,-,0",
    ).parent
    said = target.imports(folder)
    assert (said["kind"], said["taken"]["ticks"], said["taken"]["cards"]) == ("gpu_stats_service CSV", 3, 3)
    sessions = {(row["boot_id"], row["interval_ms"]) for row in target.rows("ticks")}
    assert sessions == {("imported:gpu_stats_service", None)}
    first = target.rows("card_ticks")[0]
    assert (first["gpu_uuid"], first["gpu_index"], first["utilization_percent"]) == ("stats-csv:gpu-2", 2, 90.0)
    # A card that was seen before and has no line has no process: it is idle. One with a process holds who knows what.
    assert states_of(target) == {
        "stats-csv:gpu-0": "active",
        "stats-csv:gpu-1": "unknown",
        "stats-csv:gpu-2": "truly-idle",
    }
    assert set(states_of(target, NOON_MS + 5 * MINUTE_MS).values()) == {"truly-idle"}
    (process,) = [row for row in target.rows("process_ticks") if row["pid"] == 4711]
    assert (process["user"], process["login_user"], process["memory_mib"], process["type"]) == (
        "alice",
        None,
        None,
        "unknown",
    )


def test_one_stats_file_is_enough(tmp_path: Path, target: Target) -> None:
    path = stats(tmp_path / "anything", f"{NOON},alice,4711,0,83")
    assert target.imports(path)["taken"]["ticks"] == 1
    assert target.imports(path)["there_already"]["ticks"] == 1


def test_years_ago_is_reported_like_yesterday(tmp_path: Path, target: Target) -> None:
    start_ms = at("2021-03-24 11:12")
    target.imports(stats(tmp_path / "2021", *(f"{ts_ms // 1000},m_user,456815,1,90" for ts_ms in times(start_ms, 12))))
    report = target.report(start_ms, start_ms + 6 * MINUTE_MS)
    assert report["headline"]["states"]["active"]["share"] == 1
    assert [one["identity"] for one in report["identities"]] == ["m_user"]


def test_lines_of_a_day_in_two_files_are_merged_and_duplicates_taken_once(tmp_path: Path, target: Target) -> None:
    folder = tmp_path / "gpu_stats"
    stats(folder / "20261005.csv", f"{NOON},alice,1,0,83", f"{NOON},bob,2,1,50", f"{NOON + 300},alice,1,0,20")
    stats(folder / "copy of 20261005.csv", f"{NOON},alice,1,0,83", f"{NOON},carol,3,2,40", f"{NOON + 300},alice,1,0,99")
    said = target.imports(folder)
    assert said["taken"]["ticks"] == 2
    assert left_out(said) == {"line contradicting another of the same time, card and pid": 1}
    assert [(row["ts_ms"] // 1000, row["user"]) for row in target.rows("process_ticks")] == [
        (NOON, "alice"),
        (NOON, "bob"),
        (NOON, "carol"),
        (NOON + 300, "alice"),
    ]
    assert [row["utilization_percent"] for row in target.rows("card_ticks")] == [83.0, 50.0, 40.0, 20.0, None, None]


@pytest.mark.parametrize(
    "rest", ["", "1", str(NOON + 300)[:7], f"{NOON + 300}", f"{NOON + 300},", f"{NOON + 300},bob,2,1,5"]
)
def test_a_cut_line_costs_its_tick_and_no_other(tmp_path: Path, target: Target, rest: str) -> None:
    path = stats(tmp_path / "cut.csv", f"{NOON},alice,1,0,83", f"{NOON},bob,2,1,50", f"{NOON + 300},alice,1,0,20")
    with path.open("a") as file:
        file.write(rest)
    said = target.imports(path)
    is_cut = rest != ""
    assert said["taken"]["ticks"] == (1 if is_cut else 2)
    assert left_out(said) == ({"line cut off, and with it the others of its time": 2} if is_cut else {})
    with path.open("a") as file:
        file.write("\n")
    path.write_text(path.read_text().replace(f"{rest}\n", f"{NOON + 300},bob,2,1,50\n") if is_cut else path.read_text())
    target.imports(path)
    assert len(target.rows("card_ticks")) == 4


def test_a_cut_line_of_a_new_tick_leaves_the_one_before(tmp_path: Path, target: Target) -> None:
    path = stats(tmp_path / "cut.csv", f"{NOON},alice,1,0,83")
    with path.open("a") as file:
        file.write(f"{NOON + 300},alice,1,0,")
    said = target.imports(path)
    assert said["taken"]["ticks"] == 1
    assert left_out(said) == {"line cut off, and with it the others of its time": 1}


def test_lines_that_make_no_sense_are_left_out_by_reason(tmp_path: Path, target: Target) -> None:
    path = stats(
        tmp_path / "odd.csv",
        *(f"{NOON},alice,1,0,83", "", " ", "a,b", "soon,alice,1,0,83", f"-{NOON},alice,1,0,83"),
        *(f"{NOON},alice,1,x,83", f"{NOON},alice,1,0,101", f"{NOON},alice,0,0,83", f"{NOON},alice,1_0,0,83"),
        *(f"{NOON},alice,1,99999,83", '"', f"{NOON},a\0b,1,3,83", "99999999999,alice,1,0,83", "60,alice,1,0,83"),
    )
    said = target.imports(path)
    assert said["taken"]["ticks"] == 1
    found = left_out(said)
    assert {reason: found[reason] for reason in found if "can't be" in reason or "tick" in reason} == {
        "line whose time can't be read": 2,
        "line whose gpu can't be": 2,
        "line whose usage can't be": 1,
        "line whose pid can't be": 2,
        "tick of the future": 1,
        "tick of a clock that was never set": 1,
    }
    assert next(left for left in said["left_out"] if "usage" in left["reason"])["examples"] == ["odd.csv:9"]


def test_spaced_and_extended_stats_files_are_understood(tmp_path: Path, target: Target) -> None:
    header = "\ufeffTimestamp, user ,pid,gpu,usage,memory_mib\r\n"
    path = stats(
        tmp_path / "more.csv", f"{NOON}, alice ,4711,0,83,2000\r", f'{NOON}.5,"b,ob\x1b",4.0,1,3.0,\r', header=header
    )
    assert target.imports(path)["taken"]["ticks"] == 2
    assert [(row["ts_ms"], row["user"], row["pid"]) for row in target.rows("process_ticks")] == [
        (NOON_MS, "alice", 4711),
        (NOON_MS + 500, r"b,ob\x1b", 4),
    ]


def test_ticks_before_any_card_was_seen_say_nothing(tmp_path: Path, target: Target) -> None:
    path = stats(tmp_path / "idle.csv", f"{NOON},-,-,-,0", f"{NOON + 300},-,-,-,0")
    assert target.imports(path, status=3)["taken"]["ticks"] == 0
    assert "nothing to import" in target.errors
    stats(path, f"{NOON},-,-,-,0", f"{NOON + 300},alice,1,0,50", f"{NOON + 600},-,-,-,0")
    said = target.imports(path)
    assert (said["taken"]["ticks"], left_out(said)) == (2, {"tick before any card was seen": 1})


def test_files_with_other_columns_are_named(tmp_path: Path, target: Target) -> None:
    folder = tmp_path / "mixed"
    stats(folder / "good.csv", f"{NOON},alice,1,0,83")
    stats(folder / "other.csv", "1,2", header="time,power\n")
    stats(folder / "empty.csv", header="")
    stats(folder / "ours.csv", f"{NOON},alice,1,0,83,GPU-0", header="timestamp,user,pid,gpu,usage,gpu_uuid\n")
    (folder / "notes.txt").write_text("not ours")
    said = target.imports(folder)
    assert said["taken"]["ticks"] == 1
    assert {left["reason"]: left["examples"] for left in said["left_out"]} == {
        "without the columns timestamp,user,pid,gpu,usage": ["empty.csv", "other.csv"],
        "written by gua itself, whose data folder tells more: import that": ["ours.csv"],
    }


# Data folders ---------------------------------------------------------------------------------------------------------


def history(boot: str = "boot-1") -> list[Tick]:
    """Two days with all that a tick may hold."""
    job = Job(7, "alice", 3000, 0, 4000, 1000, "al", "python", "/user.slice/user-1000.slice", "compute+graphics")
    nameless = Job(8, None, None, None, None, None, None, "x", None)
    gpus = [busy(job, nameless, energy=5000), held(job, index=1), free(2), lost(3), mig(4, 0, 33.33, (job,)), mig(4, 1)]
    cards = series(NOON_MS, 3, *gpus, every_ms=30_000, interval_ms=30_000, boot=boot)
    later = series(NOON_MS + DAY_MS, 2, *gpus, every_ms=30_000, boot=boot)
    return [*cards, tick(NOON_MS + HOUR_MS, error="driver_not_loaded", driver_version=None, boot=boot), *later]


def everything(folder: Path) -> dict[str, list[dict[str, Any]]]:
    views = ("ticks", "card_ticks", "process_ticks")
    paths = [Path(path) for path in list_partitions(str(folder / "samples"))]
    order = {"ticks": "ts_ms", "card_ticks": "ts_ms, gpu_uuid", "process_ticks": "ts_ms, gpu_uuid, pid"}
    return {
        view: [row for path in paths for row in query(path, f"SELECT * FROM {view} ORDER BY {order[view]}")]
        for view in views
    }


@pytest.mark.parametrize("part", ["", "samples"])
def test_a_data_folder_is_copied_to_the_last_figure(tmp_path: Path, target: Target, part: str) -> None:
    write(tmp_path / "backup", history())
    said = target.imports(tmp_path / "backup" / part)
    assert (said["kind"], said["taken"]["ticks"], len(said["taken"]["days"])) == ("gua data folder", 6, 2)
    assert everything(target.folder) == everything(tmp_path / "backup")
    again = target.imports(tmp_path / "backup" / part)
    assert (again["taken"]["ticks"], again["there_already"]["ticks"]) == (0, 6)


def test_one_partition_is_taken_whatever_its_name(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    path = (tmp_path / "backup" / "samples" / "2026-10-05.sqlite").rename(tmp_path / "monday")
    assert target.imports(path)["taken"]["days"] == ["2026-10-05"]


def test_a_backup_completes_what_is_there(tmp_path: Path, target: Target) -> None:
    ticks = history() + series(NOON_MS + DAY_MS + 150_000, 3, free(), boot="boot-2")
    write(tmp_path / "backup", ticks)
    write(target.folder, ticks[1:3] + ticks[4:5])
    said = target.imports(tmp_path / "backup")
    assert (said["taken"]["ticks"], said["there_already"]["ticks"], said["left_out"]) == (6, 3, [])
    assert everything(target.folder) == everything(tmp_path / "backup")


def test_a_folder_of_another_host_is_refused_day_by_day(tmp_path: Path, target: Target) -> None:
    write(target.folder, series(NOON_MS, 5, Gpu(uuid="GPU-x"), every_ms=30_000, boot="boot-x"))
    write(tmp_path / "node7", history())
    said = target.imports(tmp_path / "node7", status=1)
    assert [one["what"] for one in said["refused"]] == ["2026-10-05"]
    assert target.errors.count("\n") == 1
    assert said["taken"]["days"] == ["2026-10-06"]


def test_many_refused_days_make_few_lines(tmp_path: Path, target: Target) -> None:
    write(
        target.folder,
        [one for day in range(9) for one in series(NOON_MS + day * DAY_MS, 2, Gpu(uuid="GPU-x"), boot="x")],
    )
    write(tmp_path / "node7", [one for day in range(9) for one in series(NOON_MS + day * DAY_MS, 2, free())])
    said = target.imports(tmp_path / "node7", status=1)
    assert len(said["refused"]) == 9
    assert target.errors.startswith("gua import: error: 2026-10-05, 2026-10-06, 2026-10-07 and 6 more refused: ")
    assert target.errors.count("\n") == 1


def test_days_that_cant_be_read_are_refused_alone(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    samples = tmp_path / "backup" / "samples"
    with closing(sqlite3.connect(samples / "2026-10-06.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    (samples / "2026-10-07.sqlite").write_bytes(b"no database at all" * 100)
    (samples / "2026-10-08.sqlite").touch()
    (samples / "2026-10-09.0123456789abcd.pending").write_text("{}")
    (samples / "2026-10-04.sqlite.corrupt-1").write_text("")
    said = target.imports(tmp_path / "backup", status=1)
    assert {one["what"]: one["reason"].partition(" ")[2] for one in said["refused"]} == {
        "2026-10-06": "has schema version 99, this gua reads up to 1: upgrade gua",
        "2026-10-07": "is not usable (file is not a database)",
    }
    assert said["taken"]["days"] == ["2026-10-05"]
    assert left_out(said) == {
        "tick still waiting to be taken in by the sampler over there": 1,
        "file set aside as corrupt over there": 1,
    }


def test_a_partition_that_somebody_made_up_is_refused(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    path = tmp_path / "backup" / "samples" / "2026-10-05.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE card_sample SET utilization_source = 17")
        connection.execute("UPDATE process SET command = ?", ("\x1b[2J",))
        connection.commit()
    said = target.imports(tmp_path / "backup", status=1)
    assert [one["what"] for one in said["refused"]] == ["2026-10-05"]
    assert "holds what no gua writes" in target.errors
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE card_sample SET utilization_source = 1")
        connection.commit()
    target.imports(tmp_path / "backup")
    assert {row["command"] for row in target.rows("process_ticks") if row["ts_ms"] < NOON_MS + DAY_MS} == {r"\x1b[2J"}


def test_a_partition_that_a_killed_writer_left_is_read_as_it_was_before(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    path = tmp_path / "backup" / "samples" / "2026-10-05.sqlite"
    before = everything(tmp_path / "backup")
    leave_hot_journal(path)
    target.imports(tmp_path / "backup")
    assert everything(target.folder) == before


def leave_hot_journal(path: Path) -> None:
    """As a writer does who is killed while he writes."""
    pid = os.fork()
    if pid == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE tick SET error = 'half-way'")
        connection.execute("CREATE TABLE t AS SELECT zeroblob(100000)")
        os._exit(0)
    os.waitpid(pid, 0)
    assert Path(f"{path}-journal").stat().st_size > 0


def test_the_data_folder_itself_is_no_source(target: Target) -> None:
    write(target.folder, history())
    for source in (target.folder, target.folder / "samples", target.folder / "samples" / "2026-10-05.sqlite"):
        target.imports(source, status=2)
        assert "is the data folder itself" in target.errors


# What it is -----------------------------------------------------------------------------------------------------------


def somebody_elses(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE gpu_sample (ts, gpu_uuid)")
    return path


def test_what_is_none_of_these_is_said_in_one_line(tmp_path: Path, target: Target) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "letter").write_text("Dear all,\n")
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    cases = {
        "nowhere": (2, "does not exist: give a gpu-usage-audit database"),
        "folder": (3, "nothing to import in"),
        "empty": (3, "is empty"),
        "letter": (1, "is neither a database nor has it the columns timestamp,user,pid,gpu,usage"),
        "broken": (1, "can't be read as a database (file is not a database)"),
        somebody_elses(tmp_path / "else.db").name: (1, "is a database of something else (gpu_sample has no util_pct)"),
    }
    for name, (status, text) in cases.items():
        target.imports(tmp_path / name, status=status)
        assert text in target.errors, name
        assert target.errors.count("\n") == 1
    assert not target.folder.exists()


def test_a_database_without_samples_is_nothing_to_import(new: PeerDatabase, target: Target) -> None:
    said = target.imports(new.path, status=3)
    assert said["taken"]["ticks"] == 0


def test_the_text_fits_a_mail_and_says_it_all(
    new: PeerDatabase, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    new.add([*times(NOON_MS, 3), "2999-01-01T00:00:00+00:00", "soon"], Seen(50, ((1, 500),)))
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 0
    text = capsys.readouterr().out
    assert "3 ticks of 1 day (2026-10-05 12:00:00 UTC to 2026-10-05" in text
    assert "left out   1 tick of the future: 2999-01-01 00:00:00 UTC\n" in text
    assert "left out   1 row whose time can't be read: soon\n" in text
    words = [line for line in text.splitlines() if str(target.folder) not in line and str(new.path) not in line]
    assert max(map(len, words)) <= 78


# A file that others write to ------------------------------------------------------------------------------------------


@pytest.fixture
def daemon(new: PeerDatabase) -> Iterator[sqlite3.Connection]:
    """The daemon's connection: while it is open, what it writes stays in the log."""
    connection = sqlite3.connect(new.path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    yield connection
    connection.close()


def test_what_a_running_daemon_has_in_its_log_is_read(
    new: PeerDatabase, daemon: sqlite3.Connection, target: Target
) -> None:
    daemon.execute("PRAGMA wal_autocheckpoint = 0")
    new.add(times(NOON_MS, 3), Seen(50))
    assert Path(f"{new.path}-wal").stat().st_size > 0
    assert target.imports(new.path)["taken"]["ticks"] == 3


def test_a_file_that_changes_while_it_is_read_is_not_believed(
    new: PeerDatabase, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.add(times(NOON_MS, 3), Seen(50))
    stamp = foreign_file._stamp
    monkeypatch.setattr(foreign_file, "_stamp", lambda path: (*stamp(path)[:2], os.urandom(8)))
    before = photograph(new.path)
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 1
    assert photograph(new.path) == before
    assert not list(target.folder.rglob("*.sqlite"))


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
