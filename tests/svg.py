"""Reading the pictures of a page back: what a browser draws, as numbers."""

import re
from collections import defaultdict
from html.parser import HTMLParser
from typing import NamedTuple

WITHOUT_END = ("meta", "td", "tr")  # some or all of them
BOX = re.compile(r"M(-?[\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z")


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class Drawn:
    """One picture: its rectangles by what they show, and its texts."""

    def __init__(self) -> None:
        self.title = self.description = ""
        self.boxes: dict[str, list[Box]] = defaultdict(list)
        self.told: list[str] = []
        self.texts: list[str] = []
        self.numbers: dict[tuple[float, float], str] = {}  # those below bars: by the share of the width, and the height

    def sums(self, top: float = 0, bottom: float = 1e9) -> dict[str, float]:
        """The areas by kind, between two heights."""
        inside = {kind: [box for box in boxes if top <= box.y < bottom] for kind, boxes in self.boxes.items()}
        return {kind: sum(box.width * box.height for box in boxes) for kind, boxes in inside.items() if boxes}


class Page(HTMLParser):
    """The pictures of a page, in order, and every attribute and text of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: list[Drawn] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content: list[str] = []
        self.cells: list[str] = []  # of tables
        self._open: list[str] = []
        self._in_cell = False
        self._place = (0.0, 0.0)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in WITHOUT_END:
            self._open.append(tag)
        self._in_cell = tag == "td" or (self._in_cell and tag not in ("tr", "th"))
        if tag == "td":
            self.cells.append("")
        if attributes.get("class") == "gua-picture":
            self.pictures.append(Drawn())
        if tag == "text":
            self._place = (float((attributes["x"] or "").rstrip("%")) / 100, float(attributes["y"] or ""))
        if tag == "path" and "pattern" not in self._open:
            kind = (attributes.get("class") or "").removeprefix("gua-")
            found = [Box(*map(float, numbers)) for numbers in BOX.findall(attributes.get("d") or "")]
            self.pictures[-1].boxes[kind] += found

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("tbody", "thead")
        assert tag in WITHOUT_END or self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.content.append(data)
        if self._in_cell:
            self.cells[-1] += data.removesuffix("\n")
        if "svg" not in self._open:
            return
        drawn, (around, tag) = self.pictures[-1], self._open[-2:]
        if tag == "title" and around == "rect":
            drawn.told.append(data)
        elif tag == "title":
            drawn.title = data
        elif tag == "desc":
            drawn.description = data
        elif tag == "text":
            drawn.texts.append(data)
            if around == "g":
                drawn.numbers[self._place] = data
