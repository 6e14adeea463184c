"""The sampler: it writes one NVML snapshot into a daily SQLite partition, then exits."""

# A literal: reading it from the installed metadata would cost a tick 33 ms.
__version__ = "0.1.0"
