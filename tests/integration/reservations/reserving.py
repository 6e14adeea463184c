"""Reservations of a machine under test, and what gua status makes of them."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gua_report.people.identities import resolve
from gua_sample.processes import describe, read_boot, user_names
from tests.machine import GUA, SCRIPTS, Machine

PID = os.getpid()
HOUR = 3600
GPU_IS_LOST = 15


def me() -> str:
    """The identity that a process of ours has on a card."""
    who = describe(PID, read_boot())
    names = user_names({uid for uid in (who.uid, who.login_uid) if uid is not None})
    user, login = (names.get(uid) if uid is not None else None for uid in (who.uid, who.login_uid))
    return resolve(who.uid, who.login_uid, user, login, who.cgroup)


ME = me()


class Status(NamedTuple):
    cards: dict[int, dict[str, Any]]
    complaints: list[str]

    def kinds(self) -> list[str]:
        return [card["kind"] for card in self.cards.values()]


@contextmanager
def process_of(user: str) -> Iterator[int]:
    """A process that belongs to somebody else."""
    with subprocess.Popen(["sleep", "60"], user=user) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def gua(machine: Machine, config: str, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = machine.folder / "gua.toml"
    path.write_text(config)
    command = [GUA, verb, "--config", str(path), "--data-dir", str(machine.data_dir), *options]
    return subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False, timeout=60)


def status(machine: Machine, config: str, since_seconds: float = 0) -> Status:
    """By the real command, with a history of that length in which all was as it is now."""
    for step in range(4 if since_seconds else 0):
        clock_ms = round((time.time() - since_seconds * (4 - step) / 4) * 1000)
        machine.sample("--interval", f"{since_seconds / 4:.0f}s", clock_ms=clock_ms)
    done = gua(machine, config, "status", "--json")
    assert done.returncode == 0, done.stderr
    found = {card["index"]: card["validation"] for card in json.loads(done.stdout)["gpus"]}
    complaints = [line.removeprefix("gua status: warning: ") for line in done.stderr.splitlines()]
    return Status({index: card for index, card in found.items() if card is not None}, complaints)


def by_redis(machine: Machine, url: str, cards: int = 0, since_seconds: float = 0) -> Status:
    """With so many more cards that nobody uses."""
    for _ in range(cards):
        machine.scenario.add_card()
    return status(machine, f'[reservations]\nredis = "{url}"', since_seconds)


def reserve_by_file(machine: Machine, *rows: str, header: str = "gpu,user,from,to,note", people: str = "") -> str:
    path = machine.folder / "reservations.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return f'[reservations]\nfile = "{path}"\n{people}'


def now() -> int:
    return int(time.time())


def report(machine: Machine, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / "gua-report"), "--data-dir", str(machine.data_dir), "--since", "1h", "--tz", "UTC"]
    command += ["--config", str(machine.folder / "gua.toml"), *options]
    return subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)
