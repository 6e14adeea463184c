"""What gua doctor makes of the spool of notes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gua_report.config import Notes
from gua_report.doctor.findings import NAMED, OK, WARNING, Finding
from gua_report.doctor.notes import check_notes
from tests.lab import CONFIG, DAY_MS
from tests.notes import content, make_spool, put
from tests.users import SOMEBODY, needs_root

ME = os.geteuid()
NOW_MS = time.time_ns() // 1_000_000


def check(path: Path) -> list[Finding]:
    return check_notes(NOW_MS + 60_000, CONFIG._replace(notes=Notes(str(path))))


@pytest.fixture
def spool(open_folder: Path) -> Path:
    return make_spool(open_folder)


def test_nobody_needs_a_spool(tmp_path: Path) -> None:
    assert check(tmp_path / "none") == []


def test_notes_in_force_are_counted(spool: Path) -> None:
    put(spool, f"{ME}.0", content(NOW_MS, NOW_MS + DAY_MS))
    put(spool, f"{ME}.1", content(NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS))
    assert check(spool) == [Finding("notes", OK, f"1 note in force, in {spool}")]


def test_a_spool_that_reports_do_not_use_is_a_warning(spool: Path) -> None:
    spool.chmod(0o777)
    (finding,) = check(spool)
    assert finding.status == WARNING
    assert f"chmod 1733 {spool}" in finding.text


@needs_root
def test_files_that_are_no_notes_are_named_with_whose_place_they_block(spool: Path) -> None:
    put(spool, f"{ME}.0", content(NOW_MS, NOW_MS + DAY_MS), SOMEBODY)
    put(spool, f"{SOMEBODY}.3", b"junk\x1b", SOMEBODY)
    (spool / "something else").touch()
    good, *bad = check(spool)
    assert good.text.startswith("0 notes")
    assert [(one.text, one.remedy) for one in bad] == [
        (
            f"{spool}/0.0, where a note of root would be, does not count: it belongs to uid {SOMEBODY}",
            f"sudo rm -r {spool}/0.0",
        ),
        (
            f"{spool}/{SOMEBODY}.3, where a note of uid {SOMEBODY} would be, does not count: it is no JSON",
            f"sudo rm -r {spool}/{SOMEBODY}.3",
        ),
    ]


@needs_root
def test_many_files_that_are_no_notes_are_counted(spool: Path) -> None:
    for number in range(NAMED + 5):
        put(spool, f"{SOMEBODY + number}.0", b"", SOMEBODY)
    assert [one.text for one in check(spool)][-1] == "and 5 more files that are no notes"
