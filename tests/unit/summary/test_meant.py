"""How much of what was idle-held was meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.config import Config, Notes
from gua_report.people.identities import resolve
from gua_report.render.attention import reasons
from gua_sample.errors import NothingToReport
from gua_sample.records import Tick
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import (
    CONFIG,
    DAY_MS,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Job,
    Report,
    busy,
    free,
    held,
    hours,
    mig,
    minutes,
    report_of,
    row,
    series,
    write,
    written,
)
from tests.notes import REASON, content, make_spool, put
from tests.recount import Recount
from tests.rolling import assert_same, expire, lab_days, roll_up_days, upkeep
from tests.users import SOMEBODY, needs_root

ME = os.geteuid()
ALICE, BOB = Job(100, "alice"), Job(200, "bob")
TEN_HOURS = 600


class Marked(NamedTuple):
    """A note of the spool's owner; times in minutes from Monday on."""

    start: int
    until: int
    about: Mapping[str, Any] = MappingProxyType({"identity": "alice"})
    reason: str = REASON

    def put(self, spool: Path, slot: int) -> None:
        start_ms, until_ms = (MONDAY_MS + minute * MINUTE_MS for minute in self[:2])
        put(spool, f"{ME}.{slot}", content(start_ms, until_ms, **{"reason": self.reason, **self.about}))


def config_of(folder: Path, *notes: Marked, exempt: dict[str, str] | None = None) -> Config:
    spool = make_spool(folder, 0o700)
    for slot, note in enumerate(notes):
        note.put(spool, slot)
    return CONFIG._replace(notes=Notes(str(spool)), exempt=exempt or {})


def report(folder: Path, ticks: list[Tick], *notes: Marked, start: int = 0, end: int = TEN_HOURS) -> Report:
    """The report of a window, in minutes from Monday on."""
    write(folder, ticks)
    start_ms, end_ms = (MONDAY_MS + minute * MINUTE_MS for minute in (start, end))
    return report_of(folder, start_ms, end_ms, config=config_of(folder, *notes))


def meant_minutes(found: Report) -> dict[str, float]:
    """Of each identity."""
    values = zip(found.identities["identity"], found.identities["meant_gpu_hours"], strict=True)
    return {who: round(value * 60, 6) for who, value in values}


def on_cards(found: Report) -> float:
    return round(found.meant_gpu_hours * 60, 6)


def test_the_part_of_an_episode_inside_a_note_is_meant_and_still_idle_held(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), Marked(120, 300))
    assert meant_minutes(found) == {"alice": 180}
    assert on_cards(found) == 180
    assert hours(found)["idle-held"] == pytest.approx(10)
    (episode,) = found.episodes.to_dict("records")
    assert episode["meant_seconds"] == 180 * 60
    assert episode["meant_reason"] == REASON
    assert episode["meant_until_ms"] == MONDAY_MS + 300 * MINUTE_MS
    assert episode["ongoing"]
    assert not episode["meant_now"]


def test_without_notes_nothing_is_meant(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)))
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 0}, 0)
    assert found.episodes[["meant_seconds", "meant_now"]].to_numpy().tolist() == [[0, False]]
    assert found.episodes[["meant_reason", "meant_until_ms"]].isna().all(axis=None)


def test_only_what_is_idle_held_is_meant(tmp_path: Path) -> None:
    ticks = minutes(0, 120, busy(ALICE)) + minutes(120, 240, held(ALICE)) + minutes(240, TEN_HOURS, free())
    assert meant_minutes(report(tmp_path, ticks, Marked(0, TEN_HOURS))) == {"alice": 120}


def test_overlapping_notes_count_once(tmp_path: Path) -> None:
    notes = [Marked(60, 180), Marked(120, 240), Marked(60, 90), Marked(500, 510, {"gpu_uuids": ["GPU-0"]})]
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), *notes)
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 190}, 190)
    assert found.episodes["meant_seconds"].tolist() == [190 * 60]


def test_the_window_cuts_what_is_meant_and_episodes_are_whole(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), Marked(60, 400), start=200, end=330)
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 130}, 130)
    assert found.episodes["meant_seconds"].tolist() == [340 * 60]


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"identity": "alice"}, {"alice": 120, "bob": 0}),
        ({"gpu_uuids": ["GPU-0"]}, {"alice": 60, "bob": 0}),
        ({"gpu_uuids": ["GPU-1"]}, {"alice": 60, "bob": 60}),
        ({"gpu_uuids": ["GPU-1"], "identity": "bob"}, {"alice": 0, "bob": 60}),
        ({"processes": [{"pid": 100, "start_time_ms": 5000}]}, {"alice": 60, "bob": 0}),
        ({"processes": [{"pid": 100, "start_time_ms": 900_000}]}, {"alice": 0, "bob": 0}),
        ({"processes": [{"pid": 100, "start_time_ms": 5000}], "identity": "bob"}, {"alice": 0, "bob": 0}),
        ({"processes": [{"pid": 100, "start_time_ms": 5000}], "gpu_uuids": ["GPU-1"]}, {"alice": 0, "bob": 0}),
    ],
)
def test_a_note_is_about_what_it_names(tmp_path: Path, about: dict[str, Any], expected: dict[str, float]) -> None:
    both = held(ALICE._replace(pid=300), BOB, index=1)
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE), both), Marked(60, 120, about))
    assert meant_minutes(found) == expected


def test_a_card_is_meant_only_while_all_that_is_held_on_it_is(tmp_path: Path) -> None:
    ticks = minutes(0, 120, held(ALICE)) + minutes(120, 240, held(ALICE, BOB)) + minutes(240, TEN_HOURS, held(ALICE))
    found = report(tmp_path, ticks, Marked(60, 300))
    assert meant_minutes(found) == {"alice": 240, "bob": 0}
    assert on_cards(found) == 120
    (tmp_path / "both").mkdir()
    found = report(tmp_path / "both", ticks, Marked(60, 300), Marked(180, 200, {"identity": "bob"}))
    assert on_cards(found) == 140


def test_what_is_meant_beside_somebody_at_work_is_theirs_and_no_cards(tmp_path: Path) -> None:
    ticks = minutes(0, TEN_HOURS, busy(ALICE._replace(sm_percent=0), BOB._replace(sm_percent=95)))
    found = report(tmp_path, ticks, Marked(60, 120))
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 60, "bob": 0}, 0)


def test_memory_of_nobody_is_never_meant(tmp_path: Path) -> None:
    both = HIDDEN._replace(jobs=(ALICE,))
    found = report(tmp_path, minutes(0, TEN_HOURS, both), Marked(60, 120, {"gpu_uuids": ["GPU-0"]}))
    assert (meant_minutes(found), on_cards(found)) == ({"(unattributed)": 0, "alice": 60}, 0)


def test_who_works_with_another_process_is_not_idle_and_so_not_meant(tmp_path: Path) -> None:
    idle, working = ALICE._replace(sm_percent=0), Job(300, "alice", sm_percent=95)
    ticks = minutes(0, 30, held(idle, BOB)) + minutes(30, 60, busy(idle, working, BOB._replace(sm_percent=0)))
    found = report(tmp_path, ticks, Marked(0, 60, {"processes": [{"pid": 100, "start_time_ms": 5000}]}), end=60)
    assert found.episodes["seconds"].max() == 3600
    held_minutes = float(row(found.identities, "identity", "alice")["idle_held_gpu_hours"]) * 60  # type: ignore[arg-type]
    assert 0 < held_minutes < 60
    assert meant_minutes(found)["alice"] == pytest.approx(held_minutes)


def test_a_slice_has_its_share(tmp_path: Path) -> None:
    slices = [mig(0, 0, jobs=(ALICE,)), mig(0, 1, 90.0, (BOB,))]
    found = report(tmp_path, minutes(0, TEN_HOURS, *slices), Marked(60, 120))
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 30, "bob": 0}, 30)


@pytest.mark.parametrize(("exempt", "expected"), [("alice", 600), ("bob", 0), ("GPU-0", 0)])
def test_exemptions_are_of_all_time(tmp_path: Path, exempt: str, expected: float) -> None:
    write(tmp_path, minutes(0, TEN_HOURS, held(ALICE)))
    config = CONFIG._replace(exempt={exempt: "a service"}, notes=Notes("/nowhere"))
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + TEN_HOURS * MINUTE_MS, config=config)
    assert (meant_minutes(found), on_cards(found)) == ({"alice": expected}, expected)
    (episode,) = found.episodes.to_dict("records")
    assert bool(episode["meant_now"]) == (expected > 0)
    assert episode["meant_until_ms"] != episode["meant_until_ms"]


def test_an_exemption_is_of_the_person_whom_the_config_names(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 60, held(ALICE)))
    config = CONFIG._replace(exempt={"alice": "x"}, people={"alice": "Alice L."}, notes=Notes("/nowhere"))
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert on_cards(found) == 0
    (line,) = found.notes  # also of a report without names, so it has none
    assert line.startswith("1 name in [exempt] without effect, as [people] gives another: exempt that person instead")
    assert "lice" not in line
    config = config._replace(exempt={"Alice L.": "x"})
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert (on_cards(found), found.notes) == (60, [])


def test_the_reason_is_that_of_the_note_in_force_else_of_the_last(tmp_path: Path) -> None:
    over = [Marked(0, 60, reason="first"), Marked(100, 200, reason="last"), Marked(60, 90, reason="between")]
    ticks = minutes(0, TEN_HOURS, held(ALICE))
    assert report(tmp_path, ticks, *over).episodes["meant_reason"].tolist() == ["last"]
    (tmp_path / "now").mkdir()
    now = [Marked(500, 700, reason="now"), Marked(550, 650, reason="shorter"), *over]
    found = report(tmp_path / "now", ticks, *now)
    assert found.episodes[["meant_reason", "meant_now"]].to_numpy().tolist() == [["now", True]]


@pytest.mark.parametrize(("until", "is_meant"), [(599, False), (600, False), (601, True)])
def test_what_goes_on_is_meant_now_if_a_note_is_in_force_at_the_windows_end(
    tmp_path: Path, until: int, is_meant: bool
) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), Marked(0, until))
    assert found.episodes["meant_now"].tolist() == [is_meant]
    assert bool(reasons(found, 10**12)) is False


def test_a_note_that_was_written_since_the_last_tick_is_in_force(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, 590, held(ALICE)), Marked(595, 700))
    (episode,) = found.episodes.to_dict("records")
    assert (episode["meant_now"], episode["meant_seconds"], episode["meant_reason"]) == (True, 0, REASON)
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 0}, 0)
    (tmp_path / "over").mkdir()
    ended = minutes(0, 580, held(ALICE)) + minutes(580, 590, free())
    found = report(tmp_path / "over", ended, Marked(595, 700))
    assert found.episodes["meant_now"].tolist() == [False]


def test_what_is_over_is_not_meant_now_though_its_note_is_in_force(tmp_path: Path) -> None:
    ticks = minutes(0, 300, held(ALICE)) + minutes(300, TEN_HOURS, free())
    found = report(tmp_path, ticks, Marked(60, 900))
    assert found.episodes[["ongoing", "meant_now", "meant_seconds"]].to_numpy().tolist() == [[False, False, 240 * 60]]


def test_it_is_not_known_what_is_meant_now_where_nobody_knows_what_goes_on(tmp_path: Path) -> None:
    ticks = minutes(0, 300, held(ALICE)) + minutes(300, TEN_HOURS, error="driver_not_loaded")
    found = report(tmp_path, ticks, Marked(60, 900))
    assert found.episodes[["ongoing", "meant_now"]].to_numpy().tolist() == [[None, None]]
    assert meant_minutes(found) == {"alice": 240}


def test_reclaiming_spares_what_is_meant(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), Marked(0, 300))
    freed = dict(zip(found.reclaim["after_seconds"], found.reclaim["freed_gpu_hours"], strict=True))
    assert freed == {1800.0: 5.0, 3600.0: 5.0, 7200.0: 5.0}  # as soon as the note is over
    assert found.reclaim_curve["freed_gpu_hours"].max() == pytest.approx(5)


def test_a_holder_who_is_spared_keeps_the_card(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE, BOB)), Marked(0, 300))
    assert found.reclaim["freed_gpu_hours"].tolist() == [5, 5, 5]


@needs_root
def test_a_users_own_note_is_about_their_processes_from_its_writing_on(open_folder: Path) -> None:
    """A note of somebody who has no name, in a spool of root's."""
    now_ms = (open_folder.stat().st_ctime_ns // 1_000_000) // MINUTE_MS * MINUTE_MS
    nameless = Job(100, None, uid=SOMEBODY, cgroup=None)
    colleague = Job(200, None, uid=SOMEBODY + 1, cgroup=None)
    write(open_folder, series(now_ms - HOUR_MS, 120, held(nameless, colleague)))
    spool = make_spool(open_folder)
    put(spool, f"{SOMEBODY}.0", content(now_ms - DAY_MS, now_ms + 2 * DAY_MS), SOMEBODY)
    config = CONFIG._replace(notes=Notes(str(spool)))
    found = report_of(open_folder, now_ms - HOUR_MS, now_ms + HOUR_MS, config=config)
    meant = meant_minutes(found)
    assert meant[f"uid:{SOMEBODY + 1}"] == 0
    assert 55 <= meant[f"uid:{SOMEBODY}"] <= 60  # not 120: nothing from before it was written
    assert found.notes == []


def test_a_spool_that_is_not_to_be_trusted_costs_a_line_and_nothing_is_meant(open_folder: Path) -> None:
    write(open_folder, minutes(0, 60, held(ALICE)))
    config = config_of(open_folder, Marked(0, 60))
    Path(config.notes.spool).chmod(0o777)
    found = report_of(open_folder, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert on_cards(found) == 0
    (line,) = found.notes
    assert "everybody may remove others' notes" in line


class NaiveMeant:
    """What is meant, counted segment by segment in plain Python."""

    def __init__(self, ticks: list[Tick], notes: Iterable[Marked], exempt: Iterable[str], start: int, end: int) -> None:
        self.count, self.start, self.end = Recount(ticks), start, end
        self.notes = [*notes, *(Marked(0, 0, {"identity": who}) for who in exempt)]
        self.exempt = set(exempt)
        self.episodes = [self._episode(*found[:4]) for found in self.count._episodes(list(range(len(ticks))))]

    def _episode(self, uuid: str, pid: int, start: int, end: int) -> dict[str, Any]:
        last = max(tick.ts_ms for tick in self.count.ticks if tick.ts_ms < end and pid in tick.processes)
        (who,) = [tick.processes[pid] for tick in self.count.ticks if tick.ts_ms == last]
        identity = resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup)
        times = [
            (max(start, from_ms), min(end, until_ms))
            for note in self.notes
            for from_ms, until_ms in [self._times(note)]
            if note.about.get("identity") in (None, identity)
            and uuid in note.about.get("gpu_uuids", [uuid])
            and pid in [one["pid"] for one in note.about.get("processes", [{"pid": pid}])]
        ]
        return {"uuid": uuid, "who": identity, "start": start, "end": end, "meant": times}

    def _times(self, note: Marked) -> tuple[int, int]:
        if note.start == note.until:  # an exemption
            return 0, 10**14
        return MONDAY_MS + note.start * MINUTE_MS, MONDAY_MS + note.until * MINUTE_MS

    def segments(self, cuts: Iterable[int]) -> list[tuple[int, int]]:
        edges = sorted({self.start, self.end, *(cut for cut in cuts if self.start < cut < self.end)})
        return list(pairwise(edges))

    def _edges(self) -> set[int]:
        return {ms for one in self.episodes for pair in [(one["start"], one["end"]), *one["meant"]] for ms in pair}

    def identities(self) -> dict[str, float]:
        """Hours of each identity."""
        places = list(range(len(self.count.ticks)))
        idle = self.count._identities(places, self.start, self.end)
        hours = range(self.start // HOUR_MS * HOUR_MS, self.end, HOUR_MS)
        segments, sums = self.segments({*self._edges(), *hours}), dict[tuple[str, str, int], int]()
        for begin, until in segments:
            for who, uuid in {
                (one["who"], one["uuid"])
                for one in self.episodes
                if any(first <= begin and until <= last for first, last in one["meant"])
            }:
                key = who, uuid, begin // HOUR_MS * HOUR_MS
                sums[key] = sums.get(key, 0) + until - begin
        found: dict[str, float] = {}
        for (who, uuid, hour), ms in sums.items():
            found[who] = found.get(who, 0) + min(ms, idle.get((hour, uuid, who, "idle-held"), 0)) / HOUR_MS
        return found

    def cards(self) -> float:
        """Hours of cards on which all that is held is meant."""
        holds = self.count._holds(list(range(len(self.count.ticks))), 0, 10**14)
        total = 0
        for begin, until in self.segments({*self._edges(), *(ms for _, *pair in holds for ms in pair)}):
            for uuid in {uuid for uuid, first, last in holds if first <= begin and until <= last}:
                there = [
                    one
                    for one in self.episodes
                    if one["uuid"] == uuid and one["start"] <= begin and until <= one["end"]
                ]
                if there and all(
                    any(first <= begin and until <= last for first, last in one["meant"]) for one in there
                ):
                    total += until - begin
        return total / HOUR_MS


abouts = st.one_of(
    st.builds(lambda number: {"identity": f"user{number}"}, st.integers(0, 2)),
    st.builds(lambda number: {"gpu_uuids": [f"GPU-{number}"]}, st.integers(0, 1)),
    st.builds(lambda pid: {"processes": [{"pid": pid, "start_time_ms": 5000}]}, st.integers(1, 60)),
)
marks = st.builds(
    lambda start, length, about: Marked(start, start + length, about),
    st.integers(-600, 600),
    st.integers(1, 900),
    abouts,
)


@many
@given(histories(), part, part, part, st.lists(marks, max_size=4), st.sets(st.sampled_from(["user0", "alice"])))
def test_it_is_what_counting_gives_never_more_than_is_held_and_the_same_from_rollups(
    moments: list[Moment], midnight: float, one: float, two: float, notes: list[Marked], exempt: set[str]
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    end += 1
    with written(ticks) as folder:
        config = config_of(Path(folder), *notes, exempt=dict.fromkeys(exempt, "a service"))
        try:
            found = report_of(folder, start, end, config=config)
        except NothingToReport:
            return
        roll_up_days(folder, {0})
        assert_same(found, report_of(folder, start, end, config=config))
    people = found.identities.set_index("identity")
    assert (people["meant_gpu_hours"] <= people["idle_held_gpu_hours"] + 1e-9).all()
    assert found.meant_gpu_hours <= hours(found)["idle-held"] + 1e-9
    freed = found.reclaim_curve["freed_gpu_hours"].max()
    assert freed + found.meant_gpu_hours <= hours(found)["idle-held"] + 1e-9
    naive = NaiveMeant(ticks, notes, exempt, found.window.start_ms, end)
    expected = {who: value for who, value in naive.identities().items() if value > 0}
    assert {who: value for who, value in people["meant_gpu_hours"].items() if value > 0} == pytest.approx(expected)
    assert found.meant_gpu_hours == pytest.approx(naive.cards())


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_laboratory_is_the_same_from_rollups_and_where_ticks_have_expired(tmp_path: Path, zone: str) -> None:
    start, end = lab_days(tmp_path)
    config = config_of(
        tmp_path, *(Marked(day * 1440 - 4000, day * 1440, {"identity": who}) for day, who in enumerate(("rosa", "jan")))
    )._replace(exempt={"ollama": "a service"})
    period = start // HOUR_MS * HOUR_MS + 5 * HOUR_MS, end - 3 * HOUR_MS
    expected = report_of(tmp_path, *period, zone, config=config)
    assert {who for who, value in meant_minutes(expected).items() if value} == {"rosa", "jan", "ollama"}
    assert expected.meant_gpu_hours > 1
    roll_up_days(str(tmp_path))
    assert_same(expected, report_of(tmp_path, *period, zone, config=config))
    upkeep(tmp_path, end + 2 * DAY_MS, config)
    expire(tmp_path, "2026-11-14", "2026-11-15")
    found = report_of(tmp_path, *period, zone, config=config)
    assert found.from_rollups_seconds > 0
    assert meant_minutes(found) == pytest.approx(meant_minutes(expected), rel=0.01)
    assert found.meant_gpu_hours == pytest.approx(expected.meant_gpu_hours, rel=0.01)
