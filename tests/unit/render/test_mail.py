"""What a mail says in its subject, and that its parts are of one report."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gua_report.render.mail import make_mails, subject_of
from gua_report.summary.now import NewestFailed
from gua_sample.records import Tick
from tests.lab import (
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    busy,
    free,
    held,
    lost,
    minutes,
    report_of,
    write,
)
from tests.reports import END_MS, HOSTILE, NAN, empty_report, small_report

SMALL = "lab-1: 30 % idle-held, 10 % unknown, 2 held now"


told = partial(minutes, interval_ms=MINUTE_MS)


@pytest.mark.parametrize(
    ("parts", "end", "expected"),
    [
        ([told(0, 300, busy(), free(1)), told(300, 600, held(), free(1))], 600, "25 % idle-held, 1 held now"),
        # Of a few minutes there is no share.
        ([told(0, 9, held(), free(1))], 9, "only 9m observed, 1 held now"),
        ([told(0, 10, held(), free(1))], 10, "50 % idle-held, 1 held now"),
        ([told(0, 300, held()), told(300, 600, free())], 600, "50 % idle-held, none held now"),
        # A card that is unknown now is not called free, nor idle.
        (
            [told(0, 590, held(), free(1)), told(590, 600, held(), lost(1))],
            600,
            "50 % idle-held, 1 known to be held now, 1 card unknown",
        ),
        (
            [told(0, 600, lost(), lost(1))],
            600,
            "0 % idle-held, 100 % unknown, none known to be held now, 2 cards unknown",
        ),
        # What fails now is said first.
        (
            [told(0, 590, free()), told(590, 600, error="driver_not_loaded")],
            600,
            "not known who holds what, 0 % idle-held",
        ),
        ([told(0, 590, held())], 600, "sampler stopped, 100 % idle-held"),
        ([told(0, 590, held())], 1200, "sampler stopped, 100 % idle-held, 49 % observed"),
        (
            [told(0, 580, free()), told(580, 590, error="driver_not_loaded")],
            600,
            "sampler stopped, 0 % idle-held",
        ),
        ([told(0, 100, busy()), told(500, 600, busy())], 600, "0 % idle-held, none held now, 33 % observed"),
    ],
)
def test_the_subject(tmp_path: Path, parts: list[list[Tick]], end: int, expected: str) -> None:
    write(tmp_path, [one for part in parts for one in part])
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + end * MINUTE_MS)
    assert subject_of(replace(report, host="lab7")) == f"lab7: {expected}"


def test_a_report_without_a_card_knows_nothing() -> None:
    assert subject_of(empty_report()) == "lab-1: idle-held time not known, none held now"


@pytest.mark.parametrize("host", [*HOSTILE, "lab\r\nBcc: eve@evil.example", "", "x" * 10**5])
def test_the_name_of_the_host_is_one_line_and_nothing_else_changes(host: str) -> None:
    shown = subject_of(replace(small_report(), host=host))
    assert shown.isprintable()
    assert shown.endswith(SMALL.removeprefix("lab-1"))


def test_text_page_and_subject_say_what_is_to_act_on(tmp_path: Path) -> None:
    write(tmp_path, [*minutes(0, 120, held(), interval_ms=MINUTE_MS)])
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    made = make_mails(report, HOUR_MS).administrator
    assert made.subject.endswith(": 100 % idle-held, 1 held now")
    assert made.text.startswith("To act on: 1 idle-held episode of 1h or more (alice ≥ 2h)\n")
    assert max(map(len, made.text.splitlines())) <= 72
    assert "<!DOCTYPE html>" in made.page
    assert "To act on: 1 idle-held episode" in made.page
    assert (made.warnings, made.is_clean) == ([], False)
    assert make_mails(report, 3 * HOUR_MS).administrator.is_clean


def test_what_is_not_known_now_is_not_counted() -> None:
    failed = NewestFailed("unknown", END_MS - HOUR_MS, END_MS - 2 * HOUR_MS, False)
    report = replace(small_report(), newest_failed=failed)
    report = replace(report, episodes=report.episodes.assign(ongoing=NAN))
    assert subject_of(report) == "lab-1: not known who holds what, 30 % idle-held, 10 % unknown"
