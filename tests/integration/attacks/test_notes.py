"""Attempts of an ordinary user, and of gua, to hide others' hours by notes, to excuse the past, to harm a reader."""

import csv
import io
import json
import os
import pwd
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gua_sample.notes import MOST_BAD, MOST_NOTES
from tests.integration.attacks.attempts import ANOTHER, ESCAPE, calmly, is_tame, meanwhile
from tests.lab import DAY_MS, HOUR_MS, Job, held, series, write
from tests.machine import GUA as GUA_COMMAND
from tests.machine import within
from tests.notes import content, make_spool, put
from tests.users import SOMEBODY, needs_mounts, needs_root
from tests.verbs import Done, give, run

pytestmark = needs_root

GUA = SOMEBODY + 7  # owns the history
ROOT = 0
ATTACKERS = pytest.mark.parametrize("attacker", [SOMEBODY, GUA], ids=["somebody", "gua"])
NOW_MS = time.time_ns() // 1_000_000
BEGAN_MS = NOW_MS - HOUR_MS
THEIR_PID, MY_PID = 4711, 4712


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads
        return os.fork()


class Lab:
    """A history of an hour in which two users hold a card each, and a spool of root's."""

    def __init__(self, folder: Path, attacker: int) -> None:
        self.attacker, self.data = attacker, folder / "data"
        self.spool = make_spool(folder)
        mine = Job(MY_PID, None, uid=attacker, start_time_ms=BEGAN_MS)
        theirs = Job(THEIR_PID, None, uid=ANOTHER, start_time_ms=BEGAN_MS)
        write(self.data, series(BEGAN_MS, 60, held(mine), held(theirs, index=1)))
        give(self.data, GUA)
        self.config = folder / "gua.toml"
        self.config.write_text(f'[notes]\nspool = "{self.spool}"\n')

    def do(self, act: Callable[[Path], object], uid: int | None = None) -> bool:
        """Let the attacker do something in the spool; returns whether it was possible."""
        pid = fork()
        if pid == 0:
            status = 1
            with suppress(BaseException):
                user = self.attacker if uid is None else uid
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                act(self.spool)
                status = 0
            os._exit(status)
        return os.waitpid(pid, 0)[1] == 0

    def put(self, what: dict[str, Any] | bytes, slot: int = 0, name: str | None = None) -> None:
        name = name or f"{self.attacker}.{slot}"
        assert self.do(lambda spool: put(spool, name, what))

    def run(self, verb: str, *words: str, uid: int = ROOT) -> Done:
        done = calmly(run(verb, *words, "--config", self.config, "--data-dir", self.data, uid=uid))
        assert is_tame(done.stdout + done.stderr), done
        return done

    def report(self, uid: int = ROOT) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("report", "--since", "2h", "--json", uid=uid).stdout)
        return found

    def meant(self, uid: int = ROOT) -> set[int]:
        """The users of whom something is or was meant, as that user sees it."""
        with within(15):
            episodes = self.report(uid)["episodes"]
        assert len(episodes) == 2
        meant = [one["identity"] for one in episodes if one["meant_seconds"] or one["meant_now"]]
        return {int(who.removeprefix("uid:")) for who in meant}

    def complaints(self) -> list[str]:
        """Why files do not count, as root lists them."""
        done = run("note", "--list", "--json", "--config", self.config)
        assert (done.returncode, done.stderr) == (0, "")
        return [one["problem"] for one in json.loads(done.stdout)["notes"] if not one["counts"]]


@pytest.fixture
def lab(open_folder: Path, request: pytest.FixtureRequest) -> Lab:
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return Lab(open_folder, params.get("attacker", SOMEBODY))


def note(**more: Any) -> dict[str, Any]:
    """One of the attacker's that would count for everything, if it were root's."""
    return content(BEGAN_MS - DAY_MS, NOW_MS + DAY_MS, **more)


BOTH = {"gpu_uuids": ["GPU-0", "GPU-1"]}


@ATTACKERS
def test_a_colleagues_process_is_not_marked(lab: Lab, attacker: int) -> None:
    theirs = f"uid:{ANOTHER}"
    attempts: list[dict[str, Any]] = [
        {"gpu_uuids": ["GPU-1"]},
        {"processes": [{"pid": THEIR_PID, "start_time_ms": BEGAN_MS}]},
        {"identity": theirs},
        {"identity": theirs, "gpu_uuids": ["GPU-1"]},
        {"identity": theirs, "processes": [{"pid": THEIR_PID, "start_time_ms": BEGAN_MS}]},
    ]
    for slot, about in enumerate(attempts):
        lab.put(note(**about), slot)
    for name in ("0.0", "0.9", f"{ANOTHER}.0"):
        lab.put(note(**BOTH), name=name)
    assert [lab.meant(uid) for uid in (ROOT, GUA, ANOTHER)] == [set(), set(), set()]
    lab.put(note(**BOTH), 7)
    assert lab.meant() == {attacker}  # it does not fail for another reason


@ATTACKERS
def test_the_past_is_not_excused(lab: Lab, attacker: int) -> None:
    """What an ordinary user, or the owner of the history, writes now is about what comes."""

    def backdate(spool: Path) -> None:
        path = put(spool, f"{lab.attacker}.0", note(**BOTH))
        os.utime(path, (BEGAN_MS / 1000, BEGAN_MS / 1000))

    assert lab.do(backdate)
    lab.put(content(BEGAN_MS - DAY_MS, BEGAN_MS + HOUR_MS // 2, **BOTH), 1)
    found = lab.report()["episodes"]
    assert [one["meant_seconds"] for one in found] == [0, 0]
    assert [one["meant_now"] for one in found].count(True) == 1
    put(lab.spool, "0.0", note(**BOTH))  # root's word counts
    assert all(one["meant_seconds"] > 3000 for one in lab.report()["episodes"])


def test_neither_a_note_without_an_end_in_sight_counts_nor_one_about_a_pid_that_another_process_has(lab: Lab) -> None:
    for slot, days in enumerate([15, 3650, 365 * 10**9, float("nan"), float("inf"), 1e300]):
        lab.put({**note(**BOTH), "until_ms": NOW_MS + days * DAY_MS}, slot)
    lab.put(note(processes=[{"pid": MY_PID, "start_time_ms": BEGAN_MS - DAY_MS}]), 6)
    assert lab.meant() == set()
    assert len(lab.complaints()) == 6
    lab.put(note(processes=[{"pid": MY_PID, "start_time_ms": BEGAN_MS}]), 7)
    assert lab.meant() == {SOMEBODY}


PLANTS: list[Callable[[Path, str], object]] = [
    lambda spool, name: os.mkfifo(spool / name),
    lambda spool, name: (spool / name).mkdir(),
    lambda spool, name: (spool / name).symlink_to(spool / f"{ANOTHER}.0"),
    lambda spool, name: (spool / name).symlink_to("/dev/zero"),
    lambda spool, name: (spool / name).symlink_to(spool / name),
    lambda spool, name: os.truncate(put(spool, name, note(**BOTH)), 1 << 30),
    lambda spool, name: put(spool, name, b"[" * 60_000),
    lambda spool, name: put(spool, name, note(**BOTH)).chmod(0o646),
    lambda spool, name: put(spool, name, note(**BOTH)).chmod(0o664),
    lambda spool, name: put(spool, name, note(**BOTH)).chmod(0),
]


def test_what_is_no_note_costs_no_reader_anything(lab: Lab) -> None:
    """A pipe, a folder, links to a colleague's note, a device and themselves, a sparse file, nonsense, odd modes."""
    assert lab.do(lambda spool: put(spool, f"{ANOTHER}.0", note(gpu_uuids=["GPU-1"])), uid=ANOTHER)
    for slot, plant in enumerate(PLANTS):
        assert lab.do(lambda spool, plant=plant, slot=slot: plant(spool, f"{SOMEBODY}.{slot}"))  # type: ignore[misc]
    assert [lab.meant(uid) for uid in (ROOT, GUA, SOMEBODY)] == [{ANOTHER}] * 3
    assert len(lab.complaints()) == len(PLANTS)
    assert is_tame(run("note", "--list", "--config", lab.config).stdout)


def test_a_second_link_to_a_colleagues_note_gives_its_maker_nothing_and_takes_nothing(lab: Lab) -> None:
    """Linux refuses such links (fs.protected_hardlinks); for where that is off, root makes it here."""
    put(lab.spool, f"{ANOTHER}.0", note(**BOTH), ANOTHER)
    os.link(lab.spool / f"{ANOTHER}.0", lab.spool / f"{SOMEBODY}.0")
    assert lab.meant() == {ANOTHER}
    assert lab.complaints() == [f"it belongs to uid {ANOTHER}"]


def test_a_note_that_is_exchanged_while_it_is_read_leads_nowhere(lab: Lab) -> None:
    """The attacker exchanges a note for a link to one of root's, again and again."""
    roots = put(lab.spool.parent, "roots", note(**BOTH, identity=f"uid:{SOMEBODY}"))
    name = lab.spool / f"{SOMEBODY}.0"

    def exchange() -> None:
        with suppress(FileNotFoundError):
            name.unlink()
        name.symlink_to(roots)
        name.unlink()
        put(lab.spool, name.name, note(gpu_uuids=["GPU-1"]))

    with meanwhile(SOMEBODY, exchange):
        for _ in range(3):
            assert lab.meant() == set()


def test_a_colleagues_note_can_be_neither_removed_nor_renamed_nor_changed_nor_taken(lab: Lab) -> None:
    theirs = f"{ANOTHER}.0"
    assert lab.do(lambda spool: put(spool, theirs, note(gpu_uuids=["GPU-1"])), uid=ANOTHER)
    before = (lab.spool / theirs).stat().st_ctime_ns
    for attempt in (
        lambda spool: os.unlink(spool / theirs),
        lambda spool: os.rename(spool / theirs, spool / f"{ANOTHER}.1"),
        lambda spool: os.rename(put(spool, "x", b""), spool / theirs),
        lambda spool: os.utime(spool / theirs),
        lambda spool: (spool / theirs).chmod(0),
        lambda spool: (spool / theirs).write_text(""),
        lambda spool: os.listdir(spool),
        lambda spool: spool.chmod(0o777),
    ):
        assert not lab.do(attempt)
    assert (lab.spool / theirs).stat().st_ctime_ns == before


def test_blocking_all_places_of_a_colleague_is_told_to_them_and_root_can_end_it(lab: Lab) -> None:
    for slot in range(MOST_NOTES):
        lab.put(b"blocked", name=f"{ANOTHER}.{slot}")
    words = ("note", "--until", "3d", "--identity", "x", "why", "--config", lab.config)
    # Whoever owns the spool is asked for no process: so the places are what is tried here.
    for slot in range(MOST_NOTES):
        lab.put(b"blocked", name=f"0.{slot}")
    done = run(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "10 are blocked by files that are no notes: sudo gua doctor names them" in done.stderr
    listed = run("note", "--list", "--config", lab.config).stdout
    assert listed.count(f"does not count: it belongs to uid {SOMEBODY}") == 2 * MOST_NOTES
    assert run("note", "--remove", "0.4", "--config", lab.config).returncode == 0
    assert "(note 4;" in run(*words).stdout


def test_a_reason_that_steers_a_terminal_does_not_count(lab: Lab) -> None:
    reasons = [ESCAPE, "\x9b31mevil", "evil\nb", "\u202eevil", "evil\u200b", "evil\ud800", "\tevil", "evil\x7f"]
    for slot, reason in enumerate(reasons):
        lab.put(note(gpu_uuids=["GPU-0"], reason=reason), slot)
    assert lab.meant() == set()
    assert lab.complaints() == ["reason is no text of 1 to 200 printable characters"] * len(reasons)
    assert "evil" not in lab.run("report", "--since", "2h").stdout


def test_a_reason_is_neither_a_formula_nor_markup(lab: Lab) -> None:
    reason = "=1;+2 </td><script src=//x></script> [a](http://x) | @all"
    lab.put(note(gpu_uuids=["GPU-0"], reason=reason))
    text = lab.run("report", "--since", "2h", "--section", "episodes", "--format", "csv").stdout
    assert [row["meant_reason"] for row in csv.DictReader(io.StringIO(text)) if row["meant_reason"]] == [
        "'=1;'+2 </td><script src=//x></script> [a](http://x) | @all"
    ]
    page = lab.run("report", "--since", "2h", "--format", "html").stdout
    assert "<script" not in page
    assert "&lt;script src=//x&gt;" in page
    text = lab.run("report", "--since", "2h", "--format", "markdown").stdout
    assert "&lt;/td&gt;&lt;script src=//x&gt;&lt;/script&gt; \\[a\\](http:\\//x) \\| &#64;all" in text


def test_a_spool_of_somebodys_is_not_used(lab: Lab) -> None:
    lab.put(note(gpu_uuids=["GPU-0"]))
    os.chown(lab.spool, SOMEBODY, SOMEBODY)
    put(lab.spool, f"{SOMEBODY}.1", note(identity=f"uid:{ANOTHER}"), SOMEBODY)
    for uid in (ROOT, GUA, ANOTHER):
        found = lab.report(uid)
        assert not any(one["meant_now"] for one in found["episodes"])
        assert any("not root's: notes are not used" in line for line in found["notes"])
    found = lab.report(SOMEBODY)  # who fools nobody else
    assert [one["meant_now"] for one in found["episodes"]] == [True, True]


def test_a_directory_that_hangs_costs_two_seconds_and_a_line(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.data = lab.data.parent / "more"
    write(lab.data, series(BEGAN_MS, 60, held(Job(9, "ldap-user")), held(Job(10, None, uid=SOMEBODY), index=1)))
    lab.put(note(**BOTH))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: time.sleep(60))
    assert lab.meant() == {SOMEBODY}
    (line,) = lab.report()["notes"]
    assert line == "the directory of users does not answer: notes of one person are not known"


def test_thousands_of_files_neither_hide_notes_nor_hold_up_whoever_lists_them(lab: Lab) -> None:
    def fill(spool: Path) -> None:
        for number in range(2000):
            (spool / f"{number}.0").touch()

    assert lab.do(fill)
    put(lab.spool, f"{ANOTHER}.0", note(gpu_uuids=["GPU-1"]), ANOTHER)
    with within(5):
        done = run("note", "--list", "--config", lab.config)
    assert f"{ANOTHER}.0" in done.stdout
    assert done.stdout.count("does not count") <= MOST_BAD
    assert lab.meant() == {ANOTHER}


def test_a_reader_that_is_stopped_at_a_lease_goes_on(lab: Lab) -> None:
    """Whoever owns a file may ask to be told before somebody else opens it, and let them wait."""

    def lease(spool: Path) -> None:
        import fcntl

        descriptor = os.open(put(spool, f"{SOMEBODY}.0", note(gpu_uuids=["GPU-0"])), os.O_RDWR)
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        (spool / "ready").touch()
        time.sleep(60)

    pid = fork()
    if pid == 0:
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
        lease(lab.spool)
    try:
        while not (lab.spool / "ready").exists():
            time.sleep(0.01)
        assert lab.meant() == set()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@needs_mounts
def test_a_file_that_is_mounted_over_a_note_is_not_even_looked_at(lab: Lab) -> None:
    """With FUSE people may mount one over a file of theirs, and say that it is root's. Here root mounts a file."""
    mine = put(lab.spool.parent, "mine", note(**BOTH))
    (lab.spool / "0.0").touch()
    listing = f"'{GUA_COMMAND}' note --list --json --config {lab.config}"
    script = f"mount --bind {mine} {lab.spool}/0.0 && exec {listing}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True)
    assert [one["problem"] for one in json.loads(done.stdout)["notes"]] == ["something is mounted there"]


SAMPLER = """import os; os.geteuid = lambda: 1
from gua_sample.held_file import _read_notes
print(_read_notes({1001, 1002}, SPOOL))"""
WRITER = """from gua_sample.notes import *
with open_spool(SPOOL) as spool: print([one.note for one in read_own(spool, 1001)])"""


@needs_mounts
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="there is no FUSE here")
@pytest.mark.parametrize("others", ["", ",allow_other"], ids=["refuses", "never answers"])
def test_a_file_system_of_a_users_holds_up_nobody_and_hides_no_notes(lab: Lab, others: str) -> None:
    """A mount of FUSE refuses all but its user, even root; where it may let others in (user_allow_other), they wait."""
    for uid in (1001, 1002):
        put(lab.spool, f"{uid}.0", note(**BOTH), uid)
    options = f"fd=9,rootmode=100000,user_id=1001,group_id=1001{others}"
    mount = f'exec 9<>/dev/fuse && mount -i -t fuse -o {options} none {lab.spool}/1001.0 && exec "$@"'

    def beside(*words: str) -> str:
        command = ["unshare", "--mount", "sh", "-c", mount, "sh", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    for code, said in (SAMPLER, "1002"), (WRITER, "[None]"):
        assert said in beside(sys.executable, "-c", f"SPOOL = {str(lab.spool)!r}\n{code}")
    listed = json.loads(beside(GUA_COMMAND, "note", "--list", "--json", "--config", str(lab.config)))["notes"]
    assert [(one["name"], one["problem"]) for one in listed] == [
        ("1001.0", "something is mounted there"),
        ("1002.0", None),
    ]
