"""The log of what was done, and what is made of one that somebody has damaged."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import load_config
from gua_report.doctor.findings import OK, WARNING
from gua_report.machine.child import answer_of
from gua_report.telling.log import BEGUN, DONE, REMIND_LOG, Log, check_telling, open_log, read_log
from gua_report.telling.watch import Episode
from gua_sample.errors import PartitionBusy
from tests.lab import NOON_MS, held
from tests.telling import Desk, job
from tests.users import SOMEBODY, needs_root

EPISODE = Episode("b", "GPU-0", 7, 5)
FORMER = "remind.log"


def begin(folder: Path) -> Log:
    log, (acts, problems) = open_log(str(folder), REMIND_LOG)
    assert (acts, problems) == ([], [])
    return log


def line(**changes: Any) -> bytes:
    act = {"id": "a", "ts_ms": NOON_MS, "who": "x", "to": None, "text": None, "episodes": [EPISODE._asdict()]}
    return json.dumps({**act, "outcome": BEGUN, "is_trial": False, **changes}).encode() + b"\n"


def test_an_act_has_the_outcome_that_was_written_after_it(tmp_path: Path) -> None:
    log = begin(tmp_path)
    first = log.begin(NOON_MS, "x", None, [EPISODE, EPISODE._replace(pid=8)])
    second = log.begin(NOON_MS + 1, "y", "y@lab.example", [], is_trial=True)
    log.end(first, DONE, "exit 0\x1b")
    acts, problems = read_log(str(tmp_path), REMIND_LOG)
    assert problems == []
    assert acts == [first._replace(outcome=DONE, text="exit 0\\x1b"), second]


def test_an_episode_is_the_same_if_it_had_begun_by_then(tmp_path: Path) -> None:
    act = begin(tmp_path).begin(NOON_MS, "x", None, [EPISODE])
    assert act.is_about(EPISODE, NOON_MS)
    assert not act.is_about(EPISODE, NOON_MS + 1)
    for changed in ({"boot_id": "c"}, {"gpu_uuid": "GPU-1"}, {"pid": 8}, {"start_time_ms": 6}):
        assert not act.is_about(EPISODE._replace(**changed), NOON_MS)


def test_of_two_runs_that_have_read_the_same_the_first_to_write_goes_on(tmp_path: Path) -> None:
    late, early = begin(tmp_path), begin(tmp_path)
    act = early.begin(NOON_MS, "x", None, [])
    with pytest.raises(PartitionBusy, match="another run"):
        late.begin(NOON_MS, "y", None, [])
    early.end(act, DONE, None)
    early.begin(NOON_MS, "y", None, [])
    assert [one.who for one in read_log(str(tmp_path), REMIND_LOG).acts] == ["x", "y"]


def test_a_former_log_is_read_and_taken_over_once(tmp_path: Path) -> None:
    text = line() + line(id="b", who="y", ts_ms=NOON_MS + 1) + line(outcome=DONE, text="exit 0") + line(id="c")[:-1]
    (tmp_path / FORMER).write_bytes(text)
    before = read_log(str(tmp_path), REMIND_LOG)
    assert not (tmp_path / REMIND_LOG).exists()
    assert [(act.id, act.who, act.outcome, act.text) for act in before.acts] == [
        ("a", "x", DONE, "exit 0"),
        ("b", "y", BEGUN, None),  # and c was not finished, so it announces nothing
    ]
    assert before.acts[0].episodes == (EPISODE,)
    log, found = open_log(str(tmp_path), REMIND_LOG)
    assert found == before
    log.begin(NOON_MS + 2, "z", None, [])
    (tmp_path / FORMER).write_bytes(text + line(id="d"))
    assert [act.who for act in read_log(str(tmp_path), REMIND_LOG).acts] == ["x", "y", "z"]


@pytest.mark.parametrize(
    "bad",
    [
        *(b"garbage", b"{}", b"null", b"[" * 10_000, b"\xff", b""),
        *(line(id=None)[:-1], line(ts_ms=10**30)[:-1], line(outcome="x")[:-1], line(who="\ud800")[:-1]),
        *(line(episodes=1)[:-1], line(episodes=[{**EPISODE._asdict(), "pid": "x"}])[:-1]),
    ],
)
def test_a_bad_line_of_a_former_log_is_a_problem_and_is_not_taken_over(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / FORMER).write_bytes(line() + bad + b"\n" + line(id="b"))
    acts, (problem,) = read_log(str(tmp_path), REMIND_LOG)
    assert acts == []
    assert FORMER in problem
    assert problem.endswith("it may hide that somebody was told, so look at it and move it away")


def overwrite(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def change(statement: str, *values: object) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement, values)

    return make


DAMAGE = {
    "no database": overwrite,
    "without a table": change("DROP TABLE act"),
    "no episodes": change("UPDATE act SET episodes = '[7]'"),
    "a trigger": change("CREATE TRIGGER t AFTER INSERT ON act BEGIN DELETE FROM act; END"),
    "no outcome": change("UPDATE act SET outcome = 'x'"),
    "before 1970": change("UPDATE act SET ts_ms = -1"),
    "beyond every calendar": change("UPDATE act SET ts_ms = 9000000000000000000"),
    "a name of a megabyte": change("UPDATE act SET who = ?", "x" * 1_000_000),
    "half a pair of surrogates": change("UPDATE act SET who = CAST(x'eda080' AS TEXT)"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_whatever_is_wrong_with_it_is_a_problem(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    begin(tmp_path).begin(NOON_MS, "x", None, [EPISODE])
    damage(tmp_path / REMIND_LOG)
    acts, (problem,) = read_log(str(tmp_path), REMIND_LOG)
    assert acts == []
    assert problem.startswith(str(tmp_path / REMIND_LOG))
    assert problem.endswith("it may hide that somebody was told, so look at it and move it away")


def test_a_file_that_was_only_just_made_says_nothing(tmp_path: Path) -> None:
    (tmp_path / REMIND_LOG).touch(0o600)
    assert read_log(str(tmp_path), REMIND_LOG) == ([], [])
    begin(tmp_path)


def check(desk: Desk) -> list[tuple[str, str, str]]:
    path = str(desk.folder / "gua.toml")
    return [(one.check, one.status, one.text) for one in check_telling(load_config(path), str(desk.data_dir), path)]


def test_reminders_are_looked_at_once_they_are_configured(desk: Desk) -> None:
    desk.write(held(job("alice")))
    desk.configure('[remind]\nafter = "3h"')
    assert check(desk) == [("remind", OK, "nobody was told yet; after 3h")]
    desk.configure('[remind]\ntemplates = ["/nowhere/remind.txt"]')
    ((name, status, text),) = check(desk)
    assert (name, status) == ("remind", WARNING)
    assert text.startswith("/nowhere/remind.txt: the template can't be read")


def test_the_last_outcome_is_told_and_whether_it_was_a_trial(desk: Desk) -> None:
    desk.write(held(job("alice")))
    assert check(desk) == []  # nobody uses it
    for options, said in (("--to", "me@lab.example"), "a trial was last sent"), ((), "somebody was last told"):
        assert desk.remind("--send", *options).status == 0
        ((name, status, text),) = check(desk)
        assert (name, status) == ("remind", OK)
        assert text.startswith(f"{said} 2026-11-17 12:00:00 UTC")
    desk.later(24)
    (desk.outbox / "sendmail.refuse").write_text("bob@lab.example\n")
    desk.later(3, held(job("alice")), held(job("bob", 200), index=1))
    desk.remind("--send")
    ((name, status, text),) = check(desk)
    assert (name, status) == ("remind", WARNING)
    assert text.startswith("the last mail, to bob@lab.example, 2026-11-18 15:00:00 UTC: failed: ")
    assert text.endswith("unknown user")


@needs_root
def test_what_is_hidden_from_a_user_is_not_called_nothing(desk: Desk) -> None:
    desk.write(held(job("alice")))
    assert desk.remind("--send").status == 0
    desk.configure('[remind]\nafter = "3h"')
    found = answer_of(lambda: check(desk), (SOMEBODY, SOMEBODY, ()))
    assert found == [["remind", OK, "what was done is for root to see (sudo gua doctor); after 3h"]]


def test_a_hook_that_is_not_trusted_and_something_else_in_the_place_of_a_log_are_told(desk: Desk) -> None:
    desk.write(held(job("alice")))
    desk.configure(f'[hook]\nrun = "{desk.folder}/on-idle"')
    (desk.data_dir / REMIND_LOG).symlink_to("/dev/null")
    (_, status, text), (name, hook_status, hook_text) = check(desk)
    assert (status, "reminders.sqlite is a link" in text) == (WARNING, True)
    assert (name, hook_status, hook_text.startswith("it is not run: ")) == ("hook", WARNING, True)
