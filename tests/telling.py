"""A machine on whose cards somebody holds memory without work, for `gua remind` and `gua hook` in this process."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gua_report.commands import hook, remind
from gua_report.live import snapshot
from gua_report.mailing import message as sending
from gua_report.telling import log, reminders
from gua_sample.records import Boot, Process, Reading, Source
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Gpu, Job, busy, free, held, series, tick, write

TUESDAY_NOON_MS = MONDAY_MS + DAY_MS + 12 * HOUR_MS
BOOT = Boot("boot-1", 1)
FIVE_MINUTES_MS = 5 * MINUTE_MS
ADMINISTRATOR = "gpu-admins@lab.example"
CONFIG = f'[mail]\nadministrator = "{ADMINISTRATOR}"\ndomain = "lab.example"\n'
# It takes a mail as sendmail does, and keeps each in a file of its own; unless a file `refuse` names the address.
SENDMAIL = """\
#!/bin/sh
for to; do :; done
if grep -qsx "$to" "$0.refuse"; then echo unknown user >&2; exit 67; fi
cat >"$0.$$.mail"
echo "$to" >>"$0.to"
"""
UIDS = {"alice": 1001, "bob": 1002, "carol": 1003, "gdm": 120, "root": 0, "nobody": 65534}


class Done(NamedTuple):
    status: int
    out: str
    errors: str


class Desk:
    """The commands, their history, configuration and outgoing mail. What is on the cards now can be changed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.data_dir, self._capfd = folder, folder / "data", capfd
        self.outbox = folder / "bin"
        self.outbox.mkdir()
        (self.outbox / "sendmail").write_text(SENDMAIL)
        (self.outbox / "sendmail").chmod(0o755)
        self.spool = folder / "notes"
        self.spool.mkdir(mode=0o700)
        self.now_ms = TUESDAY_NOON_MS
        self.gpus: tuple[Gpu, ...] = (held(),)
        self.boot = BOOT
        self.uids: dict[str, int] = dict(UIDS)
        self.gone: set[int] = set()  # pids that /proc does not have any more
        self.configure()
        monkeypatch.setenv("PATH", f"{self.outbox}:/usr/bin:/bin")
        monkeypatch.setenv("TZ", "UTC")
        monkeypatch.setattr(sending, "FOLDERS", ())
        monkeypatch.setattr(snapshot, "machine", self.source)
        monkeypatch.setattr("gua_report.live.observer.Observer.now_ms", lambda _: self.now_ms)
        monkeypatch.setattr(reminders, "user_ids", self.user_ids)
        monkeypatch.setattr("gua_report.people.identities.user_ids", self.user_ids)

    def configure(self, more: str = "", mail: str = CONFIG) -> None:
        text = f'{mail}{more}\n[notes]\nspool = "{self.spool}"\n'
        (self.folder / "gua.toml").write_text(text)

    def source(self) -> Source:
        return Source(lambda: self.boot, self._read, self._describe, lambda uids: {})

    def _read(self, _previous: object) -> Reading:
        return Reading("570.86", [gpu.card() for gpu in self.gpus], [])

    def _describe(self, pid: int, boot: Boot) -> Process:
        facts = tick(0, *self.gpus).processes.get(pid)
        if facts is None or pid in self.gone:
            return Process(pid, None, None, None, None, None, None, None)
        return facts

    def user_ids(self, names: set[str]) -> dict[str, int | None]:
        return {name: self.uids.get(name) for name in names if self.uids.get(name) != -1}

    def write(self, *gpus: Gpu, hours: float = 3, day: float = 26, boot: str = "boot-1") -> None:
        """A history: cards at work for a day, then as given for these hours; and the same on the cards now."""
        start_ms, begin_ms = self.now_ms - round(day * HOUR_MS), self.now_ms - round(hours * HOUR_MS)
        before = [busy(*gpu.jobs, index=gpu.place) if gpu.jobs else free(gpu.place) for gpu in gpus]
        kind = {"every_ms": FIVE_MINUTES_MS, "interval_ms": FIVE_MINUTES_MS, "boot": boot}
        ticks = series(start_ms, (begin_ms - start_ms) // FIVE_MINUTES_MS, *before, **kind)  # type: ignore[arg-type]
        ticks += series(begin_ms, round(hours * HOUR_MS) // FIVE_MINUTES_MS, *gpus, **kind)  # type: ignore[arg-type]
        write(self.data_dir, ticks)
        self.gpus = gpus

    def later(self, hours: float, *gpus: Gpu) -> None:
        """Go on with what is on the cards, or with these, for so long."""
        gpus = gpus or self.gpus
        count = round(hours * HOUR_MS) // FIVE_MINUTES_MS
        write(
            self.data_dir,
            series(self.now_ms, count, *gpus, every_ms=FIVE_MINUTES_MS, interval_ms=FIVE_MINUTES_MS),
        )
        self.now_ms += round(hours * HOUR_MS)
        self.gpus = gpus

    def remind(self, *options: str) -> Done:
        return self._run(remind.main, *options)

    def hook(self, *options: str) -> Done:
        return self._run(hook.main, *options)

    def _run(self, main: Callable[[list[str]], int], *options: str) -> Done:
        self._capfd.readouterr()
        config = ["--data-dir", str(self.data_dir), "--config", str(self.folder / "gua.toml")]
        return Done(main([*config, *options]), *self._capfd.readouterr())

    def recipients(self) -> list[str]:
        path = self.outbox / "sendmail.to"
        return path.read_text().split() if path.exists() else []

    def mails(self) -> list[str]:
        return [path.read_text() for path in sorted(self.outbox.glob("*.mail"))]

    def log(self, name: str = log.REMIND_LOG) -> list[dict[str, Any]]:
        acts, problems = log.read_log(str(self.data_dir), name)
        assert problems == []
        return [{**act._asdict(), "episodes": [one._asdict() for one in act.episodes]} for act in acts]

    def change_log(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.data_dir / log.REMIND_LOG)) as connection, connection:
            connection.execute(statement, values)


def job(user: str, pid: int = 100, memory_mib: int = 20_480, **more: Any) -> Job:
    return Job(pid, user, memory_mib, uid=UIDS.get(user, 1000), **more)


def is_private(path: Path) -> bool:
    return stat.S_IMODE(os.stat(path).st_mode) == 0o600
