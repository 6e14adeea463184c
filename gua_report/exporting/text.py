"""Rows as text: CSV that is safe in a spreadsheet, and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gua_report.exporting.rows import TEXT, Row
from gua_report.render.csv import no_formula
from gua_sample.processes import printable


def csv_text(columns: tuple[str, ...], rows: Iterable[Row]) -> bytes:
    """CSV with one line for each row, whatever a name contains; an unknown value is an empty field."""
    texts = [position for position, name in enumerate(columns) if name in TEXT]
    buffer = io.BytesIO()
    with io.TextIOWrapper(buffer, "utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows(_spelled(rows, texts))
        lines.flush()
        return buffer.getvalue()


def with_header(columns: tuple[str, ...], blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a CSV file, with the names of the columns before the first one."""
    header = csv_text((), [columns])
    for block in blocks:
        yield header + block
        header = b""


def _spelled(rows: Iterable[Row], texts: list[int]) -> Iterator[list[object]]:
    for row in rows:
        fields = list(row)
        for position in texts:
            if fields[position] is not None:
                fields[position] = cell(fields[position])
        yield fields


@lru_cache(maxsize=10_000)  # names recur at each tick
def cell(text: str) -> str:
    return no_formula(printable(text))


def json_lines(columns: tuple[str, ...], rows: Iterable[Row]) -> bytes:
    """One JSON object a line. ASCII preserves names exactly, and keeps them from steering a terminal on the way."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    buffer = io.BytesIO()
    for row in rows:
        buffer.write(f"{encode(dict(zip(columns, row, strict=True)))}\n".encode("ascii"))
    return buffer.getvalue()
