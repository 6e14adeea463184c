"""CSV for spreadsheets: the table of one section, with a row of column names.

All rows, whatever --top says; lines end with a newline alone, as Unix tools expect.
The capacity table lacks the reclaim rules, and the coverage table is the gaps: JSON has everything.
"""

import csv
import io

from gua_report.console.spelling import to_ascii
from gua_report.render import DEFAULTS, SECTIONS, Options, sections
from gua_report.summary.report import Report
from gua_sample.errors import UsageError

DEFAULT_SECTION = "gpus"
# A text that begins with one of these is a formula for spreadsheets; for some, also with their wide forms.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(report: Report, options: Options = DEFAULTS) -> str:
    """The table of the requested section; all sections mean the GPUs. Raises UsageError for any other selection."""
    if options.is_whole:
        options = options._replace(sections=(DEFAULT_SECTION,))
    section, *others = sections.chosen(options)
    if others:
        raise UsageError(f"csv is one table: give exactly one --section, one of {', '.join(SECTIONS)}")
    output = io.StringIO()
    columns, rows = sections.table_of(section, report)
    writer = csv.DictWriter(output, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows or []:
        texts = {name: item for name, item in row.items() if isinstance(item, str)}
        safe = {name: no_formula(to_ascii(text) if options.ascii else text) for name, text in texts.items()}
        writer.writerow({**row, **safe})
    return output.getvalue()


def no_formula(text: str) -> str:
    """The text, quoted where a spreadsheet would take it for a formula: at its beginning, and after a semicolon, as
    spreadsheets that write numbers with a comma split there."""
    parts = []
    for part in text.split(";"):
        is_risky = part.startswith(FORMULA) or part.replace('"', " ").lstrip().startswith(FORMULA)
        parts.append(f"'{part}" if is_risky else part)
    return ";".join(parts)
