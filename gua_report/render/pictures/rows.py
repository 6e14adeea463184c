"""The one kind of picture that there is: rows of bars over an axis, as SVG that fits any width.

Bars are drawn in an inner SVG that is stretched to the width; text lies outside of it and keeps its size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from gua_report.render.markup import Markup, element, lines
from gua_sample.policy import IDLE_HELD, UNKNOWN

UNOBSERVED = "unobserved"
PATTERNS = {  # the size of a tile, and what is drawn on it
    IDLE_HELD: (5, "M0 0h5v1h-5z"),
    UNKNOWN: (6, "M0 0h2v2h-2zM3 3h2v2h-2z"),
    UNOBSERVED: (8, "M0 6L6 0h2L0 8zM6 8L8 6v2z"),
}
LABEL_PX, GAP_PX, AXIS_PX = 17, 7, 18
LEAST_NAME = 0.06  # of the width: a name that is written over a shorter one can't be read


class Cell(NamedTuple):
    """A bar: from where to where, and its parts from the bottom up as shares of the height."""

    begin: float
    end: float
    parts: list[tuple[str, float]]  # a state or UNOBSERVED, and its share


class Span(NamedTuple):
    begin: float
    end: float
    text: str


class Row(NamedTuple):
    label: str
    note: str  # at the right end
    cells: list[Cell]
    told: list[Span]  # what hovering tells
    names: tuple[Span, ...] = ()  # written over the bars


class Axis(NamedTuple):
    begin: float
    end: float
    marks: list[tuple[float, str]]  # where, and what is written there

    def share(self, place: float) -> float:
        return (place - self.begin) / (self.end - self.begin) if self.end > self.begin else 0.0


class Scene(NamedTuple):
    """All that a picture shows."""

    name: str
    title: str
    description: str  # for those who can't see it
    axis: Axis
    rows: list[Row]
    bar_px: int = 18


def draw(scene: Scene) -> Markup:
    axis, bar_px = scene.axis, scene.bar_px
    row_px = LABEL_PX + bar_px + GAP_PX
    height_px = row_px * len(scene.rows) + (AXIS_PX if axis.marks else 0)
    boxes: dict[str, list[str]] = defaultdict(list)
    told, texts = [], []
    for number, row in enumerate(scene.rows):
        top = number * row_px + LABEL_PX
        for kind, box in _boxes(row.cells, top, bar_px):
            boxes[kind].append(box)
        told += [_told(span, top, bar_px) for span in row.told]
        texts += _texts(row, axis, top, bar_px)
    bottom = row_px * len(scene.rows) - GAP_PX
    grid = "".join(f"M{_number(place)} {LABEL_PX}V{bottom}" for place, _ in axis.marks)
    floors = (number * row_px + LABEL_PX + bar_px for number in range(len(scene.rows)))
    grid += "".join(f"M{_number(axis.begin)} {floor}H{_number(axis.end)}" for floor in floors)
    shapes = [_patterns(scene), element("path", class_="gua-grid", d=grid)]
    for kind, found in boxes.items():
        fill = f"url(#gua-{scene.name}-{kind})" if kind in PATTERNS else None
        shapes.append(element("path", class_=f"gua-{kind}", d="".join(found), fill=fill))
    view = f"{_number(axis.begin)} 0 {_number(max(axis.end - axis.begin, 0.01))} {height_px}"
    stretched = {"viewBox": view, "preserveAspectRatio": "none", "width": "100%", "height": height_px}
    inner = element("svg", lines([*shapes, *told]), **stretched)
    marks = [element("text", text, x=_percent(axis.share(place)), y=height_px - 4) for place, text in axis.marks]
    parts = [element("title", scene.title), element("desc", scene.description), inner, *texts, *marks]
    return element("svg", lines(parts), class_="gua-picture", role="img", width="100%", height=height_px)


def _boxes(cells: list[Cell], top: int, bar_px: int) -> Iterable[tuple[str, str]]:
    """The rectangles of the bars by what they show; those of the same height that touch are one."""
    open_boxes: dict[tuple[str, str, str], list[float]] = {}
    for cell in cells:
        floor = top + bar_px * 1.0
        present = {}
        for kind, share in cell.parts:
            size = bar_px * share
            if size >= 0.05:
                present[kind, _number(floor - size), _number(size)] = cell
                floor -= size
        for key in [key for key, reach in open_boxes.items() if key not in present or reach[1] != cell.begin]:
            yield _box(key, open_boxes.pop(key))
        for key in present:
            open_boxes.setdefault(key, [cell.begin, cell.end])[1] = cell.end
    for key, reach in open_boxes.items():
        yield _box(key, reach)


def _box(key: tuple[str, str, str], reach: list[float]) -> tuple[str, str]:
    kind, y, height = key
    width = _number(reach[1] - reach[0])
    return kind, f"M{_number(reach[0])} {y}h{width}v{height}h-{width}z"


def _told(span: Span, top: int, bar_px: int) -> Markup:
    title = element("title", span.text)
    return element("rect", title, x=_number(span.begin), y=top, width=_number(span.end - span.begin), height=bar_px)


def _texts(row: Row, axis: Axis, top: int, bar_px: int) -> list[Markup]:
    found = [element("text", row.label, x=0, y=top - 5)]
    if row.note:
        found.append(element("text", row.note, x="100%", y=top - 5, text_anchor="end"))
    for name in row.names:
        begin, width = axis.share(name.begin), axis.share(name.end) - axis.share(name.begin)
        if width >= LEAST_NAME:
            text = element("text", name.text, x=4, y=bar_px - 5, class_="gua-name")
            found.append(element("svg", text, x=_percent(begin), y=top, width=_percent(width), height=bar_px))
    return found


def _patterns(scene: Scene) -> Markup:
    """Patterns, since colour must not be the only sign. Level lines bear any stretching; others are made for 800 px."""
    stretching = f"scale({(scene.axis.end - scene.axis.begin) / 800:.6g} 1)"
    found = [
        element(
            "pattern",
            element("path", d=f"M0 0h{size}v{size}h-{size}z", class_="gua-ground"),
            element("path", d=drawn),
            id=f"gua-{scene.name}-{kind}",
            class_=f"gua-pattern-{kind}",
            width=size,
            height=size,
            patternUnits="userSpaceOnUse",
            patternTransform=stretching,
        )
        for kind, (size, drawn) in PATTERNS.items()
    ]
    return element("defs", *found)


def _percent(share: float) -> str:
    return f"{_number(100 * share)}%"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
