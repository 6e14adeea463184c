"""Whether it gets better: a picture, or its numbers if they were requested."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Section
from gua_report.render.pictures.trend import trend_picture
from gua_report.render.sections.timeline import with_times
from gua_report.render.words import clean
from gua_report.summary.report import Report

HOURS = ["active_gpu_hours", "idle_held_gpu_hours", "truly_idle_gpu_hours", "unknown_gpu_hours"]
COLUMNS = ["start", "end", "observed_seconds", *HOURS]


def frame(report: Report) -> pd.DataFrame:
    return with_times(report, report.trend)


def show(report: Report, options: Options) -> list[Section]:
    if options.is_whole and not options.pictures:
        return []
    caption = (
        f"Whether it gets better. Time that was not observed is no state; days are those of {clean(report.timezone)}."
    )
    return [Section("trend", "Trend", caption, [trend_picture(report)])]
