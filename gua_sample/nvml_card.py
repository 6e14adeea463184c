"""Reading one card. A value that it does not give is None, and `missing` says why."""

# No `from __future__ import annotations` here: see records.py.

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pynvml

from gua_sample import nvml_buffers
from gua_sample.busy_time import window_us
from gua_sample.policy import STATUS_OK
from gua_sample.processes import printable, uptime_ms
from gua_sample.records import Card, CardFacts, Cursor, Usage

PROCESS_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# Errors that mean the card has failed. All others (not supported, no permission, even "unknown error",
# which nvidia-smi shows as ERR! on cards that still compute) concern only the value asked for.
IN_TROUBLE = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_INSUFFICIENT_POWER,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
NO_SUCH_LIST = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
# Process utilization is recorded about once a second: in a shorter window, no record does not mean idle.
SHORTEST_PROCESS_WINDOW_MS = 2000
NOT_AVAILABLE = (2**32 - 1, 2**64 - 1)  # the driver's "N/A" in either width
LARGEST_PID = 4_194_304  # the kernel's own limit
IMPLAUSIBLE = "implausible"
IMPLAUSIBLE_PROCESS_LIST = "implausible_process_list"


def error_name(error: pynvml.NVMLError) -> str:
    """NVML's own name of an error, as used in `status` and `missing`: gpu_is_lost, not_supported, ..."""
    return _error_names().get(error.value, f"nvml_error_{error.value}")


@cache
def _error_names() -> dict[int, str]:
    prefix = "NVML_ERROR_"
    return {value: name[len(prefix) :].lower() for name, value in vars(pynvml).items() if name.startswith(prefix)}


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """The result of an NVML function, as printable text."""
    try:
        return printable(function(*arguments))
    except UnicodeDecodeError:  # pynvml insists on UTF-8
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from None


class Questions:
    """Asks a card for its values and notes those that it does not give."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self.status = STATUS_OK

    def ask(self, field: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            answer = function(*arguments)
        except pynvml.NVMLError as error:
            self.note(field, error)
            return None
        if answer in NOT_AVAILABLE:
            self.missing[field] = "not_available"
            return None
        return answer

    def note(self, field: str, error: pynvml.NVMLError) -> None:
        self.missing[field] = error_name(error)
        if error.value in IN_TROUBLE:
            self.fail(error_name(error))

    def fail(self, status: str) -> None:
        if self.status == STATUS_OK:
            self.status = status


class Place(NamedTuple):
    """Position of a card: those of its facts that the physical card gives, and its index there as a MIG instance."""

    gpu_index: int
    mig_index: int | None = None
    parent_uuid: str | None = None
    most_compute_slices: int | None = None
    parent_memory_mib: int | None = None


def read_card(handle: Any, place: Place, cursors: dict[str, Cursor]) -> tuple[Card, Cursor]:
    """The card at this moment, and its cursor for the next tick. Raises NVMLError if its uuid can't be read."""
    uuid = text(pynvml.nvmlDeviceGetUUID, handle)
    now_ms = uptime_ms()
    before = cursors.get(uuid)
    since_ms = max(0, now_ms - before.uptime_ms) if before else None
    samples_cursor, processes_cursor = (before.samples_cursor, before.processes_cursor) if before else (None, None)
    questions = Questions()
    ask = questions.ask
    name = ask("name", text, pynvml.nvmlDeviceGetName, handle)
    total, reserved, used = _memory(questions, handle)
    percent, source, samples_cursor = _utilization(questions, handle, window_us(since_ms), samples_cursor)
    power = ask("power", pynvml.nvmlDeviceGetPowerUsage, handle)
    energy = ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    temperature = ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    persistence_mode = ask("persistence_mode", pynvml.nvmlDeviceGetPersistenceMode, handle)
    mean = percent if source == "samples" else None
    sm_percent, processes_cursor = _process_utilization(questions, handle, since_ms, processes_cursor, mean)
    usages = _usages(questions, handle, total, sm_percent)
    slices = None
    if place.mig_index is not None:
        attributes = ask("compute_slices", pynvml.nvmlDeviceGetAttributes, handle)
        slices = attributes.computeInstanceSliceCount if attributes else None
    facts = CardFacts(
        **place._asdict(),
        uuid=uuid,
        name=name,
        memory_total_mib=total,
        memory_reserved_mib=reserved,
        persistence_mode=persistence_mode,
        status=questions.status,
        missing=" ".join(f"{field}:{why}" for field, why in questions.missing.items()) or None,
        compute_slices=slices,
    )
    card = Card(
        facts,
        utilization_percent=percent,
        utilization_source=source,
        memory_used_mib=used,
        power_watts=None if power is None else power / 1000,
        energy_joules=None if energy is None else energy // 1000,
        temperature_celsius=temperature,
        usages=usages,
    )
    return card, Cursor(uuid, *place[:3], samples_cursor, processes_cursor, now_ms)


def _memory(questions: Questions, handle: Any) -> tuple[int | None, int | None, int | None]:
    """Total, reserved and used MiB."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except pynvml.NVMLError:  # an old driver, or an error that v1 will raise too
        memory = questions.ask("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
        return (None, None, None) if memory is None else (_mib(memory.total), None, _mib(memory.used))
    # Driver versions differ in whether v2's `used` includes the reserve.
    used = memory.total - memory.free - memory.reserved
    if used < 0:
        questions.missing["memory_used"] = IMPLAUSIBLE
    return _mib(memory.total), _mib(memory.reserved), _mib(used) if used >= 0 else None


def _utilization(
    questions: Questions, handle: Any, length_us: int, cursor: int | None
) -> tuple[float | None, str | None, int | None]:
    """Percent, source and next cursor: the mean over time of the driver's buffer, else the current rate."""
    percent, cursor = nvml_buffers.card_utilization(handle, length_us, cursor)
    if percent is not None:
        return percent, "samples", cursor
    rates = questions.ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is not None and rates.gpu <= 100:
        return float(rates.gpu), "rate", cursor
    if rates is not None:
        questions.missing["utilization"] = IMPLAUSIBLE
    return None, None, cursor


def _process_utilization(
    questions: Questions, handle: Any, since_ms: int | None, cursor: int | None, card_percent: float | None
) -> tuple[Callable[[int], int | None], int | None]:
    """A function that gives each pid's SM utilization over time, and the next cursor.

    The driver lists only processes that did something, so an unlisted pid was idle. The value is None if the last tick
    is so recent that there may be no record yet, or if the pid's records are implausible.
    """
    try:
        percents, cursor = nvml_buffers.process_utilization(handle, window_us(since_ms), cursor, card_percent)
    except pynvml.NVMLError as error:
        questions.note("sm_percent", error)
        return (lambda pid: None), cursor
    unlisted = None if since_ms is not None and since_ms < SHORTEST_PROCESS_WINDOW_MS else 0
    return (lambda pid: percents.get(pid, unlisted)), cursor


def _usages(
    questions: Questions, handle: Any, total_mib: int | None, sm_percent: Callable[[int], int | None]
) -> list[Usage]:
    """The processes on the card. If a list is unavailable or implausible, the card's status says so."""
    types: dict[int, str] = {}
    memories: dict[int, int | None] = {}
    for type_, function in PROCESS_LISTS:
        try:
            listed = nvml_buffers.listed(_running, function, handle)
        except pynvml.NVMLError as error:
            # Not every card has graphics, nor every driver MPS: such a list is not missed.
            if type_ == "compute" or error.value not in NO_SUCH_LIST:
                questions.note(f"{type_}_processes", error)
                questions.fail(error_name(error))
            continue
        for process in listed:
            pid = process.pid
            memory = None if process.usedGpuMemory is None else _mib(process.usedGpuMemory)
            # The longer struct of early 535 drivers shifts all rows except the first (nvitop PR#79, gpustat#157).
            if not 0 < pid <= LARGEST_PID or (memory and total_mib and memory > total_mib):
                questions.fail(IMPLAUSIBLE_PROCESS_LIST)
                continue
            types[pid] = f"{types[pid]}+{type_}" if pid in types else type_
            known = [value for value in (memories.get(pid), memory) if value is not None]
            memories[pid] = max(known, default=None)
    if total_mib and sum(memory or 0 for memory in memories.values()) > total_mib:
        questions.fail(IMPLAUSIBLE_PROCESS_LIST)
    return [Usage(pid, types[pid], memories[pid], sm_percent(pid)) for pid in types]


def _running(function: str, handle: Any) -> list[Any]:
    try:
        processes: list[Any] = getattr(pynvml, function + "_v3")(handle)
    except pynvml.NVMLError_FunctionNotFound:  # drivers before 510
        processes = getattr(pynvml, function + "_v2")(handle)
    return processes


def _mib(size: int) -> int:
    return round(size / 1048576)
