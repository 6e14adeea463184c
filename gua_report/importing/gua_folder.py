"""Sources written by gua: another data folder, its folder of samples, or a single partition."""

import os
from collections import defaultdict
from collections.abc import Iterator
from sqlite3 import Connection
from typing import Any

from gua_report.importing.intake import MOST_MIB, Source, Tally, name, whole
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_names import PENDING_SUFFIX, is_partition, list_partitions
from gua_sample.records import Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.schema import UTILIZATION_SOURCES

KIND = "gua data folder"
ONE_KIND = "gua partition"
LARGEST = 2**53
MIB, NUMBER, SLICES, WHOLE = (0, MOST_MIB), (0, LARGEST), (1, 1024), (-LARGEST, LARGEST)

# The smallest and largest valid value of each column of numbers. All others are texts.
LIMITS = {
    **dict.fromkeys(("id", "gpu_index", "pid", "ts_ms", "boot_time_ms", "start_time_ms"), WHOLE),
    **dict.fromkeys(("mig_index", "energy_base_joules", "uid", "login_uid", "nvml_ms"), NUMBER),
    **dict.fromkeys(("memory_total_mib", "memory_reserved_mib", "parent_memory_mib"), MIB),
    **dict.fromkeys(("compute_slices", "most_compute_slices"), SLICES),
    "persistence_mode": (0, 1),
    "interval_ms": (1, LARGEST),
}
# Columns without which a row makes no sense. In others, an invalid value is treated as missing.
NEEDED = {"id", "gpu_index", "pid", "ts_ms", "boot_time_ms", "uuid", "status", "type"}
TICK = ("id", "ts_ms", "interval_ms", "boot_id", "boot_time_ms", "driver_version", "nvml_ms", "error")
TICKS = """
    tick JOIN (SELECT id AS session_id, boot_id, boot_time_ms, driver_version FROM session) USING (session_id)
    ORDER BY ts_ms
"""
CARD_SAMPLES = """
    SELECT tick_id, card_id, utilization_hundredths, utilization_source, memory_used_mib, power_deciwatts,
           energy_above_base_joules, temperature_celsius
    FROM card_sample ORDER BY tick_id, card_id
"""
PROCESS_SAMPLES = """
    SELECT tick_id, card_id, process_id, memory_mib, sm_percent FROM process_sample
    ORDER BY tick_id, card_id, process_id
"""


def source_of_folder(folder: str, tally: Tally) -> Source:
    for entry in sorted(os.listdir(folder)):
        if entry.endswith(PENDING_SUFFIX):
            tally.leave("tick", "still waiting to be taken in by the sampler over there", entry)
        elif ".sqlite.corrupt-" in entry:
            tally.leave("file", "set aside as corrupt over there", entry)
    return source_of_files(KIND, list_partitions(folder), tally)


def source_of_files(kind: str, paths: list[str], tally: Tally) -> Source:
    by_name = {os.path.basename(path): path for path in paths}
    parts = {name[:10] if is_partition(name) else name: path for name, path in by_name.items()}
    return Source(kind, list(parts), lambda part: _read_file(parts[part], part, tally))


def _read_file(path: str, label: str, tally: Tally) -> list[Tick]:
    try:
        with open_partition(path) as connection:
            return _read_ticks(connection)
    except EmptyPartition:
        return []
    except StoreError as error:
        tally.refuse(label, str(error))
    return []


def _read_ticks(connection: Connection) -> list[Tick]:
    known = _read(connection, ("id", *Process._fields, "type"), "process")
    processes = {process_id: (Process(*facts), type_) for process_id, *facts, type_ in known}
    usages: dict[tuple[int, int], list[Usage]] = defaultdict(list)
    people: dict[int, dict[int, Process]] = defaultdict(dict)
    for tick_id, card_id, process_id, memory, sm_percent in connection.execute(PROCESS_SAMPLES):
        process, type_ = processes[process_id]
        people[tick_id][process.pid] = process
        usage = Usage(process.pid, type_, whole(memory, 0, MOST_MIB), whole(sm_percent, 0, 100))
        usages[tick_id, card_id].append(usage)
    known = _read(connection, ("id", "energy_base_joules", *CardFacts._fields), "card")
    cards = {card_id: (CardFacts(*facts), energy_base) for card_id, energy_base, *facts in known}
    samples: dict[int, list[Card]] = defaultdict(list)
    for tick_id, card_id, *values in connection.execute(CARD_SAMPLES):
        samples[tick_id].append(_card(*cards[card_id], values, usages.get((tick_id, card_id), [])))
    ticks = []
    for row in _read(connection, TICK, TICKS):
        tick_id, ts_ms, interval_ms, boot_id, boot_time_ms, driver_version, nvml_ms, error = row
        boot = Boot(boot_id or "unknown", boot_time_ms)
        seen = samples.get(tick_id, []), people.get(tick_id, {})
        ticks.append(Tick(ts_ms, interval_ms, boot, driver_version, nvml_ms, error, *seen, cursors=[]))
    return ticks


def _read(connection: Connection, columns: tuple[str, ...], table: str) -> Iterator[list[Any]]:
    """The rows of a table. The file comes from another host, so every value is validated."""
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):
        yield list(map(_checked, columns, row))


def _checked(column: str, value: object) -> int | str | None:
    valid = whole(value, *LIMITS[column]) if column in LIMITS else name(value)
    if valid is None and column in NEEDED:
        raise ValueError(f"{value!r} for {column}")
    return valid


def _card(facts: CardFacts, energy_base: int | None, values: list[Any], usages: list[Usage]) -> Card:
    hundredths, source, used, deciwatts, energy, celsius = values
    percent, power = whole(hundredths, 0, 10_000), whole(deciwatts, 0, LARGEST)
    above_base = None if energy_base is None else whole(energy, -LARGEST, LARGEST)
    return Card(
        facts,
        None if percent is None else percent / 100,
        None if source is None else UTILIZATION_SOURCES[source],
        whole(used, 0, MOST_MIB),
        None if power is None else power / 10,
        None if energy_base is None or above_base is None else energy_base + above_base,
        whole(celsius, -300, 1000),
        usages,
    )
