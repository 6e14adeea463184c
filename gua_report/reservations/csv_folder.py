"""Read reservations from a folder of CSV files, such as the one with a file for each Slurm job (contrib/slurm).

A job's file is called JOB-START.csv while the job runs, and JOB-START-END.csv afterwards; times are epoch seconds. So
those that ended long ago are passed over by their names. All other `*.csv` files are read.
"""

from __future__ import annotations

import os
import re
from datetime import tzinfo
from itertools import islice

from gua_report.reservations import csv_file
from gua_report.reservations.reservation import FOREVER_MS, JOB, Book, FewLines, Reservation
from gua_sample.errors import StoreError
from gua_sample.processes import printable, read_boot
from gua_sample.rights import who_may_write
from gua_sample.safe_file import read_regular

MOST_NAMES, MOST_FILES = 1_000_000, 100_000  # that are looked at, and that are read
MOST_BYTES, MOST_BYTES_OF_ALL = 1 << 20, csv_file.MOST_BYTES
OF_A_JOB = re.compile(r"(\d{1,18}-\d{1,18})(?:-(\d{1,18}))?\.csv", re.ASCII)
NOTE = re.compile(r"job (\d{1,18})", re.ASCII)
BOOT_FILE = ".boot"  # the boot in which a prolog or epilog last ran


def read(folder: str, since_ms: int, zone: tzinfo, book: Book) -> None:
    """Add the reservations in the folder's files to the book, but for those of jobs that ended before that time."""
    try:
        if opening := who_may_write(folder, "reserve cards for anybody"):
            book.give_up(f"reservations are not read from {folder}: {opening}")
            return
        _Folder(folder, since_ms, zone, book).read()
    except OSError as error:
        book.give_up(f"reservations can't be read from {folder} ({error.strerror}): check [reservations] in the config")


class _Folder:
    def __init__(self, path: str, since_ms: int, zone: tzinfo, book: Book) -> None:
        self.path, self.since_ms, self.zone, self.book = path, since_ms, zone, book
        self.problems = FewLines(book.complain, f"more problems with files in {path}")
        self.found = Book(self.problems.say)  # its own, as very many files may be bad
        self.bytes_left = MOST_BYTES_OF_ALL
        self.is_cut = False  # whether there is more than is read

    def read(self) -> None:
        done: set[str] = set()
        for _ in range(3):  # an epilog renames files: those that have vanished are looked for under other names
            names = [name for name in self._list() if _key(name) not in done]
            done |= {_key(name) for name in names if self._read_file(name)}
            if all(_key(name) in done for name in names):
                break
        if self.is_cut:
            limits = f"{MOST_FILES:,} files, {MOST_BYTES_OF_ALL >> 20} MiB, {csv_file.MOST_ROWS:,} rows"
            self.book.give_up(f"{self.path} has more than is read ({limits}): remove old files; a card may be in those")
        self.problems.finish()
        ended_ms = self._end_of_last_boot()
        self.book.reservations += [_with_job(one, ended_ms) for one in self.found.reservations]
        self.book.unreadable |= self.found.unreadable
        self.book.is_complete &= self.found.is_complete

    def _list(self) -> list[str]:
        """The names of the files that may matter; the jobs that run come first, then those that ended last."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        ends_ms = {name: _ended_ms(name) for name in names if name.endswith(".csv") and not name.startswith(".")}
        wanted = sorted((-ended_ms, name) for name, ended_ms in ends_ms.items() if ended_ms > self.since_ms)
        self.is_cut |= len(names) > MOST_NAMES or len(wanted) > MOST_FILES
        return [name for _, name in wanted[:MOST_FILES]]

    def _read_file(self, name: str) -> bool:
        """Read a file; False if it has vanished."""
        path = os.path.join(self.path, name)
        if self.bytes_left <= 0 or len(self.found.reservations) >= csv_file.MOST_ROWS:
            self.is_cut = True
            return True
        try:
            data = read_regular(path, MOST_BYTES)
        except FileNotFoundError:
            return False
        except StoreError as error:
            self.found.give_up(printable(str(error)))
        except OSError as error:
            self.found.give_up(f"reservations can't be read from {printable(path)} ({error.strerror})")
        else:
            self.bytes_left -= len(data)
            csv_file.parse(printable(path), data, True, self.zone, self.found)
        return True

    def _end_of_last_boot(self) -> int | None:
        """When all jobs that have no end yet ended at the latest: at this boot, if no prolog or epilog ran since."""
        try:
            last = read_regular(os.path.join(self.path, BOOT_FILE), MOST_BYTES)
        except (OSError, StoreError):  # other files than those of jobs
            return None
        boot = read_boot()
        return None if last.strip() in (b"", boot.id.encode()) else boot.time_ms


def _key(name: str) -> str:
    """What a file is called whether its job runs or has ended."""
    found = OF_A_JOB.fullmatch(name)
    return found[1] if found else name


def _ended_ms(name: str) -> int:
    found = OF_A_JOB.fullmatch(name)
    return int(found[2]) * 1000 if found and found[2] else FOREVER_MS


def _with_job(one: Reservation, ended_ms: int | None) -> Reservation:
    """The reservation, marked as that of a job if its note says so; `ended_ms`: the end of a job that has none."""
    job = NOTE.fullmatch(one.note)
    if job is None:
        return one
    if ended_ms is not None and one.end_ms == FOREVER_MS:
        one = one._replace(end_ms=max(ended_ms, one.start_ms + 1))
    return one._replace(kind=JOB, job=job[1])
