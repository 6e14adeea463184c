"""Writing as the owner of the data folder while the source is read as whoever called.

The other writing commands become the owner for good. Here that would often cost the source: root's own
/root/.gua/gua.db is closed to the sampler's user.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_owner(path: str) -> Iterator[None]:
    """As root, be the user who owns the folder meanwhile: a file of root's would lock the service out for the day."""
    owner = _owner(path)
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        os.initgroups(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:
        os.setgroups([])
    try:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _owner(path: str) -> os.stat_result:
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path)
