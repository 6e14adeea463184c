"""Metrics under the hardened unit: with the drop-in, by the commands of the page, they reach node_exporter."""

import re

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import UNIT, our_lines
from tests.repository import ROOT

FOLDER = "/var/lib/prometheus/node-exporter"
FILE = f"{FOLDER}/gua.prom"
needs_node_exporter = pytest.mark.needs("prometheus-node-exporter")


def commands() -> list[str]:
    """What docs/metrics.md says is to be done."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    block = page.split("in the folder of this repository:\n\n")[1].split("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def switch_on(guest: Guest, without: str = "apt install") -> None:
    guest.run("install", "-d", FOLDER)  # as the package leaves it: root's alone
    for command in commands():
        if without not in command and "apt install" not in command:
            guest.run("sh", "-c", command, cwd=laboratory.SOURCE)


def series(guest: Guest, name: str) -> list[str]:
    return re.findall(rf"^{name}.*$", guest.read(FILE), re.MULTILINE)


def test_by_the_commands_of_the_page_the_file_appears(guest: Guest) -> None:
    switch_on(guest)
    assert [laboratory.sample(guest) for _ in range(2)] == [0, 0], guest.journal(UNIT)
    assert our_lines(guest) == []
    assert len(series(guest, "gua_card_status")) == 3
    assert guest.run("stat", "--format=%U:%G %a", FILE).stdout == "gua:gua 644\n"
    assert guest.run("ls", FOLDER).stdout == "gua.prom\n"
    assert guest.run("systemd-analyze", "verify", UNIT).stderr == ""


@needs_node_exporter
def test_the_package_s_node_exporter_shows_them(guest: Guest) -> None:
    switch_on(guest)
    assert laboratory.sample(guest) == 0
    guest.run("systemctl", "start", "prometheus-node-exporter.service")
    fetch = "import urllib.request; print(urllib.request.urlopen('http://localhost:9100/metrics').read().decode())"

    def scraped() -> str:
        return guest.run(laboratory.PYTHON, "-c", fetch, check=False).stdout

    text = guest.wait_until(scraped, 30, "node_exporter")
    assert re.search("^gua_tick_success 1$", text, re.MULTILINE)
    assert re.search('^gpu_idle_device_utilization_percent{gpu="0",model="NVIDIA A100.* 87$', text, re.MULTILINE)
    assert re.search("^node_textfile_scrape_error 0$", text, re.MULTILINE)


@pytest.mark.parametrize("without", ["gua-textfile.conf", "chgrp"])
def test_without_a_step_ticks_go_on_and_one_line_says_why(guest: Guest, without: str) -> None:
    """An unchanged unit can't write there, whoever owns the folder; nor can one that does not own it."""
    switch_on(guest, without)
    before = len(laboratory.rows(guest, "ticks"))
    assert [laboratory.sample(guest) for _ in range(3)] == [1, 0, 0]  # failed once an hour
    (line,) = our_lines(guest)
    reason = "Permission denied" if without == "chgrp" else "Read-only file system"
    assert line.startswith(f"<3>error: {FILE} can't be written ({reason}): ")
    assert laboratory.errors(guest)[before:] == [None] * 3
