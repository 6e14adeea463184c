"""Person by day: idle-held hours of each, so that a habit is seen."""

from __future__ import annotations

from itertools import pairwise

from gua_report.render.blocks import LEGEND, Picture
from gua_report.render.pictures.bar_chart import Bars, Series, bar_chart
from gua_report.render.pictures.scene import UNOBSERVED, Scene, Span
from gua_report.render.pictures.time_axis import UNIT_NAMES, spell_span, time_axis
from gua_report.render.words import amount, clean, short
from gua_report.summary.cells import choose_cell_ms, find_edges, observed_ms
from gua_report.summary.over_time import CELLS_MS, MOST_DAYS
from gua_report.summary.report import Report
from gua_sample.policy import IDLE_HELD

HELD = "idle_held_gpu_hours"


def days_picture(report: Report, top: int) -> Picture:
    window = report.window
    cell_ms = choose_cell_ms(window.length_ms, CELLS_MS[1:], MOST_DAYS)
    edges, times, unit = find_edges(window, cell_ms), time_axis(window, cell_ms), UNIT_NAMES[cell_ms]
    spans = list(pairwise(edges.tolist()))
    places = [Span(times.place(start), times.place(end), spell_span(start, end, window)) for start, end in spans]
    seen = (observed_ms(edges[:-1], edges[1:], report.gaps) > 0).tolist()
    people = report.identities[report.identities[HELD] > 0].head(top)
    found = report.identity_days[report.identity_days["identity"].isin(people["identity"])].to_dict("records")
    hours = {(row["identity"], row["start_ms"]): row[HELD] for row in found}
    series = []
    for who, total in zip(people["identity"], people[HELD], strict=True):
        known = zip(spans, seen, strict=True)
        values = [hours.get((who, start), 0.0) if is_seen else float("nan") for (start, _), is_seen in known]
        series.append(Series(clean(report.who(who)), f"{amount(total)} h", values))
    title = f"Idle-held GPU-hours of each, {unit} by {unit}"
    description = f"A row for each of them. The number below a bar is the GPU-hours of that {unit}."
    legend = {kind: LEGEND[kind] for kind in (IDLE_HELD, UNOBSERVED)}
    bars = Bars(places, unit, IDLE_HELD, "GPU-hours idle-held", legend, number=_number)
    return bar_chart(Scene("days", title, description, times.axis(), [], 24), bars, series)


def _number(hours: float) -> str:
    return short(hours) if hours else ""
