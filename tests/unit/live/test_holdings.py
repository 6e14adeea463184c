"""Whose processes are whose to mark."""

import os
import pwd

import pytest

from gua_report.live.cards_now import Holdings
from gua_sample.errors import GuaError, UsageError
from tests.bookings import look
from tests.lab import CONFIG, Gpu, Job, busy, held, mig

ME = pwd.getpwuid(os.getuid()).pw_name
UID = os.getuid() or 77
SLICE = f"/user.slice/user-{UID}.slice/user@{UID}.service/user.slice/libpod-3f2a9c81d0b7{'0' * 52}.scope"
MINE, THEIRS = Job(100, ME, uid=os.getuid()), Job(200, "bob", uid=12_345)
CONTAINER = Job(300, ME, uid=os.getuid(), cgroup=f"/docker/{'3f2a9c81d0b7' * 6}"[:72])


def holdings(
    *gpus: Gpu, uid: int | None = None, is_owner: bool = False, people: dict[str, str] | None = None
) -> Holdings:
    config = CONFIG._replace(people=people or {})
    return Holdings(look(*gpus, config=config), os.getuid() if uid is None else uid, is_owner, config.people)


def test_all_of_ones_own_processes_are_marked_by_pid_and_start() -> None:
    again = MINE._replace(memory_mib=50)
    about = holdings(
        held(MINE, THEIRS), busy(again, Job(101, ME, start_time_ms=6000, uid=os.getuid()), index=1)
    ).find_all()
    assert about.processes == ((100, 5000), (101, 6000))
    assert (about.identity, about.gpu_uuids) == (None, ())
    assert about.text == "2 processes, 100 python, 101 python"


@pytest.mark.parametrize(
    ("held_by", "is_owner", "mark", "problem"),
    [
        (THEIRS, False, None, "^you have no process on a card now: start it first, then run this again$"),
        (THEIRS, True, None, "or say whose: --identity, --gpu or --pid$"),
        (THEIRS, False, 200, "^process 200 counts as bob's, not as yours: they can mark it, or root$"),
        (MINE, False, 999, "process 999 is on no card now: gua status -v lists those that are"),
        (MINE._replace(start_time_ms=None), False, None, "not known when these processes began"),
    ],
)
def test_what_can_not_be_marked_is_an_error_that_says_what_to_do(
    held_by: Job, is_owner: bool, mark: int | None, problem: str
) -> None:
    found = holdings(held(held_by), is_owner=is_owner)
    with pytest.raises(GuaError, match=problem):
        found.find_all() if mark is None else found.find_process(mark)
    for name in ("7", "", "-1", "0:0", "GPU"):
        with pytest.raises(UsageError, match="gua status lists them"):
            found.find_card(name, None)


def test_many_are_counted() -> None:
    jobs = [Job(pid, ME, uid=os.getuid()) for pid in range(1, 7)]
    assert holdings(held(*jobs)).find_all().text == "6 processes, 1 python, 2 python, 3 python and 3 more"


def test_a_process_in_a_container_of_the_machine_is_the_containers_whatever_its_uid() -> None:
    with pytest.raises(GuaError, match="counts as docker:3f2a9c81d0b7's"):
        holdings(held(CONTAINER)).find_process(300)
    people = {"docker:3f2a9c81d0b7": ME}  # unless the config says whose it is
    assert holdings(held(CONTAINER), people=people).find_process(300).processes == ((300, 5000),)


def test_a_rootless_container_is_its_users() -> None:
    inside = Job(300, None, uid=100_999, cgroup=SLICE)
    assert holdings(held(inside), uid=UID).find_process(300).processes == ((300, 5000),)
    with pytest.raises(GuaError, match=f"counts as uid:{UID}'s"):
        holdings(held(inside), uid=UID + 1).find_process(300)


def test_the_spools_owner_marks_anybodys_process_with_the_name_it_has() -> None:
    about = holdings(held(MINE, THEIRS), is_owner=True).find_process(200)
    assert (about.identity, about.processes) == ("bob", ((200, 5000),))
    assert holdings(held(MINE, THEIRS), is_owner=True).find_all().identity == ME


@pytest.mark.parametrize("name", ["1", "GPU-1"])
def test_a_card_that_one_uses(name: str) -> None:
    about = holdings(held(THEIRS), held(MINE, index=1)).find_card(name, None)
    assert about == ("what you have on GPU 1", None, ("GPU-1",), ())


def test_a_card_that_one_does_not_use_is_refused_but_not_for_the_spools_owner() -> None:
    with pytest.raises(GuaError, match="you have no process on GPU 0 now: start it first"):
        holdings(held(THEIRS), held(MINE, index=1)).find_card("0", None)
    owner = holdings(held(THEIRS), held(MINE, index=1), is_owner=True)
    assert owner.find_card("0", None) == ("what everybody has on GPU 0", None, ("GPU-0",), ())
    assert owner.find_card("0", "bob") == ("what bob has on GPU 0", "bob", ("GPU-0",), ())


def test_the_index_of_a_divided_card_means_the_instances_that_one_uses() -> None:
    cards = [mig(0, 0, jobs=(THEIRS,)), mig(0, 1, jobs=(MINE,)), mig(0, 2, jobs=(MINE._replace(pid=101),))]
    assert holdings(*cards).find_card("0", None)[:3] == ("what you have on GPU 0:1, 0:2", None, ("MIG-0-1", "MIG-0-2"))
    assert holdings(*cards).find_card("0:2", None).gpu_uuids == ("MIG-0-2",)
