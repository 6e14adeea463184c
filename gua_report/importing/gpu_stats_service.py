"""The daily files of gpu_stats_service: `timestamp,user,pid,gpu,usage`.

Facts from its sources: one line for each card that has a process, with the first of its processes and the
card's utilization; if no card has one, a single line of dashes. No memory, no uuids, no cards that were never used.
Times are whole minutes (earlier: seconds) since the epoch, files are named by the local day.
"""

import csv
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from typing import NamedTuple

from gua_report.console.terminal import progress_bar, tracked
from gua_report.importing.intake import EARLIEST_MS, LARGEST_PID, MADE_UP_UUID, Source, Tally, name
from gua_sample.errors import CorruptPartition, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.records import IMPORTED_BOOT, Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.safe_file import open_regular

KIND = "gpu_stats_service CSV"
HEADER = ["timestamp", "user", "pid", "gpu", "usage"]
OUR_COLUMN = "gpu_uuid"
NOBODY = "-"
# One boot for all ticks: the files do not tell when the machine was started.
BOOT = Boot(IMPORTED_BOOT + "gpu_stats_service", 0)
# The files do not tell whether a process computes.
TYPE = "unknown"
LARGEST_INDEX = 1023
LATEST_SECONDS = 2**40
LONGEST_HEADER = LONGEST_LINE = 10_000
MOST_BYTES = 1 << 30  # 128 cards, all in use, take 11 MB a day

# Lines are sorted in a temporary database: they may come from several files, in any order, and more than once.
SPOOL = """
    CREATE TABLE line (ts_ms INTEGER, gpu INTEGER, pid INTEGER, user TEXT, usage INTEGER, PRIMARY KEY (ts_ms, gpu, pid))
    WITHOUT ROWID
"""
FIRST_SEEN = "SELECT gpu, min(ts_ms) FROM line WHERE gpu != ? AND ts_ms >= ? GROUP BY gpu"
NO_CARD = -1  # a line of dashes
CUT_OFF = "cut off, and with it the others of its time"


class Line(NamedTuple):
    ts_ms: int
    gpu: int
    pid: int
    user: str | None
    usage: int


def is_header(line: str) -> bool:
    fields = [field.strip().lower() for field in line.lstrip("\ufeff").strip().split(",")]
    return fields[: len(HEADER)] == HEADER


@contextmanager
def open_source(paths: list[str], tally: Tally) -> Iterator[Source]:
    with closing(sqlite3.connect("", isolation_level=None)) as spool:
        spool.execute(SPOOL)
        spool.execute("BEGIN")
        try:
            for path in tracked(paths, progress_bar()):
                _read_file(path, spool, tally)
        except sqlite3.Error as error:
            raise StoreError(f"no place to sort the lines in ({error}): set TMPDIR to where there is space") from error
        first_seen = dict(spool.execute(FIRST_SEEN, (NO_CARD, EARLIEST_MS)))
        days = [row[0] for row in spool.execute("SELECT DISTINCT ts_ms / ? FROM line ORDER BY 1", (DAY_MS,))]
        by_day = {day_of(day * DAY_MS): day for day in days}
        yield Source(KIND, list(by_day), lambda day: _read_day(spool, by_day[day], first_seen, tally))


def _read_file(path: str, spool: sqlite3.Connection, tally: Tally) -> None:
    shown = os.path.basename(path)
    try:
        descriptor = open_regular(path, MOST_BYTES)
        with open(descriptor, encoding="utf-8", errors="backslashreplace", newline="") as file:
            _check_whole(descriptor, path)
            header = file.readline(LONGEST_HEADER)
            if not is_header(header):
                tally.leave("file", f"without the columns {','.join(HEADER)}", shown)
            elif OUR_COLUMN in header:
                tally.leave("file", "written by gua itself, whose data folder tells more: import that", shown)
            else:
                _take_lines(iter(lambda: file.readline(LONGEST_LINE), ""), shown, spool, tally)
    except CorruptPartition as error:
        tally.refuse(shown, str(error))
    except OSError as error:
        tally.refuse(shown, f"{path} can't be read ({error.strerror}): check its owner and mode")


def _check_whole(descriptor: int, path: str) -> None:
    """Raise CorruptPartition if the file is sparse: holes take no space, but would be read as zeros for hours."""
    size = os.fstat(descriptor).st_size
    if size and os.lseek(descriptor, 0, os.SEEK_HOLE) < size:
        raise CorruptPartition(f"{path} has holes: if these are meant, fill them with cp --sparse=never")
    os.lseek(descriptor, 0, os.SEEK_SET)


def _take_lines(file: Iterable[str], shown: str, spool: sqlite3.Connection, tally: Tally) -> None:
    """Add the file's lines to the spool by whole ticks only: the rest of a partial tick would never be added."""
    waiting: list[tuple[Line, str]] = []
    for number, text in enumerate(file, 2):
        place = f"{shown}:{number}"
        if not text.endswith(("\n", "\r")):
            timestamp, comma, _ = text.partition(",")
            if waiting and (not comma or _time_ms(timestamp) == waiting[0][0].ts_ms):
                tally.leave("line", CUT_OFF, place, count=1 + len(waiting))
                return
            tally.leave("line", CUT_OFF, place)
        elif text.strip():
            line = _parse(text)
            if isinstance(line, str):
                tally.leave("line", line, place)
                continue
            if waiting and waiting[0][0].ts_ms != line.ts_ms:
                _spool(waiting, spool, tally)
                waiting = []
            waiting.append((line, place))
    _spool(waiting, spool, tally)


def _spool(lines: list[tuple[Line, str]], spool: sqlite3.Connection, tally: Tally) -> None:
    for line, place in lines:
        added = spool.execute("INSERT OR IGNORE INTO line VALUES (?, ?, ?, ?, ?)", line).rowcount
        if not added:
            known = spool.execute("SELECT user, usage FROM line WHERE ts_ms = ? AND gpu = ? AND pid = ?", line[:3])
            if known.fetchone() != (line.user, line.usage):
                tally.leave("line", "contradicting another of the same time, card and pid", place)


def _parse(text: str) -> Line | str:
    """The parsed line, or the reason why it can't be imported."""
    try:
        fields = next(csv.reader([text]))
    except (csv.Error, StopIteration):
        fields = []
    if len(fields) < len(HEADER):
        return "with too few fields"
    timestamp, user, pid, gpu, usage = (field.strip() for field in fields[: len(HEADER)])
    ts_ms = _time_ms(timestamp)
    if ts_ms is None:
        return "whose time can't be read"
    if gpu == NOBODY and pid == NOBODY:
        return Line(ts_ms, NO_CARD, 0, None, 0)
    number = {"gpu": _number(gpu, 0, LARGEST_INDEX), "usage": _number(usage, 0, 100)}
    number["pid"] = 0 if pid in (NOBODY, "") else _number(pid, 1, LARGEST_PID)
    for field, value in number.items():
        if value is None:
            return f"whose {field} makes no sense"
    return Line(
        ts_ms, number["gpu"] or 0, number["pid"] or 0, None if user == NOBODY else name(user), number["usage"] or 0
    )


def _time_ms(text: str) -> int | None:
    seconds = _number(text.strip(), 0, LATEST_SECONDS)
    return None if seconds is None else seconds * 1000


def _number(text: str, lowest: int, highest: int) -> int | None:
    """A plain number. int() would also accept "1_0", " 7" and digits of other scripts, or take for ever."""
    whole = text[:-2] if text.endswith(".0") else text  # as pandas writes a column with gaps
    if not (whole.isascii() and whole.isdigit() and len(whole) < 16):
        return None
    return int(whole) if lowest <= int(whole) <= highest else None


def _read_day(spool: sqlite3.Connection, day: int, first_seen: dict[int, int], tally: Tally) -> list[Tick]:
    sql = "SELECT * FROM line WHERE ts_ms BETWEEN ? AND ? ORDER BY ts_ms, gpu, pid"
    lines = map(Line._make, spool.execute(sql, (day * DAY_MS, (day + 1) * DAY_MS - 1)))
    ticks = []
    for ts_ms, of_tick in groupby(lines, key=lambda line: line.ts_ms):
        tick = _tick(ts_ms, list(of_tick), first_seen)
        if tick.cards:
            ticks.append(tick)
        else:
            tally.leave("tick", "before any card was seen", day_of(ts_ms))
    return ticks


def _tick(ts_ms: int, lines: list[Line], first_seen: dict[int, int]) -> Tick:
    """The tick of these lines. A card that was seen before and has no line now has no process."""
    by_card: dict[int, list[Line]] = {gpu: [] for gpu, first in first_seen.items() if first <= ts_ms}
    for line in lines:
        if line.gpu != NO_CARD:
            by_card.setdefault(line.gpu, []).append(line)
    cards = [_card(gpu, of_card) for gpu, of_card in sorted(by_card.items())]
    processes = {
        line.pid: Process(line.pid, None, None, None, line.user, None, None, None) for line in lines if line.pid
    }
    return Tick(ts_ms, None, BOOT, None, None, None, cards, processes, [])


def _card(gpu: int, lines: list[Line]) -> Card:
    # All memory and other processes than the first are unknown, so a card without work is unknown, not idle.
    usages = [Usage(line.pid, TYPE, None, None) for line in lines if line.pid]
    facts = CardFacts(f"{MADE_UP_UUID}{gpu}", gpu)
    percent = float(max(line.usage for line in lines)) if lines else None
    return Card(facts, percent, None if percent is None else "rate", usages=usages)
