"""Reading a history: no more often than is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gua_report.ticks.history import History
from gua_sample.partition_names import day_of
from tests.lab import ALICE, DAY_MS, HOUR_MS, MONDAY_MS, held, report_of, tick, write


def test_days_with_a_tick_each_are_not_read_again_and_again_as_the_context_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = 100
    write(tmp_path, [tick(MONDAY_MS + day * DAY_MS + HOUR_MS, held(ALICE)) for day in range(days)])
    read: list[str] = []
    read_partition = History._read_partition

    def count(history: History, ticks: pd.DataFrame, *rest: Any) -> Any:
        read.append(ticks["day"].iloc[0])
        return read_partition(history, ticks, *rest)

    monkeypatch.setattr(History, "_read_partition", count)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + days * DAY_MS)
    assert len(report.episodes) > 0
    assert set(read) == {day_of(MONDAY_MS + day * DAY_MS) for day in range(days)}
    assert len(read) < 2 * days
