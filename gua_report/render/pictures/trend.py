"""Trend: GPU-hours by state, a day, a week or a month at a time."""

from __future__ import annotations

from gua_report.render.blocks import LEGEND, SHOWN_STATES, Column, Picture, Table, figure
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.scene import UNOBSERVED, Cell, Row, Scene
from gua_report.render.pictures.time_axis import UNIT_NAMES, TimeAxis, spell_span, time_axis
from gua_report.render.words import amount, percent
from gua_report.summary.cells import choose_cell_ms
from gua_report.summary.over_time import CELLS_MS, MOST_BARS
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.policy import IDLE_HELD

HOURS = {state: f"{state.replace('-', '_')}_gpu_hours" for state in SHOWN_STATES}  # from the bottom up


def trend_picture(report: Report) -> Picture:
    cell_ms = choose_cell_ms(report.window.length_ms, CELLS_MS, MOST_BARS)
    unit = UNIT_NAMES[cell_ms]
    times = time_axis(report.window, cell_ms)
    found = report.trend.to_dict("records")
    # The bars stand for rates, so that the first and the last, which the window cuts, can be compared with the others.
    full = max((_gpus(row) for row in found), default=0.0) or 1.0
    label = f"Full height: {amount(full * cell_ms / HOUR_MS)} GPU-hours a {unit}"
    scene = Scene(
        "trend",
        f"GPU-hours by state, {unit} by {unit}",
        f"A bar for each {unit}; one that the window cuts is drawn as if it went on in the same way. The percentage"
        " below a bar is the idle-held share of what was observed.",
        times.axis(),
        [Row(label, "", [_bar(row, full, times) for row in found])],
        150,
    )
    columns = [
        Column(unit, lambda row: spell_span(row["start_ms"], row["end_ms"], report.window)),
        *(figure(state, column) for state, column in HOURS.items()),
        figure("observed h", "observed_seconds", lambda seconds: amount(seconds / 3600)),
        Column("idle-held share", lambda row: percent(_held_share(row)), right=True),
    ]
    return Picture(scene, Table(columns, found), LEGEND)


def _total(row: TableRow) -> float:
    return float(sum(row[column] for column in HOURS.values()))


def _gpus(row: TableRow) -> float:
    """How many GPUs were seen, on average of the observed time."""
    seconds = row["observed_seconds"]
    return _total(row) / (seconds / 3600) if seconds else 0.0


def _held_share(row: TableRow) -> float | None:
    return row[HOURS[IDLE_HELD]] / _total(row) if _total(row) else None


def _bar(row: TableRow, full: float, times: TimeAxis) -> Cell:
    length, observed = (row["end_ms"] - row["start_ms"]) / HOUR_MS, row["observed_seconds"] / 3600
    parts = [(state, row[column] / length / full) for state, column in HOURS.items()]
    parts.append((UNOBSERVED, max(1 - observed / length, 0.0) * (_gpus(row) / full or 1.0)))
    hours = [f"{amount(row[column])} GPU-hours {state}" for state, column in HOURS.items() if row[column]]
    when = spell_span(row["start_ms"], row["end_ms"], times.window)
    told = f"{when}: {', '.join([*hours, f'{amount(observed)} h observed'])}"
    share = _held_share(row)
    number = "" if share is None else f"{share:.0%}"
    return Cell(times.place(row["start_ms"]), times.place(row["end_ms"]), parts, told, number)
