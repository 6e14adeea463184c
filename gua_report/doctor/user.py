"""The user whom the sampler runs as, and what that user may do, whoever runs this."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from gua_report.machine.child import NO_ANSWER, ask
from gua_sample.processes import printable

# A directory of users such as LDAP may hang for minutes.
ANSWER_SECONDS = 5.0


class User(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str | None  # None: this uid has none, or it is unknown

    def __str__(self) -> str:
        return f"user {self.name}" if self.name else f"uid {self.uid}"

    @property
    def spelled(self) -> str:
        """The name, else the uid, as commands accept it."""
        return self.name or str(self.uid)

    @property
    def is_us(self) -> bool:
        return self.uid == os.geteuid()


class NoSuchUser(Exception):
    pass


class DirectoryHangs(Exception):
    """The directory of users does not answer in time."""


def by_name(name: str) -> User:
    """The user that a unit names, by a name or a number. Raises NoSuchUser, or DirectoryHangs."""
    if name.isascii() and name.isdigit():
        return by_uid(int(name))
    found = _look_up(lambda: _entry(pwd.getpwnam(name)))
    if found is None:
        raise NoSuchUser(name)
    return found


def by_uid(uid: int, gid: int | None = None) -> User:
    """The user with this uid. Raises DirectoryHangs."""
    group = uid if gid is None else gid
    return _look_up(lambda: _entry(pwd.getpwuid(uid))) or nameless(uid, group)


def describe(uid: int, gid: int) -> User:
    """The user with this uid, without a name if the directory of users does not answer."""
    try:
        return by_uid(uid, gid)
    except DirectoryHangs:
        return nameless(uid, gid)


def nameless(uid: int, gid: int) -> User:
    return User(uid, gid, (gid,), None)


def ourselves() -> User:
    return User(os.geteuid(), os.getegid(), tuple(os.getgroups()), None)


def nearest(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def group_name(gid: int) -> str:
    answer = ask(lambda: printable(grp.getgrgid(gid).gr_name), ANSWER_SECONDS)
    return str(gid) if answer.problem else str(answer.value)  # the child crashes if the group has no name


def become(user: User) -> None:
    os.setgroups(user.groups)
    os.setgid(user.gid)
    os.setuid(user.uid)


def may(user: User, path: str, how: int) -> bool:
    """Whether the user has this access (os.R_OK, ...): tried as that user if possible, else judged by the modes."""
    if user.is_us:
        return os.access(path, how)
    if os.geteuid() == 0:
        answer = ask(lambda: os.access(path, how), ANSWER_SECONDS, lambda: become(user))
        if answer.problem is None:  # else root may not become the user, as in a container
            return answer.value is True
    try:
        on_the_way = [os.stat(folder) for folder in _folders(path)]
        found = os.stat(path)
    except OSError:  # hidden from us, but perhaps not from that user
        return False
    return all(allows(folder, user, os.X_OK) for folder in on_the_way) and allows(found, user, how)


def allows(found: os.stat_result, user: User, how: int) -> bool:
    """Whether owner, group and mode allow this access, by the kernel's rule; access lists are ignored."""
    if user.uid == 0:
        return True
    if found.st_uid == user.uid:
        shift = 6
    elif found.st_gid in user.groups:
        shift = 3
    else:
        shift = 0
    return stat.S_IMODE(found.st_mode) >> shift & how == how


def _entry(entry: pwd.struct_passwd) -> tuple[Any, ...]:
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), printable(entry.pw_name)


def _look_up(question: Callable[[], tuple[Any, ...]]) -> User | None:
    def answer_or_none() -> tuple[Any, ...] | None:
        try:
            return question()
        except (KeyError, OSError, OverflowError):  # OverflowError: not a uid this C library knows
            return None

    answer = ask(answer_or_none, ANSWER_SECONDS)
    if answer.problem == NO_ANSWER:
        raise DirectoryHangs
    if answer.value is None:
        return None
    uid, gid, groups, name = answer.value
    return User(uid, gid, tuple(groups), name)


def _folders(path: str) -> list[str]:
    """All folders on the way to the path."""
    folders = []
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        folders.append(path)
    return folders
