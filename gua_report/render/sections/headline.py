"""§1: GPU time by state, its change, and who holds which card right now."""

from __future__ import annotations

import math

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import MOST_UNKNOWN, STALE_MS, Options
from gua_report.render.blocks import STATE, Bar, Block, Column, Section, SectionKind, Table, and_more, figure, in_order
from gua_report.render.sections.cards import currency_of, no_card, say_unknown
from gua_report.render.sections.held import table_of_episodes, table_of_meant, unknown_now
from gua_report.render.values import Value, amount, by_state, clean, is_missing, moment, number, percent, points, value
from gua_report.summary.report import LEAST_SECONDS, Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN, Policy

IN_WINDOW = "Held without work in this window"
OF_HOSTS = "As each host's newest day ended; gua status there tells what is held now. GiB: the most each has held."
COLUMNS = ["state", "share", "gpu_hours", "change_share"]


def frame(report: Report) -> pd.DataFrame:
    change = report.change
    return report.headline.assign(change_share=change).rename_axis("state").reset_index()


def document(report: Report) -> object:
    states = by_state(frame(report), COLUMNS[1:])
    ongoing = report.episodes["ongoing"]
    change: dict[Value, Value] = {state: row.pop("change_share") for state, row in states.items()}
    return {
        "is_enough": report.has_headline,
        "states": states,
        "change": None if report.before is None else change,
        "before_observed_share": value("share", report.before_observed_share),
        "ongoing": report.fleet.ongoing if report.fleet else int(ongoing.sum()) if report.knows_now else None,
        "meant": {name: value(name, found) for name, found in _meant(report).items()},
        "unknown_gpus": [clean(uuid) for uuid in report.unknown_now] if report.knows_now else None,
    }


def show(report: Report, options: Options) -> list[Section]:
    return [_held_now(report, options.top), _by_state(report)]


def _by_state(report: Report) -> Section:
    shares, total = report.headline["share"], report.headline["gpu_hours"].sum()
    if not total:
        return Section("headline", "§1 Headline", "How the GPU time was spent.", [no_card(report)])
    if not report.has_headline:
        seen = duration(report.observed_seconds)
        return Section("headline", f"§1 Headline: none, as only {seen} was observed", "", [_when(report)])
    meanings = _meanings(report.policy)
    columns = [STATE, figure("share", "share", percent), figure("GPU-hours", "gpu_hours")]
    length = duration(report.requested.length_ms / 1000)
    change = "no data before"
    if report.change is not None:
        columns.append(figure("change", "change_share", points))
        by = points(report.change[IDLE_HELD])
        moved = "did not change" if by == "0.0" else f"{'rose' if by[0] == '+' else 'fell'} by {by[1:]}"
        change = f"idle-held {moved} against the {length} before (change: in percentage points)"
    elif report.before_observed_share:
        change = f"not compared with the {length} before, {percent(report.before_observed_share)} of it observed"
    unknown = f", {percent(shares[UNKNOWN])} is unknown" if shares[UNKNOWN] > MOST_UNKNOWN else ""
    columns.append(Column("meaning", lambda row: meanings[row["state"]], least=16, may_go=True))
    rows = in_order(frame(report).to_dict("records"))
    return Section(
        "headline",
        f"§1 Headline: {percent(shares[IDLE_HELD])} of the GPU time was idle-held{_cost(report)}{unknown}",
        f"{amount(total)} GPU-hours were observed; {change}.",
        [Bar(tuple(float(shares[state]) for state in STATES)), Table(columns, rows), *_say_meant(report)],
    )


def _when(report: Report) -> str:
    least = duration(LEAST_SECONDS)
    if report.requested.length_ms <= LEAST_SECONDS * 1000:
        return f"This window is too short for one: ask for more than {least}."
    if report.fleet or report.newest_ms > report.window.end_ms + STALE_MS:
        return f"Ask for a window in which more than {least} was observed."
    minutes = math.ceil((LEAST_SECONDS - report.observed_seconds) / 60)
    return f"There will be one after {duration(minutes * 60)} more of sampling."


def _meant(report: Report) -> dict[str, float]:
    """The part of idle-held time in which all that was held was meant; its share is of all observed time."""
    total = float(report.headline["gpu_hours"].sum())
    return {"gpu_hours": report.meant_gpu_hours, "share": report.meant_gpu_hours / total if total else float("nan")}


def _say_meant(report: Report) -> list[str]:
    hours, share = _meant(report).values()
    if not hours:
        return []
    return [f"Of which meant: {amount(hours)} GPU-hours, {percent(share)} of all (by notes, or exempt)."]


def _cost(report: Report) -> str:
    cost = report.capacity["cost"][IDLE_HELD]
    return "" if is_missing(cost) else f" ({amount(cost)} {currency_of(report)})"


def _meanings(policy: Policy) -> dict[str, str]:
    return {
        ACTIVE: f"at work: utilization {number(policy.utilization_percent)}% or more",
        IDLE_HELD: f"no work, but over {number(policy.process_memory_mib)} MiB held",
        TRULY_IDLE: "no work, and no memory held",
        UNKNOWN: "the driver did not tell",
    }


def _held_now(report: Report, top: int) -> Section:
    newest, end = report.newest_ms, report.window.end_ms
    if report.fleet:  # which knows nothing later than the ends of the hosts' last days
        title, if_none = "Held without work at the last tick of each host", "Nobody held a card idle."
        if newest > end + STALE_MS:  # what began after the window is not in the report
            title, if_none = f"{IN_WINDOW}, and at the last tick", "Nothing that this report knows of."
        return Section("headline", title, OF_HOSTS, _tables(report, top) or [if_none])
    title, if_none = "Held right now, without work", "Nobody holds a card idle."
    if_unknown = "It is not known who holds what right now"
    if newest < end - STALE_MS:
        title, if_none = "Held without work at the last tick", "Nobody held a card idle."
        if_unknown = "It is not known who held what then"
    elif newest > end + STALE_MS:
        # Episodes that began after the window are not in the report.
        title, if_none = f"{IN_WINDOW}, and still", "Nothing that this report knows of."
        if_unknown = "It is not known who still holds what"
    if why := unknown_now(report):
        at = f"Idle-held at the newest tick, {moment(newest, report.window.zone)}."
        return Section("headline", title, at, [f"{if_unknown}: {why}."])
    caption = f"{_at(report)}. GiB: the most each has held."
    unknown = say_unknown(report)
    blocks = _tables(report, top) or ["Nobody is known to hold a card idle." if unknown else if_none]
    return Section("headline", title, caption, [*blocks, *unknown])


def _tables(report: Report, top: int) -> list[Block]:
    """What goes on: what to act on comes first, then what is meant as far as there is room.

    What is worth most to get back comes first: memory times time; if the memory is not known, time alone decides.
    """
    ongoing = report.episodes[report.episodes["ongoing"].eq(True)]
    ongoing = ongoing.assign(worth=ongoing["peak_memory_mib"] * ongoing["seconds"])
    ongoing = ongoing.sort_values(["worth", "seconds"], ascending=False, kind="stable")
    is_meant = ongoing["meant_now"].eq(True)
    blocks = table_of_episodes(report, ongoing[~is_meant], top)
    meant = ongoing[is_meant]
    room = max(top - int((~is_meant).sum()), 0)
    blocks += table_of_meant(report, meant.head(room))
    return blocks + and_more(len(meant) - room, "more that are meant")


def _at(report: Report) -> str:
    zone, failed = report.window.zone, report.newest_failed
    if failed is None or failed.seen_ms is None:
        return f"Idle-held at the newest tick, {moment(report.newest_ms, zone)}"
    age = duration((report.newest_ms - failed.seen_ms) / 1000)
    at = f"Idle-held at the last tick that saw cards, {moment(failed.seen_ms, zone)}"
    return f"{at}, {age} before the newest, which failed ({clean(failed.error)})"


KINDS = (SectionKind("headline", COLUMNS, frame, show, document),)
