"""Which uids an identity stands for."""

import os
import pwd
import threading
import time

import pytest

from gua_report.people.identities import find_uids

ME = pwd.getpwuid(os.getuid()).pw_name


def test_identities_stand_for_the_uids_of_their_accounts() -> None:
    names = [
        ME,
        "uid:1234",
        "no such user",
        "docker:3f2a9c81d0b7",
        "(unattributed)",
        "unknown",
        "uid:",
        "uid:٣",
        "uid:-1",
    ]
    uids, unanswered = find_uids(names, {})
    assert unanswered == 0
    assert uids == {**{name: set() for name in names}, ME: {os.getuid()}, "uid:1234": {1234}}


@pytest.mark.parametrize("identity", ["unknown", "(unattributed)"])
def test_nobody_becomes_those_who_are_not_known_by_an_account_of_that_name(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda name: me)
    assert find_uids([identity, "alice"], {}) == ({identity: set(), "alice": {os.getuid()}}, 0)


def test_a_person_stands_for_all_accounts_that_the_config_names_so() -> None:
    people = {ME: "Ada L.", "uid:77": "Ada L.", "docker:3f2a9c81d0b7": "Ada L.", "uid:78": "bob"}
    uids, _ = find_uids(["Ada L.", "alice"], people)
    assert uids == {"Ada L.": {os.getuid(), 77}, "alice": set()}


@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "x" * 100_000, "", "root:x", "../../etc"])
def test_an_impossible_name_is_nobodys(name: str) -> None:
    assert find_uids([name], {}) == ({name: set()}, 0)


def test_a_directory_that_hangs_costs_two_seconds_and_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(name: str) -> None:
        answer.wait(60)
        raise KeyError

    began = time.monotonic()
    monkeypatch.setattr(pwd, "getpwnam", hang)
    uids, unanswered = find_uids(["alice", "bob", "uid:5"], {})
    answer.set()
    assert time.monotonic() - began < 10
    assert (uids, unanswered) == ({"alice": set(), "bob": set(), "uid:5": {5}}, 2)
