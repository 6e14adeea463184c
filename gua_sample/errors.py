"""The exceptions of all commands, with their exit codes.

GuaError                exit 1   one line on stderr: what happened and what to do next
├── UsageError          exit 2   the command line or the configuration is wrong
├── NothingToReport     exit 3   all is well, but there is no data in the window
├── DriverError         exit 1   NVML could not be used at all; the tick is recorded with its `name`
├── TextfileError       exit 1   the tick is recorded, but its metrics, or who holds what, could not be written
└── StoreError          exit 1   the partition could not be written or read
    ├── CorruptPartition         it is no partition (any more): the writer sets it aside
    ├── EmptyPartition           nothing has been written to it yet
    ├── NewerPartition           it was written by a newer gua
    └── PartitionBusy            somebody holds it: the writer keeps the tick beside it
"""

# Exit status of a run in the unit whose error an earlier run has logged within the hour.
LOGGED_BEFORE = 75


class GuaError(Exception):
    exit_code = 1


class UsageError(GuaError):
    exit_code = 2


class NothingToReport(GuaError):
    exit_code = 3


class DriverError(GuaError):
    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


class TextfileError(GuaError):
    pass


class StoreError(GuaError):
    pass


class CorruptPartition(StoreError):
    pass


class EmptyPartition(StoreError):
    pass


class NewerPartition(StoreError):
    pass


class PartitionBusy(StoreError):
    pass
