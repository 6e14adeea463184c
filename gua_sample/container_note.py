"""The content of the note that asks for the names of containers. Imported only at ticks that see a new cgroup."""

# No `from __future__ import annotations` here: see records.py.

import os
from collections.abc import Iterable
from typing import NamedTuple

from gua_sample.containers import FILE_NAME, MOST_BYTES
from gua_sample.errors import StoreError
from gua_sample.identity import find_container
from gua_sample.safe_file import read_regular

MOST_WANTED = 50
MOST_CGROUPS = 500  # that are remembered as looked at


class Note(NamedTuple):
    wanted: list[str]  # ids of containers
    looked_at: list[str]  # cgroups that need no look for an hour; those of containers beyond MOST_WANTED do


def describe(cgroups: Iterable[str], data_dir: str) -> Note:
    """The containers among the cgroups whose names are not known."""
    note = Note([], [])
    known = _read_known(data_dir)
    for cgroup in cgroups:
        container = find_container(cgroup)
        key = container.key if container else None
        # The text is searched, not parsed: it may be megabytes, and a note too many does no harm.
        if key and key not in note.wanted and f'"{key}": {{'.encode() not in known:
            if len(note.wanted) == MOST_WANTED:
                continue
            note.wanted.append(key)
        note.looked_at.append(cgroup)
    return note


def _read_known(data_dir: str) -> bytes:
    try:
        return read_regular(os.path.join(data_dir, FILE_NAME), MOST_BYTES)
    except (OSError, StoreError):  # nothing is known, or somebody put a pipe or a link there
        return b""
