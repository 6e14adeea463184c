"""Reports and rows in a notebook."""

from pathlib import Path

import pandas as pd
import pytest

import gua_report
from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME, LABEL, Container, Known
from gua_sample.errors import NothingToReport, UsageError
from tests.lab import (
    ALICE,
    BOB,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    busy,
    expect,
    free,
    held,
    lost,
    series,
    sliced,
    unpartitioned,
    write,
)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    write(tmp_path, series(MONDAY_MS - HOUR_MS, 120, busy(ALICE, BOB), held(index=1), lost(2), free(3)))
    return tmp_path


MONDAY = {"start": "2026-11-16", "end": "2026-11-17", "tz": "UTC"}
WINDOW = {"start": "2026-11-15T23:30Z", "end": "2026-11-16T00:30Z", "tz": "UTC"}


def test_a_notebook_gets_a_report_of_frames(notebook: Path) -> None:
    report = gua_report.report(**WINDOW, data_dir=str(notebook))
    expect(report, active=1, idle_held=1, unknown=1, truly_idle=1)
    assert report.gpus["uuid"].tolist() == [f"GPU-{index}" for index in range(4)]
    assert report.timezone == "UTC"
    for frame in (report.gpus, report.identities, report.episodes, report.heatmap, report.headline, report.gaps):
        assert isinstance(frame, pd.DataFrame)
    html = report._repr_html_()
    assert "<table" in html
    assert "alice" in html


def test_a_notebook_gets_the_rows_with_states_and_weights(notebook: Path) -> None:
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    assert [len(frame) for frame in rows] == [60, 240, 180]
    states = rows.cards.groupby("gpu_uuid")["state"].agg(set).to_dict()
    assert states == {"GPU-0": {"active"}, "GPU-1": {"idle-held"}, "GPU-2": {"unknown"}, "GPU-3": {"truly-idle"}}
    mine = rows.processes[(rows.processes["gpu_uuid"] == "GPU-0") & (rows.processes["identity"] == "alice")]
    assert set(mine["state"]) == {"idle-held"}
    assert set(rows.ticks["weight_ms"]) == {MINUTE_MS}
    assert rows.cards["gpu_uuid"].tolist()[:4] == [f"GPU-{index}" for index in range(4)]


def test_the_frames_of_a_notebook_have_types(notebook: Path) -> None:
    rows = gua_report.load(**{**WINDOW, "tz": "Asia/Kolkata"}, data_dir=str(notebook))
    for frame in rows:
        assert frame["time"].iloc[0].isoformat() == "2026-11-16T05:00:00+05:30"
        assert frame["ts_ms"].dtype == "int64"
        assert frame["weight_ms"].dtype == "int64"
        assert frame["ts_ms"].is_monotonic_increasing
        assert frame.index.tolist() == list(range(len(frame)))
    assert rows.ticks["interval_ms"].dtype == "float64"
    for name in ("utilization_percent", "memory_used_mib", "energy_joules", "memory_total_mib", "gpu_share"):
        assert rows.cards[name].dtype == "float64", name
    for name in ("memory_mib", "sm_percent", "start_time_ms", "uid"):
        assert rows.processes[name].dtype == "float64", name
    assert rows.processes["pid"].dtype == "int64"
    assert rows.cards["gpu_index"].dtype == "int64"
    assert set(rows.processes["user"]) == {"alice", "bob"}


def test_the_types_are_the_same_in_a_window_with_nobody_on_the_cards(tmp_path: Path, notebook: Path) -> None:
    empty = tmp_path / "empty"
    write(empty, series(MONDAY_MS - HOUR_MS, 120, free(), free(1)))
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    none = gua_report.load(**WINDOW, data_dir=str(empty))
    assert len(none.processes) == 0
    assert [[*one.dtypes.astype(str).items()] for one in rows] == [[*one.dtypes.astype(str).items()] for one in none]


def test_a_notebook_without_data_or_with_a_bad_duration_is_told_so(tmp_path: Path) -> None:
    for call in (gua_report.load, gua_report.report):
        with pytest.raises(NothingToReport, match="no ticks"):
            call(since="1h", data_dir=str(tmp_path))
        with pytest.raises(UsageError, match="7 days"):
            call(since="7 days", data_dir=str(tmp_path))


def test_the_configuration_decides_in_a_notebook_too(notebook: Path) -> None:
    config = notebook / "gua.toml"
    config.write_text('[policy]\nutilization_percent = 95\n[people]\nbob = "Robert"\n')
    report = gua_report.report(**WINDOW, data_dir=str(notebook), config=str(config))
    expect(report, idle_held=2, unknown=1, truly_idle=1)
    assert set(report.identities["identity"]) == {"alice", "Robert"}


def test_a_card_that_nothing_can_use_is_in_no_state(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 30, sliced(0, 0, 3), unpartitioned(1)))
    cards = gua_report.load(**MONDAY, data_dir=str(tmp_path)).cards
    states = set(zip(cards["gpu_uuid"], cards["state"], strict=True))
    assert states == {("MIG-0-0", "truly-idle"), ("GPU-1", "unpartitioned")}
    shares = cards[cards["gpu_uuid"] == "MIG-0-0"]["gpu_share"]
    assert shares.tolist() == pytest.approx([3 / 7] * 30)
    report = gua_report.report(**MONDAY, data_dir=str(tmp_path))
    assert report.unpartitioned["gpu_hours"].tolist() == pytest.approx([2 / 7, 0.5])


def test_rows_tell_the_container_that_a_process_is_in(tmp_path: Path) -> None:
    ident = "3f2a9c81d0b7"
    scope = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ident}{'0' * 52}.scope"
    trainer = ALICE._replace(pid=1, uid=0, user="root", cgroup=f"/system.slice/docker-{ident}{'0' * 52}.scope")
    inside = ALICE._replace(pid=2, uid=100_999, user=None, cgroup=scope)
    write(tmp_path, series(MONDAY_MS, 3, held(trainer, inside, ALICE)))
    hinted = Container("docker", "train", None, "ada", LABEL, 1)
    write_containers(str(tmp_path), Known({ident: hinted}))
    rows = gua_report.load(**MONDAY, data_dir=str(tmp_path)).processes
    columns = ["pid", "identity", "container", "owner_hint", "how"]
    assert set(rows[columns].itertuples(index=False, name=None)) == {
        (1, f"docker:{ident}", "train", "ada", "label"),
        (2, "uid:1000", None, None, None),
        (100, "alice", None, None, None),
    }
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.warns(UserWarning, match="names of containers are missing"):
        rows = gua_report.load(**MONDAY, data_dir=str(tmp_path)).processes
    assert rows["container"].isna().all()
