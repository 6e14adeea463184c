"""gua hook: what is run, once for each episode, with which facts and rights, and what becomes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.telling import log, program
from gua_report.telling.program import run_program
from gua_report.telling.target import Untrusted, check_target
from gua_report.telling.watch import clock_ticks
from gua_sample.processes import CLOCK_TICKS_PER_SECOND, describe
from gua_sample.records import Boot
from tests.lab import HOUR_MS, busy, held, lost
from tests.machine import one_line
from tests.repository import DOCS
from tests.telling import Desk, is_private, job
from tests.users import SOMEBODY, needs_root

ALICE = held(job("alice", cgroup="/slurm/uid_1001/job_4711/step_0"))
KEEP = '#!/bin/sh\ncat >"$0.$$.facts"\necho told\n'


@pytest.fixture
def roots_folder() -> Iterator[Path]:
    """A folder that nobody but root can have written to, nor one above it: not in /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="gua-hook-", dir="/var/lib"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def target(desk: Desk, roots_folder: Path) -> Path:
    path = roots_folder / "on-idle"
    write_program(path, KEEP)
    desk.configure(f'[hook]\nrun = "{path}"\nidle_after = "2h"')
    return path


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def facts(target: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(target.parent.glob("*.facts"))]


@needs_root
def test_it_is_run_once_for_an_episode_with_facts_as_json(desk: Desk, target: Path) -> None:
    desk.write(ALICE)
    done = desk.hook()
    assert (done.status, done.errors) == (0, "")
    assert done.out == (
        "alice holds 20.0 GiB on GPU 0 without work since 09:00 (pid 100, python). done: told\n"
        f"ran {target} for 1 process\n"
    )
    assert facts(target) == [
        {
            "schema_version": 1,
            "host": os.uname().nodename,
            "ts_ms": desk.now_ms,
            "boot_id": "boot-1",
            "pid": 100,
            "start_time_ms": 5000,
            "start_clock_ticks": 500 * CLOCK_TICKS_PER_SECOND // 100,
            "identity": "alice",
            "uid": 1001,
            "command": "python",
            "slurm_job": "4711",
            "gpu_uuid": "GPU-0",
            "gpu": "0",
            "gpu_name": "A100",
            "memory_mib": 20_480,
            "idle_since_ms": desk.now_ms - 3 * HOUR_MS,
            "idle_seconds": 10_800.0,
        }
    ]
    assert desk.hook().out == f"ran {target} for 0 processes\n"
    desk.later(7 * 24)
    assert desk.hook().out == f"ran {target} for 0 processes\n"  # nor a week later
    desk.later(1, busy(job("alice")))
    desk.later(3, ALICE)
    assert desk.hook().out.endswith("for 1 process\n")  # a new episode
    assert is_private(desk.data_dir / log.HOOK_LOG)


@needs_root
def test_a_dry_run_says_what_would_run_and_runs_nothing(desk: Desk, target: Path) -> None:
    desk.write(ALICE)
    done = desk.hook("--dry-run")
    assert done.out == (
        f"alice holds 20.0 GiB on GPU 0 without work since 09:00 (pid 100, python).\nwould run {target} for 1 process\n"
    )
    (told,) = json.loads(desk.hook("--dry-run", "--json").out)["runs"]
    assert (told["facts"]["pid"], told["outcome"]) == (100, None)
    assert facts(target) == []
    assert not (desk.data_dir / log.HOOK_LOG).exists()


@needs_root
def test_what_is_short_meant_exempt_unknown_or_over_is_left_out(desk: Desk, target: Path) -> None:
    desk.configure(f'[hook]\nrun = "{target}"\nidle_after = "2h"\n[exempt]\ncarol = "a service"')
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("carol", 300), index=2))
    desk.gpus = (lost(), desk.gpus[1], desk.gpus[2])
    desk.gone = {200}
    assert desk.hook().out == f"ran {target} for 0 processes\n"
    desk.configure(f'[hook]\nrun = "{target}"\nidle_after = "4h"')
    assert desk.hook().out == f"ran {target} for 0 processes\n"
    assert facts(target) == []


@needs_root
def test_in_doubt_nothing_is_run(desk: Desk, target: Path) -> None:
    desk.write(ALICE)
    desk.now_ms += HOUR_MS
    done = desk.hook()
    assert (done.status, facts(target)) == (1, [])
    assert "error: nothing is run: the newest tick is 1h 05m old" in done.errors


@needs_root
def test_it_is_written_down_before_it_runs_and_what_it_said_after(desk: Desk, target: Path) -> None:
    path = desk.data_dir / log.HOOK_LOG
    write_program(target, f'#!/bin/sh\ncp {path} "$0.log"\nprintf "\\033[2Jcan not\\nmore\\n"\nexit 7\n')
    desk.write(ALICE)
    done = desk.hook()
    assert done.status == 1
    assert done.errors == f"gua hook: error: {target} failed for pid 100: exit status 7: \\x1b[2Jcan not\n"
    assert json.loads(target.with_name("on-idle.log").read_text())["outcome"] == log.BEGUN
    assert [(one["outcome"], one["text"]) for one in desk.log(log.HOOK_LOG)] == [
        (log.BEGUN, None),
        (log.FAILED, "exit 7: \\x1b[2Jcan not"),
    ]
    assert "pid 100, failed: exit 7: \\x1b[2Jcan not" in desk.hook("--log").out
    assert desk.hook().out == f"ran {target} for 0 processes\n"  # once, whatever became of it


@needs_root
def test_without_a_log_nothing_is_run(desk: Desk, target: Path) -> None:
    desk.write(ALICE)
    (desk.data_dir / log.HOOK_LOG).symlink_to("/dev/null")
    done = desk.hook()
    assert (done.status, facts(target)) == (1, [])
    assert one_line(done.errors)


@needs_root
def test_a_process_that_ends_while_the_hook_runs_for_another_is_left_alone(
    desk: Desk, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    run = program.run_program
    monkeypatch.setattr("gua_report.commands.hook.run_program", lambda *some: desk.gone.add(200) or run(*some))  # type: ignore[func-returns-value]
    assert desk.hook().out.endswith("for 1 process\n")
    assert [one["pid"] for one in facts(target)] == [100]


def test_without_a_hook_there_is_a_line_that_says_so(desk: Desk) -> None:
    desk.write(ALICE)
    done = desk.hook()
    assert (done.status, done.errors) == (
        2,
        "gua hook: error: there is no hook: set run in [hook] of /etc/gua/gua.toml\n",
    )


@needs_root
def test_the_facts_are_as_documented(desk: Desk, target: Path) -> None:
    desk.write(ALICE)
    desk.hook()
    (told,) = facts(target)
    page = (DOCS / "people.md").read_text().split("\n## A hook")[1].split("\n## ")[0]
    documented = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|([^|]*)\|", page, re.MULTILINE)))
    assert set(told) == set(documented)


# Whose program it is.


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@needs_root
def test_a_program_of_roots_is_trusted(roots_folder: Path) -> None:
    check_target(str(write_program(roots_folder / "good", KEEP)))


@needs_root
@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.chmod(0o777),
        lambda path: path.chmod(0o775),
        lambda path: path.chmod(0o644),
        lambda path: os.chown(path, SOMEBODY, 0),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.symlink_to("/bin/true")),
        lambda path: (path.unlink(), path.mkdir()),
        put_pipe,
        lambda path: path.parent.chmod(0o1777),
        lambda path: path.parent.chmod(0o775),
        lambda path: os.chown(path.parent, SOMEBODY, 0),
        lambda path: (path.parent.rename(path.parent.parent / "moved"), path.parent.symlink_to("moved")),
    ],
    ids=[
        *("for everybody", "for a group", "not executable", "somebody's", "missing", "a link", "a folder", "a pipe"),
        *("in a folder for everybody", "in a group's folder", "in somebody's folder", "below a link"),
    ],
)
def test_a_program_that_others_could_change_is_refused(roots_folder: Path, change: object) -> None:
    folder = roots_folder / "below"
    folder.mkdir(mode=0o755)
    path = write_program(folder / "on-idle", KEEP)
    check_target(str(path))
    change(path)  # type: ignore[operator]
    with pytest.raises(Untrusted) as caught:
        check_target(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["on-idle", "/etc/../tmp/on-idle", "/etc/./on-idle", "/tmp/on-idle", ""])
def test_a_path_that_is_not_plain_or_lies_in_a_folder_for_everybody_is_refused(path: str) -> None:
    with pytest.raises(Untrusted):
        check_target(path)


# How it runs.


def test_it_gets_no_environment_no_files_no_terminal_and_runs_in_the_root(tmp_path: Path) -> None:
    show = (
        "import json, os, sys; files = os.listdir('/proc/self/fd'); print(json.dumps([dict(os.environ), os.getcwd(),"
        " sorted(files)[:3], len(files), os.getsid(0) == os.getpid(), sys.stdin.read()]))"
    )
    path = write_program(tmp_path / "show", f"#!/usr/bin/python3 -ISE\n{show}\n")
    with open(tmp_path / "secret", "w"):
        ended = run_program(str(path), "facts", 20)
    assert ended.status == 0, ended.said
    environment, folder, descriptors, count, is_leader, given = json.loads(ended.said)
    assert environment.keys() <= {"LC_CTYPE"}  # which Python sets itself
    assert (folder, descriptors, count, is_leader, given) == ("/", ["0", "1", "2"], 4, True, "facts")


def test_when_the_time_is_over_it_and_its_children_are_ended(tmp_path: Path) -> None:
    path = write_program(tmp_path / "slow", f"#!/bin/sh\nsleep 60 &\necho $! >{tmp_path}/child\nwait\n")
    began = time.monotonic()
    ended = run_program(str(path), "", 0.3)
    assert ended == (None, f"{path} was not done within 0.3 s")
    child = int((tmp_path / "child").read_text())
    while describe(child, Boot("", 0)).start_time_ms is not None and _state(child) != "Z":
        assert time.monotonic() - began < 10
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_flood_of_output_is_read_and_the_first_line_is_short(tmp_path: Path) -> None:
    path = write_program(tmp_path / "flood", "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x\n")
    ended = run_program(str(path), "", 20)
    assert (ended.status, ended.said) == (0, "x" * 200)


def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "END_SECONDS", 0.05)
    path = write_program(tmp_path / "leaves", "#!/bin/sh\necho good\nsleep 5 &\n")
    began = time.monotonic()
    assert run_program(str(path), "", 20) == (0, "good")
    assert time.monotonic() - began < 4


def test_a_program_that_can_not_be_run_is_told(tmp_path: Path) -> None:
    path = write_program(tmp_path / "bad", "#!/no/such/shell\n")
    status, said = run_program(str(path), "", 5)
    assert status is None
    assert "can't be run" in said


def test_the_start_of_a_process_is_told_as_the_kernel_counts_it() -> None:
    field = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    for boot in (Boot("", 0), Boot("", 1_794_787_200_123)):
        start_ms = describe(os.getpid(), boot).start_time_ms
        assert start_ms is not None
        assert clock_ticks(start_ms, boot) == field
