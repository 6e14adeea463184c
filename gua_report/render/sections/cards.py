"""Idle capacity with its energy and cost, what rules would have freed, and each card and each host of a fleet."""

import pandas as pd

from gua_report.console.spelling import duration, first_of, state_columns
from gua_report.render import MOST_NAMED, Options
from gua_report.render.blocks import (
    SHOWN_STATES,
    STATE,
    Bar,
    Block,
    Column,
    Section,
    Table,
    and_more,
    bar_of,
    figure,
    first_rows,
    if_asked,
    in_order,
    label,
)
from gua_report.render.values import (
    MISSING,
    amount,
    by_state,
    card,
    clean,
    count,
    gpu,
    is_missing,
    number,
    percent,
    records,
    value,
)
from gua_report.summary.of_hosts import BREAKDOWN_COLUMNS, GROUP, HOST, MODEL, PERSON
from gua_report.summary.of_hosts import HOURS as HOURS_OF_HOSTS
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, UNPARTITIONED

CAPACITY = ["state", "gpu_hours", "equivalent_gpus", "energy_kwh", "cost", "currency"]
RECLAIM_COLUMNS = ["after_seconds", "freed_gpu_hours"]
CARD = ["uuid", "index", "mig_index", "name", "gpu_hours"]
SHARES, HOURS = state_columns("share"), state_columns("gpu_hours")
COST = "idle_held_cost"
GPU_COLUMNS = [*CARD, *(column for state in STATES for column in (HOURS[state], SHARES[state])), COST]
GOOD_MODEL = 14  # A100-SXM4-80GB: a shorter one may read as another model; the bar goes before that
ONLY_FLEETS = "Only the report of a fleet has it: gua-report --fleet DIR."
HOURS_AND_SHARE = [
    Column("", lambda row: bar_of([row[name] for name in HOURS_OF_HOSTS], row["gpu_hours"]), may_go=True),
    figure(IDLE_HELD, "idle_held_gpu_hours"),
    figure(ACTIVE, "active_gpu_hours"),
    figure("GPU-h", "gpu_hours"),
    figure("share", "idle_held_share", percent),
]
TITLES = {GROUP: "By group of hosts", PERSON: "By person, on all hosts", MODEL: "By model"}
CAPTIONS = {
    GROUP: "Groups are those of [hosts]; a host in two of them counts in both.",
    PERSON: "A person is one person by name; containers, jobs and users without a name are those of one host.",
    MODEL: "Share: idle-held, of the observed GPU time.",
}


def frame_of_capacity(report: Report) -> pd.DataFrame:
    states, rest = _states(report), _unpartitioned(report)
    if not rest["gpu_hours"]:
        return states
    return pd.concat([states, pd.DataFrame([{"state": UNPARTITIONED, **rest}])], ignore_index=True)


def _states(report: Report) -> pd.DataFrame:
    return report.capacity.assign(currency=currency_of(report)).rename_axis("state").reset_index()


def _unpartitioned(report: Report) -> dict[str, float]:
    return {name: float(report.unpartitioned[name].sum()) for name in ("gpu_hours", "equivalent_gpus")}


def document_capacity(report: Report) -> object:
    return {
        "states": by_state(_states(report), CAPACITY[1:-1]),
        "unpartitioned": {name: value(name, found) for name, found in _unpartitioned(report).items()},
        "energy_known_share": value("share", report.energy_known_share),
        "currency": currency_of(report),
        "reclaim": records(report.reclaim, RECLAIM_COLUMNS),
        "reclaim_curve": records(report.reclaim_curve, RECLAIM_COLUMNS),
    }


def show_capacity(report: Report, options: Options) -> list[Section]:
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
        from gua_report.render.pictures.bar_charts import reclaim_picture

        blocks.append(reclaim_picture(report))
    return [Section("capacity", "§2 Idle capacity", _caption(report), blocks)]


def _show_unpartitioned(report: Report, top: int) -> list[Block]:
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


def document_gpus(report: Report) -> object:
    card = ["host", *CARD] if report.fleet else CARD
    return [
        {
            **{name: row[name] for name in card},
            "states": {state: {"share": row[SHARES[state]], "gpu_hours": row[HOURS[state]]} for state in STATES},
            COST: row[COST],
        }
        for row in records(report.gpus, [*card, *GPU_COLUMNS[len(CARD) :]])
    ]


def no_card(report: Report) -> str:
    unusable = bool((report.unpartitioned["gpu_hours"] > 0).any())
    return "No card could be used: MIG is on, without an instance." if unusable else "No card was seen in this window."


def show_gpus(report: Report, options: Options) -> list[Section]:
    good = GOOD_MODEL if report.fleet else 0  # what a host has, its people know
    columns = [
        *([label("host", "host")] if report.fleet else []),
        Column("gpu", lambda row: gpu(row["index"], row["mig_index"])),
        Column("name", lambda row: clean(row["name"]).removeprefix("NVIDIA "), least=6, good=good, keep_end=True),
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
        shown = shown.sort_values(HOURS[IDLE_HELD], ascending=False, kind="stable")
        caption += "; those with the most idle-held time first"
    blocks = first_rows(columns, shown, options.top if report.fleet else len(shown)) or [no_card(report)]
    if report.gpus["mig_index"].notna().any():
        caption += "; a MIG instance weighs its share of the card"
    return [Section("gpus", "§3 Per GPU", f"{caption}{cost}.", blocks)]


def names_of(report: Report, uuids: list[str]) -> str:
    """The numbers of these cards, as far as they were seen in the window: 0, 1:2; of a fleet, the first: gpu07:0."""
    cards = report.gpus[report.gpus["uuid"].isin(uuids)].to_dict("records")
    numbers = [gpu(card["index"], card["mig_index"]) for card in cards]
    if not report.fleet:
        return ", ".join(numbers)
    hosts = [clean(card["host"]) for card in cards]
    return first_of([f"{host}:{number}" for host, number in zip(hosts, numbers, strict=True)], MOST_NAMED)


def say_unknown(report: Report) -> list[Block]:
    names = names_of(report, report.unknown_now)
    told = f"Not known of GPU {names}: the driver did not tell what it is doing, or who is on it."
    return [told] if names else []


def show_hosts(report: Report, options: Options) -> list[Section]:
    title = "Hosts, by idle-held GPU-hours"
    if report.fleet is None:
        return if_asked(options, "hosts", title, ONLY_FLEETS)
    found = report.fleet.hosts.sort_values(["idle_held_gpu_hours", "host"], ascending=[False, True], kind="stable")
    columns = [
        label("host", "host"),
        figure("GPUs", "cards", "{:,}".format),
        *HOURS_AND_SHARE,
        figure("observed", "coverage_share", percent),
        Column("newest day", lambda row: clean(row["newest_day"]), may_go=True),
        Column("gua", lambda row: clean(row["gua_version"]), may_go=True),
    ]
    rest = found.iloc[options.top :]
    held, hours = amount(rest["idle_held_gpu_hours"].sum()), amount(rest["gpu_hours"].sum())
    blocks = first_rows(columns, found, options.top, f"more: {held} of {hours} GPU-hours idle-held")
    least = found[found["coverage_share"] < found["coverage_share"].max()].sort_values("coverage_share").head(3)
    if len(least):
        told = [f"{clean(row['host'])} {percent(row['coverage_share'])}" for row in least.to_dict("records")]
        blocks.append(f"Observed least: {', '.join(told)}.")
    caption = "Share: idle-held, of the observed GPU time. Observed: from the host's first tick on."
    return [Section("hosts", title, caption, blocks)]


def document_breakdown(report: Report) -> object:
    if report.fleet is None or report.fleet.by == HOST:
        return None
    return {"by": report.fleet.by, "rows": records(report.fleet.breakdown, BREAKDOWN_COLUMNS)}


def show_breakdown(report: Report, options: Options) -> list[Section]:
    name, title = "breakdown", "By group, person or model"
    if report.fleet is None:
        return if_asked(options, name, title, ONLY_FLEETS)
    by, found = report.fleet.by, report.fleet.breakdown
    if by == HOST:
        return if_asked(options, name, title, "Choose one with --by group, person or model.")
    whole = "{:,.0f}".format
    cards = figure("GPUs", "cards", lambda cards: MISSING if is_missing(cards) else whole(cards))
    columns = [label(by, "name"), figure("hosts", "hosts", whole), *([cards] if by != PERSON else []), *HOURS_AND_SHARE]
    table = Table(columns, found.head(options.top).to_dict("records"))
    return [Section(name, TITLES[by], CAPTIONS[by], [table, *and_more(len(found) - options.top)])]


def show_not_used(report: Report, options: Options) -> list[Section]:
    name, title = "not_used", "What could not be used"
    if report.fleet is None:
        return if_asked(options, name, title, ONLY_FLEETS)
    found = report.fleet.problems
    if not len(found):
        return [Section(name, title, "Every host was used, and nothing of it is doubtful.", [])]
    blocks: list[Block] = [
        f"{'Left out' if row['left_out'] else 'Doubtful'}: {clean(row['host'])}: {clean(row['detail'])}"
        for row in found.head(options.top).to_dict("records")
    ]
    rest = found.iloc[options.top :]
    kinds = ", ".join(f"{number:,} {clean(kind)}" for kind, number in rest["kind"].value_counts().items())
    blocks += and_more(len(rest), f"more ({kinds}); --section not_used --top 1000 has all")
    hosts = int(found[found["left_out"].astype(bool)]["host"].nunique())
    some = f"Of {count(hosts, 'host')} something is not in this report."
    return [Section(name, title, some if hosts else "All was used; some is doubtful.", blocks)]
