"""The part of idle-held time that is meant, by people's notes and exemptions of the configuration; and the part of the
rest that a rule "reclaim memory after some idle time" would have freed.

Hours stay idle-held; these tell how much of them is meant. All is made from whole episodes and hourly sums, so that it
is equal from ticks and from rollups.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.machine.notes import KnownNotes
from gua_report.people.identities import UNATTRIBUTED
from gua_report.rollups.hourly_sums import IDENTITY_SUMS
from gua_report.summary.intervals import overlap, union
from gua_report.summary.plan import Scope
from gua_report.ticks.arrays import Booleans, Integers
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS, Window, number_of
from gua_sample.notes import Note
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD

COLUMNS = ["meant_seconds", "meant_reason", "meant_until_ms", "meant_now"]
NEVER = np.zeros((0, 2), np.int64)
# The times of the curve: closer where most people would set a rule.
CURVE_MINUTES = (0, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440, 2880)
CURVE_MS = tuple(minutes * 60_000 for minutes in CURVE_MINUTES)


class Moment(NamedTuple):
    now_ms: int
    end_ms: int  # of the window


class Meant(NamedTuple):
    """What is meant of each episode that notes are about, by its position."""

    times: dict[int, Integers]  # when: disjoint, in order
    notes: dict[int, Note]  # why: the note that is in force, else the one that ended last

    def join(self, positions: Integers) -> Integers:
        return np.concatenate([NEVER, *(self.times[one] for one in positions.tolist() if one in self.times)])


def find_meant(episodes: pd.DataFrame, known: KnownNotes, moment: Moment) -> Meant:
    """Find the notes about each episode; of those that go on, also notes that have begun since the last tick.

    `seen_ms` in the episodes is the last tick that saw cards; NaN if it is not known which of them go on.
    """
    start, end = (episodes[name].to_numpy(dtype=np.int64) for name in ("start_ms", "end_ms"))
    reached = np.where(_go_on(episodes), np.maximum(end, moment.now_ms + 1), end)
    times, notes = defaultdict[int, list[Integers]](list), dict[int, Note]()
    for identity, own in _places(episodes, "identity").items():
        for note in known.about(identity):
            # What nobody visible holds is nobody's to mark, unless it is named.
            if identity == UNATTRIBUTED and not note.identity:
                continue
            near = own[(start[own] < note.end_ms) & (reached[own] > note.start_ms)]
            for one in _find_about(note, episodes, near).tolist():
                first = max(start[one], note.start_ms)
                times[one].append(np.array([first, max(first, min(end[one], note.end_ms))]))
                notes[one] = max(note, notes.get(one, note), key=lambda it: (it.is_in_force(moment.now_ms), it.end_ms))
    return Meant({one: union(np.array(found)) for one, found in times.items()}, notes)


def _places(episodes: pd.DataFrame, by: str | list[str]) -> dict[Any, Integers]:
    return {key: np.asarray(places, np.int64) for key, places in episodes.groupby(by).indices.items()}


def _go_on(episodes: pd.DataFrame) -> Booleans:
    goes_on: Booleans = episodes["end_ms"].to_numpy(dtype=np.int64) > episodes["seen_ms"].to_numpy(dtype="float64")
    return goes_on


def _find_about(note: Note, episodes: pd.DataFrame, near: Integers) -> Integers:
    """Those of the episodes that the note is about. Few are looked at one by one: either may name very many."""
    if note.gpu_uuids:
        near = near[episodes["gpu_uuid"].iloc[near].isin(note.gpu_uuids)]
    if not note.processes:
        return near
    near = near[episodes["pid"].iloc[near].isin([pid for pid, _ in note.processes])]
    rows, of_any_card = episodes.iloc[near], note._replace(gpu_uuids=())
    facts = zip(rows["pid"], rows["start_time_ms"].astype("float64"), strict=True)
    return near[[of_any_card.is_about("", int(pid), start_ms) for pid, start_ms in facts]]


def with_meant(episodes: pd.DataFrame, meant: Meant, moment: Moment) -> pd.DataFrame:
    """The episodes with COLUMNS: how long each was meant, why and until when, and whether it is right now.

    The reason is that of the note that is in force, else of the last one; `meant_until_ms` is NaN if it has no end.
    """
    seconds = np.zeros(len(episodes))
    reason = np.full(len(episodes), None, dtype=object)
    until_ms = np.full(len(episodes), np.nan)
    is_now = np.zeros(len(episodes), bool)
    for place, note in meant.notes.items():
        seconds[place] = np.ptp(np.minimum(meant.times[place], moment.end_ms), axis=1).sum() / 1000
        reason[place], is_now[place] = note.reason, note.is_in_force(moment.now_ms)
        until_ms[place] = np.nan if note.until_ms is None else note.until_ms
    is_now &= _go_on(episodes)
    reasons = pd.Series(reason, episodes.index, dtype=object)  # else None would become NaN where there are texts, too
    columns: list[Any] = [seconds, reasons, until_ms, is_now]
    return episodes.assign(**dict(zip(COLUMNS, columns, strict=True)))


def meant_gpu_hours(
    presences: pd.DataFrame, episodes: pd.DataFrame, meant: Meant, window: Window, scope: Scope | None = None
) -> dict[str, float]:
    """The GPU-hours of each identity that are meant. `presences` are the sums of identities by hour.

    Without a scope, all of them come from rollups, which have full hours.

    On each card and in each hour they are at most the identity's own idle-held time, as somebody who works there with
    another process is not idle.
    """
    if not meant.times:
        return {}
    days, cell_ms = ([*map(number_of, scope.plan.days)], scope.grid[1]) if scope else ([], HOUR_MS)
    marked = episodes.iloc[[*meant.times]]
    idle = presences[presences["state"].to_numpy(dtype=np.int64) == CODE_OF[IDLE_HELD]]
    idle = idle[idle["identity"].isin(marked["identity"]) & idle["gpu_uuid"].isin(marked["gpu_uuid"])]
    places = _places(episodes, ["identity", "gpu_uuid"])
    hours = dict.fromkeys(marked["identity"].tolist(), 0.0)
    for (who, uuid), own in idle.groupby(["identity", "gpu_uuid"]):
        sums = own.astype(dict.fromkeys(IDENTITY_SUMS, "float64")).groupby("hour_ms")[IDENTITY_SUMS].sum()
        weight_ms, gpu_ms = sums.to_numpy().T
        hour_ms = sums.index.to_numpy(dtype=np.int64)
        length_ms = np.where(np.isin(hour_ms // DAY_MS, days), HOUR_MS, cell_ms)
        start, end = (np.clip(edge_ms, window.start_ms, window.end_ms) for edge_ms in (hour_ms, hour_ms + length_ms))
        times = meant.join(places.get((who, uuid), np.zeros(0, np.int64)))
        covered_ms = np.minimum(overlap(union(times), start, end), weight_ms)
        share = np.divide(gpu_ms, weight_ms, out=np.zeros(len(sums)), where=weight_ms > 0)
        hours[who] += float((covered_ms * share).sum()) / HOUR_MS
    return hours


def meant_card_hours(holds: pd.DataFrame, episodes: pd.DataFrame, meant: Meant, window: Window) -> float:
    """The idle-held GPU-hours of cards on which all that is held is meant."""
    if not meant.times:
        return 0.0
    cards = set(episodes["gpu_uuid"].iloc[[*meant.times]])
    whole = episodes[["start_ms", "end_ms"]].to_numpy(dtype=np.int64)
    (others,) = np.nonzero(episodes["gpu_uuid"].isin(cards) & ~np.isin(np.arange(len(episodes)), [*meant.times]))
    left, of = _join({one: _subtract(whole[one], times) for one, times in meant.times.items()})
    rest = np.concatenate((whole[others], left)), np.concatenate((others, of))
    return next(_hours_without(holds[holds["gpu_uuid"].isin(cards)], episodes, window, [rest]))


def freed_gpu_hours(
    holds: pd.DataFrame, episodes: pd.DataFrame, meant: Meant, window: Window, after_ms: tuple[int, ...]
) -> pd.DataFrame:
    """For each time: the idle-held GPU-hours in the window in which every holder had been idle for at least as long.

    Unattributed memory can't be reclaimed from anybody, so it frees nothing. What is meant is spared.
    """
    start, end = episodes[["start_ms", "end_ms"]].to_numpy(dtype=np.int64).T
    spared, of = _join(meant.times)
    young = (np.column_stack((start, np.minimum(end, start + after))) for after in after_ms)
    kept = ((np.concatenate((times, spared)), np.concatenate((np.arange(len(start)), of))) for times in young)
    freed = [*_hours_without(holds, episodes, window, kept)]
    seconds = [after / 1000 for after in after_ms]
    return pd.DataFrame({"after_seconds": seconds, "freed_gpu_hours": np.array(freed, dtype="float64")})


def _join(times: Mapping[int, Integers]) -> tuple[Integers, Integers]:
    """The times of episodes, and the position of the episode of each."""
    lengths = [len(some) for some in times.values()]
    return np.concatenate([NEVER, *times.values()]), np.repeat(np.array([*times], np.int64), lengths)


def _hours_without(
    holds: pd.DataFrame, episodes: pd.DataFrame, window: Window, kept: Iterable[tuple[Integers, Integers]]
) -> Iterator[float]:
    """The GPU-hours of holds without each of these times, which come with the positions of their episodes."""
    card, uuids = pd.factorize(holds["gpu_uuid"])
    of_card = pd.Index(uuids).get_indexer(pd.Index(episodes["gpu_uuid"]))

    def lay(times: Integers, cards: Integers) -> Integers:
        """All cards are laid end to end on one line, so that one look does for all."""
        laid: Integers = np.clip(times, window.start_ms, window.end_ms) + (cards * window.length_ms)[:, np.newaxis]
        return laid[cards >= 0]

    start, end = lay(holds[["start_ms", "end_ms"]].to_numpy(dtype=np.int64), card).T
    anybody = overlap(union(lay(episodes[["start_ms", "end_ms"]].to_numpy(dtype=np.int64), of_card)), start, end)
    for times, of in kept:
        lost = anybody - overlap(union(lay(times, of_card[of])), start, end)
        yield float((lost * holds["share"].to_numpy(dtype="float64")).sum()) / HOUR_MS


def _subtract(whole: Integers, times: Integers) -> Integers:
    """What is left of an interval without these, which are disjoint, in order and within it."""
    left = np.column_stack((np.append(whole[0], times[:, 1]), np.append(times[:, 0], whole[1])))
    return left[left[:, 1] > left[:, 0]]
