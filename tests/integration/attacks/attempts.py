"""Attempts of a folder's owner, or of somebody who may write near it, on root or on whoever else reads it.

Each was tried through the commands. What is attacked lies in temporary folders, and belongs to root.
"""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.users import SOMEBODY
from tests.verbs import Done, give, run

DAYS = ("2026-11-09", "2026-11-10", "2026-11-11")  # of gua demo, which --simulate takes for now
WINDOW = ("--from", "2026-11-09", "--to", "2026-11-12", "--tz", "UTC")
ANOTHER = SOMEBODY + 1
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202e\x00"  # what steers a terminal
MAIL = ("mail", "--dry-run", "--to", "root@localhost", "--since", DAYS[0], "--config", "/dev/null", "--data-dir", "DIR")

# Each with the folder in the place of DIR; those that only read come first.
READERS = {
    "report": ("report", *WINDOW, "--data-dir", "DIR"),
    "status": ("status", "-v", "--simulate", "--data-dir", "DIR"),
    "free": ("free", "--simulate", "--data-dir", "DIR"),
    "doctor": ("doctor", "--data-dir", "DIR"),
    "export": ("export", *WINDOW, "--data-dir", "DIR"),
    "export of processes": ("export", "--what", "process_ticks", *WINDOW, "--data-dir", "DIR"),
    "export of sums": ("export", "--what", "rollups", *WINDOW, "--data-dir", "DIR"),
    "rollup --dry-run": ("rollup", "--dry-run", "--data-dir", "DIR"),
    "mail --dry-run": MAIL,
    "import --dry-run": ("import", "--dry-run", "--data-dir", "OTHER", "DIR"),
}
WRITERS = {
    "rollup": ("rollup", "--compact", "--data-dir", "DIR"),
    "import": ("import", "--data-dir", "OTHER", "DIR"),
    "sample": ("gua-sample", "--simulate", "--data-dir", "DIR"),
}
COMMANDS = READERS | WRITERS
IN_THE_FOLDER = [name for name in COMMANDS if not name.startswith("import")]


def copy(history: Path, path: Path, uid: int) -> Path:
    """Copy a history to a folder that belongs to that user."""
    shutil.copytree(history, path)
    path.chmod(0o755)
    give(path, uid)
    return path


def command(name: str, folder: Path, uid: int = 0) -> Done:
    """Run one of the commands on a folder."""
    other = folder.parent / "other"
    words = [str(folder) if word == "DIR" else str(other) if word == "OTHER" else word for word in COMMANDS[name]]
    return run(*words, uid=uid)


def calmly(done: Done) -> Done:
    """What a command did, which is neither a mistake of ours nor more than it may take."""
    assert done.is_calm, done
    return done


def advice(folder: Path, word: str) -> list[str]:
    """What the doctor says to type, as far as it has this word in it."""
    findings = json.loads(run("doctor", "--json", "--data-dir", folder).stdout)["findings"]
    advised = [one["remedy"] for one in findings if one["remedy"] and word in one["remedy"]]
    assert advised
    return advised


def partition(folder: Path, day: str = DAYS[1]) -> Path:
    """The file of a day's ticks."""
    return folder / "samples" / f"{day}.sqlite"


def execute(path: Path, *statements: str) -> None:
    """Change a database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def plant_link(path: Path, target: Path) -> None:
    """Make a link of somebody's."""
    path.symlink_to(target)
    os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)


@contextmanager
def meanwhile(uid: int, act: Callable[[], None]) -> Iterator[None]:
    """Let somebody do something again and again while the commands of a block run."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            while True:
                with suppress(OSError):
                    act()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def is_tame(text: str) -> bool:
    """Whether a text can be printed without steering a terminal."""
    return all(line.isprintable() for line in text.replace("\t", "").split("\n"))


def lonely() -> int:
    """A user whom no other test, at the same time, has processes of."""
    return 100_000 + os.getpid()


def own_processes() -> list[int]:
    """Those that run as whoever asks, without that one."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError, IndexError):
            if name.isdigit() and int(name) != os.getpid():
                status = Path(f"/proc/{name}/status").read_text()
                if status.split("Uid:")[1].split()[0] == str(os.getuid()):
                    found.append(int(name))
    return found
