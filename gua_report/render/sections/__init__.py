"""One module for each section of a report, named as in --section; every format takes a section from here.

A new one is a module in this folder, and its name in SECTIONS of gua_report/render.

Each module has
- `show(report, options)`: the section for people, as blocks; none if there is nothing to say;
- `frame(report)` and its `COLUMNS`: the section as one table, for CSV;
- `columns(report)`: the names of its columns, if they are not always COLUMNS;
- `document(report)`: the section as a value for JSON, None to leave it out. Without this function the value is the
  table's rows.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from gua_report.render import SECTIONS, Options
from gua_report.summary.report import Report

# All are imported at once: a report is rendered in a process that may no longer have the rights to.
MODULES = {name: importlib.import_module(f"{__name__}.{name}") for name in SECTIONS}


def columns_of(module: ModuleType, report: Report) -> list[str]:
    """The names of the columns of a section's table."""
    names: list[str] = module.columns(report) if hasattr(module, "columns") else module.COLUMNS
    return names


def chosen(options: Options) -> dict[str, ModuleType]:
    """The modules of the requested sections by name, in the order of the report."""
    return {name: module for name, module in MODULES.items() if name in options.sections}
