"""What a child sends of its hosts: frames that add up, or are listed.

All of it is checked, as a file may have taken control of its reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import state_columns
from gua_report.fleet.host_files import (
    KNOWN,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    YES_NO_OR_NONE,
    YES_OR_NO,
    HostFile,
    Types,
    check,
)
from gua_report.fleet.read_host import Host, read_host
from gua_report.fleet.together import BEFORE, PERSON_HOURS, STATE_SUMS, Together, first_episodes, longest_gaps
from gua_report.summary.groups import PERSON_SUMS
from gua_report.summary.of_hosts import HOURS
from gua_report.summary.report import WORDS, Notice
from gua_report.summary.tables import EPISODE_COLUMNS, HOURS_A_WEEK, concat
from gua_report.window import Window, number_of
from gua_sample.policy import STATES

MOST_NOTICES, LONGEST_NOTICE = 30, 500
SHARES = [*state_columns("share").values()]
# What a child sends of its hosts, by frame and column. A host is the number of its file.
COLUMNS = {
    "states": ["state", "meant_gpu_hours", *STATE_SUMS],
    "people": ["identity", *PERSON_SUMS, "meant_gpu_hours", "hosts", "episodes"],
    "week": ["slot", "known_ms", "active_ms", "free_gpus", "observed_ms"],
    "trend": ["start_ms", "end_ms", "observed_seconds", *HOURS],
    "identity_days": ["identity", "start_ms", "end_ms", *PERSON_HOURS],
    "reclaim": ["after_seconds", "freed_gpu_hours"],
    "reclaim_curve": ["after_seconds", "freed_gpu_hours"],
    "gap_totals": ["kind", "gaps", "seconds", "hosts"],
    "drivers": ["driver_version", "hosts"],
    "hosts": ["host", "start_ms", "observed_ms", "newest_ms", "episodes", *HOURS, *BEFORE],
    "gpus": ["host", "uuid", "index", "mig_index", "name", "parent_uuid", "gpu_hours", *HOURS, *SHARES],
    "unpartitioned": ["host", "uuid", "index", "gpu_hours", "equivalent_gpus"],
    "claims": ["host", "uuid", "start_ms", "end_ms"],
    "episodes": ["host", *EPISODE_COLUMNS],
    "gaps": ["host", "start_ms", "end_ms", "kind"],
}
COLUMNS["gpus"] += ["idle_held_cost", "is_instant_only"]
# The types of columns, by name; others are numbers, of which some may not be known.
TYPES: dict[str, Types] = {
    **dict.fromkeys(["identity", "kind", "driver_version", "uuid", "gpu_uuid"], TEXT),
    **dict.fromkeys(["name", "parent_uuid", "command", "meant_reason", "slurm_job"], TEXT_OR_NONE),
    **dict.fromkeys(["host", "state", "slot", "hosts", "episodes", "gaps", "index", "pid"], WHOLE),
    **dict.fromkeys(["start_ms", "end_ms", "observed_ms", "newest_ms"], WHOLE),
    "seconds": KNOWN,
    **dict.fromkeys(["is_instant_only", "start_is_exact"], YES_OR_NO),
    **dict.fromkeys(["ongoing", "meant_now"], YES_NO_OR_NONE),
}
# Frames that are added up, by these columns. The rows of all others are listed.
KEYS = {
    "states": ["state"],
    "people": ["identity"],
    "week": ["slot"],
    "trend": ["start_ms", "end_ms"],
    "identity_days": ["identity", "start_ms", "end_ms"],
    "reclaim": ["after_seconds"],
    "reclaim_curve": ["after_seconds"],
    "gap_totals": ["kind"],
    "drivers": ["driver_version"],
}


@dataclass(frozen=True)
class SumHosts:
    """The work on some hosts, which can be sent to where it is done."""

    window: Window  # that is reported on
    common: Window  # of the fleet: begins with the oldest tick of all hosts
    config: Config
    reclaim_after_ms: tuple[int, ...]
    newest_days: dict[str, str]  # by name of the file

    def read(self, number: int, file: HostFile) -> Host:
        return read_host(number, file, self.newest_days[file.name], self.window, self.config)

    def combine(self, hosts: list[Host]) -> list[Any]:
        """The frames and notices of these hosts, as JSON has them."""
        frames = Together(self.window, self.common, self.config, self.reclaim_after_ms, hosts).frames()
        plain = {
            name: {column: _plain(frames[name][column], TYPES.get(column, NUMBER)) for column in columns}
            for name, columns in COLUMNS.items()
        }
        said = [
            [host.number, kind, days, detail[:LONGEST_NOTICE]]
            for host in hosts
            for kind, days, detail in host.notices[:MOST_NOTICES]
        ]
        return [plain, said]

    def restore(self, files: Sequence[HostFile], sent: Any) -> tuple[dict[str, pd.DataFrame], list[Any]]:
        return _restore(files, sent)


def _plain(values: pd.Series[Any], types: Types) -> list[Any]:
    """The values as JSON has them: counts as whole numbers, what is not known as None."""
    if types == WHOLE:
        whole: list[Any] = values.astype("int64").tolist()
        return whole
    return [None if value is None or value != value else value for value in values.tolist()]


def _restore(files: Sequence[HostFile], sent: Any) -> tuple[dict[str, pd.DataFrame], list[tuple[HostFile, Notice]]]:
    """The frames and notices that a child sent of these files. Raises TypeError, ValueError or LookupError."""
    frames, said = sent
    notices = []
    for number, kind, days, detail in said:
        check([kind, detail, *days], TEXT)
        check([number], WHOLE)
        for day in days:
            number_of(day)
        if kind not in WORDS:
            raise ValueError("no such notice")
        notices.append((files[number], Notice(kind, tuple(days), detail)))
    return {name: _restore_frame(name, frames[name], files) for name in COLUMNS}, notices


def _restore_frame(name: str, sent: Any, files: Sequence[HostFile]) -> pd.DataFrame:
    """The frame with a type for each column that does not depend on which values are missing."""
    dtypes = {NUMBER: "float64", KNOWN: "float64", WHOLE: "int64", YES_OR_NO: "bool"}
    columns = {}
    for column in COLUMNS[name]:
        types = TYPES.get(column, NUMBER)
        check(sent[column], types)
        columns[column] = pd.Series(sent[column], dtype=dtypes.get(types, "object"))
    if len({len(values) for values in columns.values()}) != 1:
        raise ValueError("columns of several lengths")
    if name == "states" and sent["state"] != list(range(len(STATES))):
        raise ValueError("no sums")
    if name == "week" and not columns["slot"].lt(HOURS_A_WEEK).all():
        raise ValueError("no hour of a week")
    if "host" in columns:
        columns["host"] = pd.Series([files[number].name for number in sent["host"]], dtype=object)
    return pd.DataFrame(columns)


class Total:
    """The added frames of all hosts: but for lists of hosts and cards, as small as one host's."""

    def __init__(self) -> None:
        self.frames = {
            name: _restore_frame(name, {column: [] for column in columns}, ())
            for name, columns in COLUMNS.items()
            if name != "states"
        }

    def add(self, frames: Mapping[str, pd.DataFrame]) -> None:
        for name, frame in frames.items():
            self.frames[name] = _shrink(name, concat([self.frames.get(name, frame[:0]), frame]))


def _shrink(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name in KEYS:
        return frame.groupby(KEYS[name], sort=True).sum().reset_index()
    if name == "episodes":
        return first_episodes(frame)
    return longest_gaps(frame) if name == "gaps" else frame
