"""The gateway to the driver: starts NVML, finds the cards and reads each, so that one can fail alone.

Nothing else in the project calls NVML. What one card tells is in nvml_card, the utilization of MIG
instances in nvml_gpm.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

from gua_sample.errors import DriverError
from gua_sample.nvml_card import IN_TROUBLE, error_name, read_card
from gua_sample.processes import uptime_ms
from gua_sample.records import Card, CardFacts, Cursor, Previous, Reading

REMEDIES = {
    "library_not_found": "libnvidia-ml.so.1 was not found: install the NVIDIA driver, then check with nvidia-smi",
    "driver_not_loaded": "the NVIDIA driver is not loaded: run 'modprobe nvidia' as root, then check with nvidia-smi",
    "lib_rm_version_mismatch": "library and loaded driver differ in version, as after an unattended upgrade: reboot",
    "no_permission": "NVML may not be used by this user: check the permissions of /dev/nvidia*",
    "no_cards": "the driver reports no cards: check nvidia-smi and 'lspci | grep -i nvidia'",
}
OTHER_REMEDY = "check nvidia-smi and 'dmesg | grep -i nvrm'"


class Found(NamedTuple):
    """A card that answers: a physical one, or a MIG instance of it."""

    handle: Any
    mig_index: int | None
    parent_uuid: str | None
    meter: Any  # nvml_gpm.Meter or None


def read(previous: Previous | None) -> Reading:
    """One look at all cards. `previous` is the last tick of this boot, if there is one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise driver_error(error_name(error)) from error
    try:
        return _read_all(previous)
    except pynvml.NVMLError as error:
        raise driver_error(error_name(error)) from error
    finally:
        with suppress(pynvml.NVMLError):  # what was read is good, and the process ends anyway
            pynvml.nvmlShutdown()


def driver_error(name: str) -> DriverError:
    return DriverError(name, f"NVML failed ({name}): {REMEDIES.get(name, OTHER_REMEDY)}")


def _read_all(previous: Previous | None) -> Reading:
    driver_version = _or_default(None, pynvml.nvmlSystemGetDriverVersion)
    count = pynvml.nvmlDeviceGetCount()
    if count == 0:
        raise driver_error("no_cards")
    seen = {cursor.uuid: cursor for cursor in previous.cursors} if previous else {}
    # Another driver may count its buffers from another start.
    cursors = seen if previous and previous.driver_version == driver_version else {}

    cards: list[Card] = []
    new_cursors: list[Cursor] = []
    meters: dict[int, Any] = {}
    failed: dict[int, str] = {}
    uuids: dict[int, str] = {}
    for index in range(count):
        try:
            for found in _find(index, uuids):
                card, cursor = read_card(found.handle, index, found.mig_index, found.parent_uuid, cursors)
                if found.meter is not None:
                    meters[len(cards)] = found.meter
                cards.append(card)
                new_cursors.append(cursor)
        except pynvml.NVMLError as error:
            failed[index] = error_name(error)
    for position, meter in meters.items():
        cards[position] = meter.read(cards[position])

    present = {card.facts.uuid for card in cards}
    for index, status in failed.items():
        for lost in _last_seen(index, seen, present, uuids.get(index)):
            cards.append(_failed_card(lost, status))
            new_cursors.append(lost)
    return Reading(driver_version, cards, new_cursors)


def _find(index: int, uuids: dict[int, str]) -> list[Found]:
    """The card at this index, or its MIG instances if it has any. Raises if the card is lost."""
    parent = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuids[index] = pynvml.nvmlDeviceGetUUID(parent)
    instances: list[tuple[int, Any]] = []
    if _or_default([0], pynvml.nvmlDeviceGetMigMode, parent)[0]:
        for mig_index in range(_or_default(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, parent)):
            handle = _or_default(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, mig_index)
            if handle is not None:
                instances.append((mig_index, handle))
    if not instances:
        return [Found(parent, None, None, None)]
    from gua_sample import nvml_gpm  # most hosts have no MIG, and imports count

    meters = nvml_gpm.start(parent, [handle for _, handle in instances])
    return [
        Found(handle, mig_index, uuids[index], meter)
        for (mig_index, handle), meter in zip(instances, meters, strict=True)
    ]


def _or_default(default: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in IN_TROUBLE:
            raise
        return default


def _last_seen(index: int, seen: dict[str, Cursor], present: set[str], uuid: str | None) -> list[Cursor]:
    """Who a card that fails is: what it says itself, else who was last seen at its index in this boot."""
    last = [cursor for cursor in seen.values() if cursor.gpu_index == index and cursor.uuid not in present]
    instances = [cursor for cursor in last if cursor.mig_index is not None]
    if instances:
        return instances
    if uuid is None and last:
        return last
    return [Cursor(uuid or f"unknown:index-{index}", index, None, None, None, uptime_ms())]


def _failed_card(cursor: Cursor, status: str) -> Card:
    facts = CardFacts(cursor.uuid, cursor.gpu_index, cursor.mig_index, None, None, None, None, None, status, None)
    return Card(facts, None, None, None, None, None, None, [])
