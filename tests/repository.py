"""Paths of this repository and the pages of its documents."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    """The text of docs/NAME."""
    return (DOCS / name).read_text()
