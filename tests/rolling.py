"""A week of a laboratory that ends today, and gua rollup on it: the real commands, in this process."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from gua_report.main import main
from gua_sample import store
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.simulate import Laboratory
from tests.machine import query

TODAY_MS = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
WEEK = [day_of(TODAY_MS - days * DAY_MS) for days in range(7, 0, -1)]
TABLES = ("card_day", "card_hour", "identity_hour", "hold", "episode", "span")


def write_week(folder: Path) -> None:
    """All of it and the first ticks of today, one every five minutes, none of them on a midnight."""
    start_ms = TODAY_MS - 7 * DAY_MS + 100_000
    ticks = Laboratory(1, 3).history(start_ms, TODAY_MS + 700_000, 300_000)
    store.append_history(store.prepare(str(folder)), ticks)


def run(verb: str, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    """How it ended, and what it said."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        status = main([verb, "--data-dir", str(data_dir), *arguments])
    return status, output.getvalue(), errors.getvalue()


def roll_up(data_dir: Path, *arguments: str, **retention: int) -> dict[str, Any]:
    """What gua rollup did; it must end well and have nothing to complain about."""
    config = data_dir / "gua.toml"
    config.write_text("\n".join(["[retention]", *(f"{name} = {days}" for name, days in retention.items()), ""]))
    status, output, errors = run("rollup", data_dir, "--config", str(config), "--json", *arguments)
    assert (status, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    return found


def report(data_dir: Path, first: str = WEEK[0], last: str = day_of(TODAY_MS)) -> dict[str, Any]:
    """What gua report says of these days, but for where it has that from."""
    status, output, errors = run("report", data_dir, "--json", "--tz", "UTC", "--from", first, "--to", last)
    assert (status, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    del found["sources"]
    return found


def stored(data_dir: Path, days: Sequence[str] | None = None) -> dict[str, dict[str, list[str]]]:
    """All that is stored of each day, but for what became of its ticks, in no particular order."""
    path = data_dir / "rollups.sqlite"
    known = {row["day"]: row["id"] for row in query(path, "SELECT id, day FROM day")}
    words = {row["id"]: row["text"] for row in query(path, "SELECT * FROM word")}
    cards = {row["id"]: [*row.values()][1:] for row in query(path, "SELECT * FROM card")}

    def spell(row: dict[str, Any]) -> str:
        texts = ("command", "identity", "boot_id", "driver_version", "kind")
        plain = {name: words.get(value) if name in texts else value for name, value in row.items()}
        return repr(plain | {"card_id": cards.get(row.get("card_id", 0)), "position": None})

    return {
        day: {
            table: sorted(map(spell, query(path, f"SELECT * FROM {table} WHERE day_id = {number}"))) for table in TABLES
        }
        for day, number in known.items()
        if days is None or day in days
    }


def partition(data_dir: Path, day: str) -> Path:
    return data_dir / "samples" / f"{day}.sqlite"


def touch(data_dir: Path, day: str) -> None:
    """As an rsync without -t does."""
    os.utime(partition(data_dir, day))


def days_left(data_dir: Path) -> list[str]:
    return [path.stem for path in sorted((data_dir / "samples").glob("*.sqlite"))]


def edges_left(data_dir: Path) -> list[str]:
    return [path.stem for path in sorted((data_dir / "edges").glob("*.sqlite"))]
