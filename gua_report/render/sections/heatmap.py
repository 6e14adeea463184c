"""§5: the share of GPU time at work in each hour of the week."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Heatmap, Section
from gua_report.render.pictures.week import week_pictures
from gua_report.render.words import clean, is_missing, number
from gua_report.summary.report import Report

COLUMNS = ["weekday", "hour", "active_share", "free_gpus"]


def frame(report: Report) -> pd.DataFrame:
    return report.heatmap


def show(report: Report, options: Options) -> list[Section]:
    shares: list[list[float | None]] = [[None] * 24 for _ in range(7)]
    for weekday, hour, share in report.heatmap[COLUMNS[:3]].itertuples(index=False):
        shares[int(weekday)][int(hour)] = None if is_missing(share) else float(share)
    blocks: list[Block] = [*week_pictures(report)] if options.pictures else [Heatmap(shares)]
    known = any(share is not None for day in shares for share in day)
    threshold, zone = number(report.policy.utilization_percent), clean(report.timezone)
    return [
        Section(
            "heatmap",
            "§5 Hours of the week",
            f"When cards were at work, at {threshold}% utilization or more; hours in {zone}.",
            blocks if known else ["Nothing is known of any hour."],
        )
    ]
