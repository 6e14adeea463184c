"""Attempts of a folder's owner, or of somebody who may write near it, on root or on whoever else reads it.

Each was tried through the commands. What is attacked lies in temporary folders, and belongs to root.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from gua_report.commands import export as exporting
from gua_report.machine import as_owner
from gua_report.upkeep import nightly
from gua_sample import safe_file, store, tick
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests import hostile
from tests.users import SOMEBODY, needs_root
from tests.verbs import Done, give, run

pytestmark = needs_root

DAYS = ("2026-11-09", "2026-11-10", "2026-11-11")  # of gua demo, which --simulate takes for now
WINDOW = ("--from", "2026-11-09", "--to", "2026-11-12", "--tz", "UTC")
ANOTHER = SOMEBODY + 1

READERS = {
    "report": ("gua", "report", *WINDOW, "--data-dir", "DIR"),
    "status": ("gua", "status", "-v", "--simulate", "--data-dir", "DIR"),
    "free": ("gua", "free", "--simulate", "--data-dir", "DIR"),
    "doctor": ("gua", "doctor", "--data-dir", "DIR"),
    "export": ("gua", "export", *WINDOW, "--data-dir", "DIR"),
    "export of processes": ("gua", "export", "--what", "process_ticks", *WINDOW, "--data-dir", "DIR"),
    "export of sums": ("gua", "export", "--what", "rollups", *WINDOW, "--data-dir", "DIR"),
    "rollup --dry-run": ("gua", "rollup", "--dry-run", "--data-dir", "DIR"),
    "import --dry-run": ("gua", "import", "--dry-run", "--data-dir", "OTHER", "DIR"),
}
WRITERS = {
    "rollup": ("gua", "rollup", "--compact", "--data-dir", "DIR"),
    "import": ("gua", "import", "--data-dir", "OTHER", "DIR"),
    "sample": ("gua-sample", "--simulate", "--data-dir", "DIR"),
}
COMMANDS = READERS | WRITERS
IN_THE_FOLDER = [name for name in COMMANDS if not name.startswith("import")]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    ticks = Laboratory(0, 3).history(EXAMPLE_END_MS - 2 * DAY_MS - DAY_MS // 2, EXAMPLE_END_MS, 300_000)
    store.append_history(samples, ticks)
    return folder


@pytest.fixture
def folder(history: Path, open_folder: Path) -> Path:
    """A copy of it, in a folder of root's, that belongs to somebody."""
    return copy(history, open_folder / "data", SOMEBODY)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("of root's")
    path.chmod(0o600)
    return path


def copy(history: Path, path: Path, uid: int) -> Path:
    shutil.copytree(history, path)
    path.chmod(0o755)
    give(path, uid)
    return path


def command(name: str, folder: Path, uid: int = 0) -> Done:
    other = folder.parent / "other"
    words = [str(folder) if word == "DIR" else str(other) if word == "OTHER" else word for word in COMMANDS[name]]
    return run(*words[words[0] == "gua" :], uid=uid)


def partition(folder: Path, day: str = DAYS[1]) -> Path:
    return folder / "samples" / f"{day}.sqlite"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def meanwhile(uid: int, act: Callable[[], None]) -> Iterator[None]:
    """Somebody who does something again and again while the commands of a block run."""
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


# -- who somebody becomes, and on which folder


@pytest.mark.parametrize("name", IN_THE_FOLDER)
def test_root_does_not_go_through_a_link_that_somebody_else_can_turn(
    history: Path, open_folder: Path, name: str
) -> None:
    """It leads to a folder of root's while that is asked, and to somebody's when it is opened."""
    theirs = open_folder / "theirs"
    theirs.mkdir()
    give(theirs)
    roots = copy(history, open_folder / "roots", 0)
    (theirs / "link").symlink_to(roots)
    os.chown(theirs / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    before = sorted(roots.rglob("*"))
    done = command(name, theirs / "link")
    assert done.returncode == 1, done
    assert f"uid {SOMEBODY}" in done.stdout + done.stderr
    assert sorted(roots.rglob("*")) == before


@pytest.mark.parametrize("name", ["sample", "rollup"])
def test_nothing_is_written_elsewhere_while_somebody_turns_a_link(
    history: Path, open_folder: Path, tmp_path: Path, name: str
) -> None:
    theirs, elsewhere = open_folder / "theirs", tmp_path / "of root's"
    theirs.mkdir()
    elsewhere.mkdir()
    roots = copy(history, open_folder / "roots", 0)
    crafted = copy(history, theirs / "crafted", SOMEBODY)
    (crafted / "csv").symlink_to(elsewhere)
    if name == "sample":
        shutil.rmtree(crafted / "samples")
        (crafted / "samples").symlink_to(elsewhere)
    (theirs / "link").symlink_to(roots)
    give(theirs)

    def turn() -> None:
        for target in (roots, crafted):
            os.symlink(target, theirs / "new")
            os.rename(theirs / "new", theirs / "link")
            time.sleep(0.0005)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, turn):
        while time.monotonic() < ends and not list(elsewhere.iterdir()):
            command(name, theirs / "link")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["report", "rollup", "export"])
@pytest.mark.parametrize("owner", [pwd.getpwnam("nobody").pw_uid, SOMEBODY], ids=["with a name", "without"])
@pytest.mark.parametrize("group", [0, ANOTHER])
def test_a_group_that_the_owner_is_not_in_is_not_taken_on(
    folder: Path, history: Path, name: str, owner: int, group: int
) -> None:
    """After a chown without a group, or in a folder that hands its group on, a folder's group may be anybody's."""
    hidden = copy(history, folder.parent / "for a group", 0)
    os.chown(hidden, 0, group)
    hidden.chmod(0o750)
    shutil.rmtree(folder / "samples")
    (folder / "samples").symlink_to(hidden / "samples")
    os.chown(folder, owner, group)
    done = command(name, folder)
    assert done.is_calm, done
    assert DAYS[0] not in done.stdout
    assert not (folder / "csv").exists()


def test_a_folder_of_somebody_whose_group_is_roots_can_be_read(folder: Path) -> None:
    for path in (folder, folder / "samples"):
        os.chown(path, SOMEBODY, 0)
    assert command("export", folder).returncode == 0


@pytest.mark.parametrize("place", ["csv", "edges"])
@pytest.mark.parametrize("owner", [0, SOMEBODY])
@pytest.mark.parametrize("how", ["owned", "open"])
def test_root_writes_to_no_folder_in_which_others_plant_links(
    history: Path, open_folder: Path, victim: Path, place: str, owner: int, how: str
) -> None:
    folder = copy(history, open_folder / "data", owner)
    inner = folder / place
    inner.mkdir()
    (inner / f"{DAYS[0]}.csv").symlink_to(victim)
    give(inner, ANOTHER if how == "owned" else owner)
    inner.chmod(0o755 if how == "owned" else 0o777)
    os.utime(victim, (1, 1))  # so that the file seems to be older than the ticks
    victim.chmod(0o666)  # were it owner's, he could write it
    victim.parent.chmod(0o777)
    done = command("rollup", folder)
    assert done.returncode == 1, done
    assert "not as root" in done.stderr
    assert victim.read_text() == "of root's"


def test_a_daily_file_takes_the_place_of_a_link_and_does_not_follow_it(folder: Path, open_folder: Path) -> None:
    target = open_folder / "target"
    target.mkdir()
    (target / "file").write_text("of somebody's")
    give(target)
    (folder / "csv").mkdir()
    (folder / "csv" / f"{DAYS[0]}.csv").symlink_to(target / "file")
    os.utime(target / "file", (1, 1))
    give(folder)
    assert command("rollup", folder).returncode == 0
    assert (target / "file").read_text() == "of somebody's"


ACCESS_LIST = bytes.fromhex("02000000 01000700ffffffff 02000700") + ANOTHER.to_bytes(4, "little")
ACCESS_LIST += bytes.fromhex("04000500ffffffff 10000700ffffffff 20000500ffffffff")


@pytest.mark.parametrize("owner", [0, SOMEBODY])
def test_an_access_list_that_lets_others_write_is_seen(history: Path, open_folder: Path, owner: int) -> None:
    folder = copy(history, open_folder / "data", owner)
    try:
        os.setxattr(folder, "system.posix_acl_access", ACCESS_LIST)
    except OSError:
        pytest.fail("this file system has no access lists")
    done = command("rollup", folder)
    assert (done.returncode, "may write to" in done.stderr) == (1, True), done


def test_the_sampler_as_root_deletes_nothing_where_everybody_may_write(
    history: Path, open_folder: Path, victim: Path
) -> None:
    """A journal that names a file takes the place of a harmless one, between the look at it and its use."""
    folder = copy(history, open_folder / "data", 0)
    (folder / "samples").chmod(0o777)
    journal = partition(folder).with_name(f"{DAYS[1]}.sqlite-journal")
    hostile.plant_journal(partition(folder), victim)
    crafted = journal.read_bytes()
    journal.write_bytes(b"harmless")
    give(journal)
    ready = open_folder / "theirs"
    ready.mkdir()
    give(ready)

    def swap() -> None:
        for content in (b"harmless", crafted):
            (ready / "new").write_bytes(content)
            os.rename(ready / "new", journal)
            time.sleep(0.0002)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, swap):
        while time.monotonic() < ends and victim.exists():
            command("sample", folder)
    assert victim.read_text() == "of root's"


# -- terminals

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202e\x00"


def is_tame(text: str) -> bool:
    return all(line.isprintable() for line in text.replace("\t", "").split("\n"))


def with_names(path: Path) -> None:
    """Put what steers a terminal wherever a text is stored."""
    hidden = "char(27, 93, 48, 59, 120, 7, 27, 91, 50, 74, 155, 49, 109, 13, 10, 8238, 60, 98, 62, 124, 96)"
    execute(
        path,
        f"UPDATE card SET uuid = uuid || {hidden}, name = name || {hidden}, missing = {hidden}",
        f"UPDATE card SET status = {hidden}, parent_uuid = {hidden} WHERE id % 2",
        f"UPDATE session SET boot_id = boot_id || {hidden}, driver_version = driver_version || {hidden}",
        f"UPDATE process SET user = user || {hidden}, login_user = {hidden}, command = command || {hidden}",
        f"UPDATE process SET cgroup = '/docker/' || {hidden} WHERE id % 3 = 0",
        f"UPDATE process SET type = type || {hidden} WHERE id % 3 = 1",
        f"UPDATE tick SET error = {hidden} WHERE id % 5 = 0 OR id = (SELECT max(id) FROM tick)",
    )


def with_a_trigger(path: Path) -> None:
    execute(path, f'CREATE TRIGGER "t{ESCAPE[:-1]}" AFTER INSERT ON tick BEGIN DELETE FROM tick; END')


def with_a_damaged_schema(path: Path) -> None:
    execute(path, f'CREATE TABLE "t{ESCAPE[:-1]}" (a)')
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = -7 WHERE name GLOB 't*owned*'")


def with_values(path: Path) -> None:
    hostile.change(path, f"UPDATE tick SET ts_ms = '{ESCAPE[:-1]}' WHERE id = 3")


def with_files(path: Path) -> None:
    for name in (f"{ESCAPE[:-1]}.pending", f"x{ESCAPE[:-1]}.sqlite.corrupt-1", f"{ESCAPE[:-1]}.csv"):
        path.with_name(name).write_text("timestamp,user,pid,gpu,usage\nbad\n")


@pytest.mark.parametrize("plant", [with_names, with_a_trigger, with_a_damaged_schema, with_values, with_files])
@pytest.mark.parametrize("name", [*COMMANDS, "report as markdown", "report as HTML", "report as CSV"])
def test_nothing_in_a_folder_steers_roots_terminal(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    for day in DAYS if plant is with_names else DAYS[1:2]:
        plant(partition(folder, day))
    give(folder)
    if name in ("export of sums", "status"):
        run("rollup", "--data-dir", folder)
    if name in COMMANDS:
        done = command(name, folder)
    else:
        form = name.rsplit(" ", 1)[1].lower()
        section = ("--section", "gpus") if form == "csv" else ()
        done = run("report", *WINDOW, "--format", form, *section, "--data-dir", folder)
    assert done.is_calm, done
    assert is_tame(done.stdout), done.stdout
    assert is_tame(done.stderr), done.stderr
    assert "<b>" not in done.stdout or "HTML" not in name


def test_names_of_files_to_import_do_not_steer_roots_terminal(open_folder: Path) -> None:
    source = open_folder / "csvs"
    source.mkdir()
    header = "timestamp,user,pid,gpu,usage\n"
    (source / f"a{ESCAPE[:-1]}.csv").write_text(header + "bad\n1794182400,x,1,0,5\n")
    (source / f"b{ESCAPE[:-1]}.csv").write_text("nothing\n")
    os.mkfifo(source / f"c{ESCAPE[:-1]}.csv")
    give(source)
    for words in ((), ("--dry-run",)):
        done = run("import", *words, "--data-dir", open_folder / "other", source)
        assert done.is_calm, done
        assert is_tame(done.stdout + done.stderr), done


# -- what takes time without a step of SQLite's machine, which its time limit counts

SLOW = "length(hex(zeroblob(ts_ms % 3 + 60000000)))"


def with_a_slow_index(path: Path) -> None:
    """Found wrong by nobody: as many entries as rows, of a table that is changed or packed."""
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"UPDATE sqlite_master SET sql = 'CREATE INDEX slow ON tick ({SLOW})' WHERE name = 'slow'")


def with_a_slow_partial_index(path: Path) -> None:
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = f"CREATE INDEX slow ON tick (ts_ms) WHERE {SLOW} > 0"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'slow'", (sql,))


def with_a_slow_check(path: Path) -> None:
    execute(path, "CREATE TABLE slow (ts_ms)", "INSERT INTO slow SELECT ts_ms FROM tick, (SELECT 1 UNION SELECT 2)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = f"CREATE TABLE slow (ts_ms, CHECK ({SLOW} > 0))"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'slow'", (sql,))


def with_a_slow_default(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'tick'").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        sql = sql.replace("pending_key INTEGER", "pending_key INTEGER, slow TEXT DEFAULT (hex(zeroblob(60000000)))")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'tick'", (sql,))


SLOWED = [with_a_slow_index, with_a_slow_partial_index, with_a_slow_check, with_a_slow_default]


@pytest.mark.parametrize("plant", SLOWED)
@pytest.mark.parametrize("name", ["doctor", "rollup", "export", "import"])
def test_no_schema_makes_a_command_slow(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    for day in DAYS:
        plant(partition(folder, day))
    give(folder)
    began = time.monotonic()
    done = command(name, folder)
    assert time.monotonic() - began < 5, done
    assert done.is_calm, done


@pytest.mark.parametrize("plant", SLOWED)
def test_no_schema_makes_an_import_into_a_folder_slow(
    folder: Path, history: Path, plant: Callable[[Path], None]
) -> None:
    for day in DAYS:
        execute(partition(folder, day), "DELETE FROM card_sample", "DELETE FROM process_sample", "DELETE FROM tick")
        plant(partition(folder, day))
    give(folder)
    began = time.monotonic()
    done = run("import", "--data-dir", folder, history)
    assert time.monotonic() - began < 5, done
    assert done.is_calm, done


# -- a small file that becomes a large answer


def with_a_long_name(path: Path) -> None:
    """Half a gigabyte of CSV from a file of three megabytes."""
    execute(
        path, "UPDATE card SET name = hex(zeroblob(1000000))", "UPDATE process SET command = hex(zeroblob(1000000))"
    )


@pytest.mark.parametrize("name", ["export", "export of processes", "report", "rollup", "import"])
def test_a_long_name_is_not_repeated_at_each_tick(folder: Path, name: str) -> None:
    with_a_long_name(partition(folder))
    give(folder)
    done = command(name, folder)
    assert done.is_calm, done.stderr[:500]
    assert len(done.stdout) < 5_000_000
    assert sum(file.stat().st_size for file in folder.rglob("*.csv")) < 5_000_000


@pytest.mark.parametrize("table", [None, "tick"])
@pytest.mark.parametrize("name", ["report", "status", "doctor", "rollup", "import", "sample", "export"])
def test_pages_that_lead_to_the_same_page_again_and_again_end_no_command(
    folder: Path, table: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_file, "VISIT_SECONDS", 0.3)
    day = time.strftime("%Y-%m-%d", time.gmtime()) if name == "sample" else DAYS[1]
    os.rename(partition(folder), partition(folder, day))
    hostile.make_endless(partition(folder, day), table)
    give(folder)
    began = time.monotonic()
    done = command(name, folder)
    assert done.is_calm, done
    assert time.monotonic() - began < 10


# -- the child that reads for root


def child_that_sends(*messages: bytes, seconds: float = 0) -> Callable[..., NoReturn]:
    """What the child would be, had a file's maker got hold of it."""

    def produce(owner: object, question: object, writing: int) -> NoReturn:
        for message in messages:
            rest = memoryview(message)
            with suppress(OSError):
                while rest:
                    rest = rest[os.write(writing, rest) :]
        os.close(writing)
        time.sleep(seconds)
        os._exit(0)

    return produce


def message(label: object, content: bytes, size: int | None = None) -> bytes:
    return json.dumps([label, len(content) if size is None else size]).encode() + b"\n" + content


NONSENSE = {
    "nothing": b"",
    "brackets": b"[" * 60_000 + b"\n",
    "a line that never ends": b"[" + b"1" * 200_000,
    "digits": b'["answer", ' + b"9" * 5000 + b"]\n",
    "a size of ages": message("answer", b"x", 1 << 60),
    "a size below zero": message("answer", b"x", -1),
    "no JSON": message("answer", b"\xff"),
    "an answer of brackets": message("answer", b"[" * 1_000_000),
    "an answer of digits": message("answer", b"9" * 10_000),
    "an error of no kind": message("error", b'["SystemExit", "x"]'),
    "an error of another kind": message("error", b'["DriverError", "x"]'),
    "an error that is none": message("error", b"7"),
    "an error with escapes": message("error", json.dumps(["StoreError", ESCAPE]).encode()),
    "a mistake with escapes": message("bug", ESCAPE.encode()),
    "problems with escapes": message("problems", json.dumps({"problems": [ESCAPE], "left_out": ESCAPE}).encode()),
    "a source with escapes": message("source", json.dumps([ESCAPE, [ESCAPE]]).encode())
    + message(ESCAPE, json.dumps([[], [[[ESCAPE, ESCAPE, 1, [ESCAPE]]], [[ESCAPE, ESCAPE]], [ESCAPE]]]).encode()),
    "a source of no ticks": message("source", b'["x", ["y"]]') + message("y", b'[[[1], {"a": 2}, null], [[], [], []]]'),
}


@pytest.mark.parametrize("sent", NONSENSE)
def test_whatever_the_child_sends_does_nothing_to_root(
    folder: Path, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_owner, "_produce", child_that_sends(NONSENSE[sent]))
    before = sorted(folder.parent.rglob("*"))
    for name in ("report", "status", "export", "import"):
        done = command(name, folder)
        assert done.returncode in (0, 1, 3), (name, done)
        assert "Traceback" not in done.stderr
        assert is_tame(done.stdout + done.stderr), (name, done)
    assert [path for path in sorted(folder.parent.rglob("*")) if path not in before] == []


@pytest.mark.parametrize("label", ["../../../../elsewhere", "2026-11-10/../../..", "", "2026-13-45", ESCAPE])
def test_what_the_child_calls_a_day_is_no_path(
    folder: Path, label: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(as_owner, "_produce", child_that_sends(message(label, b"PAR1")))
    output = tmp_path / "a" / "b" / "output"
    words = ("--format", "parquet", "-o", output, "--data-dir", folder)
    done = run("export", *WINDOW, *words)
    assert done.returncode == 1, done
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_child_that_is_stopped_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_owner, "LONGEST_SILENCE_SECONDS", 1.0)
    give(folder, lonely())

    def stop() -> None:
        for pid in own_processes():
            os.kill(pid, signal.SIGSTOP)

    with meanwhile(lonely(), stop):
        done = command("report", folder)
    assert (done.returncode, "stopped" in done.stderr) == (1, True), done


def test_a_child_that_does_not_end_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_owner, "LONGEST_END_SECONDS", 0.5)
    monkeypatch.setattr(as_owner, "_produce", child_that_sends(message("2026-11-10", b"x"), seconds=60))
    began = time.monotonic()
    assert command("export", folder).returncode == 1
    assert time.monotonic() - began < 10


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


@pytest.mark.parametrize("name", ["report", "rollup"])
def test_the_owner_can_not_look_into_what_reads_for_root(folder: Path, open_folder: Path, name: str) -> None:
    """Its memory has root's environment and configuration, with a password of Redis perhaps."""
    found = open_folder / "found"
    found.mkdir()
    for path in (found, folder):
        give(path, lonely())
    library = ctypes.CDLL(None, use_errno=True)

    def look() -> None:
        for pid in own_processes():
            (found / "seen").write_text("it was there")
            for file in ("environ", "mem", "maps", "fd/0", "fd/1"):
                # One that has just ended can be opened by anybody: there is nothing in it.
                with suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as opened:
                    if opened.read(1):
                        (found / file.replace("/", "")).write_text("it could be read")
            if library.ptrace(16, pid, 0, 0) == 0:  # PTRACE_ATTACH
                (found / "ptrace").write_text("it could be traced")
        time.sleep(0.001)

    with meanwhile(lonely(), look):
        assert command(name, folder).returncode == 0
    assert sorted(path.name for path in found.iterdir()) == ["seen"]


def test_the_child_has_nothing_of_roots_open(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file that root writes to, nor a terminal of which it could type."""

    def look(*_: object) -> Iterator[tuple[str, bytes]]:
        kinds = []
        for number in range(100):
            with suppress(OSError):
                found = os.fstat(number)
                kinds.append([number, stat.S_IFMT(found.st_mode), found.st_uid, os.major(found.st_rdev)])
        yield "2026-11-10", json.dumps([kinds, os.getsid(0) == os.getpid(), os.getresuid(), os.getgroups()]).encode()

    monkeypatch.setattr(exporting, "read_blocks", look)
    output = tmp_path / "output.csv"
    with output.open("w"):
        assert run("export", *WINDOW, "-o", output, "--data-dir", folder).returncode == 0
    kinds, is_alone, uids, groups = json.loads(output.read_text())
    opened = {number: kind for number, kind, _, _ in kinds}
    assert (opened.pop(0), opened.pop(1)) == (stat.S_IFCHR, stat.S_IFCHR)
    opened.pop(2)
    assert list(opened.values()) == [stat.S_IFIFO]  # to speak through
    assert (is_alone, uids, groups) == (True, [SOMEBODY] * 3, [])


# -- locks, outputs and sources


def test_a_lock_that_is_held_for_ever_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "LONGEST_WAIT_SECONDS", 0.5)
    (folder / ".rollup.lock").touch()
    give(folder)
    with (folder / ".rollup.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command("rollup", folder)
    assert (done.returncode, "is held by another process" in done.stderr) == (1, True), done
    assert command("rollup", folder).returncode == 0


@pytest.mark.parametrize("verb", ["report", "export"])
@pytest.mark.parametrize("planted", ["link", "file"])
def test_an_output_that_somebody_planted_in_a_shared_folder_is_refused(
    folder: Path, open_folder: Path, victim: Path, verb: str, planted: str
) -> None:
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    output = shared / "output.csv"
    output.symlink_to(victim) if planted == "link" else output.write_text("")
    os.chown(output, SOMEBODY, SOMEBODY, follow_symlinks=False)
    done = run(verb, *WINDOW, "-o", output, "--data-dir", folder)
    assert (done.returncode, "where everybody may write" in done.stderr) == (1, True), done
    assert victim.read_text() == "of root's"
    assert os.lstat(output).st_size < 1000
    output.unlink()
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0
    assert output.stat().st_uid == 0
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0


def test_metrics_of_a_run_that_failed_early_are_not_written_as_root(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "EARLIEST_MS", 1 << 60)  # the clock was never set
    metrics = open_folder / "metrics"
    metrics.mkdir()
    give(metrics)
    words = ("gua-sample", "--simulate", "--data-dir", folder, "--textfile", metrics / "gua.prom")
    assert run(*words).returncode == 1
    assert {path.stat().st_uid for path in (folder / "idle.state", metrics / "gua.prom")} == {SOMEBODY}


def test_a_folder_that_is_refused_gets_no_state_of_metrics_either(history: Path, open_folder: Path) -> None:
    folder = copy(history, open_folder / "data", 0)
    folder.chmod(0o777)
    done = run("gua-sample", "--simulate", "--data-dir", folder, "--textfile", open_folder / "gua.prom")
    assert done.returncode == 1
    assert not (folder / "idle.state").exists()
    assert not (open_folder / "gua.prom").exists()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_source_of_roots_that_somebody_can_exchange_is_not_read_as_root(
    history: Path, open_folder: Path, kind: str
) -> None:
    theirs = open_folder / "theirs"
    (theirs / "inner").mkdir(parents=True)
    give(theirs)
    source = copy(history, theirs / "inner" / "roots", 0)
    os.chown(theirs / "inner", 0, 0)
    path = source if kind == "folder" else partition(source)
    done = run("import", "--data-dir", open_folder / "other", path)
    assert (done.returncode, f"uid {SOMEBODY}" in done.stderr) == (1, True), done
    assert not (open_folder / "other").exists()


def test_the_doctor_advises_nothing_that_deletes_a_file(folder: Path, victim: Path) -> None:
    """To look at a damaged file as root is to roll back the journal beside it."""
    path = partition(folder)
    hostile.plant_journal(path, victim)
    give(folder)
    done = run("doctor", "--json", "--data-dir", folder)
    remedies = [one["remedy"] for one in json.loads(done.stdout)["findings"] if one["remedy"]]
    advised = [text for text in remedies if "recover" in text]
    assert advised
    for text in advised:
        subprocess.run(["sh", "-c", text], cwd=folder, check=False, capture_output=True)
    assert victim.read_text() == "of root's"
