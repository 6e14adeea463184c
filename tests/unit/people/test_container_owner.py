"""Whose a container may be: hints by label and mount, and only for people who have an account."""

import os
import pwd
from collections.abc import Iterator

import pytest

from gua_report.people import identities
from gua_report.people.identities import Traces, find_owner
from gua_sample.containers import LABEL, MOUNT

PEOPLE = {
    "root": (0, "/root"),
    "postgres": (115, "/var/lib/postgresql"),
    "ada": (1001, "/home/ada"),
    "bob": (1002, "/export/home/vision/bob/"),
    "nobody": (65534, "/nonexistent"),
    "data": (1003, "/"),
    "cy\x1b[2k": (1004, "/home/cy"),
}


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory of these users, which like a real one takes names in capitals too."""

    def entry(name: str, uid: int, home: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, uid, "", home, "/bin/sh"))

    def by_name(name: str) -> pwd.struct_passwd:
        if "\0" in name:
            raise ValueError
        return entry(name.lower(), *PEOPLE[name.lower()])

    monkeypatch.setattr(pwd, "getpwnam", by_name)
    identities._person.cache_clear()
    yield
    identities._person.cache_clear()


def test_a_label_comes_before_a_mount() -> None:
    assert find_owner(Traces("ada", ["/export/home/vision/bob/data"])) == ("ada", LABEL)
    assert find_owner(Traces("ADA", [])) == ("ada", LABEL)  # as the directory spells it


@pytest.mark.parametrize(
    "label", ["root", "postgres", "nobody", "nobody-here", "1001", "a\0b", "", " ", "ada ", "\udcff", "cy\x1b[2k"]
)
def test_a_label_counts_only_for_people(label: str) -> None:
    assert find_owner(Traces(label, [])) is None


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/home/ada", "ada"),
        ("/home/ada/data/set", "ada"),
        ("/export/home/vision/bob", "bob"),
        ("/export/home/vision/bob/x", "bob"),
        ("/home", None),
        ("/home/", None),
        ("/", None),
        ("/srv/ada", None),
        ("/home/adam", None),
        ("/home/ADA", None),
        ("/root/x", None),
        ("/var/lib/postgresql/16", None),
        ("/home/ada/../bob", None),
        ("/data", None),
        ("/" + "x/" * 2000, None),
        ("", None),
    ],
)
def test_a_mount_counts_if_it_lies_in_a_home_directory(path: str, owner: str | None) -> None:
    assert find_owner(Traces(None, [path])) == (owner and (owner, MOUNT))


def test_of_the_homes_of_several_people_none_tells() -> None:
    assert find_owner(Traces(None, ["/home/ada", "/export/home/vision/bob"])) is None
    assert find_owner(Traces(None, ["/home/ada", "/srv", "/home/ada/x"])) == ("ada", MOUNT)


def test_no_path_of_a_mount_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("stat", "lstat", "open", "readlink", "listdir", "scandir", "access"):
        monkeypatch.setattr(os, name, look)
    assert find_owner(Traces(None, ["/home/ada/x"])) == ("ada", MOUNT)
