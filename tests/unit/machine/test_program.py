"""Programs that are run with a time limit: what they get, and what becomes of those that hang, flood or stay behind."""

import json
import time
from pathlib import Path

import pytest

from gua_report.machine import program
from gua_report.machine.program import run_program
from gua_sample.processes import read_file
from tests.machine import within


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_it_gets_what_it_is_given_and_no_files_no_terminal_and_runs_in_the_root(tmp_path: Path) -> None:
    show = (
        "import json, os, sys; files = os.listdir('/proc/self/fd'); print(json.dumps([dict(os.environ), os.getcwd(),"
        " sorted(files)[:3], len(files), os.getsid(0) == os.getpid(), sys.stdin.read()]))"
    )
    path = write(tmp_path / "show", f"#!/usr/bin/python3 -ISE\n{show}\n")
    with open(tmp_path / "secret", "w"):
        ended = run_program([path], 20, b"facts", {})
    assert ended.status == 0, ended.errors
    environment, *rest = json.loads(ended.output)
    assert environment.keys() <= {"LC_CTYPE"}  # which Python sets itself
    assert rest == ["/", ["0", "1", "2"], 4, True, "facts"]


@pytest.mark.parametrize(
    ("script", "output", "errors"),
    [
        ("exec <&-; echo done", b"done\n", b""),
        ("exec >&- 2>&-", b"", b""),
        ("head -c 5; yes | head -c 10000000", b'{"a":' + b"y\n" * 2045 + b"y", b""),
        ("yes | head -c 10000000 >&2", b"", b"y\n" * 2048),
        ("sleep 20 & echo done", b"done\n", b""),
        ("(setsid sleep 20 &); echo no >&2", b"", b"no\n"),
    ],
)
def test_whatever_it_does_with_its_streams_it_is_waited_for_and_nothing_that_it_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, output: bytes, errors: bytes
) -> None:
    monkeypatch.setattr(program, "END_SECONDS", 0.5)
    path = write(tmp_path / "program", f"#!/bin/sh\n{script}\n")
    with within(10):
        assert run_program([path], 20, b'{"a": 1}' * 20_000) == (0, output, errors)


def test_when_the_time_is_over_it_and_its_children_are_killed(tmp_path: Path) -> None:
    path = write(tmp_path / "slow", f"#!/bin/sh\nsleep 60 &\necho $! >{tmp_path}/child\necho said\nwait\n")
    began = time.monotonic()
    assert run_program([path], 0.5).status is None
    child = f"/proc/{int((tmp_path / 'child').read_text())}/stat"
    while (read_file(child) or b") Z").rpartition(b") ")[2][:1] != b"Z":
        assert time.monotonic() - began < 10
        time.sleep(0.01)
