"""Since when, as gua status tells it: it agrees with the report's episodes, and never says more than ticks tell."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.config import Config
from gua_report.live import shown
from gua_report.live.cards_now import CardSeen, Since, see_card
from gua_report.live.observer import take_up
from gua_report.live.snapshot import fill_in, read_recent
from gua_report.ticks.classify import NO_PID
from gua_report.ticks.newest import list_history
from gua_sample.idle_state import to_text, understand
from gua_sample.idleness import Carried, begin, follow, runs_now
from gua_sample.partition_names import samples_dir
from gua_sample.policy import ACTIVE, DEFAULT, IDLE_HELD, OneThreshold, Policy
from gua_sample.records import Boot, Process, Tick
from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    lost,
    minutes,
    report_of,
    tick,
    write,
    written,
)


def left(ticks: list[Tick], policy: Policy = DEFAULT) -> str:
    """What a sampler leaves after these ticks."""
    text = ""
    for one in ticks:
        text = to_text(follow(understand(text) or begin(policy), one))
    return text


def look(ticks: list[Tick], now: Tick, config: Config = CONFIG) -> list[CardSeen]:
    return see(now, take_up(left(ticks), ticks[-1].ts_ms if ticks else None, now, config), config)


def see(now: Tick, carried: Carried, config: Config = CONFIG) -> list[CardSeen]:
    return [see_card(card, now, carried, runs_now(carried), config) for card in now.cards]


def at(minute: float, *gpus: Gpu, boot: str = "boot-1") -> Tick:
    return tick(MONDAY_MS + round(minute * MINUTE_MS), *gpus, boot=boot)


def minute(since: Since | None) -> tuple[float, bool] | None:
    """Since which minute, and whether the beginning was seen."""
    return since and ((since.ts_ms - MONDAY_MS) / MINUTE_MS, since.is_exact)


def since(told: list[CardSeen]) -> tuple[float, bool] | None:
    return minute(told[0].since)


def idle(told: list[CardSeen]) -> dict[int, tuple[float, bool] | None]:
    """The processes that idle-hold a card, and since when."""
    return {one.pid: minute(one.since) for seen in told for one in seen.processes if one.state == IDLE_HELD}


BUSY, HELD = minutes(0, 30, busy()), minutes(30, 60, held())
WORKING = minutes(0, 30, busy(Job(100, "alice", sm_percent=50), BOB))
AGAIN = minutes(0, 30, held(ALICE._replace(start_time_ms=1)))
LASTS: dict[str, tuple[list[Tick], Tick, Any, Any]] = {  # of the card, and of its process
    "since the first tick of it": (BUSY + HELD, at(60.5, held()), (30, True), (30, True)),
    "from now, which no tick has seen": (BUSY, at(30.5, held()), (30.5, True), (30.5, True)),
    "since before the first tick": (minutes(0, 10, held()), at(10.5, held()), (0, False), (0, False)),
    "though 2.4 intervals ago": (minutes(0, 10, held()), at(11.4, held()), (0, False), (0, False)),
    "unless 2.6 intervals ago": (minutes(0, 10, held()), at(11.6, held()), None, None),
    "after a hole": (BUSY + HELD + minutes(63, 90, held()), at(90.5, held()), (63, False), (63, False)),
    "over a missing tick": (BUSY + HELD + minutes(61, 90, held()), at(90.5, held()), (30, True), (30, True)),
    "over a failure": (BUSY + HELD + minutes(60, 61, error="timeout"), at(61.5, held()), (30, True), (30, True)),
    "after a reboot": (
        *(minutes(0, 30, held()) + minutes(30, 60, held(), boot="boot-2"), at(60.5, held(), boot="boot-2")),
        *((30, False), (30, False)),
    ),
    "not since another boot": (HELD, at(60.5, held(), boot="boot-3"), None, None),
    "after unknown ticks": (
        *(minutes(0, 30, held()) + minutes(30, 31, lost()) + minutes(31, 60, held()), at(60.5, held())),
        *((31, False), (31, False)),
    ),
    "beside a busy one": (
        *(WORKING + minutes(30, 60, busy(ALICE, BOB)), at(60.5, busy(ALICE, BOB))),
        *((0, False), (30, True)),
    ),
    "anew under an old pid": (AGAIN + minutes(30, 60, held(ALICE)), at(60.5, held(ALICE)), (0, False), (30, True)),
}


@pytest.mark.parametrize(("ticks", "now", "card", "process"), LASTS.values(), ids=LASTS)
def test_a_state_lasts(ticks: list[Tick], now: Tick, card: Any, process: Any) -> None:
    told = look(ticks, now)
    assert since(told) == card
    assert idle(told) == {100: process}


def test_a_process_is_idle_beside_others_at_once() -> None:
    assert idle(look(WORKING, at(30.5, busy(ALICE, BOB)))) == {100: (30.5, True)}
    assert idle(look([], at(30.5, busy(ALICE, BOB)))) == {100: None}


EVE = CONFIG._replace(people={"alice": "Eve", "bob": "Eve"})


def test_two_identities_of_one_person_are_judged_as_one() -> None:
    (seen,) = look(minutes(0, 30, busy(ALICE, BOB)), at(30.5, busy(ALICE, BOB)), EVE)
    assert [one.state for one in seen.processes] == [ACTIVE, ACTIVE]


@pytest.mark.parametrize("jobs", [(ALICE, BOB), (ALICE,)], ids=["both", "one has gone"])
def test_who_works_under_another_name_has_not_been_idle_for_so_long(jobs: tuple[Job, ...]) -> None:
    """The sampler takes the two for two people, of whom one has been idle all along."""
    told = look(minutes(0, 30, busy(ALICE, BOB)) + minutes(30, 60, held(*jobs)), at(60.5, held(*jobs)), EVE)
    assert idle(told)[100] == (30, False)


def test_under_other_thresholds_than_the_samplers_nothing_is_told() -> None:
    ticks, now = minutes(0, 30, held()), at(30.5, held())
    other = CONFIG._replace(policy=DEFAULT._replace(process_memory_mib=50.0))
    assert idle(look(ticks, now, other)) == {100: None}
    assert idle(look(ticks, now, CONFIG._replace(policy=OneThreshold(*DEFAULT)))) == {100: None}
    assert idle(see(now, take_up(left(ticks, other.policy), None, now, other), other)) == {100: (0, False)}


def test_a_state_that_is_older_than_the_newest_tick_tells_nothing() -> None:
    ticks, now = minutes(0, 30, held()), at(30.5, held())
    assert since(see(now, take_up(left(ticks[:-1]), ticks[-1].ts_ms, now, CONFIG))) is None


def test_small_processes_hold_a_card_together_and_a_desktop_beside_a_notebook_holds_nothing() -> None:
    small = [Job(pid, memory_mib=40, sm_percent=0) for pid in (1, 2, 3)]
    ticks = minutes(0, 10, held(*small))
    assert set(idle(look(ticks, at(10.5, held(*small))))) == {1, 2, 3}
    assert set(idle(look(ticks, at(10.5, held(small[0], ALICE))))) == {100}


def test_the_last_use_is_the_newest_tick_that_saw_one_across_holes() -> None:
    gpus = [busy(index=0), held(index=1), free(2), lost(3)]
    idle_ones = [free(index) for index in range(4)]
    ticks = minutes(0, 10, *gpus) + minutes(10, 11, busy(), *idle_ones[1:]) + minutes(50, 60, *idle_ones)
    told = take_up(left(ticks), None, at(60.5, *idle_ones), CONFIG)
    assert told.used_ms == {"GPU-0": MONDAY_MS + 10 * MINUTE_MS, "GPU-1": MONDAY_MS + 9 * MINUTE_MS}


def ongoing(folder: Path | str, newest_ms: int) -> dict[tuple[str, int], int]:
    """The episodes that the report calls ongoing, with their starts."""
    frame = report_of(folder, newest_ms - HOUR_MS, newest_ms + 1).episodes
    # A look tells since when of processes alone.
    frame = frame[frame["ongoing"].astype(bool) & (frame["pid"] != NO_PID)]
    rows = zip(frame["gpu_uuid"].tolist(), frame["pid"].tolist(), frame["start_ms"].tolist(), strict=True)
    return {(uuid, pid): start for uuid, pid, start in rows}


def starts(told: list[CardSeen]) -> dict[tuple[str, int], int]:
    return {(seen.card.facts.uuid, one.pid): one.since.ts_ms for seen in told for one in seen.processes if one.since}


def recent_of(folder: Path, ticks: list[Tick], ts_ms: int = MONDAY_MS) -> Tick:
    write(folder, ticks)
    recent = read_recent(list_history(samples_dir(str(folder))).partitions, ts_ms, print)
    assert recent
    return recent


def test_of_what_is_not_hidden_the_sampler_adds_names_alone(tmp_path: Path) -> None:
    """Whoever can write the history could say of any process that it is somebody's."""
    claimed = Job(1, "alice", uid=1000, login_user="bob", cgroup="/system.slice/cron.service")
    recent = recent_of(tmp_path, [seen := at(0, held(claimed))])
    recent = recent._replace(processes={1: recent.processes[1]._replace(login_uid=1001)})
    process = seen.processes[1]._replace(user=None, login_user=None, cgroup=None)

    def fill(login_uid: int | None = None) -> Process:
        now = seen._replace(processes={1: process._replace(login_uid=login_uid)})
        return fill_in(now, recent, MINUTE_MS).processes[1]

    assert fill() == process._replace(user="alice")
    assert fill(1002) == process._replace(user="alice", login_uid=1002)
    assert fill(1001) == process._replace(user="alice", login_uid=1001, login_user="bob")


def test_days_to_come_hide_no_tick(tmp_path: Path) -> None:
    ticks = [at(0, held(ALICE)), *(at(days * 1440, held(BOB)) for days in (5, 6))]
    assert recent_of(tmp_path, ticks).ts_ms == MONDAY_MS


def test_what_is_hidden_now_is_as_the_sampler_saw_it(tmp_path: Path) -> None:
    seen = at(0, held(Job(1, "alice", uid=1000), Job(2, "bob", uid=1001), Job(3, "eve", start_time_ms=1)))
    recent = recent_of(tmp_path, [seen])
    hidden = {pid: Process(pid, None, None, None, None, None, None, None) for pid in (1, 4)}
    changed = {2: seen.processes[2]._replace(uid=0, user=None), 3: hidden[4]._replace(pid=3, start_time_ms=2)}
    now = seen._replace(ts_ms=seen.ts_ms + MINUTE_MS, processes={**hidden, **changed})
    told = fill_in(now, recent, 2 * MINUTE_MS).processes
    assert told == {**now.processes, 1: seen.processes[1]}
    for other in (now._replace(ts_ms=seen.ts_ms + 3 * MINUTE_MS), now._replace(boot=Boot("boot-2", 1))):
        assert fill_in(other, recent, 2 * MINUTE_MS) == other
    assert fill_in(now, None, 2 * MINUTE_MS) == now


GPUS = [busy(), held(), free(), lost(), busy(ALICE, BOB), held(ALICE, BOB), busy(ALICE), held(Job(memory_mib=None))]
GPUS += [busy(ALICE._replace(sm_percent=6), BOB._replace(sm_percent=5)), Gpu(0, 95.0)]
GPUS += [Gpu(0, 4.0, (Job(100, sm_percent=4), BOB)), Gpu(0, None, (ALICE,)), Gpu(0, 0.0, (), used_mib=5000)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([20, 30, 30, 30, 30, 61, 74, 76, 200]),
            st.sampled_from([*GPUS, GPUS[1], GPUS[4], GPUS[4], None]),
            st.sampled_from([30_000, 60_000]),
            st.sampled_from(["boot-1"] * 20 + ["boot-2"]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_whatever_happened_it_agrees_with_the_report(steps: list[tuple[int, Gpu | None, int | None, str]]) -> None:
    """Not beside midnight, where the report judges by one tick alone."""
    ts_ms, history = MONDAY_MS + DAY_MS // 2, []
    for seconds, gpu, interval_ms, boot in steps:
        ts_ms += seconds * 1000
        cards = () if gpu is None else (gpu,)
        error = "timeout" if gpu is None else None
        history.append(tick(ts_ms, *cards, interval_ms=interval_ms, boot=boot, error=error))
    with written(history) as folder:
        newest = history[-1]
        if newest.cards:
            told = look(history, newest._replace(ts_ms=ts_ms + 1))
            # The moment after is a tick more: what begins with it the report can't know yet.
            assert {key: ms for key, ms in starts(told).items() if ms <= ts_ms} == ongoing(folder, ts_ms)


def test_a_process_in_a_slurm_job_is_shown_with_it_beside_the_person() -> None:
    ada = Job(100, "ada", cgroup="/slurm/uid_1001/job_4711/step_0")
    bob = Job(200, "bob", uid=1002, cgroup="/user.slice/user-1002.slice/user@1002.service/slurm/uid_1001/job_7")
    now = at(0, held(ada, bob))
    (seen,) = see(now, follow(begin(), now))
    assert [(one.user, one.slurm_job) for one in seen.processes] == [("ada", "4711"), ("bob", None)]
    style = shown.Style()
    lines = [shown.process_line(one, MONDAY_MS, style) for one in seen.processes]
    assert lines[0].endswith("  ada, job 4711")
    assert lines[1].endswith("  bob")
    assert [shown.process(one, MONDAY_MS)["slurm_job"] for one in seen.processes] == ["4711", None]
    long = seen.processes[0]._replace(user="a" * 90, slurm_job="\x1b[2J")
    assert len(shown.process_line(long, MONDAY_MS, style)) <= shown.WIDTH
    assert "\x1b" not in shown.process_line(long._replace(user="ada"), MONDAY_MS, style)
