"""The tables of a report, each made from the sums of a window's rollups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import state_columns
from gua_report.rollups.hourly_sums import INSTANT_ONLY, Rollup, empty_rollup
from gua_report.rollups.reader import frame_of
from gua_report.summary.intervals import observed_ms
from gua_report.summary.meant import COLUMNS as MEANT
from gua_report.summary.of_hosts import HOURS
from gua_report.ticks.arrays import Floats, Integers
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS, Window
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

JOULES_PER_KWH = 3.6e6
HOURS_A_WEEK = 7 * 24
IDENTITY_COLUMNS = [
    "identity",
    "gpu_hours",
    "active_gpu_hours",
    "idle_held_gpu_hours",
    "unknown_gpu_hours",
    "idle_held_share",
    "idle_held_cost",
    "meant_gpu_hours",
]
EPISODE_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start_ms", "end_ms", "seconds"]
EPISODE_COLUMNS += ["start_is_exact", "peak_memory_mib", "ongoing", *MEANT, "slurm_job"]
EPISODE_TYPES: dict[str, Any] = {
    **dict.fromkeys(["gpu_uuid", "identity", "command", "slurm_job"], object),
    **dict.fromkeys(["pid", "start_ms", "end_ms"], "int64"),
    **dict.fromkeys(["seconds", "peak_memory_mib"], "float64"),
    "ongoing": bool,
}


def concat(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the frames that have rows: empty ones have no proper types, and would spoil those of the others."""
    filled = [frame for frame in frames if len(frame)]
    if len(filled) > 1:
        return pd.concat(filled, ignore_index=True)
    return next(iter(filled or frames), pd.DataFrame())


def add_rollups(parts: list[Rollup]) -> Rollup:
    return Rollup(*(concat(list(frames)) for frames in zip(*(parts or [empty_rollup()]), strict=True)))


def last_facts(card_facts: pd.DataFrame) -> pd.DataFrame:
    return card_facts.groupby("uuid", sort=False).last().reset_index()


def headline(cards: pd.DataFrame) -> pd.DataFrame:
    hours = sum_by_state(cards, "gpu_ms") / HOUR_MS
    total = hours.sum()
    return pd.DataFrame({"share": hours / total if total else np.nan, "gpu_hours": hours})


def capacity(cards: pd.DataFrame, window_observed_ms: int, config: Config) -> pd.DataFrame:
    hours, energy_ms = sum_by_state(cards, "gpu_ms") / HOUR_MS, sum_by_state(cards, "energy_ms")
    energy_kwh = known_kwh(sum_by_state(cards, "energy_joules"), energy_ms, hours)
    equivalent = hours / (window_observed_ms / HOUR_MS) if window_observed_ms else hours * np.nan
    costs = cost_of(hours, energy_kwh, config)
    return pd.DataFrame({"gpu_hours": hours, "equivalent_gpus": equivalent, "energy_kwh": energy_kwh, "cost": costs})


def known_kwh(joules: pd.Series[float], known_ms: pd.Series[float], hours: pd.Series[float]) -> pd.Series[float]:
    """The energy of these hours: unknown where no reading tells, and 0 where there are no hours."""
    return (joules / JOULES_PER_KWH).where((known_ms > 0) | (hours == 0))


def cost_of(hours: pd.Series[float], energy_kwh: pd.Series[float], config: Config) -> pd.Series[float]:
    """The cost by the prices of the config; unknown without one, or if the energy that it needs is unknown."""
    if config.price_per_gpu_hour is None and config.price_per_kwh is None:
        return hours * np.nan
    energy_cost = energy_kwh * config.price_per_kwh if config.price_per_kwh is not None else 0.0
    return hours * (config.price_per_gpu_hour or 0.0) + energy_cost


def sum_by_state(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    sums = np.bincount(state_codes(frame), weights=frame[column].to_numpy(dtype="float64"), minlength=len(STATES))
    return pd.Series(sums, index=pd.Index(STATES, name="state"))


def _by_state(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    number, names = pd.factorize(frame[key], use_na_sentinel=False)
    cell = np.ravel_multi_index((number, state_codes(frame)), (len(names), len(STATES)))
    sums = np.bincount(cell, weights=frame["gpu_ms"].to_numpy(dtype="float64"), minlength=len(names) * len(STATES))
    return pd.DataFrame(sums.reshape(-1, len(STATES)) / HOUR_MS, index=names, columns=list(STATES))


def state_codes(frame: pd.DataFrame) -> Integers:
    return frame["state"].to_numpy(dtype=np.int64)


def gpus(cards: pd.DataFrame, facts: pd.DataFrame, config: Config) -> pd.DataFrame:
    hours = _by_state(cards, "gpu_uuid")
    known = facts.set_index("uuid").reindex(hours.index)
    total = hours.sum(axis=1)
    idle = cards[state_codes(cards) == CODE_OF[IDLE_HELD]]
    energy = idle.groupby("gpu_uuid")[["energy_joules", "energy_ms"]].sum().reindex(hours.index, fill_value=0)
    energy_kwh = known_kwh(energy["energy_joules"], energy["energy_ms"], hours[IDLE_HELD])
    columns = {"uuid": hours.index, "index": known["gpu_index"], "mig_index": known["mig_index"].astype("float64")}
    columns |= {name: known[name].astype(object) for name in ("name", "parent_uuid")}
    columns["gpu_hours"] = total
    for state, hours_column, share_column in zip(STATES, HOURS, state_columns("share").values(), strict=True):
        columns |= {hours_column: hours[state], share_column: hours[state] / total}
    columns["idle_held_cost"] = cost_of(hours[IDLE_HELD], energy_kwh, config).astype("float64")
    frame = frame_of({name: column.to_numpy() for name, column in columns.items()})
    return frame.sort_values(["index", "mig_index", "uuid"], ignore_index=True, na_position="first")


def unpartitioned(sums: pd.DataFrame, facts: pd.DataFrame, observed_ms: int) -> pd.DataFrame:
    gpu_ms = sums["gpu_ms"].astype("float64").groupby(sums["gpu_uuid"], sort=True).sum()
    # An instance tells the index of its card; a card without any has facts of its own.
    physical = facts["parent_uuid"].where(facts["parent_uuid"].notna(), facts["uuid"])
    indexes = facts["gpu_index"].groupby(physical).last().reindex(gpu_ms.index)
    hours = gpu_ms.to_numpy(dtype="float64") / HOUR_MS
    frame = pd.DataFrame({"uuid": gpu_ms.index.to_numpy(dtype=object), "index": indexes.to_numpy(), "gpu_hours": hours})
    frame["equivalent_gpus"] = hours / (observed_ms / HOUR_MS) if observed_ms else np.nan
    return frame.sort_values(["index", "uuid"], ignore_index=True)


def instant_only(card_facts: pd.DataFrame) -> list[str]:
    """The uuids of cards that were seen at work, and of which no reading in the window was more than an instant's."""
    by_card = card_facts.groupby("uuid", sort=False)[INSTANT_ONLY]
    found = by_card.max()[by_card.count() == by_card.size()] == 1
    return [str(uuid) for uuid in found.index[found]]


def identities(presences: pd.DataFrame, meant_gpu_hours: Mapping[str, float], config: Config) -> pd.DataFrame:
    """The hours of each identity. Their cost is by the GPU-hour: whose energy it was is not known."""
    hours = _by_state(presences, "identity")
    used = hours[ACTIVE] + hours[IDLE_HELD]
    price = np.nan if config.price_per_gpu_hour is None else config.price_per_gpu_hour
    meant = np.array([meant_gpu_hours.get(who, 0.0) for who in hours.index], dtype="float64")
    by_state = (hours[state] for state in (ACTIVE, IDLE_HELD, UNKNOWN))
    columns: list[Any] = [hours.index.astype(object), used + hours[UNKNOWN], *by_state]
    columns += [hours[IDLE_HELD] / used.where(used > 0), hours[IDLE_HELD] * price, meant]
    return sort_identities(pd.DataFrame(dict(zip(IDENTITY_COLUMNS, columns, strict=True))))


def sort_identities(frame: pd.DataFrame) -> pd.DataFrame:
    order = ["idle_held_gpu_hours", "gpu_hours", "identity"]
    return frame.sort_values(order, ascending=[False, False, True], ignore_index=True)


def heatmap(cards: pd.DataFrame, window: Window, hour_length_ms: int, gaps: pd.DataFrame) -> pd.DataFrame:
    """Every hour of the week in the reader's zone: the active share and the GPUs free, NaN if no state is known."""
    sums = sum_week(cards, window)
    hours = np.unique(cards["hour_ms"].to_numpy(dtype=np.int64))
    seen_ms = observed_hours(hours, window, hour_length_ms, gaps)
    sums["observed_ms"] = np.bincount(slots_of(hours, window), seen_ms, HOURS_A_WEEK)
    known, active, idle, observed = (sums[name] for name in ("known_ms", "active_ms", "idle_ms", "observed_ms"))
    return week_of(active / known, idle / observed.where((observed > 0) & (known > 0)))


def week_of(active_share: pd.Series[float], free_gpus: pd.Series[float]) -> pd.DataFrame:
    weekday, hour = np.divmod(np.arange(HOURS_A_WEEK), 24)
    return pd.DataFrame({"weekday": weekday, "hour": hour, "active_share": active_share, "free_gpus": free_gpus})


def observed_hours(hours: Integers, window: Window, length_ms: int, gaps: pd.DataFrame | Integers) -> Floats:
    """The observed time of these hours of the window."""
    start, end = (np.clip(edge, window.start_ms, window.end_ms) for edge in (hours, hours + length_ms))
    return observed_ms(start, end, gaps)


def slots_of(hours_ms: Integers, window: Window) -> Integers:
    """The hour of the week, by the reader's clock, in which each of these hours begins."""
    position, hours = pd.factorize(hours_ms)
    local = [datetime.fromtimestamp(ms / 1000, window.zone) for ms in hours.tolist()]
    slots: Integers = np.array([24 * one.weekday() + one.hour for one in local], dtype=np.int64)[position]
    return slots


def sum_week(cards: pd.DataFrame, window: Window) -> pd.DataFrame:
    """The time of cards by hour of the week; of several hosts, if there is a column `host`, one after the other."""
    host = cards["host"].to_numpy(dtype=np.int64) if "host" in cards else np.zeros(len(cards), np.int64)
    slot = HOURS_A_WEEK * host + slots_of(cards["hour_ms"].to_numpy(dtype=np.int64), window)
    gpu_ms, state, rows = (
        cards["gpu_ms"].to_numpy(dtype="float64"),
        state_codes(cards),
        HOURS_A_WEEK * (host.max(initial=0) + 1),
    )
    counted = {
        "known_ms": state != CODE_OF[UNKNOWN],
        "active_ms": state == CODE_OF[ACTIVE],
        "idle_ms": state == CODE_OF[TRULY_IDLE],
    }
    return pd.DataFrame({name: np.bincount(slot, gpu_ms * counts, rows) for name, counts in counted.items()})


def episodes(found: pd.DataFrame, window: Window, facts: pd.DataFrame) -> pd.DataFrame:
    """The episodes that reach into the window: ongoing ones first, then the longest."""
    found = found[(found["end_ms"] > window.start_ms) & (found["start_ms"] < window.end_ms)]
    known = facts.set_index("uuid").reindex(found["gpu_uuid"])
    end_ms = found["end_ms"].clip(upper=window.end_ms)  # the last tick may stand for a time after the window
    frame = found.assign(
        gpu_index=known["gpu_index"].to_numpy(),
        mig_index=known["mig_index"].to_numpy(dtype="float64"),
        end_ms=end_ms,
        seconds=(end_ms - found["start_ms"]) / 1000,
        start_is_exact=~found["joins_before"].astype(bool),
        # An episode that includes the last tick that saw cards is taken to be ongoing.
        ongoing=found["end_ms"] > found["seen_ms"],
    ).astype(EPISODE_TYPES)
    order = ["ongoing", "seconds", "gpu_uuid", "pid"]
    frame = frame.sort_values(order, ascending=[False, False, True, True], ignore_index=True)
    if (is_known := frame["seen_ms"].notna()).all():
        return frame[EPISODE_COLUMNS]
    unknown = {name: frame[name].astype(object).where(is_known, None) for name in ("ongoing", "meant_now")}
    return frame.assign(**unknown)[EPISODE_COLUMNS]
