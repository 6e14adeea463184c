"""gua doctor as a person runs it: the real command on the stand-in driver and on what the real sampler recorded."""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.damage import damage_header
from tests.integration.doctor.examination import doctor, errors, examine, of_check, one, sample_before
from tests.lab import DAY_MS
from tests.machine import GUA, Machine, call
from tests.systemctl import install


def test_a_healthy_machine_gets_a_clean_bill(healthy: Machine) -> None:
    document = examine(healthy)
    assert document["ok"]
    assert {finding["check"] for finding in document["findings"] if finding["status"] != "ok"} <= {"os", "free space"}
    assert document["schema_version"] == 1
    assert document["data_dir"] == str(healthy.data_dir)
    assert (document["cards"], document["driver_version"], document["partitions"]) == (2, "580.65.06", 1)
    assert document["newest_tick_ms"] == healthy.ticks()[0]["ts_ms"]
    assert document["newest_tick_is_stale"] is False
    assert "2 cards" in of_check(document, "NVML")[0]["text"]
    settings = [card.settings for card in healthy.scenario.cards]
    assert [card["text"] for card in of_check(document, "card")] == [
        f"{index}: {told['name'].removeprefix('NVIDIA ')}, {told['uuid']}" for index, told in enumerate(settings)
    ]
    assert "gua-sample.timer is active" in one(document, "timer")["text"]
    checks = ", ".join(finding["check"] for finding in document["findings"])
    assert checks == (
        "os, python, device nodes, NVML, card, card, sampler, processes, data folder, free space, clock, newest tick,"
        " timer, partitions"
    )


def test_the_text_fits_a_mail_and_has_no_colour_in_a_pipe(healthy: Machine) -> None:
    healthy.scenario.cards[0].update(persistence_mode=0)
    done = doctor(healthy)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 78
    assert "\x1b" not in done.stdout
    assert "                -> sudo systemctl enable --now nvidia-persistenced" in lines
    assert lines[-1].endswith(": sampling works")
    plain = doctor(healthy, "--ascii").stdout
    assert plain.isascii()
    marks = [line[0] for line in lines if line[:1].strip()]
    assert [line[0] for line in plain.splitlines() if line[:1].strip()] == [
        {"✓": "+", "✗": "x"}.get(mark, mark) for mark in marks
    ]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(healthy: Machine, closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", GUA, "doctor", "--data-dir", str(healthy.data_dir)]
    done = call(command, env=healthy.environment(), timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_pandas_is_not_needed(healthy: Machine) -> None:
    command = [sys.executable, "-X", "importtime", GUA, "doctor", "--data-dir", str(healthy.data_dir)]
    done = subprocess.run(command, env=healthy.environment(), capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gua_report.doctor.history" in imported
    assert not {name for name in imported if name.partition(".")[0] in ("pandas", "numpy", "tabulate")}


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "", path.stat().st_mtime_ns)
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def test_nothing_is_changed_whatever_is_found(healthy: Machine) -> None:
    sample_before(healthy, days=2)
    sample_before(healthy)
    healthy.tick(clock_offset_ms=2 * DAY_MS)
    damage_header(healthy.partitions()[0])
    connection = sqlite3.connect(healthy.partitions()[1], isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE tick SET error = hex(randomblob(100000))")  # spills: the journal is hot once it is left
    names = [f"{healthy.partitions()[1]}{suffix}" for suffix in ("", "-journal")]
    left = [Path(name).read_bytes() for name in names]
    connection.execute("ROLLBACK")
    connection.close()
    for name, content in zip(names, left, strict=True):
        Path(name).write_bytes(content)
    (healthy.samples / "2026-01-01.aa.pending").write_text("no kept tick")
    before = contents(healthy.data_dir)
    document = examine(healthy)
    assert contents(healthy.data_dir) == before
    assert [finding["status"] for finding in of_check(document, "partitions")] == ["ok", "warning", "warning"]


def test_before_the_first_run_it_is_the_folder_of_the_unit_that_counts(
    machine: Machine, no_systemctl: Path, tmp_path: Path
) -> None:
    if os.path.exists("/var/lib/gua"):
        pytest.skip("this machine has a history of its own")
    machine.scenario.add_card()
    install(no_systemctl, "timer")
    install(no_systemctl, "service", ActiveState="inactive", ExecStart=f"argv[]=x --data-dir {machine.data_dir} ;")
    environment = machine.environment() | {"XDG_STATE_HOME": str(tmp_path)}
    done = call([GUA, "doctor", "--json"], env=environment)
    assert json.loads(done.stdout)["data_dir"] == str(machine.data_dir)
    told = environment | {"GUA_DATA_DIR": str(tmp_path / "told")}
    done = call([GUA, "doctor", "--json"], env=told)
    assert json.loads(done.stdout)["data_dir"] == str(tmp_path / "told")


def test_without_any_history_it_says_how_to_begin_and_makes_nothing(machine: Machine) -> None:
    machine.scenario.add_card()
    document = examine(machine)
    assert errors(document) == {"newest tick", "timer"}
    assert one(document, "data folder")["status"] == "warning"
    assert one(document, "newest tick")["remedy"] == f"gua-sample --data-dir {machine.data_dir}"
    assert document["newest_tick_ms"] is None
    assert not machine.data_dir.exists()
