"""Spell durations, cards and unusual characters for people. Without pandas."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3_600, 86_400
# Not from strftime, which follows the locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ASCII = str.maketrans({"—": "-", "…": "...", "§": "", "≥": ">="})


def duration(seconds: float) -> str:
    """The duration in its two largest units, minutes and seconds alone: 1d 3h, 2h 05m, 12m, 30s."""
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
    """The duration `whole` and parts of it, all in seconds, so exactly that shares can be checked: 1m, 48s.

    They are rounded to the largest unit that is at most a thousandth of the whole, or to seconds; what is less than the
    whole is never spelled like it.
    """
    units = [unit for unit in (DAY, HOUR, MINUTE, 1) if unit == 1 or unit <= whole / 1000]

    def spell(part: float) -> str:
        for unit in units:
            rounded = round(part / unit) * unit
            if (rounded < round(whole)) == (part < whole):
                return all_units(rounded)
        return all_units(max(0, int(part) - (int(part) == round(whole))))

    return [spell(seconds) for seconds in (whole, *parts)]


def all_units(seconds: int) -> str:
    """The duration in all its units: 6d 20h 53m."""
    found = []
    for unit, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        found += [f"{count}{letter}"] if count else []
    return " ".join(found) or "0s"


def first_of(names: list[str], most: int) -> str:
    """The first names and the number of the others: a, b, c and 2 more."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def span_of_days(days: list[str]) -> str:
    """The span of ordered days: 2026-11-04, or 2026-11-04 to 2026-11-11 (8 days)."""
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"


def gpu(index: int, mig_index: int | None) -> str:
    """The index as in the driver's tools: 0, or 0:2 for the MIG instance 2 of card 0."""
    return f"{index}" if mig_index is None else f"{index}:{mig_index}"


def to_ascii(text: str) -> str:
    return text.translate(ASCII).encode("ascii", "backslashreplace").decode()
