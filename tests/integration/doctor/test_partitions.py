"""gua doctor on damaged partitions, and on what lies among them."""

from __future__ import annotations

import os
import sqlite3

import pytest

from gua_sample import schema
from tests.damage import DAMAGES, damage_header
from tests.integration.doctor.examination import errors, examine, of_check, one, sample_before
from tests.machine import Machine, query


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_partition_is_named_with_a_way_to_save_it(healthy: Machine, damage: object) -> None:
    assert callable(damage)
    sample_before(healthy)
    damaged = healthy.partitions()[0]
    damage(damaged)
    document = examine(healthy)
    assert document["ok"]
    summary, found = of_check(document, "partitions")
    assert summary["text"].startswith("2 days")
    assert found["status"] == "warning"
    assert str(damaged) in found["text"]
    assert found["remedy"] == f"sqlite3 -readonly {damaged} .recover | sqlite3 -safe recovered.sqlite"


def test_damage_in_the_middle_of_a_partition_is_found(healthy: Machine) -> None:
    """Where opening it and reading its slow facts would not come by."""
    (path,) = healthy.partitions()
    (row,) = query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'card_sample'")
    (size,) = query(path, "PRAGMA page_size")
    content = bytearray(path.read_bytes())
    start = (row["rootpage"] - 1) * size["page_size"]
    content[start : start + 200] = b"\xde\xad" * 100
    path.write_bytes(content)
    document = examine(healthy)
    assert "is damaged" in of_check(document, "partitions")[1]["text"]
    assert one(document, "newest tick")["status"] == "ok"


def test_a_partition_of_a_newer_gua_is_an_error_only_today(healthy: Machine) -> None:
    sample_before(healthy)
    for path, is_error in zip(healthy.partitions(), (False, True), strict=True):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        connection.close()
        document = examine(healthy)
        assert ("partitions" in errors(document)) == is_error
        assert f"schema version {schema.VERSION + 1}" in of_check(document, "partitions")[-1]["text"]


def test_a_partition_that_is_a_directory_is_an_error_until_the_sampler_sets_it_aside(healthy: Machine) -> None:
    (path,) = healthy.partitions()
    path.unlink()
    path.mkdir()
    assert "partitions" in errors(examine(healthy))
    assert healthy.sample().returncode == 0
    assert "partitions" not in errors(examine(healthy))


def test_ticks_that_wait_and_files_set_aside_are_mentioned(healthy: Machine) -> None:
    damage_header(healthy.partitions()[0])
    healthy.sample()
    reader = sqlite3.connect(healthy.partitions()[0], isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM tick").fetchone()
    healthy.tick()
    found = of_check(examine(healthy), "partitions")[1:]
    reader.close()
    assert [one["status"] for one in found] == ["warning", "warning"]
    assert ".sqlite.corrupt-1" in found[0]["text"]
    assert "1 tick waiting" in found[1]["text"]


def test_what_is_no_file_neither_hangs_nor_swells_the_doctor(healthy: Machine) -> None:
    names = ["2026-01-02.sqlite", "2026-01-02.00.pending"]
    os.mkfifo(healthy.samples / names[0])
    (healthy.samples / names[1]).symlink_to("/dev/zero")
    document = examine(healthy)
    assert document["ok"]
    assert document["partitions"] == 1
    found = of_check(document, "partitions")[1:]
    assert {one["status"] for one in found} == {"warning"}
    assert sorted(one["text"].split()[0] for one in found) == sorted(names)
