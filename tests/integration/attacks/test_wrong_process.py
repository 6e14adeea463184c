"""More attempts to get the hook run for the wrong process, twice, or with root's rights on what is not root's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_report.commands import hook
from gua_report.telling import log, watch
from gua_report.telling.log import HOOK_LOG, open_log
from gua_report.telling.program import run_program
from gua_sample import rights
from gua_sample.errors import StoreError
from tests.integration.attacks.attempts import meanwhile
from tests.lab import held
from tests.telling import Desk, job
from tests.users import SOMEBODY, needs_root

pytestmark = pytest.mark.real


@pytest.fixture
def desk(open_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    """A desk with a hook. Who may write to it is for other tests."""
    desk = Desk(open_folder, monkeypatch, capfd)
    desk.configure('[hook]\nrun = "/bin/true"\nidle_after = "2h"')
    monkeypatch.setattr(hook, "check_target", lambda path: None)
    return desk


def test_an_episode_that_is_older_than_a_look_back_is_still_the_same(desk: Desk) -> None:
    """After a week, its beginning is not seen any more."""
    desk.write(held(job("alice")))
    assert desk.hook().out.endswith("for 1 process\n")
    for days in (1, 6.5, 1):
        desk.later(24 * days)
        assert desk.hook().out == "ran /bin/true for 0 processes\n"


def test_processes_that_can_not_be_seen_take_no_turn_of_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MOST_RUNS", 1)
    desk.write(held(job("alice")), held(job("bob", 200), index=1))
    described = desk._describe
    gone = {100}
    monkeypatch.setattr(
        watch.Watch, "_is_there", lambda _, episode: episode.pid not in gone and described(episode.pid, desk.boot)
    )
    done = desk.hook()
    assert done.out.endswith("for 1 process\n")
    assert "bob holds" in done.out


def test_two_processes_that_began_together_are_two(desk: Desk) -> None:
    desk.write(held(job("alice", 100), job("alice", 101)))
    assert desk.hook().out.endswith("for 2 processes\n")
    desk.later(3, held(job("alice", 101), job("alice", 102)))
    done = desk.hook()
    assert "pid 102" in done.out
    assert done.out.endswith("for 1 process\n")


def test_a_process_that_took_over_a_pid_meanwhile_is_another_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(held(job("alice")))
    look = watch.see

    def look_and_lose(*given: object) -> watch.Sight:
        found = look(*given)  # type: ignore[arg-type]
        desk.gpus = (held(job("bob", start_time_ms=6000)),)
        return found

    monkeypatch.setattr(watch, "see", look_and_lose)
    assert desk.hook().out == "ran /bin/true for 0 processes\n"
    assert not (desk.data_dir / HOOK_LOG).read_text()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec <&-; echo done", "done"),
        ("exec >&- 2>&-", ""),
        ("head -c 5; echo; yes | head -c 10000000", '{"a":'),
        ("printf '\\033]0;owned\\007\\n'", "\\x1b]0;owned\\x07"),
        ("(setsid sleep 2 &) ; echo done", "done"),
    ],
)
def test_whatever_the_program_does_with_its_streams_it_is_waited_for_and_told(
    tmp_path: Path, script: str, said: str
) -> None:
    path = tmp_path / "on-idle"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    assert run_program(str(path), '{"a": 1}' * 20_000, 20) == (0, said)


# Root, on a folder of somebody's that lies in a folder of theirs.


@pytest.fixture
def home(open_folder: Path) -> Path:
    """Somebody's home with a data folder in it, beside a folder of root's."""
    path = open_folder / "home"
    (path / "data" / "samples").mkdir(parents=True)
    (open_folder / "etc").mkdir()
    for one in (path, path / "data", path / "data" / "samples"):
        os.chown(one, SOMEBODY, SOMEBODY)
    return path


@needs_root
def test_a_folder_that_is_exchanged_once_it_was_looked_at_gets_no_file_of_somebodys_into_roots(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, etc = home / "data", home.parent / "etc"
    look = rights.owner_to_become

    def look_and_lose(data_dir: str) -> tuple[int, int] | None:
        found = look(data_dir)
        data.rename(home / "mine")
        data.symlink_to(etc)
        return found

    monkeypatch.setattr(log, "owner_to_become", look_and_lose)
    with pytest.raises(StoreError, match="not as root"), open_log(str(data), HOOK_LOG):
        pass
    assert list(etc.iterdir()) == []


@needs_root
def test_a_folder_that_is_exchanged_all_the_time_gets_none_either(home: Path) -> None:
    data, mine, etc = home / "data", home / "mine", home.parent / "etc"

    def exchange() -> None:
        data.rename(mine)
        data.symlink_to(etc)
        data.unlink()
        mine.rename(data)

    with meanwhile(SOMEBODY, exchange):
        for _ in range(300):
            try:
                with open_log(str(data), HOOK_LOG):
                    pass
            except (StoreError, OSError):
                continue
    assert list(etc.iterdir()) == []


@needs_root
def test_a_folder_of_roots_with_samples_of_another_user_has_its_log(home: Path) -> None:
    data = home.parent / "roots"
    (data / "samples").mkdir(parents=True)
    os.chown(data / "samples", SOMEBODY, SOMEBODY)
    with open_log(str(data), HOOK_LOG) as opened:
        assert opened.path == str(data / HOOK_LOG)
    assert (data / HOOK_LOG).stat().st_uid == SOMEBODY
