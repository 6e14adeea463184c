"""Questions in a process of their own: each is answered, or it is said why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gua_report.machine.child import CRASHED, NO_ANSWER, Answer, ask


def test_a_question_is_answered_by_a_child() -> None:
    assert ask(lambda: [os.getpid(), "ü"], 10).value[1] == "ü"
    assert ask(os.getpid, 10).value != os.getpid()


def test_a_child_that_hangs_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    began = time.monotonic()
    assert ask(hang, 1) == Answer(None, NO_ANSWER)
    assert time.monotonic() - began < 5
    pid = int((tmp_path / "pid").read_text())
    with suppress(ChildProcessError):  # it may have ended at once
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("crash", [lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: object()])
def test_a_child_that_crashes_says_so(crash: Any) -> None:
    assert ask(crash, 10) == Answer(None, CRASHED)


def test_a_long_answer_is_read_whole() -> None:
    assert ask(lambda: "x" * 1_000_000, 10).value == "x" * 1_000_000


def test_a_child_has_neither_our_output_nor_our_input() -> None:
    """Or whoever reads our output to its end would wait for a child that hangs."""
    links = ask(lambda: [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)], 10).value
    assert links == [os.devnull] * 3


def test_a_child_answers_even_if_our_own_streams_are_closed(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    code = "from gua_report.machine.child import ask; value = ask(lambda: 42, 10).value;"
    code += f"open({str(answer)!r}, 'w').write(str(value))"
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", code], check=True)
    assert answer.read_text() == "42"
