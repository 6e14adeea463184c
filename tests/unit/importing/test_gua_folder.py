"""gua import of another data folder of gua's: the same to the last figure, or refused day by day."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_sample.partition_names import list_partitions
from gua_sample.records import Tick
from tests.gpu_usage_audit import NOON_MS
from tests.import_target import Target, left_out
from tests.lab import DAY_MS, HOUR_MS, Gpu, Job, busy, free, held, lost, mig, series, tick, write
from tests.machine import query


def history(boot: str = "boot-1") -> list[Tick]:
    """Two days with all that a tick may hold."""
    job = Job(7, "alice", 3000, 0, 4000, 1000, "al", "python", "/user.slice/user-1000.slice", "compute+graphics")
    nameless = Job(8, None, None, None, None, None, None, "x", None)
    gpus = [busy(job, nameless, energy=5000), held(job, index=1), free(2), lost(3), mig(4, 0, 33.33, (job,)), mig(4, 1)]
    cards = series(NOON_MS, 3, *gpus, every_ms=30_000, interval_ms=30_000, boot=boot)
    later = series(NOON_MS + DAY_MS, 2, *gpus, every_ms=30_000, boot=boot)
    return [*cards, tick(NOON_MS + HOUR_MS, error="driver_not_loaded", driver_version=None, boot=boot), *later]


def everything(folder: Path) -> dict[str, list[dict[str, Any]]]:
    views = ("ticks", "card_ticks", "process_ticks")
    paths = [Path(path) for path in list_partitions(str(folder / "samples"))]
    order = {"ticks": "ts_ms", "card_ticks": "ts_ms, gpu_uuid", "process_ticks": "ts_ms, gpu_uuid, pid"}
    return {
        view: [row for path in paths for row in query(path, f"SELECT * FROM {view} ORDER BY {order[view]}")]
        for view in views
    }


@pytest.mark.parametrize("part", ["", "samples"])
def test_a_data_folder_is_copied_to_the_last_figure(tmp_path: Path, target: Target, part: str) -> None:
    write(tmp_path / "backup", history())
    said = target.imports(tmp_path / "backup" / part)
    assert (said["kind"], said["taken"]["ticks"], len(said["taken"]["days"])) == ("gua data folder", 6, 2)
    assert everything(target.folder) == everything(tmp_path / "backup")
    again = target.imports(tmp_path / "backup" / part)
    assert (again["taken"]["ticks"], again["there_already"]["ticks"]) == (0, 6)


def test_one_partition_is_taken_whatever_its_name(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    path = (tmp_path / "backup" / "samples" / "2026-10-05.sqlite").rename(tmp_path / "monday")
    assert target.imports(path)["taken"]["days"] == ["2026-10-05"]


def test_a_backup_completes_what_is_there(tmp_path: Path, target: Target) -> None:
    ticks = history() + series(NOON_MS + DAY_MS + 150_000, 3, free(), boot="boot-2")
    write(tmp_path / "backup", ticks)
    write(target.folder, ticks[1:3] + ticks[4:5])
    said = target.imports(tmp_path / "backup")
    assert (said["taken"]["ticks"], said["there_already"]["ticks"], said["left_out"]) == (6, 3, [])
    assert everything(target.folder) == everything(tmp_path / "backup")


def test_many_refused_days_make_few_lines(tmp_path: Path, target: Target) -> None:
    write(
        target.folder,
        [one for day in range(9) for one in series(NOON_MS + day * DAY_MS, 2, Gpu(uuid="GPU-x"), boot="x")],
    )
    write(tmp_path / "node7", [one for day in range(9) for one in series(NOON_MS + day * DAY_MS, 2, free())])
    said = target.imports(tmp_path / "node7", status=1)
    assert len(said["refused"]) == 9
    assert target.errors.startswith("gua import: error: 2026-10-05, 2026-10-06, 2026-10-07 and 6 more refused: ")
    assert target.errors.count("\n") == 1


def test_days_that_cant_be_read_are_refused_alone(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    samples = tmp_path / "backup" / "samples"
    with closing(sqlite3.connect(samples / "2026-10-06.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    (samples / "2026-10-07.sqlite").write_bytes(b"no database at all" * 100)
    (samples / "2026-10-08.sqlite").touch()
    (samples / "2026-10-09.0123456789abcd.pending").write_text("{}")
    (samples / "2026-10-04.sqlite.corrupt-1").write_text("")
    said = target.imports(tmp_path / "backup", status=1)
    assert {one["what"]: one["reason"].partition(" ")[2] for one in said["refused"]} == {
        "2026-10-06": "has schema version 99, this gua reads up to 1: upgrade gua",
        "2026-10-07": "is not usable (file is not a database)",
    }
    assert said["taken"]["days"] == ["2026-10-05"]
    assert left_out(said) == {
        "tick still waiting to be taken in by the sampler over there": 1,
        "file set aside as corrupt over there": 1,
    }


def test_a_partition_that_somebody_made_up_is_refused(tmp_path: Path, target: Target) -> None:
    write(tmp_path / "backup", history())
    path = tmp_path / "backup" / "samples" / "2026-10-05.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE card_sample SET utilization_source = 17")
        connection.execute("UPDATE process SET command = ?", ("\x1b[2J",))
        connection.commit()
    said = target.imports(tmp_path / "backup", status=1)
    assert [one["what"] for one in said["refused"]] == ["2026-10-05"]
    assert "holds what no gua writes" in target.errors
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE card_sample SET utilization_source = 1")
        connection.commit()
    target.imports(tmp_path / "backup")
    assert {row["command"] for row in target.rows("process_ticks") if row["ts_ms"] < NOON_MS + DAY_MS} == {r"\x1b[2J"}


def test_the_data_folder_itself_is_no_source(target: Target) -> None:
    write(target.folder, history())
    for source in (target.folder, target.folder / "samples", target.folder / "samples" / "2026-10-05.sqlite"):
        target.imports(source, status=2)
        assert "is the data folder itself" in target.errors
