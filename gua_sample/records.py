"""The facts of one tick, as plain tuples: sources return them and the store writes them.

None always means "not given by the driver or /proc", never zero.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

# The error of a run that was killed at its start timeout. The tick's nvml_ms is the duration of that run.
TIMEOUT = "timeout"
# Prefix of boot ids that an import made up because the other tool does not record the machine's.
IMPORTED_BOOT = "imported:"


class Usage(NamedTuple):
    """One process on one card, as the driver reports it. A pid on several lists is one Usage."""

    pid: int
    type: str  # compute, graphics, mps, or several joined by "+"
    memory_mib: int | None
    sm_percent: int | None


class CardFacts(NamedTuple):
    """The facts about a card that seldom change. The store keeps each distinct set once a day."""

    uuid: str
    gpu_index: int  # of the physical card; for display only, since it is not stable across reboots
    mig_index: int | None = None
    name: str | None = None
    parent_uuid: str | None = None
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    persistence_mode: int | None = None
    status: str = "ok"  # or the name of what went wrong
    missing: str | None = None  # why fields are None: "energy:not_supported power:no_permission"
    compute_slices: int | None = None  # of a MIG instance
    most_compute_slices: int | None = None  # of the physical card
    parent_memory_mib: int | None = None

    @property
    def number(self) -> str:
        """The card's index; for a MIG instance `index:mig_index`, as NVIDIA's tools spell it."""
        return str(self.gpu_index) if self.mig_index is None else f"{self.gpu_index}:{self.mig_index}"


# The facts that tell the share of a MIG instance in its card, with its memory_total_mib.
MIG_FACTS = ("compute_slices", "most_compute_slices", "parent_memory_mib")


class Card(NamedTuple):
    facts: CardFacts
    utilization_percent: float | None = None
    utilization_source: str | None = None  # samples, rate or gpm
    memory_used_mib: int | None = None  # total - free - reserved
    power_watts: float | None = None
    energy_joules: int | None = None
    temperature_celsius: int | None = None
    usages: Sequence[Usage] = ()


class Process(NamedTuple):
    """The facts about a pid from /proc."""

    pid: int
    start_time_ms: int | None = None
    uid: int | None = None
    login_uid: int | None = None
    user: str | None = None
    login_user: str | None = None
    command: str | None = None
    cgroup: str | None = None


class Cursor(NamedTuple):
    """A card's state for the next tick: where it was seen, and how far its buffers were read."""

    uuid: str
    gpu_index: int
    mig_index: int | None = None
    parent_uuid: str | None = None
    samples_cursor: int | None = None  # time of the newest record, in whatever clock the driver uses
    processes_cursor: int | None = None
    uptime_ms: int = 0
    # What a MIG instance told of its share, for a tick at which it fails. The store has it with the card's facts.
    compute_slices: int | None = None
    most_compute_slices: int | None = None
    parent_memory_mib: int | None = None


class Boot(NamedTuple):
    id: str
    time_ms: int  # epoch of uptime 0, as first seen in this boot: setting the clock does not change it


class Previous(NamedTuple):
    """The state that the last tick left for this one."""

    boot: Boot
    driver_version: str | None
    cursors: list[Cursor]
    ts_ms: int | None = None  # of the tick that was stored last


class Reading(NamedTuple):
    driver_version: str | None
    cards: list[Card]
    cursors: list[Cursor]


class Tick(NamedTuple):
    """One run of the sampler. `error` is the reason why there are no cards."""

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
    """The source of a tick: the machine, or the simulated laboratory."""

    boot: Callable[[], Boot]
    read: Callable[[Previous | None], Reading]
    describe: Callable[[int, Boot], Process]
    names: Callable[[set[int]], dict[int, str | None]]  # of users, if describe gave none; absent: no answer
