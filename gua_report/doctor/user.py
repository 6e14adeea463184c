"""The user whom the sampler runs as, and what that user may do, whoever runs this."""

import grp
import os
import pwd
import stat
from pathlib import PurePath
from typing import Any, NamedTuple

from gua_report.machine.child import NO_ANSWER, ask
from gua_sample.processes import printable, user_names

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
        return self.name or str(self.uid)

    @property
    def is_us(self) -> bool:
        return self.uid == os.geteuid()


class NoSuchUser(Exception):
    pass


class DirectoryHangs(Exception):
    """The directory of users does not answer in time."""


def find_user(key: str | int, gid: int | None = None) -> User:

    def look_up() -> tuple[Any, ...] | None:
        try:
            entry = pwd.getpwnam(key) if isinstance(key, str) else pwd.getpwuid(key)
        except (KeyError, OSError, OverflowError):  # OverflowError: not a uid this C library knows
            return None
        return entry.pw_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), printable(entry.pw_name)

    answer = ask(look_up, ANSWER_SECONDS)
    if answer.problem == NO_ANSWER:
        raise DirectoryHangs
    if answer.value is not None:
        uid, gid, groups, name = answer.value
        return User(uid, gid, tuple(groups), name)
    if isinstance(key, str):
        raise NoSuchUser(key)
    gid = key if gid is None else gid
    return User(key, gid, (gid,), None)


def name_user(uid: int, gid: int) -> User:
    return User(uid, gid, (gid,), user_names([uid]).get(uid))


def ourselves() -> User:
    return User(os.geteuid(), os.getegid(), tuple(os.getgroups()), None)


def group_name(gid: int) -> str:
    answer = ask(lambda: printable(grp.getgrgid(gid).gr_name), ANSWER_SECONDS)
    return str(gid) if answer.problem else str(answer.value)  # the child crashes if the group has no name


def may(user: User, path: str, how: int) -> bool:
    """Whether the user has this access (os.R_OK, ...): tried as that user if possible, else judged by the modes."""
    if user.is_us:
        return os.access(path, how)
    if os.geteuid() == 0:
        answer = ask(lambda: os.access(path, how), ANSWER_SECONDS, user[:3])
        if answer.problem is None:  # else root may not become the user, as in a container
            return answer.value is True
    try:
        return allows(os.stat(path), user, how) and all(
            allows(os.stat(folder), user, os.X_OK) for folder in PurePath(path).parents
        )
    except OSError:  # hidden from us, but perhaps not from that user
        return False


def allows(found: os.stat_result, user: User, how: int) -> bool:
    if user.uid == 0:
        return True
    shift = 6 if found.st_uid == user.uid else 3 if found.st_gid in user.groups else 0
    return stat.S_IMODE(found.st_mode) >> shift & how == how
