"""A file of reservations: what it says is read, and what makes no sense is named. So are times, in any source."""

import os
from collections.abc import Callable
from datetime import timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.console import whole_file
from gua_report.reservations import csv_files
from gua_report.reservations.reservation import FOREVER_MS, Book, moment_ms
from tests.bookings import HEADER
from tests.lab import at
from tests.users import SOMEBODY, needs_root

Read = Callable[[str], tuple[Book, list[str]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_read(text: str) -> tuple[Book, list[str]]:
        path = tmp_path / "r.csv"
        path.write_text(text, encoding="utf-8")
        said: list[str] = []
        book = Book(said.append)
        csv_files.read_file(str(path), ZoneInfo("Europe/Berlin"), book)
        return book, [line.removeprefix(f"{path} ") for line in said]

    return write_and_read


@needs_root
@pytest.mark.parametrize("comes", ["first", "after the folder was opened"])
def test_a_link_of_somebodys_shows_nothing_of_a_file_that_only_the_reader_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    secret, path, said = tmp_path / "secret", tmp_path / "r.csv", list[str]()
    secret.write_text("a-password\n")
    open_folder = whole_file.open_folder

    def plant() -> None:
        path.symlink_to(secret)
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)

    def open_then_plant(path: str) -> tuple[int, str]:
        found = open_folder(path)
        plant()
        return found

    if comes == "first":
        plant()
    else:
        monkeypatch.setattr(whole_file, "open_folder", open_then_plant)
    book = Book(said.append)
    csv_files.read_file(str(path), timezone.utc, book)
    assert (book.is_complete, len(said), "a-password" in said[0]) == (False, 1, False)


def test_a_file_is_read_in_the_time_of_the_machine(read: Read) -> None:
    book, said = read(
        "\ufeffGPU, user ,from,to,note\r\n"
        '0,alice,2026-11-16T08:30,2026-11-16T10:00Z,"a note, with a comma"\r\n'
        "\r\n"
        "GPU-1234,bob,2026-11-16,,\r\n"
        "03,carol,2026-11-16,2026-11-17\r\n"
    )
    assert said == []
    assert book.is_complete
    assert [one[:6] for one in book.reservations] == [
        ("0", "alice", at("2026-11-16T07:30"), at("2026-11-16T10:00"), "file", "a note, with a comma"),
        ("GPU-1234", "bob", at("2026-11-15T23:00"), FOREVER_MS, "file", ""),
        ("3", "carol", at("2026-11-15T23:00"), at("2026-11-16T23:00"), "file", ""),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("x,alice,2026-11-16,,", "bad gpu 'x': expected the index of a card, or its uuid"),
        (",alice,2026-11-16,,", "bad gpu '': expected the index"),
        ("-1,alice,2026-11-16,,", "bad gpu '-1': expected the index"),
        ("²,alice,2026-11-16,,", "bad gpu '²': expected the index"),
        ("0, ,2026-11-16,,", "no user: expected the name"),
        ("0,alice,,,", "bad from '': expected a time such as"),
        ("0,alice", "bad from '': expected a time such as"),
        ("0,alice,2026-11-16,next week,", "bad to 'next week': expected a time such as"),
        ("0,alice,2026-11-16,2026-11-16,", "bad to '2026-11-16': expected a time after '2026-11-16'"),
        ("0,alice,2026-11-16,,a,b", "6 values, but 5 columns: put a text with commas in double quotes"),
        ("0,alice,\x1b[31m,,", r"bad from '\\x1b[31m': expected"),
        (f"0,alice,{'9' * 200000},,", "field larger than field limit"),
    ],
)
def test_a_bad_row_is_named_and_the_others_count(read: Read, row: str, said: str) -> None:
    book, lines = read(f"{HEADER}1,bob,2026-11-16,,\n{row}\n2,bob,2026-11-16,,\n")
    assert [one.gpu for one in book.reservations] == ["1", "2"]
    assert book.unreadable == {"0"} or not book.is_complete
    (line,) = lines
    assert line.startswith(f"line 3: {said}")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("header", "usable", "said"),
    [
        ("gpu,user,from,to", True, []),
        ("note,to,from,user,gpu", True, []),
        ("gpu,user,from,to,why", True, ["line 1: unknown column 'why': expected gpu,user,from,to,note"]),
        ("gpu,user,from,until", False, ["line 1: no column to; unknown column 'until': expected "]),
        ("gpu,user,user,from,to", False, ["line 1: column user twice: expected "]),
    ],
)
def test_columns_may_be_in_any_order_but_must_be_there(read: Read, header: str, usable: bool, said: list[str]) -> None:
    book, lines = read(f"{header}\n")
    assert book.is_complete == usable
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_an_empty_file_and_one_that_is_no_text_are_named(tmp_path: Path, read: Read) -> None:
    book, (line,) = read("\n\n")
    assert not book.is_complete
    assert line.endswith("is empty: expected a first line gpu,user,from,to,note")
    (tmp_path / "bytes.csv").write_bytes(b"gpu,user,from,to\n1,bob,2026-11-16,\n0,\xff,2026-11-16,\n")
    said: list[str] = []
    book = Book(said.append)
    csv_files.read_file(str(tmp_path / "bytes.csv"), timezone.utc, book)
    assert (book.is_complete, book.reservations) == (False, [])
    assert said == [f"{tmp_path / 'bytes.csv'}: expected a CSV file in UTF-8"]


@given(st.text(alphabet="gpuserfomt,\n\r\"0aA-'\x00 2", max_size=80))
def test_whatever_the_file_holds_is_read_or_complained_of(text: str) -> None:
    said: list[str] = []
    rows = iter((HEADER + text).splitlines(keepends=True))
    csv_files._read_rows("f", rows, True, timezone.utc, Book(said.append))
    assert all(line.isprintable() for line in said)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-16", at("2026-11-16")),
        ("2026-11-16T08:30", at("2026-11-16T08:30")),
        ("2026-11-16 08:30:15", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15Z", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15.372177993Z", at("2026-11-16T08:30:15.372")),
        ("2026-11-16T08:30:15.3+02:00", at("2026-11-16T06:30:15.300")),
        (1794816000, 1794816000_000),
        (1794816000.25, 1794816000_250),
        ("1794816000", 1794816000_000),
        ("1.794816e9", 1794816000_000),
        (1794816000123, 1794816000_123),
        ("20261116", None),  # a date without its dashes, not a second of 1970
        ("16.11.2026", None),
        ("2026-13-01", None),
        ("2026-11-16T25:00", None),
        ("", None),
        (0, None),
        (-1, None),
        (1e300, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ([], None),
    ],
)
def test_a_time_is_epoch_seconds_or_iso(value: object, expected: int | None) -> None:
    assert moment_ms(value, timezone.utc) == expected


@given(st.text(max_size=30) | st.floats() | st.integers() | st.none())
def test_anything_else_is_no_time(value: object) -> None:
    found = moment_ms(value, ZoneInfo("Europe/Berlin"))
    assert found is None or 0 < abs(found) <= FOREVER_MS
