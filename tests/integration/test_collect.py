"""contrib/fleet/gua-collect: which lines it takes, what it does with what arrives (`gua fleet check`), and that a file
is whole whatever happens on the way to it.

That hosts can't do more than they should is tried with sshd in tests/end_to_end/test_fleet.py.
"""

import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gua_report.fleet.host_files import MOST_FILES, HostFile, Look, list_hosts, look_at
from gua_report.fleet.suspicions import clock_problem
from gua_report.main import main
from tests.fleets import add_host, change
from tests.machine import GUA, SCRIPTS
from tests.repository import ROOT, page
from tests.users import SOMEBODY, gua_for_others

FOLDER = ROOT / "contrib" / "fleet"
COLLECT = FOLDER / "gua-collect"
CURRENT, PREVIOUS, ASKED, BEFORE = "lab1/rollups.sqlite", "lab1/previous.sqlite", "lab1/.asked", "lab1/.before"
UNTIL = "lab1/rollups-until-2026-11-16.sqlite"
# In the place of ssh: runs the command here, and hands over a part of what it says. No more than a socket holds: rsync
# does not let it wait.
STALLING = """#!/bin/sh
shift
"$@" | { dd bs=4096 count=30 status=none; sleep 60; }
"""

# In the place of mv, ln and others: at the call whose number it is given, all of gua-collect is killed before it.
KILLING = """#!/bin/sh
echo >>"$CALLS"
[ "$(grep -c '' "$CALLS")" != "$KILL_AT" ] || kill -KILL 0
PATH=$REAL exec "${0##*/}" "$@"
"""

Done = subprocess.CompletedProcess[str]


@cache
def rollups(*statements: str, padding: int = 0, **meta: Any) -> bytes:
    """A file that a host has published, of 2026-11-16 and 17, after these changes."""
    with tempfile.TemporaryDirectory(prefix="gua-collect-") as folder:
        path = add_host(Path(folder), "lab1", "small", **meta)
        if padding:
            statements += ("CREATE TABLE padding (bytes BLOB)", f"INSERT INTO padding VALUES (randomblob({padding}))")
        change(path, *statements)
        return path.read_bytes()


OLD = rollups("DELETE FROM day WHERE day = '2026-11-17'")
NEW = rollups(padding=4_000_000)
# Of the same host after it was reinstalled: on the day after, and on its first day.
ANEW = rollups("DELETE FROM day WHERE day = '2026-11-16'", machine="f" * 32)
DAYLESS = rollups("DELETE FROM day", machine="f" * 32)


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder with the real gua in it, for any user."""
    with tempfile.TemporaryDirectory(prefix="gua-programs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        command = gua_for_others(folder) if os.geteuid() == 0 else [GUA]
        (folder / "gua").write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (folder / "gua").chmod(0o755)
        yield folder


class Collector:
    """A fleet's folder and its list of hosts, of a user who is not root."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.fleet, self.hosts = folder, folder / "fleet", folder / "hosts"
        self.path = f"{programs}:{os.environ['PATH']}"
        self.published = 0
        self.fleet.mkdir()
        self.program("stalling", STALLING)
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
        self.published += 60
        os.utime(path, (1_794_787_200, 1_794_787_200 + self.published))
        return f"{host} {path}\n"

    def collect(self, *hosts: str) -> None:
        """List these hosts, and collect the older file of each."""
        self.hosts.write_text("".join(self.publish(host, OLD) for host in hosts))
        assert self.run().returncode == 0

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def read(self, name: str) -> bytes:
        return (self.fleet / name).read_bytes()

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            ["sh", str(self.script), *(arguments or (str(self.hosts), str(self.fleet)))],
            env={"PATH": self.path, **variables},
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
def collector(open_folder: Path, programs: Path) -> Collector:
    return Collector(open_folder, programs)


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


def test_a_hostile_file_takes_no_memory_from_others() -> None:
    """By default, systemd would end the whole unit when one of its processes has taken too much."""
    unit = (FOLDER / "gua-collect.service").read_text().splitlines()
    assert {"MemoryMax=1G", "OOMPolicy=continue"} <= set(unit)


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
def test_wrong_usage_is_a_line_with_what_is_expected(collector: Collector, arguments: list[str], words: str) -> None:
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


def test_without_gua_nothing_is_fetched(collector: Collector) -> None:
    collector.hosts.write_text(collector.publish("lab1", OLD))
    collector.path = "/usr/bin:/bin"
    done = collector.run()
    assert (done.returncode, done.stderr.startswith("gua-collect: no gua in /usr/bin:/bin: ")) == (2, True)
    assert collector.files() == []


HOSTILE = ["../lab9", ".hidden", "-e", "a/b", "$(id)", "`id`", "a;id", "'", '"']
HOSTILE += ["lab1 -e", "lab1 a b", "lab1 $(id):x", "lab1 'x"]


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
    assert collector.files() == ["lab-2.x/.asked", "lab-2.x/rollups.sqlite", ASKED, CURRENT]
    collector.publish("lab1", NEW)
    assert collector.run().returncode == 0
    assert collector.read(CURRENT) == collector.read("lab-2.x/rollups.sqlite") == NEW
    assert collector.read(PREVIOUS) == OLD
    assert [file.name for file in list_hosts(str(collector.fleet), None, []).files] == ["lab-2.x", "lab1"]
    collector.publish("lab1", OLD)
    assert collector.run().returncode == 0
    assert (collector.read(CURRENT), collector.read(PREVIOUS)) == (OLD, NEW)


@pytest.mark.needs("rsync")
def test_what_is_there_already_is_not_sent_again(collector: Collector) -> None:
    counting, sent = collector.folder / "counting", collector.folder / "sent"
    content = rollups(padding=50_000)
    counting.write_text(f'#!/bin/sh\nshift\n"$@" | tee {sent}\n')
    counting.chmod(0o755)
    sent.touch()
    sent.chmod(0o666)
    collector.hosts.write_text(collector.publish("lab1", content).replace("lab1 ", "lab1 here:", 1))
    assert collector.run(RSYNC_RSH=str(counting)).returncode == 0
    assert sent.stat().st_size > len(content)
    collected = (collector.fleet / CURRENT).stat()
    assert collector.run(RSYNC_RSH=str(counting)).returncode == 0
    assert sent.stat().st_size < 1000
    assert (collector.fleet / CURRENT).stat() == collected
    assert collector.files() == [ASKED, CURRENT]
    collector.publish("lab1", content.replace(b"small", b"large"))
    assert collector.run(RSYNC_RSH=str(counting)).returncode == 0
    assert sent.stat().st_size < len(content) / 5
    assert (collector.read(CURRENT) != content, collector.read(PREVIOUS) == content) == (True, True)


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("kind", ["link", "folder", "missing"])
def test_what_is_no_file_is_not_taken_and_named(collector: Collector, kind: str) -> None:
    collector.collect("lab1", "lab2")
    path = collector.folder / "published" / "lab1" / "rollups.sqlite"
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "folder":
        path.mkdir()
    done = collector.run()
    assert done.returncode == 1
    assert done.stderr.endswith("gua-collect: 1 of 2 hosts failed: lab1\n")
    assert collector.read(CURRENT) == OLD


DAMAGED = {
    "cut": NEW[:9000],
    "text": b"no database at all\n" * 1000,
    "empty": b"",
    "unread": rollups(  # in a table that a first look does not need
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'hold')"
        " WHERE name = 'episode'",
    ),
    "hostile": rollups("CREATE TRIGGER t AFTER INSERT ON word BEGIN SELECT 1; END"),
    "newer": rollups("PRAGMA user_version = 99"),
}


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("damage", DAMAGED)
def test_what_no_report_could_use_is_not_taken_and_named(collector: Collector, damage: str) -> None:
    collector.collect("lab1", "lab2")
    asked = (collector.fleet / ASKED).stat()
    before = collector.files()
    collector.publish("lab1", DAMAGED[damage])
    done = collector.run()
    assert done.returncode == 1
    reason, last = done.stderr.splitlines()
    assert reason.startswith("gua-collect: lab1: what came can't be used: ")
    assert "gua fleet" not in reason
    assert last == "gua-collect: 1 of 2 hosts failed: lab1"
    assert collector.files() == before
    assert collector.read(CURRENT) == OLD
    assert (collector.fleet / ASKED).stat() == asked
    collector.publish("lab1", NEW)
    assert collector.run().returncode == 0
    assert (collector.read(CURRENT), collector.read(PREVIOUS)) == (NEW, OLD)


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("content", [ANEW, DAYLESS])
def test_what_was_before_a_reinstallation_is_kept_for_reports(collector: Collector, content: bytes) -> None:
    collector.collect("lab1")
    collector.publish("lab1", content)
    done = collector.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert (collector.read(CURRENT), collector.read(UNTIL)) == (content, OLD)
    assert collector.files() == sorted([ASKED, BEFORE, CURRENT, UNTIL])
    files = list_hosts(str(collector.fleet), None, []).files
    assert sorted(file.name for file in files) == ["lab1", "lab1~until-2026-11-16"]


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("kind", ["many", "taken"])
def test_a_host_that_begins_anew_again_and_again_fills_no_disk(collector: Collector, kind: str) -> None:
    collector.collect("lab1")
    earlier = [UNTIL] if kind == "taken" else [f"lab1/rollups-{number}.sqlite" for number in range(MOST_FILES - 1)]
    for name in earlier:
        (collector.fleet / name).write_bytes(b"earlier")
    collector.publish("lab1", ANEW)
    done = collector.run()
    assert (done.returncode, "lab1: it was reinstalled, and there is no room for" in done.stderr) == (1, True)
    assert collector.read(CURRENT) == OLD
    assert {collector.read(name) for name in earlier} == {b"earlier"}
    (collector.fleet / earlier[0]).unlink()
    assert collector.run().returncode == 0
    assert (collector.read(CURRENT), collector.read(UNTIL)) == (ANEW, OLD)
    assert len(list_hosts(str(collector.fleet), None, []).files) == len(earlier) + 1 <= MOST_FILES


@pytest.mark.needs("rsync")
def test_a_host_can_not_write_escapes_or_lines_of_its_own(collector: Collector) -> None:
    """Some shells' echo makes a control character of \\033, and a line of \\n."""
    words = r"\033]0;owned\007\ngua-collect: lab2: failed\c"
    talking = collector.program("talking", f"#!/bin/sh\nprintf '%s\\n' '{words}' >&2\nexit 3\n")
    collector.hosts.write_text("lab1 here:/nowhere\n")
    done = collector.run(RSYNC_RSH=str(talking))
    said, last = done.stderr.splitlines()
    assert said.startswith(f"gua-collect: lab1: {words}")
    assert last == "gua-collect: 1 of 1 hosts failed: lab1"
    assert "\x1b" not in done.stderr


@pytest.mark.needs("rsync")
@pytest.mark.parametrize("status", [0, 12])
def test_of_what_a_host_says_no_more_is_kept_than_is_needed(collector: Collector, status: int) -> None:
    """700 MB, in the memory of a small machine; and its exit status is still known."""
    words = "head -c 700000000 /dev/zero | tr '\\0' x >&2"
    talking = collector.program("talking", f'#!/bin/sh\nshift\n{words}\n[ {status} = 0 ] || exit {status}\nexec "$@"\n')
    limited = collector.folder / "limited"
    limited.write_text(f'ulimit -v 1000000\nexec sh {collector.script} "$@"\n')
    collector.script = limited
    collector.hosts.write_text(collector.publish("lab1", OLD).replace("lab1 ", "lab1 here:", 1))
    done = collector.run(RSYNC_RSH=str(talking))
    if status:
        assert done.stderr == f"gua-collect: lab1: {'x' * 200}\ngua-collect: 1 of 1 hosts failed: lab1\n"
    else:
        assert (done.returncode, done.stderr) == (0, "")
    assert collector.files() == ([] if status else [ASKED, CURRENT])


def stall(collector: Collector) -> dict[str, str]:
    """A host that has something new, over a connection that stalls in the middle of it."""
    collector.collect("lab1")
    line = collector.publish("lab1", NEW).replace("lab1 ", "lab1 here:", 1)
    collector.hosts.write_text(line)
    return {"RSYNC_RSH": str(collector.folder / "stalling")}


def wait_for_a_part(collector: Collector) -> None:
    """Wait until the file begins to arrive."""
    deadline = time.monotonic() + 30
    while not list(collector.fleet.glob("lab1/.new/.rollups.sqlite.*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.needs("rsync")
def test_a_transfer_that_stalls_ends_at_its_time_limit_and_the_old_file_stays(collector: Collector) -> None:
    done = collector.run(**stall(collector), GUA_COLLECT_SECONDS="2")
    assert done.returncode == 1
    assert "gua-collect: lab1: no end within 2 s\n" in done.stderr
    assert collector.files() == [ASKED, CURRENT]
    assert collector.read(CURRENT) == OLD


@pytest.mark.needs("rsync")
def test_killed_in_the_middle_the_old_file_stays_and_the_next_run_tidies_up(collector: Collector) -> None:
    process = collector.start(**stall(collector))
    wait_for_a_part(collector)
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _session(int(entry)) == process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all at once: rsync tidies up if its other half is gone
        for pid in pids:
            with suppress(ProcessLookupError):  # one that had just ended
                os.kill(pid, number)
    process.communicate()
    assert any("/.new/.rollups.sqlite." in name for name in collector.files())
    assert collector.read(CURRENT) == OLD
    collector.hosts.write_text(collector.publish("lab1", NEW))
    assert collector.run().returncode == 0
    assert collector.files() == sorted([ASKED, BEFORE, CURRENT, PREVIOUS])
    assert (collector.read(CURRENT), collector.read(PREVIOUS)) == (NEW, OLD)


@pytest.mark.needs("rsync")
@pytest.mark.parametrize(("content", "kept"), [(NEW, PREVIOUS), (ANEW, UNTIL)], ids=["ordinary", "reinstalled"])
def test_killed_at_any_moment_nothing_is_lost(collector: Collector, content: bytes, kept: str) -> None:
    stand_ins, calls, usual = collector.folder / "stand-ins", collector.folder / "calls", collector.path
    stand_ins.mkdir()
    for name in ("mv", "ln", "rm", "mkdir", "touch"):
        (stand_ins / name).write_text(KILLING)
        (stand_ins / name).chmod(0o755)
    for number in itertools.count(1):
        shutil.rmtree(collector.fleet / "lab1", ignore_errors=True)
        collector.hosts.write_text(collector.publish("lab1", OLD))
        assert collector.run().returncode == 0
        collector.publish("lab1", content)
        calls.write_bytes(b"")
        calls.chmod(0o666)
        collector.path = f"{stand_ins}:{usual}"
        killed = collector.run(CALLS=str(calls), KILL_AT=str(number), REAL=usual)
        collector.path = usual
        there = {name: collector.read(name) for name in collector.files()}
        assert kept == UNTIL or there[CURRENT] in (OLD, content)
        assert OLD in (there.get(CURRENT), there.get(kept))
        assert_clock(collector, there.get(CURRENT) == content)
        assert collector.run().returncode == 0
        assert (collector.read(CURRENT), collector.read(kept)) == (content, OLD)
        assert set(collector.files()) - {BEFORE} == {ASKED, CURRENT, kept}
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL
    assert number > 8


def assert_clock(collector: Collector, is_new: bool) -> None:
    """The time at which a file was not there yet must not be one at which the last file was."""
    before = collector.fleet / BEFORE
    assert is_new or not before.exists()


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
    assert collector.read(CURRENT) == OLD
    assert collector.files() == [ASKED, CURRENT]


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
    lasting = collector.program("lasting", '#!/bin/sh\nshift\nsleep 20 >/dev/null 2>&1 </dev/null &\nexec "$@"\n')
    collector.hosts.write_text(collector.publish("lab1", OLD).replace("lab1 ", "lab1 here:", 1))
    for _ in range(2):
        assert collector.run(RSYNC_RSH=str(lasting)).returncode == 0


# -- a host's clock that is behind


def look(collector: Collector) -> Look:
    return look_at(HostFile("lab1", "lab1", str(collector.fleet / CURRENT)))


@pytest.mark.needs("rsync")
def test_a_file_that_was_published_before_it_was_there_shows_a_clock_that_is_behind(
    collector: Collector,
) -> None:
    def publish_and_collect(published_ms: int) -> str | None:
        collector.hosts.write_text(collector.publish("lab1", rollups(published_ms=published_ms, newest_tick_ms=None)))
        assert collector.run().returncode == 0
        return clock_problem(look(collector)._replace(newest_tick_ms=None, newest_day="2020-01-01"), now_ms())

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    hours_ms = 3 * 3_600_000
    assert publish_and_collect(now_ms() - hours_ms) is None, "nobody had asked before"
    assert collector.run().returncode == 0
    assert look(collector).asked_ms is None, "nothing new came"
    asked_ms = now_ms()
    assert publish_and_collect(asked_ms) is None
    assert 0 <= asked_ms - (look(collector).asked_ms or 0) < 60_000
    said = publish_and_collect(now_ms() - hours_ms)
    assert said in [f"published its file at least {minutes} minutes later than it says" for minutes in (178, 179, 180)]
    assert publish_and_collect(now_ms()) is None, "the clock was set"


# -- gua fleet check


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it, as a user who is not root, on a new file and perhaps a last one; its exit status, output and errors."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def run(*contents: bytes) -> tuple[int, str, str]:
        paths = [tmp_path / str(number) for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        status = main(["fleet", "check", *map(str, paths)])
        return status, *capsys.readouterr()

    return run


def test_a_check_prints_the_last_day_of_a_host_that_begins_anew(check: Any) -> None:
    assert check(NEW) == check(DAYLESS) == (0, "", "")
    assert check(ANEW, OLD) == check(DAYLESS, OLD) == (0, "2026-11-16\n", "")
    assert check(OLD, ANEW) == (0, "2026-11-17\n", ""), "by a clock that was set back"
    for new, last in ((OLD, OLD), (NEW, OLD), (OLD, NEW), (ANEW, NEW), (OLD, DAYLESS), (DAYLESS, DAYLESS)):
        assert check(new, last) == (0, "", "")
    for damaged in DAMAGED.values():
        assert check(ANEW, damaged) == (0, "", "")
        for more in ((), (OLD,)):
            status, output, errors = check(damaged, *more)
            assert (status, output) == (1, "")
            assert re.fullmatch("gua fleet: error: .+\n", errors)


def test_a_check_is_not_for_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["fleet", "check", "new"]) == 1
    assert "root does not read them" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["fleet", "check", "missing"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["fleet", "status", "one", "two"]) == 2
    assert "one folder at a time" in capsys.readouterr().err


def test_a_check_does_not_wait_for_pandas(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(NEW)
    code = (
        "import sys; from gua_report.commands.fleet import check; status = check(*sys.argv[1:], None);"
        "sys.exit(status or any(name in sys.modules for name in ('pandas', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "new"], check=False).returncode == 0
