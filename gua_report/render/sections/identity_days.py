"""On which days who held cards without work: a picture, or its numbers if they were requested."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Section
from gua_report.render.pictures.days import HELD, days_picture
from gua_report.render.sections.timeline import with_times
from gua_report.render.words import clean
from gua_report.summary.build import Report

COLUMNS = ["identity", "start", "end", "active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"]


def frame(report: Report) -> pd.DataFrame:
    return with_times(report, report.identity_days)


def show(report: Report, options: Options) -> list[Section]:
    if options.is_whole and not options.pictures:
        return []
    held = (report.identities[HELD] > 0).any()
    blocks: list[Block] = [days_picture(report, options.top)] if held else ["Nobody held a card idle."]
    caption = f"Those with most idle-held GPU-hours; days are those of {clean(report.timezone)}."
    return [Section("identity_days", "Person by day", caption, blocks)]
