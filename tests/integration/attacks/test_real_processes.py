"""Attempts with real processes of a real user, on the stand-in driver, with the commands as they are typed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_sample.identity import find_person, resolve
from gua_sample.processes import describe, read_boot
from tests.integration.attacks.attempts import ANOTHER, is_tame
from tests.machine import GUA, Machine, call
from tests.monitoring import wait_for
from tests.telling import SENDMAIL
from tests.users import SOMEBODY, needs_root

pytestmark = [needs_root, pytest.mark.real]

# As long as the kernel allows. The second looks like the line of /proc/PID/status that tells whose a process is.
NAMES = ["x\nBcc: bob@x\r", f"\rUid:\t{ANOTHER}"]
BE_HOSTILE = """
import ctypes, time
try:
    open("/proc/self/loginuid", "w").write("ANOTHER")
except OSError:
    pass  # it is set already
ctypes.CDLL(None).prctl(15, NAME)
print("ready", flush=True)
time.sleep(600)
"""
# What is on the cards now was so for 26 hours.
HISTORY = """
import sys, time
from gua_report.live import snapshot
from gua_sample import store

now_ms = time.time_ns() // 1_000_000
tick = snapshot.look(snapshot.machine(), None, now_ms)
ticks = [tick._replace(ts_ms=now_ms - number * 300_000, interval_ms=300_000) for number in range(26 * 12, -1, -1)]
store.append_history(store.prepare(sys.argv[1]), ticks)
"""


@pytest.fixture(params=NAMES)
def hostile(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process that has a header for its name, and says that a colleague has logged in to start it."""
    program = BE_HOSTILE.replace("ANOTHER", str(ANOTHER)).replace("NAME", repr(request.param.encode()))
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", program],
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


@pytest.fixture
def lab(machine: Machine, hostile: int) -> Machine:
    """A machine on whose card it is, where its owner is carol and the colleague is bob."""
    machine.scenario.add_card(compute=[(hostile, 4096)])
    subprocess.run([sys.executable, "-c", HISTORY, str(machine.data_dir)], env=machine.environment(), check=True)
    one = describe(hostile, read_boot())
    identity = resolve(one.uid, one.login_uid, one.user, one.login_user, one.cgroup)
    assert identity != f"uid:{ANOTHER}"
    assert find_person(one.uid, one.login_uid, one.cgroup) != ANOTHER
    (machine.folder / "gua.toml").write_text(
        f'[people]\n"{identity}" = "carol"\n"uid:{ANOTHER}" = "bob"\n[mail]\nadministrator = "root@localhost"\n'
        'domain = "lab.example"\n[notes]\nspool = "/nowhere"\n[hook]\nrun = "/usr/bin/env"\nidle_after = "2h"\n'
        '[remind]\nhours = "0-24"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]\n'
    )
    (machine.folder / "bin").mkdir()
    (machine.folder / "bin" / "sendmail").write_text(SENDMAIL)
    (machine.folder / "bin" / "sendmail").chmod(0o755)
    return machine


def run(lab: Machine, *words: str, kill_at: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [GUA, *words, "--data-dir", str(lab.data_dir), "--config", str(lab.folder / "gua.toml")]
    variables = lab.environment(kill_at=kill_at) | {"PATH": f"{lab.folder / 'bin'}:/usr/bin:/bin"}
    return call(command, env=variables, timeout=60)


def recipients(lab: Machine) -> list[str]:
    path = lab.folder / "bin" / "sendmail.to"
    return path.read_text().split() if path.exists() else []


def test_a_process_with_a_header_for_a_name_and_another_login_makes_one_mail_to_its_owner(
    lab: Machine, hostile: int
) -> None:
    assert Path(f"/proc/{hostile}/comm").read_bytes()[:-1].decode() in NAMES
    done = run(lab, "remind", "--send")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent 1\n", "")
    assert recipients(lab) == ["carol@lab.example"]
    (mail,) = [path.read_text() for path in (lab.folder / "bin").glob("*.mail")]
    assert "Bcc" not in mail.partition("\n\n")[0]
    assert f"(pid {hostile}, " in " ".join(mail.split())
    assert json.loads(run(lab, "hook", "--dry-run", "--json").stdout)["runs"][0]["facts"]["uid"] == SOMEBODY
    hook = run(lab, "hook")
    assert hook.stdout.endswith("for 1 process\n")
    assert is_tame(done.stdout + hook.stdout + hook.stderr)
    assert json.loads(run(lab, "hook", "--log", "--json").stdout)["acts"][0]["text"] == "exit 0: "  # no environment


def test_once_the_process_is_gone_or_another_there_is_nobody_to_tell(lab: Machine, hostile: int) -> None:
    os.kill(hostile, signal.SIGKILL)
    # A zombie has its pid and its start, and no card.
    wait_for(lambda: b") Z " in Path(f"/proc/{hostile}/stat").read_bytes(), "its end")
    lab.scenario.cards.clear()
    lab.scenario.add_card(compute=[(os.getpid(), 4096)])  # another process has its place
    assert run(lab, "remind", "--send").stdout == "sent 0\n"
    assert run(lab, "hook").stdout.endswith("for 0 processes\n")
    assert recipients(lab) == []


@pytest.mark.parametrize("first", range(1, 5))  # each takes every fourth change, to take no longer than a test may
@pytest.mark.parametrize("hostile", NAMES[:1], indirect=True)
def test_killed_before_any_change_to_its_log_it_sends_no_second_mail(lab: Machine, first: int) -> None:
    for number in range(first, 200, 4):
        killed = run(lab, "remind", "--send", kill_at=number)
        assert run(lab, "remind", "--send").stderr == ""
        assert recipients(lab) in ([], ["carol@lab.example"])
        for path in [*lab.data_dir.glob("reminders.sqlite*"), *(lab.folder / "bin").glob("sendmail.*")]:
            path.unlink()
        if killed.returncode == 0:
            break
    assert number > 20  # it was created, written before and written after
