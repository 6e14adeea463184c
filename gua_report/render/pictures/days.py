"""Person by day: idle-held hours of each, so that a habit is seen."""

from __future__ import annotations

from itertools import pairwise

from gua_report.render.blocks import Column, Picture, Table
from gua_report.render.pictures.rows import UNOBSERVED, Cell, Row, Scene, Span, draw
from gua_report.render.pictures.time_axis import TimeAxis, spell_span, time_axis
from gua_report.render.pictures.trend import UNIT_NAMES
from gua_report.render.words import amount, clean
from gua_report.summary.build import Report
from gua_report.summary.cells import choose_cell_ms, find_edges, observed_ms
from gua_report.summary.over_time import CELLS_MS, MOST_DAYS
from gua_sample.policy import IDLE_HELD

HELD = "idle_held_gpu_hours"


def days_picture(report: Report, top: int) -> Picture:
    window = report.window
    cell_ms = choose_cell_ms(window.length_ms, CELLS_MS[1:], MOST_DAYS)
    edges, times, unit = find_edges(window, cell_ms), time_axis(window, cell_ms), UNIT_NAMES[cell_ms]
    seen = (observed_ms(edges[:-1], edges[1:], report.gaps) > 0).tolist()
    spans = list(pairwise(edges.tolist()))
    held = report.identities[report.identities[HELD] > 0]["identity"].head(top).tolist()
    found = report.identity_days[report.identity_days["identity"].isin(held)].to_dict("records")
    hours = {(row["identity"], row["start_ms"]): row[HELD] for row in found}
    full = max(hours.values(), default=1.0)
    observed = [start if known else None for (start, _), known in zip(spans, seen, strict=True)]
    grid = {who: [None if start is None else hours.get((who, start), 0.0) for start in observed] for who in held}
    rows = [_row(clean(who), values, spans, full, times) for who, values in grid.items()]
    title = f"Idle-held GPU-hours of each person, {unit} by {unit}"
    description = f"A row for each person, a bar for each {unit}; the full height is {amount(full)} GPU-hours."
    columns = [Column("who", lambda row: row["who"])]
    columns += [_column(place, spell_span(*span, window)) for place, span in enumerate(spans)]
    table = Table(columns, [{"who": clean(who), **dict(enumerate(values))} for who, values in grid.items()])
    scene = Scene("days", title, description, times.axis(), rows, 24)
    return Picture(f"{title}; the full height is {amount(full)}", lambda: draw(scene), table, (IDLE_HELD, UNOBSERVED))


def _row(who: str, values: list[float | None], spans: list[tuple[int, int]], full: float, times: TimeAxis) -> Row:
    cells, told = [], []
    for (start, end), value in zip(spans, values, strict=True):
        begin, close = times.place(start), times.place(end)
        gap = min(0.06, (close - begin) / 4)
        said = "not observed" if value is None else f"{amount(value)} GPU-hours idle-held"
        parts = [(UNOBSERVED, 1.0)] if value is None else [(IDLE_HELD, value / full)]
        cells.append(Cell(begin + gap, close - gap, parts))
        told.append(Span(begin, close, f"{who}, {spell_span(start, end, times.window)}: {said}"))
    return Row(who, f"{amount(sum(value or 0.0 for value in values))} h", cells, told)


def _column(place: int, title: str) -> Column:
    return Column(title, lambda row: amount(row[place]), right=True)
