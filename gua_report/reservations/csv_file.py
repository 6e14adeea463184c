"""Read reservations from a CSV file: gpu,user,from,to,note. Invalid rows are named in complaints; the others count."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import tzinfo

from gua_report.console.bounded_file import NoRegularFile, read_bounded
from gua_report.reservations.reservation import FOREVER_MS, BadEntry, Book, FewLines, Reservation, moment_ms, shown

# Enough for thirty years with a reservation a day on each of nine cards.
MOST_ROWS = 100_000
MOST_BYTES = 16 << 20
MOST_COLUMNS = 100
COLUMNS = ("gpu", "user", "from", "to", "note")
OPTIONAL = ("note",)
A_TIME = "a time such as 2026-11-16 or 2026-11-16T08:30, or epoch seconds"


def read(path: str, zone: tzinfo, book: Book) -> None:
    """Add the file's reservations to the book."""
    try:
        content = read_bounded(path, MOST_BYTES)
    except NoRegularFile as error:
        book.give_up(f"reservations can't be read from {path}: {error.strerror}")
    except OSError as error:
        book.give_up(f"reservations can't be read from {path} ({error.strerror}): check [reservations] in the config")
    else:
        parse(path, content.data, content.is_whole, zone, book)


def parse(path: str, data: bytes, is_whole: bool, zone: tzinfo, book: Book) -> None:
    """Add the reservations in a file's content to the book. `path` is the file's name in messages."""
    # A truncated row may say something else than the whole one.
    data = data if is_whole else data[: data.rfind(b"\n") + 1]
    try:
        data.decode()  # all of it, before any row counts
    except UnicodeDecodeError:
        book.give_up(f"{path}: expected a CSV file in UTF-8")
    else:
        _read_rows(path, io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), is_whole, zone, book)


def _read_rows(path: str, file: Iterator[str], is_whole: bool, zone: tzinfo, book: Book) -> None:
    names: list[str] = []
    bad = FewLines(book.complain, f"more rows in {path} make no sense")
    count = 0
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
    bad.finish()
    if not is_whole:
        book.give_up(
            f"{path}: only its first {count:,} rows are read, as there are more than {MOST_ROWS:,} or"
            f" {MOST_BYTES >> 20} MiB: take out those of the past; a card that these do not name may be reserved"
        )
    elif not names:
        book.give_up(f"{path} is empty: expected a first line {','.join(COLUMNS)}")


def _split(path: str, file: Iterator[str], bad: FewLines) -> Iterator[tuple[str, list[str] | None]]:
    """The place and the fields of each row that is not blank; None for fields that can't be parsed."""
    rows = csv.reader(file, strict=True)  # otherwise an unclosed quote would swallow the rows after it
    while True:
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            bad.say(f"{path} line {rows.line_num}: {error}: expected comma-separated values")
            yield f"{path} line {rows.line_num}", None
            continue
        if any(field.strip() for field in fields):
            yield f"{path} line {rows.line_num}", fields


def _is_header(where: str, names: list[str], book: Book) -> bool:
    """Whether each required column is there, and none twice. Unknown columns are named in a complaint and ignored."""
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


def _add_row(names: list[str], fields: list[str], where: str, zone: tzinfo, book: Book, bad: FewLines) -> None:
    gpu = ""
    try:
        if len(fields) > len(names):
            raise BadEntry(f"{len(fields)} values, but {len(names)} columns: put a text with commas in double quotes")
        row = {**dict.fromkeys(COLUMNS, ""), **dict(zip(names, map(str.strip, fields), strict=False))}
        gpu = _gpu(row["gpu"])
        book.reservations.append(_reservation(gpu, row, where, zone))
    except BadEntry as error:
        bad.say(f"{where}: {error}")
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
