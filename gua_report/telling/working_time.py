"""Whether it is a time at which people may be told."""

from __future__ import annotations

from datetime import datetime, tzinfo

from gua_report.config import Remind
from gua_report.config.rules import WEEKDAYS, parse_hours


def why_not_now(remind: Remind, now_ms: int, zone: tzinfo) -> str | None:
    """Why nobody is told at this time, by the configuration; None if people are."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    if now.date().isoformat() in remind.holidays:
        return f"{now.date().isoformat()} is a holiday in [remind] holidays"
    if WEEKDAYS[now.weekday()] not in remind.days:
        return f"{WEEKDAYS[now.weekday()]} is no working day in [remind] days"
    first, end = parse_hours(remind.hours) or (0, 0)
    if not first <= now.hour < end:
        return f"it is {now:%H:%M}, and people are told from {first}:00 to {end}:00 ([remind] hours)"
    return None
