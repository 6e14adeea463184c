"""`gua mail`, and the recipes in contrib/mail as cron and systemd run them: who gets a mail, and what is in it."""

import email
import email.policy
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import NamedTuple

import pytest

from gua_report.commands import mail
from gua_report.commands.demo import simulate
from gua_report.mailing import message as sending
from tests.lab import HOUR_MS, busy, free, held, series, write
from tests.machine import GUA, call, one_line
from tests.repository import ROOT
from tests.svg import Page
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

RECIPES = ROOT / "contrib" / "mail"
CRON, SERVICE, TIMER = (RECIPES / name for name in ("gua-report.cron", "gua-mail.service", "gua-mail.timer"))
CLOSED = RECIPES / "smtp.conf"
TEN_MINUTES_MS = 600_000
ADMINISTRATOR = "gpu-admins@lab.example"
# It takes a mail as sendmail does, and remembers what it was given.
SENDMAIL = """\
#!/bin/sh
printf '%s\\n' "$@" >"$0.arguments"
cat >"$0.mail"
if [ -n "${MAIL_STATUS-}" ]; then echo "queue is full" >&2; exit "$MAIL_STATUS"; fi
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
    recipients: list[str]  # none if nothing was sent
    subject: str
    body: str
    attached: dict[str, str]  # by file name


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only sendmail there is."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sendmail").write_text(SENDMAIL)
    (folder / "sendmail").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(sending, "FOLDERS", ())
    return folder


def read_sent(outbox: Path, status: int, journal: str) -> Sent:
    if not (outbox / "sendmail.mail").exists():
        return Sent(status, journal, [], "", "", {})
    options, recipients = (outbox / "sendmail.arguments").read_text().split("--\n")
    assert options == "-i\n"
    message = email.message_from_bytes((outbox / "sendmail.mail").read_bytes(), policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    parts = [part for part in message.walk() if not part.is_multipart()]
    assert not [defect for part in (message, *parts) for defect in part.defects]
    assert [address.addr_spec for address in message["To"].addresses] == recipients.split()
    body = message.get_body(("plain",))
    assert body is not None
    attached = {str(part.get_filename()): str(part.get_content()) for part in message.iter_attachments()}
    return Sent(status, journal, recipients.split(), str(message["Subject"]), body.get_content(), attached)


def run_recipe(command: list[str], outbox: Path, data_dir: Path, **variables: str) -> Sent:
    """Run the command in little else than the environment that cron or systemd give, with a config of its own."""
    config = outbox / "gua.toml"
    if not config.exists():
        config.write_text(f'[mail]\nadministrator = "{ADMINISTRATOR}"\n')
    (outbox / "gua").write_text(f'#!/bin/sh\nexec "{GUA}" "$@" --config {config}\n')
    (outbox / "gua").chmod(0o755)
    environment = {"PATH": f"{outbox}:/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    done = call(command, env={**environment, "GUA_DATA_DIR": str(data_dir), **variables}, stdin=subprocess.DEVNULL)
    return read_sent(outbox, done.returncode, done.stdout + done.stderr)


@pytest.fixture(params=["cron", "systemd"])
def recipe(request: pytest.FixtureRequest) -> list[str]:
    """What either runs."""
    return ["sh", "-c", cron_job()[2]] if request.param == "cron" else exec_start()


def host() -> str:
    return os.uname().nodename


def test_nothing_is_mailed_after_a_clean_week(recipe: list[str], outbox: Path, clean: Path) -> None:
    assert run_recipe(recipe, outbox, clean) == Sent(0, "", [], "", "", {})


def test_a_week_with_something_to_act_on_is_mailed_with_its_page(
    recipe: list[str], outbox: Path, unclean: Path
) -> None:
    sent = run_recipe(recipe, outbox, unclean)
    assert (sent.status, sent.journal, sent.recipients) == (0, "", [ADMINISTRATOR])
    # At some times of the week the laboratory has a lost card.
    held_now = r"(\d+|none) (held now|known to be held now, \d+ cards? unknown)"
    assert re.fullmatch(rf"{host()}: \d+ % idle-held, {held_now}", sent.subject)
    assert re.match(r"To act on: \d+ idle-held episodes of 1h or more by \d+ holders \(longest", sent.body)
    lines = sent.body.splitlines()
    assert lines[-2:] == ["-- ", f"gua mail on {host()}. The page attached has all of it, with pictures."]
    assert len(lines) <= 40 + 3
    assert max(map(len, lines)) <= 72
    ((name, text),) = sent.attached.items()
    assert re.fullmatch(rf"gpu-use-{host()}-\d{{4}}-\d\d-\d\d\.html", name)
    assert len(Page(text).pictures) == 7


def test_what_went_wrong_is_mailed_and_the_unit_fails(recipe: list[str], outbox: Path) -> None:
    sent = run_recipe(recipe, outbox, outbox / "nothing")
    assert sent.status == 3
    assert (sent.journal, sent.recipients) == ("", [ADMINISTRATOR])
    assert sent.subject == f"{host()}: GPU report failed"
    assert sent.body.replace("\n", " ").startswith(f"There is no report: {outbox}/nothing does not exist: ")
    assert sent.attached == {}


GuaMail = Callable[..., Sent]


@pytest.fixture
def gua_mail(outbox: Path, capfd: pytest.CaptureFixture[str]) -> GuaMail:
    """The command in this process, on nobody's configuration."""

    def call_it(data_dir: Path, *options: str) -> Sent:
        words = ["--data-dir", str(data_dir), "--config", "/dev/null", "--to", ADMINISTRATOR, *options]
        return read_sent(outbox, mail.main(words), "".join(capfd.readouterr()))

    return call_it


def test_a_clean_week_with_a_warning_is_mailed(gua_mail: GuaMail, tmp_path: Path, clean: Path) -> None:
    config = tmp_path / "gua.toml"
    config.write_text('[reservations]\nfile = "/nowhere/reservations.csv"\n')
    sent = gua_mail(clean, "--quiet-if-clean", "--config", str(config))
    assert (sent.status, sent.journal) == (0, "")
    assert "To act on" not in sent.body
    assert "Warning: reservations can't be read" in sent.body


def test_a_person_at_a_terminal_is_told_and_cron_is_not(
    gua_mail: GuaMail, clean: Path, outbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.console.terminal.is_terminal", lambda _: True)
    shown = f"{host()}: 0 % idle-held, none held now"
    assert gua_mail(clean).journal == f"sent to {ADMINISTRATOR}: {shown}\n"
    quiet = gua_mail(clean, "--quiet-if-clean")
    assert quiet.journal == f"nothing to act on: nothing is sent to {ADMINISTRATOR}\n"
    failed = gua_mail(outbox / "nothing")
    assert failed.journal.endswith(
        f"error: {outbox}/nothing does not exist: give another --data-dir, or install gua first (sudo make install)\n"
    )


def test_what_can_not_be_mailed_is_left_in_the_journal_and_the_unit_fails(outbox: Path, unclean: Path) -> None:
    sent = run_recipe(exec_start(), outbox, unclean, MAIL_STATUS="75")
    assert sent.status == 1
    text, error = sent.journal.rsplit("\ngua mail: error: ", 1)
    assert text.startswith("To act on: ")
    assert text.strip() == sent.body.strip()
    assert error == f"not sent to {ADMINISTRATOR}: {outbox}/sendmail failed with status 75: queue is full\n"


def test_nobody_to_mail_to_is_noticed_in_a_clean_week_too_and_a_dry_run_needs_nobody(outbox: Path, clean: Path) -> None:
    (outbox / "gua.toml").write_text("[mail]\n")
    sent = run_recipe(exec_start(), outbox, clean)
    assert (sent.status, one_line(sent.journal)) == (2, True)
    assert "nobody to mail to: set administrator in [mail]" in sent.journal
    done = call([GUA, "mail", "--dry-run", "--config", outbox / "gua.toml", "--data-dir", clean])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("To: (nobody yet)\nSubject: ")


def test_a_dry_run_prints_the_mail_and_sends_nothing(gua_mail: GuaMail, unclean: Path) -> None:
    sent = gua_mail(unclean, "--dry-run")
    assert (sent.status, sent.recipients) == (0, [])
    headers, text = sent.journal.split("\n\n", 1)
    assert headers.splitlines()[0] == f"To: {ADMINISTRATOR}"
    assert f"Subject: {host()}: " in headers
    assert text.startswith("To act on: ")
    assert re.search(rf"\n\[gpu-use-{host()}-[0-9-]+\.html: text/html, \d+ kB\]\n$", text)


def test_a_bug_or_a_report_that_hangs_is_mailed_too_and_a_page_that_no_server_takes_is_left_out(
    gua_mail: GuaMail, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("gua_report.render.mail.reasons", lambda *_: 1 / 0)
        sent = gua_mail(clean, "--quiet-if-clean")
        assert (sent.status, sent.journal) == (1, "")
        assert sent.body.startswith("There is no report: ZeroDivisionError: division by zero\n")
        patch.setattr(mail, "REPORT_SECONDS", 0.3)
        patch.setattr("gua_report.render.mail.reasons", lambda *_: time.sleep(20))
        sent = gua_mail(clean)
        assert (sent.status, "timed out after" in sent.body) == (1, True)
    monkeypatch.setattr(mail, "MOST_PAGE_BYTES", 1000)
    sent = gua_mail(clean)
    assert sent.attached == {}
    assert "Its page is too large for a mail: gua report --format html." in sent.body


def test_what_a_child_sends_that_somebody_has_taken_control_of_adds_no_header(
    gua_mail: GuaMail, outbox: Path, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ["lab\r\nBcc: eve@evil.example", "\x1b[2J\r\n.\r\n\ud800", "<p>\ud800", ["\nBcc: x"], False]
    monkeypatch.setattr("gua_report.render.mail.make_mails", lambda *_: [parts, {}])
    sent = gua_mail(clean)
    assert (sent.status, sent.journal, sent.recipients) == (0, "", [ADMINISTRATOR])
    assert sent.subject == r"lab\r\nBcc: eve@evil.example"
    assert sent.body.startswith("\\x1b[2J\\r\n.\\r\n\\ud800\nWarning: \\nBcc: x\n\n-- \n")
    assert b"Bcc: eve" not in (outbox / "sendmail.mail").read_bytes().replace(b"lab\\r\\nBcc: eve", b"")


@needs_root
def test_root_reads_as_the_owner_and_sends_as_itself(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that sends is one that only root may run; what only root may read is not in the report."""
    data, outbox = open_folder / "data", open_folder / "bin"
    end_ms = time.time_ns() // 1_000_000
    write(data, series(end_ms - HOUR_MS, 60, held()))
    give(data)
    outbox.mkdir(mode=0o700)
    (outbox / "sendmail").write_text(SENDMAIL)
    (outbox / "sendmail").chmod(0o700)
    monkeypatch.setenv("PATH", f"{outbox}:/usr/bin:/bin")
    options = ("mail", "--to", ADMINISTRATOR, "--config", "/dev/null", "--data-dir", data)
    done = run(*options)
    sent = read_sent(outbox, done.returncode, done.stdout + done.stderr)
    assert (sent.status, sent.journal) == (0, "")
    assert "alice" in sent.body
    for path in data.rglob("*.sqlite"):
        os.chown(path, 0, 0)
        path.chmod(0o600)
    done = run(*options)
    sent = read_sent(outbox, done.returncode, done.stdout + done.stderr)
    assert (sent.status, sent.journal) == (1, "")
    assert sent.subject == f"{host()}: GPU report failed"
    assert data.stat().st_uid == SOMEBODY


def settings(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")}


def test_with_a_server_of_its_own_the_unit_is_as_closed_as_the_sampler_but_for_the_network() -> None:
    sampler = settings(ROOT / "systemd" / "gua-sample.service")
    wanted = {
        line for line in sampler if re.match(r"(Protect|Restrict|Private|NoNew|Capab|Ambient|System|Lock|Mem)", line)
    }
    wanted |= {line for line in sampler if re.match(r"(Inaccessible|RemoveIPC|Keyring|DevicePolicy)", line)}
    missing = wanted - settings(SERVICE) - settings(CLOSED)
    assert missing == {"PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX"}
    assert "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX" in settings(CLOSED)
