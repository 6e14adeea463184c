"""Times, as people and other programs write them into reservations."""

from __future__ import annotations

from datetime import timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.reservations.reservation import FOREVER_MS, moment_ms
from tests.lab import at


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-16", at("2026-11-16")),
        ("2026-11-16T08:30", at("2026-11-16T08:30")),
        ("2026-11-16 08:30:15", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15Z", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15.372177993Z", at("2026-11-16T08:30:15.372")),
        ("2026-11-16T08:30:15.3+02:00", at("2026-11-16T06:30:15.300")),
        (1794816000, 1794816000_000),
        (1794816000.25, 1794816000_250),
        ("1794816000", 1794816000_000),
        ("1.794816e9", 1794816000_000),
        (1794816000123, 1794816000_123),
        ("20261116", None),  # a date without its dashes, not a second of 1970
        ("16.11.2026", None),
        ("2026-13-01", None),
        ("2026-11-16T25:00", None),
        ("", None),
        (0, None),
        (-1, None),
        (1e300, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ([], None),
    ],
)
def test_a_time_is_epoch_seconds_or_iso(value: object, expected: int | None) -> None:
    assert moment_ms(value, timezone.utc) == expected


@given(st.text(max_size=30) | st.floats() | st.integers() | st.none())
def test_anything_else_is_no_time(value: object) -> None:
    found = moment_ms(value, ZoneInfo("Europe/Berlin"))
    assert found is None or 0 < abs(found) <= FOREVER_MS
