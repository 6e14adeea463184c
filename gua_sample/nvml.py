"""The gateway to the driver: it starts NVML, finds the cards and reads each separately, so that one can fail alone.

Only this module, nvml_card (one card) and nvml_buffers (utilization over time) call NVML.
"""

from contextlib import suppress
from typing import Any

import pynvml

from gua_sample.errors import DriverError
from gua_sample.nvml_card import IN_TROUBLE, Meter, error_name, read_card, start_meters, text
from gua_sample.policy import STATUS_OK, UNPARTITIONED
from gua_sample.processes import uptime_ms
from gua_sample.records import MIG_FACTS, Card, CardFacts, Cursor, Previous, Reading

REMEDIES = {
    "library_not_found": "libnvidia-ml.so.1 was not found: install the NVIDIA driver, then check with nvidia-smi",
    "driver_not_loaded": "the NVIDIA driver is not loaded: run 'modprobe nvidia' as root, then check with nvidia-smi",
    "lib_rm_version_mismatch": "library and loaded driver differ in version, as after an unattended upgrade: reboot",
    "no_permission": "NVML may not be used by this user: check the permissions of /dev/nvidia*",
    "driver_hangs": "an earlier run hangs in the driver and can't be killed: reboot, after a look at 'dmesg'",
    "no_cards": "the driver reports no cards: check nvidia-smi and 'lspci | grep -i nvidia'",
}
OTHER_REMEDY = "check nvidia-smi and 'dmesg | grep -i nvrm'"
# What a cursor keeps of a card's facts, for a tick at which it fails.
PLACE = ("uuid", "gpu_index", "mig_index", "parent_uuid", *MIG_FACTS)


# What is known of a physical card, or a MIG instance, before it is read (its uuid is empty if that is not); its handle
# and a meter. One that fails has no handle, and a status.
Found = tuple[CardFacts, Any, Meter | None]


def read(previous: Previous | None) -> Reading:
    try:
        pynvml.nvmlInit()
        try:
            return _read_all(previous)
        finally:
            with suppress(pynvml.NVMLError):  # the reading is complete, and the process ends anyway
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise driver_error(error_name(error)) from error


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

    read: list[tuple[Card, Cursor, Meter | None]] = []
    failed: list[CardFacts] = []
    for place, handle, meter in (one for index in range(count) for one in _find(index)):
        if handle is None:
            failed.append(place)
            continue
        try:
            read.append((*read_card(handle, place, cursors), meter))
        except pynvml.NVMLError as error:  # not even its uuid can be read
            failed.append(place._replace(uuid="", status=error_name(error)))
    cards = [meter(card) if meter else card for card, _, meter in read]
    new_cursors = [cursor for _, cursor, _ in read]
    present = {cursor.uuid for cursor in new_cursors}
    for place in failed:
        last = _last_seen(place, seen, present)
        new_cursors += last
        for cursor in last:
            known = {name: getattr(cursor, name) for name in PLACE}
            cards.append(Card(CardFacts(**known, status=place.status)))
    return Reading(driver_version, cards, new_cursors)


def _find(index: int) -> list[Found]:
    """The card at this index, or its MIG instances if it has any."""
    whole = CardFacts("", index)
    try:
        parent = pynvml.nvmlDeviceGetHandleByIndex(index)
        whole = whole._replace(uuid=text(pynvml.nvmlDeviceGetUUID, parent))
        is_mig = _or_default([0], pynvml.nvmlDeviceGetMigMode, parent)[0]
        places = range(pynvml.nvmlDeviceGetMaxMigDeviceCount(parent) if is_mig else 0)
        memory = _or_default(None, pynvml.nvmlDeviceGetMemoryInfo, parent) if is_mig else None
    except pynvml.NVMLError as error:
        return [(whole._replace(status=error_name(error)), None, None)]
    found: list[Found] = []
    for mig_index in places:
        place = CardFacts("", index, mig_index, parent_uuid=whole.uuid, most_compute_slices=len(places))
        place = place._replace(parent_memory_mib=memory.total >> 20 if memory else None)
        try:
            found.append((place, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, mig_index), None))
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            pass  # nothing there
        except pynvml.NVMLError as error:
            found.append((place._replace(status=error_name(error)), None, None))
    if not found:
        return [(whole._replace(status=UNPARTITIONED if is_mig else STATUS_OK), parent, None)]
    meters = iter(start_meters(parent, [handle for _, handle, _ in found if handle is not None]))
    return [(place, handle, None if handle is None else next(meters)) for place, handle, _ in found]


def _or_default(default: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in IN_TROUBLE:
            raise
        return default


def _last_seen(failed: CardFacts, seen: dict[str, Cursor], present: set[str]) -> list[Cursor]:
    """The identity of a failing card: its own uuid, else the cards last seen at its place in this boot."""
    last = [cursor for cursor in seen.values() if cursor.gpu_index == failed.gpu_index and cursor.uuid not in present]
    if failed.mig_index is not None:
        last = [cursor for cursor in last if cursor.mig_index == failed.mig_index]
    elif failed.uuid:  # the uuid is known, but the cards seen before may have been its MIG instances
        last = [cursor for cursor in last if cursor.mig_index is not None]
    uuid = failed.uuid or f"unknown:index-{failed.number.replace(':', '-mig-')}"
    return last or [Cursor(uuid, *failed[1:3], failed.parent_uuid, uptime_ms=uptime_ms())]
