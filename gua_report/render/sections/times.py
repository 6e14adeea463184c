"""Hours of the week, cards over time, the trend, and how much of the window was observed."""

import pandas as pd

from gua_report.console.spelling import duration, parts_of, state_columns
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Heatmap, Section, Table, figure, label
from gua_report.render.sections.cards import names_of
from gua_report.render.values import Value, clean, count, is_missing, moment, number, percent, records, value
from gua_report.summary.of_hosts import GAP_COLUMNS
from gua_report.summary.report import Report

HEATMAP_COLUMNS = ["weekday", "hour", "active_share", "free_gpus"]
TIMELINE_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "start", "end", *state_columns("seconds").values()]
HOLDER_COLUMNS = ["identity", "active_seconds", "idle_held_seconds", "unknown_seconds"]
GAPS = ["from", "to", "seconds", "kind"]
TREND_COLUMNS = ["start", "end", "observed_seconds", *state_columns("gpu_hours").values()]


def show_heatmap(report: Report, options: Options) -> list[Section]:
    shares: list[list[float | None]] = [[None] * 24 for _ in range(7)]
    for weekday, hour, share in report.heatmap[HEATMAP_COLUMNS[:3]].itertuples(index=False):
        shares[int(weekday)][int(hour)] = None if is_missing(share) else float(share)
    blocks: list[Block] = ["Nothing is known of any hour."]
    if any(share is not None for day in shares for share in day):
        blocks = [Heatmap(shares)]
        if options.pictures:
            from gua_report.render.pictures.bar_charts import week_pictures

            blocks = [*week_pictures(report)]
    threshold, zone = number(report.policy.utilization_percent), clean(report.timezone)
    caption = f"When cards were at work, at {threshold}% utilization or more; hours in {zone}."
    return [Section("heatmap", "§5 Hours of the week", caption, blocks)]


def document_timeline(report: Report) -> object:
    if report.fleet:
        return None
    key = ["gpu_uuid", "start_ms"]
    holders: dict[object, list[dict[str, Value]]] = {}
    found = records(report.timeline_holders, HOLDER_COLUMNS)
    for place, row in zip(report.timeline_holders[key].itertuples(index=False, name=None), found, strict=True):
        holders.setdefault(place, []).append(row)
    cells = records(report.timeline, TIMELINE_COLUMNS, report.window.zone)
    places = report.timeline[key].itertuples(index=False, name=None)
    return {
        "cell_seconds": value("seconds", report.timeline_cell_seconds),
        "cells": [{**row, "holders": holders.get(place, [])} for place, row in zip(places, cells, strict=True)],
    }


def show_timeline(report: Report, options: Options) -> list[Section]:
    if report.fleet:
        return []  # of thousands of cards: that of a host is in its own report
    if options.is_whole and not options.pictures:
        return []
    from gua_report.render.pictures.over_time import timeline_picture

    picture: list[Block] = [timeline_picture(report)] if len(report.timeline) else ["No card was seen in this window."]
    caption = f"What each card did, and who was on it. Times are those of {clean(report.timezone)}."
    return [Section("timeline", "Cards over time", caption, picture)]


def show_trend(report: Report, options: Options) -> list[Section]:
    if options.is_whole and not options.pictures:
        return []
    from gua_report.render.pictures.over_time import trend_picture

    days = f"days are those of {clean(report.timezone)}"
    caption = f"Whether it gets better. Time that was not observed is no state; {days}."
    return [Section("trend", "Trend", caption, [trend_picture(report)])]


def frame_of_gaps(report: Report) -> pd.DataFrame:
    start, end = report.gaps["start_ms"], report.gaps["end_ms"]
    return report.gaps.assign(from_ms=start, to_ms=end, seconds=(end - start) / 1000)


def document_coverage(report: Report) -> object:
    """In the report of a fleet, coverage is each host's own, in `hosts`, and never one number; of gaps, the longest."""
    fleet = report.fleet
    columns = ["from", "to", "kind"]
    return {
        "share": None if fleet else value("share", report.coverage_share),
        "observed_seconds": value("seconds", report.observed_seconds),
        **({"gap_totals": records(fleet.gap_totals, GAP_COLUMNS)} if fleet else {}),
        "gaps": records(frame_of_gaps(report), ["host", *columns] if fleet else columns, report.window.zone),
        "instant_only_gpus": [clean(uuid) for uuid in report.instant_only],
    }


def show_coverage(report: Report, options: Options) -> list[Section]:
    known = report.energy_known_share
    energy = "not known" if is_missing(known) else f"known for {percent(known)} of the card time"
    blocks: list[Block] = [f"Energy: {energy}."]
    caption = "Each host is observed for itself: its share is in the table of hosts. A gap is never counted as idle."
    if not report.fleet:
        caption = "Time that no tick covers is a gap, and is never counted as idle."
        seconds = report.observed_seconds, report.from_ticks_seconds, report.from_rollups_seconds
        length, observed, ticks, rollups = parts_of(report.window.length_ms / 1000, *seconds)
        sources = f"{ticks} from ticks" + (f", {rollups} from rollups" if report.from_rollups_seconds else "")
        blocks.insert(0, f"Observed: {percent(report.coverage_share)}, {observed} of {length} ({sources}).")
        if len(report.driver_versions) > 1:
            blocks.append(f"Drivers: {', '.join(clean(version) for version in report.driver_versions)}.")
    blocks += _gaps(report, options.top) if len(report.gaps) else ["No gaps."]
    if names := names_of(report, report.instant_only):
        blocks.append(
            f"Instantaneous readings only: GPU {names}. The driver told no means over time: each tick saw 1/6 to 1 s,"
            " and what was done or not done between them is not known."
        )
    if not report.fleet:
        blocks += [f"Warning: {clean(warning)}" for warning in [*report.warnings, *report.people_problems]]
    blocks += [f"Note: {clean(note)}" for note in report.notes]
    return [Section("coverage", "§7 Coverage and data quality", caption, blocks)]


def _gaps(report: Report, top: int) -> list[Block]:
    """The gaps by kind and the longest ones; in the report of a fleet, these are all that there are."""
    gaps, zone, fleet = frame_of_gaps(report), report.window.zone, report.fleet
    order = "host" if fleet else "start_ms"
    longest = gaps.sort_values(["seconds", order], ascending=[False, True], kind="stable").head(top)
    if fleet:
        totals, rest = fleet.gap_totals, int(fleet.gap_totals["gaps"].sum()) - len(longest)
    else:
        sums = {"gaps": ("seconds", "count"), "seconds": ("seconds", "sum"), "longest": ("seconds", "max")}
        totals = gaps.groupby("kind", sort=True, as_index=False).agg(**sums)
        rest, longest = len(gaps) - len(longest), longest.sort_values("start_ms")
    by_kind = [
        label("gaps by kind", "kind", least=12),
        *([figure("hosts", "hosts", "{:,}".format)] if fleet else []),
        figure("gaps", "gaps", "{:,}".format),
        figure("total", "seconds", duration),
        *([] if fleet else [figure("longest", "longest", duration)]),
    ]
    each = [
        *([label("host", "host")] if fleet else []),
        Column("from", lambda row: moment(row["start_ms"], zone)),
        Column("to", lambda row: moment(row["end_ms"], zone)),
        figure("length", "seconds", duration),
        label("kind", "kind", least=12),
    ]
    tables = [Table(by_kind, totals.to_dict("records")), Table(each, longest.to_dict("records"))]
    return [*tables, *([f"and {count(rest, 'shorter gap')}"] if rest > 0 else [])]
