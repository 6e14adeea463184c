"""Run the tests on every Python from 3.10 up that this machine has, each in a virtual environment of its own."""

import glob
import os
import shutil
import subprocess
import sys

OLDEST = (3, 10)
PROBE = "import sys; print(*sys.version_info[:2], sys.executable)"


def find_pythons() -> dict[tuple[int, int], str]:
    """One interpreter for each minor version: those on PATH first, then those of pyenv."""
    names = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 30)]
    candidates = [name for name in names if name] + sorted(
        glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python"))
    )
    found: dict[tuple[int, int], str] = {}
    for candidate in candidates:
        probe = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            major, minor, executable = probe.stdout.split(maxsplit=2)
            if (int(major), int(minor)) >= OLDEST:
                found.setdefault((int(major), int(minor)), executable.strip())
    return dict(sorted(found.items()))


def main() -> int:
    failed = []
    for (major, minor), executable in find_pythons().items():
        name = f"{major}.{minor}"
        print(f"== Python {name}: {executable}", flush=True)
        if subprocess.run(["make", "test", f"PYTHON={executable}", f"VENV=.venv-{name}"], check=False).returncode:
            failed.append(name)
    print(f"failed on {', '.join(failed)}" if failed else "passed on all")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
