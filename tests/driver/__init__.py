"""A stand-in for NVIDIA's driver library and a movable clock, for tests that run the real pynvml in a child process."""

from .scenario import Card, Device, Scenario
from .stand_in import build, environment, with_clock

__all__ = ["Card", "Device", "Scenario", "build", "environment", "with_clock"]
