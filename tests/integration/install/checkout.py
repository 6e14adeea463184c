"""A copy of this repository to install from, and what an installation leaves."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.repository import ROOT
from tests.users import SOMEBODY

SOURCES = ("Makefile", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "constraints.txt")
SOURCE_FOLDERS = ("gua_sample", "gua_report", "install", "systemd", "docs", "contrib")
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0"}
NO_CONFIG = {"PIP_CONFIG_FILE": os.devnull, "HOME": "/nonexistent"}
LIBRARY = "opt/gua/lib/python3.*/site-packages"
USER_HOME = "/home/an na"
Done = subprocess.CompletedProcess[str]


class Checkout:
    """A copy of the project that other users may read, so that they can run make in it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        for name in SOURCES:
            shutil.copy(ROOT / name, folder)
        for name in SOURCE_FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def command(self, *words: str) -> list[str]:
        return ["make", "--no-print-directory", f"PYTHON={self.python}", *words]  # the last PYTHON= counts

    def make(self, *words: str, user: int | None = None, variables: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=environment(variables or {}),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            umask=0o077,  # of a cautious administrator; it must not matter
            capture_output=True,
            text=True,
            check=False,
        )

    def succeed(self, *words: str, **more: Any) -> Done:
        """The same, which must succeed without a complaint."""
        done = self.make(*words, **more)
        assert (done.returncode, done.stderr) == (0, "")
        return done


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what a make that runs these tests hands on."""
    dropped = re.compile(
        r"MAKE|MFLAGS|XDG_|DESTDIR|PREFIX|VENVDIR|SYSCONFDIR|SYSTEMD_UNIT_DIR|WHEELS|READERS|INTERVAL|CONTAINERS|PURGE|PYTHON"
    )
    return {name: value for name, value in os.environ.items() if not dropped.match(name)} | dict(changes)


def suitable_python() -> str:
    """One that a service can be installed with. The tests' own is not, if it is in a home folder."""
    complaints = []
    for python in [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]:
        if os.path.exists(python):
            check = [python, str(ROOT / "install/check_python.py"), "install"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return python
            complaints.append(done.stderr.strip())
    pytest.skip(" / ".join(complaints))


def unprivileged() -> int | None:
    """Whom to run as in order not to be root: somebody else, or ourselves."""
    return SOMEBODY if os.geteuid() == 0 else None


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """All that is in there, with size and time of change."""
    found = [path.lstat() for path in (folder, *sorted(folder.rglob("*")))]
    return [(str(path), 0, 0) for path in sorted(folder.rglob("*"))] + [("", s.st_size, s.st_mtime_ns) for s in found]


def files(folder: Path, *, without: str = "/opt/gua/") -> list[str]:
    """What is in there but folders, as paths below it."""
    found = [f"/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(path for path in found if not path.startswith(without))


def complaint(done: Done) -> str:
    """The one line that it was refused with; make adds another."""
    first, second = done.stderr.splitlines()
    assert second.startswith("make: *** ")
    assert (done.returncode, done.stdout) == (2, "")
    return first


def rewrite(path: Path, text: str) -> None:
    """As editors do: into a new file. The old one may be linked from another tree."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def copy_tree(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-al", source, target], check=True)
    return target
