from __future__ import annotations

from pathlib import Path

import pytest

from gua_sample.partition_names import DAY_MS, day_of, is_partition, list_partitions, partition_path


def test_a_tick_belongs_to_its_utc_day() -> None:
    midnight = 1_794_787_200_000
    assert day_of(midnight) == "2026-11-16"
    assert day_of(midnight - 1) == "2026-11-15"
    assert day_of(midnight + DAY_MS - 1) == "2026-11-16"
    assert partition_path("/d", "2026-11-16") == "/d/2026-11-16.sqlite"


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-16.sqlite-journal",
        "2026-11-16.sqlite.corrupt-1",
        "2026-11-16.00000000000001.pending",
        "x2026-11-16.sqlite",
        "2026-11-16.sqlite\n",
        "٢٠٢٦-11-16.sqlite",
        "rollups.sqlite",
    ],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert not is_partition(name)


def test_partitions_are_listed_oldest_first(tmp_path: Path) -> None:
    for name in ("2026-11-16.sqlite", "2025-12-31.sqlite", "2026-11-16.sqlite-journal", "notes.txt"):
        (tmp_path / name).touch()
    assert list_partitions(str(tmp_path)) == [str(tmp_path / "2025-12-31.sqlite"), str(tmp_path / "2026-11-16.sqlite")]
