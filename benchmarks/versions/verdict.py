"""Whether two outputs of a command are equal, or differ in nothing but numbers that are near."""

from __future__ import annotations

import csv
import json
import re
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

# What differs from run to run.
NORMAL = (
    (re.compile(r"NVML \d+ ms"), "NVML N ms"),
    (re.compile(r'("nvml_ms": |gua_\w*nvml_seconds(?:\{.*\})? )[\d.e-]+'), r"\1N"),
    (re.compile(r"={5,}\d+=="), "BOUNDARY"),
    (re.compile(r"(?i)message-id: <.*>"), "Message-ID: ID"),
    (re.compile(r"/gua-[\w-]+?-[a-z0-9_]{8}\b"), "/gua-TEMPORARY"),
)
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
BAR = re.compile("[▓█░·#=.: -]+")


class Slack(NamedTuple):
    """The differences that are allowed."""

    hours: float  # of all cards together
    card_hours: float  # of one card
    share: float  # as a fraction
    seconds: float  # of a time


def normalise(text: str) -> str:
    for pattern, instead in NORMAL:
        text = pattern.sub(instead, text)
    return text


class Verdict:
    """Compares two texts; remembers the largest difference within the bound."""

    def __init__(self, slack: Slack) -> None:
        self.slack, self.largest, self.where = slack, 0.0, ""

    def is_near(self, one: str, other: str) -> bool:
        before, after = parse(one), parse(other)
        if before is None or after is None:
            return self._texts(one, other)
        return self._documents(before, after, "")

    def _documents(self, one: Any, other: Any, path: str) -> bool:
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self._documents(one[k], other[k], f"{path}.{k}") for k in one)
        if isinstance(one, list) and isinstance(other, list):
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(self._documents(a, b, f"{path}[]") for a, b in pairs)
        before, after = as_number(one), as_number(other)
        if before is not None and after is not None:
            return self._numbers(before, after, self._slack_of(path), path)
        return self._texts(one, other) if isinstance(one, str) and isinstance(other, str) else bool(one == other)

    def _slack_of(self, path: str) -> float:
        """What a number may differ by, by the name of its key or column."""
        if path.endswith(("share", "percent")):
            return self.slack.share * (100 if path.endswith("percent") else 1)
        one_card = self.slack.card_hours
        hours = one_card if path.startswith(".gpus") else self.slack.hours
        by_unit = {"hours": hours, "seconds": one_card * 3600, "ms": one_card * 3_600_000}
        return by_unit.get(path.rpartition("_")[2], 0.0)

    def _numbers(self, one: float, other: float, slack: float, where: str) -> bool:
        if one == other:
            return True
        difference, larger = abs(one - other), max(abs(one), abs(other))
        if difference > max(slack * 1.01, self.slack.share * larger):
            return False
        if difference / larger >= self.largest:
            self.largest, self.where = difference / larger, f"{where}: {one:g}, {other:g}"
        return True

    def _texts(self, one: str, other: str) -> bool:
        """Whether two texts differ in nothing but numbers that are near. Bars and blanks follow from these."""
        with suppress(ValueError):
            times = [datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() for text in (one, other)]
            return abs(times[0] - times[1]) <= self.slack.seconds
        lines = [text.splitlines() for text in (one, other)]
        return len(lines[0]) == len(lines[1]) and all(map(self._lines, *lines))

    def _lines(self, one: str, other: str) -> bool:
        words = [BAR.sub(" ", NUMBER.sub("0", text)) for text in (one, other)]
        found = [list(NUMBER.finditer(text)) for text in (one, other)]
        if words[0] != words[1]:
            return False
        for left, right in zip(*found, strict=True):
            before, after = (float(number.group().replace(",", "")) for number in (left, right))
            if not self._numbers(before, after, self._slack_in_text(left, one[left.end() :]), one.strip()[:60]):
                return False
        return True

    def _slack_in_text(self, number: re.Match[str], after: str) -> float:
        """One in the last place that is shown, if that is no count; hours may differ by more."""
        decimals = len(number.group().partition(".")[2])
        if after.lstrip().startswith("%"):
            return float(max(10.0**-decimals, self.slack.share * 100))
        if decimals:
            return float(max(10.0**-decimals, self.slack.card_hours))
        return float(after[:1] in ("s", "m", "h", "d"))


def parse(text: str) -> Any:
    """The document in a text: JSON, lines of JSON, or CSV by its columns; None if it is none of these."""
    with suppress(ValueError):
        return json.loads(text)
    with suppress(ValueError):
        return [json.loads(line) for line in text.splitlines()]
    first = text.partition("\n")[0]
    if "," not in first or " " in first:
        return None
    return {"columns": first, "rows": list(csv.DictReader(text.splitlines()))}


def as_number(value: Any) -> float | None:
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return float(value) if type(value) in (int, float) else None
