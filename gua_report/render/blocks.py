"""The parts of sections, independent of the format. All text in them is clean, none is escaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gua_report.render.pictures.scene import UNOBSERVED, Scene
from gua_report.render.words import amount, clean
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

SHOWN_STATES = (IDLE_HELD, ACTIVE, TRULY_IDLE, UNKNOWN)  # as people see them: what matters most comes first
LEGEND = {**{state: state for state in SHOWN_STATES}, UNOBSERVED: "not observed"}

if TYPE_CHECKING:
    from gua_report.summary.report import Report


class Bar(NamedTuple):
    shares: tuple[float, ...]  # in the order of STATES


class State(NamedTuple):
    """The name of a state, shown with its colour or glyph: the legend of the bars."""

    name: str


class Heatmap(NamedTuple):
    shares: list[list[float | None]]  # 7 days from Monday on, 24 hours each; None: unknown


Cell: TypeAlias = "str | Bar | State"
Row: TypeAlias = "dict[Any, Any]"


class Column(NamedTuple):
    title: str
    cell: Callable[[Row], Cell]
    right: bool = False
    least: int = 0  # least width when space is short; 0: never shortened
    keep_end: bool = False  # shorten in the middle: the end of a name tells a MIG instance
    may_go: bool = False  # may be left out when space is short
    good: int = 0  # columns that may go do so before this one gets narrower


class Table(NamedTuple):
    columns: list[Column]
    rows: list[Row]

    def cells(self) -> list[list[Cell]]:
        return [[column.cell(row) for column in self.columns] for row in self.rows]


class Picture(NamedTuple):
    """A picture for formats that can show one; others show its numbers."""

    scene: Scene
    table: Table | None  # its numbers, unless a table beside it has them
    legend: dict[str, str]  # what its colours and patterns stand for


Block: TypeAlias = "str | Bar | Table | Heatmap | Picture"  # a str is a paragraph


class Section(NamedTuple):
    name: str  # as in --section
    title: str
    caption: str  # what the numbers are based on
    blocks: list[Block]


def in_order(rows: list[Row]) -> list[Row]:
    """The rows of a table by state, in the order in which people see states."""
    return sorted(rows, key=lambda row: SHOWN_STATES.index(row["state"]))


GOOD_NAME = len("docker:3f2a9c81d0b7")

STATE = Column("state", lambda row: State(row["state"]))


def figure(title: str, key: str, spell: Callable[[Any], str] = amount) -> Column:
    """A column of numbers, aligned right."""
    return Column(title, lambda row: spell(row[key]), right=True)


def label(title: str, key: str, least: int = 8) -> Column:
    """A column of names, which are made clean and are shortened when space is short."""
    return Column(title, lambda row: clean(row[key]), least=least)


def people_of(report: Report) -> Column:
    """The column of those whom a row's identity stands for."""
    return Column("who", lambda row: clean(report.who(row["identity"])), least=8, good=GOOD_NAME)


def bar_of(parts: list[float], full: float) -> Bar:
    """A bar of amounts (hours) in the order of STATES; `full` is the amount that fills it."""
    return Bar(tuple(part / full for part in parts) if full else (0.0,) * len(STATES))


def spread(shares: tuple[float, ...], cells: int) -> list[int]:
    """The number of cells for each share. The numbers add up; the largest remainders are rounded up."""
    exact = [share * cells if share == share else 0.0 for share in shares]
    whole = [int(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda position: whole[position] - exact[position])
    for position in by_remainder[: round(sum(exact)) - sum(whole)]:
        whole[position] += 1
    return whole


def shade(share: float, shades: int) -> int:
    """The position of the share among so many equal steps from 0 to 1."""
    return max(0, min(int(share * shades), shades - 1))
