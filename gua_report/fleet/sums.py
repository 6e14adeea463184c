"""The work on the hosts of a fleet: what a child sends of those that it reads, and the sum of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gua_report.config import Config
from gua_report.fleet.host_files import HostFile
from gua_report.fleet.read_host import Host, read_host
from gua_report.fleet.together import Together, first_episodes, longest_gaps
from gua_report.summary.report import Notice
from gua_report.summary.tables import concat
from gua_report.window import Window

MOST_NOTICES, LONGEST_NOTICE = 30, 500
MOST = 1 << 46  # no figure of one host is as large: 128 cards for 17 years, in milliseconds
KINDS = {"i": "int64", "f": "float64", "b": "bool", "O": "object"}  # of columns
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
        plain = {name: {column: _plain(frame[column]) for column in frame} for name, frame in frames.items()}
        said = [
            [host.number, kind, days, detail[:LONGEST_NOTICE]]
            for host in hosts
            for kind, days, detail in host.notices[:MOST_NOTICES]
        ]
        return [plain, said]

    def restore(self, files: Sequence[HostFile], sent: Any) -> tuple[dict[str, pd.DataFrame], list[Any]]:
        """The frames and notices that a child sent of these files."""
        plain, said = sent
        frames = {name: pd.DataFrame({key: _restore(*one) for key, one in own.items()}) for name, own in plain.items()}
        for name, frame in frames.items():
            if "host" in frame:
                names = [files[number].name for number in frame["host"].tolist()]
                frames[name] = frame.assign(host=pd.Series(names, frame.index, dtype=object))
        return frames, [(files[number], Notice(kind, tuple(days), detail)) for number, kind, days, detail in said]


def _plain(column: pd.Series[Any]) -> tuple[str, list[Any]]:
    """The kind of a column, and its values as JSON has them: what is not known is None."""
    values = [None if value is None or value != value else value for value in column.tolist()]
    return column.dtype.kind, values


def _restore(kind: str, values: list[Any]) -> pd.Series[Any]:
    column = pd.Series(values, dtype=KINDS[kind])
    if kind in "if" and not column.dropna().between(0, MOST).all():
        raise ValueError("no such number")
    return column


class Total:
    """The added frames of all hosts: but for lists of hosts and cards, as small as one host's."""

    def __init__(self) -> None:
        self.frames: dict[str, pd.DataFrame] = {}

    def add(self, frames: Mapping[str, pd.DataFrame]) -> None:
        for name, frame in frames.items():
            self.frames[name] = _shrink(name, concat([self.frames.get(name, frame[:0]), frame]))


def _shrink(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name in KEYS:
        return frame.groupby(KEYS[name], sort=True).sum().reset_index()
    if name == "episodes":
        return first_episodes(frame)
    return longest_gaps(frame) if name == "gaps" else frame
