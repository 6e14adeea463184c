"""The facts of one tick, as plain tuples: what sources give and the store writes.

None always means "the driver or /proc does not tell", never zero.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field, 2 ms a tick.
from collections.abc import Callable
from typing import NamedTuple

# The error of a run that had to be killed at its start timeout. The tick's nvml_ms is how long that run lasted.
TIMEOUT = "timeout"
# How boot ids begin that an import made up, as the tool it took ticks from does not record the machine's.
IMPORTED_BOOT = "imported:"


class Usage(NamedTuple):
    """One process on one card, as the driver tells it. A pid on several lists is one Usage."""

    pid: int
    type: str  # compute, graphics, mps, or several joined by "+"
    memory_mib: int | None
    sm_percent: int | None


class CardFacts(NamedTuple):
    """What seldom changes about a card. The store keeps each distinct set once a day."""

    uuid: str
    gpu_index: int  # of the physical card; for people, since it is not stable across reboots
    mig_index: int | None
    name: str | None
    parent_uuid: str | None
    memory_total_mib: int | None
    memory_reserved_mib: int | None
    persistence_mode: int | None
    status: str  # "ok", or the name of what went wrong
    missing: str | None  # why fields are None: "energy:not_supported power:no_permission"
    compute_slices: int | None = None  # of a MIG instance
    most_compute_slices: int | None = None  # that its card has
    parent_memory_mib: int | None = None


class Card(NamedTuple):
    """One card at one tick."""

    facts: CardFacts
    utilization_percent: float | None
    utilization_source: str | None  # samples, rate or gpm
    memory_used_mib: int | None  # total - free - reserved
    power_watts: float | None
    energy_joules: int | None
    temperature_celsius: int | None
    usages: list[Usage]


class Process(NamedTuple):
    """Who a pid is, from /proc."""

    pid: int
    start_time_ms: int | None
    uid: int | None
    login_uid: int | None
    user: str | None
    login_user: str | None
    command: str | None
    cgroup: str | None


class Cursor(NamedTuple):
    """What the next tick needs to know of a card: where it was seen, and how far its buffers were read."""

    uuid: str
    gpu_index: int
    mig_index: int | None
    parent_uuid: str | None
    samples_cursor: int | None  # in whatever clock the driver uses
    processes_cursor: int | None
    uptime_ms: int


class Boot(NamedTuple):
    id: str
    time_ms: int  # epoch of uptime 0, as first seen in this boot: stable when the clock is set


class Previous(NamedTuple):
    """What the last tick left for this one."""

    boot: Boot
    driver_version: str | None
    cursors: list[Cursor]


class Reading(NamedTuple):
    """All that one look at the driver gave."""

    driver_version: str | None
    cards: list[Card]
    cursors: list[Cursor]


class Tick(NamedTuple):
    """One run of the sampler. `error` names why there are no cards."""

    ts_ms: int
    interval_ms: int | None
    boot: Boot
    driver_version: str | None
    nvml_ms: int | None
    error: str | None
    cards: list[Card]
    processes: dict[int, Process]
    cursors: list[Cursor]


class Source(NamedTuple):
    """Where a tick comes from: the machine, or the simulated laboratory."""

    boot: Callable[[], Boot]
    read: Callable[[Previous | None], Reading]
    describe: Callable[[int, Boot], Process]
    names: Callable[[set[int]], dict[int, str | None]]  # of users, if describe left them open; absent: no answer
