"""The file for a line at login: who is told of what, in which words, and that nothing in it can act."""

import os
from datetime import timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample import held_file
from gua_sample.identity import find_person
from gua_sample.idleness import Carried, begin, follow
from gua_sample.processes import uptime_ms
from gua_sample.records import Tick
from tests.lab import (
    ALICE,
    BOB,
    DAY_MS,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    held,
    lost,
    mig,
    minutes,
    series,
    tick,
)
from tests.notes import content, make_spool, put
from tests.users import SOMEBODY, needs_root

ANOTHER = SOMEBODY + 1
ID = "3f2a9c81d0b7" + "0" * 52


def at_the_end(*gpus: Gpu, minutes: int = 10, start_ms: int = MONDAY_MS) -> tuple[Tick, Carried]:
    """The last of so many minutes of ticks that all see the same, and what is carried on from it."""
    ticks, carried = series(start_ms, minutes + 1, *gpus), begin()
    for one in ticks:
        carried = follow(carried, one)
    return ticks[-1], carried


def lines_of(*gpus: Gpu, minutes: int = 10, start_ms: int = MONDAY_MS, spool: Path = Path("/nowhere")) -> list[str]:
    return held_file.describe(*at_the_end(*gpus, minutes=minutes, start_ms=start_ms), str(spool)).splitlines()


def test_a_line_tells_uid_card_since_memory_pid_and_command_and_has_the_sentence() -> None:
    job = Job(1_200_641, memory_mib=20_480, uid=1000, command="jupyter-noteboo")
    first, line = lines_of(held(job, index=1))
    assert line == (
        f"1000 1 {MONDAY_MS // 1000} 20.0 1200641 jupyter-noteboo you hold 20.0 GiB on GPU 1 without work since at"
        " least 00:00 (pid 1200641, jupyter-noteboo). Done? End the process."
    )
    name, uptime, boot = first.rsplit(" ", 2)
    assert (name, boot) == (held_file.FIRST_LINE, "boot-1")
    assert 0 <= uptime_ms() // 1000 - int(uptime) < 60


def test_who_holds_a_card_for_less_than_ten_minutes_or_works_is_not_told() -> None:
    assert held_file.LEAST_MS == 10 * MINUTE_MS
    assert len(lines_of(held(ALICE), minutes=9)) == 1
    assert len(lines_of(held(ALICE))) == 2
    # Beside somebody at work too: the idle one alone.
    assert [line.split()[4] for line in lines_of(busy(ALICE, BOB))[1:]] == ["100"]
    for gpu in (busy(ALICE), lost(), HIDDEN, Gpu(0, None, (ALICE,))):
        assert len(lines_of(gpu)) == 1


def test_what_begins_after_an_unknown_state_was_not_seen_to_begin() -> None:
    ticks, carried = [*minutes(0, 5, busy()), *minutes(5, 6, lost()), *minutes(6, 20, held())], begin()
    for one in ticks:
        carried = follow(carried, one)
    assert " since at least 00:06 " in held_file.describe(ticks[-1], carried)


def test_mig_instances_and_memory_that_is_not_known_are_spelled_and_a_failed_tick_tells_nothing() -> None:
    assert " on GPU 2:1 " in lines_of(mig(2, 1, 0.0, (ALICE,)))[1]
    _, line = lines_of(Gpu(0, 0.0, (ALICE._replace(memory_mib=None),), used_mib=5000))
    assert line.split()[3] == "-"
    assert "you hold memory on GPU 0" in line
    failed = tick(MONDAY_MS + 11 * MINUTE_MS, error="driver_not_loaded")
    _, carried = at_the_end(held(ALICE))
    assert len(held_file.describe(failed, follow(carried, failed)).splitlines()) == 1


@pytest.mark.parametrize(
    ("uid", "login_uid", "cgroup", "expected"),
    [
        (1000, None, "/user.slice/user-1000.slice/session-3.scope", 1000),
        (0, 1000, "/user.slice/user-1000.slice/session-3.scope", 1000),
        (1000, None, "/slurm/uid_1000/job_7/step_0", 1000),
        (0, None, "/system.slice/ollama.service", 0),
        # A container's uids are its own.
        (0, None, f"/system.slice/docker-{ID}.scope", None),
        (1001, None, f"/docker/{ID}", None),
        (1001, None, "/lxc.payload.box/user.slice/user-1001.slice", None),
        (1001, 1000, f"/machine.slice/libpod-{ID}.scope", None),  # its processes could set any login uid
        # In a user's own slice it is that user's, whatever uid it has inside.
        (1000, None, f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", 1000),
        (100_999, None, f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", 1000),
        (None, None, None, None),
    ],
)
def test_the_person_is_the_login_user_else_the_owner_unless_a_container_has_its_own(
    uid: int | None, login_uid: int | None, cgroup: str | None, expected: int | None
) -> None:
    assert find_person(uid, login_uid, cgroup) == expected
    if login_uid is None:
        told = lines_of(held(ALICE._replace(uid=uid, cgroup=cgroup)))[1:]
        assert [line.split()[0] for line in told] == ([] if expected is None else [str(expected)])


@needs_root
def test_who_holds_on_purpose_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() or 1000)  # root opens no file of others
    spool, about = make_spool(tmp_path), {"processes": [{"pid": 100, "start_time_ms": ALICE.start_time_ms}]}
    assert len(lines_of(held(ALICE), spool=spool)) == 2
    note = put(spool, f"{os.getuid()}.3", content(MONDAY_MS, MONDAY_MS + DAY_MS, **about))
    assert len(lines_of(held(ALICE), spool=spool)) == 1
    assert len(lines_of(held(BOB), spool=spool)) == 2
    put(spool, note.name, content(MONDAY_MS, MONDAY_MS + MINUTE_MS, **about))  # it has ended
    assert len(lines_of(held(ALICE), spool=spool)) == 2


@needs_root
def test_ones_own_note_is_about_ones_own_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    spool = make_spool(tmp_path)
    changed_ms = put(spool, f"{SOMEBODY}.0", b"{}", SOMEBODY).stat().st_ctime_ns // 1_000_000
    put(spool, f"{SOMEBODY}.0", content(changed_ms, changed_ms + DAY_MS), SOMEBODY)
    later_ms = changed_ms + HOUR_MS
    for uid, count in (SOMEBODY, 1), (ANOTHER, 2):
        assert len(lines_of(held(Job(100, uid=uid)), start_ms=later_ms, spool=spool)) == count
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert len(lines_of(held(Job(100, uid=SOMEBODY)), start_ms=later_ms, spool=spool)) == 2


def test_there_are_few_lines_and_nobodys_processes_crowd_out_a_colleagues() -> None:
    def many(uid: int) -> list[Gpu]:
        """Of as many users, or of one."""
        jobs = [Job(number, memory_mib=200, uid=1000 + uid * number) for number in range(450)]
        return [held(*jobs[50 * card : 50 * card + 50], index=card) for card in range(9)]

    assert len(lines_of(*many(1))) == 1 + held_file.MOST_LINES
    _, *lines = lines_of(*many(0), held(Job(9000, "zoe", uid=1001), index=9))
    assert [line.split()[0] for line in lines] == ["1000"] * held_file.MOST_OF_ONE + ["1001"]


@given(st.text(max_size=60), st.integers(0, 2**31), st.none() | st.integers(101, 2**40))
def test_no_command_can_act_in_a_shell_or_make_another_line(command: str, pid: int, mib: int | None) -> None:
    found = [held(Job(pid, memory_mib=mib, command=command), index=0)._replace(used_mib=5000)]
    lines = lines_of(*found, minutes=10)
    assert len(lines) == 2
    uid, gpu, since, _, told_pid, name, sentence = lines[1].split(" ", 6)
    assert (uid, gpu, told_pid, since.isdigit()) == ("1000", "0", str(pid), True)
    assert set(name) <= held_file.SAFE
    assert set(sentence) <= held_file.SAFE | set(" ,:()?")
    assert sentence.endswith("). Done? End the process.")


def test_times_of_other_days_have_their_date() -> None:
    at = MONDAY_MS + 600 * MINUTE_MS
    assert held_file.spell_since(MONDAY_MS + 9 * MINUTE_MS, at, timezone.utc) == "00:09"
    assert held_file.spell_since(MONDAY_MS - 1, at, timezone.utc) == "15 Nov 23:59"


def test_about_somebody_else_the_words_are_the_same_but_for_the_advice() -> None:
    assert held_file.spell_held("1", 2048.0, "09:45", 7, "sh", "ada") == (
        "ada holds 2.0 GiB on GPU 1 without work since 09:45 (pid 7, sh)."
    )
    assert held_file.spell_held("1", 2048.0, None, 7, "sh") == "you hold 2.0 GiB on GPU 1 without work (pid 7, sh)."
    assert held_file.plain(None) == held_file.plain("") == "unknown"
