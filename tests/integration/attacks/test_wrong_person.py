"""More attempts to get a mail sent to another, or twice, or the hook run for the wrong process, or as root."""

import email
import email.policy
import json
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gua_report.commands import hook
from gua_report.machine import child
from gua_report.mailing import message as sending
from gua_report.telling import log, reminders, watch
from gua_report.telling.log import FORMER, HOOK_LOG, REMIND_LOG, open_log
from gua_sample import rights
from gua_sample.containers import FILE_NAME, VERSION
from gua_sample.errors import StoreError
from gua_sample.safe_file import MOST_DATABASE_BYTES
from tests.integration.attacks.attempts import calmly, is_tame, meanwhile
from tests.lab import HOUR_MS, held
from tests.mail_server import mail_server
from tests.redis_server import CERTIFICATE
from tests.telling import ADMINISTRATOR, CONFIG, Desk, job
from tests.users import SOMEBODY, needs_root
from tests.verbs import run

pytestmark = pytest.mark.real

BOB, EVE = 1002, 1003  # carol's uid

TOLD_TODAY = "sent 0, held back 1 (told today: alice)\n"


# Who is user gua, and so decides what the history and the names of containers say.
def test_a_login_that_the_history_adds_to_a_service_of_roots_makes_no_mail_to_a_colleague(desk: Desk) -> None:
    """It has no login uid, and that of root would be believed: the kernel's word counts, that there is none."""
    desk.write(held(job("root", cgroup="/system.slice/ollama.service")))
    for path in (desk.data_dir / "samples").glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE process SET login_uid = ?, login_user = 'bob'", (BOB,))
    assert desk.remind("--send").out == "sent 1, no person 1 (unit:ollama.service)\n"
    assert desk.recipients() == [ADMINISTRATOR]
    assert "bob" not in desk.mails()[0]


def claim_in_history(desk: Desk, name: str = "bob") -> None:
    """The directory does not tell the name of a uid, so the history does."""
    nameless = job("carol")._replace(user=None, uid=EVE)
    desk.write(held(nameless._replace(user=name)))
    desk.gpus = (held(nameless),)


def claim_in_containers(desk: Desk) -> None:
    """As an earlier gua kept the owner of a rootless container."""
    desk.write(held(job("carol")._replace(user=None, uid=EVE)))
    one = {"runtime": "podman", "name": "train", "image": None, "owner": "bob", "how": "socket", "slice_uid": EVE}
    known = {f"{EVE}/3f2a9c81d0b7": {**one, "seen_ms": desk.now_ms}}
    (desk.data_dir / FILE_NAME).write_text(json.dumps({"version": VERSION, "containers": known, "asked_ms": {}}))


CLAIMS: list[Callable[[Desk], None]] = [
    claim_in_history,
    lambda desk: claim_in_history(desk, "robert"),  # a name that is mapped
    claim_in_containers,
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_whom_the_administrator_names_is_not_made_the_owner_of_something_else(
    desk: Desk, claim: Callable[[Desk], None]
) -> None:
    """That [people] names somebody is no word about what others call by that name."""
    desk.uids |= {"robert": 1044}
    desk.configure('[people]\n"uid:4444" = "bob"\nrobert = "bob"')
    claim(desk)
    desk.remind("--send")
    assert desk.recipients() == [ADMINISTRATOR]


def test_whom_the_administrator_names_still_gets_their_mail(desk: Desk) -> None:
    desk.uids |= {"robert": 1044}
    desk.configure('[people]\n"docker:3f2a9c81d0b7" = "bob"\nrobert = "bob"')
    container = job("root", 100, cgroup="/docker/3f2a9c81d0b7" + "0" * 52)
    desk.write(held(container), held(job("robert", 200)._replace(uid=1044), index=1), held(job("bob", 300), index=2))
    assert desk.remind("--send").out == "sent 1\n"
    assert desk.recipients() == ["bob@lab.example"]
    assert "60.0 GiB on 3 GPUs" in desk.mails()[0]


LINES = {
    "half a pair of surrogates": {"who": "\ud800", "text": "\udfff"},
    "a time beyond every calendar": {"ts_ms": 10**30},
    "a pid of a thousand digits": {"episodes": [{"boot_id": "b", "gpu_uuid": "g", "pid": 10**999, "start_time_ms": 1}]},
    "a name of a megabyte": {"who": "x" * 1_000_000},
    "a terminal's title": {"who": "\x1b]0;owned\x07", "to": "\x9b31m", "text": "\u202e\r\n"},
}


@needs_root
@pytest.mark.parametrize("changes", LINES.values(), ids=LINES)
def test_lines_that_gua_plants_in_the_log_cost_root_no_more_than_a_line(desk: Desk, changes: dict[str, object]) -> None:
    line = {"id": "a", "ts_ms": desk.now_ms, "who": "x", "to": None, "episodes": [], "is_trial": False}
    desk.write(held(job("alice")))
    path = desk.data_dir / FORMER[REMIND_LOG]
    path.write_text(json.dumps({**line, "outcome": "begun", "text": None, **changes}) + "\n")
    path.chmod(0o600)
    for found in (path, desk.data_dir):
        os.chown(found, 54328, 54328)
    for options in (["--log"], ["--log", "--json"], []):
        done = calmly(run("remind", "--data-dir", desk.data_dir, "--config", desk.folder / "gua.toml", *options))
        assert is_tame(done.stdout + done.stderr)


def test_a_log_that_is_too_large_to_be_read_holds_mails_back(desk: Desk) -> None:
    desk.write(held(job("alice")))
    path = desk.data_dir / REMIND_LOG
    path.touch(0o600)
    os.truncate(path, MOST_DATABASE_BYTES + 1)
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "is too large" in done.errors


# Who controls a name of a user, by a directory that takes any.
@pytest.mark.parametrize(
    "user",
    [
        *("=?utf-8?q?bob?=", "bob\u202e", "bob%lab.example", "bob!alice", "b" * 300, "bob\x00", "bob (alice)", '"bob"'),
        *("bob@evil.example", "bob,alice", "-oQ/tmp", "bob alice", "bob\nalice", "<bob>", "bob:"),
        *("|bob", "/var/mail/bob", "\uff42ob"),  # a wide b, which some would fold
    ],
)
def test_no_odd_name_of_a_user_is_an_address(desk: Desk, user: str) -> None:
    desk.uids[user] = EVE
    desk.write(held(job(user)._replace(uid=EVE)), held(job("alice", 200), index=1))
    done = desk.remind("--send")
    assert [to for to in desk.recipients() if to != ADMINISTRATOR] == ["alice@lab.example"]  # her own, and once
    assert is_tame(done.out + done.errors)
    for text in desk.mails():
        message = email.message_from_string(text, policy=email.policy.default)
        assert not message.defects
        assert {"Bcc", "Cc", "Reply-To"}.isdisjoint(message.keys())
        assert len(message.get_all("To", [])) == 1


# Who ends it, or what it runs in.
STEPS = {"before it is written down": (0, 1), "before it is sent": (1, 0), "after it": (2, 1)}


@pytest.mark.parametrize(("step", "sent"), STEPS.values(), ids=STEPS)
def test_whenever_it_is_killed_nobody_gets_two_mails_that_day(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: int, sent: int
) -> None:
    desk.write(held(job("alice")))
    with monkeypatch.context() as patch:
        steps = iter(range(10))

        def die_before(act: object) -> object:
            def instead(*given: object, **named: object) -> object:
                if next(steps) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                assert callable(act)
                return act(*given, **named)

            return instead

        patch.setattr(log.Log, "begin", die_before(log.Log.begin))
        patch.setattr(reminders, "send", die_before(sending.send))
        patch.setattr(log.Log, "end", die_before(log.Log.end))
        done = run("remind", "--send", "--data-dir", desk.data_dir, "--config", desk.folder / "gua.toml")
    assert done.returncode == -signal.SIGKILL
    desk.remind("--send")
    desk.now_ms += HOUR_MS // 12
    desk.remind("--send")
    assert desk.recipients() == ["alice@lab.example"] * sent


def test_a_disk_that_is_full_once_it_is_sent_makes_no_second_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(held(job("alice")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def send(*given: object) -> object:
        found = sending.send(*given)  # type: ignore[arg-type]
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
        return found

    monkeypatch.setattr(reminders, "send", send)
    try:
        done = desk.remind("--send")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.status == 1
    assert REMIND_LOG in done.errors
    assert desk.remind("--send").out == TOLD_TODAY
    assert desk.recipients() == ["alice@lab.example"]


def test_in_an_empty_environment_it_does_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(held(job("alice")))
    monkeypatch.setattr(sending, "FOLDERS", (str(desk.outbox),))
    for name in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(name)
    assert desk.remind("--send") == (0, "sent 1\n", "")
    assert desk.remind("--send").out == TOLD_TODAY


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"])
def test_another_clock_sends_no_second_mail_about_the_same(desk: Desk, zone: str) -> None:
    desk.configure('[remind]\nhours = "0-24"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]')
    desk.write(held(job("alice")))
    assert desk.remind("--send").out == "sent 1\n"
    assert desk.remind("--send", "--tz", zone).out.startswith("sent 0, held back 1 (told ")
    assert desk.recipients() == ["alice@lab.example"]


def test_output_that_nobody_takes_makes_no_second_mail(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(held(job("alice")))
    with monkeypatch.context() as patch, suppress(OSError), open("/dev/full", "w") as full:
        patch.setattr("sys.stdout", full)
        assert "can't be written" in desk.remind("--send").errors
    assert desk.remind("--send").out == TOLD_TODAY
    assert desk.recipients() == ["alice@lab.example"]


def test_a_server_that_answers_oddly_after_it_took_the_mail_gets_no_second_one(desk: Desk) -> None:
    desk.write(held(job("alice")))
    with mail_server(answers={"DATA": "252 I will try"}) as server:
        desk.configure(mail=f'{CONFIG}smtp = "{server.url}"\nfrom = "gua@lab.example"\nca_file = "{CERTIFICATE}"\n')
        done = desk.remind("--send")
        assert "not known whether it was sent to alice@lab.example" in done.errors
        assert desk.remind("--send").out == TOLD_TODAY


@pytest.fixture
def hooked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk with a hook. Who may write to it is for other tests."""
    desk.configure('[hook]\nrun = "/bin/true"\nidle_after = "2h"')
    monkeypatch.setattr(hook, "check_target", lambda path: None)
    return desk


def test_an_episode_that_is_older_than_a_look_back_is_still_the_same(hooked: Desk) -> None:
    """After a week, its beginning is not seen any more."""
    hooked.write(held(job("alice")))
    assert hooked.hook().out.endswith("for 1 process\n")
    for days in (1, 6.5, 1):
        hooked.later(24 * days)
        assert hooked.hook().out == "ran /bin/true for 0 processes\n"


def test_processes_that_can_not_be_seen_take_no_turn_of_others(hooked: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MOST_RUNS", 1)
    hooked.write(held(job("alice")), held(job("bob", 200), index=1))
    hooked.gone = {100}
    done = hooked.hook()
    assert done.out.endswith("for 1 process\n")
    assert "bob holds" in done.out


def test_two_processes_that_began_together_are_two(hooked: Desk) -> None:
    hooked.write(held(job("alice", 100), job("alice", 101)))
    assert hooked.hook().out.endswith("for 2 processes\n")
    hooked.later(3, held(job("alice", 101), job("alice", 102)))
    done = hooked.hook()
    assert "pid 102" in done.out
    assert done.out.endswith("for 1 process\n")


def test_a_process_that_took_over_a_pid_meanwhile_is_another_one(hooked: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked.write(held(job("alice")))
    look = watch.see

    def look_and_lose(*given: object) -> watch.Sight:
        found = look(*given)  # type: ignore[arg-type]
        hooked.gpus = (held(job("bob", start_time_ms=6000)),)
        return found

    monkeypatch.setattr(watch, "see", look_and_lose)
    assert hooked.hook().out == "ran /bin/true for 0 processes\n"
    assert hooked.log(HOOK_LOG) == []


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

    monkeypatch.setattr(child, "owner_to_become", look_and_lose)
    with pytest.raises(StoreError, match="can't be written"):
        open_log(str(data), HOOK_LOG)
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
                open_log(str(data), HOOK_LOG)
            except (StoreError, OSError):
                continue
    assert list(etc.iterdir()) == []
