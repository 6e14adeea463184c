"""Read a source as root: in a child that becomes its owner for good, while this process becomes the data folder's.

The two may be different people, and neither may be trusted with the rights of the other or of root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from gua_report.importing.recognition import open_source
from gua_report.importing.source import Source
from gua_report.importing.tally import Tally
from gua_report.machine.child import Identity, Message, stream, understanding
from gua_sample.pending import restore
from gua_sample.records import Tick
from gua_sample.rights import become_owner, check_folder, others_on_the_way, owner_to_become, refuse_as_root

NOTHING: Message = ("", b"")  # instead of the message of a child that sends none


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
        yield Source(kind, parts, lambda part: _receive(messages, part, tally), lambda: None)


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
            ticks = source.read(part)
            source.check()
            yield part, json.dumps([ticks, tally.hand_over()]).encode()


def _receive(messages: Iterator[Message], part: str, tally: Tally) -> list[Tick]:
    with understanding():
        label, content = next(messages, NOTHING)
        if label != part:
            raise ValueError(f"expected {part!r}")
        ticks, told = json.loads(content)
        tally.take_over(*told)
        return [restore(tick) for tick in ticks]
