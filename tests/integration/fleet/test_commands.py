"""gua-report --fleet, gua fleet status, gua mail --fleet and gua.report(fleet=...), with the clock of the fleet."""

import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from gua_report import notebook
from gua_report.main import main
from gua_sample.errors import GuaError
from tests.fleets import NOW_MS, add_host, change, make_fleet


@pytest.fixture(autouse=True)
def as_a_user_of_that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_fleet(tmp_path / "fleet", "lab1", "small")


def gua(*words: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a gua command."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        status = main([*map(str, words), "--config", os.devnull])
    return status, output.getvalue(), errors.getvalue()


def test_a_complete_fleet_ends_well(folder: Path) -> None:
    status, output, errors = gua("report", "--fleet", folder, "--since", "2d")
    assert (status, errors) == (0, "")
    assert "GPU use on 2 hosts: 4 GPUs" in output
    assert "2026-11-16 00:00 to 2026-11-18 00:00 UTC" in output


def test_a_window_since_a_time_begins_then(folder: Path) -> None:
    status, output, _ = gua("report", "--fleet", folder, "--since", "2026-11-17", "--json")
    assert status == 0
    window = json.loads(output)["window"]
    assert (window["from"], window["to"]) == ("2026-11-17T00:00:00+00:00", "2026-11-18T00:00:00+00:00")


def test_an_incomplete_fleet_is_reported_with_exit_status_1(folder: Path) -> None:
    (folder / "gone").mkdir()
    status, output, errors = gua("report", "--fleet", folder, "--since", "2d", "--by", "model")
    assert status == 1
    assert "Not in this report: 1 of 3 hosts (gone)" in output
    assert "By model" in output
    assert errors.splitlines() == [
        "gua-report: incomplete: not all hosts could be used; the report names them (--section not_used)"
    ]


def test_hosts_can_be_chosen(folder: Path) -> None:
    status, output, _ = gua("report", "--fleet", folder, "--hosts", "sm*", "--json", "--since", "2d")
    assert status == 0
    assert [host["host"] for host in json.loads(output)["hosts"]] == ["small"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "model"), "--by is for many hosts"),
        (("--hosts", "x"), "--hosts is for many hosts"),
        (("--scheduler", "tcp://x"), "--scheduler is for many hosts"),
        (("--wait", "5s"), "--wait is for many hosts"),
        (("--fleet", "x", "--wait", "5s"), "--wait is for a Dask cluster"),
        (("--fleet", "x", "--scheduler", "tcp://x", "--wait", "soon"), "bad duration 'soon'"),
        (("--fleet", "x", "--by", "room"), "unknown --by 'room'"),
        (("--fleet", "x", "--data-dir", "y"), "two reports"),
    ],
)
def test_wrong_usage_is_said(words: tuple[str, ...], said: str) -> None:
    status, _, errors = gua("report", *words)
    assert status == 2
    assert said in errors


def test_root_reads_no_fleet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for words in (("report", "--fleet", folder), ("fleet", "status", folder), ("mail", "--fleet", folder)):
        status, output, errors = gua(*words)
        assert (status, output) == (1, "")
        assert "root does not read them" in errors
    with pytest.raises(GuaError, match="root does not read them"):
        notebook.report(fleet=str(folder))


def test_a_notebook_has_the_report_of_a_fleet(folder: Path) -> None:
    report = notebook.report("2d", fleet=str(folder), by="person", config=os.devnull)
    assert report.fleet is not None
    assert report.fleet.breakdown["name"].tolist()[0] == "ollama"
    assert "Hosts, by" in report._repr_html_()


def test_the_status_of_a_fleet_names_late_hosts(folder: Path) -> None:
    status, output, _ = gua("fleet", "status", folder)
    assert status == 0
    assert output.splitlines()[-1] == "2 hosts, none with problems"
    change(folder / "lab1" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-17'")
    add_host(folder, "bad", "small").write_bytes(b"x" * 5000)
    change(add_host(folder, "other", "lab2"), "UPDATE day SET utilization_percent = 25 WHERE day = '2026-11-16'")
    status, output, _ = gua("fleet", "status", folder)
    assert status == 1
    lines = output.splitlines()
    assert lines[1].split() == ["bad", "not", "usable", "-", "-", "-", "-"]
    assert ["lab1", "late", "2026-11-16"] in [line.split()[:3] for line in lines]
    assert "left out: 2026-11-16, rolled up under other thresholds" in output
    assert lines[-1] == "4 hosts, 3 with problems"


def test_the_status_ends_with_1_if_a_report_doubts_a_host(folder: Path) -> None:
    add_host(folder, "twin", "small", machine="f" * 32)
    status, output, _ = gua("fleet", "status", folder)
    assert status == 1
    assert ["twin", "same", "card"] in [line.split()[:3] for line in output.splitlines()]
    assert gua("fleet", "status", folder, "--hosts", "lab*")[0] == 0


def test_the_status_for_programs_is_documented(folder: Path) -> None:
    (folder / "gone").mkdir()
    status, output, _ = gua("fleet", "status", folder, "--json")
    found = json.loads(output)
    assert (status, found["with_problems"]) == (1, ["gone"])
    page = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    for key in [*found, *found["hosts"][0]]:
        assert f"`{key}`" in page, key
    assert [host["state"] for host in found["hosts"]] == ["not usable", "ok", "ok"]


def test_a_mail_tells_an_incomplete_report_from_a_failed_one(folder: Path) -> None:
    words = ("mail", "--fleet", folder, "--since", "2d", "--to", "ada@lab.example", "--dry-run")
    assert "Subject: 2 hosts: 3" in gua(*words)[1]
    (folder / "gone").mkdir()
    status, output, _ = gua(*words)
    assert status == 0
    assert "Subject: 2 hosts: incomplete, 1 of 3 hosts missing" in output
    assert "[gpu-use-fleet-2026-" in output
    status, output, _ = gua("mail", "--fleet", folder / "none", "--to", "ada@lab.example", "--dry-run")
    assert status == 3
    assert "GPU report failed" in output


def test_without_dask_nothing_of_it_is_imported() -> None:
    code = (
        "import sys; from gua_report.fleet.build import build_fleet_report; import gua_report.notebook;"
        "sys.exit(any(name in sys.modules for name in ('dask', 'distributed')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_verb_that_there_is_not_is_said(folder: Path) -> None:
    status, _, errors = gua("fleet", "stats", folder)
    assert status == 2
    assert "did you mean status?" in errors
