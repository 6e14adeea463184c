"""Mutations of a data folder by damage or malice. Each is a name and parameters that fit into JSON."""

import os
import random
import shutil
import socket
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture.workshop import Stage

Recipe = list[tuple[str, dict[str, Any]]]
PAGE = 4096
HUGE = 50 * 10**9
MOST_PAGES, MOST_SECONDS = 50_000, 5.0  # limits for malice in SQL on this machine
SIDECARS = ("-journal", "-wal", "-shm")


# -- damage


def overwrite(stage: Stage, file: str, at: int, hex: str) -> None:  # noqa: A002 - as it reads in a recipe
    with _existing(stage, file).open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes.fromhex(hex))


def scramble(stage: Stage, file: str, at: int, length: int, seed: int) -> None:
    overwrite(stage, file, at, random.Random(seed).randbytes(length).hex())


def truncate(stage: Stage, file: str, size: int) -> None:
    os.truncate(_existing(stage, file), size)


def swap_pages(stage: Stage, file: str, one: int, other: int) -> None:
    path = _existing(stage, file)
    data = bytearray(path.read_bytes())
    first, second = (slice(number * PAGE, (number + 1) * PAGE) for number in (one, other))
    if one != other and max(one, other) * PAGE + PAGE <= len(data):
        data[first], data[second] = data[second], data[first]
        path.write_bytes(data)


def text(stage: Stage, file: str, repeat: str, times: int, before: str = "", after: str = "") -> None:
    """Replace a file by text."""
    path = stage.data / file
    _remove(path)
    path.write_text(before + repeat * times + after, errors="surrogateescape")


def leave_journal(stage: Stage, file: str, records: int, victim: str = "") -> None:
    """Write a hot journal of the file that rolls nothing back, and may name a file to be deleted."""
    path = stage.data / file
    data = path.read_bytes()
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">6I", records, 1, len(data) // PAGE, 512, PAGE, 0)[:20]
    page = data[:PAGE]
    checksum = (1 + sum(page[at] for at in range(PAGE - 200, 0, -200))) & 0xFFFFFFFF
    record = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    tail = b""
    if victim:
        name = str(stage.folder / victim).encode()
        numbers = struct.pack(">II", len(name), sum(name))
        tail = struct.pack(">I", 2**30 // PAGE + 1) + name + numbers + bytes.fromhex("d9d505f920a163d7")
    Path(f"{path}-journal").write_bytes(header.ljust(512, b"\0") + record + tail)


# -- malice


def replace(stage: Stage, file: str, by: str, target: str = "canary/victim") -> None:
    """Put something else in the place of a file."""
    path = stage.data / file
    _remove(path)
    path.parent.mkdir(exist_ok=True)
    if by == "fifo":
        os.mkfifo(path)
    elif by == "folder":
        path.mkdir()
    elif by == "socket":
        with closing(socket.socket(socket.AF_UNIX)) as opened, suppress(OSError):  # the path is too long for a socket
            opened.bind(str(path))
    elif by == "link":
        path.symlink_to(target if target.startswith("/") else stage.folder / target)
    elif by == "device" and os.geteuid() == 0:
        os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero
    elif by == "nothing":
        pass


def sparse(stage: Stage, file: str, size: int = HUGE) -> None:
    with (stage.data / file).open("ab"):
        os.truncate(stage.data / file, size)


def _deadline() -> Callable[[], bool]:
    ends = time.monotonic() + MOST_SECONDS
    return lambda: time.monotonic() > ends


def sql(stage: Stage, file: str, statements: list[str]) -> None:
    """Run statements after loosening all columns to take anything; those that SQLite refuses are skipped."""
    loosen = "replace(replace(replace(sql, ') STRICT, WITHOUT', ') WITHOUT'), ') STRICT', ')'), ' NOT NULL', '')"
    path = stage.data / file
    for batch in (["PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = {loosen}"], statements):
        # An earlier step may have put something else in its place.
        with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA max_page_count = {MOST_PAGES}")  # endless statements must not fill the disk
            connection.set_progress_handler(_deadline(), 10_000)
            for statement in batch:
                with suppress(sqlite3.Error):
                    connection.execute(statement)


def copy(stage: Stage, file: str, to: str) -> None:
    """Copy a file to an odd name."""
    shutil.copyfile(_existing(stage, file), stage.data / to)


def set_time(stage: Stage, file: str, seconds: int) -> None:
    os.utime(stage.data / file, (seconds, seconds))


def set_mode(stage: Stage, file: str, mode: int) -> None:
    (stage.data / file).chmod(mode)


def _existing(stage: Stage, file: str) -> Path:
    path = stage.data / file
    if not path.is_file() or path.is_symlink():
        raise FileNotFoundError(path)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


MUTATIONS: dict[str, Callable[..., None]] = {
    done.__name__: done
    for done in (
        *(overwrite, scramble, truncate, swap_pages, text, leave_journal),
        *(replace, sparse, sql, copy, set_time, set_mode),
    )
}


def apply(stage: Stage, recipe: Recipe) -> None:
    for name, parameters in recipe:
        with suppress(FileNotFoundError, NotADirectoryError):  # an earlier mutation removed it
            MUTATIONS[name](stage, **parameters)


# -- drawing some


VALUES = (
    *("NULL", "-1", "0", "1", "2000000000", "-9223372036854775808", "9223372036854775807", "9e999", "-9e999", "0.5"),
    *("''", "'text'", "x'ff00'", "CAST(x'ff41' AS TEXT)", "char(27) || '[2J' || char(10)", "hex(zeroblob(100000))"),
    *("-62167219200001", "253402300800000", "'2026-99-99'", "zeroblob(30000000)", "rowid", "abs(random())"),
)
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {}) "
PRAGMAS = (
    *("application_id = 1", "application_id = 0", "user_version = 99", "user_version = -1", "journal_mode = WAL"),
    *("user_version = 0", "encoding = 'UTF-16'", "auto_vacuum = 1", "max_page_count = 1"),
)
NAMES = (
    *(
        "samples/0000-00-00.sqlite",
        "samples/9999-99-99.sqlite",
        "samples/2026-02-30.sqlite",
        "samples/9999-12-31.sqlite",
    ),
    *("samples/1969-12-31.sqlite", "samples/0001-01-01.sqlite", "samples/2026-11-09.sqlite\n", "samples/\udcff.sqlite"),
    *("samples/2026-11-08.sqlite.corrupt-1", "samples/2026-11-30.sqlite", "csv/\udcff.csv", "csv/9999-99-99.csv"),
    *("samples/2026-11-08.00.pending", "samples/\udcff.pending", "rollups.sqlite.new", "rollups.sqlite.corrupt-1"),
)


TEXTS = (("[", 100_000), ('{"a":', 50_000), ("9", 5000), ("x", 10**7), ("\n", 10**6), ("\udcff", 9), (",", 10**6))


def draw_damage(rng: random.Random, files: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """Draw a damage to an existing file. `files` are sizes by name."""
    file = rng.choice(list(files))
    size = files[file]
    at = rng.choice((rng.randrange(size), rng.randrange(min(size, 120)), rng.randrange(size) // PAGE * PAGE % size))
    if file.endswith(".sqlite") and rng.random() < 0.2:
        at = PAGE - rng.randrange(1, 3000)  # the place of the texts of the first tables
    length = rng.choice((1, 1, 2, 8, 100, PAGE))
    return rng.choice(
        [
            ("overwrite", {"file": file, "at": at, "hex": rng.randbytes(rng.choice((1, 1, 2, 4))).hex()}),
            ("overwrite", {"file": file, "at": at, "hex": rng.choice(("00", "ff", "80", "7f", "01")) * length}),
            ("scramble", {"file": file, "at": at, "length": length, "seed": rng.randrange(1000)}),
            ("truncate", {"file": file, "size": rng.choice((0, 1, 100, PAGE, at, size - 1))}),
            (
                "swap_pages",
                {"file": file, "one": rng.randrange(size // PAGE + 1), "other": rng.randrange(size // PAGE + 1)},
            ),
        ]
    )


class Target(NamedTuple):
    """The target of malice: all files, a database, a table in it and its columns."""

    files: list[str]
    database: str
    table: str
    columns: list[str]


def draw_malice(
    rng: random.Random, files: dict[str, int], tables: dict[str, dict[str, list[str]]]
) -> tuple[str, dict[str, Any]]:
    """Draw a malicious change to a file that exists or should."""
    database = rng.choice(list(tables))
    table = rng.choice(list(tables[database]))
    target = Target(list(files), database, table, tables[database][table])
    draw = rng.choice((_replacement, _oddity, _sparse, _journal, _text, _value, _value, _value, _many, _table))
    return draw(rng, target)


def _beside(rng: random.Random, target: Target) -> str:
    return target.database + rng.choice(("", *SIDECARS))


def _replacement(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    by = rng.choice(("fifo", "folder", "socket", "link", "link", "device", "nothing"))
    ours = ("samples", "csv", ".rollup.lock", "idle.state", "rollups.sqlite.new")
    to = rng.choice(("canary/victim", "canary/folder", "/dev/zero", "canary/missing", "/proc/self/mem", "data"))
    return "replace", {
        "file": rng.choice((rng.choice(target.files), _beside(rng, target), *ours)),
        "by": by,
        "target": to,
    }


def _oddity(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    file = rng.choice(target.files)
    found: list[tuple[str, dict[str, Any]]] = [
        ("set_time", {"file": file, "seconds": rng.choice((-(2**31), 0, 2**33, 253402300800))}),
        ("set_mode", {"file": file, "mode": rng.choice((0, 0o200, 0o444))}),
        ("copy", {"file": target.database, "to": rng.choice(NAMES)}),
        ("sql", {"file": target.database, "statements": [f"PRAGMA {rng.choice(PRAGMAS)}"]}),
    ]
    return rng.choice(found)


def _sparse(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    return "sparse", {"file": _beside(rng, target), "size": rng.choice((HUGE, 10**9, 2**31, 2**32 + 1))}


def _journal(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    victim = rng.choice(("canary/victim", "canary/victim", "canary/partition.sqlite", ""))
    return "leave_journal", {"file": target.database, "records": rng.choice((0, 1, 2**32 - 1)), "victim": victim}


def _text(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    repeat, times = rng.choice(TEXTS)
    file = rng.choice([name for name in target.files if not name.endswith(".sqlite")])
    return "text", {
        "file": file,
        "repeat": repeat,
        "times": times,
        "before": rng.choice(("", '{"version": 1, "key": ')),
    }


def _value(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    where = rng.choice(("", f" WHERE rowid = 1 OR {target.columns[0]} % 7 = 3"))
    change = f"UPDATE {target.table} SET {rng.choice(target.columns)} = {rng.choice(VALUES)}{where}"
    return "sql", {"file": target.database, "statements": [change]}


def _many(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    count, other = rng.choice((1000, 20_000, 20_000, 1_000_000)), rng.choice(target.columns)
    values = ", ".join("x" if name != other else rng.choice(VALUES) for name in target.columns)
    add = f"INSERT OR REPLACE INTO {target.table} {NUMBERS.format(count)} SELECT {values} FROM n"
    return "sql", {"file": target.database, "statements": [add]}


def _table(rng: random.Random, target: Target) -> tuple[str, dict[str, Any]]:
    """Draw a replacement of a table, or an addition to it."""
    table, columns, column = target.table, target.columns, rng.choice(target.columns)
    drop = f"DROP TABLE {table}"
    large = ", ".join(f"{name} AS (hex(zeroblob(400000000)))" for name in columns)
    xs = ", ".join("x" for _ in columns)
    named = ", ".join(f"x AS {name}" for name in columns)
    nulls = ", ".join(f"NULL AS {name}" for name in columns)
    statements = rng.choice(
        [
            [drop],
            [f"DELETE FROM {table}"],
            [drop, f"CREATE VIEW {table} AS {ENDLESS.format(nulls)}"],
            [drop, f"CREATE VIEW {table} AS {ENDLESS.format(named)}"],
            [drop, f"CREATE VIEW {table} AS SELECT * FROM {table}"],
            [drop, f"CREATE VIRTUAL TABLE {table} USING fts5({', '.join(columns)})"],
            [f"ALTER TABLE {table} RENAME COLUMN {column} TO other"],
            [
                f"ALTER TABLE {table} RENAME TO hidden",
                f"CREATE VIEW {table} AS SELECT a.* FROM hidden a, hidden, hidden",
            ],
            [drop, f"CREATE TABLE {table} ({large}, own)", f"INSERT INTO {table} (own) VALUES (1)"],
            [f"CREATE TRIGGER hostile AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"],
            [f"CREATE TRIGGER hostile AFTER INSERT ON {table} BEGIN INSERT INTO {table} {ENDLESS.format(xs)}; END"],
            [f"CREATE INDEX hostile ON {table} (abs({column}))"],
        ]
    )
    return "sql", {"file": target.database, "statements": statements}
