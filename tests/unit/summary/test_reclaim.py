"""What reclaiming would have freed."""

from pathlib import Path

import pytest

from tests.lab import (
    ALICE,
    BOB,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    held,
    mig,
    report_of,
    series,
    write,
    write_story,
)

CARDS = {
    "held": held(),
    "busy": busy(),
    "both": held(Job(), Job(200, "bob")),
    "shared": busy(ALICE, BOB),
    "hidden": HIDDEN,
    "beside": Gpu(jobs=(Job(),), used_mib=20_000),
}


def freed(folder: Path, after: list[int], start: int = 0, end: int = 120) -> list[float]:
    """GPU-minutes; all times in minutes."""
    rules = tuple(minutes * MINUTE_MS for minutes in after)
    period = MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS
    report = report_of(folder, *period, reclaim_after_ms=rules)
    assert report.reclaim["after_seconds"].tolist() == [60 * minutes for minutes in after]
    return [round(float(hours) * 60, 6) for hours in report.reclaim["freed_gpu_hours"]]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("held 100 busy 20", [69, 39, 0]),
        ("held 50 busy 10 held 60", [19 + 30, 0, 0]),  # each episode waits anew
        # Of two holders the younger one counts: freed from 30 to 50 and, when both have waited, from 80 to 120.
        ("held 50 both 70", [20 + 40, 10, 0]),
        ("held 40 both 20 held 60", [10 + 60, 60, 0]),  # one that leaves frees the card for the first
        ("shared 120", [0, 0, 0]),  # an idle process on a busy card
        ("hidden 120", [0, 0, 0]),  # memory of nobody
        ("beside 120", [0, 0, 0]),
    ],
)
def test_what_is_left_of_an_episode_is_freed(tmp_path: Path, story: str, expected: list[float]) -> None:
    write_story(tmp_path, story, CARDS)
    assert freed(tmp_path, [30, 60, 120]) == expected


def test_the_wait_began_before_the_window_if_the_episode_did(tmp_path: Path) -> None:
    write_story(tmp_path, "held 120", CARDS)
    assert freed(tmp_path, [30, 60], 40, 100) == [60, 40]


def test_a_slice_frees_its_share_at_each_time(tmp_path: Path) -> None:
    alone, other = mig(0, 0, jobs=(Job(),)), mig(0, 1, 90.0, (Job(200, "bob"),))
    write(tmp_path / "both", series(MONDAY_MS, 120, alone, other))
    assert freed(tmp_path / "both", [60]) == [30]
    write(tmp_path / "later", series(MONDAY_MS, 60, alone) + series(MONDAY_MS + HOUR_MS, 60, alone, mig(0, 1)))
    assert freed(tmp_path / "later", [30]) == [30 + 30]
