"""Where the data lives and how durations are spelled."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gua_sample.errors import UsageError

SYSTEM_DATA_DIR = "/var/lib/gua"

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def data_dir(option: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The data directory, first that applies; the order is part of the documented contract."""
    if option is not None:
        if not option:
            raise UsageError("--data-dir is empty: give a folder, for example --data-dir /var/lib/gua")
        return os.path.abspath(option)
    if environment.get("GUA_DATA_DIR"):
        return os.path.abspath(environment["GUA_DATA_DIR"])
    if environment.get("STATE_DIRECTORY"):
        # systemd joins several with ":"; the unit asks for one.
        return environment["STATE_DIRECTORY"].split(":")[0]
    if os.path.isdir(SYSTEM_DATA_DIR):
        return SYSTEM_DATA_DIR
    state_home = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state_home, "gua")


def duration_ms(text: str) -> int:
    """'30s', '1.5h' or '7d' in milliseconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS_MS.get(text[len(number) :])
    # float() would also take "nan", "1_0", "1e3" and blanks.
    if unit is None or number.count(".") > 1 or not number.replace(".", "", 1).isascii():
        raise _bad_duration(text)
    if not number.replace(".", "", 1).isdigit():
        raise _bad_duration(text)
    milliseconds = round(float(number) * unit)
    if not 0 < milliseconds <= 100 * 366 * UNITS_MS["d"]:
        raise _bad_duration(text)
    return milliseconds


def _bad_duration(text: str) -> UsageError:
    units = ", ".join(UNITS_MS)
    return UsageError(f"bad duration {text!r}: expected a positive number and one of {units}, such as 30s or 7d")
