"""§3: the time of each card by state."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import first_of
from gua_report.render import Options
from gua_report.render.attention import MOST_NAMED
from gua_report.render.blocks import SHOWN_STATES, Bar, Block, Column, Section, Table, figure, label
from gua_report.render.sections.capacity import currency_of
from gua_report.render.values import records
from gua_report.render.words import clean, gpu, percent
from gua_report.summary.report import Report
from gua_sample.policy import IDLE_HELD, STATES

CARD = ["uuid", "index", "mig_index", "name", "gpu_hours"]
PREFIXES = {state: state.replace("-", "_") for state in STATES}
SHARES = {state: f"{prefix}_share" for state, prefix in PREFIXES.items()}
HOURS = {state: f"{prefix}_gpu_hours" for state, prefix in PREFIXES.items()}
COST = "idle_held_cost"
HOST = label("host", "host")
GOOD_MODEL = 14  # A100-SXM4-80GB: a shorter one may read as another model; the bar goes before that
COLUMNS = CARD + [column for state in STATES for column in (HOURS[state], SHARES[state])] + [COST]


def columns(report: Report) -> list[str]:
    return [*(["host"] if report.fleet else []), *COLUMNS]


def frame(report: Report) -> pd.DataFrame:
    return report.gpus


def document(report: Report) -> list[dict[str, object]]:
    return [
        {
            **({"host": row["host"]} if report.fleet else {}),
            **{name: row[name] for name in CARD},
            "states": {state: {"share": row[SHARES[state]], "gpu_hours": row[HOURS[state]]} for state in STATES},
            COST: row[COST],
        }
        for row in records(report.gpus, columns(report))
    ]


def no_card(report: Report) -> str:
    """What to say where no card was in any state."""
    unusable = bool((report.unpartitioned["gpu_hours"] > 0).any())
    return "No card could be used: MIG is on, without an instance." if unusable else "No card was seen in this window."


def _model(name: object) -> str:
    return clean(name).removeprefix("NVIDIA ")


def show(report: Report, options: Options) -> list[Section]:
    good = GOOD_MODEL if report.fleet else 0  # what a host has, its people know
    columns = [
        *([HOST] if report.fleet else []),
        Column("gpu", lambda row: gpu(row["index"], row["mig_index"])),
        Column("name", lambda row: _model(row["name"]), least=6, good=good, keep_end=True),
        Column("", lambda row: Bar(tuple(row[share] for share in SHARES.values())), may_go=True),
        *(figure(state, SHARES[state], percent) for state in SHOWN_STATES),
        figure("GPU-h", "gpu_hours"),
    ]
    cost = ""
    if report.gpus[COST].notna().any():
        columns.append(figure(currency_of(report) or "", COST))
        cost = f"; {currency_of(report)}: of its idle-held time"
    shown = report.gpus
    caption = "How each card spent its observed time"
    if report.fleet:  # thousands of cards: those that were held most
        shown = shown.sort_values(HOURS[IDLE_HELD], ascending=False, kind="stable").head(options.top)
        caption += "; those with the most idle-held time first"
    rows = shown.to_dict("records")
    blocks: list[Block] = [Table(columns, rows)] if rows else [no_card(report)]
    blocks += [f"and {len(report.gpus) - len(rows):,} more"] if len(report.gpus) > len(rows) else []
    if report.gpus["mig_index"].notna().any():
        caption += "; a MIG instance weighs its share of the card"
    return [Section("gpus", "§3 Per GPU", f"{caption}{cost}.", blocks)]


def names_of(report: Report, uuids: list[str]) -> str:
    """The numbers of these cards, as far as they were seen in the window: 0, 1:2."""
    cards = report.gpus[report.gpus["uuid"].isin(uuids)].to_dict("records")
    if report.fleet:
        return first_of(
            [f"{clean(card['host'])}:{gpu(card['index'], card['mig_index'])}" for card in cards], MOST_NAMED
        )
    return ", ".join(gpu(card["index"], card["mig_index"]) for card in cards)
