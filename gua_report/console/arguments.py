"""Options that several commands share, and the validation of their values."""

from __future__ import annotations

import argparse


def add_window(parser: argparse.ArgumentParser) -> None:
    """Add the options that window.parse_window takes."""
    from gua_report.window import DEFAULT_SINCE  # imported late: not every command has a window

    when = parser.add_argument_group("which time")
    when.add_argument("--since", metavar="D", help=f"how far back from the end, or a time (default {DEFAULT_SINCE})")
    when.add_argument("--from", dest="start", metavar="TIME", help="when the window starts")
    when.add_argument("--to", dest="end", metavar="TIME", help="when it ends (default now)")
    when.add_argument("--tz", metavar="ZONE", help="whose clock, such as Europe/Berlin (default this machine's)")


def output_path(text: str) -> str | None:
    """The path; None for standard output, so that a file it is redirected to is written to, not replaced."""
    return None if text in ("-", "/dev/stdout") else text


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, not {text!r}")
    return int(text)


def percent(text: str) -> float:
    return number(text, 100)


def mebibytes(text: str) -> float:
    return number(text, 1e9)


def number(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {most:g}, not {text!r}")
    return value
