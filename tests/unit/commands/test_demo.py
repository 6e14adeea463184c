"""gua demo --hosts: a fleet in which something is missing, as it is in real ones."""

import json
import os
import time
from pathlib import Path

import pytest

from gua_report.rollups.index import read_meta
from gua_sample.errors import CorruptPartition
from gua_sample.simulate_plan import A100, A6000, H100, L40S, NAMES
from tests.lab import DAY_MS, NOON_MS
from tests.machine import query
from tests.machine import run_here as gua


def be_a_user_at_noon(changed: pytest.MonkeyPatch) -> None:
    changed.setattr(os, "geteuid", lambda: 1000)
    changed.setattr(time, "time_ns", lambda: NOON_MS * 1_000_000)


@pytest.fixture(autouse=True)
def as_a_user_at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    be_a_user_at_noon(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str]]:
    """Three hosts that were kept, and how the command that made them ended."""
    folder = tmp_path_factory.mktemp("demo") / "fleet"
    with pytest.MonkeyPatch.context() as changed:
        be_a_user_at_noon(changed)
        return folder, gua("demo", "--hosts", "3", "--days", "4", "--keep", folder)


@pytest.fixture
def fleet(made: tuple[Path, tuple[int, str, str]]) -> Path:
    return made[0]


def test_the_report_is_of_all_hosts_and_names_the_one_that_is_late_and_the_one_that_is_broken(
    made: tuple[Path, tuple[int, str, str]],
) -> None:
    status, output, errors = made[1]
    assert status == 1
    assert "GPU use on 2 hosts: 12 GPUs" in output
    assert "Not in this report: 1 of 3 hosts (gpu03)." in output
    assert "whose last days were not collected (gpu02)" in output
    assert "stopped" not in output
    assert errors.startswith("gua-report: incomplete: ")
    assert errors.count("\n") == 1


def test_what_is_kept_is_a_fleets_folder(fleet: Path) -> None:
    assert sorted(os.listdir(fleet)) == ["gpu01", "gpu02", "gpu03", "gua.toml"]
    assert {name for host in fleet.glob("gpu*") for name in os.listdir(host)} == {"rollups.sqlite"}
    status, output, _ = gua("fleet", "status", fleet, "--json")
    hosts = json.loads(output)["hosts"]
    assert status == 1
    assert [host["state"] for host in hosts] == ["ok", "late", "not usable"]
    assert [host["days"] for host in hosts] == [4, 2, None]
    metas = [read_meta(str(fleet / name / "rollups.sqlite")) for name in ("gpu01", "gpu02")]
    assert [meta.host for meta in metas] == ["gpu01", "gpu02"]
    assert len({meta.machine for meta in metas}) == 2
    assert metas[1].published_ms < NOON_MS - 2 * DAY_MS < metas[0].published_ms
    with pytest.raises(CorruptPartition):
        read_meta(str(fleet / "gpu03" / "rollups.sqlite"))


def test_hosts_differ_and_people_are_on_several(fleet: Path) -> None:
    def texts(host: str, sql: str) -> set[str]:
        return {row["text"] for row in query(fleet / host / "rollups.sqlite", f"SELECT DISTINCT {sql}")}

    uuids, models = "uuid AS text FROM card", "name AS text FROM card WHERE name IS NOT NULL"
    assert len(texts("gpu01", uuids) | texts("gpu02", uuids)) == 8 + 4
    assert texts("gpu01", models) == {A100[0], A6000[0]}
    assert texts("gpu02", models) == {H100[0], L40S[0]}
    one, other = (texts(host, "text FROM word JOIN identity_hour ON identity = id") for host in ("gpu01", "gpu02"))
    assert one & other & set(NAMES)
    assert (one ^ other) & set(NAMES)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hosts", "0"], "--hosts"),
        (["--hosts", "100"], "expected 1 to 99"),
        (["--hosts", "3", "--days", "3"], "expected 4 to 366 of a fleet"),
    ],
)
def test_wrong_numbers_are_refused(words: list[str], expected: str) -> None:
    status, _, errors = gua("demo", *words)
    assert (status, errors.count("\n") >= 1, expected in errors) == (2, True, True)


def test_a_folder_that_cant_be_made_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, output, errors = gua("demo", "--hosts", "3", "--keep", tmp_path / "file" / "fleet")
    assert (status, output) == (1, "")
    assert errors.endswith("can't be made (Not a directory): give another folder with --keep\n")


def test_root_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    status, _, errors = gua("demo", "--hosts", "3", "--keep", tmp_path / "fleet")
    assert status == 1
    assert "root does not read them" in errors
    assert not (tmp_path / "fleet").exists()


@pytest.mark.real
def test_eight_hosts_take_half_a_minute_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    began = os.times()
    status, output, _ = gua("demo", "--hosts", "8")
    ended = os.times()
    assert status == 1
    assert "GPU use on 7 hosts" in output
    assert sum(ended[:4]) - sum(began[:4]) < 30  # on one core
    assert os.listdir(tmp_path) == []
