"""More attempts of a folder's owner, or of somebody who may write near it, that come to nothing.

Each is tried through the commands, and what is attacked belongs to root.
"""

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests import hostile
from tests.integration.attacks.attempts import (
    DAYS,
    WINDOW,
    advice,
    calmly,
    command,
    copy,
    execute,
    is_tame,
    lonely,
    meanwhile,
    own_processes,
    partition,
)
from tests.machine import call, within
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

pytestmark = [needs_root, pytest.mark.real]

MAGIC = bytes.fromhex("d9d505f920a163d7")


def patched(at: int, *numbers: int) -> Callable[[Path], None]:
    """Other numbers in the header of a database."""

    def patch(path: Path) -> None:
        content = bytearray(path.read_bytes())
        struct.pack_into(f">{len(numbers)}I", content, at, *numbers)
        content[92:96] = content[24:28]  # so that SQLite believes them
        path.write_bytes(content)

    return patch


def made_anew(setting: str) -> Callable[[Path], None]:
    """The same content in a database of another kind."""

    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as old:
            text = "\n".join(old.iterdump())
            marks = [(name, old.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")]
        path.unlink()
        with closing(sqlite3.connect(path, isolation_level=None)) as new:
            new.execute(setting)
            new.executescript(text)
            for name, number in marks:
                new.execute(f"PRAGMA {name} = {number}")

    return make


def with_statistics(path: Path) -> None:
    execute(
        path,
        "ANALYZE",
        "UPDATE sqlite_stat1 SET stat = '9223372036854775807 0 0 0 0 sz=99999999 unordered noskipscan'",
        "INSERT INTO sqlite_stat1 SELECT 'tick', NULL, hex(zeroblob(5000000))",
    )


def with_a_log(path: Path) -> None:
    """A write-ahead log that is in use, and an index of it that is nonsense."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("UPDATE card SET name = 'another'")
        kept = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    for suffix, content in kept.items():
        Path(f"{path}{suffix}").write_bytes(content)
    Path(f"{path}-shm").write_bytes(bytes((number * 37) % 256 for number in range(32768)))


def with_an_extension(path: Path) -> None:
    sql = "CREATE VIEW session AS SELECT 1 AS id, load_extension('/tmp/x.so') AS boot_id, 1 AS boot_time_ms,"
    hostile.redefine(path, "session", "view", f"{sql} NULL AS driver_version FROM pragma_table_info('tick')")


ODD: dict[str, Callable[[Path], None]] = {
    "UTF-16": made_anew("PRAGMA encoding = 'UTF-16be'"),
    "the largest pages": made_anew("PRAGMA page_size = 65536"),
    "statistics": with_statistics,
    "a log": with_a_log,
    "an extension to load": with_an_extension,
    "a search table": lambda path: execute(path, "CREATE VIRTUAL TABLE other USING fts5(a)"),
    "a list of free pages that never ends": patched(32, 3, 0x7FFFFFFF),
    "four billion pages": patched(28, 0xFFFFFFFF),
    "a schema format of the future": patched(44, 0xFFFFFFFF),
    "no pages at all": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("odd", ODD)
def test_no_odd_database_ends_a_command_or_slows_it(folder: Path, odd: str) -> None:
    ODD[odd](partition(folder))
    give(folder)
    for name in ("report", "status", "doctor", "export", "import", "rollup", "sample"):
        with within(10):
            calmly(command(name, folder))


@pytest.mark.parametrize("name", ["report", "export", "doctor", "status", "import"])
def test_a_journal_that_makes_the_file_huge_leaves_nothing_behind(folder: Path, name: str, open_folder: Path) -> None:
    """It says that there were four billion pages: rolled back, in a private copy, that is a file of 16 TB."""
    path = partition(folder)
    header = MAGIC + struct.pack(">5I", 0, 0, 0xFFFFFFFE, 512, 4096)
    path.with_name(path.name + "-journal").write_bytes(header.ljust(1024, b"\0"))
    give(folder)
    temporary = open_folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    before = {one: one.stat().st_size for one in folder.rglob("*")}
    words = {"report": ("report", *WINDOW), "export": ("export", *WINDOW), "status": ("status", "--simulate")}
    where = (folder, "--dry-run", "--data-dir", open_folder / "other") if name == "import" else ("--data-dir", folder)
    with within(10):
        calmly(run(*words.get(name, (name,)), *where, temporary=temporary))
    assert list(temporary.iterdir()) == []
    assert {one: one.stat().st_size for one in folder.rglob("*")} == before


# -- what the owner may do to a process with the owner's uid


@pytest.mark.parametrize("how", ["kill", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE"])
@pytest.mark.parametrize("name", ["status", "export"])
def test_what_the_owner_does_to_the_child_is_told_and_hangs_nothing(folder: Path, how: str, name: str) -> None:
    give(folder, lonely())

    def harm() -> None:
        for pid in own_processes():
            with suppress(ValueError):
                if how == "kill":
                    os.kill(pid, signal.SIGKILL)
                else:
                    resource.prlimit(pid, getattr(resource, how), (0, 0))

    with meanwhile(lonely(), harm):
        began = time.monotonic()
        done = command(name, folder)
    assert done.is_calm, done
    assert time.monotonic() - began < 10
    assert done.returncode == 0 or done.stderr.count("\n") >= 1


# -- sources


def test_a_link_in_a_source_shows_nothing_that_its_owner_can_not_read(
    history: Path, folder: Path, open_folder: Path
) -> None:
    private = copy(history, open_folder / "private", 0)
    private.chmod(0o700)
    shutil.rmtree(folder / "samples")
    (folder / "samples").symlink_to(private / "samples")
    give(folder)
    done = run("import", "--data-dir", open_folder / "other", folder)
    assert done.returncode in (1, 3), done
    assert DAYS[0] not in done.stdout
    assert not (open_folder / "other").exists()


@pytest.mark.parametrize("planted", ["journal", "link to a log", "pipe for a log"])
def test_what_somebody_puts_beside_a_source_of_roots_does_nothing(
    history: Path, open_folder: Path, shared: Path, victim: Path, planted: str
) -> None:
    """SQLite, as root, would delete what a journal names, and give a log to whoever owns the database."""
    path = Path(shutil.copy(partition(history), shared))
    if planted == "journal":
        hostile.plant_journal(path, victim)
    elif planted == "link to a log":
        Path(f"{path}-wal").symlink_to(victim)
    else:
        os.mkfifo(f"{path}-wal")
    beside = next(one for one in shared.iterdir() if one != path)
    os.chown(beside, SOMEBODY, SOMEBODY, follow_symlinks=False)
    done = calmly(run("import", "--data-dir", open_folder / "other", path))
    assert done.returncode == 1
    assert (victim.read_text(), victim.stat().st_uid) == ("of root's", 0)


# -- files of root's under the names of ours, as where fs.protected_hardlinks is off


@pytest.mark.parametrize("name", ["rollup", "sample"])
@pytest.mark.parametrize("place", ["partition", "csv", "rollups.sqlite", ".rollup.lock", "idle.state"])
def test_no_hard_link_to_a_file_is_written_to(
    history: Path, folder: Path, open_folder: Path, name: str, place: str
) -> None:
    give(folder)
    roots = open_folder / "of root's"
    shutil.copy(partition(history), roots)
    roots.chmod(0o644)
    os.utime(roots, (1, 1))
    (folder / "csv").mkdir()
    os.chown(folder / "csv", SOMEBODY, SOMEBODY)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    day = today if name == "sample" else DAYS[1]
    places = {"partition": partition(folder, day), "csv": folder / "csv" / f"{DAYS[0]}.csv"}
    path = places.get(place, folder / place)
    path.unlink(missing_ok=True)
    os.link(roots, path)
    before = roots.read_bytes(), roots.stat().st_uid, roots.stat().st_mode
    words = ("--textfile", folder / "gua.prom") if name == "sample" else ("--compact",)
    verb = ("gua-sample", "--simulate") if name == "sample" else ("rollup",)
    calmly(run(*verb, *words, "--data-dir", folder))
    assert (roots.read_bytes(), roots.stat().st_uid, roots.stat().st_mode) == before


def plant(path: Path, kind: str, target: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
@pytest.mark.parametrize("place", [f"csv/{DAYS[0]}.csv", "rollups.sqlite-wal"])
def test_nothing_in_place_of_what_rollup_makes_hangs_it(folder: Path, victim: Path, place: str, kind: str) -> None:
    path = folder / place
    path.parent.mkdir(exist_ok=True)
    plant(path, kind, victim)
    give(folder)
    for name in ("rollup", "report", "export of sums", "doctor", "rollup"):
        with within(10):
            calmly(command(name, folder))
    assert victim.read_text() == "of root's"


# -- outputs


@pytest.mark.parametrize("planted", ["link", "pipe", "file"])
def test_metrics_take_the_place_of_what_somebody_planted(
    history: Path, open_folder: Path, shared: Path, victim: Path, planted: str
) -> None:
    folder = copy(history, open_folder / "data", 0)
    path = shared / "gua.prom"
    plant(path, planted, victim)
    os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    calmly(run("gua-sample", "--simulate", "--data-dir", folder, "--textfile", path))
    assert victim.read_text() == "of root's"
    assert path.lstat().st_uid == 0
    assert "gua_tick_success 1" in path.read_text()


# -- what the doctor says to type

TYPED = (
    "x'; touch pwned; '.sqlite.corrupt-1",
    "x$(touch pwned)`touch pwned`.sqlite.corrupt-1",
    "x   # ; touch pwned.sqlite.corrupt-1",
    "x   # ' ; touch pwned ; " + "#' " * 30 + ".corrupt-1",
    "-rf ; touch pwned.pending",
    "x\ntouch pwned\n.sqlite.corrupt-1",
)


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("form", ["text", "JSON", "ASCII"])
def test_no_name_of_a_file_is_run_by_what_doctor_says(folder: Path, open_folder: Path, name: str, form: str) -> None:
    """Whoever pastes it, as lines of a terminal or from JSON."""
    path = folder / "samples" / name
    os.mkfifo(path) if name.endswith(".pending") else path.write_text("nothing")
    give(folder)
    done = run("doctor", *{"JSON": ["--json"], "ASCII": ["--ascii"]}.get(form, []), "--data-dir", folder)
    assert is_tame(done.stdout)
    if form == "JSON":
        advised = [one["remedy"] for one in json.loads(done.stdout)["findings"] if one["remedy"]]
    else:
        found = re.findall(r"^ +-> (.*(?:\n {19}.*)*)", done.stdout, re.MULTILINE)
        advised = [
            "\n".join(line[3:] if line.startswith("   ") else line for line in text.split("\n")) for text in found
        ]
    advised = [text for text in advised if "touch" in text]
    assert advised
    tools = open_folder / "tools"
    tools.mkdir()
    for tool in ("sudo", "sqlite3", "fuser"):  # which do nothing
        (tools / tool).write_text("#!/bin/sh\n")
        (tools / tool).chmod(0o755)
    for text in advised:
        path_alone = {"PATH": f"{tools}:/usr/bin:/bin"}
        call(["sh", "-c", text], cwd=tools, env=path_alone, stdin=subprocess.DEVNULL, timeout=10)
    assert not (tools / "pwned").exists()


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="there is no sqlite3 to type")
def test_to_recover_a_file_as_root_gives_nobody_a_file_of_roots(folder: Path, victim: Path) -> None:
    """SQLite, as root, gives a log to the owner of its database: not so through a link."""
    aside = partition(folder).with_name(f"{DAYS[1]}.sqlite.corrupt-1")
    shutil.copy(partition(folder), aside)
    execute(aside, "PRAGMA journal_mode = wal")
    Path(f"{aside}-wal").symlink_to(victim)
    give(folder)
    for text in advice(folder, "recover"):
        call(["sh", "-c", text.split(";")[0]], cwd=victim.parent, timeout=30)
    assert (victim.read_text(), victim.stat().st_uid, victim.stat().st_mode & 0o777) == ("of root's", 0, 0o600)
