"""§1: GPU time by state, its change, and who holds which card right now."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import Options
from gua_report.render.blocks import STATE, Bar, Column, Section, Table, figure
from gua_report.render.sections.capacity import currency_of
from gua_report.render.sections.episodes import table_of_episodes
from gua_report.render.values import Value, by_state
from gua_report.render.words import amount, is_missing, moment, number, percent, points
from gua_report.summary.build import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN, Policy

# If the newest tick is older than this at the end of the window, the sampler seems to have stopped.
STALE_MS = 300_000
COLUMNS = ["state", "share", "gpu_hours", "change_share"]


def frame(report: Report) -> pd.DataFrame:
    before = report.before
    change = None if before is None else report.headline["share"] - before["share"]
    return report.headline.assign(change_share=change).rename_axis("state").reset_index()


def document(report: Report) -> dict[str, object]:
    states = by_state(frame(report), COLUMNS[1:])
    change: dict[Value, Value] = {state: row.pop("change_share") for state, row in states.items()}
    return {"states": states, "change": None if report.before is None else change}


def show(report: Report, options: Options) -> list[Section]:
    return [_held_now(report, options.top), _by_state(report)]


def _by_state(report: Report) -> Section:
    shares, total = report.headline["share"], report.headline["gpu_hours"].sum()
    if not total:
        return Section("headline", "§1 Headline", "GPU time by state.", ["No card was seen in this window."])
    meanings = _meanings(report.policy)
    columns = [STATE, figure("share", "share", percent), figure("GPU-hours", "gpu_hours")]
    change = "no data before"
    if report.before is not None:
        columns.append(figure("change", "change_share", points))
        change = f"change: points against the {duration(report.requested.length_ms / 1000)} before"
    columns.append(Column("meaning", lambda row: meanings[row["state"]], least=16, may_go=True))
    return Section(
        "headline",
        f"§1 Headline: {percent(shares[IDLE_HELD])} of the GPU time was idle-held{_cost(report)}",
        f"{amount(total)} observed GPU-hours by state; {change}.",
        [Bar(tuple(float(shares[state]) for state in STATES)), Table(columns, frame(report).to_dict("records"))],
    )


def _cost(report: Report) -> str:
    cost = report.capacity["cost"][IDLE_HELD]
    return "" if is_missing(cost) else f", {amount(cost)} {currency_of(report)}"


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
    newest, end = report.newest_ms, report.window.end_ms
    title, if_none = "Held right now, without work", "Nobody holds a card idle."
    if newest < end - STALE_MS:
        title, if_none = "Held without work at the last tick", "Nobody held a card idle."
    elif newest > end + STALE_MS:
        # Episodes that began after the window are not in the report.
        title, if_none = "Held without work in this window, and still", "Nothing that this report knows of."
    at = moment(newest, report.window.zone)
    caption = f"Idle-held at the newest tick, {at}; GiB: the most the process held."
    ongoing = report.episodes[report.episodes["ongoing"].astype(bool)]
    # What is worth most to get back comes first: memory times time; if the memory is not known, time alone decides.
    worth = ongoing.assign(worth=ongoing["peak_memory_mib"] * ongoing["seconds"])
    ongoing = worth.sort_values(["worth", "seconds"], ascending=False, kind="stable")
    return Section("headline", title, caption, table_of_episodes(report, ongoing, top) or [if_none])
