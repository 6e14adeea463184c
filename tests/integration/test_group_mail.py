"""`gua mail` to the heads of groups, by a real mail server: who gets what, and who is named in it."""

import email
import email.policy
import re
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gua_report.commands import mail
from tests.lab import DAY_MS, Job, busy, held, series, write
from tests.mail_server import MailServer, mail_server
from tests.redis_server import CERTIFICATE

pytestmark = pytest.mark.real

ADMINISTRATOR, HEAD, OTHER_HEAD, LAST_HEAD = (f"{name}@lab.example" for name in ("root", "ann", "bea", "cleo"))
HOSTILE = "v=?utf-8?q?=0d=0aBcc:_eve=40evil.example?= <b>"
ALICE, BOB = Job(100, "alice"), Job(200, "bob")


class Got(NamedTuple):
    subject: str
    text: str
    page: str | None


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week in which alice holds a card without work and bob works."""
    folder = tmp_path_factory.mktemp("week")
    start_ms = time.time_ns() // 1_000_000 - 7 * DAY_MS
    hour_ms = DAY_MS // 24
    cards = held(ALICE), busy(BOB, index=1)
    write(folder, series(start_ms, 7 * 24, *cards, every_ms=hour_ms, interval_ms=hour_ms))
    return folder


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as started:
        yield started


def configure(folder: Path, server: MailServer, groups: dict[str, list[str]], heads: dict[str, str]) -> str:
    lines = ["[mail]", f'administrator = "{ADMINISTRATOR}"', 'from = "gua@lab.example"', f'smtp = "{server.url}"']
    lines += [f'ca_file = "{CERTIFICATE}"', "[mail.groups]"]
    lines += [f'"{group}" = "{address}"' for group, address in heads.items()]
    lines += ["[groups]", *(f'"{group}" = {members}' for group, members in groups.items())]
    path = folder / "gua.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


GROUPS = {"vision": ["alice"], "nlp": ["bob"], "empty": ["nobody-here"]}
HEADS = {"vision": HEAD, "nlp": OTHER_HEAD, "empty": LAST_HEAD}


def received(server: MailServer) -> dict[str, Got]:
    """The mails by recipient, each of which got one."""
    found = {}
    for one in server.received:
        message = email.message_from_bytes(one.content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        (to,) = one.recipients
        assert [str(address.addr_spec) for address in message["To"].addresses] == [to]
        assert set(message.keys()).isdisjoint({"Cc", "Bcc"})
        pages = [str(part.get_content()) for part in message.iter_attachments()]
        body = message.get_body(("plain",))
        assert body is not None
        assert to not in found
        found[to] = Got(str(message["Subject"]), body.get_content(), pages[0] if pages else None)
    return found


Send = Callable[..., int]


@pytest.fixture
def send(week: Path, server: MailServer, tmp_path: Path) -> Send:
    """The command by that server, by default for the three heads."""

    def call(*options: str, groups: dict[str, list[str]] = GROUPS, heads: dict[str, str] = HEADS, **given: Any) -> int:
        config = configure(tmp_path, given.get("server", server), groups, heads)
        return mail.main(["--data-dir", str(given.get("data_dir", week)), "--config", config, *options])

    return call


def test_each_head_gets_the_report_of_their_group_and_nobody_elses_name(
    send: Send, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert send() == 0
    assert capfd.readouterr() == ("", "")
    got = received(server)
    assert set(got) == {ADMINISTRATOR, HEAD, OTHER_HEAD, LAST_HEAD}
    host = got[ADMINISTRATOR].subject.partition(":")[0]
    assert got[ADMINISTRATOR].subject == f"{host}: 50 % idle-held, 1 held now"
    assert got[HEAD].subject == f"{host}, vision: 100 % idle-held, 1 held now"
    assert got[OTHER_HEAD].subject == f"{host}, nlp: 0 % idle-held, none held now"
    for to, own, other in ((HEAD, "alice", "bob"), (OTHER_HEAD, "bob", "alice")):
        assert got[to].page is not None
        for said in (got[to].text, got[to].page or ""):
            assert own in said
            assert other not in said
    # Soon after midnight, the first tick of the day reaches back to it.
    assert re.match(r"To act on: 1 idle-held episode of 1h or more \(alice ≥ 7d( [12]h)?\)", got[HEAD].text)
    assert "GPU use of group vision on" in got[HEAD].text
    assert "Headline" in (got[ADMINISTRATOR].page or "")
    assert "Headline" not in (got[HEAD].page or "")  # which is of the whole machine


def test_a_group_of_which_nobody_was_seen_is_told_so(send: Send, server: MailServer) -> None:
    assert send() == 0
    told = received(server)[LAST_HEAD]
    assert told.subject.endswith(", empty: nobody seen on a card")
    said = " ".join(told.text.split())
    assert said.startswith("Nobody of the group empty was seen on a card from ")
    assert ". >99.9% of the time was observed. -- gua mail on" in said
    assert max(map(len, told.text.splitlines())) <= 72
    assert told.page is None


def test_who_has_nothing_to_act_on_gets_nothing_if_that_is_asked_for(send: Send, server: MailServer) -> None:
    assert send("--quiet-if-clean") == 0
    assert set(received(server)) == {ADMINISTRATOR, HEAD}


def test_with_an_address_on_the_command_line_no_head_gets_anything(send: Send, server: MailServer) -> None:
    assert send("--to", "eva@lab.example") == 0
    assert set(received(server)) == {"eva@lab.example"}


def test_a_head_who_is_refused_keeps_nobody_else_from_getting_theirs(
    send: Send, capfd: pytest.CaptureFixture[str]
) -> None:
    with mail_server(answers={HEAD: "550 no such user"}) as server:
        assert send(server=server) == 1
        assert set(received(server)) == {ADMINISTRATOR, OTHER_HEAD, LAST_HEAD}
    assert f"gua mail: error: not sent to {HEAD}: " in capfd.readouterr().err


def test_a_group_that_is_not_known_costs_its_own_mail_alone_and_the_administrator_is_told(
    send: Send, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = {**GROUPS, "nlp": ["bob", "@no-such-group-here"]}
    assert send(groups=groups) == 1
    got = received(server)
    assert set(got) == {ADMINISTRATOR, HEAD, LAST_HEAD}
    error = f"gua mail: error: nothing is sent to {OTHER_HEAD}: not known who is in the group 'nlp': "
    assert capfd.readouterr().err.startswith(error)
    assert "Warning: there is no Unix group 'no-such-group-here' here" in got[ADMINISTRATOR].text
    assert "no-such-group-here" not in got[HEAD].text


def test_the_name_of_a_group_adds_no_header(send: Send, server: MailServer) -> None:
    assert send(groups={HOSTILE: ["alice"]}, heads={HOSTILE: HEAD}) == 0
    got = received(server)[HEAD]
    assert "eve=40evil.example" in got.subject
    assert got.subject.isprintable()
    assert "<b>" not in (got.page or "").partition("<body>")[2].replace("&lt;b&gt;", "")
    assert b"\nBcc" not in server.received[-1].content


def test_a_report_that_fails_is_told_to_the_administrator_alone(send: Send, server: MailServer, tmp_path: Path) -> None:
    assert send(data_dir=tmp_path / "nothing") == 3
    got = received(server)
    assert set(got) == {ADMINISTRATOR}
    assert got[ADMINISTRATOR].subject.endswith(": GPU report failed")


SENT = ["subject", "text", "page", [], True]


@pytest.mark.parametrize(
    "answer",
    [
        *([SENT, groups] for groups in ({}, {"vision": 1}, {"vision": ["subject", 1, "page", [], True]}, [HEAD])),
        *([sent, {}] for sent in (None, [], [1, *SENT[1:]], [*SENT[:3], None, True], "x")),
    ],
)
def test_nonsense_from_the_child_that_reads_is_a_failure(
    answer: object, send: Send, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.render.mail.make_mails", lambda *_: answer)
    assert send(heads={"vision": HEAD}) == 1
    got = received(server)
    assert set(got) == {ADMINISTRATOR}
    assert "sends nonsense" in got[ADMINISTRATOR].text


def test_a_child_can_not_add_a_recipient(send: Send, server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["subject", "text", "page", [], False]
    answer = [parts, {"vision": parts, "eve@evil.example": parts}]
    monkeypatch.setattr("gua_report.render.mail.make_mails", lambda *_: answer)
    assert send(heads={"vision": HEAD}) == 0
    assert set(received(server)) == {ADMINISTRATOR, HEAD}


def test_a_server_that_hangs_costs_all_mails_together_no_more_than_their_time(
    send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def hang(_message: object, recipients: list[str], _mail: object, seconds: float) -> dict[str, str]:
        given.append(seconds)
        return dict.fromkeys(recipients, "it hangs")

    monkeypatch.setattr("gua_report.commands.mail.send", hang)
    monkeypatch.setattr(mail, "SENDING_SECONDS", 0.0)
    assert send() == 1
    assert given == [mail.LEAST_SECONDS] * 4
