"""One tick as a file for node_exporter's textfile collector: gpu-idle-exporter's metrics under its names, and our own.

docs/metrics.md describes them. Unknown values are left out, never written as 0.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gua_sample.errors import StoreError
from gua_sample.identity import UNATTRIBUTED, find_container
from gua_sample.idleness import Carried, ProcessSight, Run, Trace, runs_now
from gua_sample.partition_names import CONTAINERS_NAME
from gua_sample.policy import (
    IDLE_HELD,
    MOST_ACTIVE_FIRST,
    STATES,
    STATUS_OK,
    TRULY_IDLE,
    UNKNOWN,
    Policy,
    typical_gap,
    unattributed_mib,
)
from gua_sample.processes import printable
from gua_sample.records import Card, Tick, Usage

if TYPE_CHECKING:
    from gua_sample.containers import Known

# The error of a run whose tick could not be stored.
NOT_STORED = "not_stored"
MIB = 1 << 20
# Environment variables that become labels of every series, as in gpu-idle-exporter.
CONSTANT_LABELS = {"NODE_NAME": "node", "POD_NAME": "pod", "POD_NAMESPACE": "namespace"}
NO_NAME = "unknown"  # gpu-idle-exporter's word for a process that /proc does not name

Seen = list[tuple[Usage, ProcessSight, Run, Trace | None]]  # the processes on a card

FAMILIES = {
    "gpu_idle_process_compute_utilization_percent": "SM utilization of the process on this GPU, since the last tick.",
    "gpu_idle_process_memory_used_bytes": "GPU memory that the process holds.",
    "gpu_idle_process_idle_seconds": "For how long the process has been at 0 % SM utilization; 0 if it is not idle.",
    "gpu_idle_process_idle_memory_bytes": "GPU memory that the process holds while it is idle; 0 if it is not.",
    "gpu_idle_device_utilization_percent": "Utilization of the GPU, averaged since the last tick where possible.",
    "gpu_idle_device_memory_used_bytes": "Memory in use on the GPU, without what the driver keeps for itself.",
    "gpu_idle_device_memory_total_bytes": "Memory of the GPU.",
    "gpu_idle_device_power_watts": "Power that the GPU draws.",
    "gpu_idle_device_temperature_celsius": "Temperature of the GPU.",
    "gpu_idle_memory_total_bytes": "Memory that idle processes hold on this GPU, taken together.",
    "gua_card_state": "1 for the state that the card is in, 0 for the others; none for an unpartitioned card.",
    "gua_card_status": "1; the status is ok, or what went wrong with the card.",
    "gua_holder": "1; who holds the card or works on it, and in which state.",
    "gua_holder_memory_bytes": "GPU memory that this identity holds on the card.",
    "gua_container_info": "1; what is known of a container with a process on a card.",
    "gua_process_idle_held_seconds": "For how long the process has held the card without work; 0 if it does not.",
    "gua_last_tick_timestamp_seconds": "When the last tick was taken: all in this file is as of then.",
    "gua_last_success_timestamp_seconds": "When the last tick was taken that saw cards.",
    "gua_tick_interval_seconds": "How often ticks come, as told or as measured.",
    "gua_tick_nvml_seconds": "How long the driver took to answer.",
    "gua_tick_success": "Whether the last run saw cards and stored them.",
    "gua_tick_error": "1; why the last run did not. Only after such a run.",
    "gua_tick_errors_total": "How many runs did not.",
}


class Page:
    def __init__(self, constant: Mapping[str, str]) -> None:
        self._constant = constant
        self._series: dict[str, dict[str, float]] = {name: {} for name in FAMILIES}

    def add(self, name: str, value: float | None, **labels: object) -> None:
        """Add a series, unless its value is None. A duplicate would invalidate the file."""
        if value is not None:
            pairs = (f'{label}="{escape(text)}"' for label, text in {**labels, **self._constant}.items())
            self._series[name][",".join(pairs)] = value

    def text(self) -> str:
        lines = []
        for name, series in self._series.items():
            if series:
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP {name} {FAMILIES[name]}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{'{' + labels + '}' if labels else ''} {value!r}" for labels, value in series.items()]
        return "\n".join([*lines, ""])


def escape(text: object) -> str:
    return printable(str(text)).replace("\\", "\\\\").replace('"', '\\"')


def read_known(data_dir: str, tick: Tick | None, warn: Callable[[str], None]) -> "Known | None":
    if tick is None or not os.path.lexists(os.path.join(data_dir, CONTAINERS_NAME)):
        return None
    if not any(find_container(process.cgroup) for process in tick.processes.values()):
        return None
    from gua_sample.containers import read_containers  # imported here because few runs need it

    try:
        return read_containers(data_dir)
    except StoreError as error:
        warn(str(error))
        return None


def describe(tick: Tick | None, carried: Carried, environment: Mapping[str, str], known: "Known | None" = None) -> str:
    page = Page({label: environment[name] for name, label in CONSTANT_LABELS.items() if environment.get(name)})
    if tick and carried.last:
        runs = runs_now(carried)
        for card in tick.cards:
            uuid = card.facts.uuid
            seen = [
                (usage, sight, runs[sight.key], carried.traces.get(sight.key))
                for usage, sight in zip(card.usages, carried.last[uuid].processes, strict=True)
            ]
            labels = {"gpu": card.facts.number, "model": card.facts.name or "", "uuid": uuid}
            page.add("gpu_idle_device_utilization_percent", card.utilization_percent, **labels)
            page.add("gpu_idle_device_memory_used_bytes", in_bytes(card.memory_used_mib), **labels)
            page.add("gpu_idle_device_memory_total_bytes", in_bytes(card.facts.memory_total_mib), **labels)
            page.add("gpu_idle_device_power_watts", card.power_watts, **labels)
            page.add("gpu_idle_device_temperature_celsius", card.temperature_celsius, **labels)
            add_exporter_processes(page, card, seen, tick)
            found = runs[carried.last[uuid].key].state
            for state in STATES if found in STATES else ():
                page.add("gua_card_state", int(state == found), gpu=card.facts.number, uuid=uuid, state=state)
            page.add("gua_card_status", 1, gpu=card.facts.number, uuid=uuid, status=card.facts.status)
            add_holders(page, card, seen, tick, carried.policy)
            if known and known.containers:
                add_containers(page, seen, tick, known)
    add_run(page, tick, carried)
    return page.text()


def add_exporter_processes(page: Page, card: Card, seen: Seen, tick: Tick) -> None:
    """By gpu-idle-exporter's rule: compute only, idle after two ticks at 0 %, whatever they hold."""
    total: int | None = 0
    for usage, _, _, trace in seen:
        if usage.type == "graphics":
            continue
        labels = {"gpu": card.facts.number, "pid": usage.pid, "process": tick.processes[usage.pid].command or NO_NAME}
        page.add("gpu_idle_process_compute_utilization_percent", usage.sm_percent, **labels)
        page.add("gpu_idle_process_memory_used_bytes", in_bytes(usage.memory_mib), **labels)
        idle_memory = None
        if usage.sm_percent is not None:
            since_ms = trace.idle_since_ms if trace else None
            idle_memory = 0 if since_ms is None else in_bytes(usage.memory_mib)
            page.add("gpu_idle_process_idle_seconds", seconds(since_ms, tick), **labels)
            page.add("gpu_idle_process_idle_memory_bytes", idle_memory, **labels)
        total = None if total is None or idle_memory is None else total + idle_memory
    if card.facts.status == STATUS_OK:
        page.add("gpu_idle_memory_total_bytes", total, gpu=card.facts.number)


def add_holders(page: Page, card: Card, seen: Seen, tick: Tick, policy: Policy) -> None:
    """Add processes, and each identity once, in the most active of their states."""
    place = {"gpu": card.facts.number, "uuid": card.facts.uuid}
    for usage, sight, run, _ in seen:
        held = seconds(run.since_ms if run.state == IDLE_HELD else None, tick)
        process = {"pid": usage.pid, "process": tick.processes[usage.pid].command or NO_NAME}
        labels = {**place, **process, "identity": sight.identity}
        page.add("gua_process_idle_held_seconds", None if run.state == UNKNOWN else held, **labels)
    states: dict[str, str] = {}
    memory: dict[str, int | None] = {}
    for usage, sight, run, _ in seen:
        if (sight.holds or sight.sm_percent > 0) and run.state != TRULY_IDLE:
            who = sight.identity
            states[who] = min(states.get(who, run.state), run.state, key=MOST_ACTIVE_FIRST.index)
            sum_mib = memory.get(who, 0)
            memory[who] = None if sum_mib is None or usage.memory_mib is None else sum_mib + usage.memory_mib
    hidden_mib = unattributed_mib(card, policy)
    if hidden_mib is not None:
        states[UNATTRIBUTED], memory[UNATTRIBUTED] = IDLE_HELD, hidden_mib
    for who, state in states.items():
        page.add("gua_holder", 1, **place, identity=who, state=state)
        page.add("gua_holder_memory_bytes", in_bytes(memory[who]), **place, identity=who)


def add_containers(page: Page, seen: Seen, tick: Tick, known: "Known") -> None:
    from gua_sample.containers import COLUMNS, runtime_of, tell  # as above

    for usage, sight, _, _ in seen:
        one = known.find_around(tick.processes[usage.pid].cgroup)
        if one and runtime_of(sight.identity):
            told = dict(zip(COLUMNS, tell(sight.identity, one), strict=True))
            labels = {"identity": sight.identity, **told, "image": one.image}
            page.add("gua_container_info", 1, **{name: text or "" for name, text in labels.items()})


def add_run(page: Page, tick: Tick | None, carried: Carried) -> None:
    if carried.times_ms:
        page.add("gua_last_tick_timestamp_seconds", carried.times_ms[-1] / 1000)
    if carried.success_ms is not None:
        page.add("gua_last_success_timestamp_seconds", carried.success_ms / 1000)
    interval_ms = tick.interval_ms if tick else None
    page.add("gua_tick_interval_seconds", (interval_ms or typical_gap(carried.times_ms)) / 1000)
    if tick and tick.nvml_ms is not None:
        page.add("gua_tick_nvml_seconds", tick.nvml_ms / 1000)
    error = tick.error if tick else NOT_STORED
    page.add("gua_tick_success", int(error is None))
    if error is not None:
        page.add("gua_tick_error", 1, error=error)
    page.add("gua_tick_errors_total", carried.errors)


def seconds(since_ms: int | None, tick: Tick) -> float:
    return 0 if since_ms is None else (tick.ts_ms - since_ms) / 1000


def in_bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
