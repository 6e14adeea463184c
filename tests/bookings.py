"""Files of reservations, and cards to hold them against."""

from pathlib import Path

from gua_report.config import Config
from gua_report.live.cards_now import CardSeen, ProcessNow, see_card
from gua_sample.containers import NOTHING, Known
from gua_sample.idleness import begin, follow, runs_now
from gua_sample.policy import TRULY_IDLE, UNKNOWN
from gua_sample.records import Card, CardFacts
from tests.lab import CONFIG, MONDAY_MS, Gpu, tick

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


def holder(user: str = "ada", command: str = "python", memory_mib: int = 5000) -> ProcessNow:
    return ProcessNow(1, None, user, command, "compute", memory_mib, None, UNKNOWN, None)


def card(
    number: int = 0, *holders: ProcessNow, state: str = TRULY_IDLE, uuid: str | None = None, parent: str | None = None
) -> CardSeen:
    facts = CardFacts(uuid or f"GPU-{number}", number, parent_uuid=parent)
    return CardSeen(Card(facts), state, None, [], list(holders))


def look(*gpus: Gpu, ts_ms: int = MONDAY_MS, config: Config = CONFIG, known: Known = NOTHING) -> list[CardSeen]:
    """What a look sees of these cards without a history."""
    now = tick(ts_ms, *gpus)
    carried = follow(begin(), now)
    return [see_card(card, now, carried, runs_now(carried), config, known) for card in now.cards]
