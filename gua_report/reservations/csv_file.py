"""Reservations in a CSV file: gpu,user,from,to,note. Invalid rows are named in complaints, and the others count."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import NamedTuple

from gua_report.console.bounded_file import NoRegularFile, read_bounded
from gua_report.reservations.reservation import FOREVER_MS, FewLines, Reservation, moment_ms, shown

# Enough for thirty years with a reservation a day on each of nine cards.
MOST_ROWS = 100_000
MOST_BYTES = 16 << 20
MOST_COLUMNS = 100
COLUMNS = ("gpu", "user", "from", "to", "note")
OPTIONAL = ("note",)
A_TIME = "a time such as 2026-11-16 or 2026-11-16T08:30, or epoch seconds"

Complain = Callable[[str], None]


class BadValue(Exception):
    """An invalid row; the text says why. `gpu`: the row's card, if known."""

    def __init__(self, text: str, gpu: str | None = None) -> None:
        super().__init__(text)
        self.gpu = gpu


class Rows(NamedTuple):
    reservations: list[Reservation]
    unreadable: set[str]  # cards of invalid rows
    is_complete: bool  # False: any card may have reservations that could not be read


def read(path: str, zone: tzinfo, complain: Complain) -> Rows | None:
    """The file's reservations; None, with a complaint, if nothing in the file can be used."""
    try:
        content = read_bounded(path, MOST_BYTES)
        # A truncated row may say something else than the whole one.
        data = content.data if content.is_whole else content.data[: content.data.rfind(b"\n") + 1]
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
        return _read_rows(path, text, content.is_whole, zone, complain)
    except NoRegularFile as error:
        complain(f"reservations can't be read from {path}: {error.strerror}")
    except OSError as error:
        complain(f"reservations can't be read from {path} ({error.strerror}): check [reservations] in the config")
    except UnicodeDecodeError:
        complain(f"{path}: expected a CSV file in UTF-8")
    return None


def _read_rows(path: str, file: Iterator[str], is_whole: bool, zone: tzinfo, complain: Complain) -> Rows | None:
    names: list[str] = []
    found = Rows([], set(), True)
    bad = FewLines(complain, f"more rows in {path} make no sense")
    count = 0
    for where, fields in _split(path, file, bad):
        if fields is None:
            found = found._replace(is_complete=False)
        elif not names:
            names = [field.strip().lower() for field in fields]
            if not _is_header(where, names, complain):
                return None
        elif count == MOST_ROWS:
            is_whole = False
            break
        else:
            count += 1
            try:
                found.reservations.append(_reservation(names, fields, where, zone))
            except BadValue as error:
                bad.say(f"{where}: {error}")
                if error.gpu is None:
                    found = found._replace(is_complete=False)
                else:
                    found.unreadable.add(error.gpu)
    bad.finish()
    if not is_whole:
        complain(
            f"{path}: only its first {count:,} rows are read, as there are more than {MOST_ROWS:,} or"
            f" {MOST_BYTES >> 20} MiB: take out those of the past; a card that these do not name may be reserved"
        )
        found = found._replace(is_complete=False)
    elif not names:
        complain(f"{path} is empty: expected a first line {','.join(COLUMNS)}")
    return found if names else None


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


def _is_header(where: str, names: list[str], complain: Complain) -> bool:
    """Whether each required column is there, and none twice. Unknown columns are named in a complaint and ignored."""
    if len(names) > MOST_COLUMNS:
        complain(f"{where}: {len(names):,} columns: expected {','.join(COLUMNS)}")
        return False
    unknown = [shown(name) for name in names if name not in COLUMNS]
    missing = [name for name in COLUMNS if name not in names and name not in OPTIONAL]
    twice = sorted({name for name in names if names.count(name) > 1 and name in COLUMNS})
    said = [f"no column {', '.join(missing)}"] if missing else []
    said += [f"unknown column {', '.join(unknown)}"] if unknown else []
    said += [f"column {', '.join(twice)} twice"] if twice else []
    if said:
        complain(f"{where}: {'; '.join(said)}: expected {','.join(COLUMNS)}")
    return not missing and not twice


def _reservation(names: list[str], fields: list[str], where: str, zone: tzinfo) -> Reservation:
    if len(fields) > len(names):
        raise BadValue(f"{len(fields)} values, but {len(names)} columns: put a text with commas in double quotes")
    row = {name: field.strip() for name, field in zip(names, fields, strict=False)}
    gpu, user = row.get("gpu", ""), row.get("user", "")
    if gpu.isascii() and gpu.isdigit():
        gpu = gpu.lstrip("0") or "0"
    elif not gpu.startswith(("GPU-", "MIG-")):
        raise BadValue(f"bad gpu {shown(gpu)}: expected the index of a card, or its uuid")
    if not user:
        raise BadValue("no user: expected the name of whoever reserved the card", gpu)
    start_ms = moment_ms(row.get("from", ""), zone)
    if start_ms is None:
        raise BadValue(f"bad from {shown(row.get('from', ''))}: expected {A_TIME}", gpu)
    end_ms = moment_ms(row["to"], zone) if row.get("to") else FOREVER_MS
    if end_ms is None:
        raise BadValue(f"bad to {shown(row['to'])}: expected {A_TIME}, or nothing", gpu)
    if end_ms <= start_ms:
        raise BadValue(f"bad to {shown(row['to'])}: expected a time after {shown(row['from'])}", gpu)
    return Reservation(gpu, user, start_ms, end_ms, "file", row.get("note", ""), where)
