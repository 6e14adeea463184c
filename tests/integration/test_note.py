"""gua note on the stand-in driver: a person marks what they hold, and status and report say so."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.machine import GUA, Machine, call, complaint
from tests.notes import REASON, make_spool
from tests.systemctl import replace_systemctl
from tests.users import SOMEBODY, gua_for_others, needs_root, run_as_somebody

pytestmark = needs_root

ANOTHER = SOMEBODY + 1


@pytest.fixture(autouse=True)
def units(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return replace_systemctl(open_folder, monkeypatch)


@pytest.fixture
def theirs() -> Iterator[int]:
    """A process of somebody's."""
    with subprocess.Popen(["sleep", "600"], user=SOMEBODY, group=SOMEBODY, extra_groups=[]) as process:
        yield process.pid
        process.kill()


class Lab:
    """A machine with two cards, on the first of which somebody holds memory, and a spool of root's."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine, self.pid = machine, pid
        machine.scenario.add_card(compute=[(pid, 2000)])
        machine.scenario.add_card(compute=[(1, 3000)])
        self.spool = make_spool(machine.folder)
        self.config = machine.folder / "gua.toml"
        self.config.write_text(f'[notes]\nspool = "{self.spool}"\n')
        # Whatever the process is called where the tests run, in a unit or a container: the config says whose it is.
        (holder,) = self.status()["gpus"][0]["users"]
        with self.config.open("a") as file:
            file.write(f'[people]\n"{holder["user"]}" = "uid:{SOMEBODY}"\n')

    def words(self, verb: str, *options: str) -> list[str]:
        return [verb, "--data-dir", str(self.machine.data_dir), "--config", str(self.config), *options]

    def gua(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [GUA, *self.words(verb, *options)]
        return call(command, env=self.machine.environment())

    def note_as(self, uid: int, *options: str) -> subprocess.CompletedProcess[str]:
        command = [*gua_for_others(self.machine.folder), *self.words("note", *options)]
        return run_as_somebody(command, self.machine.environment(), uid)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.gua("status", "--json").stdout)
        return found

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.spool.iterdir())]


@pytest.fixture
def lab(machine: Machine, theirs: int) -> Lab:
    return Lab(machine, theirs)


def test_a_person_marks_their_own_processes_and_status_and_report_say_so(lab: Lab) -> None:
    lab.machine.tick()
    done = lab.note_as(SOMEBODY, "--until", "3d", REASON)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"meant until \w{{3}} \d\d:\d\d: 1 process, {lab.pid} sleep \(note 0; gua note --remove 0\)\n", done.stdout
    )
    (written,) = lab.notes()
    assert [one["pid"] for one in written["processes"]] == [lab.pid]
    first, second = lab.status()["gpus"]
    said = {"until_ms": written["until_ms"], "reason": REASON, "by": f"uid:{SOMEBODY}"}
    assert first["processes"][0]["meant"] == said
    assert first["users"][0]["meant"] == said
    assert [one["meant"] for one in second["users"] + second["processes"]] == [None, None]
    assert re.search(rf"uid:{SOMEBODY} \(idle.*, meant until \w+ \d\d:\d\d: {REASON}\)", lab.gua("status").stdout)
    lab.machine.tick()
    report = json.loads(lab.gua("report", "--since", "1h", "--json").stdout)
    meant = {one["gpu_index"]: (one["meant_now"], one["meant_reason"]) for one in report["episodes"]}
    assert meant == {0: (True, REASON), 1: (False, None)}
    assert report["notes"] == []
    hours = {one["identity"]: one["meant_gpu_hours"] for one in report["identities"]}
    assert hours[f"uid:{SOMEBODY}"] > 0
    assert sum(hours.values()) == hours[f"uid:{SOMEBODY}"]


@pytest.mark.parametrize(("whose", "gpu"), [(f"uid:{SOMEBODY}", 0), ("me", 1)])
def test_ones_own_report_knows_ones_own_note(lab: Lab, whose: str, gpu: int) -> None:
    with lab.config.open("a") as file:  # me is root here, who has the second card
        file.write(f'"{lab.status()["gpus"][1]["users"][0]["user"]}" = "root"\n')
    lab.machine.tick()
    own, advice = ("report", "--since", "1h", "--who", whose), "Done? End the process."
    before = lab.gua(*own).stdout
    assert (advice in " ".join(before.split()), "Meant" in before) == (whose == "me", False)
    note = ("--until", "3d", "--gpu", str(gpu), REASON)
    assert (lab.gua("note", *note) if whose == "me" else lab.note_as(SOMEBODY, *note)).returncode == 0
    lab.machine.tick()
    for options in ((), ("--brief",), ("--format", "markdown"), ("--format", "html"), ("--section", "now")):
        done = lab.gua(*own, *options)
        assert (done.returncode, done.stderr) == (0, "")
        said = " ".join(done.stdout.split())
        assert re.search(rf"without work since .*Meant: until \d+ \w+ \d\d:\d\d: {REASON}\.", said), said
        assert "Done?" not in said


def test_others_are_refused_and_told_what_to_do(lab: Lab) -> None:
    for options, said in {
        (
            "--pid",
            str(lab.pid),
        ): f"process {lab.pid} counts as uid:{SOMEBODY}'s, not as yours: they can mark it, or root",
        ("--gpu", "0"): "you have no process on GPU 0 now: start it first, then run this again",
        (): "you have no process on a card now: start it first, then run this again",
    }.items():
        done = lab.note_as(ANOTHER, "--until", "3d", *options, "mine")
        assert said in complaint(done, 1)
    assert lab.notes() == []


def test_root_marks_anything_with_the_name_that_it_has_if_the_driver_can_be_used(lab: Lab) -> None:
    environment = lab.machine.environment() | {"LD_LIBRARY_PATH": "/nowhere"}
    done = call([GUA, *lab.words("note", "--until", "3d", "why")], env=environment)
    assert "gua doctor" in complaint(done, 1)
    assert lab.notes() == []
    done = lab.gua("note", "--until", "3d", "--pid", str(lab.pid), "of a colleague's")
    assert (done.returncode, done.stderr) == (0, "")
    (written,) = lab.notes()
    assert written["identity"] == f"uid:{SOMEBODY}"
    assert lab.status()["gpus"][0]["users"][0]["meant"]["by"] == "root"
