"""Whether a program may be run as the hook: nobody but root can have written it, or can exchange it."""

from __future__ import annotations

import os
import stat

from gua_sample.errors import GuaError


class Untrusted(GuaError):
    """Why a file is not run."""


def check_target(path: str) -> None:
    """Raise Untrusted unless the file and every folder above it are root's, and nobody else may write to them.

    Links are refused: what they lead to would have to be looked at as well.
    """
    place = "/"
    names = [name for name in path.split("/") if name]
    if not path.startswith("/") or ".." in names or "." in names:
        raise Untrusted(f"{path} is no plain absolute path: give one in [hook] run")
    for number, name in enumerate(["", *names]):
        place = os.path.join(place, name)
        try:
            found = os.lstat(place)
        except OSError as error:
            raise Untrusted(
                f"{place} can't be looked at ({error.strerror}): create it, or correct [hook] run"
            ) from error
        is_last = number == len(names)
        _check_kind(place, found, is_last)
        _check_rights(place, found)
    if not found.st_mode & 0o111:
        raise Untrusted(f"{path} is not executable: sudo chmod 755 {path}")


def _check_kind(path: str, found: os.stat_result, is_last: bool) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise Untrusted(f"{path} is a link, which is not followed: name the file itself in [hook] run")
    if not (stat.S_ISREG if is_last else stat.S_ISDIR)(found.st_mode):
        raise Untrusted(f"{path} is no {'regular file' if is_last else 'folder'}: correct [hook] run")


def _check_rights(path: str, found: os.stat_result) -> None:
    if found.st_uid != 0:
        raise Untrusted(f"{path} belongs to uid {found.st_uid}, who could change what is run: sudo chown root {path}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"others than root may write to {path}, and change what is run: sudo chmod go-w {path}")
    if _has_access_list(path):
        raise Untrusted(f"{path} has an access list, which may let others write to it: sudo setfacl -b {path}")


def _has_access_list(path: str) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without access lists
        return False
