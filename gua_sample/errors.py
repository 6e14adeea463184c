"""The exceptions of all commands: one line on stderr says what happened and what to do next."""

# Exit status of a run in the unit whose error an earlier run has logged within the hour.
LOGGED_BEFORE = 75
LONGEST = 1000  # in characters: a message may quote a value of a file, which has any length


class GuaError(Exception):
    exit_code = 1


class UsageError(GuaError):  # the command line or the configuration is wrong
    exit_code = 2


class NothingToReport(GuaError):  # all is well, but there is no data in the window
    exit_code = 3


class DriverError(GuaError):
    """NVML could not be used at all; the tick is recorded with this name."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


class TextfileError(GuaError):
    """The tick is recorded, but its metrics, or who holds what, could not be written."""


class StoreError(GuaError):
    """The partition could not be written or read."""

    def __init__(self, message: str):
        super().__init__(message[:LONGEST])


class CorruptPartition(StoreError):
    """It is no partition (any more): the writer sets it aside."""


class EmptyPartition(StoreError):
    """Nothing has been written to it yet."""


class NewerPartition(StoreError):
    """It was written by a newer gua."""


class PartitionBusy(StoreError):
    """Somebody holds it: the writer keeps the tick beside it."""
