"""Read reservations from CSV files: gpu,user,from,to,note. Invalid rows are named in complaints; the others count.

A folder may have very many, such as the one with a file for each Slurm job (contrib/slurm). A job's file is called
JOB-START.csv while the job runs, and JOB-START-END.csv afterwards; times are epoch seconds. So those that ended long
ago are passed over by their names. All other `*.csv` files are read.
"""

import csv
import io
import os
import re
from collections.abc import Iterator
from datetime import tzinfo
from itertools import islice

from gua_report.console.whole_file import NoRegularFile, read_untrusted
from gua_report.reservations.reservation import (
    FOREVER_MS,
    JOB,
    BadEntry,
    Book,
    Reservation,
    complain_of,
    moment_ms,
    shown,
)
from gua_sample.errors import StoreError
from gua_sample.processes import printable, read_boot
from gua_sample.rights import who_may_write
from gua_sample.safe_file import read_regular

# Enough for thirty years with a reservation a day on each of nine cards.
MOST_ROWS = 100_000
MOST_BYTES = 16 << 20
MOST_COLUMNS = 100
COLUMNS = ("gpu", "user", "from", "to", "note")
OPTIONAL = ("note",)
A_TIME = "a time such as 2026-11-16 or 2026-11-16T08:30, or epoch seconds"
MOST_NAMES, MOST_FILES = 1_000_000, 100_000  # that are looked at, and that are read
MOST_BYTES_OF_ONE = 1 << 20  # of a folder's files; all of them together are limited as one file is
OF_A_JOB = re.compile(r"(\d{1,18}-\d{1,18})(?:-(\d{1,18}))?\.csv", re.ASCII)
NOTE = re.compile(r"job (\d{1,18})", re.ASCII)
BOOT_FILE = ".boot"  # the boot in which a prolog or epilog last ran


def read_file(path: str, zone: tzinfo, book: Book) -> None:
    try:
        content = read_untrusted(path, MOST_BYTES)
    except NoRegularFile as error:
        book.give_up(f"reservations can't be read from {path}: {error.strerror}")
    except StoreError as error:
        book.give_up(f"reservations can't be read: {error}")
    except OSError as error:
        book.give_up(f"reservations can't be read from {path} ({error.strerror}): check [reservations] in the config")
    else:
        parse(path, content.data, content.is_whole, zone, book)


def parse(path: str, data: bytes, is_whole: bool, zone: tzinfo, book: Book) -> None:
    # A truncated row may say something else than the whole one.
    data = data if is_whole else data[: data.rfind(b"\n") + 1]
    try:
        text = data.decode("utf-8-sig")  # all of it, before any row counts
    except UnicodeDecodeError:
        book.give_up(f"{path}: expected a CSV file in UTF-8")
    else:
        _read_rows(path, io.StringIO(text, newline=""), is_whole, zone, book)


def _read_rows(path: str, file: Iterator[str], is_whole: bool, zone: tzinfo, book: Book) -> None:
    names, bad, count = list[str](), list[str](), 0
    for where, fields in _split(path, file, bad):
        if fields is None:
            book.is_complete = False
        elif not names:
            names = [field.strip().lower() for field in fields]
            if not _is_header(where, names, book):
                return
        elif count == MOST_ROWS:
            is_whole = False
            break
        else:
            count += 1
            _add_row(names, fields, where, zone, book, bad)
    complain_of(bad, f"more rows in {path} make no sense", book.complain)
    if not is_whole:
        book.give_up(
            f"{path}: only its first {count:,} rows are read, as there are more than {MOST_ROWS:,} or"
            f" {MOST_BYTES >> 20} MiB: take out those of the past; a card that these do not name may be reserved"
        )
    elif not names:
        book.give_up(f"{path} is empty: expected a first line {','.join(COLUMNS)}")


def _split(path: str, file: Iterator[str], bad: list[str]) -> Iterator[tuple[str, list[str] | None]]:
    rows = csv.reader(file, strict=True)  # otherwise an unclosed quote would swallow the rows after it
    while True:
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            bad.append(f"{path} line {rows.line_num}: {error}: expected comma-separated values")
            yield f"{path} line {rows.line_num}", None
            continue
        if any(field.strip() for field in fields):
            yield f"{path} line {rows.line_num}", fields


def _is_header(where: str, names: list[str], book: Book) -> bool:
    """Whether each required column is there, and none twice. Unknown columns are a complaint."""
    if len(names) > MOST_COLUMNS:
        book.give_up(f"{where}: {len(names):,} columns: expected {','.join(COLUMNS)}")
        return False
    unknown = [shown(name) for name in names if name not in COLUMNS]
    missing = [name for name in COLUMNS if name not in names and name not in OPTIONAL]
    twice = sorted({name for name in names if names.count(name) > 1 and name in COLUMNS})
    said = [f"no column {', '.join(missing)}"] if missing else []
    said += [f"unknown column {', '.join(unknown)}"] if unknown else []
    said += [f"column {', '.join(twice)} twice"] if twice else []
    if said:
        book.complain(f"{where}: {'; '.join(said)}: expected {','.join(COLUMNS)}")
    if missing or twice:
        book.is_complete = False
    return not missing and not twice


def _add_row(names: list[str], fields: list[str], where: str, zone: tzinfo, book: Book, bad: list[str]) -> None:
    gpu = ""
    try:
        if len(fields) > len(names):
            raise BadEntry(f"{len(fields)} values, but {len(names)} columns: put a text with commas in double quotes")
        row = {**dict.fromkeys(COLUMNS, ""), **dict(zip(names, map(str.strip, fields), strict=False))}
        gpu = _gpu(row["gpu"])
        book.reservations.append(_reservation(gpu, row, where, zone))
    except BadEntry as error:
        bad.append(f"{where}: {error}")
        if gpu:
            book.unreadable.add(gpu)
        else:
            book.is_complete = False


def _gpu(text: str) -> str:
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    if not text.startswith(("GPU-", "MIG-")):
        raise BadEntry(f"bad gpu {shown(text)}: expected the index of a card, or its uuid")
    return text


def _reservation(gpu: str, row: dict[str, str], where: str, zone: tzinfo) -> Reservation:
    user, start, end = row["user"], row["from"], row["to"]
    if not user:
        raise BadEntry("no user: expected the name of whoever reserved the card")
    start_ms = moment_ms(start, zone)
    if start_ms is None:
        raise BadEntry(f"bad from {shown(start)}: expected {A_TIME}")
    end_ms = moment_ms(end, zone) if end else FOREVER_MS
    if end_ms is None:
        raise BadEntry(f"bad to {shown(end)}: expected {A_TIME}, or nothing")
    if end_ms <= start_ms:
        raise BadEntry(f"bad to {shown(end)}: expected a time after {shown(start)}")
    return Reservation(gpu, user, start_ms, end_ms, "file", row["note"], where)


def read_folder(folder: str, since_ms: int, zone: tzinfo, book: Book) -> None:
    try:
        if opening := who_may_write(folder, "reserve cards for anybody"):
            remedy = "name a folder that only root may change"
            book.give_up(f"reservations are not read from {folder}: {opening.text}: {remedy}")
            return
        _Folder(folder, since_ms, zone, book).read()
    except OSError as error:
        book.give_up(f"reservations can't be read from {folder} ({error.strerror}): check [reservations] in the config")


class _Folder:
    def __init__(self, path: str, since_ms: int, zone: tzinfo, book: Book) -> None:
        self.path, self.since_ms, self.zone, self.book = path, since_ms, zone, book
        self.problems: list[str] = []
        self.found = Book(self.problems.append)  # its own, as very many files may be bad
        self.bytes_left = MOST_BYTES
        self.is_cut = False  # whether there is more than is read

    def read(self) -> None:
        done: set[str] = set()
        for _ in range(3):  # an epilog renames files: those that have vanished are looked for under other names
            names = [name for name in self._list() if _key(name) not in done]
            done |= {_key(name) for name in names if self._read_file(name)}
            if all(_key(name) in done for name in names):
                break
        complain_of(self.problems, f"more problems with files in {self.path}", self.book.complain)
        if self.is_cut:
            limits = f"{MOST_FILES:,} files, {MOST_BYTES >> 20} MiB, {MOST_ROWS:,} rows"
            self.book.give_up(f"{self.path} has more than is read ({limits}): remove old files; a card may be in those")
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
        if self.bytes_left <= 0 or len(self.found.reservations) >= MOST_ROWS:
            self.is_cut = True
            return True
        try:
            data = read_regular(path, MOST_BYTES_OF_ONE)
        except FileNotFoundError:
            return False
        except StoreError as error:
            self.found.give_up(printable(str(error)))
        except OSError as error:
            self.found.give_up(f"reservations can't be read from {printable(path)} ({error.strerror})")
        else:
            self.bytes_left -= len(data)
            parse(printable(path), data, True, self.zone, self.found)
        return True

    def _end_of_last_boot(self) -> int | None:
        """When all jobs that have no end yet ended at the latest: at this boot, if no prolog or epilog ran since."""
        try:
            last = read_regular(os.path.join(self.path, BOOT_FILE), MOST_BYTES_OF_ONE)
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
    """The reservation, as that of a job if its note says so. `ended_ms`: for a job without an end."""
    job = NOTE.fullmatch(one.note)
    if job is None:
        return one
    if ended_ms is not None and one.end_ms == FOREVER_MS:
        one = one._replace(end_ms=max(ended_ms, one.start_ms + 1))
    return one._replace(kind=JOB, job=job[1])
