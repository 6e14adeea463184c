"""What goes into a partition comes out of its views, whatever it is."""

import errno
import fcntl
import json
import os
import sqlite3
import tempfile
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gua_sample import pending, schema, store
from gua_sample.errors import CorruptPartition
from gua_sample.records import Boot, Card, CardFacts, Cursor, Process, Tick, Usage
from tests.damage import damage_header
from tests.lab import DAY_MS, MONDAY_MS
from tests.machine import query

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
maybe_texts = st.none() | texts
counts = st.none() | st.integers(0, 200_000)


@st.composite
def cards(draw: st.DrawFn, index: int) -> Card:
    status = draw(st.sampled_from(["ok", "ok", "gpu_is_lost"]))
    facts = CardFacts(
        uuid=f"GPU-{index}",
        gpu_index=index,
        mig_index=draw(st.none() | st.integers(0, 6)),
        name=draw(maybe_texts),
        parent_uuid=draw(maybe_texts),
        memory_total_mib=draw(counts),
        memory_reserved_mib=draw(counts),
        persistence_mode=draw(st.none() | st.integers(0, 1)),
        status=status,
        missing=draw(maybe_texts),
        compute_slices=draw(st.none() | st.integers(1, 7)),
        most_compute_slices=draw(st.none() | st.just(7)),
        parent_memory_mib=draw(counts),
    )
    pids = draw(st.lists(st.integers(1, 5), unique=True, max_size=3))
    kinds = st.sampled_from(["compute", "graphics", "compute+graphics"])
    usages = [Usage(pid, draw(kinds), draw(counts), draw(st.none() | st.integers(0, 100))) for pid in pids]
    percent = draw(st.none() | st.integers(0, 10_000).map(lambda hundredths: hundredths / 100))
    source = None if percent is None else draw(st.sampled_from(schema.UTILIZATION_SOURCES))
    watts = draw(st.none() | st.integers(0, 10_000).map(lambda tenths: tenths / 10))
    energy = draw(st.none() | st.integers(0, 10**12))
    return Card(facts, percent, source, draw(counts), watts, energy, draw(st.none() | st.integers(-20, 120)), usages)


@st.composite
def ticks(draw: st.DrawFn) -> Tick:
    everybody = {
        pid: Process(
            pid,
            draw(st.none() | st.integers(0, 2)),
            draw(st.none() | st.integers(0, 2**32 - 1)),
            draw(st.none() | st.integers(0, 2**32 - 1)),
            *(draw(maybe_texts) for _ in range(4)),
        )
        for pid in range(1, 6)
    }
    found = [draw(cards(index)) for index in range(draw(st.integers(0, 3)))]
    cursors = [Cursor(card.facts.uuid, card.facts.gpu_index, None, None, 7, None, 9) for card in found]
    return Tick(
        ts_ms=draw(st.integers(MONDAY_MS, MONDAY_MS + DAY_MS - 1)),
        interval_ms=draw(st.none() | st.integers(1, DAY_MS)),
        boot=Boot(draw(st.sampled_from(["a", "b"])), 5),
        driver_version=draw(st.none() | st.sampled_from(["580", "590"])),
        nvml_ms=draw(st.none() | st.integers(0, 90_000)),
        error=draw(maybe_texts),
        cards=found,
        processes={usage.pid: everybody[usage.pid] for card in found for usage in card.usages},
        cursors=cursors,
    )


def expected_rows(history: list[Tick]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    tick_rows, card_rows, process_rows = [], [], []
    for tick in history:
        when = {"ts_ms": tick.ts_ms, "interval_ms": tick.interval_ms}
        version = {"boot_id": tick.boot.id, "driver_version": tick.driver_version}
        tick_rows.append({**when, **version, "nvml_ms": tick.nvml_ms, "error": tick.error})
        for card in tick.cards:
            facts, values = card.facts._asdict(), card._asdict()
            memories = [usage.memory_mib for usage in card.usages]
            known = card.facts.status == "ok" and None not in memories
            names = {"gpu_uuid": facts.pop("uuid"), "gpu_name": facts.pop("name")}
            del values["facts"], values["usages"]
            summed = {"process_memory_mib": sum(memory or 0 for memory in memories) if known else None}
            card_rows.append({**when, **names, **facts, **values, **summed})
            for usage in card.usages:
                place = {"gpu_uuid": card.facts.uuid, "gpu_index": card.facts.gpu_index}
                process_rows.append({**when, **place, **tick.processes[usage.pid]._asdict(), **usage._asdict()})
    return tick_rows, card_rows, process_rows


def ordered(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((key, repr(value)) for key, value in row.items()) for row in rows)


histories = st.lists(ticks(), max_size=5, unique_by=lambda tick: tick.ts_ms)


@settings(max_examples=60, deadline=None)
@given(histories, st.booleans())
def test_what_is_stored_is_what_the_views_show(history: list[Tick], one_by_one: bool) -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        folder = store.prepare(data_dir)
        for part in [[tick] for tick in history] if one_by_one else [history]:
            store.append_history(folder, part)
        if not history:
            return
        path = Path(folder) / "2026-11-16.sqlite"
        for view, expected in zip(("ticks", "card_ticks", "process_ticks"), expected_rows(history), strict=True):
            assert ordered(query(path, f"SELECT * FROM {view}")) == ordered(expected)
        assert query(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        assert query(path, "PRAGMA foreign_key_check") == []


@settings(max_examples=30, deadline=None)
@given(ticks())
def test_a_kept_tick_is_the_tick(tick: Tick) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pending.keep(folder, tick)
        (kept,) = pending.load(folder, pytest.fail)
        assert kept.tick == tick._replace(cursors=[])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return store.prepare(str(tmp_path))


def test_the_previous_tick_is_found_in_the_partition_of_today_or_else_of_the_last_day(folder: str) -> None:
    warnings: list[str] = []
    assert store.read_previous(folder, MONDAY_MS, "boot", warnings.append) is None
    cursor = Cursor("GPU-0", 0, None, None, 11, 22, 33)
    boot = Boot("boot", 5)
    store.append(folder, make_tick(MONDAY_MS - DAY_MS)._replace(boot=boot, cursors=[cursor]), pytest.fail)
    # A driver error after it leaves the cursors as they were.
    failed = Tick(MONDAY_MS - 1, None, boot, None, 1, "driver_not_loaded", [], {}, [])
    store.append(folder, failed, pytest.fail)
    # On that day, later, or earlier: the clock may have been set back.
    for ts_ms in (MONDAY_MS - 1, MONDAY_MS, MONDAY_MS + 40 * DAY_MS, MONDAY_MS - 2 * DAY_MS):
        previous = store.read_previous(folder, ts_ms, "boot", warnings.append)
        assert previous is not None
        assert (previous.boot, previous.driver_version, previous.cursors) == (boot, "580", [cursor])
    assert store.read_previous(folder, MONDAY_MS, "another boot", warnings.append) is None


def test_a_partition_says_what_it_is_its_tables_are_strict_and_a_window_is_read_by_the_index(folder: str) -> None:
    store.append(folder, make_tick(MONDAY_MS), pytest.fail)
    path = Path(folder) / "2026-11-16.sqlite"
    marks = {"application_id": schema.APPLICATION_ID, "user_version": schema.VERSION, "journal_mode": "delete"}
    assert {name: query(path, f"PRAGMA {name}")[0][name] for name in marks} == marks
    tables = query(path, "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {table["name"]: table["strict"] for table in tables} == dict.fromkeys(schema.TABLE_NAMES, 1)
    for view in ("card_ticks", "process_ticks"):
        plan = query(path, f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE ts_ms BETWEEN 1 AND 2")
        assert not [row for row in plan if "SCAN" in row["detail"]], plan


def make_tick(ts_ms: int) -> Tick:
    return Tick(ts_ms, None, Boot("boot", 5), "580", 1, None, [Card(CardFacts("GPU-0", 0))], {}, [])


def test_energy_that_is_known_only_later_is_kept(folder: str) -> None:
    for second, energy in enumerate([None, 5000, 7000]):
        card = Card(CardFacts("GPU-0", 0), energy_joules=energy)
        store.append(folder, make_tick(MONDAY_MS + second)._replace(cards=[card]), pytest.fail)
    rows = query(Path(folder) / "2026-11-16.sqlite", "SELECT energy_joules FROM card_ticks ORDER BY ts_ms")
    assert [row["energy_joules"] for row in rows] == [None, 5000, 7000]


def test_a_partition_that_another_run_replaces_meanwhile_is_not_set_aside(folder: str) -> None:
    store.append(folder, make_tick(MONDAY_MS), pytest.fail)
    path = Path(folder) / "2026-11-16.sqlite"
    arguments = (str(path), store._identity(str(path)), CorruptPartition("x"), pytest.fail)
    holder = os.open(folder, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    thread = threading.Thread(target=store._set_aside, args=arguments)
    thread.start()
    thread.join(0.3)
    path.rename(path.with_name("aside"))  # is still there, as whoever is at it was waited for
    store.append(folder, make_tick(MONDAY_MS), pytest.fail)
    os.close(holder)
    thread.join(5)
    assert (thread.is_alive(), path.exists()) == (False, True)


def test_reading_a_file_with_a_damaged_header_leaves_the_journal_of_a_run_that_replaces_it(tmp_path: Path) -> None:
    store.append(str(tmp_path), make_tick(MONDAY_MS), print)
    (partition,) = tmp_path.iterdir()
    other = sqlite3.connect(partition, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE larger_than_the_cache AS SELECT zeroblob(8000000)")  # the journal is synced by now
    partition.rename(tmp_path / "of another run")
    damage_header(partition)
    journal = tmp_path / f"{partition.name}-journal"
    content = journal.read_bytes()
    assert content
    assert store.read_previous(str(tmp_path), MONDAY_MS, "boot", print) is None
    assert journal.read_bytes() == content
    other.close()


def test_a_journal_is_renamed_before_its_partition(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between the other way round, SQLite would play it into the new partition."""
    path = Path(folder) / "2026-11-16.sqlite"
    path.write_text("garbage")
    path.with_name(path.name + "-journal").write_text("journal")
    renamed: list[str] = []
    rename = os.rename

    def note(source: str, target: str) -> None:
        renamed.append(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)
    store._set_aside(str(path), store._identity(str(path)), CorruptPartition("x"), list[str]().append)
    assert renamed == [f"{path}-journal", str(path)]


randoms = st.randoms(use_true_random=False)
NONSENSE: list[object] = [None, "x", -1, 1.5, 10**20, [], {}, [[]], [1, 2], {"a": 1}, True, "\ud800"]


@settings(max_examples=100, deadline=None)
@given(ticks(), st.lists(st.tuples(randoms, st.sampled_from(NONSENSE)), max_size=2), st.none() | st.floats(0, 1))
def test_a_kept_tick_that_makes_no_sense_is_set_aside_and_costs_nothing(
    kept: Tick, changes: list[tuple[Random, object]], cut: float | None
) -> None:
    """Any part of it may be something else, or missing; or the file is cut off."""
    with tempfile.TemporaryDirectory() as data_dir:
        folder = store.prepare(data_dir)
        path = Path(pending.keep(folder, kept))
        document = json.loads(path.read_text())
        for random, value in changes:
            place: Any = document
            while True:
                key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if not (isinstance(place[key], dict | list) and place[key]) or random.random() < 0.3:
                    break
                place = place[key]
            place[key] = value
        text = json.dumps(document)
        path.write_text(text if cut is None else text[: int(cut * len(text))])
        warnings: list[str] = []
        outcome = store.append(folder, make_tick(MONDAY_MS), warnings.append)
        assert not outcome.kept
        assert not query(Path(outcome.path), "PRAGMA foreign_key_check")
        left = [one.name for one in Path(folder).iterdir() if ".pending" in one.name]
        version = document["version"]
        if not isinstance(version, int | float) or version <= pending.VERSION:  # a newer gua's goes on waiting
            assert len(warnings) == len(left) <= 1
            assert all(name.endswith(".pending.corrupt") for name in left)


def test_a_kept_tick_that_can_not_be_read_now_goes_on_waiting(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pending.keep(folder, make_tick(MONDAY_MS))
    opened = os.open

    def fail(path: str, *arguments: int) -> int:
        if path == kept:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", fail)
    warnings: list[str] = []
    store.append(folder, make_tick(MONDAY_MS + 1), warnings.append)
    assert len(warnings) == 1
    assert os.path.exists(kept)


def test_a_copy_of_a_kept_tick_is_not_taken_in_again(folder: str) -> None:
    kept = Path(pending.keep(folder, make_tick(MONDAY_MS)))
    (Path(folder) / "2026-11-16.copy.pending").write_bytes(kept.read_bytes())
    outcome = store.append(folder, make_tick(MONDAY_MS + 1), pytest.fail)
    rows = query(Path(outcome.path), "SELECT ts_ms FROM ticks ORDER BY ts_ms")
    assert [row["ts_ms"] for row in rows] == [MONDAY_MS, MONDAY_MS + 1]


def test_of_unfinished_files_only_those_of_kept_ticks_are_removed(tmp_path: Path) -> None:
    folder = Path(store.prepare(str(tmp_path)))
    left = {f".2026-11-16.00000000000001{name}.unfinished" for name in (".pending.01234567", ".pending")}
    others = {"2026-11-16.sqlite.unfinished", "2026-11-16.00000000000001.pending.unfinished.tar"}
    for name in left | others:
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    store.append(str(folder), make_tick(MONDAY_MS), pytest.fail)
    assert {path.name for path in folder.iterdir()} == {"2026-11-16.sqlite", *others}


def test_trouble_with_another_day_is_a_warning_only(folder: str) -> None:
    pending.keep(folder, make_tick(MONDAY_MS - 1))
    (Path(folder) / "2026-11-15.sqlite").mkdir()
    warnings: list[str] = []
    store.append(folder, make_tick(MONDAY_MS), warnings.append)
    assert len(warnings) == 1
    assert "2026-11-15" in warnings[0]
    assert len(query(Path(folder) / "2026-11-16.sqlite", "SELECT * FROM ticks")) == 1


@settings(max_examples=150, deadline=None)
@example(18, 3)  # "read-only", says the header
@example(18, 2)  # half of "WAL"
@example(19, 2)
@given(st.integers(0, 2**32), st.integers(0, 255))
def test_a_partition_with_a_damaged_byte_never_costs_the_tick(position: int, value: int) -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        folder = store.prepare(data_dir)
        store.append(folder, make_tick(MONDAY_MS), pytest.fail)
        path = Path(folder) / "2026-11-16.sqlite"
        content = bytearray(path.read_bytes())
        content[position % len(content)] = value
        # The version in the header may become another version's, which is not ours to touch.
        content[60:64] = schema.VERSION.to_bytes(4, "big")
        path.write_bytes(bytes(content))
        warnings: list[str] = []
        outcome = store.append(folder, make_tick(MONDAY_MS + 1), warnings.append)
        assert Path(outcome.path) == path
        assert len(warnings) <= 1
        if warnings:
            assert len(query(path, "SELECT * FROM ticks")) == 1
            assert path.with_name(path.name + ".corrupt-1").read_bytes() == bytes(content)
