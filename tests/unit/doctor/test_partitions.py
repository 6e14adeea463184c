"""What gua doctor makes of the partitions, and of what lies beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_report.doctor import partitions as doctor_partitions
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, ok
from gua_report.ticks.newest import list_history
from gua_sample import pending
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Boot, Tick
from tests.facts import history, newest, statuses
from tests.lab import NOON_MS


def check_partitions(samples: str) -> list[Finding]:
    return doctor_partitions.check_partitions(list_history(samples), NOON_MS, "START")


def test_partitions_are_counted_and_progress_is_told(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (9, 2, 1, 0)))
    steps: list[tuple[int, int]] = []
    found = list_history(samples)
    (summary,) = doctor_partitions.check_partitions(found, NOON_MS, "START", lambda *step: steps.append(step))
    assert summary.text.startswith("4 days, 2026-11-07 to 2026-11-16, ")
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (1, 1)]
    assert check_partitions(str(tmp_path / "nowhere")) == [ok("partitions", "none")]


def test_many_damaged_partitions_do_not_fill_the_screen(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in range(15, 0, -1)))
    for path in Path(samples).iterdir():
        path.write_bytes(b"not a database at all, " * 100)
    found = check_partitions(samples)
    assert len(found) == 12
    assert "5 more" in found[-1].text


def test_what_lies_beside_the_partitions_is_mentioned(tmp_path: Path) -> None:
    folder = Path(history(tmp_path, NOON_MS))
    for name in ("2026-11-15.sqlite.corrupt-1", "2026-11-15.sqlite.corrupt-1-journal", "2026-11-14.0a.pending"):
        (folder / name).touch()
    (folder / "2026-11-13.sqlite-journal").touch()
    found = check_partitions(str(folder))[1:]
    assert [one.text.split(":")[0] for one in found] == [
        "1 file set aside as corrupt",
        "1 tick waiting, as somebody holds 2026-11-14.sqlite",
    ]
    assert statuses(found) == [WARNING, WARNING]
    os.utime(folder / "2026-11-13.sqlite-journal", (0, 0))  # no run is going on any more
    left = check_partitions(str(folder))[-1]
    assert (left.status, left.remedy) == (WARNING, "START")
    assert left.text.startswith("2026-11-13.sqlite-journal was left")


@pytest.mark.parametrize("name", ["2026-11-15.sqlite", "2026-11-15.sqlite-journal", "2026-11-15.sqlite-wal"])
def test_a_pipe_among_the_partitions_is_named_and_not_opened(tmp_path: Path, name: str) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS, NOON_MS))
    (samples / name).unlink(missing_ok=True)
    os.mkfifo(samples / name)
    recorded = list_history(str(samples))
    assert recorded.partitions == [f"{samples}/2026-11-16.sqlite"]
    found = check_partitions(str(samples))[1]
    assert (found.status, found.text) == (WARNING, f"{name} is no regular file, and was not looked into")
    assert found.remedy == f"sudo mv -T {samples}/{name} {samples}/{name}.strange"


def test_what_can_not_be_todays_partition_is_an_error(tmp_path: Path) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS))
    today = samples / "2026-11-16.sqlite"
    today.mkdir()
    assert statuses(check_partitions(str(samples))) == [OK, ERROR]
    today.rmdir()
    today.symlink_to("2026-11-15.sqlite")  # the sampler can write through it
    assert statuses(check_partitions(str(samples))) == [OK, WARNING]


def test_a_kept_tick_is_read_only_if_it_is_a_small_file(tmp_path: Path) -> None:
    samples = Path(history(tmp_path, NOON_MS - 3_600_000))
    kept = Path(pending.keep(str(samples), Tick(NOON_MS, None, Boot("boot", 5), None, 1, None, [], {}, [])))
    assert "waits" in newest(str(samples)).text
    text = kept.read_text()
    kept.write_text(text[0] + " " * pending.MOST_BYTES + text[1:])  # the same to a reader of JSON
    assert newest(str(samples)).status == ERROR
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    recorded = list_history(str(samples))
    assert (recorded.strange, recorded.others) == ((kept.name,), [])
    assert check_partitions(str(samples))[1].text.startswith(f"{kept.name} is no regular file")
