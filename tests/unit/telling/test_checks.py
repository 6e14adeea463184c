"""What gua doctor says of reminders and of the hook."""

from __future__ import annotations

from pathlib import Path

from gua_report.config import load_config
from gua_report.doctor.findings import OK, WARNING
from gua_report.machine.child import answer_of
from gua_report.telling import log
from gua_report.telling.checks import check_telling
from tests.lab import held
from tests.telling import Desk, job
from tests.users import SOMEBODY, needs_root


def check(desk: Desk) -> list[tuple[str, str, str]]:
    path = str(desk.folder / "gua.toml")
    return [(one.check, one.status, one.text) for one in check_telling(load_config(path), str(desk.data_dir), path)]


def test_what_nobody_uses_is_not_mentioned(desk: Desk) -> None:
    desk.write(held(job("alice")))
    assert check(desk) == []


def test_reminders_are_looked_at_once_they_are_configured(desk: Desk) -> None:
    desk.write(held(job("alice")))
    desk.configure('[remind]\nafter = "3h"')
    assert check(desk) == [("remind", OK, "nobody was told yet; after 3h")]
    desk.configure('[remind]\ntemplates = ["/nowhere/remind.txt"]')
    ((name, status, text),) = check(desk)
    assert (name, status) == ("remind", WARNING)
    assert text.startswith("/nowhere/remind.txt: the template can't be read")


def test_the_last_outcome_is_told(desk: Desk) -> None:
    desk.write(held(job("alice")))
    assert desk.remind("--send").status == 0
    ((name, status, text),) = check(desk)
    assert (name, status) == ("remind", OK)
    assert text.startswith("somebody was last told 2026-11-17 12:00:00 UTC")
    desk.later(24)
    (desk.outbox / "sendmail.refuse").write_text("bob@lab.example\n")
    desk.later(3, held(job("alice")), held(job("bob", 200), index=1))
    desk.remind("--send")
    ((name, status, text),) = check(desk)
    assert (name, status) == ("remind", WARNING)
    assert text.startswith("the last mail, to bob@lab.example, 2026-11-18 15:00:00 UTC: failed: ")
    assert text.endswith("unknown user")


def test_a_log_that_holds_mails_back_is_told(desk: Desk) -> None:
    desk.write(held(job("alice")))
    (desk.data_dir / log.REMIND_LOG).write_text("garbage\n")
    ((_, status, text),) = check(desk)
    assert status == WARNING
    assert "line 1 can't be understood" in text


def test_a_hook_that_is_not_trusted_is_told(desk: Desk) -> None:
    desk.write(held(job("alice")))
    program: Path = desk.folder / "on-idle"
    desk.configure(f'[hook]\nrun = "{program}"')
    ((name, status, text),) = check(desk)
    assert (name, status) == ("hook", WARNING)
    assert text.startswith("it is not run: ")


@needs_root
def test_what_is_hidden_from_a_user_is_not_called_nothing(desk: Desk) -> None:
    desk.write(held(job("alice")))
    assert desk.remind("--send").status == 0
    desk.configure('[remind]\nafter = "3h"')
    found = answer_of(lambda: check(desk), (SOMEBODY, SOMEBODY, ()))
    assert found == [["remind", OK, "what was done is for root to see (sudo gua doctor); after 3h"]]


def test_something_else_in_the_place_of_a_log_is_told(desk: Desk) -> None:
    desk.write(held(job("alice")))
    (desk.data_dir / log.REMIND_LOG).symlink_to("/dev/null")
    ((_, status, text),) = check(desk)
    assert status == WARNING
    assert "remind.log is a link" in text
