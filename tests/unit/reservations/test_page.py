"""docs/reservations.md says what is true."""

import re
import subprocess
from pathlib import Path

from gua_report.commands import demo
from gua_report.live.validation import KINDS
from gua_report.reservations import csv_files
from gua_report.reservations.canhazgpu import CONVERSATION_SECONDS, HEARTBEAT_MS, MOST_MEMORY_BYTES, OPTIONS
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.lab import DAY_MS
from tests.machine import SCRIPTS
from tests.repository import page

PAGE = page("reservations.md")


def test_the_page_shows_what_a_report_shows(tmp_path: Path) -> None:
    demo.simulate(str(tmp_path), 0, EXAMPLE_END_MS - 7 * DAY_MS, EXAMPLE_END_MS)
    (tmp_path / "reservations.csv").write_text(PAGE.split("## A file\n\n```\n")[1].split("```")[0])
    (tmp_path / "gua.toml").write_text('[reservations]\nfile = "reservations.csv"\n')
    command = [str(SCRIPTS / "gua-report"), "--data-dir", ".", "--config", "gua.toml", "--tz", "UTC"]
    command += ["--to", "2026-11-11T12:00Z", "--section", "reservations", "--top", "7"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={"TZ": "UTC"})
    shown = PAGE.split("with the file above:\n\n```\n")[1].split("```")[0]
    assert done.stdout.endswith(f"\n\n{shown}")


def test_the_page_has_every_kind_of_validation() -> None:
    table = PAGE.split("| kind | ")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == sorted(KINDS)
    assert f"{HEARTBEAT_MS // 60_000} minutes after the last heartbeat" in PAGE
    assert f"gives up after {CONVERSATION_SECONDS:g} s, from" in PAGE
    assert f"{MOST_MEMORY_BYTES >> 20} MiB of memory" in PAGE
    assert all(f"`{option}`" in PAGE for option in OPTIONS)
    limits = f"at most {csv_files.MOST_FILES:,} files, {csv_files.MOST_BYTES >> 20} MiB and"
    assert f"{limits} {csv_files.MOST_ROWS:,} rows in all" in PAGE
    assert f"regular files of up to {csv_files.MOST_BYTES_OF_ONE >> 20} MiB" in PAGE
    assert f"Its first {csv_files.MOST_ROWS:,} rows and {csv_files.MOST_BYTES >> 20} MiB are read" in PAGE
