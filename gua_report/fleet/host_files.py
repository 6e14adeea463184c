"""The files of a fleet folder: FLEET/<host>/rollups.sqlite, the folder being named after the host. Without pandas."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gua_report.rollups.schema import FILE_NAME
from gua_report.summary.of_hosts import EARLIER, host_of
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.processes import printable

# rollups-2025.sqlite: what was collected of a host before it was reinstalled under its old name.
FILE = re.compile(r"rollups(?:-([A-Za-z0-9._-]{1,40}))?\.sqlite", re.ASCII)
LONGEST_HOST = 100
MOST_HOSTS = 100_000
MOST_FILES = 10  # of one host
GroupsOfHosts = Mapping[str, tuple[str, ...]]  # name -> hosts, or patterns such as gpu0*


class HostFile(NamedTuple):
    host: str  # the name of its folder
    name: str  # as reports call it: the host, or gpu07~2025 for its file rollups-2025.sqlite
    path: str


class Listed(NamedTuple):
    files: list[HostFile]  # by name
    unusable: dict[str, str]  # hosts without a file to read, and why


def list_hosts(folder: str, pattern: str | None, expected: Iterable[str]) -> Listed:
    """The files of the hosts whose names match the pattern, and the hosts that have none though they should.

    `expected` are the hosts that the configuration names. Raises GuaError if there is no such folder, or nobody in it.
    """
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NothingToReport(f"no folder {folder}: give the one that hosts' files are collected in") from error
    except OSError as error:
        raise StoreError(f"{folder} can't be read ({error.strerror}): run this as the user who collects") from error
    wanted = [name for name in names if _is_host(folder, name) and _matches(name, pattern)]
    if len(wanted) > MOST_HOSTS:
        raise StoreError(f"{folder} has {len(wanted):,} folders, more than {MOST_HOSTS:,}: give --hosts GLOB")
    listed = Listed([], {})
    for name in wanted:
        _add(listed, folder, name)
    for host in sorted(set(expected).difference(wanted)):
        if _matches(host, pattern):
            listed.unusable[host] = "in [hosts], and nothing of it was collected"
    if not listed.files and not listed.unusable:
        like = f" like {pattern}" if pattern else ""
        raise NothingToReport(f"no host{like} in {folder}: collect FOLDER/<host>/rollups.sqlite first (docs/fleet.md)")
    return listed


def _is_host(folder: str, name: str) -> bool:
    return not name.startswith(".") and os.path.isdir(os.path.join(folder, name))


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatch.fnmatchcase(name, pattern)


def _add(listed: Listed, folder: str, host: str) -> None:
    shown = printable(host)
    if shown != host or len(host) > LONGEST_HOST or EARLIER in host or "@" in host:
        listed.unusable[shown[:LONGEST_HOST]] = "no name for a host: rename its folder"
        return
    path = os.path.join(folder, host)
    if os.path.islink(path):
        listed.unusable[host] = "its folder is a link, which is not followed: put the folder itself there"
        return
    try:
        found = sorted(name for name in os.listdir(path) if FILE.fullmatch(name))
    except OSError as error:
        listed.unusable[host] = f"its folder can't be read: {error.strerror}"
        return
    if not found:
        listed.unusable[host] = "nothing was collected yet"
    if len(found) > MOST_FILES:
        listed.unusable[host] = f"its folder has {len(found):,} files, and may have {MOST_FILES}: move some elsewhere"
        return
    if found and FILE_NAME not in found:
        listed.unusable[host] = f"only files from before it was reinstalled, and no {FILE_NAME}"
    for name in found:
        label = FILE.fullmatch(name)
        earlier = label.group(1) if label else None
        shown = host if earlier is None else f"{host}{EARLIER}{earlier}"
        listed.files.append(HostFile(host, shown, os.path.join(path, name)))


def groups_of(host: str, groups: GroupsOfHosts) -> list[str]:
    """The groups that a host is in; an earlier file of it (gpu07~2025) is in those of the host."""
    name = host_of(host)
    return [group for group, listed in groups.items() if any(fnmatch.fnmatchcase(name, one) for one in listed)]


def expected_hosts(groups: GroupsOfHosts) -> set[str]:
    """The hosts that the configuration names, without patterns."""
    return {one for listed in groups.values() for one in listed if not set(one) & set("*?[")}
