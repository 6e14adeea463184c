"""What gua doctor finds, and how sizes, ages and times are spelled in it."""

from __future__ import annotations

import shlex
import time
from typing import NamedTuple

from gua_sample.processes import printable
from gua_sample.settings import SYSTEM_DATA_DIR

OK = "ok"
WARNING = "warning"
ERROR = "error"  # as it is, sampling can't work

COMMENT = "   # "  # between a command and what else there is to know


class Finding(NamedTuple):
    check: str
    status: str
    text: str
    remedy: str | None = None  # a command to type; a COMMENT may follow it


def ok(check: str, text: str) -> Finding:
    return Finding(check, OK, printable(text))


def warning(check: str, text: str, remedy: str | None = None) -> Finding:
    return Finding(check, WARNING, printable(text), remedy and printable(remedy))


def error(check: str, text: str, remedy: str | None = None) -> Finding:
    return Finding(check, ERROR, printable(text), remedy and printable(remedy))


def shell(*words: str) -> str:
    """The words as one would type them in a shell."""
    return " ".join(shlex.quote(word) for word in words)


def as_root(data_dir: str) -> str:
    """The command that sees more. What this user's environment or home says of the folder, sudo would not know."""
    return "sudo gua doctor" + ("" if data_dir == SYSTEM_DATA_DIR else " " + shell("--data-dir", data_dir))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 10 else f"{value:.1f} {unit}"


def duration(ms: float) -> str:
    seconds = ms / 1000
    for limit, length, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def moment(ts_ms: int) -> str:
    """In this machine's time, with its zone named."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(ts_ms // 1000))
