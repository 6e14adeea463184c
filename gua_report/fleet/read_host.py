"""Reading a host's file for a fleet's report: its rows, cut to the window, with names that no other host has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.fleet.host_files import HostFile, check_whole, is_short_of_memory
from gua_report.people.identities import NOBODY, UID, apply_mapping, is_person
from gua_report.rollups.hourly_sums import CARD_SUMS, Rollup
from gua_report.rollups.index import keep_open, open_rollups
from gua_report.rollups.reader import Columns, Reader, frame_of
from gua_report.summary.build import LEAST_OBSERVED_BEFORE, find_notices
from gua_report.summary.gather import find_clashes, read_stretches, share_observed
from gua_report.summary.now import NewestTick, judge_newest
from gua_report.summary.plan import FULL_HOURS, DayPlan, find_grid, make_plan
from gua_report.summary.report import CLASHES, CUT_HOURS, UTC_HOURS, WARNING, Notice, spell_published, spell_window
from gua_report.ticks.arrays import Booleans, Floats, Integers
from gua_report.ticks.coverage import DRIVER_ERROR, LEFT_OUT, NOT_COLLECTED, Gap, find_gaps, length_of, mark_days
from gua_report.ticks.episodes import follow, keys_of
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, Window, midnight_ms, number_of, show
from gua_sample.errors import CorruptPartition, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import DEFAULT_INTERVAL_MS, STATES

MOST_NAMES = 10_000  # of people, and of cards: the machine that reports keeps all of them
Shares = dict[int, float]  # of hours that the window cuts, by their beginning: the share of their time that counts


class Host(NamedTuple):
    number: int  # of the file, among those that are read together: its cards are called 3:GPU-4711
    file: HostFile
    rows: dict[str, Columns]  # those of a Rollup
    episodes: list[Columns]
    before_ms: Floats | None  # by state, in the window before; None if too little of it was observed
    gaps: list[Gap]
    start_ms: int  # of its time in the window
    newest: NewestTick
    drivers: list[str]
    notices: list[Notice]


def read_host(number: int, file: HostFile, newest_day: str, window: Window, config: Config) -> Host:
    """Read the file, without days of other rules. Raises GuaError."""
    check_whole(file.path)
    with keep_open(file.path):
        history = History(os.path.dirname(file.path), has_ticks=False)
        plan = make_plan(history, config.policy, file.path).without_other_rules()
        for make_smaller in (DayPlan.without_damaged, DayPlan.without_rollups):
            try:
                return _Source(file, plan, window, config).read(number, newest_day)
            except CorruptPartition as error:
                if is_short_of_memory(error):
                    raise
                plan = make_smaller(plan, error)
        return _Source(file, plan, window, config).read(number, newest_day)


def is_of_fleet(identity: str) -> bool:
    """Whether this is the same one on all hosts: a user with a name, or nobody."""
    return identity in NOBODY or (is_person(identity) and not identity.startswith(UID))


def name_at(identity: str, host: str) -> str:
    """The name in the fleet: docker:3f2a9c81d0b7@gpu07, or ada wherever she is."""
    return identity if is_of_fleet(identity) else f"{identity}@{host}"


class _Source(NamedTuple):
    file: HostFile
    plan: DayPlan
    window: Window
    config: Config

    def read(self, number: int, newest_day: str) -> Host:
        with open_rollups(self.file.path) as connection:
            reader = Reader(connection, 0, 0, lambda uuid: f"{number}:{uuid}", self._name)
            spans, outermost_ms = self._spans(reader), self._outermost_ms(reader)
            own = self.window._replace(start_ms=max(self.window.start_ms, min(outermost_ms)))
            notices = find_notices(self.plan, own)
            inside = (spans["start_ms"] < own.end_ms) & (spans["end_ms"] > own.start_ms)
            if not (inside & pd.isna(spans["kind"])).any():
                raise _nothing(own, bool(inside.any()), notices)
            rows = {name: self._rows(reader, getattr(Reader, name)) for name in Rollup._fields}
            people = filter(is_of_fleet, pd.unique(rows["identities"]["identity"]))
            cards = {*rows["unpartitioned"]["gpu_uuid"], *pd.unique(rows["cards"]["gpu_uuid"])}
            if max(len(cards), sum(1 for _ in people)) > MOST_NAMES:
                raise StoreError("its file has more people and cards than any host")
            shares = _shares(spans, self.window)
            return Host(
                number=number,
                file=self.file,
                rows={name: _cut(columns, self.window, shares) for name, columns in rows.items()},
                episodes=self._episodes(reader),
                before_ms=self._before_ms(reader, spans) if min(outermost_ms) < self.window.start_ms else None,
                gaps=self._gaps(spans, own, newest_day),
                start_ms=own.start_ms,
                newest=self._newest(reader, max(outermost_ms)),
                drivers=sorted({str(one) for one in spans["driver_version"][inside] if one is not None}),
                notices=[*self._doubts(connection, shares), *notices],
            )

    def _name(self, identity: str) -> str:
        return name_at(apply_mapping(identity, self.config.people), self.file.host)

    def _columns(self, reader: Reader, days: list[str], what: Callable[[Reader], Columns]) -> Columns:
        """What a method of Reader gives of these stored days."""

        def read(_: str, first: str, last: str) -> Columns:
            return what(reader.between(number_of(first), number_of(last)))

        parts = read_stretches(self.plan, days, read) or [what(reader.between(0, 0))]
        return join(parts)

    def _rows(self, reader: Reader, what: Callable[[Reader], Columns], window: Window | None = None) -> Columns:
        """The rows of the window's days, without those of days that are left out."""
        wanted = window or self.window
        found = self._columns(reader, self.plan.find_days(wanted.start_ms, wanted.end_ms), what)
        return _only(found, self._is_used(found)) if self.plan.lost else found

    def _is_used(self, columns: Columns) -> Booleans:
        times = next(columns[name] for name in ("hour_ms", "start_ms", "day_ms") if name in columns)
        return np.isin(times // DAY_MS, [*map(number_of, self.plan.days)])

    def _outermost_ms(self, reader: Reader) -> list[int]:
        times = [midnight_ms(day) for day in self.plan.lost]
        stored = sorted(self.plan.days)
        for day in stored[:1] + stored[-1:]:
            spans = self._columns(reader, [day], Reader.spans)
            times += [*spans["start_ms"].tolist(), *(spans["end_ms"] - 1).tolist()]
        if not times or min(times) >= self.window.end_ms:
            raise NothingToReport(f"no ticks {spell_window(self.window)}")
        return times

    def _spans(self, reader: Reader) -> Columns:
        """Those of both windows, of two days before, and of one after."""
        days, first, last = sorted(self.plan.days), day_of(self.window.before().start_ms), day_of(self.window.end_ms)
        earlier, later = [day for day in days if day < first], [day for day in days if day > last]
        wanted = [*earlier[-2:], *(day for day in days if first <= day <= last), *later[:1]]
        found = self._columns(reader, wanted, Reader.spans)
        return _only(found, np.isin(found["start_ms"] // DAY_MS, [*map(number_of, wanted)]))

    def _gaps(self, spans: Columns, own: Window, newest_day: str) -> list[Gap]:
        """The gaps, with what was not collected, or is left out, as such."""
        after_ms = midnight_ms(newest_day) + DAY_MS
        missing = {day_of(ms): NOT_COLLECTED for ms in range(after_ms, own.end_ms, DAY_MS)}
        return mark_days(find_gaps(spans, own.start_ms, own.end_ms), missing | dict.fromkeys(self.plan.lost, LEFT_OUT))

    def _before_ms(self, reader: Reader, spans: Columns) -> Floats | None:
        before = self.window.before()
        missed_ms = length_of(find_gaps(spans, before.start_ms, before.end_ms))
        if missed_ms > (1 - LEAST_OBSERVED_BEFORE) * before.length_ms:
            return None
        found = _cut(self._rows(reader, Reader.states, before), before, _shares(spans, before))
        return np.bincount(found["state"], found["gpu_ms"], len(STATES)).astype(float)

    def _episodes(self, reader: Reader) -> list[Columns]:
        """All that reach into the window, whole, and some others."""
        found, window = self._rows(reader, Reader.episodes), self.window

        def find(ms: int) -> Columns | None:
            day = day_of(ms)
            return self._columns(reader, [day], Reader.episodes) if day in self.plan.days else None

        parts = [found]
        for ms, step, joins in ((window.start_ms, -DAY_MS, "joins_before"), (window.end_ms - 1, DAY_MS, "joins_after")):
            is_there = found["start_ms"] // DAY_MS == ms // DAY_MS
            is_inside = (found["end_ms"] > window.start_ms) & (found["start_ms"] < window.end_ms)
            parts += follow(keys_of(found, is_there & is_inside & found[joins]), find, ms, step)
        return parts

    def _newest(self, reader: Reader, newest_ms: int) -> NewestTick:
        day = day_of(newest_ms)
        if day in self.plan.lost:
            return NewestTick(newest_ms, None)
        spans = self._columns(reader, [day], Reader.spans)
        starts, ends, kinds, boots = (spans[name].tolist() for name in ("start_ms", "end_ms", "kind", "boot_id"))
        intervals = [DEFAULT_INTERVAL_MS] * len(starts)  # a stored day does not know them
        return judge_newest(newest_ms, starts, [end - 1 for end in ends], kinds, boots, intervals)

    def _doubts(self, connection: Any, shares: Shares) -> list[Notice]:
        notices = [Notice(WARNING, detail=warning) for warning in self.plan.warnings]
        if find_grid(self.window._replace(start_ms=self.window.before().start_ms)) != FULL_HOURS:
            notices.append(Notice(UTC_HOURS))
        if self.config.people:  # with names as they are stored: of one person, there may be several
            found = self._rows(Reader(connection, 0, 0), Reader.identities)
            notices += [Notice(CLASHES)] if find_clashes(frame_of(found), self.config.people) else []
        if cut := [max(hour_ms, self.window.start_ms) for hour_ms, share in sorted(shares.items()) if share < 1]:
            notices.append(Notice(CUT_HOURS, detail=", ".join(show(ms, self.window.zone) for ms in cut)))
        return notices


def _nothing(own: Window, has_ticks: bool, notices: list[Notice]) -> NothingToReport:
    """Why there is nothing of the host, for who reads a published file: no ticks were ever beside it."""
    said = [*map(spell_published, notices)]
    if has_ticks:
        said.insert(0, f"no card was seen {spell_window(own)}, as the driver failed ({DRIVER_ERROR})")
    return NothingToReport("; ".join(said) or f"no ticks {spell_window(own)}")


def _shares(spans: Columns, window: Window) -> Shares:
    hours = {ms // HOUR_MS * HOUR_MS for ms in (window.start_ms, window.end_ms) if ms % HOUR_MS}
    return {ms: share_observed(spans, max(ms, window.start_ms), min(ms + HOUR_MS, window.end_ms)) for ms in hours}


def _cut(columns: Columns, window: Window, shares: Mapping[int, float]) -> Columns:
    """The rows of the window's hours; of an hour that it cuts, a share."""
    if "hour_ms" not in columns:
        return columns
    hours: Integers = columns["hour_ms"]
    found = _only(columns, (hours >= window.start_ms // HOUR_MS * HOUR_MS) & (hours < window.end_ms))
    if not shares:
        return found
    factor = np.ones(len(found["hour_ms"]))
    for hour_ms, share in shares.items():
        factor[found["hour_ms"] == hour_ms] = share
    return {name: values * factor if name in CARD_SUMS else values for name, values in found.items()}


def join(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _only(columns: Columns, is_wanted: Booleans) -> Columns:
    return columns if is_wanted.all() else {name: values[is_wanted] for name, values in columns.items()}
