"""Who held which card when: a picture, or its numbers if they were requested."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Section
from gua_report.render.pictures.timeline import timeline_picture
from gua_report.render.values import Value, iso, records, value
from gua_report.render.words import clean
from gua_report.summary.report import Report

SECONDS = ["active_seconds", "idle_held_seconds", "truly_idle_seconds", "unknown_seconds"]
COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "start", "end", *SECONDS]
HOLDER_COLUMNS = ["identity", "active_seconds", "idle_held_seconds", "unknown_seconds"]


def frame(report: Report) -> pd.DataFrame:
    return with_times(report, report.timeline)


def with_times(report: Report, found: pd.DataFrame) -> pd.DataFrame:
    """The frame with `start` and `end` as texts."""
    zone, columns = report.window.zone, {"start": found["start_ms"], "end": found["end_ms"]}
    spelled = {ms: iso(int(ms), zone) for column in columns.values() for ms in column.unique()}
    return found.assign(**{name: [spelled[ms] for ms in column] for name, column in columns.items()})


def document(report: Report) -> dict[str, object] | None:
    if report.fleet:
        return None
    holders: dict[tuple[object, object], list[dict[str, Value]]] = {}
    keys = report.timeline_holders[["gpu_uuid", "start_ms"]].itertuples(index=False, name=None)
    for key, row in zip(keys, records(report.timeline_holders, HOLDER_COLUMNS), strict=True):
        holders.setdefault(key, []).append(row)
    keys = report.timeline[["gpu_uuid", "start_ms"]].itertuples(index=False, name=None)
    cells = zip(keys, records(frame(report), COLUMNS), strict=True)
    return {
        "cell_seconds": value("seconds", report.timeline_cell_seconds),
        "cells": [{**row, "holders": holders.get(key, [])} for key, row in cells],
    }


def show(report: Report, options: Options) -> list[Section]:
    if report.fleet:
        return []  # of thousands of cards: that of a host is in its own report
    if options.is_whole and not options.pictures:
        return []
    picture: list[Block] = [timeline_picture(report)] if len(report.timeline) else ["No card was seen in this window."]
    caption = f"What each card did, and who was on it. Times are those of {clean(report.timezone)}."
    return [Section("timeline", "Cards over time", caption, picture)]
