"""§4: who used the cards, and who held them without work."""

from __future__ import annotations

import pandas as pd

from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.people.identities import UNATTRIBUTED
from gua_report.render import Options
from gua_report.render.blocks import Bar, Block, Column, Row, Section, Table, bar_of, figure, people_of
from gua_report.render.limits import add_limits, caption_of, columns_with, limit_column, tell_limits
from gua_report.render.pictures.people import people_picture
from gua_report.render.sections.capacity import currency_of
from gua_report.render.words import amount, clean, is_missing, number, percent, points
from gua_report.summary.report import Report
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

COLUMNS = [*IDENTITY_COLUMNS, *CONTAINER_COLUMNS]
ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS = "active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"
COST, MEANT_HOURS = "idle_held_cost", "meant_gpu_hours"


def frame(report: Report) -> pd.DataFrame:
    return add_limits(report.identities, report.limits)


def columns(report: Report) -> list[str]:
    return columns_with(COLUMNS, report.limits)


def show(report: Report, options: Options) -> list[Section]:
    found, policy = frame(report), report.policy
    sums = [ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS]
    # One scale for all, that of the longest bar; what stands for several people has none.
    longest = float(found.head(options.top)[sums].sum(axis=1).max()) if len(found) else 0.0
    shown_columns = [
        people_of(report),
        *([] if options.pictures else [Column("", lambda row: _bar(row, longest), may_go=True)]),
        figure(IDLE_HELD, HELD_HOURS),
        figure(ACTIVE, ACTIVE_HOURS),
    ]
    meant = ""
    if (found[MEANT_HOURS] > 0).any():
        shown_columns.insert(-1, figure("meant", MEANT_HOURS))
        meant = "; meant: of idle-held, on purpose by a note, or exempt"
        sums.append(MEANT_HOURS)
    if (found[UNKNOWN_HOURS] > 0).any():
        shown_columns.append(figure(UNKNOWN, UNKNOWN_HOURS))
    shown_columns.append(Column("idle-held share", _held_share, right=True))
    cost = ""
    if found[COST].notna().any():
        shown_columns.append(figure(currency_of(report) or "", COST))
        cost = f"; {currency_of(report)}: of idle-held hours, without energy"
        sums.append(COST)
    shown_columns += limit_column(report, found)
    rows = top_and_rest(found, options.top, sums)
    blocks: list[Block] = [Table(shown_columns, rows)] if rows else ["Nobody was seen using a card."]
    if options.pictures and rows:
        shown = [{**row, "identity": clean(report.who(row["identity"]))} for row in rows[: options.top]]
        blocks.insert(0, people_picture(shown))
    if (found["identity"] == UNATTRIBUTED).any():
        hidden = number(policy.unattributed_memory_mib)
        blocks.append(f"{UNATTRIBUTED}: over {hidden} MiB in use that no process shows.")
    blocks += [*_compare(report), *tell_limits(report)]
    held = f"Idle-held: over {number(policy.process_memory_mib)} MiB and no work done"
    caption = f"GPU-hours on all cards; a shared one counts for each. {held}{meant}{cost}{caption_of(report, found)}."
    whose = report.selection
    one = whose.name if whose and not whose.is_group else None
    title = f"§4 Hours of {clean(one)}" if one else "§4 Top identities, by idle-held GPU-hours"
    return [Section("identities", title, caption, blocks)]


def _bar(row: Row, longest: float) -> Bar:
    """The bar of one person; what stands for several people has none."""
    return bar_of(hours_of(row), longest if "gpu_hours" in row else 0.0)


def _compare(report: Report) -> list[Block]:
    """A line on how one person stands against what is usual, if there are enough people to tell."""
    median = report.selection.median if report.selection else None
    if median is None:
        return []
    own = report.identities[[ACTIVE_HOURS, HELD_HOURS]].sum()
    used, usual = own[ACTIVE_HOURS] + own[HELD_HOURS], median.idle_held_share
    more_hours = own[HELD_HOURS] - median.idle_held_gpu_hours
    more_share = own[HELD_HOURS] / used - usual if used else None
    hours = (
        f"{amount(abs(more_hours))} idle-held GPU-hours {_side(more_hours)} its {amount(median.idle_held_gpu_hours)}"
    )
    share = f"{points(more_share).lstrip('+-')} points {_side(more_share)} its idle-held share of {percent(usual)}"
    told = [hours, *([] if is_missing(more_share) else [share])]
    people = f"the {median.people:,} people who were seen, without containers, jobs and units"
    return [f"Against the median of {people}: {', and '.join(told)}."]


def _side(difference: float | None) -> str:
    return "below" if difference is not None and difference < 0 else "above"


def hours_of(row: Row) -> list[float]:
    """The hours of a person, a group or a day in the order of STATES."""
    return [row[ACTIVE_HOURS], row[HELD_HOURS], 0.0, row[UNKNOWN_HOURS]]


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
