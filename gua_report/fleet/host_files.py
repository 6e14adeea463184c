"""The files of a fleet folder, FLEET/<host>/rollups.sqlite, and a first look at each: whose it is, which days it has.

A file was written by its host's root: nothing in it is trusted more than that. So it is looked at in a child, with
limits. Without pandas.
"""

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from gua_report.rollups.index import FILE_NAME, META, open_rollups, read_index, read_meta
from gua_report.summary.of_hosts import EARLIER, host_of
from gua_report.ticks.open_partition import has_log
from gua_report.window import number_of
from gua_sample.errors import CorruptPartition, EmptyPartition, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, JOURNAL_SUFFIX
from gua_sample.policy import RULE, Policy
from gua_sample.processes import printable
from gua_sample.safe_file import check_regular

# rollups-2025.sqlite: what was collected of a host before it was reinstalled under its old name.
FILE = re.compile(r"rollups(?:-([A-Za-z0-9._-]{1,40}))?\.sqlite", re.ASCII)
LONGEST_HOST = 100
MOST_HOSTS = 100_000
MOST_FILES = 10  # of one host
MOST_DAYS = 20_000  # of one file
NO_DAY = "1970-01-01"
GroupsOfHosts = Mapping[str, tuple[str, ...]]  # name -> hosts, or patterns such as gpu0*
MOST_FILE_BYTES = 1 << 30  # a year of 128 cards takes 0.1 GB
ASKED = ".before"  # left by contrib/fleet/gua-collect beside the file


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
    names = [name for name in names if not name.startswith(".") and os.path.isdir(os.path.join(folder, name))]
    glob = "*" if pattern is None else pattern
    wanted = [name for name in names if fnmatch.fnmatchcase(name, glob)]
    if len(wanted) > MOST_HOSTS:
        raise StoreError(f"{folder} has {len(wanted):,} folders, more than {MOST_HOSTS:,}: give --hosts GLOB")
    listed = Listed([], {})
    for name in wanted:
        _add(listed, folder, name)
    for host in sorted(set(expected).difference(wanted)):
        if fnmatch.fnmatchcase(host, glob):
            listed.unusable[host] = "in [hosts], and nothing of it was collected"
    if not listed.files and not listed.unusable:
        like = f" like {pattern}" if pattern else ""
        raise NothingToReport(f"no host{like} in {folder}: collect FOLDER/<host>/rollups.sqlite first (docs/fleet.md)")
    return listed


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
        found = {match[0]: match[1] for match in map(FILE.fullmatch, sorted(os.listdir(path))) if match}
    except OSError as error:
        listed.unusable[host] = f"its folder can't be read: {error.strerror}"
        return
    if not found:
        listed.unusable[host] = "nothing was collected yet"
    elif len(found) > MOST_FILES:
        listed.unusable[host] = f"its folder has {len(found):,} files, and may have {MOST_FILES}: move some elsewhere"
        return
    elif FILE_NAME not in found:
        listed.unusable[host] = f"only files from before it was reinstalled, and no {FILE_NAME}"
    for name, earlier in found.items():
        shown = host if earlier is None else f"{host}{EARLIER}{earlier}"
        listed.files.append(HostFile(host, shown, os.path.join(path, name)))


def groups_of(host: str, groups: GroupsOfHosts) -> list[str]:
    """The groups that a host is in; an earlier file of it (gpu07~2025) is in those of the host."""
    name = host_of(host)
    return [group for group, listed in groups.items() if any(fnmatch.fnmatchcase(name, one) for one in listed)]


def expected_hosts(groups: GroupsOfHosts) -> set[str]:
    return {one for listed in groups.values() for one in listed if not set(one) & set("*?[")}


class Look(NamedTuple):
    name: str  # of the HostFile
    machine: str | None  # 32 hex digits; None: not known
    version: str | None
    published_ms: int | None
    newest_tick_ms: int | None
    changed_ms: int  # when the file was last changed
    days: int  # 0: none is over yet, and the following are of no meaning
    first_ms: int  # the beginning of the oldest day's time
    first_day: str
    newest_day: str
    thresholds: list[tuple[Policy, int]]  # with the number of days by today's rule under each, most of them first
    other_rule_days: int
    has_meta: bool
    warnings: list[str]
    asked_ms: int | None  # when, by the collector's clock, the host's newest file was not there yet


def look_at(file: HostFile, check: bool = False) -> Look:
    """Look at a file, with `check` at every page. Raises StoreError."""
    found = check_whole(file.path)
    warnings: list[str] = []
    try:
        index = read_index(file.path, check, warnings)
    except EmptyPartition as error:
        raise CorruptPartition("its file is empty, probably a copy that failed: collect it again") from error
    if not index and warnings:
        raise CorruptPartition(warnings[0])
    if len(index) > MOST_DAYS:
        raise CorruptPartition(f"{file.path} holds {len(index):,} days, as no gua writes")
    with open_rollups(file.path) as connection:
        is_published = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (META,)).fetchone()
        query, first = "SELECT min(start_ms) FROM span WHERE day_id = ?", min(index, default=NO_DAY)
        start_ms = connection.execute(query, (number_of(first),)).fetchone()[0] or 0
    meta = read_meta(file.path) if is_published else None  # None: a plain copy, which does not say
    if not 0 <= start_ms <= DAY_MS:
        raise CorruptPartition(f"{file.path} holds what no gua writes")
    asked_ms = None
    with suppress(OSError, CorruptPartition):
        asked_ms = check_regular(os.path.join(os.path.dirname(file.path), ASKED), 0).st_mtime_ns // 1_000_000
    policies = Counter(stored.origin.policy for stored in index.values() if stored.rule == RULE)
    return Look(
        name=file.name,
        machine=meta and meta.machine,
        version=meta and meta.gua_version,
        published_ms=meta and meta.published_ms,
        newest_tick_ms=meta and meta.newest_tick_ms,
        changed_ms=found.st_mtime_ns // 1_000_000,
        days=len(index),
        first_ms=number_of(first) * DAY_MS + start_ms,
        first_day=first,
        newest_day=max(index, default=NO_DAY),
        thresholds=policies.most_common(),
        other_rule_days=sum(stored.rule != RULE for stored in index.values()),
        has_meta=meta is not None,
        warnings=warnings[:3],
        asked_ms=asked_ms,
    )


class LookAtFiles(NamedTuple):
    """The work of looking at files, each for itself."""

    is_thorough: bool = False

    def read(self, _: int, file: HostFile) -> Look:
        return look_at(file, self.is_thorough)

    def combine(self, looks: list[Look]) -> list[Look]:
        return looks

    def restore(self, files: Sequence[HostFile], sent: Any) -> list[Look]:
        looks = (Look(*one) for one in sent)
        return [look._replace(thresholds=[(Policy(*one), days) for one, days in look.thresholds]) for look in looks]


def is_short_of_memory(error: BaseException) -> bool:
    """Whether there was no memory, which other hosts may have taken, and not damage."""
    return isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)


def check_whole(path: str) -> os.stat_result:
    """The stat of a host's file. Raises CorruptPartition if it is too large, or does not stand alone.

    SQLite would need a copy of it then, which a host could make outlast its reader, again and again, and fill the disk.
    """
    found = check_regular(path, MOST_FILE_BYTES)
    if has_log(path) or os.path.lexists(path + JOURNAL_SUFFIX):
        raise CorruptPartition(f"{path} has a log or a journal, as no published file has: collect it again")
    return found
