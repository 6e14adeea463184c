"""Who is on which card right now, and the times in which one process held a card without work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.render import STALE_MS, Options
from gua_report.render.blocks import (
    STATE,
    Block,
    Column,
    Row,
    Section,
    SectionKind,
    Table,
    and_more,
    figure,
    first_rows,
    label,
    people_of,
    place_of,
)
from gua_report.render.sections.cards import say_unknown
from gua_report.render.values import clean, gib, gpu, is_missing, iso, moment, number, records, value
from gua_report.summary.now import NOW_COLUMNS
from gua_report.summary.report import Report
from gua_sample.held_file import ADVICE, spell_held, spell_since
from gua_sample.policy import IDLE_HELD

EPISODE_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "start_is_exact", "end"]
EPISODE_COLUMNS += ["seconds", "peak_memory_mib", "ongoing", *CONTAINER_COLUMNS]
EPISODE_COLUMNS += ["meant_seconds", "meant_reason", "meant_until", "meant_now", "slurm_job"]
NOW = ["since" if name == "since_ms" else name for name in NOW_COLUMNS]
GOES_ON = Column("", lambda row: "?" if is_missing(row["ongoing"]) else ">" if row["ongoing"] else "")
FOR = Column("for", lambda row: length_of(row), right=True)
PID = Column("pid", lambda row: str(value("pid", row["pid"]) or ""), right=True, may_go=True)
JOB = Column("job", lambda row: "" if is_missing(row["slurm_job"]) else clean(row["slurm_job"]), least=14)


def show_episodes(report: Report, options: Options) -> list[Section]:
    held = number(report.policy.process_memory_mib)
    mark = "> ongoing" if report.knows_now else "? not known whether ongoing"
    caption = (
        f"Each is a process that held over {held} MiB without work, or memory that no process shows; it may have begun"
        f" before the window. {mark}. ≥: its beginning was not seen."
    )
    blocks = table_of_episodes(report, report.episodes, options.top, GOES_ON)
    blocks = blocks or ["Nobody was seen holding a card idle."]
    return [Section("episodes", "§6 Idle-held episodes", caption, blocks)]


def length_of(row: Mapping[Any, Any]) -> str:
    """The duration of an episode, with `≥` if its beginning was not seen: it may be longer."""
    return f"{'' if row['start_is_exact'] else '≥ '}{duration(row['seconds'])}"


def unknown_now(report: Report) -> str | None:
    """Why it is not known who holds what right now; None if it is known."""
    failed = report.newest_failed
    if failed is None or failed.is_near:
        return None
    since = moment(failed.since_ms, report.window.zone)
    return f"driver error since {since} ({clean(failed.error)})"


def table_of_episodes(report: Report, found: pd.DataFrame, top: int, *first: Column) -> list[Block]:
    zone, shown = report.window.zone, found.head(top)
    columns = [*first, *place_of(report), people_of(report), *([JOB] if shown["slurm_job"].notna().any() else [])]
    columns.append(Column("since", lambda row: moment(row["start_ms"], zone)))
    columns += [FOR, figure("GiB", "peak_memory_mib", gib)]
    if (shown["meant_seconds"] > 0).any():
        columns.append(figure("meant", "meant_seconds", lambda seconds: duration(seconds) if seconds else ""))
    if found["pid"].notna().any():  # not if names were taken out
        columns += [PID, label("command", "command")]
    blocks: list[Block] = [Table(columns, shown.to_dict("records"))] if len(shown) else []
    more = len(found) - top
    if report.fleet and found is report.episodes:
        more = sum(report.fleet.episodes.values()) - top  # the report has but the first of them
    return blocks + and_more(more)


def table_of_meant(report: Report, found: pd.DataFrame) -> list[Block]:
    zone = report.window.zone
    meant = Column("meant", lambda row: spell_meant(row, zone), least=24)
    columns = [*place_of(report), people_of(report), FOR, meant]
    return [Table(columns, found.to_dict("records"))] if len(found) else []


def spell_meant(row: Row, zone: tzinfo) -> str:
    until = "" if is_missing(row["meant_until_ms"]) else f"until {moment(row['meant_until_ms'], zone)}"
    why = "" if is_missing(row["meant_reason"]) else clean(row["meant_reason"])  # not there if names were taken out
    return ": ".join(filter(None, (until, why))) or "yes"


def document_now(report: Report) -> object:
    if report.fleet:
        return None
    if report.now is None:
        return {"at": None, "processes": None}
    zone = report.window.zone
    return {"at": iso(report.told_ms, zone), "processes": records(report.now, NOW, zone)}


def show_now(report: Report, options: Options) -> list[Section]:
    if options.is_whole or report.fleet:
        return []
    is_fresh = abs(report.newest_ms - report.window.end_ms) <= STALE_MS
    title = "On cards right now" if is_fresh else "On cards at the newest tick"
    if report.now is None:
        why = unknown_now(report) or "the ticks have expired"
        return [Section("now", title, "", [f"It is not known who is on which card: {why}."])]
    caption = f"At {moment(report.told_ms, report.window.zone)}; since: when it began to hold the card without work."
    blocks = [*_tell(report, options.top), *_table(report, report.now, options.top), *say_unknown(report)]
    return [Section("now", title, caption, blocks or ["Nothing."])]


def _tell(report: Report, top: int) -> list[Block]:
    whose = report.selection
    if whose is None or whose.is_group or report.now is None:
        return []
    marked = report.episodes[report.episodes["meant_now"].eq(True)].to_dict("records")
    meant = {(row["gpu_uuid"], row["pid"]): f"Meant: {spell_meant(row, report.window.zone)}." for row in marked}
    blocks: list[Block] = []
    for row in report.now[report.now["state"] == IDLE_HELD].head(top).to_dict("records"):
        note = meant.get((row["gpu_uuid"], row["pid"]))
        sentence = _sentence(report, row, None if whose.is_reader else clean(whose.name), note is not None)
        blocks += [f"{sentence[0].upper()}{sentence[1:]}" if whose.is_reader else sentence, *([note] if note else [])]
    return blocks


def _sentence(report: Report, row: Row, who: str | None, is_meant: bool) -> str:
    since = row["since_ms"]
    sentence = spell_held(
        gpu(row["gpu_index"], row["mig_index"]),
        None if is_missing(row["memory_mib"]) else row["memory_mib"],
        None if is_missing(since) else spell_since(since, report.told_ms, report.window.zone, row["since_is_exact"]),
        row["pid"],
        row["command"],
        who,
    )
    # Nobody is told to end what is meant, nor what is a colleague's.
    return sentence if is_meant or who is not None else f"{sentence} {ADVICE}"


def _table(report: Report, found: pd.DataFrame, top: int) -> list[Block]:
    zone, columns = report.window.zone, place_of(report)
    if report.selection is None or report.selection.is_group:
        columns.append(label("who", "identity"))
    columns += [STATE, Column("since", lambda row: _since(row, zone)), figure("GiB", "memory_mib", gib)]
    if found["pid"].notna().any():  # not if names were taken out
        columns += [PID, label("command", "command")]
    return first_rows(columns, found, top)


def _since(row: Row, zone: tzinfo) -> str:
    since = row["since_ms"]
    return "" if is_missing(since) else f"{'' if row['since_is_exact'] else '≤ '}{moment(since, zone)}"


KINDS = (
    SectionKind("now", NOW, lambda report: report.now, show_now, document_now),
    SectionKind("episodes", EPISODE_COLUMNS, lambda report: report.episodes, show_episodes),
)
