"""How much of what was idle-held was meant."""

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
from gua_sample.notes import Note
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


def test_notes_and_episodes_of_very_many_processes_are_not_compared_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may have thousands of both, and so keep everybody's reports waiting for minutes."""
    looked, is_about = list[int](), Note.is_about
    monkeypatch.setattr(Note, "is_about", lambda *given: looked.append(given[2]) or is_about(*given))  # type: ignore[func-returns-value]
    ticks = [one for pid in range(100, 200) for one in minutes(2 * pid, 2 * pid + 2, held(Job(pid, "alice")))]
    cards = [*(f"GPU-{number}" for number in range(1000, 1999)), "GPU-0"]
    others = [{"pid": pid, "start_time_ms": 5} for pid in range(1000, 1999)]
    about = {"identity": "alice", "gpu_uuids": cards, "processes": [*others, {"pid": 150, "start_time_ms": 5000}]}
    found = report(tmp_path, ticks, Marked(0, TEN_HOURS, about))
    marked = found.episodes[found.episodes["meant_seconds"] > 0]
    assert (len(found.episodes), marked["pid"].tolist(), set(looked)) == (100, [150], {150})


BOTH = minutes(0, 120, held(ALICE)) + minutes(120, 240, held(ALICE, BOB)) + minutes(240, TEN_HOURS, held(ALICE))
SLICES = [mig(0, 0, jobs=(ALICE,)), mig(0, 1, 90.0, (BOB,))]


@pytest.mark.parametrize(
    ("ticks", "notes", "expected", "of_cards"),
    [
        (minutes(0, TEN_HOURS, held(ALICE)), [], {"alice": 0}, 0),
        # A card is meant only while all that is held on it is,
        (BOTH, [Marked(60, 300)], {"alice": 240, "bob": 0}, 120),
        (BOTH, [Marked(60, 300), Marked(180, 200, {"identity": "bob"})], {"alice": 240, "bob": 20}, 140),
        # memory of nobody is never meant, and a slice has its share.
        (
            minutes(0, TEN_HOURS, HIDDEN._replace(jobs=(ALICE,))),
            [Marked(60, 120, {"gpu_uuids": ["GPU-0"]})],
            {"(unattributed)": 0, "alice": 60},
            0,
        ),
        (minutes(0, TEN_HOURS, *SLICES), [Marked(60, 120)], {"alice": 30, "bob": 0}, 30),
    ],
)
def test_minutes_of_people_and_of_cards(
    tmp_path: Path, ticks: list[Tick], notes: list[Marked], expected: dict[str, float], of_cards: float
) -> None:
    found = report(tmp_path, ticks, *notes)
    assert (meant_minutes(found), on_cards(found)) == (expected, of_cards)


def test_the_window_cuts_what_is_meant_and_the_end_of_episodes(tmp_path: Path) -> None:
    found = report(tmp_path, minutes(0, TEN_HOURS, held(ALICE)), Marked(60, 400), start=200, end=330)
    assert (meant_minutes(found), on_cards(found)) == ({"alice": 130}, 130)
    assert found.episodes[["meant_seconds", "seconds"]].to_numpy().tolist() == [[270 * 60, 330 * 60]]


OVER = minutes(0, 580, held(ALICE)) + minutes(580, 590, free())
DARK = minutes(0, 300, held(ALICE)) + minutes(300, TEN_HOURS, error="driver_not_loaded")


@pytest.mark.parametrize(
    ("ticks", "note", "expected"),
    [
        # What goes on is meant now if a note is in force at the window's end,
        *(
            (minutes(0, TEN_HOURS, held(ALICE)), Marked(0, until), [True, is_now, 60 * min(until, 600), REASON])
            for until, is_now in ((599, False), (600, False), (601, True))
        ),
        # also one that was written since the last tick,
        (minutes(0, 590, held(ALICE)), Marked(595, 700), [True, True, 0, REASON]),
        # but not what is over, and where nobody knows what goes on, nobody knows this.
        (OVER, Marked(60, 900), [False, False, 520 * 60, REASON]),
        (OVER, Marked(595, 700), [False, False, 0, None]),
        (DARK, Marked(60, 900), [None, None, 240 * 60, REASON]),
        (minutes(0, TEN_HOURS, held(ALICE)), Marked(700, 800), [True, False, 0, None]),
    ],
)
def test_what_is_meant_now(tmp_path: Path, ticks: list[Tick], note: Marked, expected: list[object]) -> None:
    found = report(tmp_path, ticks, note)
    columns = ["ongoing", "meant_now", "meant_seconds", "meant_reason"]
    assert found.episodes[columns].to_numpy().tolist() == [expected]
    assert [line for line in reasons(found, 10**12) if "episode" in line] == []


def test_who_works_with_another_process_is_not_idle_and_so_not_meant(tmp_path: Path) -> None:
    idle, working = ALICE._replace(sm_percent=0), Job(300, "alice", sm_percent=95)
    ticks = minutes(0, 30, held(idle, BOB)) + minutes(30, 60, busy(idle, working, BOB._replace(sm_percent=0)))
    found = report(tmp_path, ticks, Marked(0, 60, {"processes": [{"pid": 100, "start_time_ms": 5000}]}), end=60)
    assert found.episodes["seconds"].max() == 3600
    held_minutes = float(row(found.identities, "identity", "alice")["idle_held_gpu_hours"]) * 60  # type: ignore[arg-type]
    assert 0 < held_minutes < 60
    assert meant_minutes(found)["alice"] == pytest.approx(held_minutes)


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


def test_reclaiming_spares_what_is_meant(tmp_path: Path) -> None:
    for name, jobs in (("alone", (ALICE,)), ("both", (ALICE, BOB))):  # a holder who is spared keeps the card
        found = report(tmp_path / name, minutes(0, TEN_HOURS, held(*jobs)), Marked(0, 300))
        freed = dict(zip(found.reclaim["after_seconds"], found.reclaim["freed_gpu_hours"], strict=True))
        assert freed == {1800.0: 5.0, 3600.0: 5.0, 7200.0: 5.0}  # as soon as the note is over
        assert found.reclaim_curve["freed_gpu_hours"].max() == pytest.approx(5)


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
        self.episodes = [self._episode(*found) for found in self.count.episodes()]

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
        return {"uuid": uuid, "pid": pid, "who": identity, "start": start, "end": end, "meant": times}

    def _times(self, note: Marked) -> tuple[int, int]:
        if note.start == note.until:  # an exemption
            return 0, 10**14
        return MONDAY_MS + note.start * MINUTE_MS, MONDAY_MS + note.until * MINUTE_MS

    def segments(self, cuts: Iterable[int]) -> list[tuple[int, int]]:
        edges = sorted({self.start, self.end, *(cut for cut in cuts if self.start < cut < self.end)})
        return list(pairwise(edges))

    def _edges(self) -> set[int]:
        return {ms for one in self.episodes for pair in [(one["start"], one["end"]), *one["meant"]] for ms in pair}

    def seconds(self) -> dict[tuple[str, int, int], float]:
        """Of each episode to the window's end, by its card, process and beginning."""
        found = {}
        for one in self.episodes:
            edges = sorted({min(ms, self.end) for pair in one["meant"] for ms in pair})
            times = [(a, b) for a, b in pairwise(edges) if any(x <= a and b <= y for x, y in one["meant"])]
            found[one["uuid"], one["pid"], one["start"]] = sum(b - a for a, b in times) / 1000
        return found

    def identities(self) -> dict[str, float]:
        """Hours of each identity."""
        idle = self.count.by_hour(self.start, self.end)
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


names = {
    "identity": st.builds("user{}".format, st.integers(0, 2)),
    "gpu_uuids": st.lists(st.builds("GPU-{}".format, st.integers(0, 1)), min_size=1, max_size=2),
    "processes": st.builds(lambda pid: [{"pid": pid, "start_time_ms": 5000}], st.integers(1, 60)),
}
abouts = st.sampled_from([["identity"], ["gpu_uuids"], ["processes"], ["identity", "gpu_uuids"], [*names]]).flatmap(
    lambda chosen: st.fixed_dictionaries({name: names[name] for name in chosen})
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
    seconds = naive.seconds()
    for uuid, pid, start_ms, meant in found.episodes[["gpu_uuid", "pid", "start_ms", "meant_seconds"]].to_numpy():
        assert meant == pytest.approx(seconds[uuid, pid, start_ms] if pid else 0)


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
