"""The parts of sections, independent of the format. All text in them is clean, none is escaped."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gua_sample.policy import STATES


class Bar(NamedTuple):
    shares: tuple[float, ...]  # in the order of STATES


class State(NamedTuple):
    """The name of a state, shown with its colour or glyph: the legend of the bars."""

    name: str


class Heatmap(NamedTuple):
    shares: list[list[float | None]]  # 7 days from Monday on, 24 hours each; None: unknown


class Column(NamedTuple):
    title: str
    right: bool = False
    least: int = 0  # least width when space is short; 0: never shortened
    keep_end: bool = False  # shorten in the middle: the end of a name tells a MIG instance
    may_go: bool = False  # may be left out when space is short


Cell: TypeAlias = "str | Bar | State"


class Table(NamedTuple):
    columns: list[Column]
    rows: list[list[Cell]]


Block: TypeAlias = "str | Bar | Table | Heatmap"  # a str is a paragraph


class Section(NamedTuple):
    name: str  # as in --section
    title: str
    caption: str  # what the numbers are based on
    blocks: list[Block]


def spread(shares: tuple[float, ...], cells: int) -> list[int]:
    """The number of cells for each share. The numbers add up; the largest remainders are rounded up."""
    exact = [share * cells if share == share else 0.0 for share in shares]
    whole = [int(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda position: whole[position] - exact[position])
    for position in by_remainder[: round(sum(exact)) - sum(whole)]:
        whole[position] += 1
    return whole


def bar_of(parts: list[float]) -> Bar:
    """A bar of amounts (hours) in the order of STATES."""
    total = sum(parts)
    return Bar(tuple(part / total for part in parts) if total else (0.0,) * len(STATES))


def shade(share: float, shades: int) -> int:
    """The position of the share among so many equal steps from 0 to 1."""
    return max(0, min(int(share * shades), shades - 1))
