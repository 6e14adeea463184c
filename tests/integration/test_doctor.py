"""gua doctor as a person runs it: the real command on the stand-in driver and on what the real sampler recorded."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gua_sample import schema
from tests.damage import DAMAGES, damage_header
from tests.disks import mounted
from tests.lab import DAY_MS, HOUR_MS
from tests.machine import GUA, Machine, one_line, query
from tests.systemctl import install, replace_systemctl
from tests.users import SOMEBODY, gua_for_others, needs_mounts, needs_root, run_as_somebody

Finding = dict[str, str]


@pytest.fixture(autouse=True)
def no_systemctl(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine that runs the tests may have units of its own. This one has none, until a test installs some."""
    return replace_systemctl(open_folder, monkeypatch)


def doctor(
    machine: Machine, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [GUA, "doctor", "--data-dir", str(machine.data_dir), *arguments]
    return subprocess.run(
        command, env=variables or machine.environment(), capture_output=True, text=True, check=False, timeout=60
    )


def examine(machine: Machine, *arguments: str, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = doctor(machine, "--json", *arguments, variables=variables)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    assert document["ok"] == all(finding["status"] != "error" for finding in document["findings"])
    return document


def of_check(document: dict[str, Any], check: str) -> list[Finding]:
    return [finding for finding in document["findings"] if finding["check"] == check]


def one(document: dict[str, Any], check: str) -> Finding:
    (finding,) = of_check(document, check)
    return finding


def errors(document: dict[str, Any]) -> set[str]:
    return {finding["check"] for finding in document["findings"] if finding["status"] == "error"}


@pytest.fixture
def healthy(machine: Machine, no_systemctl: Path) -> Machine:
    """A machine on which everything works; where it runs, that there is no systemd is all there is to say."""
    machine.scenario.add_card()
    machine.scenario.add_card()
    machine.tick()
    now = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime())
    install(no_systemctl, "timer", LastTriggerUSec=now, NextElapseUSecRealtime=now)
    user = str(machine.data_dir.stat().st_uid)
    install(no_systemctl, "service", ActiveState="inactive", Result="success", ExecMainStatus="0", User=user)
    return machine


def sample_before(machine: Machine, days: int = 1) -> None:
    """A tick of days ago. That there are later ones already is worth a warning, but not here."""
    assert machine.sample(clock_offset_ms=-days * DAY_MS).returncode == 0


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
    assert "gua-sample.timer is active" in one(document, "timer")["text"]
    checks = [finding["check"] for finding in document["findings"]]
    assert checks == [
        "os",
        "python",
        "device nodes",
        "NVML",
        "sampler",
        "processes",
        "data folder",
        "free space",
        "clock",
        "newest tick",
        "timer",
        "partitions",
    ]


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


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
def test_a_terminal_gets_colour_unless_told_otherwise(healthy: Machine) -> None:
    command = f"{GUA} doctor --data-dir {healthy.data_dir}"
    for variables, expected in ({}, True), ({"NO_COLOR": "1"}, False):
        terminal = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            env=healthy.environment() | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("\x1b[32m" in terminal.stdout) == expected


def test_nobody_needs_to_listen(healthy: Machine) -> None:
    command = f"{GUA} doctor --data-dir {healthy.data_dir} | true; test ${{PIPESTATUS[0]}} = 0"
    done = subprocess.run(
        ["bash", "-c", command], env=healthy.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(healthy: Machine, closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", GUA, "doctor", "--data-dir", str(healthy.data_dir)]
    done = subprocess.run(command, env=healthy.environment(), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_pandas_is_not_needed(healthy: Machine) -> None:
    command = [sys.executable, "-X", "importtime", GUA, "doctor", "--data-dir", str(healthy.data_dir)]
    done = subprocess.run(command, env=healthy.environment(), capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gua_report.doctor.partitions" in imported
    assert not {name for name in imported if name.partition(".")[0] in ("pandas", "numpy", "tabulate")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--timeout", "soon"], "'soon'"), (["--data-dir", ""], "--data-dir is empty"), (["now"], "now")],
)
def test_wrong_usage_exits_2_in_one_line(arguments: list[str], expected: str) -> None:
    done = subprocess.run([GUA, "doctor", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert expected in done.stderr


def test_help_has_examples_and_fits_a_narrow_terminal() -> None:
    variables = os.environ | {"COLUMNS": "80"}
    done = subprocess.run([GUA, "doctor", "--help"], env=variables, capture_output=True, text=True, check=True)
    assert "examples" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


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
    done = subprocess.run([GUA, "doctor", "--json"], env=environment, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["data_dir"] == str(machine.data_dir)
    told = environment | {"GUA_DATA_DIR": str(tmp_path / "told")}
    done = subprocess.run([GUA, "doctor", "--json"], env=told, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["data_dir"] == str(tmp_path / "told")


def test_without_any_history_it_says_how_to_begin_and_makes_nothing(machine: Machine) -> None:
    machine.scenario.add_card()
    document = examine(machine)
    assert errors(document) == {"newest tick", "timer"}
    assert one(document, "data folder")["status"] == "warning"
    assert one(document, "newest tick")["remedy"] == f"gua-sample --data-dir {machine.data_dir}"
    assert document["newest_tick_ms"] is None
    assert not machine.data_dir.exists()


# The driver


@pytest.mark.parametrize(("code", "name", "remedy"), [(9, "driver_not_loaded", "modprobe"), (18, "mismatch", "reboot")])
def test_a_driver_that_does_not_start_is_an_error(healthy: Machine, code: int, name: str, remedy: str) -> None:
    healthy.scenario.error("nvmlInitWithFlags", code)
    document = examine(healthy)
    found = one(document, "NVML")
    assert found["status"] == "error"
    assert name in found["text"]
    assert remedy in found["remedy"]
    assert document["cards"] is None
    healthy.sample()
    newest = one(examine(healthy), "newest tick")
    assert newest["status"] == "error"
    assert name in newest["text"]
    assert remedy in newest["remedy"]


def test_a_missing_library_or_binding_is_an_error_unless_the_sampler_has_it(healthy: Machine, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("this hides the real library, if there is one")
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError('No module named pynvml')")
    no_library = {"LD_LIBRARY_PATH": str(tmp_path)}
    no_binding = {"PYTHONPATH": str(tmp_path)}
    for changes, check, words in (no_library, "NVML", "library_not_found"), (no_binding, "python", "pynvml"):
        found = one(examine(healthy, variables=healthy.environment() | changes), check)
        assert found["status"] == "warning"  # it is the sampler that needs it, and that has it
        late = healthy.environment(clock_offset_ms=HOUR_MS) | changes
        found = one(examine(healthy, variables=late), check)
        assert found["status"] == "error"
        assert words in found["text"]


def test_a_lost_card_is_named(healthy: Machine) -> None:
    healthy.scenario.cards[1].error("nvmlDeviceGetHandleByIndex_v2", 15)
    document = examine(healthy)
    assert document["ok"]
    assert "card 1 (unknown:index-1) fails: gpu_is_lost" in of_check(document, "NVML")[1]["text"]
    healthy.scenario.cards[0].error("nvmlDeviceGetHandleByIndex_v2", 15)
    assert errors(examine(healthy)) == {"NVML"}


def test_a_driver_that_hangs_does_not_hang_the_doctor(healthy: Machine) -> None:
    variables = healthy.environment()
    healthy.scenario.delay("nvmlInitWithFlags", 50_000)
    variables |= healthy.environment()
    began = time.monotonic()
    document = examine(healthy, "--timeout", "1s", variables=variables)
    assert time.monotonic() - began < 20
    assert one(document, "NVML")["text"] == "NVML does not answer within 1 s"
    assert errors(document) == {"NVML"}


def test_a_slow_driver_is_a_warning_that_names_persistenced(healthy: Machine) -> None:
    healthy.scenario.delay("nvmlInitWithFlags", 5100)
    found = one(examine(healthy), "NVML")
    assert (found["status"], found["remedy"]) == ("warning", "sudo systemctl enable --now nvidia-persistenced")


def test_names_from_the_driver_can_not_steer_a_terminal(healthy: Machine) -> None:
    healthy.scenario.settings["driver_version"] = "580\x1b[31m"
    assert r"driver 580\x1b[31m" in doctor(healthy).stdout


@needs_root
def test_root_asks_the_driver_as_the_sampler_would(healthy: Machine, no_systemctl: Path) -> None:
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, SOMEBODY, SOMEBODY)
    install(no_systemctl, "service", ActiveState="inactive", User=str(SOMEBODY))
    document = examine(healthy)
    assert errors(document) == set()
    assert one(document, "NVML")["text"].endswith(f", as uid {SOMEBODY}")
    assert document["sampler_user"] == str(SOMEBODY)
    variables = healthy.environment()
    os.chmod(variables["GUA_STAND_IN_SCENARIO"], 0o600)  # as if /dev/nvidia* were root's alone
    assert "NVML" in errors(examine(healthy, variables=variables))


# Processes of others


@needs_mounts
@pytest.mark.parametrize(
    ("options", "status", "remedy"),
    [
        ("hidepid=2,gid=4242", "warning", "SupplementaryGroups=4242"),
        (f"hidepid=2,gid={SOMEBODY}", "ok", None),
        ("hidepid=0", "ok", None),
    ],
)
def test_a_proc_that_hides_processes_is_found_even_by_root(
    healthy: Machine, no_systemctl: Path, options: str, status: str, remedy: str | None
) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User=str(SOMEBODY))
    script = f'mount -t proc -o {options} proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", GUA, "doctor", "--json"]
    done = subprocess.run(
        [*command, "--data-dir", str(healthy.data_dir)],
        env=healthy.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    found = one(json.loads(done.stdout), "processes")
    assert found["status"] == status
    assert remedy in found["remedy"] if remedy else found["remedy"] is None


@needs_mounts
def test_a_unit_that_writes_elsewhere_does_not_lend_its_proc(healthy: Machine, no_systemctl: Path) -> None:
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, SOMEBODY, SOMEBODY)
    script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", GUA, "doctor", "--json"]
    for folder, status in (str(healthy.data_dir), "ok"), ("/elsewhere", "warning"):
        service = {"User": str(SOMEBODY), "Environment": f"GUA_DATA_DIR={folder}", "ProtectKernelTunables": "yes"}
        install(no_systemctl, "service", ActiveState="inactive", **service)
        done = subprocess.run(
            [*command, "--data-dir", str(healthy.data_dir)],
            env=healthy.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert one(json.loads(done.stdout), "processes")["status"] == status


# The data folder


@needs_root
def test_a_folder_of_another_than_the_samplers_user_is_an_error(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User=str(SOMEBODY))
    found = one(examine(healthy), "data folder")
    assert (found["status"], found["remedy"]) == ("error", f"sudo chown -R {SOMEBODY}: {healthy.data_dir}")


@needs_root
def test_a_file_of_roots_among_the_samplers_is_an_error(healthy: Machine) -> None:
    os.chown(healthy.data_dir, SOMEBODY, SOMEBODY)
    os.chown(healthy.samples, SOMEBODY, SOMEBODY)
    found = one(examine(healthy), "data folder")
    assert (found["status"], found["remedy"]) == ("error", f"sudo chown -R {SOMEBODY}: {healthy.data_dir}")
    assert str(healthy.partitions()[0]) in found["text"]
    os.chown(healthy.partitions()[0], SOMEBODY, SOMEBODY)
    assert one(examine(healthy), "data folder")["status"] == "ok"


@needs_root
@pytest.mark.parametrize("closed", ["samples", "partition", "parent"])
def test_a_folder_that_its_owner_can_not_write_to_is_an_error(healthy: Machine, closed: str) -> None:
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, SOMEBODY, SOMEBODY)
    path = {"samples": healthy.samples, "partition": healthy.partitions()[0], "parent": healthy.folder}[closed]
    path.chmod(0o700 if closed == "parent" else 0o500 if closed == "samples" else 0o400)
    found = one(examine(healthy), "data folder")
    assert found["status"] == "error"
    assert f"uid {SOMEBODY} can't write to" in found["text"]
    assert found["remedy"].startswith("namei -l" if closed == "parent" else "sudo chmod u+rwX")


@needs_root
def test_a_unit_whose_user_does_not_exist_is_an_error(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User="nobody-of-this-name")
    document = examine(healthy)
    assert errors(document) == {"sampler"}
    assert "nobody-of-this-name" in one(document, "sampler")["text"]


def test_a_unit_that_writes_elsewhere_does_not_decide_who_owns_this_folder(
    healthy: Machine, no_systemctl: Path
) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User=str(SOMEBODY), StateDirectory="gua")
    document = examine(healthy)
    assert document["ok"]
    assert f"it writes to /var/lib/gua, not to {healthy.data_dir}" in one(document, "timer")["text"]


def test_a_folder_below_a_file_is_an_error(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir.write_text("a file")
    document = examine(machine, "--data-dir", str(machine.data_dir / "x"))
    assert one(document, "data folder")["text"] == f"{machine.data_dir} is no folder"
    assert {"data folder", "newest tick"} <= errors(document)


def test_a_file_where_the_folder_should_be_is_an_error(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir.write_text("a file")
    found = one(examine(machine), "data folder")
    assert (found["status"], found["text"]) == ("error", f"{machine.data_dir} is no folder")
    machine.data_dir.unlink()
    machine.data_dir.mkdir()
    machine.samples.write_text("a file")
    found = one(examine(machine), "data folder")
    assert (found["status"], found["text"]) == ("error", f"{machine.samples} is no folder")


@pytest.fixture
def small_disk(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted(machine.data_dir, request.param) as folder:
        yield folder


@needs_mounts
@pytest.mark.parametrize(
    ("small_disk", "status", "words"),
    [
        ("size=2m", "error", "of 2.0 MiB"),
        ("size=64m", "warning", "of 64 MiB"),
        ("size=12g", "ok", "of 12 GiB"),
        ("size=12g,nr_inodes=12", "error", "inodes left"),
        ("size=12g,nr_inodes=500", "warning", "inodes left"),
    ],
    indirect=["small_disk"],
)
def test_too_little_space_is_told_before_it_is_none(
    machine: Machine, small_disk: Path, status: str, words: str
) -> None:
    machine.scenario.add_card()
    machine.tick()
    found = one(examine(machine), "free space")
    assert found["status"] == status
    assert words in found["text"]


@needs_mounts
@pytest.mark.parametrize("small_disk", ["size=64m"], indirect=True)
def test_a_read_only_mount_is_an_error(machine: Machine, small_disk: Path) -> None:
    machine.scenario.add_card()
    machine.tick()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    found = one(examine(machine), "data folder")
    assert (found["status"], found["remedy"]) == ("error", f"sudo mount -o remount,rw {small_disk}")


def doctor_for_others(folder: Path) -> list[str]:
    return [*gua_for_others(folder), "doctor", "--json"]


@needs_root
def test_a_folder_that_is_not_for_this_user_says_nothing_of_the_sampler(healthy: Machine, open_folder: Path) -> None:
    healthy.data_dir.chmod(0o700)
    command = [*doctor_for_others(open_folder), "--data-dir", str(healthy.data_dir)]
    done = run_as_somebody(command, healthy.environment())
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    for check in ("data folder", "newest tick"):
        found = one(document, check)
        assert (found["status"], found["remedy"]) == ("warning", f"sudo gua doctor --data-dir {healthy.data_dir}")
    assert document["partitions"] is None


@needs_root
def test_another_user_judges_by_owner_and_mode(healthy: Machine, open_folder: Path, no_systemctl: Path) -> None:
    """Anybody may find out why sampling fails, not only those who may become its user."""
    other = SOMEBODY + 1
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, other, other)
    install(no_systemctl, "service", ActiveState="inactive", User=str(other))
    command = [*doctor_for_others(open_folder), "--data-dir", str(healthy.data_dir)]
    document = json.loads(run_as_somebody(command, healthy.environment()).stdout)
    assert one(document, "data folder")["status"] == "ok"
    healthy.samples.chmod(0o555)
    found = one(json.loads(run_as_somebody(command, healthy.environment()).stdout), "data folder")
    assert found["text"] == f"uid {other} can't write to {healthy.samples}"


@needs_root
def test_partitions_that_are_not_for_this_user_are_named(healthy: Machine, open_folder: Path) -> None:
    healthy.partitions()[0].chmod(0o600)
    command = [*doctor_for_others(open_folder), "--data-dir", str(healthy.data_dir)]
    document = json.loads(run_as_somebody(command, healthy.environment()).stdout)
    assert one(document, "newest tick")["status"] == "warning"
    assert "not for this user to read" in of_check(document, "partitions")[1]["text"]


# Ticks and the clock


def test_a_tick_that_is_too_old_is_an_error(healthy: Machine) -> None:
    healthy.tick()
    variables = healthy.environment(clock_offset_ms=HOUR_MS)
    document = examine(healthy, variables=variables)
    found = one(document, "newest tick")
    assert (found["status"], found["remedy"]) == ("error", "journalctl -u gua-sample -n 20")
    assert "stale" in found["text"]
    assert document["newest_tick_is_stale"] is True


def test_a_tick_is_not_stale_while_the_timer_is_not_late(healthy: Machine, no_systemctl: Path) -> None:
    def spelled(ts_ms: int) -> str:
        return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(ts_ms // 1000))

    tick_ms = healthy.ticks()[-1]["ts_ms"]
    late = healthy.environment(clock_offset_ms=HOUR_MS)
    for last_ms, status in (tick_ms, "ok"), (tick_ms + HOUR_MS // 2, "error"):
        following_ms = tick_ms + 2 * HOUR_MS
        install(no_systemctl, "timer", LastTriggerUSec=spelled(last_ms), NextElapseUSecRealtime=spelled(following_ms))
        document = examine(healthy, variables=late)
        assert one(document, "newest tick")["status"] == status
        assert document["newest_tick_is_stale"] is (status == "error")


def test_a_partition_of_the_future_is_a_warning_with_a_way_out(healthy: Machine) -> None:
    healthy.tick(clock_offset_ms=2 * DAY_MS)
    future = healthy.partitions()[-1]
    document = examine(healthy)
    assert document["ok"]
    found = one(document, "clock")
    assert found["status"] == "warning"
    assert str(future) in found["text"]
    subprocess.run(["sh", "-c", found["remedy"].split("; sudo ")[1]], check=True)
    assert one(examine(healthy), "clock")["status"] == "ok"
    assert len(healthy.partitions()) == 1


def test_a_clock_that_was_set_back_within_the_day_is_noticed(machine: Machine) -> None:
    machine.scenario.add_card()
    noon_ms = int(time.time() * 1000) // DAY_MS * DAY_MS + DAY_MS // 2
    machine.tick(clock_ms=noon_ms)
    machine.tick(clock_ms=noon_ms - HOUR_MS)
    document = examine(machine, variables=machine.environment(clock_ms=noon_ms - HOUR_MS + 5000))
    assert "1 tick of today in the future" in one(document, "clock")["text"]
    assert document["newest_tick_ms"] == noon_ms - HOUR_MS


def test_a_clock_that_was_never_set_is_an_error(healthy: Machine) -> None:
    document = examine(healthy, variables=healthy.environment(clock_ms=1000))
    found = one(document, "clock")
    assert (found["status"], found["remedy"]) == ("error", "timedatectl")
    assert "1970-01-01" in found["text"]
    assert errors(document) == {"clock"}


# The timer


def test_a_timer_that_is_off_is_an_error_once_ticks_stay_away(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "timer", ActiveState="inactive", UnitFileState="disabled")
    enable = "sudo systemctl enable --now gua-sample.timer"
    found = one(examine(healthy), "timer")
    assert (found["status"], found["remedy"]) == ("warning", enable)
    late = healthy.environment(clock_offset_ms=HOUR_MS)
    found = one(examine(healthy, variables=late), "timer")
    assert (found["status"], found["remedy"]) == ("error", enable)


def test_a_timer_of_the_user_is_found(healthy: Machine, no_systemctl: Path) -> None:
    for path in no_systemctl.iterdir():
        path.rename(path.with_name(path.name.replace("system-", "user-")))
    document = examine(healthy)
    assert "gua-sample.timer of this user is active" in of_check(document, "timer")[0]["text"]


def test_a_service_that_failed_is_mentioned(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="failed", Result="exit-code", ExecMainStatus="1", User="0")
    found = one(examine(healthy), "service")
    assert (found["status"], found["remedy"]) == ("warning", "journalctl -u gua-sample -n 20")


def test_a_failed_run_since_the_newest_tick_is_an_error(healthy: Machine, no_systemctl: Path) -> None:
    began = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + 2))
    failed = {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "238", "User": "0"}
    install(no_systemctl, "service", ExecMainStartTimestamp=began, **failed)
    assert errors(examine(healthy)) == {"service"}
    assert doctor(healthy).stdout.splitlines()[-1].endswith("sampling does not work")


def test_a_machine_without_systemctl_is_told_so(healthy: Machine, open_folder: Path) -> None:
    variables = healthy.environment() | {"PATH": str(open_folder)}
    found = one(examine(healthy, variables=variables), "timer")
    assert (found["status"], found["text"].partition(";")[0]) == ("warning", "there is no systemctl here")
    healthy.partitions()[0].unlink()
    assert one(examine(healthy, variables=variables), "timer")["status"] == "error"


# The partitions


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_partition_is_named_with_a_way_to_save_it(healthy: Machine, damage: object) -> None:
    assert callable(damage)
    sample_before(healthy)
    damaged = healthy.partitions()[0]
    damage(damaged)
    document = examine(healthy)
    assert document["ok"]
    summary, found = of_check(document, "partitions")
    assert summary["text"].startswith("2 days")
    assert found["status"] == "warning"
    assert str(damaged) in found["text"]
    assert found["remedy"] == f"sqlite3 -readonly {damaged} .recover | sqlite3 -safe recovered.sqlite"


def test_damage_in_the_middle_of_a_partition_is_found(healthy: Machine) -> None:
    """Where opening it and reading its slow facts would not come by."""
    (path,) = healthy.partitions()
    (row,) = query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'card_sample'")
    (size,) = query(path, "PRAGMA page_size")
    content = bytearray(path.read_bytes())
    start = (row["rootpage"] - 1) * size["page_size"]
    content[start : start + 200] = b"\xde\xad" * 100
    path.write_bytes(content)
    document = examine(healthy)
    assert "is damaged" in of_check(document, "partitions")[1]["text"]
    assert one(document, "newest tick")["status"] == "ok"


def test_a_partition_of_a_newer_gua_stops_sampling_only_today(healthy: Machine) -> None:
    sample_before(healthy)
    for path, is_error in zip(healthy.partitions(), (False, True), strict=True):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        connection.close()
        document = examine(healthy)
        assert ("partitions" in errors(document)) == is_error
        assert f"schema version {schema.VERSION + 1}" in of_check(document, "partitions")[-1]["text"]
    assert healthy.sample().returncode == 1


def test_a_partition_that_is_a_directory_is_an_error_until_the_sampler_sets_it_aside(healthy: Machine) -> None:
    (path,) = healthy.partitions()
    path.unlink()
    path.mkdir()
    assert "partitions" in errors(examine(healthy))
    assert healthy.sample().returncode == 0
    assert "partitions" not in errors(examine(healthy))


def test_ticks_that_wait_and_files_set_aside_are_mentioned(healthy: Machine) -> None:
    damage_header(healthy.partitions()[0])
    healthy.sample()
    reader = sqlite3.connect(healthy.partitions()[0], isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM tick").fetchone()
    healthy.tick()
    found = of_check(examine(healthy), "partitions")[1:]
    reader.close()
    assert [one["status"] for one in found] == ["warning", "warning"]
    assert ".sqlite.corrupt-1" in found[0]["text"]
    assert "1 tick waiting" in found[1]["text"]


def test_what_is_no_file_neither_hangs_nor_swells_the_doctor(healthy: Machine) -> None:
    names = ["2026-01-02.sqlite", "2026-01-02.00.pending"]
    os.mkfifo(healthy.samples / names[0])
    (healthy.samples / names[1]).symlink_to("/dev/zero")
    document = examine(healthy)
    assert document["ok"]
    assert document["partitions"] == 1
    found = of_check(document, "partitions")[1:]
    assert {one["status"] for one in found} == {"warning"}
    assert sorted(one["text"].split()[0] for one in found) == sorted(names)


def test_a_folder_with_odd_characters_works(healthy: Machine) -> None:
    odd = healthy.folder / "50% #1? ü"
    healthy.data_dir.rename(odd)
    healthy.data_dir = odd
    healthy.samples = odd / "samples"
    assert examine(healthy)["ok"]
