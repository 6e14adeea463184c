"""contrib/fleet/gua-collect: which lines it takes, and that a file is whole whatever happens on the way to it.

That hosts can't do more than they should is tried with sshd in tests/end_to_end/test_fleet.py.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.machine import SCRIPTS
from tests.repository import ROOT, page
from tests.users import SOMEBODY

FOLDER = ROOT / "contrib" / "fleet"
COLLECT = FOLDER / "gua-collect"
OLD, NEW = b"old" * 100_000, b"new" * 1_500_000
# In the place of ssh: runs the command here, and hands over a part of what it says.
STALLING = """#!/bin/sh
shift
"$@" | { dd bs=4096 count=800 status=none; sleep 60; }
"""

Done = subprocess.CompletedProcess[str]


class Collector:
    """A fleet's folder and its list of hosts, of a user who is not root."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fleet, self.hosts = folder, folder / "fleet", folder / "hosts"
        self.fleet.mkdir()
        (folder / "stalling").write_text(STALLING)
        (folder / "stalling").chmod(0o755)
        self.script = folder / "gua-collect"
        shutil.copy(COLLECT, self.script)
        self.user = {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self.user:
            os.chown(self.fleet, SOMEBODY, SOMEBODY)

    def publish(self, host: str, content: bytes) -> str:
        """A host's copy on this machine; returns the line of the list for it."""
        path = self.folder / "published" / host / "rollups.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_794_787_200, 1_794_787_200 + len(content)))
        return f"{host} {path}\n"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            ["sh", str(self.script), *(arguments or (str(self.hosts), str(self.fleet)))],
            env={"PATH": os.environ["PATH"], **variables},
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **self.user,  # type: ignore[call-overload] # of what user, group and extra_groups take
        )
        return process

    def run(self, *arguments: str, **variables: str) -> Done:
        process = self.start(*arguments, **variables)
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.fleet)) for path in self.fleet.rglob("*") if path.is_file())


@pytest.fixture
def collector(open_folder: Path) -> Collector:
    return Collector(open_folder)


def test_the_script_is_in_order() -> None:
    done = subprocess.run([SCRIPTS / "shellcheck", "--shell=sh", COLLECT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert os.access(COLLECT, os.X_OK)


def test_the_page_says_how_each_file_is_used() -> None:
    for path in FOLDER.iterdir():
        assert f"contrib/fleet/{path.name}" in page("fleet.md"), path.name
    for kind in ("-ro", "-wo"):
        lines = [
            re.findall(rf"^\s*(restrict.*rrsync {kind} .*)$", text, re.M)
            for text in (page("fleet.md"), (FOLDER / "authorized_keys").read_text())
        ]
        assert lines[0] == lines[1] != []


@pytest.mark.parametrize("name", ["gua-collect", "gua-push"])
def test_the_units_are_as_closed_as_that_of_rollups_but_for_the_network(name: str) -> None:
    def settings(path: Path) -> set[str]:
        return {line for line in path.read_text().splitlines() if re.match(r"[A-Z]\w+=", line)}

    sandbox = re.compile(r"(Protect|Restrict|Private|NoNew|Capab|Ambient|System|Lock|Mem|RemoveIPC|Keyring)")
    wanted = {line for line in settings(ROOT / "systemd" / "gua-rollup.service") if sandbox.match(line)}
    missing = wanted - settings(FOLDER / f"{name}.service")
    assert missing == {
        *("PrivateNetwork=yes", "RestrictAddressFamilies=none", "PrivateUsers=yes"),
        "SystemCallFilter=~@privileged @resources",
    }
    assert "User=root" not in settings(FOLDER / f"{name}.service")
    assert any(line.startswith("User=gua") for line in settings(FOLDER / f"{name}.service"))


# -- what it refuses


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no list of hosts"),
        (["one"], "usage: gua-collect HOSTS FLEET"),
        (["one", "two", "three"], "usage: gua-collect HOSTS FLEET"),
        (["--help"], "usage: gua-collect HOSTS FLEET"),
        (["/etc/passwd", "/nonexistent"], "no folder /nonexistent"),
        (["/etc/passwd", "/usr"], "no folder /usr that this user may write to"),
    ],
)
def test_wrong_usage_is_a_line_that_says_what_is_expected(
    collector: Collector, arguments: list[str], words: str
) -> None:
    done = collector.run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become root")
def test_it_does_not_run_as_root(collector: Collector) -> None:
    collector.user = {}
    done = collector.run()
    assert (done.returncode, done.stderr.startswith("gua-collect: not as root")) == (2, True)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("", "no host in"),
        ("# lab1\n\n", "no host in"),
        ("lab1\nlab2\nlab1 elsewhere:x\n", "more than one line for lab1"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(collector: Collector, hosts: str, words: str) -> None:
    collector.hosts.write_text(hosts)
    done = collector.run()
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert collector.files() == []


@pytest.mark.parametrize("name", ["GUA_COLLECT_SECONDS", "GUA_COLLECT_AT_ONCE", "GUA_COLLECT_MOST_MIB"])
def test_settings_are_numbers(collector: Collector, name: str) -> None:
    collector.hosts.write_text("lab1\n")
    for value in ("0", "soon", "-1", "1;id", "9" * 20):
        done = collector.run(**{name: value})
        assert (done.returncode, "is no whole number above 0" in done.stderr) == (2, True)


HOSTILE = [
    "../lab9",
    ".hidden",
    "-e",
    "a/b",
    "$(id)",
    "`id`",
    "a;id",
    "'",
    '"',
    "lab1 -e",
    "lab1 a b",
    "lab1 $(id):x",
    "lab1 'x",
]


@pytest.mark.parametrize("line", HOSTILE)
def test_a_line_that_makes_no_sense_is_named_and_does_nothing(collector: Collector, line: str) -> None:
    collector.hosts.write_text(f"# the hosts\n{line}\n")
    done = collector.run()
    assert done.returncode == 1
    assert "line-2 of the list makes no sense" in done.stderr
    assert done.stderr.endswith("gua-collect: 1 of 1 hosts failed: line-2\n")
    assert list(collector.fleet.iterdir()) == []


# -- what it fetches


@pytest.mark.needs("rsync")
def test_each_host_has_a_folder_and_a_second_run_takes_what_is_new(collector: Collector) -> None:
    collector.hosts.write_text(
        "# ours\n" + collector.publish("lab1", OLD) + "\n" + collector.publish("lab-2.x", NEW)[:-1]
    )
    done = collector.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert collector.files() == ["lab-2.x/rollups.sqlite", "lab1/rollups.sqlite"]
    collector.publish("lab1", NEW)
    assert collector.run().returncode == 0
    assert {(collector.fleet / name).read_bytes() for name in collector.files()} == {NEW}


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("kind", ["link", "folder", "missing"])
def test_what_is_no_file_is_not_taken_and_named(collector: Collector, kind: str) -> None:
    collector.hosts.write_text(collector.publish("lab1", OLD) + collector.publish("lab2", OLD))
    assert collector.run().returncode == 0
    path = collector.folder / "published" / "lab1" / "rollups.sqlite"
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "folder":
        path.mkdir()
    done = collector.run()
    assert done.returncode == 1
    assert done.stderr.endswith("gua-collect: 1 of 2 hosts failed: lab1\n")
    assert (collector.fleet / "lab1" / "rollups.sqlite").read_bytes() == OLD


def stall(collector: Collector) -> dict[str, str]:
    """A host that has something new, over a connection that stalls in the middle of it."""
    collector.hosts.write_text(collector.publish("lab1", OLD))
    assert collector.run().returncode == 0
    line = collector.publish("lab1", NEW).replace("lab1 ", "lab1 here:", 1)
    collector.hosts.write_text(line)
    return {"RSYNC_RSH": str(collector.folder / "stalling")}


def wait_for_a_part(collector: Collector) -> None:
    """Wait until the file begins to arrive."""
    deadline = time.monotonic() + 30
    while not list(collector.fleet.glob("lab1/.rollups.sqlite.*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.needs("rsync")
def test_a_transfer_that_stalls_ends_at_its_time_limit_and_the_old_file_stays(collector: Collector) -> None:
    done = collector.run(**stall(collector), GUA_COLLECT_SECONDS="2")
    assert done.returncode == 1
    assert "gua-collect: lab1: no end within 2 s\n" in done.stderr
    assert collector.files() == ["lab1/rollups.sqlite"]
    assert (collector.fleet / "lab1" / "rollups.sqlite").read_bytes() == OLD


@pytest.mark.needs("rsync")
def test_killed_in_the_middle_the_old_file_stays_and_the_next_run_tidies_up(collector: Collector) -> None:
    process = collector.start(**stall(collector))
    wait_for_a_part(collector)
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _session(int(entry)) == process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all at once: rsync tidies up if its other half is gone
        for pid in pids:
            os.kill(pid, number)
    process.communicate()
    assert len(collector.files()) == 2
    assert (collector.fleet / "lab1" / "rollups.sqlite").read_bytes() == OLD
    collector.hosts.write_text(collector.publish("lab1", NEW))
    assert collector.run().returncode == 0
    assert collector.files() == ["lab1/rollups.sqlite"]
    assert (collector.fleet / "lab1" / "rollups.sqlite").read_bytes() == NEW


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.needs("rsync")
def test_a_file_that_is_too_large_is_not_taken(collector: Collector) -> None:
    collector.hosts.write_text(collector.publish("lab1", OLD))
    assert collector.run(GUA_COLLECT_MOST_MIB="1").returncode == 0
    collector.publish("lab1", NEW)
    done = collector.run(GUA_COLLECT_MOST_MIB="1")
    assert done.returncode == 1
    assert (collector.fleet / "lab1" / "rollups.sqlite").read_bytes() == OLD
    assert collector.files() == ["lab1/rollups.sqlite"]


@pytest.mark.needs("rsync")
def test_two_at_once_do_not_get_in_each_others_way(collector: Collector) -> None:
    process = collector.start(**stall(collector), GUA_COLLECT_SECONDS="4")
    wait_for_a_part(collector)
    done = collector.run()
    assert (done.returncode, "another gua-collect is at work" in done.stderr) == (2, True)
    process.communicate()
    collector.hosts.write_text(collector.publish("lab1", NEW))
    assert collector.run().returncode == 0


@pytest.mark.needs("rsync")
def test_what_a_connection_leaves_in_the_background_does_not_hold_up_the_next_run(collector: Collector) -> None:
    """As ssh does with ControlPersist."""
    lasting = collector.folder / "lasting"
    lasting.write_text('#!/bin/sh\nshift\nsleep 20 >/dev/null 2>&1 </dev/null &\nexec "$@"\n')
    lasting.chmod(0o755)
    collector.hosts.write_text(collector.publish("lab1", OLD).replace("lab1 ", "lab1 here:", 1))
    for _ in range(2):
        assert collector.run(RSYNC_RSH=str(lasting)).returncode == 0
