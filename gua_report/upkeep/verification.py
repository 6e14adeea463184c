"""Verify that a stored day reads back as it was written."""

from __future__ import annotations

from typing import Any

from gua_report.rollups.reader import Day, read_days
from gua_report.ticks.coverage import SPAN_COLUMNS
from gua_report.ticks.episodes import COLUMNS as EPISODE_COLUMNS
from gua_sample.errors import StoreError


def verify(path: str, day: str, made: Day) -> None:
    """Raise StoreError if the stored day differs from `made`."""
    if fingerprint(made) != fingerprint(read_days(path, day, day)):
        raise StoreError(f"the rollup of {day} does not read back as it was written: is the disk in order?")


def fingerprint(day: Day) -> list[list[tuple[Any, ...]]]:
    """The contents of a day as whole numbers and texts, for a comparison."""
    rollup = day.rollup
    hours = rollup.cards[["hour_ms", "gpu_uuid", "state", "weight_ms", "gpu_ms", "energy_joules", "energy_ms"]]
    presences = rollup.identities[["hour_ms", "gpu_uuid", "identity", "state", "weight_ms", "gpu_ms"]]
    frames = (hours, presences, rollup.holds, day.episodes[EPISODE_COLUMNS], day.spans[SPAN_COLUMNS])
    return [sorted(map(_whole, frame.astype(object).itertuples(index=False, name=None)), key=repr) for frame in frames]


def _whole(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if value != value else round(value) if isinstance(value, float) else value for value in row)
