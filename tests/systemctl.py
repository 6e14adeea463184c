"""A fake systemctl with a test's own units: the machine that runs the tests may have others, or none."""

import os
from pathlib import Path

import pytest

SCRIPT = """#!/bin/sh
scope=system
for word in "$@"; do
  case $word in
    --user) scope=user ;;
    gua-sample.*)
      test -z "$asked" || echo
      asked=$word
      cat {units}/$scope-$word 2>/dev/null || echo LoadState=not-found ;;
  esac
done
"""


def replace_systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake systemctl first on the path; returns the folder for its units, which is empty."""
    programs, units = folder / "bin", folder / "units"
    programs.mkdir()
    units.mkdir()
    (programs / "systemctl").write_text(SCRIPT.format(units=units))
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return units


def install(units: Path, unit: str, scope: str = "system", **properties: str) -> None:
    lines = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", **properties}
    (units / f"{scope}-gua-sample.{unit}").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
