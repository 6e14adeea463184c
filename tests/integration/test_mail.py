"""The recipes in contrib/mail: what they run, as cron and systemd run it. Who gets a mail, and what is in it."""

from __future__ import annotations

import email
import email.policy
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gua_report.commands.demo import simulate
from tests.lab import HOUR_MS, busy, free, series, write
from tests.machine import SCRIPTS, one_line
from tests.repository import ROOT
from tests.svg import Page

RECIPES = ROOT / "contrib" / "mail"
CRON, SERVICE, TIMER = (RECIPES / name for name in ("gua-report.cron", "gua-mail.service", "gua-mail.timer"))
TEN_MINUTES_MS = 600_000
# It takes a mail as sendmail does, and remembers what it was given.
SENDMAIL = """\
#!/bin/sh
printf '%s\\n' "$@" >"$MAILBOX/arguments"
cat >"$MAILBOX/mail"
exit "${MAIL_STATUS:-0}"
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week in which nobody idled."""
    folder = tmp_path_factory.mktemp("clean")
    end_ms = time.time_ns() // 1_000_000
    start_ms = end_ms - 7 * 24 * HOUR_MS
    write(folder, series(start_ms, 7 * 24 * 6, busy(), free(1), every_ms=TEN_MINUTES_MS, interval_ms=TEN_MINUTES_MS))
    return folder


@pytest.fixture(scope="module")
def unclean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last two days of the laboratory."""
    folder = tmp_path_factory.mktemp("unclean")
    end_ms = time.time_ns() // 1_000_000
    simulate(str(folder), 0, end_ms - 48 * HOUR_MS, end_ms)
    return folder


def environment(data_dir: Path, scripts: str, **variables: str) -> dict[str, str]:
    """Little else than what cron or systemd give."""
    path = f"{scripts}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "GUA_DATA_DIR": str(data_dir), "HOME": "/nonexistent", "LANG": "C.UTF-8", **variables}


def cron_lines() -> list[str]:
    return [line for line in CRON.read_text().splitlines() if line and not line.startswith("#")]


def cron_job() -> tuple[str, str, str]:
    """When, whose, and what. All other lines set variables."""
    jobs = [line for line in cron_lines() if not re.match(r"\w+=", line)]
    assert len(jobs) == 1
    *when, user, command = jobs[0].split(maxsplit=6)
    return " ".join(when), user, command


def exec_start() -> list[str]:
    """As systemd splits it. The unit uses neither escapes nor variables nor specifiers."""
    (line,) = re.findall(r"^ExecStart=(.*)$", SERVICE.read_text(), re.MULTILINE)
    assert not set("\\%$") & set(line)
    return shlex.split(line)


def test_cron_runs_it_once_a_week_as_a_user_without_rights() -> None:
    when, user, command = cron_job()
    assert (when, user) == ("0 7 * * 1", "gua")
    assert "%" not in command  # to cron that is a line break
    variables = dict(line.split("=", 1) for line in cron_lines() if re.match(r"\w+=", line))
    assert variables["MAILTO"]
    assert "/usr/local/bin" in variables["PATH"].split(":")
    assert CRON.read_text().endswith("\n")  # or cron passes over the last line


class Sent(NamedTuple):
    status: int
    journal: str
    headers: dict[str, str]  # none if nothing was sent
    body: str
    attached: dict[str | None, str]  # by file name


def run_recipe(command: list[str], folder: Path, data_dir: Path, scripts: Path = SCRIPTS, **variables: str) -> Sent:
    (folder / "bin").mkdir()
    (folder / "bin" / "sendmail").write_text(SENDMAIL)
    (folder / "bin" / "sendmail").chmod(0o755)
    (folder / "bin" / "gua-mail").symlink_to(RECIPES / "gua-mail")
    (folder / "tmp").mkdir()
    variables = {"MAILTO": "gpu-admins@lab.example", "MAILBOX": str(folder), "TMPDIR": str(folder / "tmp"), **variables}
    done = subprocess.run(
        command,
        env=environment(data_dir, f"{folder / 'bin'}:{scripts}", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert list((folder / "tmp").iterdir()) == []
    journal = done.stdout + done.stderr
    if not (folder / "mail").exists():
        return Sent(done.returncode, journal, {}, "", {})
    assert (folder / "arguments").read_text().split() == ["-t", "-oi"]
    mail = email.message_from_bytes((folder / "mail").read_bytes(), policy=email.policy.default)
    assert not mail.defects
    parts = [part for part in mail.walk() if not part.is_multipart()]
    assert not [defect for part in parts for defect in part.defects]
    body, *attached = (part.get_content() for part in parts)
    names = [part.get_filename() for part in parts[1:]]
    headers = {name: mail[name] for name in ("To", "Subject")}
    return Sent(done.returncode, journal, headers, body, dict(zip(names, attached, strict=True)))


@pytest.fixture(params=["cron", "systemd"])
def recipe(request: pytest.FixtureRequest) -> list[str]:
    """What either runs."""
    return ["sh", "-c", cron_job()[2]] if request.param == "cron" else exec_start()


def host() -> str:
    return os.uname().nodename


def test_nothing_is_mailed_after_a_clean_week(recipe: list[str], tmp_path: Path, clean: Path) -> None:
    assert run_recipe(recipe, tmp_path, clean) == Sent(0, "", {}, "", {})


def test_a_week_with_something_to_act_on_is_mailed_in_brief_with_its_page(
    recipe: list[str], tmp_path: Path, unclean: Path
) -> None:
    sent = run_recipe(recipe, tmp_path, unclean)
    assert (sent.status, sent.journal) == (0, "")
    assert sent.headers == {"To": "gpu-admins@lab.example", "Subject": f"GPU use on {host()}"}
    assert re.match(r"To act on: \d+ idle-held episodes of 1h or more by \d+ holders \(\w", sent.body)
    lines = sent.body.splitlines()
    assert len(lines) <= 41  # and the empty line before the next part
    assert max(map(len, lines)) <= 72
    assert list(sent.attached) == ["gpu-use.html"]
    page = Page(sent.attached["gpu-use.html"])
    assert len(page.pictures) == 7


def test_what_went_wrong_is_mailed_and_the_unit_fails(recipe: list[str], tmp_path: Path) -> None:
    sent = run_recipe(recipe, tmp_path, tmp_path / "nothing")
    assert sent.status == 3
    assert sent.headers["Subject"] == f"gua-report failed on {host()}"
    assert re.match(r"gua-report: error: \S+/nothing does not exist", sent.body)
    assert one_line(sent.body.rstrip("\n") + "\n")
    assert sent.attached == {}


def test_a_report_is_mailed_with_what_was_skipped_for_it(tmp_path: Path, clean: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(clean, data_dir)
    broken = sorted((data_dir / "samples").iterdir())[3]
    broken.write_text("garbage, more than sixteen bytes of it")
    sent = run_recipe(exec_start(), tmp_path, data_dir)
    assert sent.status == 0
    assert sent.body.startswith("gua-report: warning: skipped: ")
    assert "\nTo act on: " in sent.body


def test_a_program_that_is_not_installed_is_mailed_too(tmp_path: Path, clean: Path) -> None:
    sent = run_recipe(exec_start(), tmp_path, clean, scripts=tmp_path / "nowhere")
    assert sent.status == 127
    assert "gua-report" in sent.body
    assert "not found" in sent.body


def test_what_can_not_be_mailed_is_left_in_the_journal_and_the_unit_fails(tmp_path: Path, unclean: Path) -> None:
    sent = run_recipe(exec_start(), tmp_path, unclean, MAIL_STATUS="75")
    assert sent.status == 75
    assert sent.journal.strip() == sent.body.strip()
    assert sent.body.startswith("To act on: ")


def test_nobody_to_mail_to_is_noticed_in_a_clean_week_too(tmp_path: Path, clean: Path) -> None:
    sent = run_recipe(exec_start(), tmp_path, clean, MAILTO="")
    assert sent.status != 0
    assert "MAILTO: set it in /etc/gua/gua-mail.env" in sent.journal


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here to ask")
def test_systemd_has_nothing_to_complain_about() -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(SERVICE), str(TIMER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    (when,) = re.findall(r"^OnCalendar=(.*)$", TIMER.read_text(), re.MULTILINE)
    shown = subprocess.run(["systemd-analyze", "calendar", when], capture_output=True, text=True, check=True).stdout
    assert "Normalized form: Mon *-*-* 07:00:00" in shown


@pytest.mark.parametrize("recipe_file", [CRON, SERVICE], ids=lambda path: path.name)
def test_each_recipe_says_how_it_is_installed(recipe_file: Path) -> None:
    text = recipe_file.read_text()
    assert "# To install: " in text
    assert f"contrib/mail/{recipe_file.name}" in text
    assert "sudo install contrib/mail/gua-mail /usr/local/bin/" in text
    assert os.access(RECIPES / "gua-mail", os.X_OK)
