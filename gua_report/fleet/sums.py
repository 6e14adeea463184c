"""What hosts' figures add up to: the columns that a child sends of each host, their check, and their sum."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import pandas as pd

from gua_report.fleet.host_files import NUMBER, NUMBER_OR_NONE, TEXT, TEXT_OR_NONE, WHOLE, YES_OR_NO, Types, check
from gua_report.people.identities import is_person
from gua_report.summary.groups import PERSON_SUMS
from gua_report.summary.of_hosts import HOURS, host_of
from gua_report.summary.report import WORDS, Notice
from gua_report.summary.tables import concat
from gua_report.window import number_of
from gua_sample.policy import STATES

HOURS_A_WEEK = 7 * 24
# Of a host and of all hosts: so many gaps, episodes that go on, others, and episodes of each person.
MOST_LISTED, MOST_OF_PERSON = 100, 5
MOST_WAITING = 20_000  # rows that are kept as they came, before they are added to the sum


def _columns(types: Types, *names: str) -> dict[str, Types]:
    return dict.fromkeys(names, types)


# By frame: the columns by which its rows are the same on all hosts. All others are added.
KEYS: dict[str, dict[str, Types]] = {
    "states": {"state": WHOLE},
    "people": {"identity": TEXT},
    "week": {"slot": WHOLE},
    "trend": _columns(WHOLE, "start_ms", "end_ms"),
    "identity_days": {"identity": TEXT, **_columns(WHOLE, "start_ms", "end_ms")},
    "reclaim": {"after_seconds": NUMBER},
    "reclaim_curve": {"after_seconds": NUMBER},
    "gap_totals": {"kind": TEXT},
    "drivers": {"driver_version": TEXT},
}
ADDED: dict[str, list[str]] = {
    "states": ["gpu_ms", "energy_joules", "energy_ms", "weight_ms"],
    "people": [*PERSON_SUMS, "meant_gpu_hours", "hosts", "episodes"],
    "week": ["known_ms", "active_ms", "idle_ms", "observed_ms", "free_gpus"],
    "trend": ["observed_seconds", *HOURS],
    "identity_days": [name for name in HOURS if "truly_idle" not in name],
    "reclaim": ["freed_gpu_hours"],
    "reclaim_curve": ["freed_gpu_hours"],
    "gap_totals": ["gaps", "seconds", "hosts"],
    "drivers": ["hosts"],
}
# Frames whose rows are listed, with their host.
LISTED: dict[str, dict[str, Types]] = {
    "hosts": {
        **_columns(WHOLE, "start_ms", "observed_ms", "newest_ms", "ongoing"),
        **_columns(NUMBER, *HOURS, "meant_gpu_hours"),
        **_columns(NUMBER_OR_NONE, *(f"before_{name}" for name in HOURS)),
    },
    "gpus": {
        "uuid": TEXT,
        "index": WHOLE,
        "mig_index": NUMBER_OR_NONE,
        **_columns(TEXT_OR_NONE, "name", "parent_uuid"),
        **_columns(NUMBER, "gpu_hours"),
        **{name: types for hours in HOURS for name, types in ((hours, NUMBER), (hours[:-9] + "share", NUMBER_OR_NONE))},
        "idle_held_cost": NUMBER_OR_NONE,
        "is_instant_only": YES_OR_NO,
    },
    "unpartitioned": {"uuid": TEXT, "index": WHOLE, **_columns(NUMBER, "gpu_hours", "equivalent_gpus")},
    "claims": {"uuid": TEXT, **_columns(WHOLE, "start_ms", "end_ms")},
    "episodes": {
        **_columns(TEXT, "gpu_uuid", "identity"),
        **_columns(TEXT_OR_NONE, "command", "meant_reason", "slurm_job"),
        **_columns(WHOLE, "pid", "start_ms", "end_ms"),
        **_columns(NUMBER, "seconds", "meant_seconds"),
        **_columns(NUMBER_OR_NONE, "gpu_index", "mig_index", "peak_memory_mib", "meant_until_ms"),
        **_columns((bool, None), "ongoing", "meant_now"),
        "start_is_exact": YES_OR_NO,
    },
    "gaps": {"start_ms": WHOLE, "end_ms": WHOLE, "kind": TEXT},
}
COUNTS = {"hosts", "episodes", "gaps"}
COLUMNS: dict[str, dict[str, Types]] = {
    name: {**keys, **{column: WHOLE if column in COUNTS else NUMBER for column in ADDED[name]}}
    for name, keys in KEYS.items()
} | LISTED
Columns = dict[str, list[Any]]


def restore_frames(value: Any) -> dict[str, Columns]:
    """The checked columns. Raises TypeError, ValueError or LookupError for nonsense."""
    found = {name: _restore(value[name], columns) for name, columns in COLUMNS.items()}
    if found["states"]["state"] != list(range(len(STATES))) or len(found["hosts"]["start_ms"]) != 1:
        raise ValueError("no sums")
    if any(slot >= HOURS_A_WEEK for slot in found["week"]["slot"]):
        raise ValueError("no hour of a week")
    return found


def _restore(value: Any, columns: Mapping[str, Types]) -> Columns:
    found = {name: value[name] for name in columns}
    for name, types in columns.items():
        if not isinstance(found[name], list):
            raise TypeError("no column")
        check(found[name], types)
    if len({len(values) for values in found.values()}) != 1:
        raise ValueError("columns of several lengths")
    return found


def restore_notices(value: Any) -> list[Notice]:
    found = []
    for kind, days, detail in value:
        check([kind, detail, *days], TEXT)
        for day in days:
            number_of(day)
        if kind not in WORDS:
            raise ValueError("no such notice")
        found.append(Notice(kind, tuple(days), detail))
    return found


class Total:
    """The added frames of all hosts: but for lists of hosts and cards, as small as one host's.

    `reinstalled` hosts have several files, and so weeks of their own, to be averaged over all of them.
    """

    def __init__(self, reinstalled: Set[str] = frozenset()) -> None:
        self._reinstalled = reinstalled
        hosts = {*LISTED, "week"}
        empty = {name: {"host": TEXT, **columns} if name in hosts else columns for name, columns in COLUMNS.items()}
        self._frames = {name: pd.DataFrame(columns=[*columns]) for name, columns in empty.items()}
        self._waiting: dict[str, Columns] = {name: {} for name in COLUMNS}
        self._rows = 0

    def add(self, host: str, sent: Mapping[str, Columns]) -> None:
        for name, columns in sent.items():
            rows = len(next(iter(columns.values())))
            whose = {"host": [host] * rows} if name in LISTED else {}
            if name == "week":
                whose = {"host": [host_of(host) if host_of(host) in self._reinstalled else ""] * rows}
            for column, values in {**whose, **columns}.items():
                self._waiting[name].setdefault(column, []).extend(values)
            self._rows += rows
        if self._rows > MOST_WAITING:
            self.frames()

    def frames(self) -> dict[str, pd.DataFrame]:
        for name, columns in self._waiting.items():
            if columns:
                self._frames[name] = _shrink(name, concat([_frame_of(name, columns), self._frames[name]]))
        self._waiting, self._rows = {name: {} for name in COLUMNS}, 0
        return self._frames


def _frame_of(name: str, columns: Columns) -> pd.DataFrame:
    """The frame with a type for each column that does not depend on which values are missing."""
    dtypes = {NUMBER: "float64", NUMBER_OR_NONE: "float64", WHOLE: "int64", YES_OR_NO: "bool"}
    types = {"host": TEXT, **COLUMNS[name]}
    series = {one: pd.Series(values, dtype=dtypes.get(types[one], "object")) for one, values in columns.items()}
    return pd.DataFrame(series)


def _shrink(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name in KEYS:
        by = [*KEYS[name], *(["host"] if name == "week" else [])]
        return frame.groupby(by, sort=True)[ADDED[name]].sum().reset_index()
    if name == "episodes":
        return first_episodes(frame)
    return longest_gaps(frame) if name == "gaps" else frame


def first_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """The longest of these that go on, the longest others, and the longest of each person."""
    order = ["host"] if "host" in episodes else []
    ranked = episodes.assign(rank=~episodes["ongoing"].eq(True), length=episodes["start_ms"] - episodes["end_ms"])
    ranked = ranked.sort_values(["rank", "length", *order, "gpu_uuid", "pid", "start_ms"], ignore_index=True)
    of_kind = ranked.groupby("rank").cumcount() < MOST_LISTED
    of_person = ranked.groupby("identity").cumcount() < MOST_OF_PERSON
    of_person &= ranked["identity"].isin([who for who in ranked["identity"].unique().tolist() if is_person(who)])
    return ranked[of_kind | of_person].drop(columns=["rank", "length"]).reset_index(drop=True)


def longest_gaps(gaps: pd.DataFrame) -> pd.DataFrame:
    order = ["start_ms", *(["host"] if "host" in gaps else [])]
    ranked = gaps.assign(length=gaps["start_ms"] - gaps["end_ms"]).sort_values(["length", *order], kind="stable")
    return ranked.head(MOST_LISTED).drop(columns="length")
