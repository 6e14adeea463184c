"""Ticks that could not be written because somebody held the partition: kept beside it, one file each.

Each has a random key that is stored with the tick when it is taken in, in the same transaction. So a
run that is killed between that and deleting the file does not make the next run take it in again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from gua_sample.errors import CorruptPartition, StoreError
from gua_sample.partition_names import PENDING_SUFFIX, SUFFIX, day_of, is_partition
from gua_sample.records import Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.safe_file import read_regular
from gua_sample.whole_file import UNFINISHED_SUFFIX, remove_abandoned, sync_folder

VERSION = 1
MOST_BYTES = 4 << 20  # 128 cards with ten processes each take 0.3 MB; in a dozen long control groups each, 4 MB
# Taken in by one run: those beyond wait for the next. As objects, the bytes take twenty times as much memory.
MOST_FILES, MOST_BYTES_AT_ONCE = 500, 8 << 20
# What reading a file that holds no kept tick may raise.
NOT_UNDERSTOOD = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, CorruptPartition),
)


class Kept(NamedTuple):
    path: str
    day: str
    key: int
    tick: Tick


def keep(folder: str, tick: Tick) -> str:
    """Write the tick to a file of its own, whole or not at all; returns its path."""
    import json

    key = int.from_bytes(os.urandom(7), "big")
    path = os.path.join(folder, f"{day_of(tick.ts_ms)}.{key:014x}{PENDING_SUFFIX}")
    document = {"version": VERSION, "key": key, "tick": tick._replace(cursors=[])}
    try:
        with open(path + UNFINISHED_SUFFIX, "x", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + UNFINISHED_SUFFIX, path)
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"the partition is held by a reader and {path} can't be written: {error.strerror}") from error
    return path


def load(folder: str, warn: Callable[[str], None]) -> list[Kept]:
    """Kept ticks in time order, as many as one run takes. What can't be understood is set aside, with a warning."""
    kept: list[Kept] = []
    size = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if len(kept) == MOST_FILES:
            break
        if name.endswith(PENDING_SUFFIX):
            try:
                size += min(os.lstat(path).st_size, MOST_BYTES)
                if size > MOST_BYTES_AT_ONCE:
                    break
                kept.append(_load_one(path))
            except FileNotFoundError:
                pass  # another run has just taken it in
            except OSError as error:
                warn(f"{path} can't be read ({error.strerror}): the tick goes on waiting")
            except NOT_UNDERSTOOD as error:
                set_aside(path, error, warn)
        elif name.endswith(PENDING_SUFFIX + UNFINISHED_SUFFIX):
            remove_abandoned(path)
    return sorted(kept, key=lambda one: one.tick.ts_ms)


def set_aside(path: str, error: Exception, warn: Callable[[str], None]) -> None:
    try:
        os.rename(path, path + ".corrupt")
    except OSError as problem:
        warn(f"{path} can't be understood ({error}) nor renamed ({problem.strerror})")
    else:
        warn(f"{path} can't be understood ({error}): it was set aside as {path}.corrupt")


def discard(taken_in: list[Kept]) -> None:
    for kept in taken_in:
        with suppress(OSError):  # its key is in the partition: it will not be taken in again
            os.unlink(kept.path)


def _load_one(path: str) -> Kept:
    import json

    document = json.loads(read_regular(path, MOST_BYTES).decode())
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']} is not {VERSION}")
    tick = restore(document["tick"])
    return Kept(path, _day_of(tick.ts_ms), int(document["key"]), tick)


def _day_of(ts_ms: int) -> str:
    try:
        day = day_of(ts_ms)
    except OSError as error:  # out of the C library's calendar
        raise ValueError(f"{ts_ms} is no time") from error
    if not is_partition(day + SUFFIX):
        raise ValueError(f"{ts_ms} is no time of these centuries")
    return day


def _card(values: list[Any]) -> Card:
    card = Card(*values)
    usages = [Usage(*usage) for usage in card.usages]
    return card._replace(facts=CardFacts(*card.facts), usages=usages)


def restore(values: list[Any]) -> Tick:
    """A tick from the plain lists that JSON makes of it. Without its cursors."""
    tick = Tick(*values)
    return tick._replace(
        boot=Boot(*tick.boot),
        cards=[_card(card) for card in values[Tick._fields.index("cards")]],
        # JSON has only texts as keys.
        processes={int(pid): Process(*process) for pid, process in tick.processes.items()},
    )
