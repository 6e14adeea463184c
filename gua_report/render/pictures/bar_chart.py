"""A picture of amounts: for each row a bar at each place of an axis, with its number below."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gua_report.render.blocks import Column, Picture, Table
from gua_report.render.pictures.scene import UNOBSERVED, Cell, Row, Scene, Span
from gua_report.render.words import amount, is_missing, short

LEAST_WIDTH = 5  # of a column in text: names are shortened, 192.0 is not


class Series(NamedTuple):
    label: str
    note: str
    values: list[float]  # one for each bar; NaN: not known


class Bars(NamedTuple):
    places: list[Span]  # where they are, and what is there
    title: str  # of the column of places in the table
    kind: str  # the state that they show, for their colour
    unit: str
    legend: dict[str, str]
    spell: Callable[[float], str] = amount
    number: Callable[[float], str] = short
    full: float = 0.0  # the value of the highest bar; 0: the largest value


def bar_chart(scene: Scene, bars: Bars, series: list[Series]) -> Picture:
    """The picture, given the scene without its rows."""
    full = bars.full or max((value for one in series for value in one.values if value > 0), default=1.0)
    rows = [Row(label, note, _cells(bars, label, values, full)) for label, note, values in series]
    columns = [Column(bars.title, lambda row: row["place"]), *(_column(bars, *one) for one in enumerate(series))]
    by_place = zip(bars.places, *(one.values for one in series), strict=True)
    numbers = [{"place": place.text, **dict(enumerate(values))} for place, *values in by_place]
    return Picture(scene._replace(rows=rows), Table(columns, numbers), bars.legend)


def _cells(bars: Bars, label: str, values: list[float], full: float) -> list[Cell]:
    cells = []
    for (begin, end, name), value in zip(bars.places, values, strict=True):
        known = not is_missing(value)
        part = (bars.kind, value / full) if known else (UNOBSERVED, 1.0)
        said = f"{bars.spell(value)} {bars.unit}" if known else bars.legend[UNOBSERVED]
        cells.append(Cell(begin, end, [part], f"{label}, {name}: {said}", bars.number(value) if known else ""))
    return cells


def _column(bars: Bars, number: int, series: Series) -> Column:
    return Column(series.label, lambda row: bars.spell(row[number]), right=True, least=LEAST_WIDTH)
