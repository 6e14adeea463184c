"""The recipes in contrib/mail: what they run, as cron and systemd run it. Who gets a mail, and what is in it."""

from __future__ import annotations

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

RECIPES = ROOT / "contrib" / "mail"
CRON, SERVICE, TIMER = (RECIPES / name for name in ("gua-report.cron", "gua-mail.service", "gua-mail.timer"))
TEN_MINUTES_MS = 600_000
# It takes a mail as mail(1) does, and remembers what it was given.
MAIL = """\
#!/bin/sh
printf '%s\\n' "$@" >"$MAILBOX/arguments"
cat >"$MAILBOX/body"
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


# --- cron ---


def cron_lines() -> list[str]:
    return [line for line in CRON.read_text().splitlines() if line and not line.startswith("#")]


def cron_job() -> tuple[str, str, str]:
    """When, whose, and what. All other lines set variables."""
    jobs = [line for line in cron_lines() if not re.match(r"\w+=", line)]
    assert len(jobs) == 1
    *when, user, command = jobs[0].split(maxsplit=6)
    return " ".join(when), user, command


def run_cron(data_dir: Path) -> subprocess.CompletedProcess[str]:
    _, _, command = cron_job()
    return subprocess.run(
        ["sh", "-c", command], env=environment(data_dir, str(SCRIPTS)), capture_output=True, text=True, check=False
    )


def test_cron_runs_it_once_a_week_as_a_user_without_rights() -> None:
    when, user, command = cron_job()
    assert (when, user) == ("0 7 * * 1", "gua")
    assert "%" not in command  # to cron that is a line break
    variables = dict(line.split("=", 1) for line in cron_lines() if re.match(r"\w+=", line))
    assert variables["MAILTO"]
    assert "/usr/local/bin" in variables["PATH"].split(":")
    assert CRON.read_text().endswith("\n")  # or cron passes over the last line


def test_cron_has_nothing_to_mail_after_a_clean_week(clean: Path) -> None:
    done = run_cron(clean)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cron_mails_a_week_with_something_to_act_on(unclean: Path) -> None:
    done = run_cron(unclean)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"To act on: \d+ idle-held episodes of 1h or more by \d+ holders \(\w", done.stdout)
    assert "§7 Coverage" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 78


def test_cron_mails_what_went_wrong(tmp_path: Path) -> None:
    done = run_cron(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)


# --- systemd ---


class Sent(NamedTuple):
    status: int
    journal: str
    arguments: list[str]  # of mail; none if it was not called
    body: str


def exec_start() -> list[str]:
    """As systemd splits it, with its own escapes undone. The unit uses neither backslashes nor specifiers."""
    text = SERVICE.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert "\\" not in line
    assert "%" not in line
    assert "$" not in line.replace("$$", "")
    return [word.replace("$$", "$") for word in shlex.split(line)]


def run_service(folder: Path, data_dir: Path, scripts: Path = SCRIPTS, **variables: str) -> Sent:
    (folder / "bin").mkdir()
    (folder / "bin" / "mail").write_text(MAIL)
    (folder / "bin" / "mail").chmod(0o755)
    (folder / "tmp").mkdir()
    variables = {"MAILTO": "gpu-admins@lab.example", "MAILBOX": str(folder), "TMPDIR": str(folder / "tmp"), **variables}
    done = subprocess.run(
        exec_start(),
        env=environment(data_dir, f"{folder / 'bin'}:{scripts}", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert list((folder / "tmp").iterdir()) == []
    arguments, body = folder / "arguments", folder / "body"
    return Sent(
        done.returncode,
        done.stdout + done.stderr,
        arguments.read_text().splitlines() if arguments.exists() else [],
        body.read_text() if body.exists() else "",
    )


def host() -> str:
    return os.uname().nodename


def test_systemd_mails_nothing_after_a_clean_week(tmp_path: Path, clean: Path) -> None:
    assert run_service(tmp_path, clean) == Sent(0, "", [], "")


def test_systemd_mails_a_week_with_something_to_act_on(tmp_path: Path, unclean: Path) -> None:
    sent = run_service(tmp_path, unclean)
    assert (sent.status, sent.journal) == (0, "")
    assert sent.arguments == ["-s", f"GPU use on {host()}", "gpu-admins@lab.example"]
    assert sent.body.startswith("To act on: ")
    assert "§7 Coverage" in sent.body


def test_systemd_mails_what_went_wrong_and_the_unit_fails(tmp_path: Path) -> None:
    sent = run_service(tmp_path, tmp_path / "nothing")
    assert sent.status == 3
    assert sent.arguments == ["-s", f"gua-report failed on {host()}", "gpu-admins@lab.example"]
    assert re.match(r"gua-report: error: \S+/nothing does not exist", sent.body)
    assert one_line(sent.body)


def test_systemd_mails_a_report_with_what_was_skipped_for_it(tmp_path: Path, clean: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(clean, data_dir)
    broken = sorted((data_dir / "samples").iterdir())[3]
    broken.write_text("garbage, more than sixteen bytes of it")
    sent = run_service(tmp_path, data_dir)
    assert sent.status == 0
    assert sent.body.startswith("gua-report: warning: skipped: ")
    assert "\nTo act on: " in sent.body


def test_a_program_that_is_not_installed_is_mailed_too(tmp_path: Path, clean: Path) -> None:
    sent = run_service(tmp_path, clean, scripts=tmp_path / "nowhere")
    assert sent.status == 127
    assert "gua-report" in sent.body
    assert "not found" in sent.body


def test_what_can_not_be_mailed_is_left_in_the_journal_and_the_unit_fails(tmp_path: Path, unclean: Path) -> None:
    sent = run_service(tmp_path, unclean, MAIL_STATUS="75")
    assert sent.status == 75
    assert sent.journal == sent.body
    assert sent.body.startswith("To act on: ")


def test_nobody_to_mail_to_is_noticed_in_a_clean_week_too(tmp_path: Path, clean: Path) -> None:
    sent = run_service(tmp_path, clean, MAILTO="")
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


@pytest.mark.parametrize("recipe", [CRON, SERVICE], ids=lambda path: path.name)
def test_each_recipe_says_how_it_is_installed_and_asks_for_the_same(recipe: Path) -> None:
    text = recipe.read_text()
    assert "# To install: " in text
    assert f"contrib/mail/{'gua-mail.*' if recipe is SERVICE else recipe.name}" in text
    assert text.count("gua-report --since 7d --quiet-if-clean") == 1
