"""§6: the times in which one process held a card without work."""

from __future__ import annotations

from datetime import tzinfo

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Row, Section, Table, figure, label, people_of
from gua_report.render.values import iso
from gua_report.render.words import clean, gib, gpu, is_missing, moment, number
from gua_report.summary.report import Report

COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "end", "seconds"]
COLUMNS += ["peak_memory_mib", "ongoing", *CONTAINER_COLUMNS]
COLUMNS += ["meant_seconds", "meant_reason", "meant_until", "meant_now", "slurm_job"]
GPU = Column("gpu", lambda row: gpu(row["gpu_index"], row["mig_index"]))
GOES_ON = Column("", lambda row: "?" if is_missing(row["ongoing"]) else ">" if row["ongoing"] else "")
JOB = Column("job", lambda row: "" if is_missing(row["slurm_job"]) else clean(row["slurm_job"]), least=14)


def columns(report: Report) -> list[str]:
    return [*(["host"] if report.fleet else []), *COLUMNS]


def frame(report: Report) -> pd.DataFrame:
    found, zone = report.episodes, report.window.zone
    start, end = ([iso(ts_ms, zone) for ts_ms in found[name].tolist()] for name in ("start_ms", "end_ms"))
    until = [None if is_missing(ts_ms) else iso(int(ts_ms), zone) for ts_ms in found["meant_until_ms"].tolist()]
    return found.assign(start=start, end=end, meant_until=pd.Series(until, found.index, dtype=object))


def show(report: Report, options: Options) -> list[Section]:
    held = number(report.policy.process_memory_mib)
    mark = "> ongoing" if report.knows_now else "? not known whether ongoing"
    caption = f"Each is a process that held over {held} MiB without work; its times are not cut at the window. {mark}."
    blocks = table_of_episodes(report, report.episodes, options.top, GOES_ON)
    blocks = blocks or ["Nobody was seen holding a card idle."]
    return [Section("episodes", "§6 Idle-held episodes", caption, blocks)]


def unknown_now(report: Report) -> str | None:
    """Why it is not known who holds what right now; None if it is known."""
    failed = report.newest_failed
    if failed is None or failed.is_near:
        return None
    since = moment(failed.since_ms, report.window.zone)
    return f"driver error since {since} ({clean(failed.error)})"


def table_of_episodes(report: Report, found: pd.DataFrame, top: int, *first: Column) -> list[Block]:
    """The longest of these episodes, with the columns in `first` before the usual ones; empty if there are none."""
    zone, shown = report.window.zone, found.head(top)
    columns = [*first, *_place(report), people_of(report), *([JOB] if shown["slurm_job"].notna().any() else [])]
    columns.append(Column("since", lambda row: moment(row["start_ms"], zone)))
    columns += [figure("for", "seconds", duration), figure("GiB", "peak_memory_mib", gib)]
    if (shown["meant_seconds"] > 0).any():
        columns.append(figure("meant", "meant_seconds", lambda seconds: duration(seconds) if seconds else ""))
    if found["pid"].notna().any():  # not if names were taken out
        columns += [
            Column("pid", lambda row: clean(row["pid"]), right=True, may_go=True),
            label("command", "command"),
        ]
    blocks: list[Block] = [Table(columns, shown.to_dict("records"))] if len(shown) else []
    more = len(found) - top
    if report.fleet and found is report.episodes:
        more = sum(report.fleet.episodes.values()) - top  # the report has but the first of them
    return blocks + ([f"and {more:,} more"] if more > 0 else [])


def _place(report: Report) -> list[Column]:
    return [label("host", "host"), GPU] if report.fleet else [GPU]


def table_of_meant(report: Report, found: pd.DataFrame) -> list[Block]:
    """These episodes, which are meant right now, with the reason and until when; empty if there are none."""
    zone = report.window.zone
    meant = Column("meant", lambda row: _spell_meant(row, zone), least=24)
    columns = [*_place(report), people_of(report), figure("for", "seconds", duration), meant]
    return [Table(columns, found.to_dict("records"))] if len(found) else []


def _spell_meant(row: Row, zone: tzinfo) -> str:
    until = "" if is_missing(row["meant_until_ms"]) else f"until {moment(row['meant_until_ms'], zone)}"
    why = "" if is_missing(row["meant_reason"]) else clean(row["meant_reason"])  # not there if names were taken out
    return ": ".join(filter(None, (until, why))) or "yes"
