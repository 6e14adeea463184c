"""§8: used time compared with reserved time."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Row, Section, Table, figure, label
from gua_report.render.sections.identities import top_and_rest
from gua_report.render.values import records
from gua_report.render.words import clean, gpu, number, percent
from gua_report.summary.build import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS as COLUMNS
from gua_report.summary.reserved_hours import SUMS

NAME, TITLE = "reservations", "§8 Reservations"
TITLES = ("reserved", "used", "idle", "held", "unknown", "without")


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
        "Hours of a card, from ticks. Idle: reserved, but no work done by those who reserved it; held: of that, with"
        f" over {held} MiB of theirs on it. Without: at work or holding, not reserved by them."
    )
    columns = [label("who", "identity"), Column("gpu", _gpu)]
    columns += [figure(title, name) for title, name in zip(TITLES, SUMS, strict=True)]
    rows = top_and_rest(found, options.top, SUMS)
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nothing was reserved, and nothing used."]
    blocks += [f"Warning: {clean(problem)}" for problem in report.reservation_problems]
    used, idle = float(found["used_hours"].sum()), float(found["idle_hours"].sum())
    share = f": {percent(used / (used + idle))} of the reserved time was used" if used + idle else ""
    return [Section(NAME, f"{TITLE}{share}", caption, blocks)]


def _gpu(row: Row) -> str:
    return gpu(row["gpu_index"], row["mig_index"]) if "gpu_index" in row else ""  # the last row sums up several cards
