"""The child that reads for root: what it sends does nothing, what it is can not be looked into."""

import ctypes
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from gua_report.commands import export as exporting
from gua_report.machine import child
from tests.integration.attacks.attempts import ESCAPE, WINDOW, command, is_tame, lonely, meanwhile, own_processes
from tests.machine import within
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

pytestmark = needs_root


def child_that_sends(*messages: bytes, seconds: float = 0) -> Callable[..., NoReturn]:
    """What the child would be, had a file's maker got hold of it."""

    def produce(writing: int, *_: object) -> NoReturn:
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
def test_what_the_child_sends_does_nothing_to_root(folder: Path, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_produce", child_that_sends(NONSENSE[sent]))
    before = sorted(folder.parent.rglob("*"))
    for name in ("report", "status", "export", "import"):
        done = command(name, folder)
        assert done.returncode in (0, 1, 3), (name, done)
        assert "Traceback" not in done.stderr
        assert is_tame(done.stdout + done.stderr), (name, done)
    assert [path for path in sorted(folder.parent.rglob("*")) if path not in before] == []


@pytest.mark.parametrize("label", ["../../../../elsewhere", "2026-11-10/../../..", "", "2026-13-45", ESCAPE])
def test_what_it_calls_a_day_is_no_path(
    folder: Path, label: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "_produce", child_that_sends(message(label, b"PAR1")))
    output = tmp_path / "a" / "b" / "output"
    words = ("--format", "parquet", "-o", output, "--data-dir", folder)
    done = run("export", *WINDOW, *words)
    assert done.returncode == 1, done
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_child_that_is_stopped_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STALLED_SECONDS", 1.0)
    give(folder, lonely())

    def stop() -> None:
        for pid in own_processes():
            os.kill(pid, signal.SIGSTOP)

    with meanwhile(lonely(), stop):
        done = command("report", folder)
    assert (done.returncode, "reading the data folder timed out after" in done.stderr) == (1, True), done


def test_a_child_that_does_not_end_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_produce", child_that_sends(message("2026-11-10", b"x"), seconds=60))
    with within(10):
        assert command("export", folder).returncode == 1


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

    monkeypatch.setattr(exporting, "read_parts", look)
    output = tmp_path / "output.csv"
    with output.open("w"):
        assert run("export", *WINDOW, "-o", output, "--data-dir", folder).returncode == 0
    kinds, is_alone, uids, groups = json.loads(output.read_text())
    opened = {number: kind for number, kind, _, _ in kinds}
    assert (opened.pop(0), opened.pop(1)) == (stat.S_IFCHR, stat.S_IFCHR)
    opened.pop(2)
    assert list(opened.values()) == [stat.S_IFIFO]  # to speak through
    assert (is_alone, uids, groups) == (True, [SOMEBODY] * 3, [])
