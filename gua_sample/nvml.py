"""The gateway to the driver: it starts NVML, finds the cards and reads each separately, so that one can fail alone.

Only this module, nvml_card (one card), nvml_buffers (utilization over time) and nvml_gpm (utilization of MIG instances)
call NVML.
"""

# No `from __future__ import annotations` here: see records.py.

from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

from gua_sample.errors import DriverError
from gua_sample.nvml_card import IN_TROUBLE, Place, error_name, read_card, text
from gua_sample.policy import STATUS_OK
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
    """A card that was found: a physical one, or a MIG instance. One that fails has a status, and no handle."""

    place: Place
    handle: Any = None
    meter: Any = None  # a nvml_gpm.Meter
    status: str = STATUS_OK
    uuid: str | None = None  # of a physical card that fails, if it could be read


def read(previous: Previous | None) -> Reading:
    """Read all cards once. `previous` is the last tick of this boot, if there is one."""
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

    cards: list[Card] = []
    new_cursors: list[Cursor] = []
    meters: dict[int, Any] = {}
    failed: list[Found] = []
    for one in (one for index in range(count) for one in _find(index)):
        if one.handle is None:
            failed.append(one)
            continue
        try:
            card, cursor = read_card(one.handle, one.place, cursors)
        except pynvml.NVMLError as error:  # not even its uuid can be read
            failed.append(one._replace(status=error_name(error)))
            continue
        if one.meter is not None:
            meters[len(cards)] = one.meter
        cards.append(card)
        new_cursors.append(cursor)
    for position, meter in meters.items():
        cards[position] = meter(cards[position])

    present = {card.facts.uuid for card in cards}
    for one in failed:
        for cursor in _last_seen(one, seen, present):
            facts = CardFacts(*cursor[:3], None, cursor.parent_uuid, None, None, None, one.status, None)
            cards.append(Card(facts, None, None, None, None, None, None, []))
            new_cursors.append(cursor)
    return Reading(driver_version, cards, new_cursors)


def _find(index: int) -> list[Found]:
    """The card at this index, or its MIG instances if it has any."""
    uuid = None
    try:
        parent = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text(pynvml.nvmlDeviceGetUUID, parent)
        is_mig = _or_default([0], pynvml.nvmlDeviceGetMigMode, parent)[0]
        places = range(_or_default(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) if is_mig else 0)
        memory = _or_default(None, pynvml.nvmlDeviceGetMemoryInfo, parent) if is_mig else None
    except pynvml.NVMLError as error:
        return [Found(Place(index), status=error_name(error), uuid=uuid)]
    whole = Place(index, None, uuid, len(places), memory.total >> 20 if memory else None)
    found: list[Found] = []
    for mig_index in places:
        place = whole._replace(mig_index=mig_index)
        try:
            found.append(Found(place, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, mig_index)))
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            pass  # nothing there
        except pynvml.NVMLError as error:
            found.append(Found(place, status=error_name(error)))
    instances = [one.handle for one in found if one.handle is not None]
    if not instances:
        return found or [Found(Place(index), parent)]
    from gua_sample import nvml_gpm  # most hosts have no MIG, and imports take time at each tick

    meters = iter(nvml_gpm.start(parent, instances))
    return [one._replace(meter=next(meters)) if one.handle is not None else one for one in found]


def _or_default(default: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in IN_TROUBLE:
            raise
        return default


def _last_seen(failed: Found, seen: dict[str, Cursor], present: set[str]) -> list[Cursor]:
    """The identity of a failing card: its own uuid, else the cards last seen at its place in this boot."""
    index, mig_index, parent_uuid, *_ = failed.place
    last = [cursor for cursor in seen.values() if cursor.gpu_index == index and cursor.uuid not in present]
    if mig_index is not None:
        last = [cursor for cursor in last if cursor.mig_index == mig_index]
    elif failed.uuid is not None:  # the uuid is known, but the cards seen before may have been its MIG instances
        last = [cursor for cursor in last if cursor.mig_index is not None]
    name = f"unknown:index-{index}" if mig_index is None else f"unknown:index-{index}-mig-{mig_index}"
    return last or [Cursor(failed.uuid or name, index, mig_index, parent_uuid, None, None, uptime_ms())]
