"""The gateway to the driver: it starts NVML, finds the cards and reads each separately, so that one can fail alone.

Only this module, nvml_card (one card) and nvml_gpm (utilization of MIG instances) call NVML.
"""

# No `from __future__ import annotations` here: see records.py.

from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

from gua_sample.errors import DriverError
from gua_sample.nvml_card import IN_TROUBLE, Place, error_name, read_card, text
from gua_sample.processes import uptime_ms
from gua_sample.records import Card, CardFacts, Cursor, Previous, Reading

REMEDIES = {
    "library_not_found": "libnvidia-ml.so.1 was not found: install the NVIDIA driver, then check with nvidia-smi",
    "driver_not_loaded": "the NVIDIA driver is not loaded: run 'modprobe nvidia' as root, then check with nvidia-smi",
    "lib_rm_version_mismatch": "library and loaded driver differ in version, as after an unattended upgrade: reboot",
    "no_permission": "NVML may not be used by this user: check the permissions of /dev/nvidia*",
    "driver_hangs": "an earlier run hangs in the driver and can't be killed: reboot, after a look at 'dmesg'",
    "no_cards": "the driver reports no cards: check nvidia-smi and 'lspci | grep -i nvidia'",
}
OTHER_REMEDY = "check nvidia-smi and 'dmesg | grep -i nvrm'"


class Found(NamedTuple):
    """A card that was found: a physical one, or a MIG instance."""

    handle: Any
    place: Place
    meter: Any  # nvml_gpm.Meter or None


class Failed(NamedTuple):
    """A card that does not answer; without a mig_index, everything at that index."""

    gpu_index: int
    mig_index: int | None
    uuid: str | None  # None if it could not be read either
    parent_uuid: str | None
    status: str


def read(previous: Previous | None) -> Reading:
    """Read all cards once. `previous` is the last tick of this boot, if there is one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise driver_error(error_name(error)) from error
    try:
        return _read_all(previous)
    except pynvml.NVMLError as error:
        raise driver_error(error_name(error)) from error
    finally:
        with suppress(pynvml.NVMLError):  # the reading is complete, and the process ends anyway
            pynvml.nvmlShutdown()


def driver_error(name: str) -> DriverError:
    return DriverError(name, f"NVML failed ({name}): {REMEDIES.get(name, OTHER_REMEDY)}")


def _read_all(previous: Previous | None) -> Reading:
    driver_version = _or_default(None, text, pynvml.nvmlSystemGetDriverVersion)
    count = pynvml.nvmlDeviceGetCount()
    if count == 0:
        raise driver_error("no_cards")
    seen = {cursor.uuid: cursor for cursor in previous.cursors} if previous else {}
    # After a driver change, the timestamps of its buffers may start anew.
    cursors = seen if previous and previous.driver_version == driver_version else {}

    cards: list[Card] = []
    new_cursors: list[Cursor] = []
    meters: dict[int, Any] = {}
    failed: list[Failed] = []
    for index in range(count):
        found, missing = _find(index)
        failed += missing
        for one in found:
            try:
                card, cursor = read_card(one.handle, one.place, cursors)
            except pynvml.NVMLError as error:  # not even its uuid can be read
                failed.append(Failed(index, one.place.mig_index, None, one.place.parent_uuid, error_name(error)))
                continue
            if one.meter is not None:
                meters[len(cards)] = one.meter
            cards.append(card)
            new_cursors.append(cursor)
    for position, meter in meters.items():
        cards[position] = meter.read(cards[position])

    present = {card.facts.uuid for card in cards}
    for failure in failed:
        for cursor in _last_seen(failure, seen, present):
            cards.append(_failed_card(cursor, failure.status))
            new_cursors.append(cursor)
    return Reading(driver_version, cards, new_cursors)


def _find(index: int) -> tuple[list[Found], list[Failed]]:
    """The card at this index, or its MIG instances if it has any; and those that fail."""
    uuid = None
    try:
        parent = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text(pynvml.nvmlDeviceGetUUID, parent)
        is_mig = _or_default([0], pynvml.nvmlDeviceGetMigMode, parent)[0]
        places = range(_or_default(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) if is_mig else 0)
    except pynvml.NVMLError as error:
        return [], [Failed(index, None, uuid, None, error_name(error))]
    instances: list[tuple[int, Any]] = []
    failed: list[Failed] = []
    for mig_index in places:
        try:
            instances.append((mig_index, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, mig_index)))
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            pass  # nothing there
        except pynvml.NVMLError as error:
            failed.append(Failed(index, mig_index, None, uuid, error_name(error)))
    if not instances:
        return ([] if failed else [Found(parent, Place(index), None)]), failed
    from gua_sample import nvml_gpm  # most hosts have no MIG, and imports take time at each tick

    meters = nvml_gpm.start(parent, [handle for _, handle in instances])
    memory = _or_default(None, pynvml.nvmlDeviceGetMemoryInfo, parent)
    whole = Place(index, None, uuid, len(places), memory.total >> 20 if memory else None)
    found = [
        Found(handle, whole._replace(mig_index=mig_index), meter)
        for (mig_index, handle), meter in zip(instances, meters, strict=True)
    ]
    return found, failed


def _or_default(default: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in IN_TROUBLE:
            raise
        return default


def _last_seen(failure: Failed, seen: dict[str, Cursor], present: set[str]) -> list[Cursor]:
    """The identity of a failing card: its own uuid, else the cards last seen at its place in this boot."""
    index, mig_index = failure.gpu_index, failure.mig_index
    last = [cursor for cursor in seen.values() if cursor.gpu_index == index and cursor.uuid not in present]
    if mig_index is not None:
        last = [cursor for cursor in last if cursor.mig_index == mig_index]
    elif failure.uuid is not None:  # the uuid is known, but the cards seen before may have been its MIG instances
        last = [cursor for cursor in last if cursor.mig_index is not None]
    name = f"unknown:index-{index}" if mig_index is None else f"unknown:index-{index}-mig-{mig_index}"
    return last or [Cursor(failure.uuid or name, index, mig_index, failure.parent_uuid, None, None, uptime_ms())]


def _failed_card(cursor: Cursor, status: str) -> Card:
    facts = CardFacts(*cursor[:3], None, cursor.parent_uuid, None, None, None, status, None)
    return Card(facts, None, None, None, None, None, None, [])
