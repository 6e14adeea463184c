"""gua hook: what is run, once for each episode, with which facts and rights, and what becomes of it."""

import json
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.commands import hook
from gua_report.commands.hook import run_hook
from gua_report.machine.program import Untrusted, check_target
from gua_report.telling import log
from gua_report.telling.watch import clock_ticks
from gua_sample.processes import CLOCK_TICKS_PER_SECOND, describe
from gua_sample.records import Boot
from tests.lab import HOUR_MS, busy, held, lost
from tests.repository import documented
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
            "person_uid": 1001,
            "command": "python",
            "slurm_job": "4711",
            "gpu_uuid": "GPU-0",
            "gpu": "0",
            "gpu_name": "A100",
            "memory_mib": 20_480,
            "idle_since_ms": desk.now_ms - 3 * HOUR_MS,
            "idle_since_is_exact": True,
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
def test_it_is_written_down_before_it_runs_and_what_it_said_after(desk: Desk, target: Path) -> None:
    path = desk.data_dir / log.HOOK_LOG
    write_program(target, f'#!/bin/sh\ncp {path} "$0.log"\nprintf "\\033[2Jcan not\\nmore\\n"\nexit 7\n')
    desk.write(ALICE)
    done = desk.hook()
    assert done.status == 1
    assert done.errors == f"gua hook: error: {target} failed for pid 100: exit status 7: \\x1b[2Jcan not\n"
    (after,) = desk.log(log.HOOK_LOG)
    assert (after["outcome"], after["text"]) == (log.FAILED, "exit 7: \\x1b[2Jcan not")
    assert "pid 100, failed: exit 7: \\x1b[2Jcan not" in desk.hook("--log").out
    assert desk.hook().out == f"ran {target} for 0 processes\n"  # once, whatever became of it
    shutil.copy(target.with_name("on-idle.log"), path)
    assert desk.log(log.HOOK_LOG) == [{**after, "outcome": log.BEGUN, "text": None}]


@needs_root
def test_a_process_that_ends_while_the_hook_runs_for_another_is_left_alone(
    desk: Desk, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    monkeypatch.setattr(hook, "run_hook", lambda *some: desk.gone.add(200) or run_hook(*some))  # type: ignore[func-returns-value]
    assert desk.hook().out.endswith("for 1 process\n")
    assert [one["pid"] for one in facts(target)] == [100]


@needs_root
def test_a_container_has_the_uid_of_no_person_whatever_it_is_called(desk: Desk, target: Path) -> None:
    identity = "docker:3f2a9c81d0b7"
    desk.configure(f'[people]\n"{identity}" = "bob"\n[hook]\nrun = "{target}"\nidle_after = "2h"')
    desk.write(held(job("alice", cgroup=f"/docker/{identity[7:]}{'0' * 52}")))  # with the number of alice inside
    assert desk.hook().status == 0
    (told,) = facts(target)
    assert (told["identity"], told["uid"], told["person_uid"]) == ("bob", 1001, None)


def test_without_a_hook_there_is_a_line_that_says_so(desk: Desk) -> None:
    desk.write(ALICE)
    done = desk.hook()
    assert (done.status, done.errors) == (
        2,
        "gua hook: error: there is no hook: set run in [hook] of /etc/gua/gua.toml\n",
    )


@needs_root
def test_the_facts_are_as_documented_and_a_beginning_that_was_not_seen_is_a_bound(desk: Desk, target: Path) -> None:
    desk.write(ALICE, hours=3, day=3)  # the history is no older
    assert "alice holds 20.0 GiB on GPU 0 without work since at least 09:00 (pid 100" in desk.hook().out
    (told,) = facts(target)
    assert told["idle_since_is_exact"] is False
    assert set(told) == set(documented("people.md", "\n## A hook"))
    desk.now_ms += HOUR_MS
    done = desk.hook()  # in doubt
    assert (done.status, len(facts(target))) == (1, 1)
    assert "error: nothing is run: the newest tick is 1h 05m old" in done.errors


# Whose program it is.


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


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


@needs_root
def test_no_folder_is_to_be_changed_for_a_program(roots_folder: Path) -> None:
    """It may be /tmp, or somebody's home. What an access list allows shows in the bits of the group."""
    folder = roots_folder / "below"
    folder.mkdir(mode=0o755)
    path = write_program(folder / "on-idle", KEEP)
    entries = ((1, 7, -1), (2, 7, SOMEBODY), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    access_list = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    for mode, owner, rights in ((0o1777, 0, b""), (0o755, 0, access_list), (0o755, SOMEBODY, b"")):
        folder.chmod(mode)
        os.chown(folder, owner, 0)
        if rights:
            os.setxattr(folder, "system.posix_acl_access", rights)
        with pytest.raises(Untrusted, match="move the program to a folder that only root can change") as caught:
            check_target(str(path))
        assert not re.search("chmod|chown|setfacl", str(caught.value))


@pytest.mark.parametrize("path", ["on-idle", "/etc/../tmp/on-idle", "/etc/./on-idle", "/tmp/on-idle", ""])
def test_a_path_that_is_not_plain_or_lies_in_a_folder_for_everybody_is_refused(path: str) -> None:
    with pytest.raises(Untrusted):
        check_target(path)


def test_a_program_that_can_not_be_run_or_hangs_has_no_status(tmp_path: Path) -> None:
    path = write_program(tmp_path / "bad", "#!/no/such/shell\n")
    status, said = run_hook(str(path), "", 5)
    assert (status, said.startswith(f"{path} can't be run (")) == (None, True)
    write_program(path, "#!/bin/sh\nsleep 60\n")
    assert run_hook(str(path), "", 0.3) == (None, f"{path} was not done within 0.3 s")


def test_what_it_says_is_one_short_printable_line(tmp_path: Path) -> None:
    for script, said in (
        ("printf '\\033]0;owned\\007\\nmore\\n'", "\\x1b]0;owned\\x07"),
        ("echo no >&2; echo; exit 0", "no"),
        ("head -c 3000000 /dev/zero | tr '\\0' x", "x" * 200),
    ):
        path = write_program(tmp_path / "on-idle", f"#!/bin/sh\n{script}\n")
        assert run_hook(str(path), "", 20) == (0, said)


def test_the_start_of_a_process_is_told_as_the_kernel_counts_it() -> None:
    field = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    for boot in (Boot("", 0), Boot("", 1_794_787_200_123)):
        start_ms = describe(os.getpid(), boot).start_time_ms
        assert start_ms is not None
        assert clock_ticks(start_ms, boot) == field
