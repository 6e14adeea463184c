"""CSV for spreadsheets: the table of one section, with a row of column names.

All rows, whatever --top says; lines end with a newline alone, as Unix tools expect.
The capacity table lacks the reclaim rules, and the coverage table is the gaps: JSON has everything.
"""

from __future__ import annotations

import csv
import io

from gua_report.console.spelling import to_ascii
from gua_report.render import DEFAULTS, SECTIONS, Options
from gua_report.render.values import (
    CAPACITY,
    EPISODE,
    GPU,
    HEATMAP,
    Value,
    by_state,
    changes,
    currency,
    episodes,
    gaps,
    records,
    value,
)
from gua_report.summary.build import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_sample.errors import UsageError
from gua_sample.policy import STATES

DEFAULT_SECTION = "gpus"
# A text that begins with one of these is a formula for spreadsheets; for some, also with their wide forms.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(report: Report, options: Options = DEFAULTS) -> str:
    """The table of the requested section; all sections mean the GPUs. Raises UsageError for any other selection."""
    columns, rows = _table(report, _section(options.sections))
    output = io.StringIO()
    writer = csv.DictWriter(output, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(row[name], options.ascii) for name in columns} for row in rows)
    return output.getvalue()


def _section(sections: tuple[str, ...]) -> str:
    if set(sections) == set(SECTIONS):
        return DEFAULT_SECTION
    if len(set(sections)) != 1:
        raise UsageError(f"csv is one table: give exactly one --section, one of {', '.join(SECTIONS)}")
    return sections[0]


def _table(report: Report, section: str) -> tuple[list[str], list[dict[str, Value]]]:
    if section == "headline":
        change = changes(report) or dict.fromkeys(STATES)
        states = by_state(report.headline, ["share", "gpu_hours"])
        rows = [{"state": state, **states[state], "change_share": change[state]} for state in STATES]
        return ["state", "share", "gpu_hours", "change_share"], rows
    if section == "capacity":
        priced = currency(report)
        capacity = by_state(report.capacity, CAPACITY)
        rows = [{"state": state, **capacity[state], "currency": priced} for state in STATES]
        return ["state", *CAPACITY, "currency"], rows
    if section == "gpus":
        columns = list(GPU)
        for state in STATES:
            prefix = state.replace("-", "_")
            columns += [f"{prefix}_gpu_hours", f"{prefix}_share"]
        return columns, records(report.gpus, columns)
    if section == "identities":
        return IDENTITY_COLUMNS, records(report.identities, IDENTITY_COLUMNS)
    if section == "heatmap":
        return HEATMAP, records(report.heatmap, HEATMAP)
    if section == "episodes":
        return EPISODE, episodes(report)
    if section == "reservations":
        found = report.reservations
        return RESERVATION_COLUMNS, [] if found is None else records(found, RESERVATION_COLUMNS)
    seconds = ((report.gaps["end_ms"] - report.gaps["start_ms"]) / 1000).tolist()
    stretches = zip(gaps(report), seconds, strict=True)
    return ["from", "to", "seconds", "kind"], [{**gap, "seconds": value("seconds", long)} for gap, long in stretches]


def _cell(item: Value, ascii_only: bool) -> Value:
    """The item as a safe text; numbers stay numbers."""
    if not isinstance(item, str):
        return item
    return no_formula(to_ascii(item) if ascii_only else item)


def no_formula(text: str) -> str:
    """The text, quoted where a spreadsheet would take it for a formula: at its beginning, and after a semicolon, as
    spreadsheets that write numbers with a comma split there."""
    return ";".join(f"'{part}" if _looks_like_formula(part) else part for part in text.split(";"))


def _looks_like_formula(text: str) -> bool:
    return text.startswith(FORMULA) or text.replace('"', " ").lstrip().startswith(FORMULA)
