"""What only the report of a fleet has: its hosts, hours by group, person or model, and what could not be used."""

from __future__ import annotations

from gua_report.render import Options
from gua_report.render.blocks import (
    Bar,
    Block,
    Column,
    Row,
    Section,
    SectionKind,
    Table,
    and_more,
    figure,
    first_rows,
    if_asked,
    label,
)
from gua_report.render.values import MISSING, amount, clean, count, is_missing, percent, records
from gua_report.summary.of_hosts import (
    BREAKDOWN_COLUMNS,
    GROUP,
    HOST,
    HOST_COLUMNS,
    HOURS,
    MODEL,
    PERSON,
    PROBLEM_COLUMNS,
)
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD

ONLY_FLEETS = "Only the report of a fleet has it: gua-report --fleet DIR."
HOURS_AND_SHARE = [
    Column("", lambda row: _bar(row), may_go=True),
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


def _bar(row: Row) -> Bar:
    total = row["gpu_hours"]
    return Bar(tuple(0.0 if is_missing(row[name]) or not total else row[name] / total for name in HOURS))


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


KINDS = (
    SectionKind("hosts", HOST_COLUMNS, lambda report: report.fleet and report.fleet.hosts, show_hosts),
    SectionKind(
        *("breakdown", BREAKDOWN_COLUMNS, lambda report: report.fleet and report.fleet.breakdown),
        *(show_breakdown, document_breakdown),
    ),
    SectionKind("not_used", PROBLEM_COLUMNS, lambda report: report.fleet and report.fleet.problems, show_not_used),
)
