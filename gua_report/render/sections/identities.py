"""§4: who used the cards, and who held them without work."""

from __future__ import annotations

import pandas as pd

from gua_report.people.identities import UNATTRIBUTED
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Row, Section, Table, bar_of, figure, label
from gua_report.render.pictures.people import people_picture
from gua_report.render.sections.capacity import currency_of
from gua_report.render.words import clean, number, percent
from gua_report.summary.build import Report
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, UNKNOWN

COLUMNS = IDENTITY_COLUMNS
ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS = "active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"
COST = "idle_held_cost"


def frame(report: Report) -> pd.DataFrame:
    return report.identities


def show(report: Report, options: Options) -> list[Section]:
    found, policy = report.identities, report.policy
    sums = [ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS]
    # One scale for all, that of the longest bar; what stands for several people has none.
    longest = float(found.head(options.top)[sums].sum(axis=1).max()) if len(found) else 0.0
    columns = [
        label("who", "identity"),
        Column("", lambda row: bar_of(_hours(row), longest), may_go=True),
        figure(IDLE_HELD, HELD_HOURS),
        figure(ACTIVE, ACTIVE_HOURS),
    ]
    if (found[UNKNOWN_HOURS] > 0).any():
        columns.append(figure(UNKNOWN, UNKNOWN_HOURS))
    columns.append(Column("idle-held share", _held_share, right=True))
    cost = ""
    if found[COST].notna().any():
        columns.append(figure(currency_of(report) or "", COST))
        cost = f"; {currency_of(report)}: of idle-held hours, without energy"
        sums.append(COST)
    rows = top_and_rest(found, options.top, sums)
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nobody was seen using a card."]
    if options.pictures and rows:
        shown = [{**row, "identity": clean(row["identity"])} for row in rows[: options.top]]
        blocks.insert(0, people_picture(shown))
    if (found["identity"] == UNATTRIBUTED).any():
        hidden = number(policy.unattributed_memory_mib)
        blocks.append(f"{UNATTRIBUTED}: over {hidden} MiB in use that no process shows.")
    held = number(policy.process_memory_mib)
    caption = f"GPU-hours of each on any card, a shared one in full; idle-held: over {held} MiB and no work done{cost}."
    return [Section("identities", "§4 Top identities, by idle-held GPU-hours", caption, blocks)]


def _hours(row: Row) -> list[float]:
    """The hours of one person in the order of STATES."""
    is_one = "gpu_hours" in row
    return [row[ACTIVE_HOURS], row[HELD_HOURS], 0.0, row[UNKNOWN_HOURS]] if is_one else [0.0] * len(STATES)


def _held_share(row: Row) -> str:
    used = row[ACTIVE_HOURS] + row[HELD_HOURS]
    return percent(row[HELD_HOURS] / used if used else None)


def top_and_rest(found: pd.DataFrame, top: int, sums: list[str]) -> list[Row]:
    """The first rows of a table of identities, and one with the sums of all others."""
    rows = found.head(top).to_dict("records")
    rest = found.iloc[top:]
    if len(rest):
        rows.append({"identity": f"and {len(rest):,} more", **rest[sums].sum(skipna=False).to_dict()})
    return rows
