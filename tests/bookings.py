"""Files of reservations."""

from __future__ import annotations

from pathlib import Path

from gua_report.config import Config, Reservations
from tests.lab import CONFIG

HEADER = "gpu,user,from,to,note\n"


def configured(folder: Path | str, *rows: str, config: Config = CONFIG) -> Config:
    """Write a file of these reservations; returns the configuration that names it."""
    path = Path(folder) / "reservations.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return config._replace(reservations=Reservations(file=str(path)))
