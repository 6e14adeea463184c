"""Files of reservations."""

from pathlib import Path

from gua_report.config import Config
from tests.lab import CONFIG

HEADER = "gpu,user,from,to,note\n"


def configured(folder: Path | str, *rows: str, config: Config = CONFIG) -> Config:
    """Write a file of these reservations; returns the configuration that names it."""
    path = Path(folder) / "reservations.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return config._replace(reservations=config.reservations._replace(file=str(path)))


def with_jobs(config: Config, folder: Path, *rows: str) -> Config:
    """Write a file of a Slurm job with these rows; returns the configuration that names its folder too."""
    folder.mkdir(exist_ok=True)
    (folder / "4711-1000000000.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return config._replace(reservations=config.reservations._replace(folder=str(folder)))
