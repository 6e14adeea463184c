"""The index of the days in rollups.sqlite, and the state of their ticks. Without pandas, since importers use it too."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gua_report.rollups import schema
from gua_report.ticks.open_partition import CARD_NAMES, Kind, open_database
from gua_report.window import is_day, midnight_ms, number_of
from gua_sample.errors import CorruptPartition
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import RULE, Policy

NAMES = {"word": ("text",), "card": CARD_NAMES, "episode": ("slurm_job",), "unpartitioned_hour": ("gpu_uuid",)}
ROLLUPS = Kind(
    "a file of rollups",
    schema.APPLICATION_ID,
    schema.VERSION,
    schema.TABLE_NAMES,
    schema.VIEWS,
    NAMES,
    schema.ADDED,
)
LARGEST_INTEGER = 2**63 - 1  # SQLite's limit: a file's time may be of any year


class Origin(NamedTuple):
    """The partition and thresholds that a day was made from. If they have changed since, the rollup is stale."""

    policy: Policy
    partition_bytes: int
    partition_changed_ns: int


EDGE_KEY = re.compile(r"\d{1,18}:\d{0,18}:[0-9a-f]*", re.ASCII)  # key of a day's end
NOTHING_NEAR = ""  # the key of an edge with no tick near enough to make a difference


def after_key(until_ms: int, first_ms: int | None = None, ticks: str = NOTHING_NEAR) -> str:
    """The key of a day's end: the time up to which later ticks make a difference, the first of them, and a digest."""
    return f"{until_ms}:{'' if first_ms is None else first_ms}:{ticks}"


class Edges(NamedTuple):
    """The keys of the ticks that a day was made with at its start and end; None where these were missing."""

    before: str | None
    after: str | None


class Beside(NamedTuple):
    """The current key of a stored day's ticks for a neighbour that depends on them."""

    day: str
    side: str  # "before" or "after": the start or the end of the neighbour
    key: str


class Stored(NamedTuple):
    origin: Origin
    is_verified: bool = False  # it was read back and found correct
    is_expired: bool = False  # its ticks were removed: the rollup is all that is left, and never made anew
    is_compact: bool = False  # its partition has no empty space
    partition_digest: str | None = None  # digests: None if an older gua wrote the day
    compact_digest: str | None = None
    rows_digest: str | None = None
    checked_ms: int | None = None  # when it was last read back and found right
    failed_check: str | None = None  # what differs from its digest: the ticks, the rows, or both
    rule: int | None = RULE  # by which states were decided: None if an older gua wrote the day
    is_stale: bool = False  # the neighbours' ticks that it was made with have changed
    lacks_edge: bool = False  # the neighbours' ticks were missing when it was made
    before: str | None = None  # the keys of its start and end
    after: str | None = None

    @property
    def ticks_digest(self) -> str | None:
        """The digest of its partition. An older gua compacts partitions without a new digest, so there are two."""
        return self.compact_digest if self.is_compact else self.partition_digest

    def fits(self, next_ms: int) -> bool:
        """Whether the day was made with `next_ms` as the first tick after it, judging by times alone."""
        if self.after is None:
            return True
        until_ms, first_ms, _ = self.after.split(":")
        return first_ms == str(next_ms) if first_ms or next_ms <= int(until_ms) else True

    @property
    def edges(self) -> Edges | None:
        """The keys that it was made with; None if an older gua stored it without."""
        is_told = self.lacks_edge or self.before is not None or self.after is not None
        return Edges(self.before, self.after) if is_told else None

    @property
    def is_exact(self) -> bool:
        return not (self.is_stale or self.lacks_edge)


TICKS, ROWS = "ticks", "rows"  # what may fail its check
# The marks with columns in the table `day`.
MARKS = ("is_verified", "is_expired", "is_compact")


def closes_by_ms(day: str) -> int:
    """The time at which a day is closed at the latest, whatever its ticks. The rule is in rollups/closed_day.py."""
    return midnight_ms(day) + 2 * DAY_MS


def path_of(data_dir: str) -> str:
    return os.path.join(data_dir, schema.FILE_NAME)


def origin_of(partition: str, policy: Policy) -> Origin:
    found = os.stat(partition)
    return Origin(policy, found.st_size, min(max(found.st_mtime_ns, -LARGEST_INTEGER), LARGEST_INTEGER))


def find_current(index: Mapping[str, Stored], partitions: Mapping[str, str], policy: Policy) -> set[str]:
    """The days whose rollups were made from the current partitions, by this rule and under these thresholds."""
    current = set()
    for day in index.keys() & partitions.keys():
        with suppress(FileNotFoundError):  # it has just expired
            if index[day].rule == RULE and index[day].origin == origin_of(partitions[day], policy):
                current.add(day)
    return current


@contextmanager
def open_rollups(path: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection to rollups.sqlite. One bad byte in a name spoils that name, not the whole file."""
    with open_database(path, ROLLUPS) as connection:
        connection.text_factory = _decode
        yield connection


def _decode(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def read_index(path: str, check: bool = False, damaged: list[str] | None = None) -> dict[str, Stored]:
    """The stored days; none if there is no such file. Raises CorruptPartition if it is damaged.

    `check` examines the whole file, not only the days. `damaged` gets a line for each invalid day, which is then left
    out.
    """
    if not os.path.lexists(path):
        return {}
    names = ("d.id", "day", *Policy._fields, "partition_bytes", "partition_changed_ns", *MARKS, *schema.ADDED["day"])
    index = {}
    with open_rollups(path) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] if check else "ok"
        if found != "ok":
            raise CorruptPartition(f"{path} is damaged ({' '.join(found.split())})")
        selected = f"{', '.join(names)}, {schema.EDGE_MARKS}"
        for row in connection.execute(
            f"SELECT {selected} FROM day d LEFT JOIN edge e ON e.day_id = d.id ORDER BY d.id"
        ):
            try:
                index[row[1]] = _stored(row)
            except (TypeError, ValueError) as error:
                if damaged is None:
                    raise
                damaged.append(f"{path} is damaged: what it says of one day makes no sense ({error})")
    return index


def _stored(row: tuple[Any, ...]) -> Stored:
    number, day, *values = row
    if not isinstance(day, str) or not is_day(day) or number != number_of(day):
        raise ValueError(f"{str(day)[:20]!r} for day {number}")
    width = len(Policy._fields) + 2
    numbers, marks, digests, edges = values[:width], values[width:][:3], values[width + 3 : -4], values[-4:]
    if not all(isinstance(value, int | float) and abs(value) < 2**63 for value in [*numbers, *marks]):
        raise ValueError(f"{day} was made from what can't be")
    if edges[-1] is not None and not EDGE_KEY.fullmatch(edges[-1]):
        raise ValueError(f"{day} has an edge that can't be")
    origin = Origin(Policy(*numbers[:-2]), *numbers[-2:])
    verified, expired, compact = map(bool, marks)
    is_stale, lacks_edge, before, after = edges
    found = Stored(origin, verified, expired, compact, *digests)
    return found._replace(is_stale=bool(is_stale), lacks_edge=bool(lacks_edge), before=before, after=after)
