"""gpu-usage-audit 1.8.0 on our data: install it, give it the same history, time its report, read its shares.

By hand: python benchmarks/peer.py DATA_DIR [FOLDER]. FOLDER keeps the installation and the copy of the data.
Its window begins at its clock less `--since` and has no end, so a history of any date can be asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path

from gua_report.ticks.open_partition import open_partition
from gua_sample.partition_names import list_partitions, samples_dir
from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE

PACKAGE = "gpu-usage-audit"
VERSION = "1.8.0"
SHARES = (ACTIVE, IDLE_HELD, TRULY_IDLE)  # in the order in which it prints them
# The window is cut off so long before its start: its clock is read later than ours, by the time it takes to start.
SLACK_MS = 15_000

RUNS = """
    SELECT boot_id, iso_time(min(ts_ms)), coalesce(max(interval_ms), 30000) / 1000.0, max(driver_version)
    FROM ticks GROUP BY boot_id ORDER BY min(ts_ms)
"""
ADD_RUN = "INSERT INTO daemon_run (started_at, interval_seconds) VALUES (?, ?)"
# Its utilization is in whole percent (cut, not rounded: 9.9 is below 10) and can't be missing: a lost card has
# no row. Its memory in use includes what the driver reserves. The state that its daemon stores as well, by
# another rule, is left out: no report reads it.
CARDS = """
    SELECT iso_time(ts_ms), gpu_uuid, CAST(utilization_percent AS INTEGER), gpu_index,
           memory_used_mib + coalesce(memory_reserved_mib, 0), temperature_celsius, CAST(power_watts AS INTEGER), ?
    FROM ticks JOIN card_ticks USING (ts_ms)
    WHERE boot_id = ? AND utilization_percent IS NOT NULL
"""
ADD_CARD = """
    INSERT INTO gpu_sample (ts, gpu_uuid, util_pct, gpu_index, memory_used_mb, temperature_c, power_w, run_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
PROCESSES = """
    SELECT iso_time(ts_ms), gpu_uuid, pid, memory_mib, login_user, user, gpu_index, command, ?,
           CASE type WHEN 'graphics' THEN type ELSE 'compute' END
    FROM ticks JOIN process_ticks USING (ts_ms)
    WHERE boot_id = ?
"""
ADD_PROCESS = """
    INSERT INTO proc_sample (ts, gpu_uuid, pid, mem_used_mb, loginuid_user, owner_user, gpu_index, process_name,
                             run_id, process_type)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
DEVICES = """
    SELECT gpu_uuid, max(gpu_name), max(memory_total_mib), iso_time(min(ts_ms)), iso_time(max(ts_ms))
    FROM card_ticks WHERE gpu_name IS NOT NULL AND memory_total_mib IS NOT NULL GROUP BY gpu_uuid
"""
ADD_DEVICE = """
    INSERT INTO gpu_device (gpu_uuid, name, memory_total_mb, first_seen, last_seen) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (gpu_uuid) DO UPDATE SET last_seen = excluded.last_seen
"""
ADD_HOST = """
    INSERT INTO host (hostname, env_kind, driver_version, first_seen, last_seen)
    SELECT 'laboratory', 'bare', ?, min(ts), max(ts) FROM gpu_sample
"""
# Run by its Python: what its report computes before it rounds.
EXACT = """
import datetime, json, sys
from gpu_usage_audit.db import open_db
from gpu_usage_audit.report import load_headline
start = datetime.datetime.fromtimestamp(int(sys.argv[2]) / 1000, datetime.timezone.utc)
found = load_headline(open_db(sys.argv[1]), start)
print(json.dumps([100 * found.active, 100 * found.idle_held, 100 * found.truly_idle]))
"""


def find_python() -> str | None:
    """A Python that gpu-usage-audit runs on, and that can make virtual environments."""
    check = "import ensurepip, sys, venv; print(sys.executable); sys.exit(sys.version_info < (3, 12))"
    for candidate in _pythons():
        answer = subprocess.run([candidate, "-c", check], capture_output=True, text=True)
        if answer.returncode == 0:  # pyenv's shims fail for versions that are not switched on
            return answer.stdout.strip()
    return None


def _pythons() -> Iterator[str]:
    yield from filter(None, map(shutil.which, ("python3.14", "python3.13", "python3.12", "python3")))
    yield from map(str, Path.home().glob(".pyenv/versions/3.*/bin/python"))
    yield sys.executable


def install(folder: Path) -> Path:
    """Into a virtual environment of its own in `folder`, unless it is there already; the path of its command."""
    command = folder / "bin" / PACKAGE
    if command.exists() and _ask(str(command), "--version").strip() == VERSION:
        return command
    python = find_python()
    if python is None:
        raise FileNotFoundError(f"{PACKAGE} {VERSION} needs Python 3.12 or newer: none was found")
    _ask(python, "-m", "venv", str(folder))
    _ask(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{PACKAGE}=={VERSION}")
    return command


def export(command: Path, data_dir: Path, database: Path) -> int:
    """Write all of our partitions into a new database of its kind; the number of card and process rows.

    The command itself makes the tables and indexes. Rows come in the order of time, as from its daemon; each boot
    is a run of that.
    """
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    database.touch()  # it refuses a database that does not exist, and makes its tables in an empty one
    _ask(str(command), "report", "--db", str(database))
    rows = 0
    run_ids: dict[str, int | None] = {}
    driver_version = None
    with closing(sqlite3.connect(database)) as target, target:
        target.execute("PRAGMA journal_mode = OFF")  # it sets its own again whenever it opens the file
        for path in list_partitions(samples_dir(str(data_dir))):
            with open_partition(path) as source:
                source.create_function("iso_time", 1, _iso_time, deterministic=True)
                for boot_id, started_at, interval_seconds, driver in source.execute(RUNS).fetchall():
                    driver_version = driver or driver_version
                    if boot_id not in run_ids:
                        run_ids[boot_id] = target.execute(ADD_RUN, (started_at, interval_seconds)).lastrowid
                    key = (run_ids[boot_id], boot_id)
                    rows += target.executemany(ADD_CARD, source.execute(CARDS, key)).rowcount
                    rows += target.executemany(ADD_PROCESS, source.execute(PROCESSES, key)).rowcount
                target.executemany(ADD_DEVICE, source.execute(DEVICES))
        target.execute(ADD_HOST, (driver_version,))
    return rows


@lru_cache(1)
def _iso_time(ts_ms: int) -> str:
    """As its daemon writes times: compared as texts, so always in UTC and with microseconds."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ts_ms)
    return moment.isoformat(timespec="microseconds")


def run(command: Path, database: Path, start_ms: int) -> tuple[float, str]:
    """Wall seconds and output of its report on all that the database has from `start_ms` on."""
    since_ms = max(1, time.time_ns() // 1_000_000 - start_ms + SLACK_MS)
    begin = time.perf_counter()
    output = _ask(str(command), "report", "--db", str(database), "--since", f"{since_ms}ms")
    return time.perf_counter() - begin, output


def headline(output: str) -> dict[str, float]:
    """Its shares as printed: in whole percent, in words of Korean, and in no other format."""
    found = re.search(r"(\d+)%[^%\n]*?(\d+)%[^%\n]*?(\d+)%", output)
    if found is None:
        raise ValueError(f"no shares in the report of {PACKAGE}: {output[:400]!r}")
    return dict(zip(SHARES, map(float, found.groups()), strict=True))


def exact_headline(command: Path, database: Path, start_ms: int) -> dict[str, float]:
    """The same shares in percent, with all their digits."""
    answer = _ask(str(command.parent / "python"), "-c", EXACT, str(database), str(start_ms))
    return dict(zip(SHARES, json.loads(answer), strict=True))


def _ask(*command: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    variables["PYTHONUTF8"] = "1"  # it prints Korean, whatever the locale
    answer = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=variables)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {answer.stderr.strip()}")
    return answer.stdout


def main() -> int:
    data_dir = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="gua-peer-") as name:
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else name)
        command, database = install(folder / "venv"), folder / "peer.db"
        begin = time.perf_counter()
        rows = export(command, data_dir, database)
        print(f"{rows} rows in {time.perf_counter() - begin:.1f} s, {database.stat().st_size >> 20} MiB")
        seconds, output = run(command, database, 0)
        print(f"{seconds:.1f} s for shares of {headline(output)}, exactly {exact_headline(command, database, 0)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
