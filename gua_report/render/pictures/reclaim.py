"""The reclaim curve: GPU-hours that a rule would have freed against how long it waits."""

from __future__ import annotations

from gua_report.console.spelling import duration
from gua_report.render.blocks import Column, Picture, Table, figure
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.rows import Axis, Cell, Row, Scene, Span, draw
from gua_report.render.words import amount
from gua_report.summary.build import Report
from gua_sample.policy import IDLE_HELD

MARKED_SECONDS = (0, 600, 1800, 5400, 14_400, 43_200)  # others have no text on the axis


def reclaim_picture(report: Report) -> Picture:
    curve = report.reclaim_curve.to_dict("records")
    full = max((row["freed_gpu_hours"] for row in curve), default=0.0) or 1.0
    cells = [Cell(n + 0.06, n + 0.94, [(IDLE_HELD, row["freed_gpu_hours"] / full)]) for n, row in enumerate(curve)]
    told = [Span(n, n + 1, f"{_rule(row)}: {amount(row['freed_gpu_hours'])} GPU-hours") for n, row in enumerate(curve)]
    marks = [
        (float(n), duration(row["after_seconds"]))
        for n, row in enumerate(curve)
        if row["after_seconds"] in MARKED_SECONDS
    ]
    title = "GPU-hours that a rule would have freed, by how long it waits"
    description = f"A bar for each waiting time, falling from {amount(full)} GPU-hours without waiting. Numbers below."
    rows = [Row(f"GPU-hours; the full height is {amount(full)}", "", cells, told)]
    columns = [Column("reclaim after", _rule), figure("would have freed", "freed_gpu_hours")]
    scene = Scene("reclaim", title, description, Axis(0, len(curve), marks), rows, 110)
    return Picture(title, lambda: draw(scene), Table(columns, curve), ())


def _rule(row: TableRow) -> str:
    return f"{duration(row['after_seconds'])} idle"
