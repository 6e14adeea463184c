"""§1: GPU time by state, its change, and who holds which card right now."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import Options
from gua_report.render.attention import MOST_UNKNOWN, STALE_MS
from gua_report.render.blocks import STATE, Bar, Block, Column, Section, Table, figure, in_order
from gua_report.render.sections.capacity import currency_of
from gua_report.render.sections.episodes import table_of_episodes, table_of_meant, unknown_now
from gua_report.render.sections.gpus import names_of, no_card
from gua_report.render.values import Value, by_state, value
from gua_report.render.words import amount, clean, is_missing, moment, number, percent, points
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN, Policy

COLUMNS = ["state", "share", "gpu_hours", "change_share"]


def frame(report: Report) -> pd.DataFrame:
    change = report.change
    return report.headline.assign(change_share=change).rename_axis("state").reset_index()


def document(report: Report) -> dict[str, object]:
    states = by_state(frame(report), COLUMNS[1:])
    change: dict[Value, Value] = {state: row.pop("change_share") for state, row in states.items()}
    return {
        "states": states,
        "change": None if report.before is None else change,
        "before_observed_share": value("share", report.before_observed_share),
        "ongoing": _count_ongoing(report),
        "meant": {name: value(name, found) for name, found in _meant(report).items()},
        "unknown_gpus": [clean(uuid) for uuid in report.unknown_now] if report.knows_now else None,
    }


def _count_ongoing(report: Report) -> int | None:
    if report.fleet:
        return report.fleet.ongoing
    return int(report.episodes["ongoing"].sum()) if report.knows_now else None


def show(report: Report, options: Options) -> list[Section]:
    return [_held_now(report, options.top), _by_state(report)]


def _by_state(report: Report) -> Section:
    shares, total = report.headline["share"], report.headline["gpu_hours"].sum()
    if not total:
        return Section("headline", "§1 Headline", "How the GPU time was spent.", [no_card(report)])
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


def _meant(report: Report) -> dict[str, float]:
    """The part of idle-held time in which all that was held was meant; its share is of all observed time."""
    total = float(report.headline["gpu_hours"].sum())
    return {
        "gpu_hours": report.meant_gpu_hours,
        "share": report.meant_gpu_hours / total if total else float("nan"),
    }


def _say_meant(report: Report) -> list[str]:
    """A sentence on what is meant, if anything is."""
    hours, share = _meant(report).values()
    if not hours:
        return []
    return [f"Of which meant: {amount(hours)} GPU-hours, {percent(share)} of all (by notes, or exempt)."]


def _cost(report: Report) -> str:
    cost = report.capacity["cost"][IDLE_HELD]
    return "" if is_missing(cost) else f" ({amount(cost)} {currency_of(report)})"


def _meanings(policy: Policy) -> dict[str, str]:
    """The meaning of each state, with the thresholds in force."""
    return {
        ACTIVE: f"at work: utilization {number(policy.utilization_percent)}% or more",
        IDLE_HELD: f"no work, but over {number(policy.process_memory_mib)} MiB held",
        TRULY_IDLE: "no work, and no memory held",
        UNKNOWN: "the driver did not tell",
    }


def _held_now(report: Report, top: int) -> Section:
    """The part of the headline that tells who holds which card right now, and since when."""
    if report.fleet:
        return _held_at_end(report, top)
    newest, end = report.newest_ms, report.window.end_ms
    title, if_none = "Held right now, without work", "Nobody holds a card idle."
    if_unknown = "It is not known who holds what right now"
    if newest < end - STALE_MS:
        title, if_none = "Held without work at the last tick", "Nobody held a card idle."
        if_unknown = "It is not known who held what then"
    elif newest > end + STALE_MS:
        # Episodes that began after the window are not in the report.
        title, if_none = "Held without work in this window, and still", "Nothing that this report knows of."
        if_unknown = "It is not known who still holds what"
    if why := unknown_now(report):
        at = f"Idle-held at the newest tick, {moment(newest, report.window.zone)}."
        return Section("headline", title, at, [f"{if_unknown}: {why}."])
    caption = f"{_at(report)}. GiB: the most each has held."
    ongoing = _find_ongoing(report)
    unknown = names_of(report, report.unknown_now)
    blocks = _tables(report, ongoing, top) or ["Nobody is known to hold a card idle." if unknown else if_none]
    if unknown:
        blocks.append(f"Not known of GPU {unknown}: the driver did not tell what it is doing, or who is on it.")
    return Section("headline", title, caption, blocks)


def _held_at_end(report: Report, top: int) -> Section:
    """What was held when each host's last day was over: a fleet's report knows nothing later."""
    title, if_none = "Held without work at the last tick of each host", "Nobody held a card idle."
    if report.newest_ms > report.window.end_ms + STALE_MS:  # what began after the window is not in the report
        title, if_none = "Held without work in this window, and at the last tick", "Nothing that this report knows of."
    caption = "As each host's newest day ended; gua status there tells what is held now. GiB: the most each has held."
    return Section("headline", title, caption, _tables(report, _find_ongoing(report), top) or [if_none])


def _find_ongoing(report: Report) -> pd.DataFrame:
    """The episodes that go on. What is worth most to get back comes first: memory times time.

    If the memory is not known, time alone decides.
    """
    ongoing = report.episodes[report.episodes["ongoing"].eq(True)]
    worth = ongoing.assign(worth=ongoing["peak_memory_mib"] * ongoing["seconds"])
    return worth.sort_values(["worth", "seconds"], ascending=False, kind="stable")


def _tables(report: Report, ongoing: pd.DataFrame, top: int) -> list[Block]:
    """What to act on comes first, then what is meant as far as there is room."""
    is_meant = ongoing["meant_now"].eq(True)
    blocks = table_of_episodes(report, ongoing[~is_meant], top)
    meant = ongoing[is_meant]
    room = max(top - int((~is_meant).sum()), 0)
    blocks += table_of_meant(report, meant.head(room))
    return blocks + ([f"and {len(meant) - room:,} more that are meant"] if len(meant) > room else [])


def _at(report: Report) -> str:
    """The tick that tells what is held: the newest, or the last that saw cards if the newest failed."""
    zone, failed = report.window.zone, report.newest_failed
    if failed is None or failed.seen_ms is None:
        return f"Idle-held at the newest tick, {moment(report.newest_ms, zone)}"
    age = duration((report.newest_ms - failed.seen_ms) / 1000)
    at = f"Idle-held at the last tick that saw cards, {moment(failed.seen_ms, zone)}"
    return f"{at}, {age} before the newest, which failed ({clean(failed.error)})"
