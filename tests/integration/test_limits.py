"""Limits through the commands: what a report reads for them, and what it says."""

import json
from functools import partial
from pathlib import Path

import pytest

from gua_report.commands.demo import simulate
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.lab import DAY_MS, HOUR_MS, MONDAY_MS, Job, busy, free, held, series, write
from tests.rolling import run

ALICE, BOB = Job(100, "alice"), Job(200, "bob")
ticks = partial(series, every_ms=600_000, interval_ms=600_000)
WINDOW = ("--to", "2026-11-23", "--tz", "UTC")
PEOPLE = "[limits.everyone]\nidle_held_hours = 20\n"
GROUP = '[groups]\nus = ["alice", "bob"]\n[limits.groups.us]\ngpu_hours = 150\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week: alice holds a card for a day, then bob works for the rest of it, and it is free in the last hour."""
    folder = tmp_path_factory.mktemp("data")
    write(folder, ticks(MONDAY_MS, 144, held(ALICE)) + ticks(MONDAY_MS + DAY_MS, 858, busy(BOB)))
    write(folder, ticks(MONDAY_MS + 7 * DAY_MS - HOUR_MS, 6, free()))
    return folder


def report(data: Path, folder: Path, config: str, *options: str) -> tuple[int, str]:
    (folder / "gua.toml").write_text(config)
    status, output, errors = run("report", data, *WINDOW, "--config", str(folder / "gua.toml"), *options)
    assert errors == ""
    return status, output


def test_a_week_with_somebody_over_a_limit_is_not_clean(data: Path, tmp_path: Path) -> None:
    quiet = ("--quiet-if-clean", "9d", "--json")
    assert report(data, tmp_path, "", *quiet) == (0, "")
    assert report(data, tmp_path, "[limits.everyone]\nidle_held_hours = 24.1\n", *quiet) == (0, "")
    _, output = report(data, tmp_path, PEOPLE, *quiet)
    assert json.loads(output)["attention"] == ["1 person over a limit (alice 24.0 of 20 idle-held GPU-hours)"]


def test_a_group_over_a_limit_is_found_though_the_section_of_groups_is_not_shown(data: Path, tmp_path: Path) -> None:
    options = ("--quiet-if-clean", "9d", "--section", "coverage", "--json")
    _, output = report(data, tmp_path, GROUP, *options)
    document = json.loads(output)
    assert document["attention"] == ["1 group over a limit (us 167.0 of 150 GPU-hours)"]
    assert "groups" not in document
    assert report(data, tmp_path, GROUP, *options, "--who", "alice") == (0, "")


def test_ones_own_report_has_a_sentence_whatever_the_window(data: Path, tmp_path: Path) -> None:
    said = "bob is within the limit of 20 idle-held GPU-hours a week: 0.0 in the 7 days up to 23 Nov 00:00."
    for since in ("2d", "7d", "30d"):
        _, output = report(data, tmp_path, PEOPLE, "--since", since, "--who", "bob")
        assert said in " ".join(output.split())


def test_a_container_or_unit_named_in_the_config_has_a_limit_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    unit = Job(300, "root", uid=0, cgroup="/system.slice/ollama.service")
    write(data, ticks(MONDAY_MS, 7 * 144, held(unit)))
    config = PEOPLE + '[limits.people."unit:ollama.service"]\ngpu_hours = 100\n'
    _, output = report(data, tmp_path, config, "--section", "identities", "--json")
    (row,) = json.loads(output)["identities"]
    assert (row["identity"], row["over_limit"], row["limit_idle_held_gpu_hours"]) == ("unit:ollama.service", True, None)


def test_status_marks_who_is_over_by_the_closed_days(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    simulate(str(folder), 0, EXAMPLE_END_MS - 2 * DAY_MS, EXAMPLE_END_MS)
    assert run("rollup", folder)[0] == 0
    config = tmp_path / "gua.toml"
    config.write_text("[limits.everyone]\ngpu_hours = 0.5\n")
    status, output, errors = run("status", folder, "--simulate", "--config", str(config))
    assert (status, errors) == (0, "")
    assert "(over limit" in output
    assert "Limits: GPU-hours of the 7 days up to 11 Nov 00:00 UTC, closed days alone\n" in output
    assert " of these are known: who is not marked may be over a limit too\n" in output
