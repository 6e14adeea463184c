"""Parsing of settings: the data folder, durations and seeds."""

import os
from collections.abc import Mapping

from gua_sample.errors import UsageError

SYSTEM_DATA_DIR = "/var/lib/gua"
NOTES_SPOOL = "/var/spool/gua/notes"  # where people say that they hold a card on purpose

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LONGEST_MS = 100 * 366 * UNITS_MS["d"]


def data_dir(option: str | None, environment: Mapping[str, str] = os.environ) -> str:
    if option is not None:
        if not option:
            raise UsageError("--data-dir is empty: give a folder, for example --data-dir /var/lib/gua")
        return os.path.abspath(option)
    if environment.get("GUA_DATA_DIR"):
        return os.path.abspath(environment["GUA_DATA_DIR"])
    if environment.get("STATE_DIRECTORY"):
        # systemd joins several with ":"; the unit asks for one.
        return os.path.abspath(environment["STATE_DIRECTORY"].split(":")[0])
    if os.path.isdir(SYSTEM_DATA_DIR):
        return SYSTEM_DATA_DIR
    state_home = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state_home):  # the specification says that relative paths are ignored
        state_home = os.path.expanduser("~/.local/state")
    if not os.path.isabs(state_home):
        raise UsageError("this user has no home folder to keep the history in: give --data-dir")
    return os.path.join(state_home, "gua")


def duration_ms(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS_MS.get(text[len(number) :])
    digits = number.replace(".", "", 1)  # float() would also take "nan", "1_0", "1e3" and blanks
    if unit is not None and digits.isascii() and digits.isdigit():
        milliseconds = round(min(float(number) * unit, 2 * LONGEST_MS))  # an endless number can't be rounded
        if milliseconds > LONGEST_MS:
            raise UsageError(f"duration {text!r} is too long: 100 years are the most")
        if milliseconds:
            return milliseconds
    units = ", ".join(UNITS_MS)
    raise UsageError(f"bad duration {text!r}: expected a positive number and one of {units}, such as 30s or 7d")


def seed(text: str, option: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"bad value {text!r} for {option}: expected a whole number, such as 42")
