"""Writes scenario files for the stand-in driver. Their format is described at the top of `nvml_stand_in.c`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PROCESS_LISTS = ("compute", "graphics", "mps")

Setting = Any  # a text, a number, rows of a list, AUTOMATIC, or None for what the driver does not support
Row = tuple[int | None, ...]  # None in a row is a value that is not available
AUTOMATIC = "automatic"  # follows from other settings when the scenario is written

# A healthy, idle A100. Rows are (pid, MiB) in the lists of processes, (µs, %) in samples and (pid, µs, %) in
# process_utilization. A time is a number, `ago(seconds)`, or None for the moment at which the driver is asked.
CARD: Mapping[str, Setting] = {
    "name": "NVIDIA A100-SXM4-80GB",
    "memory_total_mib": 81920,
    "memory_reserved_mib": 500,
    "memory_free_mib": AUTOMATIC,
    "memory_v2_used_includes_reserve": None,
    "utilization_percent": 0,
    "samples": AUTOMATIC,
    "compute": (),
    "graphics": (),
    "mps": (),
    "process_utilization": (),
    "buffers_answer_success": None,
    "power_milliwatts": 62_000,
    "energy_millijoules": 7_200_000_000,
    "temperature_celsius": 33,
    "persistence_mode": 1,
    "mig_mode": 0,
    "mig_count": 0,
    "gpm_supported": 0,
    "gpm_utilization_percent": None,
}

# A seventh of that card.
INSTANCE: Mapping[str, Setting] = {
    "name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    "memory_total_mib": 9728,
    "memory_reserved_mib": 12,
    "memory_free_mib": AUTOMATIC,
    "compute": (),
    "graphics": (),
    "mps": (),
    "compute_instance_id": 0,
    "compute_slices": 1,
    "gpm_utilization_percent": None,
}

KNOWN_SETTINGS = CARD.keys() | INSTANCE.keys() | {"uuid", "minor_number", "gpu_instance_id"}


def ago(seconds: float) -> str:
    """A time so long before the moment at which the driver is asked, by the driver's clock."""
    return f"~{round(seconds * 1_000_000)}"


class Device:
    """What the driver says about a card or a MIG instance."""

    def __init__(self, defaults: Mapping[str, Setting]) -> None:
        self.settings = dict(defaults)
        self.calls: dict[str, int] = {}

    def update(self, **settings: Setting) -> None:
        """Changes settings, for the next time the scenario is written."""
        if unknown := settings.keys() - KNOWN_SETTINGS:
            raise TypeError(f"unknown settings: {', '.join(sorted(unknown))}")
        self.settings.update(settings)

    def error(self, function: str | None, code: int) -> None:
        """Makes one function return this code, or with None every query but the one for the handle."""
        self.calls[f"error.{function}" if function else "error"] = code

    def delay(self, function: str, milliseconds: int) -> None:
        self.calls[f"delay_ms.{function}"] = milliseconds

    def processes(self, key: str) -> list[Row]:
        identifiers = (self.settings.get("gpu_instance_id"), self.settings.get("compute_instance_id"))
        return [(pid, mib, *identifiers) for pid, mib in self.settings.get(key) or ()]

    def used_mib(self) -> int:
        """What the processes hold; one that is in two lists counts once."""
        held = {(pid, instance): mib for key in PROCESS_LISTS for pid, mib, instance, _ in self.processes(key)}
        return sum(mib or 0 for mib in held.values())

    def resolve(self) -> dict[str, Setting]:
        """The settings, with those that follow from others filled in."""
        settings = dict(self.settings)
        total, reserved = settings["memory_total_mib"], settings["memory_reserved_mib"] or 0
        if settings["memory_free_mib"] == AUTOMATIC:
            settings["memory_free_mib"] = None if total is None else max(0, total - reserved - self.used_mib())
        if settings.get("samples") == AUTOMATIC:  # the driver keeps about 100, six a second
            percent = settings["utilization_percent"]
            times = [ago(number / 6) for number in reversed(range(100))]
            settings["samples"] = None if percent is None else [(each, percent) for each in times]
        if settings.get("process_utilization"):
            settings["process_utilization"] = [
                (pid, ago(0) if each is None else each, percent)
                for pid, each, percent in settings["process_utilization"]
            ]
        for key in PROCESS_LISTS:
            if settings[key] is not None:
                settings[key] = self.processes(key)
        return settings

    def lines(self, prefix: str) -> Iterator[str]:
        for key, value in {**self.resolve(), **self.calls}.items():
            if value is not None:
                yield f"{prefix}{'mig.count' if key == 'mig_count' else key} = {render(value)}"


class Card(Device):
    def __init__(self, index: int) -> None:
        super().__init__({"uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000", "minor_number": index, **CARD})
        self.index = index
        self.instances: list[Device] = []

    def add_mig(self, **settings: Setting) -> Device:
        """Adds a MIG instance. As on a real card, the card's own utilization is no longer supported, and the card's
        lists of processes show those of its instances too."""
        position = len(self.instances)
        uuid = f"MIG-{self.index:08x}-0000-4000-8000-{position + 1:012x}"
        instance = Device({"uuid": uuid, "gpu_instance_id": 7 + position, **INSTANCE})
        instance.update(**settings)
        self.instances.append(instance)
        most = self.settings["mig_count"] or 7  # 4 on an A30
        self.update(mig_mode=1, mig_count=most, utilization_percent=None, samples=None, process_utilization=None)
        return instance

    def processes(self, key: str) -> list[Row]:
        return super().processes(key) + [row for instance in self.instances for row in instance.processes(key)]

    def lines(self, prefix: str) -> Iterator[str]:
        yield from super().lines(prefix)
        for position, instance in enumerate(self.instances):
            yield from instance.lines(f"{prefix}mig.{position}.")


class Scenario:
    """A machine: `settings` are the keys that belong to no card, `cards` its cards in the order of their index."""

    def __init__(self, driver_version: str | None = "580.65.06") -> None:
        self.settings: dict[str, Setting] = {"driver_version": driver_version}
        self.cards: list[Card] = []

    def add_card(self, **settings: Setting) -> Card:
        card = Card(len(self.cards))
        card.update(**settings)
        self.cards.append(card)
        return card

    def error(self, function: str, code: int) -> None:
        self.settings[f"error.{function}"] = code

    def delay(self, function: str, milliseconds: int) -> None:
        self.settings[f"delay_ms.{function}"] = milliseconds

    def text(self) -> str:
        settings = {"cards": len(self.cards), **self.settings}
        lines = [f"{key} = {render(value)}" for key, value in settings.items() if value is not None]
        for card in self.cards:
            lines.extend(card.lines(f"{card.index}."))
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> Path:
        path.write_text(self.text())
        return path


def render(value: Setting) -> str:
    if isinstance(value, list | tuple):
        return " ".join(":".join("na" if field is None else str(field) for field in row) for row in value)
    return str(value)
