"""Reading a source as root: in a child that has become its owner for good, while we go on as the data folder's owner.

The two may be different people, and neither is to be trusted with what the other, or root, may do.
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
    """The source at that path, open to be read. As root, this process has become the data folder's owner by then."""
    path = os.path.realpath(given)  # a link given by hand is meant
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
    """Whose the source is; None if it is root's. What lies beside a file counts too: SQLite opens it.

    Raises StoreError if somebody else could put another in its place, or has a say in what is in it: what that person
    may not read would be taken in, where others read it.
    """
    owner: Owner | None = None
    for one in (path, samples_dir(path) if os.path.isdir(path) else os.path.dirname(os.path.realpath(path))):
        with suppress(OSError):  # whoever opens it will say so
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
    """What the source is, then its parts: their ticks, and what the tally is to know of them."""
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
