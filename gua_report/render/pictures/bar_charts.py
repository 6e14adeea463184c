"""Pictures of amounts: for each row a bar at each place of an axis, with its number below; and people on one scale."""

from collections.abc import Callable
from itertools import pairwise
from math import fsum
from typing import NamedTuple

from gua_report.console.spelling import WEEKDAYS, duration, state_columns
from gua_report.render.blocks import LEGEND, UNOBSERVED, Column, Picture, Table
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.drawing import Axis, Cell, Row, Scene, Span
from gua_report.render.pictures.over_time import time_axis
from gua_report.render.values import amount, clean, is_missing, percent, short, spell_span
from gua_report.summary.intervals import UNIT_NAMES, observed_ms
from gua_report.summary.over_time import find_days
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

HOURS = state_columns("gpu_hours", (IDLE_HELD, ACTIVE, UNKNOWN))  # of people, in the order of their bars
MOST_MARKS = 6
MARKED_SECONDS = (0, 600, 1800, 5400, 14_400, 43_200)  # waits; others have no text on the axis
DAY_AXIS = Axis(0, 24, [(hour, f"{hour:02}") for hour in range(0, 24, 3)])
DAY_HOURS = [Span(hour, hour + 1, f"{hour:02}:00") for hour in range(24)]
FREE = "free"  # truly idle, in a colour that stands out where nothing else is shown


class Series(NamedTuple):
    label: str
    note: str
    values: list[float]  # one for each bar; NaN: not known


class Bars(NamedTuple):
    places: list[Span]  # where they are, and what is there
    title: str  # of the column of places in the table
    kind: str  # the state that they show, for their colour
    unit: str
    legend: dict[str, str]
    spell: Callable[[float], str] = amount
    number: Callable[[float], str] = short
    full: float = 0.0  # the value of the highest bar; 0: the largest value


def bar_chart(scene: Scene, bars: Bars, series: list[Series]) -> Picture:
    full = bars.full or max((value for one in series for value in one.values if value > 0), default=1.0)
    rows = [Row(label, note, _cells(bars, label, values, full)) for label, note, values in series]
    columns = [Column(bars.title, lambda row: row["place"]), *(_column(bars, *one) for one in enumerate(series))]
    by_place = zip(bars.places, *(one.values for one in series), strict=True)
    numbers = [{"place": place.text, **dict(enumerate(values))} for place, *values in by_place]
    return Picture(scene._replace(rows=rows), Table(columns, numbers), bars.legend)


def _cells(bars: Bars, label: str, values: list[float], full: float) -> list[Cell]:
    cells = []
    for (begin, end, name), value in zip(bars.places, values, strict=True):
        known = not is_missing(value)
        part = (bars.kind, value / full) if known else (UNOBSERVED, 1.0)
        said = f"{bars.spell(value)} {bars.unit}" if known else bars.legend[UNOBSERVED]
        cells.append(Cell(begin, end, [part], f"{label}, {name}: {said}", bars.number(value) if known else ""))
    return cells


def _column(bars: Bars, number: int, series: Series) -> Column:
    # In text, names are shortened, 192.0 is not.
    return Column(series.label, lambda row: bars.spell(row[number]), right=True, least=5, may_go=True, good=8)


def days_picture(report: Report, top: int) -> Picture:
    held = HOURS[IDLE_HELD]
    window, (cell_ms, edges) = report.window, find_days(report.window)
    times, unit = time_axis(window, cell_ms), UNIT_NAMES[cell_ms]
    spans = list(pairwise(edges.tolist()))
    places = [Span(times.place(start), times.place(end), spell_span(start, end, window)) for start, end in spans]
    seen = (observed_ms(edges[:-1], edges[1:], report.gaps) > 0).tolist()
    people = report.identities[report.identities[held] > 0].head(top)
    found = report.identity_days[report.identity_days["identity"].isin(people["identity"])].to_dict("records")
    hours = {(row["identity"], row["start_ms"]): row[held] for row in found}
    series = []
    for who, total in zip(people["identity"], people[held], strict=True):
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


def people_picture(rows: list[TableRow]) -> Picture:
    """Idle-held and active GPU-hours of each row of a table of identities, whose names are clean, on one scale."""
    title = "GPU-hours of each, on one scale"
    description = "A bar for each of them: first the GPU-hours held without work, then those at work."
    longest = max(sum(row[column] for column in HOURS.values()) for row in rows)
    axis = Axis(0, longest or 1, [(place, f"{place:g} h") for place in _marks(longest)])
    scene = Scene("people", title, description, axis, [_person_row(row) for row in rows], gap=0.0)
    return Picture(scene, None, {state: LEGEND[state] for state in HOURS if any(row[HOURS[state]] for row in rows)})


def _person_row(row: TableRow) -> Row:
    cells, reached = [], 0.0
    for state, column in HOURS.items():
        if hours := row[column]:
            told = f"{row['identity']}: {amount(hours)} GPU-hours {state}"
            cells.append(Cell(reached, reached + hours, [(state, 1.0)], told))
            reached += hours
    return Row(row["identity"], f"{amount(row[HOURS[IDLE_HELD]])} h idle-held", cells)


def _marks(longest: float) -> list[float]:
    """Round numbers from 0 to below the end of the scale, where there is room for their text."""
    step = next(
        factor * 10.0**exponent
        for exponent in range(-3, 12)
        for factor in (1, 2, 5)
        if longest <= MOST_MARKS * factor * 10.0**exponent
    )
    return [step * number for number in range(MOST_MARKS + 1) if step * number <= 0.93 * longest]


def reclaim_picture(report: Report) -> Picture:
    curve = report.reclaim_curve.to_dict("records")
    waits = [duration(row["after_seconds"]) for row in curve]
    marks = [
        (float(n), wait)
        for n, (wait, row) in enumerate(zip(waits, curve, strict=True))
        if row["after_seconds"] in MARKED_SECONDS
    ]
    scene = Scene(
        "reclaim",
        "GPU-hours that a rule would have freed, by how long it waits",
        "Had every process lost its memory after so long without work, so many GPU-hours would have been free for"
        " others: the number below each bar. The longer such a rule waits, the less it frees.",
        Axis(0, len(curve), marks),
        [],
        110,
    )
    places = [Span(n, n + 1, f"{wait} idle") for n, wait in enumerate(waits)]
    bars = Bars(places, "reclaim after", IDLE_HELD, "GPU-hours", {})
    return bar_chart(scene, bars, [Series("would have freed", "", report.reclaim_curve["freed_gpu_hours"].tolist())])


def week_pictures(report: Report) -> list[Picture]:
    not_known = {UNOBSERVED: "not known"}
    work = Bars(
        *(DAY_HOURS, "hour", ACTIVE, "at work", {ACTIVE: "at work", **not_known}),
        *(percent, lambda share: short(100 * share), 1.0),
    )
    free = Bars(DAY_HOURS, "hour", FREE, "GPUs free", {FREE: "free", **not_known})
    share = "The number below a bar is the percentage of the GPU time in that hour that was spent at work."
    cards = (
        "The number below a bar is how many GPUs were free in that hour, on average. Free: no work done and no memory"
        " held, so that anybody could have taken it; a card that somebody holds without work is not free."
    )
    return [
        _week(report, "active_share", work, Scene("work", "Share of GPU time at work", share, DAY_AXIS, [], 24)),
        _week(report, "free_gpus", free, Scene("free", "GPUs free", cards, DAY_AXIS, [], 24)),
    ]


def _week(report: Report, column: str, bars: Bars, scene: Scene) -> Picture:
    by_hour = {(row["weekday"], row["hour"]): row[column] for row in report.heatmap.to_dict("records")}
    days = [[float(by_hour[day, hour]) for hour in range(24)] for day in range(7)]
    series = [Series(name, _mean(values, bars), values) for name, values in zip(WEEKDAYS, days, strict=True)]
    return bar_chart(scene._replace(title=f"{scene.title}, by hour of the week"), bars, series)


def _mean(values: list[float], bars: Bars) -> str:
    return "" if any(map(is_missing, values)) else f"{bars.spell(fsum(values) / 24)} {bars.unit} on average"
