"""An axis of time: places are times in cells of some length, counted so that most cells begin at whole numbers."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gua_report.render.pictures.scene import Axis
from gua_report.render.words import MONTHS, WEEKDAYS
from gua_report.summary.cells import MONTH_MS, WEEK_MS, choose_cell_ms, find_edges
from gua_report.window import HOUR_MS, Window
from gua_sample.partition_names import DAY_MS

UNIT_NAMES = {HOUR_MS: "hour", DAY_MS: "day", WEEK_MS: "week", MONTH_MS: "month"}
MOST_MARKS = 9
LAST_MARK = 0.9  # of the width: there is no room for text after it


class TimeAxis(NamedTuple):
    window: Window
    origin_ms: int
    cell_ms: int

    def place(self, ms: float) -> float:
        return (ms - self.origin_ms) / self.cell_ms

    def axis(self) -> Axis:
        begin, end = self.place(self.window.start_ms), self.place(self.window.end_ms)
        marks = [(self.place(ms), text) for ms, text in _marks(self.window)]
        return Axis(begin, end, [mark for mark in marks if mark[0] <= begin + LAST_MARK * (end - begin)])


def time_axis(window: Window, cell_ms: int) -> TimeAxis:
    edges = find_edges(window, cell_ms)
    return TimeAxis(window, int(edges[1] if len(edges) > 2 else edges[0]), cell_ms)


def _marks(window: Window) -> list[tuple[int, str]]:
    """Times to write on the axis: hours, days, weeks or months, no more than fit on a phone."""
    short = window.length_ms <= 2 * DAY_MS
    cell_ms = HOUR_MS if short else choose_cell_ms(window.length_ms, (DAY_MS, WEEK_MS, MONTH_MS), MOST_MARKS)
    times = [int(ms) for ms in find_edges(window, cell_ms)[1:-1]]
    local = [datetime.fromtimestamp(ms / 1000, window.zone) for ms in times]
    found = [(ms, one) for ms, one in zip(times, local, strict=True)]
    if short:
        step = next(step for step in (1, 2, 3, 6, 12) if len(found) <= MOST_MARKS * step)
        return [(ms, f"{one:%H:%M}") for ms, one in found if one.hour % step == 0]
    step = -(-len(found) // (12 if cell_ms == MONTH_MS else MOST_MARKS))
    return [(ms, _spell(one, cell_ms)) for ms, one in found[::step]] if found else []


def _spell(local: datetime, cell_ms: int) -> str:
    month = MONTHS[local.month - 1]
    if cell_ms == DAY_MS:
        return f"{WEEKDAYS[local.weekday()]} {local.day}"
    if cell_ms == WEEK_MS:
        return f"{local.day} {month}"
    return month if local.month > 1 else f"{local.year}"


def spell_span(start_ms: int, end_ms: int, window: Window) -> str:
    """From when to when: Mon 9 Nov 08:00 to 14:00, or Mon 9 Nov for a whole day."""
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (start_ms, end_ms))
    day = f"{WEEKDAYS[start.weekday()]} {start.day} {MONTHS[start.month - 1]}"
    if f"{start:%H:%M}{end:%H:%M}" == "00:0000:00":
        days = round((end_ms - start_ms) / DAY_MS)
        return day if days == 1 else f"{day}, {days} days"
    other = "" if start.date() == end.date() else f"{end.day} {MONTHS[end.month - 1]} "
    return f"{day} {start:%H:%M} to {other}{end:%H:%M}"
