"""Who used the cards and who held them without work: people, their groups and days, and what they had reserved."""

from itertools import pairwise

import pandas as pd

from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.people.groups import NO_GROUP
from gua_report.people.identities import UNATTRIBUTED
from gua_report.render import Options
from gua_report.render.blocks import (
    Bar,
    Block,
    Column,
    Row,
    Section,
    Table,
    and_more,
    bar_of,
    figure,
    if_asked,
    label,
    people_of,
)
from gua_report.render.limits import add_limits, caption_of, limit_column, tell_limits
from gua_report.render.sections.cards import currency_of
from gua_report.render.values import (
    MISSING,
    amount,
    clean,
    gpu,
    is_missing,
    number,
    percent,
    points,
    records,
    spell_span,
)
from gua_report.summary.intervals import UNIT_NAMES, observed_ms
from gua_report.summary.over_time import find_days
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS, SUMS
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS = HOURS = ["active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"]
PERSON_COLUMNS = [*IDENTITY_COLUMNS, *CONTAINER_COLUMNS]
DAY_COLUMNS = ["identity", "start", "end", *HOURS]
COST, MEANT_HOURS = "idle_held_cost", "meant_gpu_hours"
RESERVED = {
    "reserved": "reserved_hours",
    "used": "used_hours",
    "idle": "idle_hours",
    "held": "idle_held_hours",
    "not used": "not_used_hours",
    "unknown": "unknown_hours",
    "without": "unreserved_hours",
}


def _hours_columns(found: pd.DataFrame, longest: float) -> list[Column]:
    unknown = [figure(UNKNOWN, UNKNOWN_HOURS)] if (found[UNKNOWN_HOURS] > 0).any() else []

    def bar(row: Row) -> Bar:
        in_order = [row[ACTIVE_HOURS], row[HELD_HOURS], 0.0, row[UNKNOWN_HOURS]]  # as STATES
        return bar_of(in_order, 0.0 if "several" in row else longest)

    return [Column("", bar, may_go=True), figure(IDLE_HELD, HELD_HOURS), figure(ACTIVE, ACTIVE_HOURS), *unknown]


def frame_of_identities(report: Report) -> pd.DataFrame:
    return add_limits(report.identities, report.limits)


def show_identities(report: Report, options: Options) -> list[Section]:
    found, policy = frame_of_identities(report), report.policy
    # One scale for all, that of the longest bar; what stands for several people has none.
    longest = float(found.head(options.top)[HOURS].sum(axis=1).max()) if len(found) else 0.0
    bar, idle_held, *others = _hours_columns(found, longest)
    columns = [people_of(report), *([] if options.pictures else [bar]), idle_held]
    meant = ""
    if (found[MEANT_HOURS] > 0).any():
        columns.append(figure("meant", MEANT_HOURS))
        meant = "; meant: of idle-held, on purpose by a note, or exempt"
    columns += [*others, Column("idle-held share", _held_share, right=True)]
    cost = ""
    if found[COST].notna().any():
        columns.append(figure(currency_of(report) or "", COST))
        cost = f"; {currency_of(report)}: of idle-held hours, without energy"
    columns += limit_column(report, found)
    rows = _top_and_rest(found, options.top, [*HOURS, MEANT_HOURS, COST])
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nobody was seen using a card."]
    if options.pictures and rows:
        from gua_report.render.pictures.bar_charts import people_picture

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


def _compare(report: Report) -> list[Block]:
    median = report.selection.median if report.selection else None
    if median is None:
        return []
    own = report.identities[[ACTIVE_HOURS, HELD_HOURS]].sum()
    used, usual = own[ACTIVE_HOURS] + own[HELD_HOURS], median.idle_held_share
    more = own[HELD_HOURS] - median.idle_held_gpu_hours
    told = [f"{amount(abs(more))} idle-held GPU-hours {_side(more)} its {amount(median.idle_held_gpu_hours)}"]
    if used and not is_missing(usual):
        more = own[HELD_HOURS] / used - usual
        told.append(f"{points(more).lstrip('+-')} points {_side(more)} its idle-held share of {percent(usual)}")
    people = f"the {median.people:,} people who were seen, without containers, jobs and units"
    return [f"Against the median of {people}: {', and '.join(told)}."]


def _side(difference: float) -> str:
    return "below" if difference < 0 else "above"


def _held_share(row: Row) -> str:
    used = row[ACTIVE_HOURS] + row[HELD_HOURS]
    return percent(row[HELD_HOURS] / used if used else None)


def _top_and_rest(found: pd.DataFrame, top: int, sums: list[str]) -> list[Row]:
    rows = found.head(top).to_dict("records")
    rest = found.iloc[top:]
    if len(rest):
        rows.append({"several": True, "identity": f"and {len(rest):,} more", **rest[sums].sum(skipna=False).to_dict()})
    return rows


def frame_of_groups(report: Report) -> pd.DataFrame | None:
    return None if report.groups is None else add_limits(report.groups, report.group_limits)


def show_groups(report: Report, options: Options) -> list[Section]:
    found, members, title = frame_of_groups(report), report.memberships, "Groups, by idle-held GPU-hours"
    if found is None or members is None:
        return if_asked(options, "groups", title, "None are configured: see [groups] in gua.toml.")
    is_rest = found["group"] == NO_GROUP
    groups = found[~is_rest]
    rows = [*groups.head(options.top).to_dict("records"), *found[is_rest].to_dict("records")]
    blocks: list[Block] = (
        [Table(_columns_of_groups(report, found), rows)] if rows else ["Nobody was seen using a card."]
    )
    blocks += and_more(len(groups) - options.top, "more groups")
    if several := sum(len(own) > 1 for own in members.of.values()):
        people = "1 person is" if several == 1 else f"{several:,} people are"
        blocks.append(f"{people} in more than one group: who is in two counts in both.")
    blocks += [f"Warning: {clean(problem)}" for problem in members.problems]
    return [Section("groups", title, _caption_of_groups(report, found), blocks)]


def _columns_of_groups(report: Report, found: pd.DataFrame) -> list[Column]:
    priced = currency_of(report)
    return [
        label("group", "group"),
        figure("people", "people", lambda value: MISSING if is_missing(value) else f"{int(value):,}"),
        *_hours_columns(found, float(found["gpu_hours"].max())),
        figure("share", "idle_held_share", percent),
        figure("kWh", "energy_kwh"),
        *([figure(priced, COST)] if priced else []),
        *limit_column(report, found),
    ]


def _caption_of_groups(report: Report, found: pd.DataFrame) -> str:
    held = number(report.policy.process_memory_mib)
    parts = [
        f"GPU-hours of those in it, on any card, a shared one in full; idle-held: over {held} MiB and no work done",
        "share: of active and idle-held",
        "kWh: as far as known, by the card's mean power in the same state",
    ]
    if currency := currency_of(report):
        energy = " and their energy" if report.config.price_per_kwh is not None else ""
        parts.append(f"{currency}: of idle-held hours{energy}")
    return "; ".join(parts) + caption_of(report, found) + "."


def show_identity_days(report: Report, options: Options) -> list[Section]:
    if options.is_whole and not options.pictures:
        return []
    pictures: list[Block] = []
    if (report.identities[HELD_HOURS] > 0).any() and (options.pictures or not report.selection):
        from gua_report.render.pictures.bar_charts import days_picture

        pictures = [days_picture(report, options.top)]
    zone = clean(report.timezone)
    if report.selection:
        caption = f"GPU-hours by the clock of {zone}; a day that was not observed is unknown."
        return [Section("identity_days", "Day by day", caption, [*pictures, _table_of_days(report)])]
    caption = f"When those with most idle-held GPU-hours had them. Days are those of {zone}."
    return [Section("identity_days", "Person by day", caption, pictures or ["Nobody held a card idle."])]


def _table_of_days(report: Report) -> Table:
    cell_ms, edges = find_days(report.window)
    added = report.identity_days.groupby("start_ms")[HOURS].sum().reindex(edges[:-1], fill_value=0.0)
    if not report.fleet:  # whose gaps are each host's own
        added[observed_ms(edges[:-1], edges[1:], report.gaps) <= 0] = float("nan")
    longest = float(added.sum(axis=1).max())
    rows: list[Row] = [
        {"span": spell_span(*span, report.window), **hours}
        for span, hours in zip(pairwise(edges.tolist()), added.to_dict("records"), strict=True)
    ]
    return Table([Column(UNIT_NAMES[cell_ms], lambda row: row["span"]), *_hours_columns(added, longest)], rows)


def document_reservations(report: Report) -> object:
    if report.reservations is None:
        return None
    problems = [clean(problem) for problem in report.reservation_problems]
    return {"hours": records(report.reservations, RESERVATION_COLUMNS), "problems": problems}


def show_reservations(report: Report, options: Options) -> list[Section]:
    found, title = report.reservations, "§8 Reservations"
    if found is None:
        return if_asked(options, "reservations", title, "None are configured: see [reservations] in gua.toml.")
    held = number(report.policy.process_memory_mib)
    caption = (
        "Hours of a card, from ticks. Reserved: by Slurm's jobs too. Idle: no work done by those who reserved it; held:"
        f" of that, with over {held} MiB of theirs on it; not used: the rest of it. Without: at work or holding, not"
        " reserved by them."
    )
    columns = [people_of(report), Column("gpu", _gpu), *(figure(name, hours) for name, hours in RESERVED.items())]
    rows = _top_and_rest(found, options.top, SUMS)
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nothing was reserved, and nothing used."]
    blocks += [f"Warning: {clean(problem)}" for problem in report.reservation_problems]
    used, idle, not_used = (float(found[name].sum()) for name in ("used_hours", "idle_hours", "not_used_hours"))
    shares = ""
    if known := used + idle:
        shares = f": {percent(used / known)} of the reserved time was used, {percent(not_used / known)} not at all"
    return [Section("reservations", f"{title}{shares}", caption, blocks)]


def _gpu(row: Row) -> str:
    return gpu(row["gpu_index"], row["mig_index"]) if "gpu_index" in row else ""  # the last row sums up several cards
