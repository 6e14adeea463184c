"""File systems for a single test, and a way to fill them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A new folder with a tmpfs of its own. `options` are those of mount, such as size=256k."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> None:
    """Fill the disk with a file, ballast, until only `leave` bytes are free."""
    with open(folder / "ballast", "wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        file.truncate(max(0, file.tell() - leave))
