"""The parts of sections, independent of the format. All text in them is clean, none is escaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gua_report.render.values import amount, clean, gpu
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

UNOBSERVED = "unobserved"
SHOWN_STATES = (IDLE_HELD, ACTIVE, TRULY_IDLE, UNKNOWN)  # as people see them: what matters most comes first
LEGEND = {**{state: state for state in SHOWN_STATES}, UNOBSERVED: "not observed"}

if TYPE_CHECKING:
    import pandas as pd

    from gua_report.render import Options
    from gua_report.render.pictures.drawing import Scene
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
    return sorted(rows, key=lambda row: SHOWN_STATES.index(row["state"]))


GOOD_NAME = len("docker:3f2a9c81d0b7")

STATE = Column("state", lambda row: State(row["state"]))


def figure(title: str, key: str, spell: Callable[[Any], str] = amount) -> Column:
    return Column(title, lambda row: spell(row[key]), right=True)


def label(title: str, key: str, least: int = 8) -> Column:
    return Column(title, lambda row: clean(row[key]), least=least)


def place_of(report: Report) -> list[Column]:
    """The columns of the card that a row is about: in the report of a fleet, with its host."""
    host = [label("host", "host")] if report.fleet else []
    return [*host, Column("gpu", lambda row: gpu(row["gpu_index"], row["mig_index"]))]


def people_of(report: Report) -> Column:
    return Column("who", lambda row: clean(report.who(row["identity"])), least=8, good=GOOD_NAME)


def and_more(rest: int, what: str = "more") -> list[Block]:
    return [f"and {rest:,} {what}"] if rest > 0 else []


def first_rows(columns: list[Column], found: pd.DataFrame, top: int, what: str = "more") -> list[Block]:
    """A table of the first rows, and a line on the others; nothing if there are none."""
    rows = found.head(top).to_dict("records")
    return [*([Table(columns, rows)] if rows else []), *and_more(len(found) - top, what)]


def if_asked(options: Options, name: str, title: str, caption: str) -> list[Section]:
    """A section without content: why there is none, if it was requested explicitly."""
    return [] if options.is_whole else [Section(name, title, caption, [])]


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
    return max(0, min(int(share * shades), shades - 1))
