"""From a container on a card to its name: podman, the sampler's note, the path unit, gua-containers as root."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory, podman
from tests.end_to_end.guest import Guest, prepare_layer
from tests.end_to_end.laboratory import NO_INDEX, WHEELS, make

pytestmark = [pytest.mark.timeout(600), pytest.mark.needs("podman", "runc", "newuidmap", "busybox")]

FILE = "/var/lib/gua/containers.json"
NOTE = "/run/gua/containers.wanted"
PATH, SERVICE = "gua-containers.path", "gua-containers.service"
MODE_AND_OWNER = ("stat", "--format=%U:%G %a", FILE)


@pytest.fixture(scope="session")
def asking(bare: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The layers of a machine with CONTAINERS=yes, podman, and the users ana and ben."""

    def prepare(guest: Guest) -> None:
        laboratory.make_renamable(guest)
        done = make(guest, "install", "CONTAINERS=yes", f"WHEELS={WHEELS}", environment=NO_INDEX)
        guest.write("/root/install.log", done.stdout)
        for user in ("ana", "ben"):
            guest.run("useradd", "--create-home", user)
        podman.prepare(guest, "ana")
        # Tests that take a second note do not wait for a minute.
        laboratory.drop_in(guest, SERVICE, "Service", "ExecStartPost=", name="no-pause.conf")

    layer = prepare_layer("asking", tmp_path_factory, prepare, layers=[bare, installed])
    return [bare, installed, layer]


@pytest.fixture
def guest(asking: list[Path], tmp_path: Path) -> Iterator[Guest]:
    with Guest(tmp_path / "guest", layers=asking) as guest:
        yield guest


def sample(guest: Guest, *pids: int) -> None:
    """Take a tick with these processes on cards."""
    scenario = Scenario()
    for pid in pids:
        scenario.add_card(compute=[(pid, 8192)])
    laboratory.set_scenario(guest, scenario)
    assert laboratory.sample(guest) == 0
    assert [row["pid"] for row in laboratory.rows(guest, "process_ticks")][-len(pids) :] == list(pids)


def known(guest: Guest) -> dict[str, Any]:
    done = guest.run("cat", FILE, check=False)
    containers: dict[str, Any] = json.loads(done.stdout)["containers"] if done.returncode == 0 else {}
    return containers


def wait_for(guest: Guest, container: str) -> dict[str, Any]:
    """What is known of the container, as soon as it is."""
    key = container[:12]
    guest.wait_until(lambda: key in known(guest), 60, f"the name of {container}")
    found = known(guest)[key]
    return {name: value for name, value in found.items() if name != "seen_ms"}


def wait_for_end(guest: Guest) -> None:
    """Wait until the note is taken and the service has ended."""

    def is_done() -> bool:
        state = guest.run("systemctl", "is-active", SERVICE, check=False).stdout.strip()
        return state in ("inactive", "failed") and guest.run("test", "-e", NOTE, check=False).returncode == 1

    guest.wait_until(is_done, 60, "the service to end")


def test_a_rootful_container_gets_its_name_and_a_hint_of_its_owner(guest: Guest) -> None:
    guest.run("systemctl", "start", "podman.socket")
    guest.run("install", "-d", "-o", "ana", "/home/ana/data")
    labelled, first = podman.start_container(guest, "train-resnet", "--label=gua.owner=ben", "--env=KEY=hunter2")
    mounted, second = podman.start_container(guest, "eval", "--volume=/home/ana/data:/data")
    sample(guest, first, second)
    assert laboratory.rows(guest, "process_ticks")[-1]["cgroup"] == f"/machine.slice/libpod-{mounted}.scope"
    common = {"runtime": "podman", "image": podman.IMAGE}
    assert wait_for(guest, labelled) == common | {"name": "train-resnet", "owner": "ben", "how": "label"}
    assert wait_for(guest, mounted) == common | {"name": "eval", "owner": "ana", "how": "mount"}
    wait_for_end(guest)
    assert guest.run("systemctl", "is-failed", SERVICE, PATH, check=False).stdout.split() == ["inactive", "active"]
    assert guest.journal(SERVICE) == []
    assert guest.run(*MODE_AND_OWNER).stdout == "gua:gua 644\n"
    assert "hunter2" not in guest.read(FILE)
    assert "sleep" not in guest.read(FILE)
    listed = guest.run("gua-containers", "--list", user="ben").stdout
    assert re.search(r"^podman:[0-9a-f]{12} +train-resnet +localhost/box.* +ben\? label$", listed, re.MULTILINE)


def test_the_real_docker_asks_as_podman_does(guest: Guest) -> None:
    """Podman's socket speaks Docker's API, and stands in for Docker's."""
    guest.run("systemctl", "start", "podman.socket")
    guest.run("ln", "-s", "/run/podman/podman.sock", "/run/docker.sock")
    container, _ = podman.start_container(guest, "train-resnet", "--label=gua.owner=ben")
    done = guest.run("gua-containers", f"docker:{container}")
    assert re.search(r"^docker:[0-9a-f]{12} +train-resnet +localhost/box.* +ben\? label$", done.stdout, re.MULTILINE)
    assert done.stderr == ""
    unknown = guest.run("gua-containers", "0123456789ab", check=False)
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("gua-containers: error: nobody knows 0123456789ab:")


def test_a_rootless_container_is_its_users_and_asked_of_nobody(guest: Guest) -> None:
    uid = podman.start_user(guest, "ana")
    _, pid = podman.start_container(guest, "notebook", "--label=gua.owner=ben", user="ana")
    sample(guest, pid)
    cgroup = laboratory.rows(guest, "process_ticks")[-1]["cgroup"]
    assert cgroup.startswith(f"/user.slice/user-{uid}.slice/user@{uid}.service/")
    assert guest.run("test", "-e", NOTE, check=False).returncode == 1
    assert guest.journal(SERVICE) == []


def test_a_user_with_a_made_up_cgroup_speaks_for_nobody(guest: Guest) -> None:
    """ben names units of his own after a container of the machine's, and after none."""
    guest.run("systemctl", "start", "podman.socket")
    theirs, pid = podman.start_container(guest, "train-resnet")
    podman.start_user(guest, "ben")
    made_up = "0123456789ab" + "c" * 52
    for container in (theirs, made_up):
        podman.run_as(guest, "ben", f"systemd-run --user --unit=libpod-{container} sleep 600")
    pids = [
        int(podman.run_as(guest, "ben", f"systemctl --user show --property=MainPID --value libpod-{container}"))
        for container in (theirs, made_up)
    ]
    sample(guest, pid, *pids)
    found = wait_for(guest, theirs)
    assert (found["name"], found["owner"]) == ("train-resnet", None)
    wait_for_end(guest)
    assert list(known(guest)) == [theirs[:12]]
    assert guest.journal(SERVICE) == []


@pytest.mark.parametrize("made_up", ["docker", "slurm"])
def test_in_a_unit_that_may_make_cgroups_nobody_is_a_container_or_a_job(guest: Guest, made_up: str) -> None:
    names = {"docker": f"docker-{'3f2a9c81' * 8}.scope", "slurm": "slurmstepd.scope/job_777/step_0"}
    hub = "/sys/fs/cgroup/system.slice/hub.service"
    delegated = ("--unit=hub", "--uid=ben", "--property=Delegate=yes")
    guest.run("systemd-run", "--quiet", *delegated, "sleep", "600")
    pid = int(guest.run("systemctl", "show", "--property=MainPID", "--value", "hub").stdout)
    guest.run("mkdir", "-p", f"{hub}/{names[made_up]}", user="ben")
    guest.run("sh", "-c", f"echo {pid} >{hub}/{names[made_up]}/cgroup.procs")
    sample(guest, pid)
    assert "/system.slice/hub.service" in laboratory.rows(guest, "process_ticks")[-1]["cgroup"].split(";")
    (shown,) = json.loads(guest.run("gua", "status", "--json").stdout)["gpus"][0]["processes"]
    assert (shown["user"], shown["slurm_job"]) == ("ben", None)


def test_where_the_history_is_for_a_group_so_are_the_names(guest: Guest) -> None:
    guest.run("install", "-D", "-m644", f"{laboratory.SOURCE}/systemd/gua-readers.conf", "/etc/readers.conf")
    guest.run("install", "-d", "/etc/systemd/system/gua-.service.d")
    guest.run("mv", "/etc/readers.conf", "/etc/systemd/system/gua-.service.d/10-readers.conf")
    guest.run("systemctl", "daemon-reload")
    guest.run("systemctl", "start", "podman.socket")
    container, pid = podman.start_container(guest, "train-resnet")
    sample(guest, pid)
    wait_for(guest, container)
    assert guest.run(*MODE_AND_OWNER).stdout == "gua:gua 640\n"


def test_gua_writing_notes_in_a_loop_starts_it_once_a_minute(guest: Guest) -> None:
    guest.run("rm", f"/etc/systemd/system/{SERVICE}.d/no-pause.conf")
    laboratory.drop_in(guest, SERVICE, "Service", "ExecStartPre=+/bin/sh -c 'echo run >>/root/runs'", name="count.conf")
    sample(guest, 1)  # which makes /run/gua
    loop = f"end=$(($(date +%s) + 20)); while [ $(date +%s) -lt $end ]; do echo 0123456789ab >{NOTE}; done"
    guest.run("sh", "-c", loop, user="gua", timeout=60)
    assert guest.read("/root/runs") == "run\n"
    assert guest.run("systemctl", "is-active", PATH).stdout == "active\n"


MORE = """
found["secret"] = [attempt(lambda: os.listdir(path)) for path in ("/home", "/root", "/run/user/UID")]
os.setgroups([]); os.setresgid(GROUP, GROUP, GROUP); os.setresuid(USER, USER, USER)
found["as gua"] = attempt(write("/var/lib/gua"))
"""


def test_the_unit_can_do_nothing_but_its_work(guest: Guest) -> None:
    sample(guest, 1)  # which makes /run/gua
    user, group = (guest.run("id", option, "gua").stdout.strip() for option in ("-u", "-g"))
    more = MORE.replace("UID", podman.start_user(guest, "ana")).replace("USER", user).replace("GROUP", group)
    found = laboratory.probe(guest, SERVICE, more)
    # Even in the two folders that it may write to, root may not: they are gua's.
    assert (found["writes"], found["as gua"]) == ([], "done")
    assert found["secret"] == ["Permission denied"] * 3
    assert found["inet"] != "done"
    assert found["namespace"] == "Operation not permitted"
    set_ids = 1 << 6 | 1 << 7  # CAP_SETGID, CAP_SETUID
    assert found["capabilities"] == [set_ids, set_ids, set_ids, 0]


def test_the_units_verify_without_a_word(guest: Guest) -> None:
    done = guest.run("systemd-analyze", "verify", PATH, SERVICE)
    assert (done.stdout, done.stderr) == ("", "")


def test_installing_says_so_and_uninstalling_takes_all_of_it_away(guest: Guest) -> None:
    assert "to see them: gua-containers --list" in guest.read("/root/install.log")
    assert guest.run("systemctl", "is-enabled", PATH).stdout == "enabled\n"
    make(guest, "uninstall")
    left = guest.run("find", "/etc/systemd", "/usr/local/lib", "-name", "gua-containers.*").stdout
    assert left == f"/etc/systemd/system/{SERVICE}.d\n"  # a drop-in of the administrator's, here the test's
    assert "gua-" not in guest.run("systemctl", "list-units", "--all", "gua-*", "--no-legend").stdout
    assert guest.run("sh", "-c", "command -v gua-containers", check=False).returncode != 0


def test_without_the_choice_there_are_no_units(bare: Path, installed: Path, tmp_path: Path) -> None:
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        assert guest.run("find", "/etc/systemd", "/usr/local/lib", "-name", "gua-containers.*").stdout == ""
        # The sampler's notes stay where they are, and small.
        guest.run("systemd-run", "--unit=libpod-" + "a" * 64, "sleep", "600")
        pid = guest.run("systemctl", "show", "--property=MainPID", "--value", "libpod-" + "a" * 64).stdout
        sample(guest, int(pid))
        assert guest.read(NOTE) == "podman:" + "a" * 12 + "\n"
        before = guest.run("stat", NOTE).stdout
        sample(guest, int(pid))
        assert guest.run("stat", NOTE).stdout == before
