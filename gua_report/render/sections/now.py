"""Who is on which card right now, at work or not."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.attention import STALE_MS
from gua_report.render.blocks import Block, Column, Row, Section, State, Table, figure, label
from gua_report.render.sections.episodes import unknown_now
from gua_report.render.sections.gpus import names_of
from gua_report.render.values import iso, records
from gua_report.render.words import clean, gib, gpu, is_missing, moment
from gua_report.summary.now import NOW_COLUMNS
from gua_report.summary.report import Report
from gua_sample.held_words import spell_since, tell_held
from gua_sample.policy import IDLE_HELD

COLUMNS = ["since" if name == "since_ms" else name for name in NOW_COLUMNS]


def frame(report: Report) -> pd.DataFrame:
    """The processes; none if it is not known which there are."""
    if report.now is None:
        return pd.DataFrame(columns=COLUMNS)
    since = [None if is_missing(ms) else iso(int(ms), report.window.zone) for ms in report.now["since_ms"]]
    return report.now.assign(since=pd.Series(since, dtype=object))


def document(report: Report) -> dict[str, object] | None:
    if report.fleet:
        return None
    at = None if report.now is None else iso(_seen_ms(report), report.window.zone)
    return {"at": at, "processes": None if report.now is None else records(frame(report), COLUMNS)}


def show(report: Report, options: Options) -> list[Section]:
    """The section, unless the whole report is shown: its headline tells what is held."""
    if options.is_whole or report.fleet:
        return []
    is_fresh = abs(report.newest_ms - report.window.end_ms) <= STALE_MS
    title = "On cards right now" if is_fresh else "On cards at the newest tick"
    if report.now is None:
        why = unknown_now(report) or "the ticks have expired"
        return [Section("now", title, "", [f"It is not known who is on which card: {why}."])]
    caption = f"At {moment(_seen_ms(report), report.window.zone)}; since: when it began to hold the card without work."
    blocks = [*_tell(report, options.top), *_table(report, report.now, options.top)]
    if unknown := names_of(report, report.unknown_now):
        blocks.append(f"Not known of GPU {unknown}: the driver did not tell what it is doing, or who is on it.")
    return [Section("now", title, caption, blocks or ["Nothing."])]


def _seen_ms(report: Report) -> int:
    """The tick that tells who is on which card."""
    failed = report.newest_failed
    return report.newest_ms if failed is None or failed.seen_ms is None else failed.seen_ms


def _tell(report: Report, top: int) -> list[Block]:
    """A sentence for each process that holds a card without work, in the report of one person."""
    whose = report.selection
    if whose is None or whose.is_group or report.now is None:
        return []
    held = report.now[report.now["state"] == IDLE_HELD].head(top).to_dict("records")
    sentences = [_sentence(report, row, None if whose.is_reader else clean(whose.name)) for row in held]
    return [f"{sentence[0].upper()}{sentence[1:]}" if whose.is_reader else sentence for sentence in sentences]


def _sentence(report: Report, row: Row, who: str | None) -> str:
    since = row["since_ms"]
    return tell_held(
        gpu(row["gpu_index"], row["mig_index"]),
        None if is_missing(row["memory_mib"]) else row["memory_mib"],
        None if is_missing(since) else spell_since(since, _seen_ms(report), report.window.zone),
        row["pid"],
        row["command"],
        who,
    )


def _table(report: Report, found: pd.DataFrame, top: int) -> list[Block]:
    if not len(found):
        return []
    zone = report.window.zone
    columns = [Column("gpu", lambda row: gpu(row["gpu_index"], row["mig_index"]))]
    if report.selection is None or report.selection.is_group:
        columns.append(label("who", "identity"))
    columns += [
        Column("state", lambda row: State(row["state"])),
        Column("since", lambda row: "" if is_missing(row["since_ms"]) else moment(row["since_ms"], zone)),
        figure("GiB", "memory_mib", gib),
    ]
    if found["pid"].notna().any():  # not if names were taken out
        columns += [
            Column("pid", lambda row: clean(row["pid"]), right=True, may_go=True),
            label("command", "command"),
        ]
    table = Table(columns, found.head(top).to_dict("records"))
    return [table, *([f"and {len(found) - top:,} more"] if len(found) > top else [])]
