"""docs/people.md leads to the first reminder in ten minutes: its commands, as they stand there, on a new machine."""

import os
import pwd
import re
import subprocess

import pytest

from tests.driver import Scenario
from tests.machine import GUA, Machine
from tests.repository import DOCS, ROOT
from tests.telling import SENDMAIL

PAGE = (DOCS / "people.md").read_text().split("### The first one, in ten minutes\n")[1].split("\n### ")[0]
COMMANDS = re.findall(r"`((?:sudo )?gua (?:status|remind)[^`]*)`", PAGE)
MAIL = PAGE.split("```\nSubject:")[1].split("```")[0]
MINUTES = 4  # since the installation


@pytest.fixture
def new_machine(machine: Machine) -> Machine:
    """Installed just now: the page's configuration, a program that takes mails, and somebody, ada, on a card."""
    machine.scenario = Scenario()
    machine.scenario.add_card()
    machine.scenario.add_card(compute=[(os.getpid(), 20_480)])
    for minutes in range(MINUTES, -1, -1):
        machine.tick("--interval", "1m", clock_offset_ms=-60_000 * minutes)
    me = pwd.getpwuid(os.geteuid()).pw_name
    config = machine.folder / "gua.toml"
    config.write_text(PAGE.split("```toml\n")[1].split("```")[0] + f'[people]\n"{me}" = "ada"\n')
    programs = {
        "sudo": '#!/bin/sh\nexec "$@"\n',
        "gua": f"#!/bin/sh\nexec '{GUA}' \"$@\" --data-dir '{machine.data_dir}' --config '{config}'\n",
        "sendmail": SENDMAIL,
    }
    (machine.folder / "bin").mkdir()
    for name, text in programs.items():
        (machine.folder / "bin" / name).write_text(text)
        (machine.folder / "bin" / name).chmod(0o755)
    return machine


def type_in(machine: Machine, command: str) -> str:
    path = f"{machine.folder}/bin:{os.environ['PATH']}"
    environment = machine.environment() | {"PATH": path}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert "usage" not in done.stderr
    assert "this is a bug" not in done.stderr
    return done.stdout


def test_the_page_leads_to_the_first_reminder(new_machine: Machine) -> None:
    status, check, look, send = COMMANDS
    assert "\nSampling: " in type_in(new_machine, status)
    assert type_in(new_machine, check) == "templates, addresses and the way to send mail look good\n"
    outbox = new_machine.folder / "bin" / "sendmail.to"
    shown = type_in(new_machine, look)
    assert "To: ada@lab.example\n" in shown
    assert "\n  You hold 20.0 GiB on GPU 1 without work" in shown
    assert not outbox.exists(), "nothing is sent"
    assert type_in(new_machine, send).startswith("sent 1")
    assert outbox.read_text() == "you@lab.example\n"
    (sent,) = (new_machine.folder / "bin").glob("*.mail")
    for paragraph in MAIL.split("\n\n"):
        if not re.search(r"\d", paragraph):  # what differs has figures
            assert paragraph.replace("lab7", os.uname().nodename).strip() in sent.read_text()
    assert "To: ada@lab.example\n" in type_in(new_machine, look), "nobody counts as told"


def test_the_page_installs_the_timer_as_the_unit_says(new_machine: Machine) -> None:
    words = (ROOT / "contrib" / "remind" / "gua-remind.service").read_text().replace("# ", "")
    installs = re.findall(r"^ +(sudo (?:install|systemctl).*)$", PAGE, re.MULTILINE)
    assert len(installs) == 3
    assert all(" ".join(command.split()) in " ".join(words.split()) for command in installs)
