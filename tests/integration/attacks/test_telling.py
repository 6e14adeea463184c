"""Attempts to get a mail sent to another, a header added, the hook run for the wrong process, or as root.

By an ordinary user, by user gua, and by somebody who controls a process name, a container's label and a note.
"""

import email
import email.policy
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gua_report.telling.log import HOOK_LOG, REMIND_LOG
from gua_sample.containers import FILE_NAME, VERSION
from tests.integration.attacks.attempts import ESCAPE, calmly, is_tame
from tests.lab import DAY_MS, HOUR_MS, busy, held
from tests.notes import content, put
from tests.telling import ADMINISTRATOR, Desk, job
from tests.users import SOMEBODY, needs_root
from tests.verbs import Done, give, run

pytestmark = [needs_root, pytest.mark.real]

GUA = SOMEBODY + 7  # owns the history
EVE = 1003  # carol's uid
CONTAINER = "3f2a9c81d0b7" + "0" * 52
NAMES = [
    "x\nBcc: bob@lab.example",
    "x\r\nTo: bob@lab.example\r\n\r\nyou are fired",
    "=?utf-8?q?x=0ABcc=3A_bob=40lab.example?=",
    "$ask ${held} $$",
    "bob@lab.example",
    "; rm -rf /",
    ESCAPE,
]


@pytest.fixture
def target(desk: Desk) -> Iterator[Path]:
    """A program of root's that keeps what it is told, and as whom it runs."""
    folder = Path(tempfile.mkdtemp(prefix="gua-attack-", dir="/var/lib"))
    folder.chmod(0o755)
    (folder / "kept").mkdir()
    (folder / "kept").chmod(0o1777)
    path = folder / "on-idle"
    path.write_text(f'#!/bin/sh\ncat >{folder}/kept/$$; id -u >>{folder}/kept/$$; echo "$#" >>{folder}/kept/$$\n')
    path.chmod(0o755)
    desk.configure(f'[hook]\nrun = "{path}"\nidle_after = "2h"')
    yield path
    shutil.rmtree(folder)


@pytest.fixture
def guas(desk: Desk) -> Desk:
    """With a history of gua's, in which alice holds a card, in folders that everybody can use."""
    desk.write(held(job("alice")))
    give(desk.data_dir, GUA)
    desk.outbox.chmod(0o1777)
    desk.spool.chmod(0o1733)
    return desk


def kept(target: Path) -> list[list[str]]:
    """The lines of each run of the hook: facts, uid, number of arguments."""
    return [path.read_text().splitlines() for path in sorted((target.parent / "kept").iterdir())]


def gua(desk: Desk, *words: str, uid: int = 0) -> Done:
    """Run it in a child, as root may become somebody else in it for good."""
    done = calmly(run(*words, "--data-dir", desk.data_dir, "--config", desk.folder / "gua.toml", uid=uid))
    assert is_tame(done.stdout + done.stderr), done
    return done


# Who controls the name of a process.


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_process_adds_a_header_recipient_line_or_argument(desk: Desk, target: Path, name: str) -> None:
    desk.write(held(job("carol", command=name)))
    assert desk.remind("--send").out == "sent 1\n"
    assert desk.recipients() == ["carol@lab.example"]
    message = email.message_from_string(desk.mails()[0], policy=email.policy.default)
    assert message["To"] == "carol@lab.example"
    assert not message["Bcc"]
    assert not message["Cc"]
    assert len(message.get_all("To", [])) == 1
    body = message.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert is_tame(body.decode())
    assert not [line for line in body.decode().splitlines() if line.startswith(("Bcc", "To", "you are"))]
    assert desk.hook().status == 0
    ((facts, uid, arguments),) = kept(target)
    assert (json.loads(facts)["command"], arguments, uid) == (name, "0", "0")


# Who controls a cgroup, a login uid, a container and its labels.


def test_a_login_uid_that_a_process_chose_makes_no_mail_to_a_colleague(desk: Desk) -> None:
    """Processes in services and containers may set it to any number, once."""
    desk.uids["alice"] = 1001
    places = ["/system.slice/cron.service", f"/docker/{CONTAINER}", "/user.slice/user-1003.slice/session-4.scope"]
    jobs = [job("carol", 100 + place, login_user="alice", cgroup=cgroup) for place, cgroup in enumerate(places)]
    desk.write(*(held(one, index=place) for place, one in enumerate(jobs)))
    with_login = desk._describe
    desk._describe = lambda pid, boot: with_login(pid, boot)._replace(login_uid=1001)  # type: ignore[method-assign]
    desk.remind("--send")
    assert "alice@lab.example" not in desk.recipients()


def test_a_job_that_a_user_names_in_their_own_slice_is_no_job_to_cancel(desk: Desk, target: Path) -> None:
    cgroup = "/user.slice/user-1003.slice/user@1003.service/slurm/uid_1001/job_4711/step_0"
    desk.write(held(job("carol", cgroup=cgroup)))
    assert desk.remind("--send").out == "sent 1\n"
    assert "scancel" not in desk.mails()[0]
    desk.hook()
    assert json.loads(kept(target)[0][0])["slurm_job"] is None


@pytest.mark.parametrize("how", ["label", "mount"])
def test_a_label_that_names_a_colleague_makes_no_mail_to_them(desk: Desk, target: Path, how: str) -> None:
    desk.write(held(job("root", cgroup=f"/docker/{CONTAINER}")))
    write_containers(desk, CONTAINER[:12], owner="bob", how=how, slice_uid=None)
    assert desk.remind("--send").out == "sent 1, no person 1 (docker:3f2a9c81d0b7)\n"
    assert desk.recipients() == [ADMINISTRATOR]
    assert "bob" not in desk.mails()[0]
    desk.hook()
    assert json.loads(kept(target)[0][0])["identity"] == "docker:3f2a9c81d0b7"


def write_containers(desk: Desk, key: str, **changes: object) -> None:
    one = {"runtime": "docker", "name": "train", "image": None, "owner": None, "how": None, "slice_uid": None}
    document = {"version": VERSION, "containers": {key: {**one, "seen_ms": desk.now_ms, **changes}}, "asked_ms": {}}
    (desk.data_dir / FILE_NAME).write_text(json.dumps(document))


# Who writes notes.


def test_a_note_about_a_colleague_neither_keeps_a_mail_from_them_nor_is_told_in_it(desk: Desk) -> None:
    desk.now_ms = time.time_ns() // 1_000_000 + HOUR_MS  # a note begins when its file is written
    desk.configure('[remind]\nhours = "0-24"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]')
    desk.write(held(job("alice")), held(job("carol", 200), index=1))
    desk.spool.chmod(0o1733)
    process = {"pid": 100, "start_time_ms": 5000}
    abouts: tuple[dict[str, Any], ...] = (
        {"identity": "alice"},
        {"gpu_uuids": ["GPU-0"]},
        {"processes": [process]},
        {"gpu_uuids": ["GPU-1"]},
    )
    for slot, about in enumerate(abouts):
        note = content(desk.now_ms - HOUR_MS, desk.now_ms + DAY_MS, **about, reason="fired")
        put(desk.spool, f"{EVE}.{slot}", note, EVE)
    assert desk.remind("--send").out == "sent 1, meant 1\n"  # what they hold themselves
    assert desk.recipients() == ["alice@lab.example"]
    assert "fired" not in desk.mails()[0]


# Who is user gua.


def test_a_history_that_claims_idleness_makes_no_mail_about_who_works_now(desk: Desk, target: Path) -> None:
    desk.write(held(job("alice")))
    desk.gpus = (busy(job("alice")),)
    assert desk.remind("--send").out == "sent 0\n"
    assert desk.hook().out.endswith("for 0 processes\n")
    assert (desk.recipients(), kept(target)) == ([], [])


def test_a_history_that_names_another_start_or_owner_tells_of_nobody(desk: Desk, target: Path) -> None:
    desk.write(held(job("bob", start_time_ms=4000)))
    desk.gpus = (held(job("carol", start_time_ms=5000)),)
    assert desk.remind("--send").out == "sent 0\n"
    assert desk.hook().out.endswith("for 0 processes\n")


def test_an_owner_or_a_name_that_the_folder_claims_is_believed_about_their_own_uid_alone(desk: Desk) -> None:
    """The name of a uid may come from the sampler's file, and so from user gua."""
    desk.uids |= {"bob": 1002}
    nameless = job("carol")._replace(user=None, uid=EVE)
    desk.write(held(nameless._replace(user="bob")))
    desk.gpus = (held(nameless),)  # the directory does not tell, so the history does
    desk.remind("--send")
    write_containers(desk, f"{EVE}/{CONTAINER[:12]}", runtime="podman", owner="bob", how="socket", slice_uid=EVE)
    (desk.data_dir / REMIND_LOG).unlink()
    desk.remind("--send")
    assert set(desk.recipients()) == {ADMINISTRATOR}


LINKS: list[Callable[[Path, Path], object]] = [
    lambda path, victim: path.symlink_to(victim),
    lambda path, victim: os.link(victim, path),
    lambda path, victim: os.mkfifo(path),
    lambda path, victim: path.mkdir(),
]


@pytest.mark.parametrize("plant", LINKS, ids=["link", "hard link", "pipe", "folder"])
def test_what_gua_plants_in_the_place_of_a_log_costs_root_nothing_and_runs_nothing(
    guas: Desk, target: Path, plant: Callable[[Path, Path], object], victim: Path
) -> None:
    for verb, name in ((("remind", "--send"), REMIND_LOG), (("hook",), HOOK_LOG)):
        plant(guas.data_dir / name, victim)
        done = gua(guas, *verb)
        assert done.returncode == 1
        assert name in done.stderr
        assert victim.read_text() == "of root's"
    assert (guas.recipients(), kept(target)) == ([], [])


def test_a_file_of_roots_that_lies_in_the_place_of_a_log_is_not_written_to(guas: Desk, target: Path) -> None:
    path = guas.data_dir / HOOK_LOG
    path.touch(0o644)
    path.chmod(0o644)
    done = gua(guas, "hook")
    assert (done.returncode, kept(target), path.read_text()) == (1, [], "")
    assert HOOK_LOG in done.stderr


def test_logs_that_root_begins_belong_to_the_folders_owner(guas: Desk, target: Path) -> None:
    assert gua(guas, "remind", "--send").stdout == "sent 1\n"
    assert [path.stat().st_uid for path in guas.outbox.glob("*.mail")] == [GUA]  # root sends nothing itself
    assert gua(guas, "hook").returncode == 0
    assert [uid for _, uid, _ in kept(target)] == ["0"]  # root has asked for it, and the program is root's
    for name in (REMIND_LOG, HOOK_LOG):
        found = (guas.data_dir / name).stat()
        assert (found.st_uid, found.st_mode & 0o777) == (GUA, 0o600)
    assert gua(guas, "hook", uid=GUA).stdout.endswith("for 0 processes\n")


def test_gua_gets_nothing_but_its_own_rights_from_the_hook(guas: Desk, target: Path) -> None:
    assert gua(guas, "hook", uid=GUA).returncode == 0
    assert [uid for _, uid, _ in kept(target)] == [str(GUA)]


def test_a_config_of_ones_own_runs_nothing_of_ones_own(desk: Desk, target: Path) -> None:
    mine = desk.folder / "mine"
    mine.write_text(f"#!/bin/sh\necho >{target.parent}/kept/mine\n")
    mine.chmod(0o755)
    desk.configure(f'[hook]\nrun = "{mine}"')
    desk.write(held(job("alice")), hours=5)
    give(desk.data_dir, GUA)
    for uid in (0, GUA):
        done = gua(desk, "hook", uid=uid)
        assert done.returncode == 1
        assert "could change what is run" in done.stderr or "may write to" in done.stderr
    assert kept(target) == []


# Who is an ordinary user.


def test_an_ordinary_user_sends_nothing_and_runs_nothing(guas: Desk, target: Path) -> None:
    for verb in (("remind", "--send"), ("remind", "--send", "--to", "me@lab.example"), ("hook",)):
        done = gua(guas, *verb, uid=SOMEBODY)
        assert done.returncode == 1
        assert "can't be written (Permission denied), and nothing is done without it" in done.stderr
    assert (guas.recipients(), kept(target)) == ([], [])
    assert not (guas.data_dir / REMIND_LOG).exists()
