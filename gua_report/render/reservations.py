"""The section that compares used with reserved time."""

from __future__ import annotations

import pandas as pd

from gua_report.render import SECTIONS, Options
from gua_report.render.blocks import Block, Cell, Column, Section, Table
from gua_report.render.words import amount, clean, gpu, number, percent
from gua_report.summary.build import Report
from gua_report.summary.reserved_hours import SUMS

NAME = "reservations"


def reservations(report: Report, options: Options) -> list[Section]:
    """The section; if no reservations are configured, only when it was requested explicitly."""
    frame = report.reservations
    if frame is None:
        if set(options.sections) == set(SECTIONS):
            return []
        return [Section(NAME, "§8 Reservations", "None are configured: see [reservations] in gua.toml.", [])]
    held = number(report.policy.process_memory_mib)
    caption = (
        "Hours of a card, from ticks. Idle: reserved, but no work done by those who reserved it; held: of that, with"
        f" over {held} MiB of theirs on it. Without: at work or holding, not reserved by them."
    )
    blocks: list[Block] = [_table(frame, options.top)] if len(frame) else ["Nothing was reserved, and nothing used."]
    blocks += [f"Warning: {clean(problem)}" for problem in report.reservation_problems]
    return [Section(NAME, _title(frame), caption, blocks)]


def _title(frame: pd.DataFrame) -> str:
    used, idle = float(frame["used_hours"].sum()), float(frame["idle_hours"].sum())
    share = f": {percent(used / (used + idle))} of the reserved time was used" if used + idle else ""
    return f"§8 Reservations{share}"


def _table(frame: pd.DataFrame, top: int) -> Table:
    columns = [Column("who", least=8), Column("gpu")]
    columns += [Column(name, True) for name in ("reserved", "used", "idle", "held", "unknown", "without")]
    rows: list[list[Cell]] = [
        [clean(row["identity"]), gpu(row["gpu_index"], row["mig_index"]), *(amount(row[name]) for name in SUMS)]
        for row in frame.head(top).to_dict("records")
    ]
    rest = frame.iloc[top:]
    if len(rest):
        sums = [amount(rest[name].sum(skipna=False)) for name in SUMS]
        rows.append([f"and {len(rest):,} more", "", *sums])
    return Table(columns, rows)
