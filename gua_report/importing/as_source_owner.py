"""Read a source as root: in a child that becomes its owner for good, while this process becomes the data folder's.

The two may be different people, and neither may be trusted with the rights of the other or of root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from gua_report.importing.recognition import open_source
from gua_report.importing.source import Source
from gua_report.importing.tally import Tally
from gua_report.machine.as_owner import NONSENSE, SAYS_NONSENSE, Message, Owner, stream_as
from gua_sample.errors import StoreError
from gua_sample.partition_names import samples_dir
from gua_sample.pending import restore
from gua_sample.records import Tick
from gua_sample.rights import become_owner, others_on_the_way, others_who_may_write


@contextmanager
def open_source_safely(given: str, data_dir: str, tally: Tally) -> Iterator[Source]:
    """The source at that path, open for reading. As root, this process has become the data folder's owner by then."""
    path = os.path.realpath(given)  # a link on the command line is followed
    if os.geteuid() != 0:
        with open_source(path, data_dir, tally) as source:
            yield source
        return
    with closing(stream_as(find_owner(given), lambda: _send(path, data_dir))) as messages:
        kind, parts, told = _read(next(messages, ("", b""))[1], 3)
        _take_over(tally, told)
        become_owner(data_dir)
        yield Source(kind, parts, lambda part: _receive(messages, part, tally), lambda: None)


def find_owner(path: str) -> Owner | None:
    """The source's owner; None for root. The folder of a file counts too: SQLite opens the neighbours of the file.

    Raises StoreError if somebody else could replace the source or change its content: files that this person may
    not read could be imported into a folder that others read.
    """
    owner: Owner | None = None
    for one in (path, samples_dir(path) if os.path.isdir(path) else os.path.dirname(os.path.realpath(path))):
        with suppress(OSError):  # reported when the source is opened
            found = os.stat(one)
            if found.st_uid != 0:
                owner = found.st_uid, found.st_gid
                break
    problem = others_on_the_way(path, owner[0] if owner else 0)
    if problem is None and os.path.isdir(path):
        opening = others_who_may_write(path)
        problem = None if opening is None else str(opening)
    if problem is not None:
        raise StoreError(f"not as root: {problem}")
    return owner


def _send(path: str, data_dir: str) -> Iterator[Message]:
    """The source's kind and parts, then each part's ticks with the additions to the tally."""
    tally = Tally()
    with open_source(path, data_dir, tally) as source:
        yield "source", json.dumps([source.kind, source.parts, tally.hand_over()]).encode()
        for part in source.parts:
            ticks = source.read(part)
            source.check()
            yield part, json.dumps([ticks, tally.hand_over()]).encode()


def _receive(messages: Iterator[Message], part: str, tally: Tally) -> list[Tick]:
    label, content = next(messages, ("", b""))
    if label != part:
        raise StoreError(SAYS_NONSENSE)
    ticks, told = _read(content, 2)
    _take_over(tally, told)
    try:
        return [restore(tick) for tick in ticks]
    except (AttributeError, *NONSENSE) as error:
        raise StoreError(SAYS_NONSENSE) from error


def _take_over(tally: Tally, told: list[Any]) -> None:
    try:
        tally.take_over(*told)
    except (AttributeError, *NONSENSE) as error:
        raise StoreError(SAYS_NONSENSE) from error


def _read(content: bytes, count: int) -> list[Any]:
    try:
        values = json.loads(content)
    except NONSENSE as error:
        raise StoreError(SAYS_NONSENSE) from error
    if not isinstance(values, list) or len(values) != count:
        raise StoreError(SAYS_NONSENSE)
    return values
