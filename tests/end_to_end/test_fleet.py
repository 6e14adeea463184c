"""The ways of docs/fleet.md to collect what hosts publish: sshd, rsync and rrsync from Debian, and the units.

One guest plays all machines: user gua publishes, gua-fleet is whom the collector logs in as, gua-collect collects.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.rollups.index import read_meta
from tests.end_to_end.fleet_page import PULL, PUSH, SHARED, blocks, follow, key_line, section
from tests.end_to_end.guest import Guest, prepare_layer
from tests.repository import ROOT

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs("sshd", "rsync", "rrsync")]

PUBLISHED = "/var/lib/gua/publish/rollups.sqlite"
FLEET = "/srv/gua"
HOSTS = "127.0.0.1 lab1 lab2 lab3 collector hangs refuses\n"
SSH_CONFIG = "Host hangs\n  Port 2222\nHost refuses\n  Port 2223\n"
# Accepts connections, and says nothing.
SILENT = "import socket, time; s = socket.create_server(('127.0.0.1', 2222)); time.sleep(600)"
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def fleet(bare: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host that publishes, three names for it, and a collector, set up as the page says."""

    def prepare(guest: Guest) -> None:
        guest.run("ip", "link", "set", "lo", "up")
        guest.write("/etc/hosts", "127.0.0.1 localhost\n" + HOSTS)
        guest.write("/etc/ssh/ssh_config.d/fleet.conf", SSH_CONFIG)
        guest.run("ssh-keygen", "-A")
        guest.run("systemctl", "enable", "--now", "ssh.service")
        guest.run("gua", "demo", "--now", "--days", "2", "--keep", "/root/lab", timeout=120)
        guest.run(
            "sh", "-c", "rm -r /var/lib/gua/samples; cp -r /root/lab/samples /var/lib/gua; chown -R gua: /var/lib/gua"
        )
        guest.write("/etc/gua/gua.toml", "[fleet]\npublish = true\n")
        guest.run("systemctl", "start", "gua-rollup.service")
        collector, host, _ = blocks(PULL)
        follow(guest, collector)
        follow(guest, host)
        key = guest.read("/var/lib/gua-collect/.ssh/id_ed25519.pub")
        guest.write("/var/lib/gua-fleet/.ssh/authorized_keys", key_line("-ro", key))

    return prepare_layer("fleet", tmp_path_factory, prepare, layers=[bare, installed])


@pytest.fixture
def guest(bare: Path, installed: Path, fleet: Path, tmp_path: Path) -> Iterator[Guest]:
    with Guest(tmp_path / "guest", layers=[bare, installed, fleet]) as guest:
        guest.run("ip", "link", "set", "lo", "up")
        guest.run("systemctl", "start", "ssh.service")
        yield guest


def as_collector(guest: Guest, *command: str, **variables: str) -> Done:
    return guest.run(*command, user="gua-collect", environment=variables, cwd="/tmp", check=False)


def collected(guest: Guest, host: str) -> bytes:
    """The file of a host, which must be a published copy."""
    found = guest.path(f"{FLEET}/{host}/rollups.sqlite").read_bytes()
    copy = guest.folder / "collected.sqlite"  # SQLite can't open the guest's own
    copy.write_bytes(found)
    assert read_meta(str(copy)).newest_tick_ms
    return found


def published(guest: Guest) -> bytes:
    return guest.path(PUBLISHED).read_bytes()


def assert_refused(done: Done, *words: str) -> None:
    assert done.returncode != 0, (done.args, done.stdout)
    assert any(word in done.stderr for word in words), done.stderr
    assert "root:" not in done.stdout


# -- pull


def test_a_collector_with_cards_collects_from_itself_without_a_key(guest: Guest) -> None:
    (line,) = re.findall("`(lab1 /.*?)`", section(PULL))
    guest.write("/etc/gua/fleet-hosts", line + "\n")
    guest.run("systemctl", "stop", "ssh.service")
    follow(guest, blocks(PULL)[2])
    assert collected(guest, "lab1") == published(guest)


def test_what_the_key_of_a_puller_can_not_do(guest: Guest) -> None:
    before = published(guest)
    guest.write("/tmp/mine", "mine")
    login = "gua-fleet@lab1"
    for words in (["id"], ["cat", "/etc/passwd"], ["rsync", "--daemon"], [], ["-t"]):
        options = words if words == ["-t"] else []
        assert_refused(
            as_collector(guest, "ssh", *OPTIONS, *options, login, *(words if not options else [])), "rrsync error"
        )
    assert_refused(as_collector(guest, "ssh", *OPTIONS, "-W", "127.0.0.1:22", login), "prohibited", "forwarding failed")
    assert_refused(as_collector(guest, "scp", *OPTIONS, f"{login}:/etc/passwd", "/tmp/got"), "rrsync", "closed")
    for path in ("/etc/passwd", "../rollups.sqlite", "../../../../etc/passwd", "x/../../samples/"):
        done = as_collector(guest, "rsync", "-r", f"{login}:{path}", "/tmp/got/")
        assert_refused(done, "rrsync error", "No such file")
    assert_refused(as_collector(guest, "rsync", "/tmp/mine", f"{login}:rollups.sqlite"), "read-only")
    assert_refused(as_collector(guest, "rsync", "--delete", "-r", "/tmp/got/", f"{login}:"), "read-only")
    done = as_collector(guest, "rsync", "--remove-source-files", f"{login}:rollups.sqlite", "/tmp/got")
    assert_refused(done, "disabled on this server")
    assert published(guest) == before
    assert guest.run("ls", "-A", "/var/lib/gua/publish").stdout == "rollups.sqlite\n"


def test_a_key_from_another_address_is_no_key(guest: Guest) -> None:
    key = guest.read("/var/lib/gua-collect/.ssh/id_ed25519.pub")
    guest.write("/var/lib/gua-fleet/.ssh/authorized_keys", key_line("-ro", key, "192.0.2.1"))
    done = as_collector(guest, "rsync", "-e", " ".join(("ssh", *OPTIONS)), "gua-fleet@lab1:rollups.sqlite", "/tmp/got")
    assert_refused(done, "Permission denied")


def test_of_a_history_for_a_group_the_copy_is_for_that_group_too(guest: Guest) -> None:
    """As with READERS=group; the unit's sandbox does not let it change who owns a file."""
    guest.run("chmod", "750", "/var/lib/gua")
    guest.run("rm", "-r", str(Path(PUBLISHED).parent))
    closed = (ROOT / "systemd" / "gua-readers.conf").read_text()
    guest.write("/etc/systemd/system/gua-rollup.service.d/gua-readers.conf", closed)
    guest.run("systemctl", "daemon-reload")
    guest.run("systemctl", "start", "gua-rollup.service")
    assert guest.run("stat", "-c", "%U %G %a", str(Path(PUBLISHED).parent)).stdout == "gua gua 750\n"
    assert guest.run("stat", "-c", "%U %G %a", PUBLISHED).stdout == "gua gua 640\n"
    done = as_collector(guest, "gua-collect", "/etc/gua/fleet-hosts", FLEET)
    assert done.returncode == 1
    (join,) = re.findall(r"`sudo (usermod -aG gua gua-fleet)`", section(PULL))
    follow(guest, join)
    assert as_collector(guest, "gua-collect", "/etc/gua/fleet-hosts", FLEET).returncode == 0
    assert collected(guest, "lab1") == published(guest)


def test_a_link_in_place_of_the_copy_leads_nowhere(guest: Guest) -> None:
    """Its owner could point it at anything that the account can read."""
    guest.run("sh", "-c", f"cd {Path(PUBLISHED).parent} && rm rollups.sqlite && ln -s /etc/passwd rollups.sqlite")
    done = as_collector(guest, "gua-collect", "/etc/gua/fleet-hosts", FLEET)
    assert done.returncode == 1
    assert "3 of 3 hosts failed" in done.stderr
    assert guest.run("find", FLEET, "-type", "f").stdout == ""


def test_hosts_that_hang_or_refuse_cost_themselves_alone(guest: Guest) -> None:
    assert as_collector(guest, "gua-collect", "/etc/gua/fleet-hosts", FLEET).returncode == 0
    old = collected(guest, "lab2")
    guest.run("systemctl", "start", "gua-rollup.service")
    assert published(guest) != old
    guest.run("systemd-run", "--unit=silent", "/usr/bin/python3", "-c", SILENT)
    keys = guest.read("/etc/ssh/ssh_known_hosts")
    guest.write("/etc/ssh/ssh_known_hosts", keys + re.sub(r"^lab2 ", "[hangs]:2222,[refuses]:2223 ", keys, flags=re.M))
    guest.write("/tmp/hosts", "hangs\nrefuses\nlab1\nlab2 gua-fleet@lab2:gone.sqlite\n../lab3\n")
    done = as_collector(guest, "gua-collect", "/tmp/hosts", FLEET, GUA_COLLECT_SECONDS="5", GUA_COLLECT_AT_ONCE="2")
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert "gua-collect: hangs: no end within 5 s" in said
    assert any(re.match("gua-collect: refuses: ssh: connect .* Connection refused", line) for line in said)
    assert any(line.startswith("gua-collect: lab2: ") and "gone.sqlite" in line for line in said)
    assert any(line.startswith("gua-collect: line-5 of the list makes no sense") for line in said)
    assert said[-1].startswith("gua-collect: 4 of 5 hosts failed: ")
    assert sorted(said[-1].split(": ")[-1].split()) == ["hangs", "lab2", "line-5", "refuses"]
    assert collected(guest, "lab1") == published(guest)
    assert collected(guest, "lab2") == old


# -- push


@pytest.fixture
def pushing(guest: Guest) -> Guest:
    """A host with a key for its own folder, set up as the page says, beside another host's."""
    collector, host = blocks(PUSH)
    follow(guest, collector + collector.replace("lab1", "lab2"))
    setup, units = host.split("install -m 644", 1)
    follow(guest, setup)
    key = guest.read("/etc/gua/fleet-key.pub")
    guest.write("/var/lib/gua-collect/.ssh/authorized_keys", key_line("-wo", key))
    follow(guest, "install -m 644" + units)
    return guest


def as_pusher(guest: Guest, *command: str) -> Done:
    remote = f"ssh -i /etc/gua/fleet-key {' '.join(OPTIONS)}"
    return guest.run(*command, user="gua", environment={"RSYNC_RSH": remote}, cwd="/tmp", check=False)


def test_the_unit_pushes_what_the_host_has_published(pushing: Guest) -> None:
    assert collected(pushing, "lab1") == published(pushing)
    pushing.run("systemctl", "start", "gua-rollup.service")
    assert collected(pushing, "lab1") != published(pushing)
    pushing.run("systemctl", "start", "gua-push.service")
    assert collected(pushing, "lab1") == published(pushing)
    assert pushing.run("ls", "-A", f"{FLEET}/lab1").stdout == "rollups.sqlite\n"
    assert pushing.run("systemctl", "is-enabled", "gua-push.timer").stdout == "enabled\n"


def test_what_the_key_of_a_host_can_not_do(pushing: Guest) -> None:
    pushing.write(f"{FLEET}/lab2/rollups.sqlite", "of lab2", mode=0o666)
    login = "gua-collect@collector"
    pushing.write("/tmp/mine", "mine")
    pushing.run("ln", "-s", "../lab2", "/tmp/link")
    for words in (["id"], ["cat", "/etc/passwd"], []):
        assert_refused(as_pusher(pushing, "ssh", *OPTIONS, "-i", "/etc/gua/fleet-key", login, *words), "rrsync error")
    for path in ("rollups.sqlite", "", "../lab2/rollups.sqlite", "/etc/passwd"):
        assert_refused(as_pusher(pushing, "rsync", f"{login}:{path}", "/tmp/got"), "write-only")
    for path in ("../lab2/rollups.sqlite", f"{FLEET}/lab2/rollups.sqlite", "/../lab2/rollups.sqlite"):
        assert_refused(as_pusher(pushing, "rsync", "/tmp/mine", f"{login}:{path}"), "rrsync error", "No such file")
    # A link in its own folder, to go through it afterwards.
    as_pusher(pushing, "rsync", "--links", "/tmp/link", f"{login}:")
    assert pushing.run("readlink", f"{FLEET}/lab1/link").stdout == "/rsyncd-munged/../lab2\n"
    for path in ("link/rollups.sqlite", "link/"):
        for options in ([], ["-r"], ["-rK"], ["-rk"]):
            as_pusher(pushing, "rsync", *options, "/tmp/mine", f"{login}:{path}")
    assert pushing.read(f"{FLEET}/lab2/rollups.sqlite") == "of lab2"
    assert pushing.run("ls", "-A", f"{FLEET}/lab2").stdout == "rollups.sqlite\n"


# -- a shared folder


def test_into_a_shared_folder_a_host_writes_its_own_folder_alone(pushing: Guest) -> None:
    uid = pushing.run("id", "-u", "gua").stdout.strip()
    (commands,) = blocks(SHARED)
    follow(pushing, commands.replace("1701", uid) + "install -d -o daemon -m 755 /srv/gua/lab2\n")
    pushing.run("mkdir", "/net")
    pushing.run("mount", "--bind", "/srv", "/net")
    page = section(SHARED)
    (target,) = re.findall(r"`(TO=/net/.*?)`", page)
    (paths,) = re.findall(r"^ +(ReadWritePaths=.*)$", page, re.MULTILINE)
    pushing.write("/etc/systemd/system/gua-push.service.d/override.conf", f"[Service]\n{paths}\n")
    pushing.run("systemctl", "daemon-reload")
    pushing.write("/etc/gua/fleet-push.env", target + "\n")
    pushing.run("systemctl", "start", "gua-push.service")
    assert pushing.path("/srv/gua/lab1/rollups.sqlite").read_bytes() == published(pushing)
    assert pushing.run("ls", "-A", "/srv/gua/lab1").stdout == "rollups.sqlite\n"
    pushing.write("/etc/gua/fleet-push.env", target.replace("lab1", "lab2") + "\n")
    pushing.write("/etc/systemd/system/gua-push.service.d/override.conf", "[Service]\nReadWritePaths=/net/gua\n")
    pushing.run("systemctl", "daemon-reload")
    assert pushing.run("systemctl", "start", "gua-push.service", check=False).returncode != 0
    done = pushing.run("sh", "-c", "echo mine >/srv/gua/lab2/rollups.sqlite", user="gua", check=False)
    assert done.returncode != 0
    assert pushing.run("ls", "-A", "/srv/gua/lab2", "/srv/gua").stdout.count("rollups.sqlite") == 0
