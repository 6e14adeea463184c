"""What is held without work, GPU time by state with its change, and who is on which card right now."""

import math
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.render import MOST_UNKNOWN, STALE_MS, Options
from gua_report.render.blocks import (
    STATE,
    Bar,
    Block,
    Column,
    Row,
    Section,
    Table,
    and_more,
    figure,
    first_rows,
    in_order,
    label,
    people_of,
    place_of,
)
from gua_report.render.sections.cards import currency_of, no_card, say_unknown
from gua_report.render.values import (
    Value,
    amount,
    by_state,
    clean,
    gib,
    gpu,
    is_missing,
    iso,
    moment,
    number,
    percent,
    points,
    records,
    value,
)
from gua_report.summary.now import NOW_COLUMNS
from gua_report.summary.report import LEAST_SECONDS, Report
from gua_sample.held_file import ADVICE, spell_held, spell_since
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN, Policy

IN_WINDOW = "Held without work in this window"
OF_HOSTS = "As each host's newest day ended; gua status there tells what is held now. GiB: the most each has held."
HEADLINE_COLUMNS = ["state", "share", "gpu_hours", "change_share"]
EPISODE_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "start_is_exact", "end"]
EPISODE_COLUMNS += ["seconds", "peak_memory_mib", "ongoing", *CONTAINER_COLUMNS]
EPISODE_COLUMNS += ["meant_seconds", "meant_reason", "meant_until", "meant_now", "slurm_job"]
NOW = ["since" if name == "since_ms" else name for name in NOW_COLUMNS]
GOES_ON = Column("", lambda row: "?" if is_missing(row["ongoing"]) else ">" if row["ongoing"] else "")
FOR = Column("for", lambda row: length_of(row), right=True)
PID = Column("pid", lambda row: str(value("pid", row["pid"]) or ""), right=True, may_go=True)
JOB = Column("job", lambda row: "" if is_missing(row["slurm_job"]) else clean(row["slurm_job"]), least=14)


def frame_of_headline(report: Report) -> pd.DataFrame:
    change = report.change
    return report.headline.assign(change_share=change).rename_axis("state").reset_index()


def document_headline(report: Report) -> object:
    states = by_state(frame_of_headline(report), HEADLINE_COLUMNS[1:])
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


def show_headline(report: Report, options: Options) -> list[Section]:
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
    rows = in_order(frame_of_headline(report).to_dict("records"))
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


def show_episodes(report: Report, options: Options) -> list[Section]:
    held = number(report.policy.process_memory_mib)
    mark = "> ongoing" if report.knows_now else "? not known whether ongoing"
    caption = (
        f"Each is a process that held over {held} MiB without work, or memory that no process shows; it may have begun"
        f" before the window. {mark}. ≥: its beginning was not seen."
    )
    blocks = table_of_episodes(report, report.episodes, options.top, GOES_ON)
    blocks = blocks or ["Nobody was seen holding a card idle."]
    return [Section("episodes", "§6 Idle-held episodes", caption, blocks)]


def length_of(row: Mapping[Any, Any]) -> str:
    """The duration of an episode, with `≥` if its beginning was not seen: it may be longer."""
    return f"{'' if row['start_is_exact'] else '≥ '}{duration(row['seconds'])}"


def unknown_now(report: Report) -> str | None:
    """Why it is not known who holds what right now; None if it is known."""
    failed = report.newest_failed
    if failed is None or failed.is_near:
        return None
    since = moment(failed.since_ms, report.window.zone)
    return f"driver error since {since} ({clean(failed.error)})"


def table_of_episodes(report: Report, found: pd.DataFrame, top: int, *first: Column) -> list[Block]:
    zone, shown = report.window.zone, found.head(top)
    columns = [*first, *place_of(report), people_of(report), *([JOB] if shown["slurm_job"].notna().any() else [])]
    columns.append(Column("since", lambda row: moment(row["start_ms"], zone)))
    columns += [FOR, figure("GiB", "peak_memory_mib", gib)]
    if (shown["meant_seconds"] > 0).any():
        columns.append(figure("meant", "meant_seconds", lambda seconds: duration(seconds) if seconds else ""))
    if found["pid"].notna().any():  # not if names were taken out
        columns += [PID, label("command", "command")]
    blocks: list[Block] = [Table(columns, shown.to_dict("records"))] if len(shown) else []
    more = len(found) - top
    if report.fleet and found is report.episodes:
        more = sum(report.fleet.episodes.values()) - top  # the report has but the first of them
    return blocks + and_more(more)


def table_of_meant(report: Report, found: pd.DataFrame) -> list[Block]:
    zone = report.window.zone
    meant = Column("meant", lambda row: spell_meant(row, zone), least=24)
    columns = [*place_of(report), people_of(report), FOR, meant]
    return [Table(columns, found.to_dict("records"))] if len(found) else []


def spell_meant(row: Row, zone: tzinfo) -> str:
    until = "" if is_missing(row["meant_until_ms"]) else f"until {moment(row['meant_until_ms'], zone)}"
    why = "" if is_missing(row["meant_reason"]) else clean(row["meant_reason"])  # not there if names were taken out
    return ": ".join(filter(None, (until, why))) or "yes"


def document_now(report: Report) -> object:
    if report.fleet:
        return None
    if report.now is None:
        return {"at": None, "processes": None}
    zone = report.window.zone
    return {"at": iso(report.told_ms, zone), "processes": records(report.now, NOW, zone)}


def show_now(report: Report, options: Options) -> list[Section]:
    if options.is_whole or report.fleet:
        return []
    is_fresh = abs(report.newest_ms - report.window.end_ms) <= STALE_MS
    title = "On cards right now" if is_fresh else "On cards at the newest tick"
    if report.now is None:
        why = unknown_now(report) or "the ticks have expired"
        return [Section("now", title, "", [f"It is not known who is on which card: {why}."])]
    caption = f"At {moment(report.told_ms, report.window.zone)}; since: when it began to hold the card without work."
    blocks = [*_tell(report, options.top), *_table(report, report.now, options.top), *say_unknown(report)]
    return [Section("now", title, caption, blocks or ["Nothing."])]


def _tell(report: Report, top: int) -> list[Block]:
    whose = report.selection
    if whose is None or whose.is_group or report.now is None:
        return []
    marked = report.episodes[report.episodes["meant_now"].eq(True)].to_dict("records")
    meant = {(row["gpu_uuid"], row["pid"]): f"Meant: {spell_meant(row, report.window.zone)}." for row in marked}
    blocks: list[Block] = []
    for row in report.now[report.now["state"] == IDLE_HELD].head(top).to_dict("records"):
        note = meant.get((row["gpu_uuid"], row["pid"]))
        sentence = _sentence(report, row, None if whose.is_reader else clean(whose.name), note is not None)
        blocks += [f"{sentence[0].upper()}{sentence[1:]}" if whose.is_reader else sentence, *([note] if note else [])]
    return blocks


def _sentence(report: Report, row: Row, who: str | None, is_meant: bool) -> str:
    since = row["since_ms"]
    sentence = spell_held(
        gpu(row["gpu_index"], row["mig_index"]),
        None if is_missing(row["memory_mib"]) else row["memory_mib"],
        None if is_missing(since) else spell_since(since, report.told_ms, report.window.zone, row["since_is_exact"]),
        row["pid"],
        row["command"],
        who,
    )
    # Nobody is told to end what is meant, nor what is a colleague's.
    return sentence if is_meant or who is not None else f"{sentence} {ADVICE}"


def _table(report: Report, found: pd.DataFrame, top: int) -> list[Block]:
    zone, columns = report.window.zone, place_of(report)
    if report.selection is None or report.selection.is_group:
        columns.append(label("who", "identity"))
    columns += [STATE, Column("since", lambda row: _since(row, zone)), figure("GiB", "memory_mib", gib)]
    if found["pid"].notna().any():  # not if names were taken out
        columns += [PID, label("command", "command")]
    return first_rows(columns, found, top)


def _since(row: Row, zone: tzinfo) -> str:
    since = row["since_ms"]
    return "" if is_missing(since) else f"{'' if row['since_is_exact'] else '≤ '}{moment(since, zone)}"
