"""Hours of the week, twice: the share of GPU time at work, and the cards that were free."""

from __future__ import annotations

from gua_report.render.blocks import Column, Picture, Table
from gua_report.render.pictures.rows import UNOBSERVED, Axis, Cell, Row, Scene, Span, draw
from gua_report.render.words import WEEKDAYS, amount, is_missing, number, percent
from gua_report.summary.build import Report
from gua_sample.policy import ACTIVE

AXIS = Axis(0, 24, [(hour, f"{hour:02}") for hour in range(0, 24, 3)])
BAR_PX = 24
FREE = "free"  # truly idle, in a colour that stands out where nothing else is shown


def week_pictures(report: Report) -> list[Picture]:
    free = report.heatmap["free_gpus"]
    most = 1.0 if free.isna().all() else max(float(free.max()), 1.0)
    return [
        _picture(report, "work", "Share of GPU time at work, by hour of the week", "active_share", ACTIVE, 1.0),
        _picture(report, "free", "GPUs free, by hour of the week", "free_gpus", FREE, most),
    ]


def _picture(report: Report, name: str, title: str, column: str, state: str, full: float) -> Picture:
    spell = percent if state == ACTIVE else amount
    by_hour = {(row["weekday"], row["hour"]): row[column] for row in report.heatmap.to_dict("records")}
    rows = [_row(day, [by_hour[day, hour] for hour in range(24)], state, full) for day in range(7)]
    scale = percent(1.0) if state == ACTIVE else f"{number(round(full, 1))} GPUs"
    description = f"A row for each weekday, a bar for each hour; the full height is {scale}. Numbers below."
    columns = [Column("hour", lambda row: f"{row['hour']:02}")]
    columns += [_column(day, weekday) for day, weekday in enumerate(WEEKDAYS)]
    numbers = [{"hour": hour, **{day: spell(by_hour[day, hour]) for day in range(7)}} for hour in range(24)]
    scene = Scene(name, title, description, AXIS, rows, BAR_PX)
    caption = f"{title}; the full height is {scale}"
    return Picture(caption, lambda: draw(scene), Table(columns, numbers), (state, UNOBSERVED))


def _column(day: int, title: str) -> Column:
    return Column(title, lambda row: row[day], right=True)


def _row(day: int, values: list[float], state: str, full: float) -> Row:
    cells, told = [], []
    for hour, value in enumerate(values):
        if is_missing(value):
            parts, said = [(UNOBSERVED, 1.0)], "not known"
        else:
            parts = [(state, value / full)]
            said = f"{percent(value)} at work" if state == ACTIVE else f"{amount(value)} GPUs free"
        cells.append(Cell(hour + 0.05, hour + 0.95, parts))
        told.append(Span(hour, hour + 1, f"{WEEKDAYS[day]} {hour:02}:00: {said}"))
    return Row(WEEKDAYS[day], _mean(values, state), cells, told)


def _mean(values: list[float], state: str) -> str:
    known = [value for value in values if not is_missing(value)]
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f"{percent(mean)} on average" if state == ACTIVE else f"{amount(mean)} GPUs on average"
