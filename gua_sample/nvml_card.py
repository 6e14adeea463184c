"""Reading one card. A value that it does not give is None, and `missing` says why."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pynvml

from gua_sample import nvml_buffers
from gua_sample.policy import STATUS_OK, UNPARTITIONED
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
APART_SECONDS = 0.11  # of two GPM samples: the driver refreshes its counters every 100 ms
IMPLAUSIBLE = "implausible"
IMPLAUSIBLE_PROCESS_LIST = "implausible_process_list"
Meter = Callable[[Card], Card]


def error_name(error: pynvml.NVMLError) -> str:
    """NVML's own name of an error: gpu_is_lost, not_supported, ..."""
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
        self.is_in_trouble = False

    def ask(self, field: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            answer = function(*arguments)
        except pynvml.NVMLError as error:
            self.note(field, error)
            return None
        if answer not in NOT_AVAILABLE:
            return answer
        self.missing[field] = "not_available"
        return None

    def note(self, field: str, error: pynvml.NVMLError) -> None:
        self.missing[field] = error_name(error)
        if error.value in IN_TROUBLE:
            self.is_in_trouble = True
            self.fail(error_name(error))

    def fail(self, status: str) -> None:
        if self.status == STATUS_OK:
            self.status = status


def read_card(handle: Any, place: CardFacts, cursors: dict[str, Cursor]) -> tuple[Card, Cursor]:
    """The card at this moment, and its cursor for the next tick. Raises NVMLError if its uuid can't be read.

    An unpartitioned one is told without utilization and processes, so that an older reader calls it unknown.
    """
    uuid = text(pynvml.nvmlDeviceGetUUID, handle)
    now_ms = uptime_ms()
    before = cursors.get(uuid, Cursor(uuid, place.gpu_index))
    since_ms = max(0, now_ms - before.uptime_ms) if uuid in cursors else None
    length_us = nvml_buffers.window_us(since_ms)
    questions = Questions()
    ask = questions.ask
    name = ask("name", text, pynvml.nvmlDeviceGetName, handle)
    total, reserved, used = _memory(questions, handle)
    percent, source, samples_cursor = _utilization(questions, handle, length_us, before.samples_cursor)
    power = ask("power", pynvml.nvmlDeviceGetPowerUsage, handle)
    energy = ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    temperature = ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    persistence_mode = ask("persistence_mode", pynvml.nvmlDeviceGetPersistenceMode, handle)
    percents: dict[int, int | None] = {}
    processes_cursor = before.processes_cursor
    # The driver lists only processes that did something, so an unlisted pid was idle, unless the last tick is so recent
    # that there may be no record yet.
    unlisted = None if since_ms is not None and since_ms < SHORTEST_PROCESS_WINDOW_MS else 0
    try:
        mean = percent if source == "samples" else None
        percents, processes_cursor = nvml_buffers.process_utilization(handle, length_us, processes_cursor, mean)
    except pynvml.NVMLError as error:
        questions.note("sm_percent", error)
        unlisted = None
    memories, types = _processes(questions, handle, total)
    slices = None
    if place.mig_index is not None:
        attributes = ask("compute_slices", pynvml.nvmlDeviceGetAttributes, handle)
        slices = attributes.computeInstanceSliceCount if attributes else None
    missing = " ".join(f"{field}:{why}" for field, why in questions.missing.items()) or None
    facts = place._replace(uuid=uuid, name=name, memory_total_mib=total, memory_reserved_mib=reserved)
    facts = facts._replace(persistence_mode=persistence_mode, status=questions.status, missing=missing)
    card = Card(
        facts._replace(compute_slices=slices),
        utilization_percent=percent,
        utilization_source=source,
        memory_used_mib=used,
        power_watts=None if power is None else power / 1000,
        energy_joules=None if energy is None else energy // 1000,
        temperature_celsius=temperature,
        usages=[Usage(pid, types[pid], memories[pid], percents.get(pid, unlisted)) for pid in types],
    )
    if place.status == UNPARTITIONED and not questions.is_in_trouble:
        facts = card.facts._replace(status=UNPARTITIONED)
        card = card._replace(facts=facts, utilization_percent=None, utilization_source=None, usages=[])
    return card, Cursor(uuid, *place[1:3], place.parent_uuid, samples_cursor, processes_cursor, now_ms)


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
    percent, cursor = nvml_buffers.card_utilization(handle, length_us, cursor)
    if percent is not None:
        return percent, "samples", cursor
    rates = questions.ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is not None and rates.gpu <= 100:
        return float(rates.gpu), "rate", cursor
    if rates is not None:
        questions.missing["utilization"] = IMPLAUSIBLE
    return None, None, cursor


def _processes(
    questions: Questions, handle: Any, total_mib: int | None
) -> tuple[dict[int, int | None], dict[int, str]]:
    """Memory and type of each pid on the card. Of a bad list the status says so."""
    memories: dict[int, int | None] = {}
    types: dict[int, str] = {}
    for type_, function in PROCESS_LISTS:
        try:
            try:
                listed = nvml_buffers.listed(getattr(pynvml, function + "_v3"), handle)
            except pynvml.NVMLError_FunctionNotFound:  # drivers before 510
                listed = nvml_buffers.listed(getattr(pynvml, function + "_v2"), handle)
        except pynvml.NVMLError as error:
            # Not every card has graphics, nor every driver MPS: such a list is not missed.
            if type_ == "compute" or error.value not in NO_SUCH_LIST:
                questions.note(f"{type_}_processes", error)
                questions.fail(error_name(error))
            continue
        for pid, used in ((process.pid, process.usedGpuMemory) for process in listed):
            memory = None if used is None else _mib(used)
            # The longer struct of early 535 drivers shifts all rows except the first (nvitop PR#79, gpustat#157).
            if not 0 < pid <= LARGEST_PID or (memory and total_mib and memory > total_mib):
                questions.fail(IMPLAUSIBLE_PROCESS_LIST)
                continue
            types[pid] = f"{types[pid]}+{type_}" if pid in types else type_
            known = [value for value in (memories.get(pid), memory) if value is not None]
            memories[pid] = max(known, default=None)
    if total_mib and sum(memory or 0 for memory in memories.values()) > total_mib:
        questions.fail(IMPLAUSIBLE_PROCESS_LIST)
    return memories, types


def _mib(size: int) -> int:
    return round(size / 1048576)


# --- the utilization of MIG instances, on Hopper and newer cards: between two GPM samples ---


def start_meters(parent: Any, instances: list[Any]) -> list[Meter | None]:
    """A meter of the utilization since now for each instance; None if it can't be measured."""
    support = _or_none(pynvml.nvmlGpmQueryDeviceSupport, parent)
    is_supported = support is not None and support.isSupportedDevice
    ids = [_or_none(pynvml.nvmlDeviceGetGpuInstanceId, one) if is_supported else None for one in instances]
    # A sample covers a whole GPU instance: several compute instances in it can't be told apart.
    return [_start_meter(parent, one) if None not in ids and ids.count(one) == 1 else None for one in ids]


def _start_meter(parent: Any, gpu_instance: Any) -> Meter | None:
    def sample() -> Any:
        empty = _or_none(pynvml.nvmlGpmSampleAlloc)
        return None if empty is None else _or_none(pynvml.nvmlGpmMigSampleGet, parent, gpu_instance, empty)

    def measure(card: Card) -> Card:
        """The card with its utilization, after a wait until the first sample is old enough."""
        time.sleep(max(0.0, started + APART_SECONDS - time.monotonic()))
        percent = _between(first, sample())
        if percent is None:
            return card
        missing = [entry for entry in (card.facts.missing or "").split() if not entry.startswith("utilization:")]
        facts = card.facts._replace(missing=" ".join(missing) or None)
        return card._replace(facts=facts, utilization_percent=percent, utilization_source="gpm")

    first, started = sample(), time.monotonic()
    return None if first is None else measure


def _between(first: Any, second: Any) -> float | None:
    if second is None:
        return None
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = 1
    request.sample1, request.sample2 = first, second
    request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    answer = _or_none(pynvml.nvmlGpmMetricsGet, request)
    metric = answer.metrics[0] if answer else None
    if metric is None or metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= metric.value <= 100:
        return None
    return round(float(metric.value), 2)


def _or_none(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
