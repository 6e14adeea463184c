"""Paths of this repository and the pages of its documents."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    """The text of docs/NAME."""
    return (DOCS / name).read_text()


def documented(name: str, heading: str) -> list[str]:
    """The names in backquotes in the first columns of the tables below a heading of a page."""
    section = (DOCS / name).read_text().split(heading)[1].split("\n## ")[0]
    return re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
