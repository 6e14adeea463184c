"""What gua doctor makes of the published copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gua_report.doctor.findings import OK, WARNING
from gua_report.doctor.published import check_published
from gua_report.rollups.index import path_of
from gua_report.rollups.published import Meta, published_path
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep.publishing import write_copy
from tests.lab import HOUR_MS, NOON_MS


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A data folder with a copy that was published at noon."""
    with RollupWriter(path_of(str(tmp_path))):
        pass
    write_copy(path_of(str(tmp_path)), str(tmp_path), Meta("lab7", None, "0.1.0", NOON_MS, None))
    return str(tmp_path)


def test_it_says_under_which_name_and_how_long_ago(folder: str) -> None:
    (finding,) = check_published(folder, True, NOON_MS + 5 * HOUR_MS, "ROLL UP")
    assert finding.status == OK
    assert finding.text.startswith("as lab7, 5 h ago, ")


def test_a_copy_that_two_nights_did_not_renew_is_a_warning(folder: str) -> None:
    assert check_published(folder, True, NOON_MS + 48 * HOUR_MS, "ROLL UP")[0].status == OK
    (finding,) = check_published(folder, True, NOON_MS + 49 * HOUR_MS, "ROLL UP")
    assert finding.status == WARNING
    assert "2 days ago" in finding.text


def test_without_a_copy_it_is_a_warning_only_if_one_is_asked_for(tmp_path: Path) -> None:
    (finding,) = check_published(str(tmp_path), True, NOON_MS, "ROLL UP")
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert check_published(str(tmp_path), False, NOON_MS, "ROLL UP") == []


def test_a_copy_that_nobody_asks_for_any_more_is_a_warning(folder: str) -> None:
    (finding,) = check_published(folder, False, NOON_MS, "ROLL UP")
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert "names people" in finding.text


def test_a_damaged_copy_is_a_warning(folder: str) -> None:
    Path(published_path(folder)).write_bytes(b"garbage, and more than sixteen bytes of it")
    (finding,) = check_published(folder, True, NOON_MS, "ROLL UP")
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
