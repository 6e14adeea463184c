"""CSV for spreadsheets: the table of one section, with a row of column names.

All rows, whatever --top says; lines end with a newline alone, as Unix tools expect.
The capacity table lacks the reclaim rules, and the coverage table is the gaps: JSON has everything.
"""

from __future__ import annotations

import csv
import io

from gua_report.console.spelling import to_ascii
from gua_report.render import DEFAULTS, SECTIONS, Options, sections
from gua_report.render.values import Value, records
from gua_report.summary.report import Report
from gua_sample.errors import UsageError

DEFAULT_SECTION = "gpus"
# A text that begins with one of these is a formula for spreadsheets; for some, also with their wide forms.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(report: Report, options: Options = DEFAULTS) -> str:
    """The table of the requested section; all sections mean the GPUs. Raises UsageError for any other selection."""
    if options.is_whole:
        options = options._replace(sections=(DEFAULT_SECTION,))
    section, *others = sections.chosen(options).values()
    if others:
        raise UsageError(f"csv is one table: give exactly one --section, one of {', '.join(SECTIONS)}")
    output = io.StringIO()
    columns = sections.columns_of(section, report)
    writer = csv.DictWriter(output, columns, lineterminator="\n")
    writer.writeheader()
    for row in records(section.frame(report), columns):
        writer.writerow({name: _cell(item, options.ascii) for name, item in row.items()})
    return output.getvalue()


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
