"""docs/fleet.md from its first step to its last, as a new user takes them: three machines with cards and a collector
without any, each booted, with names and keys of its own and a cable between them, to one report in a mailbox."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.fleet_page import (
    FIRST_STEPS,
    MAIL,
    PUBLISH,
    PULL,
    blocks,
    follow,
    key_line,
    section,
    without_sudo,
)
from tests.end_to_end.guest import Guest, prepare_layer

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs("sshd", "rsync", "rrsync", "postfix", "ip")]

COLLECTOR = "collector"
# The page's own address of the collector, from a range that is for documentation; no machine has a way out.
ADDRESSES = {COLLECTOR: "192.0.2.1", "lab1": "192.0.2.11", "lab2": "192.0.2.12", "lab3": "192.0.2.13"}
LABS = [name for name in ADDRESSES if name != COLLECTOR]
CONFIG = "/etc/gua/gua.toml"
RECIPIENT = "gpu-admins"
DOMAIN = "lab.example"
STATUS, REPORT = "gua fleet status /srv/gua", "gua-report --fleet /srv/gua"

# What a sampler of yesterday and the day before would have written: the cards as they are now, at each minute.
HISTORY = """
import time
from gua_report.live import snapshot
from gua_sample import store

DAY_MS = 86_400_000
now_ms = time.time_ns() // 1_000_000
tick = snapshot.look(snapshot.machine(), None, now_ms)
today_ms = now_ms - now_ms % DAY_MS
minutes = range(today_ms - 2 * DAY_MS, today_ms, 60_000)
store.append_history(store.prepare("/var/lib/gua"), (tick._replace(ts_ms=ms, interval_ms=60_000) for ms in minutes))
"""


class Fleet(NamedTuple):
    collector: Guest
    labs: dict[str, Guest]


@pytest.fixture(scope="session")
def with_people(bare: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed machine, with two people who have an account on all machines."""

    def prepare(guest: Guest) -> None:
        for person in ("ana", "ben"):
            guest.run("useradd", person)
        guest.run("sh", "-c", "rm -f /etc/ssh/ssh_host_*")
        guest.write(
            "/etc/hosts",
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items()),
        )

    return prepare_layer("with_people", tmp_path_factory, prepare, layers=[bare, installed])


@pytest.fixture
def fleet(bare: Path, installed: Path, with_people: Path, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        guests = {
            name: stack.enter_context(Guest(tmp_path / name, layers=[bare, installed, with_people]))
            for name in ADDRESSES
        }
        collector = guests.pop(COLLECTOR)
        give_name(collector, COLLECTOR)
        for name, guest in guests.items():
            give_name(guest, name)
            connect(collector, guest, name)
            guest.run("ssh-keygen", "-A")
            guest.run("systemctl", "start", "ssh.service")
        yield Fleet(collector, guests)


def give_name(guest: Guest, name: str) -> None:
    guest.write("/etc/hostname", f"{name}\n")
    guest.run("hostname", name)
    guest.run("ip", "link", "set", "lo", "up")


def connect(collector: Guest, guest: Guest, name: str) -> None:
    """Put a cable between the two. Its ends are in their network namespaces alone, and vanish with them."""
    ends = ["name", f"to-{name}", "netns", str(collector.pid)], ["name", "eth0", "netns", str(guest.pid)]
    subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]], check=True)
    ours, theirs = ADDRESSES[COLLECTOR], ADDRESSES[name]
    for one, device, own, peer in ((collector, f"to-{name}", ours, theirs), (guest, "eth0", theirs, ours)):
        one.run("ip", "address", "add", own, "peer", peer, "dev", device)
        one.run("ip", "link", "set", device, "up")


def hold(guest: Guest, person: str) -> int:
    """Start a process of that person; its pid in the guest."""
    unit = f"work-of-{person}"
    guest.run("systemd-run", f"--unit={unit}", f"--uid={person}", "sleep", "infinity")
    return int(guest.run("systemctl", "show", "--property=MainPID", "--value", unit).stdout)


def equip(fleet: Fleet) -> None:
    """Give each lab cards of its own: two at work, three that somebody holds idle, one free."""
    ana, ben = hold(fleet.labs["lab1"], "ana"), hold(fleet.labs["lab2"], "ben")
    cards: dict[str, list[dict[str, Any]]] = {
        "lab1": [{"utilization_percent": 87}, {"compute": [(ana, 8192)]}, {}],
        "lab2": [{"compute": [(hold(fleet.labs["lab2"], "ana"), 4096)]}, {"compute": [(ben, 30000)]}],
        "lab3": [{"utilization_percent": 60}],
    }
    for name, guest in fleet.labs.items():
        scenario = Scenario()
        for index, settings in enumerate(cards[name]):
            scenario.add_card(uuid=f"GPU-0000000{index}-0000-4000-8000-00000000{name}", **settings)
        laboratory.set_scenario(guest, scenario)


def ask(guest: Guest, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Ask as the page says: as the user who collects, from a folder that is closed to that user."""
    return guest.run(*without_sudo(f"sudo -u gua-collect {command}").split(), cwd="/root", check=check, timeout=120)


def hours(document: dict[str, Any]) -> dict[str, float]:
    return {state: found["gpu_hours"] for state, found in document["headline"]["states"].items()}


def newest_tick(guest: Guest) -> int:
    return int(laboratory.rows(guest, "ticks")[-1]["ts_ms"])


def begin_sampling(guest: Guest) -> int:
    """Start the timer as `make install` leaves it, and don't wait for its first tick; the time of one before it."""
    assert laboratory.sample(guest) == 0
    first = newest_tick(guest)
    laboratory.release_timer(guest)
    return first


def wait_for_timer(guest: Guest, first: int) -> None:
    guest.wait_until(lambda: newest_tick(guest) > first, 40, "a tick by the timer")


def set_up(fleet: Fleet) -> None:
    """Publish, and collect for the first time, with the blocks of the page in its order."""
    (setting,), (publish,) = blocks(PUBLISH, "toml"), blocks(PUBLISH)
    on_collector, on_host, start = blocks(PULL)
    (disable,) = re.findall("`sudo (systemctl disable .*?)`", section(FIRST_STEPS))
    follow(fleet.collector, disable)
    for guest in fleet.labs.values():
        guest.write(CONFIG, setting)
        follow(guest, publish)
    follow(fleet.collector, on_collector)
    key = fleet.collector.read("/var/lib/gua-collect/.ssh/id_ed25519.pub")
    for guest in fleet.labs.values():
        follow(guest, on_host)
        # As an editor would: the file stays, with the mode that the page gave it.
        line = key_line("-ro", key, ADDRESSES[COLLECTOR])
        guest.run("tee", "/var/lib/gua-fleet/.ssh/authorized_keys", stdin=line)
    follow(fleet.collector, start)


def let_days_pass(guest: Guest) -> None:
    guest.write("/opt/history.py", HISTORY)
    guest.run("/opt/gua/bin/python", "/opt/history.py", user="gua")
    guest.run("systemctl", "start", "gua-rollup.service")


def deliver_here(guest: Guest) -> None:
    """Make postfix the mail server of the page's example domain."""
    guest.run("useradd", RECIPIENT)
    settings = [f"mydestination={DOMAIN},localhost", f"myhostname={COLLECTOR}.{DOMAIN}", f"myorigin={DOMAIN}"]
    settings += ["inet_interfaces=loopback-only", "mail_spool_directory=/var/mail", "mailbox_command=", "relayhost="]
    guest.run("postconf", "-e", *settings)
    guest.run("systemctl", "start", "postfix")


def check_first_day(collector: Guest) -> None:
    """Nothing is over yet, which is no failure."""
    shown = ask(collector, STATUS).stdout.splitlines()
    assert [line.split()[0] for line in shown if " no day yet " in line] == LABS
    none = ask(collector, REPORT, check=False)
    assert (none.returncode, none.stdout) == (3, "")
    assert none.stderr.startswith("gua-report: error: no day of any host is over yet: ")


def check_status(collector: Guest) -> int:
    """All hosts are well, and three machines; returns how many days each has."""
    hosts = json.loads(ask(collector, f"{STATUS} --json").stdout)["hosts"]
    assert [(one["host"], one["state"], one["problems"]) for one in hosts] == [(name, "ok", []) for name in LABS]
    assert len({one["machine"] for one in hosts}) == len(LABS)
    (days,) = {one["days"] for one in hosts}
    return int(days)


def check_the_sum(fleet: Fleet, days: int) -> None:
    """Compare the report with what is known of the cards, and with the labs' own reports of the same days."""
    document = json.loads(ask(fleet.collector, f"{REPORT} --format json").stdout)
    daily = {"active": 2 * 24.0, "idle-held": 3 * 24.0, "truly-idle": 24.0, "unknown": 0.0}
    assert hours(document) == {state: days * value for state, value in daily.items()}
    window = document["window"]
    own = [laboratory.report(guest, "--from", window["from"], "--to", window["to"]) for guest in fleet.labs.values()]
    for state, value in hours(document).items():
        assert value == sum(hours(one)[state] for one in own)
    held = {one["identity"]: one["idle_held_gpu_hours"] for one in document["identities"]}
    assert held == {"ana": days * 48.0, "ben": days * 24.0}


def check_the_mail(message: EmailMessage, days: int) -> None:
    assert message["To"] == f"{RECIPIENT}@{DOMAIN}"
    assert message["From"] == f"gua-collect@{DOMAIN}"
    assert message["Subject"] == "3 hosts: 50 % idle-held"
    body = message.get_body(("plain",))
    assert body is not None
    lines = body.get_content().splitlines()
    table = lines[lines.index("Hosts, by idle-held GPU-hours") + 2 :][: len(LABS)]
    shown = {line.split()[0]: line.split()[3:6] for line in table}
    hours = {"lab1": (24, 24, 72), "lab2": (48, 0, 48), "lab3": (0, 24, 24)}  # of a day: held, free, in all
    assert shown == {name: [f"{days * one:.1f}" for one in ones] for name, ones in hours.items()}
    (page,) = message.iter_attachments()
    assert all(f"<td>{name}<" in page.get_content() for name in LABS)


def next_mail(guest: Guest, number: int) -> EmailMessage:
    return guest.wait_until(
        lambda: laboratory.read_mailbox(guest, RECIPIENT)[number - 1 : number], 60, f"mail {number}"
    )[0]


def test_three_machines_end_in_one_mailed_report(fleet: Fleet) -> None:
    collector, labs = fleet
    equip(fleet)
    first_ticks = {name: begin_sampling(guest) for name, guest in labs.items()}
    set_up(fleet)
    check_first_day(collector)
    for guest in labs.values():
        let_days_pass(guest)
    collector.run("systemctl", "start", "gua-collect.service")
    days = check_status(collector)
    check_the_sum(fleet, days)
    deliver_here(collector)
    by_hand, units = blocks(MAIL)
    follow(collector, by_hand)
    check_the_mail(next_mail(collector, 1), days)
    for name, guest in labs.items():  # all the while, each has gone on by itself
        wait_for_timer(guest, first_ticks[name])
    # A machine whose power fails: it is named, and what came before is still in the mail of each week.
    labs["lab3"].kill()
    assert collector.run("systemctl", "start", "gua-collect.service", check=False).returncode == 1
    assert "gua-collect: 1 of 3 hosts failed: lab3" in collector.journal("gua-collect.service")
    (setting,) = blocks(MAIL, "toml")
    collector.write(CONFIG, setting)
    follow(collector, units)
    assert collector.run("systemctl", "is-enabled", "gua-mail.timer").stdout == "enabled\n"
    collector.run("systemctl", "start", "gua-mail.service")
    check_the_mail(next_mail(collector, 2), days)
