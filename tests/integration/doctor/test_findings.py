"""gua doctor on drivers, clocks, timers, partitions and a /proc that are not as they should be."""

import os
import sqlite3
from pathlib import Path

import pytest

from gua_sample import schema
from tests.damage import DAMAGES
from tests.integration.doctor.examination import errors, examine, of_check, one, sample_before
from tests.lab import HOUR_MS
from tests.machine import Machine, query, within
from tests.systemctl import install
from tests.users import SOMEBODY, needs_root


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
    with within(20):
        document = examine(healthy, "--timeout", "1s", variables=variables)
    assert one(document, "NVML")["text"] == "NVML does not answer within 1 s"
    assert errors(document) == {"NVML"}


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


def test_a_partition_of_a_newer_gua_is_an_error_only_today(healthy: Machine) -> None:
    sample_before(healthy)
    for path, is_error in zip(healthy.partitions(), (False, True), strict=True):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        connection.close()
        document = examine(healthy)
        assert ("partitions" in errors(document)) == is_error
        assert f"schema version {schema.VERSION + 1}" in of_check(document, "partitions")[-1]["text"]
