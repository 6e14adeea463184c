"""§5: the share of GPU time at work in each hour of the week."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Heatmap, Section
from gua_report.render.words import clean, is_missing, number
from gua_report.summary.build import Report

COLUMNS = ["weekday", "hour", "active_share"]


def frame(report: Report) -> pd.DataFrame:
    return report.heatmap


def show(report: Report, options: Options) -> list[Section]:
    shares: list[list[float | None]] = [[None] * 24 for _ in range(7)]
    for weekday, hour, share in report.heatmap[COLUMNS].itertuples(index=False):
        shares[int(weekday)][int(hour)] = None if is_missing(share) else float(share)
    known = any(share is not None for day in shares for share in day)
    threshold = number(report.policy.utilization_percent)
    return [
        Section(
            "heatmap",
            "§5 Hours of the week",
            f"Share of GPU time at {threshold}% utilization or more, by hour in {clean(report.timezone)}.",
            [Heatmap(shares)] if known else ["Nothing is known of any hour."],
        )
    ]
