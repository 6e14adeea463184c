"""§2: idle capacity by state, its energy and cost, and what reclaim rules would have freed."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import Options
from gua_report.render.blocks import STATE, Block, Column, Section, Table, figure, in_order
from gua_report.render.pictures.reclaim import reclaim_picture
from gua_report.render.values import by_state, records, value
from gua_report.render.words import amount, card, clean, is_missing, number, percent
from gua_report.summary.report import Report
from gua_sample.policy import IDLE_HELD, UNPARTITIONED

COLUMNS = ["state", "gpu_hours", "equivalent_gpus", "energy_kwh", "cost", "currency"]
RECLAIM_COLUMNS = ["after_seconds", "freed_gpu_hours"]


def frame(report: Report) -> pd.DataFrame:
    """The states, and what is unpartitioned in a row of its own, if there is any."""
    states, rest = _states(report), _unpartitioned(report)
    if not rest["gpu_hours"]:
        return states
    return pd.concat([states, pd.DataFrame([{"state": UNPARTITIONED, **rest}])], ignore_index=True)


def _states(report: Report) -> pd.DataFrame:
    return report.capacity.assign(currency=currency_of(report)).rename_axis("state").reset_index()


def _unpartitioned(report: Report) -> dict[str, float]:
    return {name: float(report.unpartitioned[name].sum()) for name in ("gpu_hours", "equivalent_gpus")}


def document(report: Report) -> dict[str, object]:
    return {
        "states": by_state(_states(report), COLUMNS[1:-1]),
        "unpartitioned": {name: value(name, found) for name, found in _unpartitioned(report).items()},
        "energy_known_share": value("share", report.energy_known_share),
        "currency": currency_of(report),
        "reclaim": records(report.reclaim, RECLAIM_COLUMNS),
        "reclaim_curve": records(report.reclaim_curve, RECLAIM_COLUMNS),
    }


def show(report: Report, options: Options) -> list[Section]:
    columns = [STATE, figure("GPU-hours", "gpu_hours"), figure("GPUs", "equivalent_gpus"), figure("kWh", "energy_kwh")]
    if priced := currency_of(report):
        columns.append(figure(priced, "cost"))
    blocks: list[Block] = [
        Table(columns, in_order(_states(report).to_dict("records"))),
        *_show_unpartitioned(report, options.top),
    ]
    if len(report.reclaim):
        held = report.capacity["gpu_hours"][IDLE_HELD]
        rule = [
            Column("reclaim after", lambda row: f"{duration(row['after_seconds'])} idle"),
            figure("would have freed", "freed_gpu_hours", lambda hours: f"{amount(hours)} GPU-hours"),
            figure("of idle-held", "freed_gpu_hours", lambda hours: percent(hours / held if held else None)),
        ]
        blocks.append(Table(rule, report.reclaim.to_dict("records")))
    if options.pictures and len(report.reclaim_curve):
        blocks.append(reclaim_picture(report))
    return [Section("capacity", "§2 Idle capacity", _caption(report), blocks)]


def _show_unpartitioned(report: Report, top: int) -> list[Block]:
    """A table of what can't be used of cards with MIG on, if there is any: all of it, then the cards with the most."""
    cards = report.unpartitioned[report.unpartitioned["gpu_hours"] > 0].sort_values("gpu_hours", ascending=False)
    if not len(cards):
        return []
    columns = [
        Column(UNPARTITIONED, lambda row: card(row) if "index" in row else "all"),
        figure("GPU-hours", "gpu_hours"),
        figure("GPUs", "equivalent_gpus"),
    ]
    return [Table(columns, [*([_unpartitioned(report)] * (len(cards) > 1)), *cards.head(top).to_dict("records")])]


def currency_of(report: Report) -> str | None:
    """The currency; None without a price, as there is no cost then."""
    config = report.config
    priced = config.price_per_gpu_hour is not None or config.price_per_kwh is not None
    return clean(config.currency) if priced else None


def _caption(report: Report) -> str:
    config = report.config
    prices = [
        f"{number(price)} {currency_of(report)} a {unit}"
        for price, unit in ((config.price_per_gpu_hour, "GPU-hour"), (config.price_per_kwh, "kWh"))
        if price is not None
    ]
    known = report.energy_known_share
    measured = "not measured" if is_missing(known) or not known else f"measured for {percent(known)} of the time"
    parts = ["GPUs: how many cards that is on average", f"kWh: {measured}", *prices]
    if (report.identities["meant_gpu_hours"] > 0).any() and len(report.reclaim):
        parts.append("reclaim: spares what is meant")
    if _unpartitioned(report)["gpu_hours"]:
        parts.append("unpartitioned: of cards with MIG on, what no instance covers, so that nothing can use it")
    return "; ".join(parts) + "."
