"""Recognise the kind of a source by its content, not by its name.

A further tool is a module beside this one, named after it, that gives a `Source`; and a branch here that finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gua_report.importing import gpu_stats_service, gpu_usage_audit, gua_folder
from gua_report.importing.foreign_file import open_foreign
from gua_report.importing.source import Source
from gua_report.importing.tally import Tally
from gua_sample import schema
from gua_sample.errors import NothingToReport, StoreError, UsageError
from gua_sample.partition_names import SQLITE_MAGIC, list_partitions, samples_dir
from gua_sample.safe_file import open_regular

MOST_BYTES = 1 << 40
EXPECTED = "a gpu-usage-audit database, gpu_stats_service CSV files, or a gua data folder"


@contextmanager
def open_source(path: str, data_dir: str, tally: Tally) -> Iterator[Source]:
    """The source at that path, open for reading; it is never written to."""
    try:
        with ExitStack() as opened:
            find = _find_in_folder if os.path.isdir(path) else _find_in_file
            yield find(path, data_dir, tally, opened)
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} does not exist: give {EXPECTED}") from error
    except PermissionError as error:
        raise StoreError(
            f"{error.filename} is closed to this user (uid {os.geteuid()}; root reads as a file's owner):"
            " run this as one who may read it"
        ) from error


def _find_in_folder(path: str, data_dir: str, tally: Tally, opened: ExitStack) -> Source:
    samples = samples_dir(path) if os.path.isdir(samples_dir(path)) else path
    if list_partitions(samples):
        _refuse_itself(samples, data_dir)
        return gua_folder.source_of_folder(samples, tally)
    if files := gpu_stats_service.list_files(path):
        return opened.enter_context(gpu_stats_service.open_source(files, tally))
    raise NothingToReport(f"nothing to import in {path}: expected {EXPECTED}")


def _find_in_file(path: str, data_dir: str, tally: Tally, opened: ExitStack) -> Source:
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is no regular file: give {EXPECTED}")
    with open(open_regular(path, MOST_BYTES), "rb") as file:
        begin = file.read(gpu_stats_service.LONGEST_HEADER)
    if not begin:
        raise NothingToReport(f"{path} is empty: expected {EXPECTED}")
    if begin.startswith(SQLITE_MAGIC):
        connection, check = opened.enter_context(open_foreign(path))
        if connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID:
            _refuse_itself(os.path.dirname(os.path.abspath(path)), data_dir)
            return gua_folder.source_of_file(path, tally)
        if problem := gpu_usage_audit.find_problem(connection):
            raise StoreError(f"{path} is a database of something else ({problem}): expected {EXPECTED}")
        return gpu_usage_audit.source_of(connection, check, tally)
    if gpu_stats_service.is_header(begin.partition(b"\n")[0].decode("utf-8", "replace")):
        return opened.enter_context(gpu_stats_service.open_source([path], tally))
    raise StoreError(f"{path} is neither a database nor has it the columns {','.join(gpu_stats_service.HEADER)}")


def _refuse_itself(samples: str, data_dir: str) -> None:
    target = samples_dir(data_dir)
    if os.path.exists(target) and os.path.samefile(samples, target):
        raise UsageError(f"{samples} is the data folder itself: give --data-dir to import it into another")
