"""Attempts on root around a data folder: where it writes its output, what it imports, what it prints and advises."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import page, report
from gua_report.console import whole_file
from gua_report.importing import opening
from gua_report.machine import child
from gua_sample import rights
from gua_sample.errors import StoreError
from gua_sample.safe_file import replacing
from tests import verbs
from tests.integration.attacks.attempts import (
    DAYS,
    ESCAPE,
    WINDOW,
    advice,
    command,
    copy,
    execute,
    is_tame,
    lonely,
    meanwhile,
    own_processes,
    partition,
    plant_link,
)
from tests.machine import call
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

pytestmark = needs_root

AT_FDCWD, RENAME_EXCHANGE = -100, 2


def end_all_of(uid: int) -> None:
    """End the children of a command that was killed: they are in a session of their own."""

    def end() -> None:
        for pid in own_processes():
            os.kill(pid, signal.SIGKILL)

    with meanwhile(uid, end):
        time.sleep(0.5)


# -- where root writes to


def test_an_export_follows_no_link_that_is_planted_while_it_writes(
    folder: Path, shared: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant_then_replace(name: str, **how: Any) -> Any:
        plant_link(shared / name, victim)
        return replacing(name, **how)

    monkeypatch.setattr(whole_file, "replacing", plant_then_replace)
    done = run("export", *WINDOW, "-o", shared / "out.csv", "--data-dir", folder)
    assert (done.returncode, victim.read_text()) == (0, "of root's")
    assert not (shared / "out.csv").is_symlink()


@pytest.mark.parametrize("verb", ["report", "export", "page"])
def test_no_output_goes_through_a_link_that_takes_the_place_of_a_file(
    folder: Path, theirs: Path, victim: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It comes after links were followed, and before the file is looked at."""
    find = whole_file.open_folder

    def find_then_exchange(*how: Any) -> tuple[int, str]:
        found = find(*how)
        (theirs / found[1]).unlink(missing_ok=True)
        plant_link(theirs / found[1], victim)
        return found

    monkeypatch.setattr(whole_file, "open_folder", find_then_exchange)
    if verb == "page":
        monkeypatch.setattr(page, "check_place", lambda path: None)  # as if it were exchanged after that
        done = run("page", theirs, "--names", "none", "--data-dir", folder)
    else:
        monkeypatch.setattr(report, "check_place", lambda path: None)
        done = run(verb, *WINDOW, "-o", theirs / "out.csv", "--data-dir", folder)
    assert (victim.stat().st_mode & 0o777, victim.read_text()) == (0o600, "of root's")
    assert (done.returncode, "leads through a link" in done.stderr) == (1, True), done


def test_nobody_wins_a_race_for_an_output_in_their_own_folder(theirs: Path, victim: Path) -> None:
    """They exchange their file and a link, which takes one call of the kernel; root's writing may replace the link."""
    output, other = theirs / "out.txt", theirs / "other"
    for path in (output, other):
        path.touch()
    give(theirs)
    library = ctypes.CDLL(None)

    def exchange() -> None:
        if not (output.is_symlink() or other.is_symlink()):
            other.unlink()
            other.symlink_to(victim)
        for _ in range(10):
            library.renameat2(AT_FDCWD, os.fsencode(output), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)

    written = 0
    with meanwhile(SOMEBODY, exchange):
        for _ in range(400):
            with suppress(StoreError), whole_file.whole_file(str(output)) as file:
                file.write(b"a report")
                written += 1
    assert (victim.stat().st_mode & 0o777, victim.read_text()) == (0o600, "of root's")
    assert written


@pytest.mark.parametrize("verb", ["report", "export"])
def test_root_does_not_wait_at_a_pipe_of_somebodys(folder: Path, theirs: Path, verb: str) -> None:
    os.mkfifo(theirs / "pipe")
    give(theirs)
    done = run(verb, *WINDOW, "-o", theirs / "pipe", "--data-dir", folder, seconds=10)
    assert (done.returncode, f"is a pipe of uid {SOMEBODY}'s" in done.stderr) == (1, True), done


@pytest.mark.parametrize("uid", [0, SOMEBODY])
def test_ones_own_pipe_is_written_to(folder: Path, theirs: Path, uid: int) -> None:
    os.mkfifo(theirs / "pipe")
    give(theirs, uid)
    reader = os.open(theirs / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    words = ("--section", "headline", "--data-dir", folder)
    done = run("report", *WINDOW, *words, "-o", theirs / "pipe", uid=uid)
    got = os.read(reader, 4)
    os.close(reader)
    assert (done.returncode, got) == (0, run("report", *WINDOW, *words).stdout[:4].encode()), done


@pytest.mark.parametrize("name", ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"])
def test_what_is_open_already_can_be_written_to(folder: Path, name: str) -> None:
    words = ("report", *WINDOW, "--section", "headline", "--data-dir", folder)
    done = run(*words, "-o", name)
    assert (done.returncode, done.stderr) == (0, run(*words).stdout)


def test_pages_change_no_mode_of_a_device(folder: Path, tmp_path: Path) -> None:
    pipe, pages = tmp_path / "device", tmp_path / "pages"  # stands for /dev/null
    os.mkfifo(pipe, 0o600)
    pages.mkdir()
    (pages / "index.html").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    done = run("page", pages, "--names", "none", "--page", "week", "--data-dir", folder)
    os.close(reader)
    assert (done.returncode in (0, 3), pipe.stat().st_mode & 0o777) == (True, 0o600), done


@pytest.mark.parametrize("verb", ["report", "export"])
def test_nobody_wins_a_race_for_output_in_a_shared_folder(folder: Path, shared: Path, victim: Path, verb: str) -> None:
    def turn() -> None:
        os.symlink(victim, shared / "out.csv")
        os.unlink(shared / "out.csv")

    with meanwhile(SOMEBODY, turn):
        for _ in range(8):
            run(verb, *WINDOW, "-o", shared / "out.csv", "--data-dir", folder)
            (shared / "out.csv").unlink(missing_ok=True)
    assert victim.read_text() == "of root's"


@pytest.mark.parametrize("planted", ["file", "folder"])
def test_parquet_goes_to_no_planted_folder(folder: Path, shared: Path, victim: Path, roots: Path, planted: str) -> None:
    if planted == "folder":
        plant_link(shared / "archive", roots)
    else:
        day = shared / "archive" / f"host={socket.gethostname()}" / f"day={DAYS[1]}"
        day.mkdir(parents=True)
        (day / "part.parquet").symlink_to(victim)
        give(shared / "archive")
    run("export", *WINDOW, "--format", "parquet", "-o", shared / "archive", "--data-dir", folder)
    assert victim.read_text(errors="replace") == "of root's"
    assert list(roots.iterdir()) == []


def test_a_report_into_somebodys_folder_changes_no_mode_elsewhere(
    folder: Path, theirs: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "report.txt").touch()
    (theirs / "report.txt").chmod(0o777)
    give(theirs)
    fchmod = os.fchmod

    def swap_first(descriptor: int, mode: int) -> None:
        """Do as the owner of the folder can, who sees the name appear."""
        for path in theirs.glob(".report.txt.*"):
            path.unlink()
            path.symlink_to(victim)
        fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", swap_first)
    run("report", *WINDOW, "-o", theirs / "report.txt", "--data-dir", folder)
    assert (victim.stat().st_mode & 0o777, victim.read_text()) == (0o600, "of root's")


def test_a_report_is_not_written_through_a_link_that_comes_after_the_check(
    folder: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "device"  # stands for one
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check = report.check_writable

    def check_then_plant(path: str) -> None:
        check(path)
        plant_link(Path(path), pipe)

    monkeypatch.setattr(report, "check_writable", check_then_plant)
    done = run("report", *WINDOW, "-o", shared / "report.txt", "--data-dir", folder)
    got = os.read(reader, 10)
    os.close(reader)
    assert (done.returncode, got) == (1, b"")
    assert "leads through a link of uid" in done.stderr


def test_a_link_of_roots_own_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("there.csv")
    assert run("export", *WINDOW, "-o", tmp_path / "link.csv", "--data-dir", folder).returncode == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "there.csv").stat().st_size > 0


def test_links_that_lead_round_in_a_circle_are_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    done = run("export", *WINDOW, "-o", tmp_path / "a", "--data-dir", folder)
    assert (done.returncode, "Too many levels of symbolic links" in done.stderr) == (1, True)


# -- folders that come and go


def test_a_folder_that_appears_after_the_check_is_not_used_as_root(
    history: Path, shared: Path, roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crafted = copy(history, shared / "crafted", SOMEBODY)
    plant_link(crafted / "csv", roots)
    become_owner = rights.become_owner

    def become_then_appear(data_dir: str) -> None:
        become_owner(data_dir)
        os.rename(crafted, data_dir)

    monkeypatch.setattr(rights, "become_owner", become_then_appear)
    done = run("rollup", "--data-dir", shared / "new")
    assert list(roots.iterdir()) == []
    assert (done.returncode, "is missing, where somebody else could make it" in done.stderr) == (1, True)


def test_the_sampler_as_root_makes_its_folder_in_a_shared_one_itself(shared: Path) -> None:
    done = run("gua-sample", "--simulate", "--data-dir", shared / "new")
    assert done.returncode == 0
    assert (shared / "new").stat().st_uid == 0
    assert len(list((shared / "new" / "samples").iterdir())) == 1


# -- what root imports


@pytest.mark.parametrize("how", ["a folder that all may write to", "a link for a source"])
def test_no_import_shows_what_is_private_by_a_link(history: Path, open_folder: Path, shared: Path, how: str) -> None:
    private = copy(history, open_folder / "private", 0)
    private.chmod(0o700)
    plant_link(shared / "samples", private / "samples")
    plant_link(shared / "link", private)
    source = shared / "link" if how == "a link for a source" else shared
    done = run("import", "--data-dir", open_folder / "other", source)
    assert (done.returncode, (open_folder / "other").exists()) == (1, False), done


def test_what_lies_in_a_source_for_everybody_is_not_read_as_root(
    history: Path, open_folder: Path, shared: Path
) -> None:
    path = Path(shutil.copy(partition(history), shared))
    os.chown(path, SOMEBODY, SOMEBODY)
    done = run("import", "--data-dir", open_folder / "other", shared)
    assert (done.returncode, "may write to" in done.stderr) == (1, True), done


def test_no_owner_of_a_source_hangs_an_import(
    history: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the parent is somebody else, who may not end the child."""
    monkeypatch.setattr(child, "LONGEST_SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(verbs, "SECONDS", 10)
    copy(history, open_folder / "source", lonely())
    copy(history, open_folder / "data", lonely() + 1_000_000)
    send = opening._send

    def stop_after_the_first(path: str, data_dir: str) -> Iterator[Any]:
        for number, message in enumerate(send(path, data_dir)):
            if number:
                os.kill(os.getpid(), signal.SIGSTOP)  # as its owner can at any time
            yield message

    monkeypatch.setattr(opening, "_send", stop_after_the_first)
    try:
        done = run("import", "--data-dir", open_folder / "data", open_folder / "source")
    finally:
        end_all_of(lonely())
    assert (done.returncode, "stopped" in done.stderr) == (1, True), done


SLOW_IMPORT = """
import sys, time
from gua_report.importing import opening
from gua_report.main import main
opening._send = lambda *_: iter(lambda: time.sleep(60), 0)
sys.exit(main())
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_child_outlives_a_command_that_is_killed(open_folder: Path, how: signal.Signals) -> None:
    path = open_folder / "stats.csv"
    path.write_text("timestamp,user,pid,gpu,usage\n")
    give(path, lonely())
    words = ["import", "--dry-run", "--data-dir", str(open_folder / "other"), str(path)]
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, *words])
    wait_for(lambda: children_of(lonely()))
    process.send_signal(how)
    process.wait()
    try:
        wait_for(lambda: not children_of(lonely()))
    finally:
        end_all_of(lonely())


def children_of(uid: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"Uid:\t{uid}\t" in path.read_text():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def wait_for(condition: Any) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


# -- what readers hold


def test_no_reader_hangs_the_sampler_by_a_lock_and_it_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "SECONDS", 20)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    partition(folder, today).write_bytes(b"nonsense" * 1000)
    give(folder)
    lock = os.open(folder / "samples", os.O_RDONLY)  # as anybody can who may read it
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = command("sample", folder)
    os.close(lock)
    assert (done.returncode, "kept in" in done.stdout) == (0, True), done
    assert command("sample", folder).returncode == 0
    assert partition(folder, today).read_bytes()[:6] == b"SQLite"
    assert list((folder / "samples").glob("*.pending")) == []


# -- what root is told


def test_no_name_of_a_folder_is_run_by_what_the_doctor_advises(history: Path, open_folder: Path) -> None:
    folder = copy(history, open_folder / "x: touch pwned #", SOMEBODY)
    folder.chmod(0o777)
    advised = [text.replace("sudo ", "") for text in advice(folder, "pwned")]
    assert any("chmod" in text for text in advised)
    for text in advised:
        call(["sh", "-c", text], cwd=open_folder)
    assert not (open_folder / "pwned").exists()


def test_what_the_doctor_advises_to_move_stays_in_the_folder(folder: Path, roots: Path) -> None:
    (folder / "samples" / "2099-01-01.sqlite").write_text("anything")
    (folder / "samples" / "2099-01-01.sqlite.future").symlink_to(roots)
    give(folder)
    for text in advice(folder, ".future"):
        subprocess.run(["sh", "-c", text.split("sudo ")[1]], check=True, capture_output=True)
    assert list(roots.iterdir()) == []


@pytest.mark.parametrize("name", ["sample", "rollup that removes"])
def test_the_name_of_a_folder_does_not_steer_roots_terminal(history: Path, open_folder: Path, name: str) -> None:
    folder = copy(history, open_folder / f"data{ESCAPE[:4]}", SOMEBODY)
    config = open_folder / "gua.toml"
    config.write_text("[retention]\ncsv_days = 1\nraw_days = 1\n")
    if name == "sample":
        done = run("gua-sample", "--simulate", "--data-dir", folder)
    else:
        runs = [run("rollup", "--config", config, "--data-dir", folder) for _ in range(2)]
        done = next(one for one in runs if "removed" in one.stdout)
    assert is_tame(done.stdout + done.stderr), done


def test_debug_does_not_let_a_folder_steer_roots_terminal(folder: Path) -> None:
    for day in DAYS:
        execute(partition(folder, day), f'CREATE TRIGGER "t{ESCAPE[:-1]}" AFTER INSERT ON tick BEGIN SELECT 1; END')
    give(folder)
    code = "import sys; from gua_report.main import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "report", "--debug", *WINDOW, "--data-dir", str(folder)]
    done = subprocess.run(words, capture_output=True, check=False)
    assert b"Traceback" in done.stderr
    assert b"\x1b" not in done.stderr + done.stdout
