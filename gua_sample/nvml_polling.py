"""Reading the driver's buffers more often than ticks do, for gua doctor --record. No tick imports this."""

from __future__ import annotations

from contextlib import suppress

import pynvml

KINDS = {"nvmlDeviceGetSamples": (pynvml.NVML_GPU_UTILIZATION_SAMPLES,), "nvmlDeviceGetProcessUtilization": ()}


def poll(newest: dict[tuple[int, str], int]) -> None:
    """Ask each card for its records since the last poll. `newest`: the time of the newest, by card and function."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            for name, kind in KINDS.items():
                with suppress(pynvml.NVMLError):
                    handle, since = pynvml.nvmlDeviceGetHandleByIndex(index), newest.get((index, name), 0)
                    answer = getattr(pynvml, name)(handle, *kind, since)
                    newest[index, name] = max([since, *(one.timeStamp for one in (answer[1] if kind else answer))])
        pynvml.nvmlShutdown()
