"""A report as text, markdown, JSON, CSV or HTML. Renderers take a Report and how to show it, nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gua_report.window import LEAST_COVERAGE

if TYPE_CHECKING:
    from gua_report.summary.report import Report

SECTIONS = (
    *("headline", "now", "timeline", "trend", "capacity", "hosts", "breakdown", "gpus", "identities", "groups"),
    *("identity_days", "heatmap", "episodes", "coverage", "reservations", "not_used"),
)
# Those of a report of some people: all others are of the whole machine.
OF_PEOPLE = ("now", "identities", "groups", "identity_days", "episodes", "coverage", "reservations")
PEOPLE, GROUPS, NONE = NAMES = "people", "groups", "none"  # whose names are on pages for a web server
FORMATS = ("text", "markdown", "json", "csv", "html")
LONG_EPISODE = "1h"  # default for the least length of an idle-held episode to act on
MOST_UNKNOWN = 0.05  # of a card's own time
MOST_NAMED = 3
# If the newest tick is older than this at the end of the window, the sampler seems to have stopped.
STALE_MS = 300_000
# For help texts, where a percent sign is written twice.
WHAT_COUNTS = (
    f"an idle-held episode of D or more (default {LONG_EPISODE}) that is not meant, less than {LEAST_COVERAGE:.0%}% of"
    f" the time observed, a card unknown for over {MOST_UNKNOWN:.0%}% of its time, a partition that can't be read, a"
    " sampler that has stopped, a person or group over a limit, or that it is not known who holds what right now"
)


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


def renderer(name: str, options: Options = DEFAULTS) -> Callable[[Report, Options], str]:
    """The `render` function of one of FORMATS, from the module of that name. Its result ends with a newline.

    All that is needed for these options is imported here: a report may be rendered in a process without the rights to.
    """
    if not options.is_whole:
        importlib.import_module(f"{__name__}.pictures")  # whose numbers a section may show
    render: Callable[[Report, Options], str] = importlib.import_module(f"{__name__}.{name}").render
    return render
