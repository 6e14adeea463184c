"""A report as text, markdown, JSON, CSV or HTML. Renderers take a Report and how to show it, nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gua_report.summary.report import Report

SECTIONS = (
    *("headline", "now", "timeline", "trend", "capacity", "hosts", "breakdown", "gpus", "identities", "groups"),
    *("identity_days", "heatmap", "episodes", "coverage", "reservations", "not_used"),
)
OF_FLEETS = ("hosts", "breakdown", "not_used")  # those that only a report of many hosts has
# Those of a report of some people: all others are of the whole machine.
OF_PEOPLE = ("now", "identities", "groups", "identity_days", "episodes", "coverage", "reservations")
PEOPLE, GROUPS, NONE = NAMES = "people", "groups", "none"  # whose names are on pages for a web server
FORMATS = ("text", "markdown", "json", "csv", "html")


class Options(NamedTuple):
    sections: tuple[str, ...] = SECTIONS
    top: int = 10  # rows of long tables in text, markdown and HTML; JSON and CSV always have all
    width: int = 78  # columns of text
    ascii: bool = False
    color: bool = False  # text only
    attention: tuple[str, ...] = ()  # what to act on, in clean text; not for CSV
    brief: bool = False  # for a phone: text and markdown only
    pictures: bool = False  # whether the format shows them
    links: tuple[tuple[str, str], ...] = ()  # to the pages of a set, HTML only: names and targets
    link: str = ""  # the target that is this page

    @property
    def is_whole(self) -> bool:
        """Whether no section was chosen: those that few need are left out then."""
        return set(self.sections) == set(SECTIONS)


DEFAULTS = Options()


def renderer(name: str) -> Callable[[Report, Options], str]:
    """The `render` function of one of FORMATS, from the module of that name. Its result ends with a newline."""
    render: Callable[[Report, Options], str] = importlib.import_module(f"{__name__}.{name}").render
    return render
