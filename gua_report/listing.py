"""A plain listing: every card at every tick of a window, with its state."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

import pandas as pd
from tabulate import tabulate

from gua_report.load import open_partition
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.partition import day_of, list_partitions, samples_dir
from gua_sample.policy import DEFAULT, STATUS_OK, Policy, card_states

CAPTION = "times in UTC; util: percent; held by processes, used in all: MiB; ?: unknown"
HEADERS = ["time", "gpu", "name", "state", "util", "held", "used"]
NUMBERS = ["utilization_percent", "process_memory_mib", "memory_used_mib"]


def load_cards(data_dir: str, start_ms: int, end_ms: int) -> tuple[pd.DataFrame, list[str]]:
    """The `card_ticks` rows of a window with their `state`, and warnings about files that were skipped."""
    warnings: list[str] = []
    frames = list(_frames(data_dir, start_ms, end_ms, warnings))
    if not frames:
        raise NothingToReport(
            f"no ticks between {_clock(start_ms)} and {_clock(end_ms)} UTC in {data_dir}:"
            " is gua-sample running? Give a longer --since, or another --data-dir"
        )
    return with_states(pd.concat(frames, ignore_index=True)), warnings


def _frames(data_dir: str, start_ms: int, end_ms: int, warnings: list[str]) -> Iterator[pd.DataFrame]:
    folder = samples_dir(data_dir)
    if not os.path.isdir(folder):
        return
    for path in list_partitions(folder):
        if day_of(start_ms) <= os.path.basename(path)[:10] <= day_of(end_ms):
            try:
                with open_partition(path) as connection:
                    frame = _read(connection, start_ms, end_ms)
            except StoreError as error:
                warnings.append(f"skipped: {error}")
                continue
            if len(frame):
                yield frame


def _read(connection: sqlite3.Connection, start_ms: int, end_ms: int) -> pd.DataFrame:
    query = "SELECT * FROM card_ticks WHERE ts_ms >= ? AND ts_ms < ? ORDER BY ts_ms, gpu_index, mig_index"
    frame = pd.read_sql_query(query, connection, params=(start_ms, end_ms))
    # A column of nothing but NULLs comes as objects.
    return frame.astype(dict.fromkeys(NUMBERS, "float64"))


def with_states(cards: pd.DataFrame, policy: Policy = DEFAULT) -> pd.DataFrame:
    masks = card_states(
        cards["utilization_percent"],
        cards["status"] != STATUS_OK,
        cards["process_memory_mib"],
        cards["memory_used_mib"],
        policy,
    )
    state = pd.Series("", index=cards.index, dtype=object)
    for name, mask in masks.items():
        state[mask] = name
    return cards.assign(state=state)


def render(cards: pd.DataFrame) -> str:
    rows: list[list[str]] = [
        [
            _clock(row["ts_ms"])[5:],
            str(row["gpu_index"]) if pd.isna(row["mig_index"]) else f"{row['gpu_index']}:{row['mig_index']:.0f}",
            _shorten(row["gpu_name"] if isinstance(row["gpu_name"], str) else "?"),
            row["state"],
            *(_number(row[name]) for name in NUMBERS),
        ]
        for row in cards.to_dict("records")
    ]
    table = tabulate(rows, HEADERS, disable_numparse=True, colalign=["left"] * 4 + ["right"] * 3)
    return f"{CAPTION}\n\n{table}"


def _clock(ts_ms: int) -> str:
    return str(pd.Timestamp(ts_ms, unit="ms").strftime("%Y-%m-%d %H:%M:%S"))


def _number(value: float) -> str:
    return "?" if pd.isna(value) else f"{value:.0f}"


def _shorten(name: str) -> str:
    name = name.removeprefix("NVIDIA ")
    return name if len(name) <= 16 else name[:13] + "..."
