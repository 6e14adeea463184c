"""What a picture shows, rows of bars over an axis, and how that is drawn: as SVG that fits any width.

Bars are drawn in an inner SVG that is stretched to the width; text lies outside of it and keeps its size.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from gua_report.render.blocks import UNOBSERVED
from gua_report.render.markup import Markup, element, lines
from gua_sample.policy import IDLE_HELD, UNKNOWN

PATTERNS = {  # the size of a tile, and what is drawn on it
    IDLE_HELD: (5, "M0 0h5v1h-5z"),
    UNKNOWN: (6, "M0 0h2v2h-2zM3 3h2v2h-2z"),
    UNOBSERVED: (8, "M0 6L6 0h2L0 8zM6 8L8 6v2z"),
}
LABEL_PX, NUMBER_PX, GAP_PX, AXIS_PX = 17, 13, 7, 18
LONGEST_LABEL, LABEL_WIDTH = 24, "64%"  # a label of more characters is cut there, or it would run into the note
MOST_ROWS = 16
# The least widths of a picture on a phone and elsewhere, and of a digit with its share of the space between numbers.
NARROW_PX, WIDE_PX, DIGIT_PX = 320, 560, 7.5
LETTER_PX, MOST_LETTERS = 5, 10  # of a name that is written over bars: some of it may be cut, but not most of it


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


def draw(scene: Scene) -> Markup:
    """The picture; several below each other if it has many rows, so that no axis is far away and paper can be cut."""
    rows = [scene.rows[start : start + MOST_ROWS] for start in range(0, len(scene.rows), MOST_ROWS)]
    parts = [
        scene._replace(name=f"{scene.name}-{number}", title=f"{scene.title}, {number} of {len(rows)}", rows=some)
        for number, some in enumerate(rows, start=1)
    ]
    return lines([_draw(part) for part in (parts if len(rows) > 1 else [scene])])


def _draw(scene: Scene) -> Markup:
    axis, bar_px = scene.axis, scene.bar_px
    with_numbers = any(cell.number for row in scene.rows for cell in row.cells)
    row_px = LABEL_PX + bar_px + GAP_PX + (NUMBER_PX if with_numbers else 0)
    height_px = row_px * len(scene.rows) + (AXIS_PX if axis.marks else 0)
    boxes: dict[str, list[str]] = defaultdict(list)
    told, texts, grid = [], [], []
    for number, row in enumerate(scene.rows):
        top = number * row_px + LABEL_PX
        for kind, box in _boxes(row.cells, scene, top):
            boxes[kind].append(box)
        spans = (*row.told, *(Span(cell.begin, cell.end, cell.told) for cell in row.cells if cell.told))
        told += [_told(span, top, bar_px) for span in spans]
        texts += [*_texts(row, axis, top, bar_px), *_numbers(row, axis, top + bar_px + NUMBER_PX - 2)]
        grid += [f"M{_number(place)} {top}v{bar_px}" for place, _ in axis.marks]
        grid.append(f"M{_number(axis.begin)} {top + bar_px}H{_number(axis.end)}")
    shapes = [_patterns(scene, boxes), element("path", class_="gua-grid", d="".join(grid))]
    for kind, found in boxes.items():
        fill = f"url(#gua-{scene.name}-{kind})" if kind in PATTERNS else None
        shapes.append(element("path", class_=f"gua-{kind}", d="".join(found), fill=fill))
    view = f"{_number(axis.begin)} 0 {_number(max(axis.end - axis.begin, 0.01))} {height_px}"
    stretched = {"viewBox": view, "preserveAspectRatio": "none", "width": "100%", "height": height_px}
    inner = element("svg", lines([*shapes, *told]), **stretched)
    marks = [element("text", text, x=_percent(axis.share(place)), y=height_px - 4) for place, text in axis.marks]
    parts = [element("title", scene.title), element("desc", scene.description), inner, *texts, *marks]
    return element("svg", lines(parts), class_="gua-picture", role="img", width="100%", height=height_px)


def _boxes(cells: list[Cell], scene: Scene, top: int) -> Iterator[tuple[str, str]]:
    """The rectangles of the bars by what they show; those of the same height that touch are one."""
    open_boxes: dict[tuple[str, str, str], list[float]] = {}
    for cell in cells:
        gap = min(scene.gap, (cell.end - cell.begin) / 4)
        begin, end, floor = cell.begin + gap, cell.end - gap, top + scene.bar_px * 1.0
        present = []
        for kind, share in cell.parts:
            size = scene.bar_px * share
            if size >= 0.05:
                present.append((kind, _number(floor - size), _number(size)))
                floor -= size
        for key in [key for key, reach in open_boxes.items() if key not in present or reach[1] != begin]:
            yield _box(key, open_boxes.pop(key))
        for key in present:
            open_boxes.setdefault(key, [begin, end])[1] = end
    for key, reach in open_boxes.items():
        yield _box(key, reach)


def _box(key: tuple[str, str, str], reach: list[float]) -> tuple[str, str]:
    kind, y, height = key
    width = _number(reach[1] - reach[0])
    return kind, f"M{_number(reach[0])} {y}h{width}v{height}h-{width}z"


def _told(span: Span, top: int, bar_px: int) -> Markup:
    title = element("title", span.text)
    return element("rect", title, x=_number(span.begin), y=top, width=_number(span.end - span.begin), height=bar_px)


def _texts(row: Row, axis: Axis, top: int, bar_px: int) -> Iterator[Markup]:
    label = element("text", row.label, x=0, y=LABEL_PX - 5)
    is_long = row.note and len(row.label) > LONGEST_LABEL
    yield element("svg", label, y=top - LABEL_PX, width=LABEL_WIDTH if is_long else "100%", height=LABEL_PX)
    if row.note:
        yield element("text", row.note, x="100%", y=top - 5, text_anchor="end")
    for name in row.names:
        begin, width = axis.share(name.begin), axis.share(name.end) - axis.share(name.begin)
        least_px = LETTER_PX * min(len(name.text), MOST_LETTERS) + 4
        if width * WIDE_PX >= least_px:
            text = element("text", name.text, x=4, y=bar_px - 5, class_="gua-name")
            class_ = "gua-wide" if width * NARROW_PX < least_px else None
            yield element("svg", text, x=_percent(begin), y=top, width=_percent(width), height=bar_px, class_=class_)


def _numbers(row: Row, axis: Axis, y: int) -> Iterator[Markup]:
    """The numbers below the bars, as many as there is room for; some are not for phones."""
    centres = {axis.share((cell.begin + cell.end) / 2): cell.number for cell in row.cells if cell.number}
    length = max(map(len, centres.values()), default=0) * DIGIT_PX
    wide = _apart(centres, length / WIDE_PX)
    narrow = _apart(wide, length / NARROW_PX)
    others = [place for place in wide if place not in narrow]
    for class_, places in (("gua-number", narrow), ("gua-number gua-wide", others)):
        texts = [element("text", centres[place], x=_percent(place), y=y) for place in places]
        if texts:
            yield element("g", *texts, class_=class_)


def _apart(places: Iterable[float], least: float) -> list[float]:
    taken: list[float] = []
    for place in places:
        if not taken or place - taken[-1] >= least:
            taken.append(place)
    return taken


def _patterns(scene: Scene, kinds: Collection[str]) -> Markup:
    """The patterns of these kinds, since colour must not be the only sign.

    Level lines bear any stretching; others are made for 800 px.
    """
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
        if kind in kinds
    ]
    return element("defs", *found)


def _percent(share: float) -> str:
    return f"{_number(100 * share)}%"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
