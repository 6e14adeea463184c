"""Checks of what a child has sent: a file may have taken control of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Kinds = tuple[type | None, ...]  # of a value, which may be missing if None is among them
MOST = 1 << 46  # no figure of one host is as large: 128 cards for 17 years, in milliseconds


def typed(row: Any, columns: Iterable[Kinds]) -> Any:
    """The row, if each value has the type of its column, and each number a sensible size. Else raises an error."""
    for item, kinds in zip(row, columns, strict=True):
        if type(item) not in kinds and not (item is None and None in kinds):
            raise TypeError("no such value")
        if isinstance(item, str):
            item.encode()  # raises ValueError for half a character, which no report could show
        if isinstance(item, int | float) and not 0 <= item < MOST:
            raise ValueError("no such number")
    return row
