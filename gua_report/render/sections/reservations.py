"""§8: used time compared with reserved time."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Row, Section, Table, figure, people_of
from gua_report.render.sections.identities import top_and_rest
from gua_report.render.values import records
from gua_report.render.words import clean, gpu, number, percent
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS as COLUMNS
from gua_report.summary.reserved_hours import SUMS

NAME, TITLE = "reservations", "§8 Reservations"
TITLES = {
    "reserved": "reserved_hours",
    "used": "used_hours",
    "idle": "idle_hours",
    "held": "idle_held_hours",
    "not used": "not_used_hours",
    "unknown": "unknown_hours",
    "without": "unreserved_hours",
}


def frame(report: Report) -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS) if report.reservations is None else report.reservations


def document(report: Report) -> dict[str, object] | None:
    if report.reservations is None:
        return None
    problems = [clean(problem) for problem in report.reservation_problems]
    return {"hours": records(report.reservations, COLUMNS), "problems": problems}


def show(report: Report, options: Options) -> list[Section]:
    """The section; if no reservations are configured, only when it was requested explicitly."""
    found = report.reservations
    if found is None:
        if options.is_whole:
            return []
        return [Section(NAME, TITLE, "None are configured: see [reservations] in gua.toml.", [])]
    held = number(report.policy.process_memory_mib)
    caption = (
        "Hours of a card, from ticks. Reserved: by Slurm's jobs too. Idle: no work done by those who reserved it; held:"
        f" of that, with over {held} MiB of theirs on it; not used: the rest of it. Without: at work or holding, not"
        " reserved by them."
    )
    columns = [people_of(report), Column("gpu", _gpu)]
    columns += [figure(title, name) for title, name in TITLES.items()]
    rows = top_and_rest(found, options.top, SUMS)
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nothing was reserved, and nothing used."]
    blocks += [f"Warning: {clean(problem)}" for problem in report.reservation_problems]
    used, idle, not_used = (float(found[name].sum()) for name in ("used_hours", "idle_hours", "not_used_hours"))
    shares = ""
    if known := used + idle:
        shares = f": {percent(used / known)} of the reserved time was used, {percent(not_used / known)} not at all"
    return [Section(NAME, f"{TITLE}{shares}", caption, blocks)]


def _gpu(row: Row) -> str:
    return gpu(row["gpu_index"], row["mig_index"]) if "gpu_index" in row else ""  # the last row sums up several cards
