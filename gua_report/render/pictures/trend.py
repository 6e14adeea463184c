"""Trend: GPU-hours by state, a day, a week or a month at a time."""

from __future__ import annotations

from gua_report.render.blocks import Column, Picture, Table, figure
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.rows import UNOBSERVED, Cell, Row, Scene, Span, draw
from gua_report.render.pictures.time_axis import TimeAxis, spell_span, time_axis
from gua_report.render.words import amount, number
from gua_report.summary.build import Report
from gua_report.summary.cells import MONTH_MS, WEEK_MS, choose_cell_ms
from gua_report.summary.over_time import CELLS_MS, MOST_BARS
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE, UNKNOWN

KINDS = (IDLE_HELD, ACTIVE, TRULY_IDLE, UNKNOWN, UNOBSERVED)  # from the bottom up
HOURS = {state: f"{state.replace('-', '_')}_gpu_hours" for state in KINDS[:-1]}
UNIT_NAMES = {HOUR_MS: "hour", DAY_MS: "day", WEEK_MS: "week", MONTH_MS: "month"}


def trend_picture(report: Report) -> Picture:
    cell_ms = choose_cell_ms(report.window.length_ms, CELLS_MS, MOST_BARS)
    unit = UNIT_NAMES[cell_ms]
    times = time_axis(report.window, cell_ms)
    found = report.trend.to_dict("records")
    # The bars stand for rates, so that the first and the last, which the window cuts, can be compared with the others.
    full = max((_gpus(row) for row in found), default=0.0) or 1.0
    row = Row(
        f"GPU-hours a {unit}; the full height is {number(round(full * _hours(cell_ms), 1))}",
        "",
        [_bar(row, full, times) for row in found],
        [_told(row, report, times) for row in found],
    )
    title = f"GPU-hours by state, {unit} by {unit}"
    description = f"A bar for each {unit}: held without work, at work, free, unknown and not observed; numbers below."
    columns = [
        Column(unit, lambda row: spell_span(row["start_ms"], row["end_ms"], report.window)),
        *(figure(state, column) for state, column in HOURS.items()),
        figure("observed h", "observed_seconds", lambda seconds: amount(seconds / 3600)),
    ]
    scene = Scene("trend", title, description, times.axis(), [row], 150)
    return Picture(title, lambda: draw(scene), Table(columns, found), KINDS)


def _hours(ms: float) -> float:
    return ms / HOUR_MS


def _gpus(row: TableRow) -> float:
    """How many GPUs were seen, on average of the observed time."""
    seconds = row["observed_seconds"]
    return float(sum(row[column] for column in HOURS.values()) / (seconds / 3600)) if seconds else 0.0


def _bar(row: TableRow, full: float, times: TimeAxis) -> Cell:
    length = _hours(row["end_ms"] - row["start_ms"])
    parts = [(state, row[column] / length / full) for state, column in HOURS.items()]
    unseen = 1 - row["observed_seconds"] / 3600 / length
    parts.append((UNOBSERVED, max(unseen, 0.0) * (_gpus(row) / full or 1.0)))
    gap = min(0.06, (times.place(row["end_ms"]) - times.place(row["start_ms"])) / 4)
    return Cell(times.place(row["start_ms"]) + gap, times.place(row["end_ms"]) - gap, parts)


def _told(row: TableRow, report: Report, times: TimeAxis) -> Span:
    hours = [f"{amount(row[column])} GPU-hours {state}" for state, column in HOURS.items() if row[column]]
    observed = amount(row["observed_seconds"] / 3600)
    when = spell_span(row["start_ms"], row["end_ms"], report.window)
    text = f"{when}: {', '.join([*hours, f'{observed} h observed'])}"
    return Span(times.place(row["start_ms"]), times.place(row["end_ms"]), text)
