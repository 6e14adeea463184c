"""A stand-in for NVIDIA's driver library and a movable clock, for tests that run the real pynvml in a child process."""

from .scenario import Card, Device, Scenario, ago
from .stand_in import build, environment, with_clock

__all__ = ["Card", "Device", "Scenario", "ago", "build", "environment", "with_clock"]
