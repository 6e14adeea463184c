"""What a picture shows, whoever draws it: rows of bars over an axis."""

from __future__ import annotations

from typing import NamedTuple

UNOBSERVED = "unobserved"


class Cell(NamedTuple):
    """A bar: from where to where, and its parts from the bottom up as shares of the height."""

    begin: float
    end: float
    parts: list[tuple[str, float]]  # a state or UNOBSERVED, and its share
    told: str = ""  # by hovering
    number: str = ""  # written below it, where there is room


class Span(NamedTuple):
    begin: float
    end: float
    text: str


class Row(NamedTuple):
    label: str
    note: str  # at the right end
    cells: list[Cell]
    told: tuple[Span, ...] = ()  # by hovering over several cells
    names: tuple[Span, ...] = ()  # written over the bars


class Axis(NamedTuple):
    begin: float
    end: float
    marks: list[tuple[float, str]]  # where, and what is written there

    def share(self, place: float) -> float:
        return (place - self.begin) / (self.end - self.begin) if self.end > self.begin else 0.0


class Scene(NamedTuple):
    name: str
    title: str
    description: str  # in words, for everybody: some can't see the picture
    axis: Axis
    rows: list[Row]
    bar_px: int = 18
    gap: float = 0.06  # on both sides of a bar, on the axis
