"""Kept ticks: those that can't be written to their partition, as store.append decides, lie beside it, one file each.

Each has a random key, which is stored with the tick: if a run is killed before it deletes the file, the key keeps the
next one from storing the tick twice.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from gua_sample.errors import CorruptPartition, NewerPartition, StoreError
from gua_sample.partition_names import PENDING_SUFFIX, SUFFIX, day_of, is_partition
from gua_sample.records import Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.safe_file import UNFINISHED_SUFFIX, read_regular, remove_abandoned, replace_file

VERSION = 2  # fields by name; version 1 had lists, in the order of the fields of that time
MOST_BYTES = 6 << 20  # 128 cards with ten processes each take 0.7 MB; with a dozen long control groups each, 5 MB
# Limits of one run; the rest waits. As Python objects, the bytes take twenty times as much memory.
MOST_FILES, MOST_BYTES_AT_ONCE = 500, 12 << 20
# Exceptions from reading a file that holds no kept tick.
NOT_UNDERSTOOD = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, CorruptPartition)


class Kept(NamedTuple):
    path: str
    day: str
    key: int
    tick: Tick


def keep(folder: str, tick: Tick) -> str:
    """Write the tick atomically to a file of its own and return the path."""
    import json

    key = int.from_bytes(os.urandom(7), "big")
    path = os.path.join(folder, f"{day_of(tick.ts_ms)}.{key:014x}{PENDING_SUFFIX}")
    document = {"version": VERSION, "key": key, "tick": named(tick._replace(cursors=[]))}
    try:
        replace_file(path, json.dumps(document), durable=True)
    except OSError as error:
        raise StoreError(f"the tick can't be written to its partition now, nor to {path}: {error.strerror}") from error
    return path


def load(folder: str, warn: Callable[[str], None]) -> list[Kept]:
    """Kept ticks in time order, as many as one run takes. What is none is set aside."""
    kept: list[Kept] = []
    total = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if len(kept) == MOST_FILES:
            break
        if name.endswith(PENDING_SUFFIX):
            try:
                size = min(os.lstat(path).st_size, MOST_BYTES)
                if total + size > MOST_BYTES_AT_ONCE:
                    break
                kept.append(load_one(path))
                total += size
            except (FileNotFoundError, NewerPartition):
                pass  # another run has just taken it in; or a newer gua wrote it
            except OSError as error:
                warn(f"{path} can't be read ({error.strerror}): the tick goes on waiting")
            except NOT_UNDERSTOOD as error:
                set_aside(path, error, warn)
        elif f"{PENDING_SUFFIX}." in name and name.endswith(UNFINISHED_SUFFIX):
            remove_abandoned(path)
    return sorted(kept, key=lambda one: one.tick.ts_ms)


def set_aside(path: str, error: Exception, warn: Callable[[str], None]) -> None:
    try:
        os.rename(path, path + ".corrupt")
    except OSError as problem:
        warn(f"{path} can't be understood ({error}) nor renamed ({problem.strerror})")
    else:
        warn(f"{path} can't be understood ({error}): it was set aside as {path}.corrupt")


def load_one(path: str) -> Kept:
    """The kept tick in a file. Raises OSError, NewerPartition, or one of NOT_UNDERSTOOD."""
    import json

    document = json.loads(read_regular(path, MOST_BYTES).decode())
    version = int(document["version"])
    if version > VERSION:
        raise NewerPartition(f"{path} has version {version}, this gua reads up to {VERSION}")
    tick = restore(document["tick"])
    try:
        day = day_of(tick.ts_ms)
    except OSError as error:  # outside of the C library's calendar
        raise ValueError(f"{tick.ts_ms} is no time") from error
    if not is_partition(day + SUFFIX):
        raise ValueError(f"{tick.ts_ms} is no time of these centuries")
    return Kept(path, day, int(document["key"]), tick)


def restore(values: Any) -> Tick:
    tick: Tick = _make(Tick, values)
    cards = [
        card._replace(facts=_make(CardFacts, card.facts), usages=[_make(Usage, usage) for usage in card.usages])
        for card in (_make(Card, card) for card in tick.cards)
    ]
    # JSON's keys are strings.
    processes = {int(pid): _make(Process, process) for pid, process in tick.processes.items()}
    return tick._replace(boot=_make(Boot, tick.boot), cards=cards, processes=processes, cursors=[])


def _make(kind: Any, values: Any) -> Any:
    """A tuple of that kind. Of a dict, unknown names, of a newer gua, are ignored; missing ones give None."""
    if isinstance(values, dict):
        return kind(**{name: values.get(name) for name in kind._fields})
    return kind(*values)


def named(value: Any) -> Any:
    """The named tuples of a tick as dicts, so that later versions can add fields."""
    if hasattr(value, "_asdict"):
        return {name: named(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {key: named(part) for key, part in value.items()}
    return [named(part) for part in value] if isinstance(value, list) else value
