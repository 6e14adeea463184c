"""Fit text to the columns of a terminal: a wide character takes two of them, an escape sequence none."""

import re

ESCAPE = re.compile(r"\x1b\[\d*m")
SEPARATOR = "  "  # between the columns of a table
# Follows each wide character while textwrap counts characters. No text contains it, as it is not printable.
FILLER = "\0"


def columns(text: str) -> int:
    text = ESCAPE.sub("", text)
    return len(text) if text.isascii() else len(_fill(text))


def fit(text: str, size: int, ascii_only: bool = False, keep_end: bool = False) -> str:
    if columns(text) <= size:
        return text
    text = ESCAPE.sub("", text)
    ellipsis = ("..." if ascii_only else "…")[:size]
    room = size - len(ellipsis)
    tail = room * 2 // 3 if keep_end else 0
    return _start(text, room - tail) + ellipsis + _start(text[::-1], tail)[::-1]


def wrap(text: str, size: int) -> list[str]:
    import textwrap  # imported late: gua status seldom needs it, and its regular expressions take longer than the rest

    filled = _fill(text)
    # A wide character that is torn from its filler makes a line one column longer.
    size -= filled != text
    return [line.replace(FILLER, "") for line in textwrap.wrap(filled, size, break_on_hyphens=False)]


def join(cells: list[str], sizes: list[int], right: list[bool]) -> str:
    padded = []
    for cell, size, is_right in zip(cells, sizes, right, strict=True):
        blanks = " " * (size - columns(cell))
        padded.append(blanks + cell if is_right else cell + blanks)
    return SEPARATOR.join(padded).rstrip()


def _start(text: str, size: int) -> str:
    text = text[:size]
    while columns(text) > size:
        text = text[:-1]
    return text


def _fill(text: str) -> str:
    if text.isascii():
        return text
    from unicodedata import east_asian_width  # imported late: names are rarely wide

    return "".join(c + FILLER if east_asian_width(c) in "WF" else c for c in text)
