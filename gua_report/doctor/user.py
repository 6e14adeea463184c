"""The user whom the sampler runs as, and what that user may do, whoever runs this."""

import grp
import os
import pwd
import stat
from pathlib import PurePath
from typing import NamedTuple

from gua_report.machine.child import ask
from gua_sample.processes import ask_directory, printable, user_names

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

    def look_up(text: str) -> User:
        entry = pwd.getpwnam(text) if isinstance(key, str) else pwd.getpwuid(key)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return User(entry.pw_uid, entry.pw_gid, tuple(groups), printable(entry.pw_name))

    found = ask_directory([str(key)], look_up, ANSWER_SECONDS)
    if not found:
        raise DirectoryHangs
    if user := found[str(key)]:
        return user
    if isinstance(key, str):
        raise NoSuchUser(key)
    gid = key if gid is None else gid
    return User(key, gid, (gid,), None)


def name_user(uid: int, gid: int) -> User:
    return User(uid, gid, (gid,), user_names([uid]).get(uid))


def ourselves() -> User:
    return User(os.geteuid(), os.getegid(), tuple(os.getgroups()), None)


def group_name(gid: int) -> str:
    return ask_directory([gid], lambda gid: printable(grp.getgrgid(gid).gr_name), ANSWER_SECONDS).get(gid) or str(gid)


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
