"""Notes on an installed system: people write them without any right, and everybody is told."""

import json

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest

SPOOL = "/var/spool/gua/notes"


def start_of(guest: Guest, user: str) -> int:
    """The pid, in the guest, of a process that this user has started."""
    started = guest.run("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!", user=user)
    return int(started.stdout)


def test_somebody_marks_what_they_hold_and_nobody_else_can(guest: Guest) -> None:
    assert guest.run("stat", "--format=%U:%G %a", SPOOL).stdout == "root:root 1733\n"
    pid = start_of(guest, "somebody")
    scenario = Scenario()
    scenario.add_card(compute=[(pid, 8192)])
    scenario.add_card(compute=[(1, 4096)])
    laboratory.set_scenario(guest, scenario)
    assert laboratory.sample(guest) == 0
    done = guest.run("gua", "note", "--until", "3d", "serving the demo", user="somebody")
    assert f"1 process, {pid} sleep" in done.stdout
    refused = guest.run("gua", "note", "--until", "3d", "--pid", "1", "mine", user="somebody", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "process 1 counts as root's, not as yours" in refused.stderr
    assert guest.run("ls", SPOOL, user="somebody", check=False).returncode != 0
    assert laboratory.sample(guest) == 0
    for user in ("somebody", "gua", None):
        document = laboratory.report(guest, "--since", "1h", user=user)
        meant = {one["identity"]: one["meant_reason"] for one in document["episodes"] if one["meant_now"]}
        assert meant == {"somebody": "serving the demo"}
        assert document["notes"] == []
    status = json.loads(guest.run("gua", "status", "--json").stdout)
    assert [card["users"][0]["meant"] is not None for card in status["gpus"]] == [True, False]
    assert "notes" not in laboratory.findings(guest)
    guest.run("gua", "note", "--until", "3d", "--identity", "root", "the init system")
    document = laboratory.report(guest, "--since", "1h", user="gua")
    assert sum(one["meant_now"] for one in document["episodes"]) == 2
