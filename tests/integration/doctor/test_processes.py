"""gua doctor on a /proc that hides the processes of others."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.doctor.examination import Finding, one
from tests.machine import GUA, Machine
from tests.systemctl import install
from tests.users import SOMEBODY, needs_mounts


def examine_with_proc(machine: Machine, options: str) -> Finding:
    """What is found about processes where /proc is mounted with these options."""
    script = f'mount -t proc -o {options} proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", GUA, "doctor", "--json"]
    done = subprocess.run(
        [*command, "--data-dir", str(machine.data_dir)],
        env=machine.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return one(json.loads(done.stdout), "processes")


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
    found = examine_with_proc(healthy, options)
    assert found["status"] == status
    assert remedy in found["remedy"] if remedy else found["remedy"] is None


@needs_mounts
def test_a_unit_that_writes_elsewhere_does_not_lend_its_proc(healthy: Machine, no_systemctl: Path) -> None:
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, SOMEBODY, SOMEBODY)
    for folder, status in (str(healthy.data_dir), "ok"), ("/elsewhere", "warning"):
        service = {"User": str(SOMEBODY), "Environment": f"GUA_DATA_DIR={folder}", "ProtectKernelTunables": "yes"}
        install(no_systemctl, "service", ActiveState="inactive", **service)
        assert examine_with_proc(healthy, "hidepid=2")["status"] == status
