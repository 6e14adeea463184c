"""The part of idle-held time that is meant: what people's notes, and exemptions of the configuration, are about.

Hours stay idle-held; these tell how much of them is meant. All is made from whole episodes and hourly sums, so that it
is equal from ticks and from rollups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.rollups.hourly_sums import IDENTITY_SUMS
from gua_report.summary.intervals import overlap, union
from gua_report.summary.plan import Scope
from gua_report.ticks.arrays import Booleans, Floats, Integers, pack, unpack
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS, Window, number_of
from gua_sample.notes import LATEST_MS, KnownNotes, Note
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD

COLUMNS = ["meant_seconds", "meant_reason", "meant_until_ms", "meant_now"]


class Moment(NamedTuple):
    """When it is asked what goes on."""

    seen_ms: int | None  # the last tick that saw cards; None: it is not known what goes on
    now_ms: int


class Meant(NamedTuple):
    """A row for each note that is about an episode."""

    episode: Integers  # its position
    times: Integers  # what both have in common, as start and end
    note: Integers  # its position in `notes`
    notes: list[Note]


def find_meant(episodes: pd.DataFrame, known: KnownNotes, moment: Moment) -> Meant:
    """Find the notes about each episode; of those that go on, also notes that have begun since the last tick."""
    identity, names = pd.factorize(episodes["identity"])
    start, end = (episodes[name].to_numpy(dtype=np.int64) for name in ("start_ms", "end_ms"))
    reached = np.where(_go_on(episodes, moment), np.maximum(end, moment.now_ms + 1), end)
    found: list[Integers] = []
    notes: list[Note] = []
    for number, name in enumerate(names.tolist()):
        about = known.about(name)
        own = np.flatnonzero(identity == number) if about else np.zeros(0, np.int64)
        for note in about:
            until_ms = LATEST_MS if note.until_ms is None else note.until_ms
            near = own[(start[own] < until_ms) & (reached[own] > note.start_ms)]
            near = near[_is_about(note, episodes, near)]
            first = np.maximum(start[near], note.start_ms)
            last = np.maximum(first, np.minimum(end[near], until_ms))
            found.append(np.column_stack((near, first, last, np.full(len(near), len(notes)))))
            notes.append(note)
    rows = np.concatenate([np.zeros((0, 4), np.int64), *found])
    return Meant(rows[:, 0], rows[:, 1:3], rows[:, 3], notes)


def _go_on(episodes: pd.DataFrame, moment: Moment) -> Booleans:
    end = episodes["end_ms"].to_numpy(dtype=np.int64)
    return np.zeros(len(end), bool) if moment.seen_ms is None else end > moment.seen_ms


def _is_about(note: Note, episodes: pd.DataFrame, near: Integers) -> list[bool] | slice:
    if not note.gpu_uuids and not note.processes:
        return slice(None)
    rows = episodes.iloc[near]
    facts = zip(rows["gpu_uuid"], rows["pid"], rows["start_time_ms"].astype("float64"), strict=True)
    return [note.is_about(uuid, int(pid), start_ms) for uuid, pid, start_ms in facts]


def with_meant(episodes: pd.DataFrame, meant: Meant, moment: Moment) -> pd.DataFrame:
    """The episodes with COLUMNS: how long each was meant, why and until when, and whether it is right now.

    The reason is that of the note that is in force, else of the last one; `meant_until_ms` is NaN if it has no end.
    """
    seconds = np.zeros(len(episodes))
    reason = np.full(len(episodes), None, dtype=object)
    until_ms = np.full(len(episodes), np.nan)
    is_now = np.zeros(len(episodes), bool)
    if len(meant.episode):
        key, times = _unite(meant.episode, meant.times)
        seconds += np.bincount(key, weights=times[:, 1] - times[:, 0], minlength=len(episodes)) / 1000
        ends = np.array([np.inf if note.until_ms is None else note.until_ms for note in meant.notes])[meant.note]
        in_force = np.array([note.is_in_force(moment.now_ms) for note in meant.notes])[meant.note]
        order = np.lexsort((ends, in_force, meant.episode))
        last = order[np.append(np.diff(meant.episode[order]) != 0, True)]
        place = meant.episode[last]
        reason[place] = [meant.notes[number].reason for number in meant.note[last]]
        until_ms[place] = np.where(np.isinf(ends[last]), np.nan, ends[last])
        is_now[place] = in_force[last]
    is_now &= _go_on(episodes, moment)
    return episodes.assign(**dict(zip(COLUMNS, (seconds, reason, until_ms, is_now), strict=True)))


def meant_gpu_hours(scope: Scope, presences: pd.DataFrame, episodes: pd.DataFrame, meant: Meant) -> dict[str, float]:
    """The GPU-hours of each identity that are meant. `presences` are the sums of identities by hour.

    On each card and in each hour they are at most the identity's own idle-held time, as somebody who works there with
    another process is not idle.
    """
    if not len(meant.episode):
        return {}
    window, marked = scope.window, episodes.iloc[meant.episode]
    people, cards = (pd.Index(marked[name].unique()) for name in ("identity", "gpu_uuid"))
    pairs, pair = np.unique(_pair(marked, people, cards), return_inverse=True)
    key, times = _unite(pair, np.clip(meant.times, window.start_ms, window.end_ms))
    idle = presences[presences["state"].to_numpy(dtype=np.int64) == CODE_OF[IDLE_HELD]]
    idle = idle[np.isin(_pair(idle, people, cards), pairs)]
    found = _sum_by_hour(idle, np.searchsorted(pairs, _pair(idle, people, cards)))
    length_ms = np.where(np.isin(found.hour_ms // DAY_MS, [*map(number_of, scope.plan.days)]), HOUR_MS, scope.grid[1])
    start, end = (np.clip(found.hour_ms + more, window.start_ms, window.end_ms) for more in (0, length_ms))
    # All pairs are laid end to end on one line, so that one look does for all.
    line = times - window.start_ms + (key * window.length_ms)[:, np.newaxis]
    place = found.pair * window.length_ms - window.start_ms
    covered_ms = np.minimum(overlap(line, start + place, end + place), found.weight_ms)
    share = np.divide(found.gpu_ms, found.weight_ms, out=np.zeros(len(place)), where=found.weight_ms > 0)
    who = pairs[found.pair] // len(cards)
    hours = np.bincount(who, weights=covered_ms * share, minlength=len(people)) / HOUR_MS
    return dict(zip(people.tolist(), hours.tolist(), strict=True))


def _pair(frame: pd.DataFrame, people: pd.Index[str], cards: pd.Index[str]) -> Integers:
    """A number for the identity and the card of each row; negative if it is none of these."""
    who, card = people.get_indexer(pd.Index(frame["identity"])), cards.get_indexer(pd.Index(frame["gpu_uuid"]))
    return np.where((who < 0) | (card < 0), -1, pack((who.astype(np.int64), card.astype(np.int64)), [len(cards)]))


class IdleHours(NamedTuple):
    pair: Integers
    hour_ms: Integers
    weight_ms: Floats
    gpu_ms: Floats


def _sum_by_hour(idle: pd.DataFrame, pair: Integers) -> IdleHours:
    """The sums of each pair and hour: two identities of one person, or two parts of a window, may have the same."""
    hours, hour = np.unique(idle["hour_ms"].to_numpy(dtype=np.int64), return_inverse=True)
    found, row = np.unique(pack((pair, hour), [len(hours)]), return_inverse=True)
    pair, hour = unpack(found, [len(hours)])
    columns = (idle[name].to_numpy(dtype="float64") for name in IDENTITY_SUMS)
    sums = [np.bincount(row, weights=column, minlength=len(found)).astype("float64") for column in columns]
    return IdleHours(pair, hours[hour], *sums)


def meant_card_hours(holds: pd.DataFrame, episodes: pd.DataFrame, meant: Meant, window: Window) -> float:
    """The idle-held GPU-hours of cards on which all that is held is meant."""
    if not len(meant.episode):
        return 0.0
    uuids = episodes["gpu_uuid"].to_numpy(dtype=object)
    whole = episodes[["start_ms", "end_ms"]].to_numpy(dtype=np.int64)
    rest_of, rest = _subtract(whole, *_unite(meant.episode, meant.times))
    found = 0.0
    for uuid, held in holds[holds["gpu_uuid"].isin(set(uuids[meant.episode]))].groupby("gpu_uuid", sort=False):
        edges = np.clip(held[["start_ms", "end_ms"]].to_numpy(dtype=np.int64), window.start_ms, window.end_ms)
        anybody = overlap(union(whole[uuids == uuid]), edges[:, 0], edges[:, 1])
        unmeant = overlap(union(rest[uuids[rest_of] == uuid]), edges[:, 0], edges[:, 1])
        found += float(((anybody - unmeant) * held["share"].to_numpy(dtype="float64")).sum())
    return found / HOUR_MS


def _unite(key: Integers, times: Integers) -> tuple[Integers, Integers]:
    """The union of the intervals of each key: its disjoint intervals in order, with the key of each."""
    # All are laid end to end on one line, so that one union does for all keys.
    origin, length = times.min(), np.ptp(times) + 1
    joined = union(times - origin + (key * length)[:, np.newaxis])
    keys = joined[:, 0] // length
    return keys, joined - (keys * length)[:, np.newaxis] + origin


def _subtract(whole: Integers, key: Integers, times: Integers) -> tuple[Integers, Integers]:
    """What is left of the intervals without those of their own key, which is their position, and whose each part is."""
    everything = np.arange(len(whole))
    # What is left begins where the whole or one that is taken away ends, and ends where one begins, or the whole ends.
    sides = []
    for own, taken in ((whole[:, 0], times[:, 1]), (whole[:, 1], times[:, 0])):
        of, at = np.append(everything, key), np.append(own, taken)
        order = np.lexsort((at, of))
        sides.append((of[order], at[order]))
    (of, start), (_, end) = sides
    left = end > start
    return of[left], np.column_stack((start, end))[left]
