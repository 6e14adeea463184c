"""The reclaim curve: GPU-hours that a rule would have freed against how long it waits."""

from __future__ import annotations

from gua_report.console.spelling import duration
from gua_report.render.blocks import Picture
from gua_report.render.pictures.bar_chart import Bars, Series, bar_chart
from gua_report.render.pictures.scene import Axis, Scene, Span
from gua_report.summary.report import Report
from gua_sample.policy import IDLE_HELD

MARKED_SECONDS = (0, 600, 1800, 5400, 14_400, 43_200)  # others have no text on the axis


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
