"""Questions in a process of their own: each is answered, or it is said why not."""

import importlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gua_report.machine import child
from gua_report.machine.child import CRASHED, NO_ANSWER, Answer, Silent, answer_of, ask, stream
from gua_sample.errors import StoreError
from tests.users import SOMEBODY, needs_root


def test_a_question_is_answered_by_a_child_that_has_neither_our_output_nor_our_input() -> None:
    """Or whoever reads our output to its end would wait for a child that hangs."""
    assert ask(lambda: [os.getpid(), "ü" * 1_000_000], 10).value[1] == "ü" * 1_000_000
    assert ask(os.getpid, 10).value != os.getpid()
    links = ask(lambda: [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)], 10).value
    assert links == [os.devnull] * 3


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_that_hangs_or_is_stopped_is_killed_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setattr(child, "STALLED_SECONDS", 0.5)

    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP if is_stopped else signal.SIGCONT)
        time.sleep(60)

    began = time.monotonic()
    if is_stopped:
        with pytest.raises(Silent, match=r"timed out after \d+ s: has its owner stopped"):
            answer_of(hang)
    else:
        assert ask(hang, 1) == Answer(None, NO_ANSWER)
    assert time.monotonic() - began < 10
    pid = int((tmp_path / "pid").read_text())
    with suppress(ChildProcessError):  # it may have ended at once
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_has_answered_does_not_outlive_the_question() -> None:
    """Its memory takes a while to free. Left over, it would be in the journal of a unit's next run."""
    kept: list[bytes] = []

    def swell() -> int:
        kept.append(b"x" * (1 << 29))
        return len(kept)

    assert answer_of(swell) == 1
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("crash", [lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: object()])
def test_a_child_that_crashes_says_so(crash: Any) -> None:
    assert ask(crash, 10) == Answer(None, CRASHED)


def test_what_ends_before_it_says_so_has_not_sent_all() -> None:
    def produce(is_whole: bool) -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        if not is_whole:
            os.kill(os.getpid(), signal.SIGKILL)

    assert list(stream(lambda: produce(True))) == [("a", b"1")]
    with pytest.raises(StoreError, match="ended early"):
        list(stream(lambda: produce(False)))


def test_a_child_that_works_in_silence_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STALLED_SECONDS", 0.5)

    def work() -> str:
        while time.process_time() < 2:
            pass
        return "done"

    assert answer_of(work) == "done"


@needs_root
def test_a_child_may_become_another_user_for_good() -> None:
    def ids() -> list[object]:
        with suppress(PermissionError):
            os.setresuid(0, 0, 0)
        return [os.getresuid(), os.getresgid(), os.getgroups()]

    answer = ask(ids, 10, (SOMEBODY, SOMEBODY, (SOMEBODY, 44)))
    assert answer == Answer([[SOMEBODY] * 3, [SOMEBODY] * 3, [44, SOMEBODY]])
    assert ask(os.getresgid, 10, (SOMEBODY, 0, (0,))) == Answer([0, 0, 0])  # whose main group is root's
    assert os.geteuid() == 0


@needs_root
def test_a_child_that_can_not_become_another_user_answers_nothing() -> None:
    answer = ask(lambda: ask(os.getpid, 10, (SOMEBODY + 1, SOMEBODY + 1)), 10, (SOMEBODY, SOMEBODY))
    assert answer.value == [None, CRASHED]


@needs_root
def test_a_module_that_only_root_can_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_roots.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o077 == 0
    words = f"No module named 'only_roots'; can uid {SOMEBODY} read all of .*? Install gua where everybody can read it"
    with pytest.raises(StoreError, match=words):
        answer_of(lambda: importlib.import_module("only_roots").__name__, (SOMEBODY, SOMEBODY))
    assert answer_of(lambda: importlib.import_module("only_roots").__name__) == "only_roots"


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    assert ask(lambda: ask(hang, 60), 2) == Answer(None, NO_ANSWER)
    pid, ends = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while time.monotonic() < ends and is_running(pid):
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False
