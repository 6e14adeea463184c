"""What goes into a partition comes out of its views, whatever it is."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gua_sample import pending, schema, store
from gua_sample.records import Boot, Card, CardFacts, Cursor, Process, Tick, Usage
from tests.machine import query

MIDNIGHT_MS = 1_794_787_200_000
DAY_MS = 86_400_000

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
    cursors = [Cursor(card.facts.uuid, card.facts.gpu_index, None, 7, None, 9) for card in found]
    return Tick(
        ts_ms=draw(st.integers(MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS - 1)),
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
        (kept,), warnings = pending.load(folder)
        assert kept.tick == tick._replace(cursors=[])
        assert warnings == []


def test_the_previous_tick_is_found_in_the_partition_of_today_or_else_of_the_last_day(tmp_path: Path) -> None:
    folder = store.prepare(str(tmp_path))
    assert store.read_previous(folder, MIDNIGHT_MS) is None
    facts = CardFacts("GPU-0", 0, None, None, None, None, None, None, "ok", None)
    card = Card(facts, None, None, None, None, None, None, [])
    cursor = Cursor("GPU-0", 0, None, 11, 22, 33)
    boot = Boot("boot", 5)
    store.append(folder, Tick(MIDNIGHT_MS - DAY_MS, None, boot, "580", 1, None, [card], {}, [cursor]))
    # A driver error after it leaves the cursors as they were.
    store.append(folder, Tick(MIDNIGHT_MS - 1, None, boot, None, 1, "driver_not_loaded", [], {}, []))
    for ts_ms in (MIDNIGHT_MS - 1, MIDNIGHT_MS, MIDNIGHT_MS + 40 * DAY_MS):
        previous = store.read_previous(folder, ts_ms)
        assert previous is not None
        assert (previous.boot, previous.driver_version, previous.cursors) == (boot, "580", [cursor])
    assert store.read_previous(folder, MIDNIGHT_MS - 2 * DAY_MS) is None


def test_a_partition_says_what_it_is_and_its_tables_are_strict(tmp_path: Path) -> None:
    folder = store.prepare(str(tmp_path))
    store.append(folder, Tick(MIDNIGHT_MS, None, Boot("boot", 5), None, None, "x", [], {}, []))
    path = Path(folder) / "2026-11-16.sqlite"
    assert query(path, "PRAGMA application_id") == [{"application_id": schema.APPLICATION_ID}]
    assert query(path, "PRAGMA user_version") == [{"user_version": schema.VERSION}]
    assert query(path, "PRAGMA journal_mode") == [{"journal_mode": "delete"}]
    tables = query(path, "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {table["name"] for table in tables if table["strict"]} == {
        "session",
        "tick",
        "card",
        "card_sample",
        "process",
        "process_sample",
        "cursor",
    }
    assert all(table["strict"] for table in tables)


def test_a_window_of_a_view_is_read_through_the_index(tmp_path: Path) -> None:
    folder = store.prepare(str(tmp_path))
    store.append(folder, Tick(MIDNIGHT_MS, None, Boot("boot", 5), None, None, "x", [], {}, []))
    connection = sqlite3.connect(Path(folder) / "2026-11-16.sqlite")
    for view in ("card_ticks", "process_ticks"):
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE ts_ms BETWEEN 1 AND 2").fetchall()
        assert not [row for row in plan if "SCAN" in row[3]], plan
    connection.close()
