"""The metrics in a real node_exporter and a real Prometheus: queries, dashboard and alerts on one afternoon."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gua_report.commands.demo import leave_state
from gua_sample import store
from gua_sample.simulate import Laboratory
from tests.lab import HOUR_MS, at
from tests.machine import Machine
from tests.monitoring import Monitoring, monitoring, needs_prometheus, promtool, wait_for
from tests.processes import process_named
from tests.repository import ROOT

pytestmark = needs_prometheus

RULES = ROOT / "contrib" / "prometheus"
DASHBOARD = ROOT / "contrib" / "grafana" / "gua.json"
# A Wednesday on which the laboratory's last card is lost; long ago, so that nobody can take it for a live sampler.
NOW_MS = at("2026-01-14T15:10:00")

# Those of the README of gpu-idle-exporter, as they stand there.
QUERIES = [
    "sum(gpu_idle_memory_total_bytes)",
    "gpu_idle_process_idle_seconds > 600",
    "topk(10, gpu_idle_process_idle_memory_bytes > 0)",
    """sum(gpu_idle_memory_total_bytes) by (gpu)
  / sum(gpu_idle_device_memory_total_bytes) by (gpu) * 100""",
    "gpu_idle_process_idle_seconds > 3600 and gpu_idle_process_idle_memory_bytes > 1e9",
]


@pytest.fixture(scope="module")
def afternoon(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitoring]:
    """A Prometheus that sees the laboratory after a day of sampling."""
    folder = tmp_path_factory.mktemp("afternoon")
    machine = Machine(driver, folder)
    data_dir, start_ms = str(machine.data_dir), NOW_MS - 24 * HOUR_MS
    history = Laboratory().history(start_ms, NOW_MS, 30_000)
    store.append_history(store.prepare(data_dir), leave_state(data_dir, history, start_ms))
    with monitoring(folder, RULES / "alerts.yml") as servers:
        machine.tick("--simulate", "--textfile", str(servers.folder / "gua.prom"), clock_ms=NOW_MS)
        wait_for(lambda: servers.query("gua_tick_success"), "the first scrape")
        yield servers


def samples(text: str) -> dict[tuple[str, frozenset[str]], float]:
    """Every series of ours, whatever the order of its labels and the way its value is written."""
    found = re.findall(r"^(gua_\w+|gpu_idle_\w+)(?:{(.*)})? (\S+)$", text, re.MULTILINE)
    label = r'\w+="(?:[^"\\]|\\.)*"'
    return {(name, frozenset(re.findall(label, labels))): float(value) for name, labels, value in found}


def test_node_exporter_shows_the_file_as_it_is(afternoon: Monitoring) -> None:
    scraped = afternoon.scrape()
    assert "node_textfile_scrape_error 0" in scraped.splitlines()
    written = samples((afternoon.folder / "gua.prom").read_text())
    assert len(written) > 100
    assert samples(scraped) == written


@pytest.mark.parametrize("query", QUERIES)
def test_queries_written_for_gpu_idle_exporter_run_unchanged(afternoon: Monitoring, query: str) -> None:
    found = afternoon.query(query)
    assert found
    assert all(float(one["value"][1]) > 0 for one in found) or "/" in query
    if "/" in query:
        shares = {one["metric"]["gpu"]: float(one["value"][1]) for one in found}
        assert set(shares) == set("0123456")  # of the lost one, nobody knows
        assert max(shares.values()) <= 100
        assert any(0 < share < 100 for share in shares.values())


def test_idle_time_is_that_of_the_whole_day(afternoon: Monitoring) -> None:
    """Each run leaves it for the next one."""
    longest = max(float(one["value"][1]) for one in afternoon.query("gpu_idle_process_idle_seconds"))
    assert 4 * 3600 < longest <= 24 * 3600


def expressions() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_every_panel_of_the_dashboard_shows_something(afternoon: Monitoring, title: str, expression: str) -> None:
    filled_in = expression.replace("$instance", ".*").replace("$__range", "1h")
    assert "$" not in filled_in
    assert wait_for(lambda: afternoon.query(filled_in), f"{title} to show anything")


def test_the_dashboard_asks_for_nothing_that_is_not_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    used = set(re.findall(r"\b(?:gua|gpu)_[a-z_]+", DASHBOARD.read_text() + (RULES / "alerts.yml").read_text()))
    assert used <= set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))


def test_alerts_fire_on_what_the_file_says(afternoon: Monitoring) -> None:
    def found() -> dict[str, list[dict[str, str]]]:
        by_name: dict[str, list[dict[str, str]]] = {}
        for alert in afternoon.alerts():
            by_name.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return by_name if {"GpuProcessIdle", "GuaSamplerStale", "GpuLost"} <= set(by_name) else {}

    alerts = wait_for(found, "the alerts")
    assert [labels["status"] for labels in alerts["GpuLost"]] == ["gpu_is_lost"]
    assert len(alerts["GuaSamplerStale"]) == 1
    assert "GuaSamplerFails" not in alerts


# --- promtool ---


def test_the_rules_are_sound_and_pass_their_tests() -> None:
    assert promtool("check", "rules", str(RULES / "alerts.yml")).returncode == 0
    done = promtool("test", "rules", "alerts_test.yml", cwd=RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("> 3600", "> 3000"),
        ("> 2^30", "> 1e9"),
        ("> 300 and", "> 900 and"),
        ('status!~"ok', 'status=~"ok'),
        ("== 1", "== 2"),
    ],
)
def test_the_tests_of_the_rules_notice_a_change(tmp_path: Path, rule: str, change: str) -> None:
    text = (RULES / "alerts.yml").read_text()
    assert rule in text
    (tmp_path / "alerts.yml").write_text(text.replace(rule, change))
    (tmp_path / "alerts_test.yml").write_text((RULES / "alerts_test.yml").read_text())
    assert promtool("test", "rules", "alerts_test.yml", cwd=tmp_path).returncode != 0


def test_promtool_has_nothing_to_say_of_the_names(afternoon: Monitoring) -> None:
    done = promtool("check", "metrics", text=(afternoon.folder / "gua.prom").read_text())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


HOSTILE = [
    b'say "hi"',
    b"two\nlines",
    b"back\\slash",
    b"\\",
    b'\\"',
    b'"} 1\nx 2',
    b"\xff\xfe",
    b"{a=b,#}",
    "größe".encode(),
]


def test_hostile_names_reach_prometheus_as_they_are(machine: Machine, tmp_path: Path) -> None:
    with monitoring(tmp_path, RULES / "alerts.yml") as servers, ExitStack() as stack:
        pids = [stack.enter_context(process_named(name)) for name in HOSTILE]
        machine.scenario.add_card(name='NVIDIA "A\\100"', compute=[(pid, 200) for pid in pids])
        file = servers.folder / "gua.prom"
        machine.tick("--textfile", str(file), variables={"NODE_NAME": 'n"\\1\n'})
        done = promtool("check", "metrics", text=file.read_text())
        assert (done.returncode, done.stderr) == (0, "")
        found = wait_for(lambda: servers.query("gpu_idle_process_memory_used_bytes"), "the first scrape")
        names = {int(one["metric"]["pid"]): one["metric"]["process"] for one in found}
        commands = {row["pid"]: row["command"] for row in machine.processes()}
        assert names == commands
        assert names[pids[0]] == 'say "hi"'
        assert names[pids[1]] == "two\\nlines"
        assert names[pids[2]] == "back\\slash"
        assert {one["metric"]["node"] for one in found} == {'n"\\1\\n'}
        (card,) = servers.query("gpu_idle_device_memory_total_bytes")
        assert card["metric"]["model"] == 'NVIDIA "A\\100"'
        assert "node_textfile_scrape_error 0" in servers.scrape()


def test_a_half_written_file_is_never_seen(machine: Machine, tmp_path: Path) -> None:
    """Somebody reads as often as possible while the sampler writes, and beside what a killed run left."""
    machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    with monitoring(tmp_path, RULES / "alerts.yml") as servers:
        file = servers.folder / "gua.prom"
        (servers.folder / ".gua.prom.aa.unfinished").write_text("gua_half_of{")
        machine.tick("--textfile", str(file))
        for _ in range(5):
            command = machine.command("--textfile", str(file))
            with subprocess.Popen(command, env=machine.environment(), stdout=subprocess.DEVNULL) as sampler:
                while sampler.poll() is None:
                    scraped = servers.scrape()
                    assert "node_textfile_scrape_error 0" in scraped
                    assert re.search(r"^gua_tick_errors_total 0$", scraped, re.MULTILINE)
                assert sampler.returncode == 0
