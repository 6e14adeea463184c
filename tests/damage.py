"""Damage to SQLite files: each function damages the file that it is given."""

import sqlite3
from pathlib import Path


def damage_header(partition: Path) -> None:
    partition.write_bytes(b"not a database at all, " * 100)


def damage_pages(partition: Path) -> None:
    """Overwrite all pages but the first: the header stays valid, the trees do not."""
    content = bytearray(partition.read_bytes())
    content[4096:] = b"\xde\xad" * ((len(content) - 4096) // 2)
    partition.write_bytes(bytes(content))


def damage_schema(partition: Path) -> None:
    content = bytearray(partition.read_bytes())
    content[100:4096] = b"\xff" * 3996
    partition.write_bytes(bytes(content))


def damage_names(partition: Path) -> None:
    """Break a statement in the schema; the trees stay valid."""
    content = partition.read_bytes()
    partition.write_bytes(content.replace(b"CREATE TABLE session", b"CREATE TABLE sess\xfeon", 1))


def damage_texts(partition: Path) -> None:
    partition.write_bytes(partition.read_bytes().replace(b"GPU-0000", b"GPU-\xff\xfe00"))


def replace_with_another_database(partition: Path) -> None:
    partition.unlink()
    connection = sqlite3.connect(partition)
    connection.execute("CREATE TABLE somebody_elses (x)")
    connection.close()


DAMAGES = [damage_header, damage_pages, damage_schema, damage_names, damage_texts, replace_with_another_database]


def overwrite_table(path: Path, table: str) -> None:
    """Overwrite the table's root page with noise."""
    with sqlite3.connect(path) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)
