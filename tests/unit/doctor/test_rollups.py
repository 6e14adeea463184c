"""What gua doctor makes of rollups.sqlite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.config import load_config
from gua_report.doctor import rollups as doctor_rollups
from gua_report.doctor.findings import OK, WARNING, Finding
from gua_report.rollups import schema
from gua_report.ticks.newest import list_history
from gua_report.upkeep.nightly import Upkeep
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Boot, Tick
from tests.facts import history
from tests.lab import NOON_MS


def check_rollups(samples: str) -> list[Finding]:
    return doctor_rollups.check_rollups(list_history(samples), NOON_MS, "ROLL UP")


def test_closed_days_that_are_not_rolled_up_are_a_warning(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (2, 1, 0)))
    assert check_rollups(samples) == []  # yesterday may still wait for the timer
    store.append(samples, Tick(NOON_MS - 3 * DAY_MS, None, Boot("boot", 5), None, 1, None, [], {}, []), pytest.fail)
    (finding,) = check_rollups(samples)
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert finding.text.startswith("1 closed day not rolled up, 2026-11-13 for one")
    Upkeep(str(tmp_path / "data"), load_config(None), NOON_MS, False, print).run(False, False, None)
    (finding,) = check_rollups(samples)
    assert finding.status == OK
    assert finding.text.startswith("3 days, 2026-11-13 to 2026-11-15, ")


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
