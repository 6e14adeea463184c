"""§7: how much of the window was observed, and why the rest was not."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration, parts_of
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Section, Table, figure, label
from gua_report.render.sections.gpus import names_of
from gua_report.render.values import iso, records, value
from gua_report.render.words import clean, count, is_missing, moment, percent
from gua_report.summary.of_hosts import GAP_COLUMNS, Fleet
from gua_report.summary.report import Report

COLUMNS = ["from", "to", "seconds", "kind"]


def frame(report: Report) -> pd.DataFrame:
    """The gaps."""
    start, end, zone = report.gaps["start_ms"], report.gaps["end_ms"], report.window.zone
    times = {name: [iso(ms, zone) for ms in column.tolist()] for name, column in (("from", start), ("to", end))}
    return report.gaps.assign(**times, seconds=(end - start) / 1000)


def columns(report: Report) -> list[str]:
    return [*(["host"] if report.fleet else []), *COLUMNS]


def document(report: Report) -> dict[str, object]:
    if report.fleet:
        return _document_of_fleet(report, report.fleet)
    return {
        "share": value("share", report.coverage_share),
        "observed_seconds": value("seconds", report.observed_seconds),
        "gaps": records(frame(report), ["from", "to", "kind"]),
        "instant_only_gpus": [clean(uuid) for uuid in report.instant_only],
    }


def _document_of_fleet(report: Report, fleet: Fleet) -> dict[str, object]:
    """Coverage is each host's own, in `hosts`, and never one number; of gaps, the longest."""
    return {
        "share": None,
        "observed_seconds": value("seconds", report.observed_seconds),
        "gap_totals": records(fleet.gap_totals, GAP_COLUMNS),
        "gaps": records(frame(report), ["host", "from", "to", "kind"]),
        "instant_only_gpus": [clean(uuid) for uuid in report.instant_only],
    }


def show(report: Report, options: Options) -> list[Section]:
    if report.fleet:
        return [_show_fleet(report, report.fleet, options.top)]
    seconds = report.observed_seconds, report.from_ticks_seconds, report.from_rollups_seconds
    length, observed, ticks, rollups = parts_of(report.window.length_ms / 1000, *seconds)
    sources = f"{ticks} from ticks" + (f", {rollups} from rollups" if report.from_rollups_seconds else "")
    known = report.energy_known_share
    energy = "not known" if is_missing(known) else f"known for {percent(known)} of the card time"
    blocks: list[Block] = [
        f"Observed: {percent(report.coverage_share)}, {observed} of {length} ({sources}).",
        f"Energy: {energy}.",
    ]
    if len(report.driver_versions) > 1:
        blocks.append(f"Drivers: {', '.join(clean(version) for version in report.driver_versions)}.")
    blocks += _gaps(report, options.top) if len(report.gaps) else ["No gaps."]
    blocks += _instant_only(report)
    blocks += [f"Warning: {clean(warning)}" for warning in [*report.warnings, *report.people_problems]]
    blocks += [f"Note: {clean(note)}" for note in report.notes]
    caption = "Time that no tick covers is a gap, and is never counted as idle."
    return [Section("coverage", "§7 Coverage and data quality", caption, blocks)]


def _show_fleet(report: Report, fleet: Fleet, top: int) -> Section:
    known, zone = report.energy_known_share, report.window.zone
    energy = "not known" if is_missing(known) else f"known for {percent(known)} of the card time"
    totals = [
        label("gaps by kind", "kind", least=12),
        figure("hosts", "hosts", "{:,}".format),
        figure("gaps", "gaps", "{:,}".format),
        figure("total", "seconds", duration),
    ]
    each = [
        label("host", "host"),
        Column("from", lambda row: moment(row["start_ms"], zone)),
        Column("to", lambda row: moment(row["end_ms"], zone)),
        figure("length", "seconds", duration),
        label("kind", "kind", least=12),
    ]
    longest = frame(report).sort_values(["seconds", "host"], ascending=[False, True], kind="stable").head(top)
    blocks: list[Block] = [f"Energy: {energy}."]
    if len(longest):
        blocks += [Table(totals, fleet.gap_totals.to_dict("records")), Table(each, longest.to_dict("records"))]
        rest = int(fleet.gap_totals["gaps"].sum()) - len(longest)
        blocks += [f"and {count(rest, 'shorter gap')}"] if rest > 0 else []
    else:
        blocks.append("No gaps.")
    blocks += [*_instant_only(report), *(f"Note: {clean(note)}" for note in report.notes)]
    caption = "Each host is observed for itself: its share is in the table of hosts. A gap is never counted as idle."
    return Section("coverage", "§7 Coverage and data quality", caption, blocks)


def _instant_only(report: Report) -> list[Block]:
    """A line on the cards whose utilization is not a mean, and what that means for their figures."""
    names = names_of(report, report.instant_only)
    if not names:
        return []
    return [
        f"Instantaneous readings only: GPU {names}. The driver told no means over time: each tick saw 1/6 to 1 s, and"
        " what was done or not done between them is not known."
    ]


def _gaps(report: Report, top: int) -> list[Block]:
    gaps, zone = frame(report), report.window.zone
    by_kind = [
        label("gaps by kind", "kind", least=12),
        figure("gaps", "count", "{:,}".format),
        figure("total", "sum", duration),
        figure("longest", "max", duration),
    ]
    totals = gaps.groupby("kind", sort=True)["seconds"].agg(["count", "sum", "max"]).reset_index()
    each = [
        Column("from", lambda row: moment(row["start_ms"], zone)),
        Column("to", lambda row: moment(row["end_ms"], zone)),
        figure("length", "seconds", duration),
        label("kind", "kind", least=12),
    ]
    longest = gaps.sort_values(["seconds", "start_ms"], ascending=[False, True]).head(top).sort_values("start_ms")
    blocks: list[Block] = [Table(by_kind, totals.to_dict("records")), Table(each, longest.to_dict("records"))]
    return blocks + ([f"and {count(len(gaps) - top, 'shorter gap')}"] if len(gaps) > top else [])
