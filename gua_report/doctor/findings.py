"""Findings of gua doctor, and the spelling of commands, sizes and times in them."""

import shlex
import time
from functools import partial
from typing import NamedTuple

from gua_sample.console import plural as plural
from gua_sample.processes import printable
from gua_sample.settings import SYSTEM_DATA_DIR

OK = "ok"
WARNING = "warning"
ERROR = "error"  # sampling can't work

NAMED = 10  # limit of findings of one kind
COMMENT = "   # "  # separates a command from a remark


class Finding(NamedTuple):
    check: str
    status: str
    text: str
    remedy: str | None = None  # a command to type; a COMMENT may follow it


def _find(status: str, check: str, text: str, remedy: str | None = None) -> Finding:
    return Finding(check, status, printable(text), remedy and printable(remedy))


ok, warning, error = (partial(_find, status) for status in (OK, WARNING, ERROR))


def shell(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)


def sudo(*words: str) -> str:
    return f"sudo {shell(*words)}"


def as_root(data_dir: str) -> str:
    """The gua doctor command for root. It names the folder, as sudo does not keep this user's environment and home."""
    return sudo("gua", "doctor", *(() if data_dir == SYSTEM_DATA_DIR else ("--data-dir", data_dir)))


def named(findings: list[Finding], others: str) -> list[Finding]:
    more = len(findings) - NAMED
    return findings if more <= 0 else [*findings[:NAMED], warning(findings[0].check, f"and {more} more {others}")]


def size(count: int) -> str:
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 10 else f"{value:.1f} {unit}"


def moment(ts_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(ts_ms // 1000))
