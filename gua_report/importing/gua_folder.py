"""Sources written by gua: another data folder, its folder of samples, or a single partition."""

from __future__ import annotations

import os
from collections import defaultdict
from sqlite3 import Connection
from typing import Any

from gua_report.importing.source import Source
from gua_report.importing.tally import Tally
from gua_report.importing.values import MOST_MIB, name, whole
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_names import PENDING_SUFFIX, is_partition, list_partitions
from gua_sample.records import Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.schema import UTILIZATION_SOURCES

KIND = "gua data folder"
ONE_KIND = "gua partition"
LARGEST = 2**53

TICKS = """
    SELECT t.id, t.ts_ms, t.interval_ms, n.boot_id, n.boot_time_ms, n.driver_version, t.nvml_ms, t.error
    FROM tick t JOIN session n ON n.id = t.session_id ORDER BY t.ts_ms
"""
MOST_SLICES = 1024
CARDS = f"SELECT id, energy_base_joules, {', '.join(CardFacts._fields)} FROM card"
CARD_SAMPLES = """
    SELECT tick_id, card_id, utilization_hundredths, utilization_source, memory_used_mib, power_deciwatts,
           energy_above_base_joules, temperature_celsius
    FROM card_sample ORDER BY tick_id, card_id
"""
PROCESSES = f"SELECT id, {', '.join(Process._fields)}, type FROM process"
PROCESS_SAMPLES = """
    SELECT tick_id, card_id, process_id, memory_mib, sm_percent FROM process_sample
    ORDER BY tick_id, card_id, process_id
"""


def source_of_folder(folder: str, tally: Tally) -> Source:
    """A source of all partitions in a folder of samples."""
    for entry in sorted(os.listdir(folder)):
        if entry.endswith(PENDING_SUFFIX):
            tally.leave("tick", "still waiting to be taken in by the sampler over there", entry)
        elif ".sqlite.corrupt-" in entry:
            tally.leave("file", "set aside as corrupt over there", entry)
    paths = {os.path.basename(path)[:10]: path for path in list_partitions(folder)}
    return Source(KIND, list(paths), lambda day: _read(paths[day], day, tally), lambda: None)


def source_of_file(path: str, tally: Tally) -> Source:
    shown = os.path.basename(path)
    label = shown[:10] if is_partition(shown) else shown
    return Source(ONE_KIND, [label], lambda _: _read(path, label, tally), lambda: None)


def _read(path: str, label: str, tally: Tally) -> list[Tick]:
    try:
        with open_partition(path) as connection:
            return _read_ticks(connection)
    except EmptyPartition:
        return []
    except StoreError as error:
        tally.refuse(label, str(error))
    return []


def _read_ticks(connection: Connection) -> list[Tick]:
    cards, processes = _read_cards(connection), _read_processes(connection)
    usages: dict[tuple[int, int], list[Usage]] = defaultdict(list)
    people: dict[int, dict[int, Process]] = defaultdict(dict)
    for tick_id, card_id, process_id, memory, sm_percent in connection.execute(PROCESS_SAMPLES):
        process, type_ = processes[process_id]
        people[tick_id][process.pid] = process
        usage = Usage(process.pid, type_, whole(memory, 0, MOST_MIB), whole(sm_percent, 0, 100))
        usages[tick_id, card_id].append(usage)
    samples: dict[int, list[Card]] = defaultdict(list)
    for tick_id, card_id, *values in connection.execute(CARD_SAMPLES):
        samples[tick_id].append(_card(*cards[card_id], values, usages.get((tick_id, card_id), [])))
    return [
        Tick(
            _number(ts_ms),
            whole(interval_ms, 1, LARGEST),
            Boot(name(boot_id) or "unknown", _number(boot_time_ms)),
            name(driver_version),
            whole(nvml_ms, 0, LARGEST),
            name(error),
            samples.get(tick_id, []),
            people.get(tick_id, {}),
            [],
        )
        for tick_id, ts_ms, interval_ms, boot_id, boot_time_ms, driver_version, nvml_ms, error in connection.execute(
            TICKS
        )
    ]


def _card(facts: CardFacts, energy_base: int | None, values: list[Any], usages: list[Usage]) -> Card:
    hundredths, source, used, deciwatts, energy, celsius = values
    percent, power = whole(hundredths, 0, 10_000), whole(deciwatts, 0, LARGEST)
    return Card(
        facts,
        None if percent is None else percent / 100,
        None if source is None else UTILIZATION_SOURCES[source],
        whole(used, 0, MOST_MIB),
        None if power is None else power / 10,
        None if energy is None or energy_base is None else energy_base + _number(energy),
        whole(celsius, -300, 1000),
        usages,
    )


def _read_cards(connection: Connection) -> dict[int, tuple[CardFacts, int | None]]:
    """The facts of each card id, and the base of its energy counter. The file comes from another host, so every value
    is validated."""
    cards = {}
    for card_id, base, *values in connection.execute(CARDS):
        told = CardFacts(*values)
        facts = CardFacts(
            uuid=_text(told.uuid),
            gpu_index=_number(told.gpu_index),
            mig_index=whole(told.mig_index, 0, LARGEST),
            name=name(told.name),
            parent_uuid=name(told.parent_uuid),
            memory_total_mib=whole(told.memory_total_mib, 0, MOST_MIB),
            memory_reserved_mib=whole(told.memory_reserved_mib, 0, MOST_MIB),
            persistence_mode=whole(told.persistence_mode, 0, 1),
            status=_text(told.status),
            missing=name(told.missing),
            compute_slices=whole(told.compute_slices, 1, MOST_SLICES),
            most_compute_slices=whole(told.most_compute_slices, 1, MOST_SLICES),
            parent_memory_mib=whole(told.parent_memory_mib, 0, MOST_MIB),
        )
        cards[card_id] = facts, whole(base, 0, LARGEST)
    return cards


def _read_processes(connection: Connection) -> dict[int, tuple[Process, str]]:
    processes = {}
    for row in connection.execute(PROCESSES):
        process_id, pid, start_time_ms, uid, login_uid, user, login_user, command, cgroup, type_ = row
        start, uids = whole(start_time_ms, -LARGEST, LARGEST), (whole(uid, 0, LARGEST), whole(login_uid, 0, LARGEST))
        names = name(user), name(login_user), name(command), name(cgroup)
        processes[process_id] = Process(_number(pid), start, *uids, *names), _text(type_)
    return processes


def _number(value: object) -> int:
    number = whole(value, -LARGEST, LARGEST)
    if number is None:
        raise ValueError(f"{value!r} for a number")
    return number


def _text(value: object) -> str:
    text = name(value)
    if text is None:
        raise ValueError(f"{value!r} for a name")
    return text
