"""Spell durations, cards and unusual characters for people. Without pandas."""

import json
from typing import Any

from gua_sample.held_file import MONTHS as MONTHS
from gua_sample.policy import STATES

MINUTE, HOUR, DAY = 60, 3_600, 86_400
WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKDAYS = tuple(name[:3] for name in WEEKDAY_NAMES)
ASCII = str.maketrans({"—": "-", "…": "...", "§": "", "≥": ">=", "≤": "<="})


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m"
    if whole < DAY:
        minutes = whole % HOUR // MINUTE
        return f"{whole // HOUR}h {minutes:02}m" if minutes else f"{whole // HOUR}h"
    hours = whole % DAY // HOUR
    return f"{whole // DAY}d {hours}h" if hours else f"{whole // DAY}d"


def parts_of(whole: float, *parts: float) -> list[str]:
    """Seconds, spelled to a thousandth of the whole: shares can be checked. What is less is never spelled like it."""
    units = [unit for unit in (DAY, HOUR, MINUTE, 1) if unit == 1 or unit <= whole / 1000]

    def spell(part: float) -> str:
        for unit in units:
            rounded = round(part / unit) * unit
            if (rounded < round(whole)) == (part < whole):
                return all_units(rounded)
        return all_units(max(0, int(part) - (int(part) == round(whole))))

    return [spell(seconds) for seconds in (whole, *parts)]


def all_units(seconds: int) -> str:
    found = []
    for unit, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        found += [f"{count}{letter}"] if count else []
    return " ".join(found) or "0s"


def first_of(names: list[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def span_of_days(days: list[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"


def gpu(index: int, mig_index: int | None) -> str:
    return f"{index}" if mig_index is None else f"{index}:{mig_index}"


def state_columns(unit: str, states: tuple[str, ...] = STATES) -> dict[str, str]:
    return {state: f"{state.replace('-', '_')}_{unit}" for state in states}


def as_json(**content: Any) -> str:
    """A document for programs. Its fields are documented: one that changes its meaning raises the version."""
    return json.dumps({"schema_version": 1, **content}, indent=2)


def to_ascii(text: str) -> str:
    return text.translate(ASCII).encode("ascii", "backslashreplace").decode()
