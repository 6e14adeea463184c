"""Odd things in the place of a file: each function puts one at the path."""

import os
from pathlib import Path


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()
