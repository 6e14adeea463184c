"""Hours of the week, twice: the share of GPU time at work, and the cards that were free."""

from __future__ import annotations

from math import fsum

from gua_report.render.blocks import Picture
from gua_report.render.pictures.bar_chart import Bars, Series, bar_chart
from gua_report.render.pictures.scene import UNOBSERVED, Axis, Scene, Span
from gua_report.render.words import WEEKDAYS, is_missing, percent, short
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE

AXIS = Axis(0, 24, [(hour, f"{hour:02}") for hour in range(0, 24, 3)])
HOURS = [Span(hour, hour + 1, f"{hour:02}:00") for hour in range(24)]
FREE = "free"  # truly idle, in a colour that stands out where nothing else is shown
NOT_KNOWN = {UNOBSERVED: "not known"}
WORK_BARS = Bars(
    *(HOURS, "hour", ACTIVE, "at work", {ACTIVE: "at work", **NOT_KNOWN}),
    *(percent, lambda share: short(100 * share), 1.0),
)
FREE_BARS = Bars(HOURS, "hour", FREE, "GPUs free", {FREE: "free", **NOT_KNOWN})


def week_pictures(report: Report) -> list[Picture]:
    work = Scene(
        "work",
        "Share of GPU time at work, by hour of the week",
        "The number below a bar is the percentage of the GPU time in that hour that was spent at work.",
        AXIS,
        [],
        24,
    )
    free = Scene(
        "free",
        "GPUs free, by hour of the week",
        "The number below a bar is how many GPUs were free in that hour, on average. Free: no work done and no memory"
        " held, so that anybody could have taken it; a card that somebody holds without work is not free.",
        AXIS,
        [],
        24,
    )
    return [
        bar_chart(work, WORK_BARS, _series(report, "active_share", WORK_BARS)),
        bar_chart(free, FREE_BARS, _series(report, "free_gpus", FREE_BARS)),
    ]


def _series(report: Report, column: str, bars: Bars) -> list[Series]:
    by_hour = {(row["weekday"], row["hour"]): row[column] for row in report.heatmap.to_dict("records")}
    days = [[float(by_hour[day, hour]) for hour in range(24)] for day in range(7)]
    return [Series(name, _mean(values, bars), values) for name, values in zip(WEEKDAYS, days, strict=True)]


def _mean(values: list[float], bars: Bars) -> str:
    """The mean of a day of which all is known."""
    return "" if any(map(is_missing, values)) else f"{bars.spell(fsum(values) / 24)} {bars.unit} on average"
