"""Other users: helpers that need root, and marks that skip tests without it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pynvml
import pytest

import gua_report
import gua_sample

SOMEBODY = 54321  # no passwd entry

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def can_mount() -> bool:
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="mounting takes root and a mount namespace")


def reachable_python() -> str:
    """A Python that another user can run, unlike one under /root."""
    for candidate in dict.fromkeys([sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]):
        check = "import sys, sqlite3, ctypes; sys.exit(sys.version_info < (3, 10))"
        try:
            probe = subprocess.run([candidate, "-c", check], user=SOMEBODY, cwd="/", check=False, capture_output=True)
        except OSError:
            continue
        if probe.returncode == 0:
            return candidate
    pytest.skip("no Python on this machine that another user can run")


def sampler_for_others(folder: Path) -> list[str]:
    """A command for gua-sample that another user can run: the same files, copied to a place that everybody may read."""
    library = folder / "library"
    if not library.exists():
        assert gua_sample.__file__
        shutil.copytree(Path(gua_sample.__file__).parent, library / "gua_sample")
        shutil.copy(pynvml.__file__, library / "pynvml.py")
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from gua_sample.cli import main; sys.exit(main())"
    return [reachable_python(), "-c", code]


def gua_for_others(folder: Path) -> list[str]:
    """A command for gua that another user can run."""
    python = sampler_for_others(folder)[0]
    library = folder / "library"
    assert gua_report.__file__
    shutil.copytree(Path(gua_report.__file__).parent, library / "gua_report", dirs_exist_ok=True)
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from gua_report.main import main; sys.exit(main())"
    return [python, "-c", code]


def run_as_somebody(
    command: list[str], variables: Mapping[str, str], user: int = SOMEBODY
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=variables,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
