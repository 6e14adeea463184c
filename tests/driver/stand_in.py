"""Builds the stand-in driver and prepares the environment of the process under test."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCES = Path(__file__).parent


def build(folder: Path) -> Path:
    """Compiles libnvidia-ml.so.1 and what can be preloaded beside it into the folder, and returns it."""
    compile_library("nvml_stand_in.c", folder / "libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1")
    compile_library("shift_clock.c", folder / "shift_clock.so")
    compile_library("kill_at.c", folder / "kill_at.so")
    compile_library("slow_names.c", folder / "slow_names.so")
    return folder


def compile_library(source: str, library: Path, *options: str) -> None:
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *options]
    command = [os.environ.get("CC", "cc"), *flags, "-o", str(library), str(SOURCES / source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


def environment(folder: Path, scenario: Path | None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child that finds the stand-in driver; without a scenario its driver is not loaded."""
    variables = dict(os.environ if base is None else base)
    variables.pop("GUA_STAND_IN_SCENARIO", None)
    paths = [str(folder), variables.get("LD_LIBRARY_PATH", "")]
    variables["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
    if scenario is not None:
        variables["GUA_STAND_IN_SCENARIO"] = str(scenario)
    return variables


def with_clock(
    variables: Mapping[str, str], folder: Path, offset_ms: int | None = None, frozen_ms: int | None = None
) -> dict[str, str]:
    """The environment of a child whose wall clock is moved by an offset, or stands still at an epoch millisecond."""
    preload = [variables.get("LD_PRELOAD", ""), str(folder / "shift_clock.so")]
    moved = {**variables, "LD_PRELOAD": ":".join(filter(None, preload))}
    if offset_ms is not None:
        moved["GUA_TEST_CLOCK_OFFSET_MS"] = str(offset_ms)
    if frozen_ms is not None:
        moved["GUA_TEST_CLOCK_MS"] = str(frozen_ms)
    return moved
