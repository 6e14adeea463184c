"""What a report of a fleet has that no host's own report has: the hosts, and what could not be used of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gua_report.console.spelling import state_columns

if TYPE_CHECKING:  # help texts need the constants, and not pandas
    import pandas as pd

HOST, GROUP, PERSON, MODEL = KEYS = "host", "group", "person", "model"  # what hours may be broken down by
HOURS = [*state_columns("gpu_hours").values()]
HOST_COLUMNS = [
    *("host", "groups", "cards", "gpu_hours", *HOURS, "idle_held_share"),
    *("observed_seconds", "coverage_share", "first_day", "newest_day", "gua_version", "machine"),
]
BREAKDOWN_COLUMNS = ["name", "hosts", "cards", "gpu_hours", *HOURS, "idle_held_share"]
PROBLEM_COLUMNS = ["host", "kind", "detail", "left_out"]
EARLIER = "~"  # between a host and what its earlier files are called; in no name of a host
STOPPED = "stopped"  # the kind of a problem: of a host whose sampler had stopped
GAP_COLUMNS = ["kind", "gaps", "seconds", "hosts"]


def is_earlier(name: str) -> bool:
    """Whether this names a file from before its host was reinstalled (gpu07~2025)."""
    return EARLIER in name


def host_of(name: str) -> str:
    """The host of a file by the file's name: gpu07 of gpu07~2025."""
    return name.partition(EARLIER)[0]


class Fleet(NamedTuple):
    folder: str
    expected: int  # hosts that there are, or that the configuration names
    missing: list[str]  # those of which nothing is in the report
    late: list[str]
    hosts: pd.DataFrame  # HOST_COLUMNS, by name
    by: str  # one of KEYS
    breakdown: pd.DataFrame  # BREAKDOWN_COLUMNS: by group of hosts, person or model; that of hosts is empty
    problems: pd.DataFrame  # PROBLEM_COLUMNS: what could not be used, or is doubtful
    gap_totals: pd.DataFrame  # GAP_COLUMNS, of all hosts; the gaps of the report are the longest
    episodes: dict[str, int]  # how many there are of each identity; the report has but the first
    ongoing: int

    @property
    def is_complete(self) -> bool:
        return not bool(self.problems["left_out"].astype(bool).any())

    @property
    def partly_used(self) -> list[str]:
        """The hosts of which something was left out, though they are neither missing nor late."""
        left_out = self.problems[self.problems["left_out"].astype(bool)]["host"]
        return sorted(set(left_out) - {*self.missing, *self.late})
