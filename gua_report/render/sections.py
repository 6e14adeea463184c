"""The header and the sections of a report, for the formats that people read."""

from __future__ import annotations

from collections.abc import Callable

from gua_report.people.identities import UNATTRIBUTED
from gua_report.render import Options
from gua_report.render.blocks import Bar, Block, Cell, Column, Heatmap, Section, State, Table, bar_of
from gua_report.render.lists import coverage, episodes, held_now
from gua_report.render.reservations import reservations
from gua_report.render.values import currency
from gua_report.render.words import (
    amount,
    clean,
    count,
    duration,
    gpu,
    gpu_name,
    is_missing,
    meanings,
    moment,
    number,
    percent,
    points,
)
from gua_report.summary.build import Report
from gua_report.window import show
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, UNKNOWN

# If the newest tick is older than this at the end of the window, the sampler seems to have stopped.
STALE_MS = 300_000


def title(report: Report) -> str:
    return f"GPU use on {clean(report.host)}"


def attention(options: Options) -> list[str]:
    """The paragraph that says what to act on, if there is anything."""
    return [f"To act on: {'; '.join(options.attention)}"] if options.attention else []


def header(report: Report) -> list[str]:
    """The first paragraphs: the machine, the window, and reasons to doubt the rest."""
    zone = report.window.zone
    start, end = show(report.window.start_ms, zone), show(report.window.end_ms, zone)
    drivers = ", ".join(clean(version) for version in report.driver_versions) or "not known"
    lines = [
        f"{_cards(report)}, driver {drivers}",
        f"{start} to {end} {clean(report.timezone)}, {percent(report.coverage_share)} observed",
    ]
    if report.window.start_ms > report.requested.start_ms:
        lines.append(f"Asked for since {show(report.requested.start_ms, zone)}; the oldest sample is younger.")
    late_ms = report.window.end_ms - report.newest_ms
    if late_ms > STALE_MS:
        newest = moment(report.newest_ms, zone)
        lines.append(f"The sampler seems to have stopped: no tick since {newest}, {duration(late_ms / 1000)} earlier.")
    return lines


def _cards(report: Report) -> str:
    indexes = report.gpus["index"]
    cards = indexes.nunique() + int(indexes.isna().sum())
    instances = int(report.gpus["mig_index"].notna().sum())
    return count(cards, "GPU") + (f" ({count(instances, 'MIG instance')})" if instances else "")


def build_sections(report: Report, options: Options) -> list[Section]:
    """The requested sections, in the order of the report."""
    builders: dict[str, Callable[[], list[Section]]] = {
        "headline": lambda: [headline(report), held_now(report, options.top, STALE_MS)],
        "capacity": lambda: [capacity(report)],
        "gpus": lambda: [gpus(report)],
        "identities": lambda: [identities(report, options.top)],
        "heatmap": lambda: [heatmap(report)],
        "episodes": lambda: [episodes(report, options.top)],
        "coverage": lambda: [coverage(report, options.top)],
        "reservations": lambda: reservations(report, options),
    }
    return [section for name, build in builders.items() if name in options.sections for section in build()]


def headline(report: Report) -> Section:
    shares, hours = report.headline["share"], report.headline["gpu_hours"]
    total = hours.sum()
    if not total:
        return Section("headline", "§1 Headline", "GPU time by state.", ["No card was seen in this window."])
    columns = [Column("state"), Column("share", True), Column("GPU-hours", True)]
    if report.before is not None:
        columns.append(Column("change", True))
    columns.append(Column("meaning", least=16, may_go=True))
    rows: list[list[Cell]] = []
    for state, meaning in meanings(report.policy).items():
        row: list[Cell] = [State(state), percent(shares[state]), amount(hours[state])]
        if report.before is not None:
            row.append(points(shares[state] - report.before["share"][state]))
        rows.append([*row, meaning])
    length = duration(report.requested.length_ms / 1000)
    change = f"change: points against the {length} before" if report.before is not None else "no data before"
    return Section(
        "headline",
        f"§1 Headline: {percent(shares[IDLE_HELD])} of the GPU time was idle-held",
        f"{amount(total)} observed GPU-hours by state; {change}.",
        [Bar(tuple(float(shares[state]) for state in STATES)), Table(columns, rows)],
    )


def capacity(report: Report) -> Section:
    states = report.capacity
    priced = currency(report)
    columns = [Column("state"), *(Column(name, True) for name in ("GPU-hours", "GPUs", "kWh"))]
    if priced is not None:
        columns.append(Column(priced, True))
    rows: list[list[Cell]] = []
    for state in STATES:
        values = states.loc[state]
        cells = [amount(values[name]) for name in ("gpu_hours", "equivalent_gpus", "energy_kwh", "cost")]
        rows.append([State(state), *cells[: len(columns) - 1]])
    blocks: list[Block] = [Table(columns, rows)]
    if len(report.reclaim):
        held = states["gpu_hours"][IDLE_HELD]
        freed: list[list[Cell]] = [
            [f"{duration(after)} idle", f"{amount(hours)} GPU-hours", percent(hours / held if held else None)]
            for after, hours in report.reclaim[["after_seconds", "freed_gpu_hours"]].itertuples(index=False)
        ]
        rule = [Column("reclaim after"), Column("would have freed", True), Column("of idle-held", True)]
        blocks.append(Table(rule, freed))
    return Section("capacity", "§2 Idle capacity", _capacity_caption(report), blocks)


def _capacity_caption(report: Report) -> str:
    config = report.config
    prices = [
        f"{number(price)} {currency(report)} a {unit}"
        for price, unit in ((config.price_per_gpu_hour, "GPU-hour"), (config.price_per_kwh, "kWh"))
        if price is not None
    ]
    known = report.energy_known_share
    energy = (
        "kWh: not measured" if is_missing(known) or not known else f"kWh: measured for {percent(known)} of the time"
    )
    return "; ".join(["GPUs: GPU-hours over observed hours", energy, *prices]) + "."


def gpus(report: Report) -> Section:
    columns = [Column("gpu"), Column("name", least=6, keep_end=True), Column("", may_go=True)]
    columns += [*(Column(state, True) for state in STATES), Column("GPU-h", True)]
    rows: list[list[Cell]] = []
    for row in report.gpus.to_dict("records"):
        shares = [row[f"{state.replace('-', '_')}_share"] for state in STATES]
        label, name = gpu(row["index"], row["mig_index"]), gpu_name(row["name"])
        rows.append([label, name, Bar(tuple(shares)), *map(percent, shares), amount(row["gpu_hours"])])
    caption = "Each card's observed time by state"
    if report.gpus["mig_index"].notna().any():
        caption += "; a MIG instance weighs its share of the card's memory"
    blocks: list[Block] = [Table(columns, rows)] if rows else ["No card was seen in this window."]
    return Section("gpus", "§3 Per GPU", f"{caption}.", blocks)


def identities(report: Report, top: int) -> Section:
    held = number(report.policy.process_memory_mib)
    caption = f"GPU-hours of each on any card; idle-held: over {held} MiB and no work done."
    frame = report.identities
    rows: list[list[Cell]] = []
    with_unknown = bool(len(frame) and (frame["unknown_gpu_hours"] > 0).any())
    names = ["active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"]
    entries = [(clean(row["identity"]), *(row[name] for name in names)) for row in frame.head(top).to_dict("records")]
    rest = frame.iloc[top:]
    if len(rest):
        entries.append((f"and {len(rest):,} more", *(float(rest[name].sum()) for name in names)))
    for who, active, idle, unknown in entries:
        cells: list[Cell] = [who, bar_of([active, idle, 0.0, unknown]), amount(idle), amount(active)]
        cells += [amount(unknown)] if with_unknown else []
        rows.append([*cells, percent(idle / (active + idle) if active + idle else None)])
    columns = [Column("who", least=8), Column("", may_go=True), Column(IDLE_HELD, True), Column(ACTIVE, True)]
    columns += [Column(UNKNOWN, True)] if with_unknown else []
    columns.append(Column("idle-held share", True))
    blocks: list[Block] = [Table(columns, rows)] if rows else ["Nobody used a card."]
    if (frame["identity"] == UNATTRIBUTED).any():
        hidden = number(report.policy.unattributed_memory_mib)
        blocks.append(f"{UNATTRIBUTED}: over {hidden} MiB in use that no process shows.")
    return Section("identities", "§4 Top identities, by idle-held GPU-hours", caption, blocks)


def heatmap(report: Report) -> Section:
    shares: list[list[float | None]] = [[None] * 24 for _ in range(7)]
    for weekday, hour, share in report.heatmap[["weekday", "hour", "active_share"]].itertuples(index=False):
        shares[int(weekday)][int(hour)] = None if is_missing(share) else float(share)
    known = any(share is not None for day in shares for share in day)
    threshold = number(report.policy.utilization_percent)
    return Section(
        "heatmap",
        "§5 Hours of the week",
        f"Share of GPU time at {threshold}% utilization or more, by hour in {clean(report.timezone)}.",
        [Heatmap(shares)] if known else ["Nothing is known of any hour."],
    )
