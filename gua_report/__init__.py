"""The reading side of gua: reports, live views, exports, imports, upkeep and checks.

In a notebook:

    import gua_report as gua
    report = gua.report(since="7d")     # shows itself; report.gpus, report.identities, report.episodes are DataFrames
    rows = gua.load(since="1d")         # rows.ticks, rows.cards, rows.processes: the recorded rows, with states
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gua_report.notebook import Frames, ShownReport

__all__ = ["load", "report"]


def report(
    since: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
    tz: str | None = None,
    data_dir: str | None = None,
    config: str | None = None,
) -> ShownReport:
    """The report of a time window, as the gua-report command makes it."""
    from gua_report import notebook  # defers the import of pandas

    return notebook.report(since, start, end, tz, data_dir, config)


def load(
    since: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
    tz: str | None = None,
    data_dir: str | None = None,
    config: str | None = None,
) -> Frames:
    """The recorded rows of a time window as typed frames, with states, weights and identities."""
    from gua_report import notebook

    return notebook.load(since, start, end, tz, data_dir, config)
