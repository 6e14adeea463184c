"""Options that several commands share, and the validation of their values."""

import argparse
import os
import stat
from functools import partial

from gua_sample import console, settings
from gua_sample.errors import NothingToReport, UsageError
from gua_sample.rights import check_folder

# For who comes from gpu-usage-audit.
DATABASE_HINT = {"--db": "gpu-usage-audit's: give --data-dir DIR, and take in its database with gua import FILE"}
ZONE = "whose clock, such as Europe/Berlin (default this machine's)"  # of --tz


def add_window(parser: argparse.ArgumentParser) -> None:
    from gua_report.window import DEFAULT_SINCE  # imported late: not every command has a window

    when = parser.add_argument_group("which time")
    when.add_argument("--since", metavar="D", help=f"how far back from the end, or a time (default {DEFAULT_SINCE})")
    when.add_argument("--from", dest="start", metavar="TIME", help="when the window starts")
    when.add_argument("--to", dest="end", metavar="TIME", help="when it ends (default now)")
    when.add_argument("--tz", metavar="ZONE", help=ZONE)


def add_place(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where")
    where.add_argument("--data-dir", metavar="DIR", help="where the history lives")
    where.add_argument("--config", metavar="FILE", help="thresholds, people and more, instead of /etc/gua/gua.toml")


def find_data_dir(prog: str, option: str | None) -> str:
    data_dir = settings.data_dir(option)
    if warning := check_folder(data_dir):
        console.complain(prog, f"warning: {warning}")
    return data_dir


def find_history(prog: str, option: str | None) -> str:
    data_dir = find_data_dir(prog, option)
    check_exists(data_dir)
    return data_dir


def check_exists(data_dir: str) -> None:
    """Raise NothingToReport if there is no such folder: it must not be taken for one without ticks."""
    try:
        if stat.S_ISDIR(os.stat(data_dir).st_mode):
            return
        text = f"{data_dir} is no folder: give another --data-dir"
    except (FileNotFoundError, NotADirectoryError):
        text = f"{data_dir} does not exist: give another --data-dir, or install gua first (sudo make install)"
    except OSError:  # hidden from us: opening it will raise the error
        return
    raise NothingToReport(text)


def choose(value: str, what: str, known: tuple[str, ...]) -> str:
    if value in known:
        return value
    import difflib

    near = difflib.get_close_matches(value, known, 1)
    hint = f": did you mean {near[0]}?" if near else ""
    raise UsageError(f"unknown {what} {value!r}{hint} (one of {', '.join(known)})")


def output_path(text: str) -> str | None:
    """The path; None for standard output, so that a file it is redirected to is written to, not replaced."""
    return None if text in ("-", "/dev/stdout") else text


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, not {text!r}")
    return int(text)


def number(most: float, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {most:g}, not {text!r}")
    return value


percent, mebibytes = partial(number, 100), partial(number, 1e9)
