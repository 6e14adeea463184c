"""The owner of a data folder, other users with write access, and giving up root to become the owner."""

import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from gua_sample.errors import StoreError
from gua_sample.partition_names import samples_dir

NO_GROUP = 65534
MOST_LINKS = 40  # the kernel's limit
# What is imported only when it is first used, by the module that uses it. After the step down it may be too late: not
# everybody can read a Python, or a virtual environment, under somebody's home.
IMPORTED_LATE = {
    "gua_sample": ("encodings.ascii", "encodings.unicode_escape", "json", "shlex", "traceback"),
    "gua_sample.cli": tuple(f"gua_sample.{name}" for name in ("containers", "held_file", "metrics")),
    "gua_report.machine.child": ("concurrent.futures.thread", "ctypes", "tempfile"),
    "gua_report.mailing.message": ("email.generator", "encodings.idna", "gua_report.mailing.smtp"),
    "pandas": ("numpy.rec", "pandas.core.methods.to_dict"),
    "pyarrow": ("pyarrow.pandas_compat", "pyarrow.vendored.version"),
}
FOLDERS = ("samples", "csv", "publish")  # the subfolders of a data folder that gua writes to


def nearest(path: str) -> str:
    """The folder, or its nearest existing parent, whose owner will be its owner."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def owner_to_become(data_dir: str) -> tuple[int, int] | None:
    """The uid and gid that root should take on to use the folder; None if it is root's, or we are not root.

    A folder that root made for another user's samples counts as that user's. Raises StoreError if a third user could
    replace the folder before it is used, or put files into one of root's: that user would act with the owner's rights.
    """
    if os.geteuid() != 0:
        return None
    for path in (data_dir, samples_dir(data_dir)):
        found = os.stat(nearest(path))
        # Checked after the stat: a path that only its owner and root can replace stays theirs.
        refuse_as_root(others_on_the_way(path, found.st_uid))
        if found.st_uid != 0:
            return found.st_uid, found.st_gid
    if is_open_place(data_dir):
        refuse_as_root(f"{data_dir} is missing, where somebody else could make it first: create it")
    refuse_as_root(others_who_may_write(data_dir) or _folder_of_others(data_dir, 0))
    return None


def refuse_as_root(problem: object) -> None:
    if problem is not None:
        raise StoreError(f"not as root: {problem}")


def is_open_place(path: str) -> bool:
    """Whether the folder is missing where others could create it."""
    around = nearest(path)
    return around != os.path.abspath(path) and who_may_write(around) is not None


def become_owner(data_dir: str) -> None:
    """Become the folder's owner for good: a file of root's would lock the service out."""
    owner = owner_to_become(data_dir)
    if owner is not None:
        become(*owner)
        try:
            with suppress(FileNotFoundError):  # it is made later
                os.stat(data_dir)
        except PermissionError as error:
            raise StoreError(out_of_reach(data_dir)) from error


def out_of_reach(path: object) -> str:
    """The message for a path that we, or the user whom root has become, can't reach."""
    return f"{path} is out of reach of uid {os.geteuid()}: let that user enter each folder above it"


def import_late() -> None:
    import importlib

    for user, modules in IMPORTED_LATE.items():
        for module in modules if user in sys.modules else ():
            with suppress(ImportError):  # other versions do without it
                importlib.import_module(module)


def become(uid: int, gid: int, groups: Sequence[int] | None = None) -> None:
    """Give up root for good. Without `groups`, take on the user's, and `gid` only if it is one of them."""
    import_late()
    try:
        if groups is None:
            try:
                entry = pwd.getpwuid(uid)
                gid = gid if gid in os.getgrouplist(entry.pw_name, entry.pw_gid) else entry.pw_gid
                groups = os.getgrouplist(entry.pw_name, gid)
            except KeyError:
                gid, groups = gid if gid == uid else NO_GROUP, []
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise StoreError(f"uid {uid} can't be taken on ({error.strerror}): run this as that user") from error
    attempts: list[Callable[[], None]] = [lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0])]
    if gid != 0:  # else it is the user's own main group
        attempts.append(lambda: os.setresgid(0, 0, 0))
    for regain in attempts:
        with suppress(PermissionError):
            regain()
            raise StoreError(f"root's rights can't be given up for good here: run this as uid {uid}")


class Opening(NamedTuple):
    """A way for others to change the content of a folder."""

    text: str  # who may write where, and the consequence
    remedy: str | None  # the command that closes it; None if the folder, such as /tmp, is everybody's

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy or 'use a folder that is for gua alone'}"


def others_who_may_write(data_dir: str) -> Opening | None:
    """The first way for others to write to the data folder; None if there is none."""
    for path in (data_dir, *(os.path.join(data_dir, name) for name in FOLDERS)):
        # Missing or hidden from us: opening it will raise the error.
        with suppress(OSError):
            if opening := who_may_write(path, "decide what is in the history"):
                return opening
    return None


def may_be_emptied(path: str, found: os.stat_result) -> bool:
    """Whether others may remove or rename files of a folder's that are not theirs."""
    return not found.st_mode & stat.S_ISVTX and who_may_write(path, found=found) is not None


def who_may_write(path: str, result: str = "", found: os.stat_result | None = None) -> Opening | None:
    """How others may write to the path, and with which result; None if they can't.

    A group with the owner's number does not count as others, since most users have such a group of their own; nor does
    root's. With an access list, the group bits stand for everybody in it.
    """
    found = found or os.stat(path)
    group, anybody = found.st_mode & stat.S_IWGRP, found.st_mode & stat.S_IWOTH
    if group and found.st_gid in (0, found.st_uid):
        attributes: list[str] = []
        with suppress(OSError):  # a file system without access lists
            attributes = os.listxattr(path)
        group = group if "system.posix_acl_access" in attributes else 0
    if not group and not anybody:
        return None
    import shlex  # imported here because nearly no run needs it

    change = f"chmod {'go' if group else 'o'}-w {shlex.quote(path)}"
    text = f"{'everybody' if anybody else f'group {found.st_gid}'} may write to {path}, and so {result}"
    return Opening(text, None if found.st_mode & stat.S_ISVTX else change)


def check_folder(data_dir: str) -> str | None:
    """A warning about a folder that others may write to. For root, raises StoreError instead."""
    opening = others_who_may_write(data_dir)
    if os.geteuid() == 0:
        refuse_as_root(opening)
        owner = owner_to_become(data_dir)
        refuse_as_root(_folder_of_others(data_dir, owner[0] if owner else 0))
    return None if opening is None else str(opening)


def others_on_the_way(path: str, uid: int) -> str | None:
    """How users other than root and `uid` could replace the path, and the remedy; None if they can't."""
    for place, found, is_end in _way(path):
        if found.st_uid not in (0, uid):
            whose = f"{path} is root's" if uid == 0 else f"{path} is uid {uid}'s"
            what = "leads through a link" if stat.S_ISLNK(found.st_mode) else "lies in a folder"
            return f"{whose}, but {what} of uid {found.st_uid}: give it to that user, or move it"
        is_between = not is_end and stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX
        if is_between and (opening := who_may_write(place, f"exchange {path}", found)):
            return f"{opening.text}: move it to a folder that nobody else can change"
    return None


def _way(path: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    place, links = "/", 0
    rest = os.path.abspath(path).split("/")[:0:-1]
    yield place, os.lstat(place), not rest
    while rest:
        name = rest.pop()
        if name == "..":
            place = os.path.dirname(place)
        if name in ("", ".", ".."):
            continue
        step = os.path.join(place, name)
        try:
            found = os.lstat(step)
            target = os.readlink(step) if stat.S_ISLNK(found.st_mode) else None
        except OSError:  # missing or hidden from us
            return
        yield step, found, not rest and target is None
        if target is None:
            place = step
            continue
        links += 1
        if links > MOST_LINKS:
            return
        place = "/" if target.startswith("/") else place
        rest += target.split("/")[::-1]


def _folder_of_others(data_dir: str, uid: int) -> str | None:
    for path in (os.path.join(data_dir, name) for name in FOLDERS):
        with suppress(OSError):
            found = os.stat(path).st_uid
            if found not in (0, uid):
                return f"{path} is uid {found}'s, and {data_dir} is uid {uid}'s: let them belong to one user"
    return None
