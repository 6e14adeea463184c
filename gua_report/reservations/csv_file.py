"""Reservations in a CSV file: gpu,user,from,to,note. A row that makes no sense is named, and the others count."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import NamedTuple

from gua_report.reservations.reservation import FOREVER_MS, Reservation, moment_ms, shown

COLUMNS = ("gpu", "user", "from", "to", "note")
OPTIONAL = ("note",)
A_TIME = "a time such as 2026-11-16 or 2026-11-16T08:30, or epoch seconds"

Complain = Callable[[str], None]


class BadValue(Exception):
    """What is wrong with a row. `gpu`: the card that it is of, if that can be told."""

    def __init__(self, text: str, gpu: str | None = None) -> None:
        super().__init__(text)
        self.gpu = gpu


class Rows(NamedTuple):
    reservations: list[Reservation]
    unreadable: set[str]  # cards of rows that make no sense
    is_complete: bool  # whether all rows could be told


def read(path: str, zone: tzinfo, complain: Complain) -> Rows | None:
    """None, with a complaint, if nothing in the file can be used."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            complain(f"reservations can't be read from {path}: it is no regular file")
            return None
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _read_rows(path, file, zone, complain)
    except OSError as error:
        complain(f"reservations can't be read from {path} ({error.strerror}): check [reservations] in the config")
    except UnicodeDecodeError:
        complain(f"{path}: expected a CSV file in UTF-8")
    return None


def _read_rows(path: str, file: Iterator[str], zone: tzinfo, complain: Complain) -> Rows | None:
    rows = csv.reader(file, strict=True)  # a quote that is not closed would swallow the rows after it
    names: list[str] = []
    found = Rows([], set(), True)
    while True:
        try:
            fields = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            complain(f"{path} line {rows.line_num}: {error}: expected comma-separated values")
            found = found._replace(is_complete=False)
            continue
        if not any(field.strip() for field in fields):
            continue
        if not names:
            names = [field.strip().lower() for field in fields]
            if not _is_header(f"{path} line {rows.line_num}", names, complain):
                return None
            continue
        where = f"{path} line {rows.line_num}"
        try:
            found.reservations.append(_reservation(names, fields, where, zone))
        except BadValue as error:
            complain(f"{where}: {error}")
            if error.gpu is None:
                found = found._replace(is_complete=False)
            else:
                found.unreadable.add(error.gpu)
    if not names:
        complain(f"{path} is empty: expected a first line {','.join(COLUMNS)}")
        return None
    return found


def _is_header(where: str, names: list[str], complain: Complain) -> bool:
    """Whether all columns are there that it takes; those that we don't know are named and passed over."""
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
