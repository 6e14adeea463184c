"""The reading side of gua: reports, live views, exports, imports, upkeep and checks.

In a notebook:

    import gua_report as gua
    report = gua.report(since="7d")     # shows itself; report.gpus, report.identities, report.episodes are DataFrames
    rows = gua.load(since="1d")         # rows.ticks, rows.cards, rows.processes: the recorded rows, with states
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gua_report.notebook import load, report

__all__ = ["load", "report"]


def __getattr__(name: str) -> Any:
    """Import the notebook interface when it is used, because it needs pandas, which most commands don't wait for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gua_report import notebook

    return getattr(notebook, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
