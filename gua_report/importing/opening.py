"""Open a source, whose kind is recognised by its content, not by its name.

A further tool is a module beside this one, named after it, that gives a `Source`; and a branch here that finds it.

As root, the source is read in a child that becomes its owner for good, while this process becomes the data folder's.
The two may be different people, and neither may be trusted with the rights of the other or of root.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial

from gua_report.importing import gpu_stats_service, gpu_usage_audit, gua_folder
from gua_report.importing.intake import Source, Tally
from gua_report.machine.child import Identity, Message, stream, understanding
from gua_report.ticks.open_partition import DAMAGE, WAL_SUFFIX, private_copy, stamp
from gua_sample import schema
from gua_sample.errors import NothingToReport, StoreError, UsageError
from gua_sample.partition_names import JOURNAL_SUFFIX, SQLITE_MAGIC, list_partitions, samples_dir
from gua_sample.pending import restore
from gua_sample.records import Tick
from gua_sample.rights import become_owner, check_folder, others_on_the_way, owner_to_become, refuse_as_root
from gua_sample.safe_file import connect_unchecked, open_regular

NOTHING: Message = ("", b"")  # instead of the message of a child that sends none
MOST_BYTES = 1 << 40
LONGEST_ROW = 256 << 10  # in bytes, of another program's database; real rows have hundreds
EXPECTED = "a gpu-usage-audit database, gpu_stats_service CSV files, or a gua data folder"


@contextmanager
def open_source_safely(given: str, data_dir: str, tally: Tally) -> Iterator[Source]:
    """The source at that path, open for reading. As root, this process has become the data folder's owner by then."""
    path = os.path.realpath(given)  # a link on the command line is followed
    if os.geteuid() != 0:
        with open_source(path, data_dir, tally) as source:
            yield source
        return
    with closing(stream(lambda: _send(path, data_dir), find_owner(given))) as messages:
        with understanding():
            kind, parts, told = json.loads(next(messages, NOTHING)[1])
            tally.take_over(*told)
        become_owner(data_dir)
        yield Source(kind, parts, lambda part: _receive(messages, part, tally))


def find_owner(path: str) -> Identity | None:
    """The source's owner; None for root. The folder of a file counts too: SQLite opens the neighbours of the file.

    Raises StoreError if somebody else could replace the source or change its content: files that this person may
    not read could be imported into a folder that others read.
    """
    if os.path.isdir(path):
        check_folder(path)
        return owner_to_become(path)
    owner = None
    for one in (os.path.dirname(os.path.realpath(path)), path):
        with suppress(OSError):  # reported when the source is opened
            found = os.stat(one)
            owner = (found.st_uid, found.st_gid) if found.st_uid != 0 else owner
    refuse_as_root(others_on_the_way(path, owner[0] if owner else 0))
    return owner


def _send(path: str, data_dir: str) -> Iterator[Message]:
    """The source's kind and parts, then each part's ticks with the additions to the tally."""
    tally = Tally()
    with open_source(path, data_dir, tally) as source:
        yield "source", json.dumps([source.kind, source.parts, tally.hand_over()]).encode()
        for part in source.parts:
            yield part, json.dumps([source.read(part), tally.hand_over()]).encode()


def _receive(messages: Iterator[Message], part: str, tally: Tally) -> list[Tick]:
    with understanding():
        label, content = next(messages, NOTHING)
        if label != part:
            raise ValueError(f"expected {part!r}")
        ticks, told = json.loads(content)
        tally.take_over(*told)
        return [restore(tick) for tick in ticks]


@contextmanager
def open_source(path: str, data_dir: str, tally: Tally) -> Iterator[Source]:
    """The source at that path, open for reading; it is never written to."""
    try:
        with ExitStack() as opened:
            find = _find_in_folder if os.path.isdir(path) else _find_in_file
            yield find(path, data_dir, tally, opened)
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} does not exist: give {EXPECTED}") from error
    except PermissionError as error:
        raise StoreError(
            f"{error.filename} is closed to this user (uid {os.geteuid()}; root reads as a file's owner):"
            " run this as one who may read it"
        ) from error


def _find_in_folder(path: str, data_dir: str, tally: Tally, opened: ExitStack) -> Source:
    samples = samples_dir(path) if os.path.isdir(samples_dir(path)) else path
    if list_partitions(samples):
        _refuse_itself(samples, data_dir)
        return gua_folder.source_of_folder(samples, tally)
    if files := [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.lower().endswith(".csv")]:
        return opened.enter_context(gpu_stats_service.open_source(files, tally))
    raise NothingToReport(f"nothing to import in {path}: expected {EXPECTED}")


def _find_in_file(path: str, data_dir: str, tally: Tally, opened: ExitStack) -> Source:
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is no regular file: give {EXPECTED}")
    with open(open_regular(path, MOST_BYTES), "rb") as file:
        begin = file.read(gpu_stats_service.LONGEST_HEADER)
    if not begin:
        raise NothingToReport(f"{path} is empty: expected {EXPECTED}")
    if begin.startswith(SQLITE_MAGIC):
        connection, check = opened.enter_context(open_foreign(path))
        if connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID:
            _refuse_itself(os.path.dirname(os.path.abspath(path)), data_dir)
            return gua_folder.source_of_files(gua_folder.ONE_KIND, [path], tally)
        if problem := gpu_usage_audit.find_problem(connection):
            raise StoreError(f"{path} is a database of something else ({problem}): expected {EXPECTED}")
        return gpu_usage_audit.source_of(connection, check, tally)
    if gpu_stats_service.is_header(begin.partition(b"\n")[0].decode("utf-8", "replace")):
        return opened.enter_context(gpu_stats_service.open_source([path], tally))
    raise StoreError(f"{path} is neither a database nor has it the columns {','.join(gpu_stats_service.HEADER)}")


def _refuse_itself(samples: str, data_dir: str) -> None:
    target = samples_dir(data_dir)
    if os.path.exists(target) and os.path.samefile(samples, target):
        raise UsageError(f"{samples} is the data folder itself: give --data-dir to import it into another")


@contextmanager
def open_foreign(path: str) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """A connection to another program's database, and a check that raises if the file has changed meanwhile.

    No trace is left: no lock, no -wal, no -shm. Such a file is mostly in WAL mode, where even a reader makes files, or
    writes to those of a running daemon. Therefore a file without a log, or with an empty one, is read as if it could
    not change; the caller checks that it has not before using what was read. Else a private copy is read.
    """
    try:
        if any(_has_content(path + suffix) for suffix in (WAL_SUFFIX, JOURNAL_SUFFIX)):
            with private_copy(path) as copy, closing(_connect(copy, "rw")) as connection:
                yield connection, lambda: None
        else:
            before = stamp(path)
            with closing(_connect(path, "ro", "&immutable=1")) as connection:

                def check() -> None:
                    if stamp(path) != before:
                        raise StoreError(f"{path} was changed while it was read: run this again")

                yield connection, check
    except sqlite3.Error as error:
        raise StoreError(f"{path} can't be read as a database ({error})") from error
    except DAMAGE as error:
        raise StoreError(f"{path} holds what its program does not write ({type(error).__name__}: {error})") from error


def _connect(path: str, mode: str, more: str = "") -> sqlite3.Connection:
    connection = connect_unchecked(path, mode, 0.0, more)
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
    connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
    return connection


def _has_content(path: str) -> bool:
    """Whether there is something at the path other than an empty file."""
    try:
        return os.lstat(path).st_size > 0 or not os.path.isfile(path)
    except FileNotFoundError:
        return False
