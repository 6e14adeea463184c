"""Facts about a machine for gua doctor's checks: its users, its units and its history."""

from pathlib import Path
from typing import Any

from gua_report.doctor import history as doctor_history
from gua_report.doctor.findings import Finding
from gua_report.doctor.user import User
from gua_report.machine.units import Units
from gua_report.ticks.newest import find_newest, list_history
from gua_sample import store
from gua_sample.records import Boot, Tick
from tests.lab import NOON_MS

GUA = User(990, 990, (990, 44), "gua")
ACTIVE_TIMER = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "UnitFileState": "enabled",
    "LastTriggerUSec": "Mon 2026-11-16 11:59:48 UTC",
    "NextElapseUSecRealtime": "Mon 2026-11-16 12:00:18 UTC",
}


def put(path: Path, text: str) -> Path:
    """Write a file, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def statuses(findings: list[Finding]) -> list[str]:
    """The status of each finding."""
    return [finding.status for finding in findings]


def units(timer: dict[str, str] | None = None, of_user: bool = False, **service: Any) -> Units:
    """Units that are healthy at noon, except for these properties."""
    return Units(ACTIVE_TIMER | (timer or {}), {"LoadState": "loaded", "User": "gua"} | service, of_user)


def history(folder: Path, *times_ms: int, interval_ms: int | None = None, problem: str | None = None) -> str:
    """Write ticks without cards at these times; returns the folder of the partitions."""
    samples = store.prepare(str(folder / "data"))
    boot = Boot("boot", 5)
    store.append_history(samples, [Tick(ts, interval_ms, boot, None, 1, problem, [], {}, []) for ts in times_ms])
    return samples


def newest(samples: str, now_ms: int = NOON_MS) -> Finding:
    """The finding on the newest tick."""
    found = list_history(samples)
    tick = find_newest(found, now_ms)
    return doctor_history.check_newest(found, tick, now_ms, "START", "JOURNAL")
