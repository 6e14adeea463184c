"""gpu-usage-audit's own daemon and report on answers of the stand-in driver. Its own Python runs this: see peer_hours.

python peer_daemon.py ANSWERS DATABASE INTERVAL: ANSWERS has a line of JSON for each tick, as record.py writes them.
Each tick goes through the daemon's own code, which fails on a lost card and goes on with the next tick. Prints JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timedelta, timezone
from importlib import import_module
from types import SimpleNamespace
from typing import Any

MIB = 1_048_576


class Replay:
    """In place of the module pynvml: the answers of one tick."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.cards: list[dict[str, Any]] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.cards[index]["is_lost"]:
            raise self.NVMLError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetUUID(self, card: dict[str, Any]) -> str:
        return str(card["uuid"])

    def nvmlDeviceGetName(self, card: dict[str, Any]) -> str:
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUtilizationRates(self, card: dict[str, Any]) -> Any:
        return SimpleNamespace(gpu=card["rate"])

    def nvmlDeviceGetMemoryInfo(self, card: dict[str, Any]) -> Any:
        return SimpleNamespace(total=card["total"] * MIB, used=card["used"] * MIB)

    def nvmlDeviceGetTemperature(self, card: dict[str, Any], sensor: int) -> int:
        return 40

    def nvmlDeviceGetPowerUsage(self, card: dict[str, Any]) -> int:
        return 100_000

    def nvmlDeviceGetComputeRunningProcesses(self, card: dict[str, Any]) -> list[Any]:
        return self._list(card, False)

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: dict[str, Any]) -> list[Any]:
        return self._list(card, True)

    def _list(self, card: dict[str, Any], graphics: bool) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)
            for pid, mib, _, is_graphics in card["processes"]
            if is_graphics == graphics
        ]


def record(answers: str, database: Any, interval: timedelta) -> None:
    """Let the daemon take its ticks; each boot is a run of it."""
    daemon, model, usage = (import_module(f"gpu_usage_audit.{name}") for name in ("daemon", "model", "usage_state"))
    replay = sys.modules["pynvml"] = Replay()  # type: ignore[assignment]  # stands in for the module
    tier = import_module("gpu_usage_audit.nvml").NVMLTier()
    version = tier.probe()
    boot, run_id, host, tracker = None, None, None, None
    with open(answers, encoding="utf-8") as lines, open(os.devnull, "w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            tick = json.loads(line)
            now = datetime.fromtimestamp(tick["ts_ms"] / 1000, timezone.utc)
            if tick["boot"] != boot:
                boot, tracker = tick["boot"], usage.UsageStateTracker()
                run_id = daemon.start_daemon_run(database, now, interval)
                host = host or model.HostMeta("laboratory", "bare", version, now)
            replay.cards = tick["cards"]
            users = {pid: user for card in tick["cards"] for pid, _, user, _ in card.get("processes", ())}
            name = users.get
            try:
                daemon._tick(
                    tier, database, host, name, lambda pid: "python", name, now, number, out, run_id, None, tracker
                )
            except Replay.NVMLError:
                logging.info("tick failed; continuing")  # as its run_daemon does


def main() -> None:
    answers, path, interval = sys.argv[1:]
    database = import_module("gpu_usage_audit.db").open_db(path)
    database.execute("PRAGMA synchronous = OFF")
    record(answers, database, timedelta(seconds=float(interval)))
    report = import_module("gpu_usage_audit.report")
    since = datetime(2000, 1, 1, tzinfo=timezone.utc)
    headline, capacity = report.load_headline(database, since), report.load_idle_capacity(database, since)
    people = {one.identity: one.gpu_hours * one.idle_held for one in report.load_top_identities(database, since)}
    total = headline.samples * float(interval) / 3600
    print(
        json.dumps(
            {
                "active": headline.active * total,
                "idle-held": capacity.idle_held_gpu_hours,
                "truly-idle": capacity.truly_idle_gpu_hours,
                "people": people,
            }
        )
    )


if __name__ == "__main__":
    main()
