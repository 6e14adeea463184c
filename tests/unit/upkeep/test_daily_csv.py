"""The daily CSV: what is in it, and when it is written."""

import csv
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gua_report
from gua_report.exporting.rows import TABLES
from gua_report.upkeep.outputs import csv_path, write_daily_csv
from gua_sample.errors import CorruptPartition, StoreError
from tests.lab import CONFIG, MONDAY_MS, Gpu, Job, busy, free, held, lost, mig, series, tick, unpartitioned, write
from tests.repository import page

DAY = "2026-11-16"
# A spreadsheet would run some of these, a terminal obey others, and some break lines.
HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "a,b", 'say "hi"', "one\ntwo", "\r=1", "\x1b[2J", "'=1", " =1"]

GOLDEN = """\
timestamp,user,pid,gpu,usage,time_utc,ts_ms,gpu_uuid,mig_index,status,state,utilization_percent,memory_used_mib,\
memory_total_mib,power_watts,temperature_celsius,identity,login_user,command,type,memory_mib,sm_percent,\
container,owner_hint,how,slurm_job
1794787200,alice,100,0,38,2026-11-16 00:00:00,1794787200250,GPU-0,,ok,active,37.5,2500,80000,,40,\
alice,,python,compute,2000,70,,,,4711
1794787200,root,200,0,38,2026-11-16 00:00:00,1794787200250,GPU-0,,ok,active,37.5,2500,80000,,40,\
carol,carol,python,graphics,500,,,,,
1794787200,,,1,0,2026-11-16 00:00:00,1794787200250,GPU-1,,ok,truly-idle,0.0,0,80000,,40,,,,,,,,,,
1794787200,,,2,,2026-11-16 00:00:00,1794787200250,GPU-2,,gpu_is_lost,unknown,,,,,40,,,,,,,,,,
1794787200,1234,300,3,0,2026-11-16 00:00:00,1794787200250,MIG-3-0,0,ok,idle-held,0.0,2000,9856,,40,\
uid:1234,,python,compute,2000,,,,,
1794787200,,301,3,,2026-11-16 00:00:00,1794787200250,MIG-3-1,1,ok,unknown,,5000,9856,,40,unknown,,python,compute,,,,,,
"""


def read(path: str | None) -> list[dict[str, str]]:
    assert path is not None
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_it_is_made_of_every_process_on_every_card_and_of_cards_without_any(tmp_path: Path) -> None:
    alice = Job(100, "alice", 2000, 70, cgroup="/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    carol = Job(200, "root", 500, uid=0, login_user="carol", type="graphics")
    nameless, nobody = Job(300, None, uid=1234), Job(301, None, None, uid=None)
    instances = [mig(3, 0, 0.0, (nameless,)), mig(3, 1, None, (nobody,))._replace(used_mib=5000)]
    write(tmp_path, [tick(MONDAY_MS + 250, Gpu(0, 37.5, (alice, carol)), free(1), lost(2), *instances)])
    path = write_daily_csv(str(tmp_path), DAY, CONFIG)
    assert path == str(tmp_path / "csv" / f"{DAY}.csv") == csv_path(str(tmp_path), DAY)
    assert Path(path).read_text() == GOLDEN


def test_states_and_identities_are_those_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Job(3, "root", 300, uid=0, cgroup="/system.slice/ollama.service")
    ticks = series(MONDAY_MS, 5, busy(Job(1)), held(service, index=1), free(2), lost(3), Gpu(4, 5.0, (Job(2),)))
    ticks += series(MONDAY_MS + 600_000, 3, Gpu(0, 0.0, used_mib=2000), Gpu(1, None, (Job(1),)), mig(2, 0))
    write(tmp_path, ticks)
    frames = gua_report.load(start=DAY, end="2026-11-17", tz="UTC", data_dir=str(tmp_path))
    rows = read(write_daily_csv(str(tmp_path), DAY, CONFIG))
    expected = {(str(row.ts_ms), row.gpu_uuid, row.state) for row in frames.cards.itertuples()}
    assert {(row["ts_ms"], row["gpu_uuid"], row["state"]) for row in rows} == expected
    whose = {(str(row.ts_ms), str(row.pid), row.identity) for row in frames.processes.itertuples()}
    assert {(row["ts_ms"], row["pid"], row["identity"]) for row in rows if row["pid"]} == whose


def test_hostile_names_come_back_on_one_line_each_and_are_no_formulas(tmp_path: Path) -> None:
    jobs = [Job(number, name, command=name, login_user=name) for number, name in enumerate(HOSTILE, 1)]
    write(tmp_path, [tick(MONDAY_MS, held(*jobs))])
    path = write_daily_csv(str(tmp_path), DAY, CONFIG)
    rows = read(path)
    assert len(Path(str(path)).read_text().split("\n")) == len(HOSTILE) + 2
    for row, name in zip(rows, HOSTILE, strict=True):
        for column in ("user", "command", "login_user", "identity"):
            assert row[column].isprintable()
            assert not row[column].lstrip().startswith(("=", "+", "-", "@"))
            printed = name.replace("\n", "\\n").replace("\r", "\\r").replace("\x1b", "\\x1b")
            assert row[column].removeprefix("'") == printed.removeprefix("'")


def test_the_same_ticks_give_the_same_bytes_and_more_ticks_more(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 3, busy(), held(index=1)))
    path = Path(str(write_daily_csv(str(tmp_path), DAY, CONFIG)))
    before = path.read_bytes()
    write_daily_csv(str(tmp_path), DAY, CONFIG)
    assert path.read_bytes() == before
    write(tmp_path, series(MONDAY_MS + 600_000, 1, busy()))
    write_daily_csv(str(tmp_path), DAY, CONFIG)
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == before.count(b"\n") + 1


def test_without_ticks_there_is_no_file(tmp_path: Path) -> None:
    assert write_daily_csv(str(tmp_path), DAY, CONFIG) is None
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / f"{DAY}.sqlite").touch()  # the first tick of the day is just being written
    assert write_daily_csv(str(tmp_path), DAY, CONFIG) is None
    assert os.listdir(tmp_path) == ["samples"]


def test_a_day_of_nothing_but_driver_errors_has_column_names_alone(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 3, error="driver_not_loaded"))
    path = write_daily_csv(str(tmp_path), DAY, CONFIG)
    assert Path(str(path)).read_text() == ",".join(TABLES["csv"].columns) + "\n"


def test_a_partition_that_can_not_be_read_leaves_the_older_file(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 3, busy()))
    path = Path(str(write_daily_csv(str(tmp_path), DAY, CONFIG)))
    before = path.read_bytes()
    (tmp_path / "samples" / f"{DAY}.sqlite").write_text("garbage, more than sixteen bytes of it")
    with pytest.raises(CorruptPartition):
        write_daily_csv(str(tmp_path), DAY, CONFIG)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path / "csv") == [path.name]


def test_a_folder_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS, busy())])
    (tmp_path / "csv").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="csv can't be written"):
        write_daily_csv(str(tmp_path), DAY, CONFIG)


def test_the_file_gets_the_umask_and_is_alone(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS, busy())])
    previous = os.umask(0o027)
    try:
        path = Path(str(write_daily_csv(str(tmp_path), DAY, CONFIG)))
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o777 == 0o750
    assert os.listdir(path.parent) == [path.name]


def test_several_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 50, busy(), held(index=1)))
    expected = Path(str(write_daily_csv(str(tmp_path), DAY, CONFIG))).read_bytes()
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: write_daily_csv(str(tmp_path), DAY, CONFIG), range(12)))
    assert set(paths) == {csv_path(str(tmp_path), DAY)}
    assert Path(str(paths[0])).read_bytes() == expected
    assert os.listdir(tmp_path / "csv") == [f"{DAY}.csv"]


def test_every_column_is_documented() -> None:
    text = page("schema.md")
    section = text.split("\n## The daily CSV")[1].split("\n## ")[0]
    documented = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
    assert sorted(documented) == sorted(TABLES["csv"].columns)


def test_a_card_that_nothing_can_use_is_called_unpartitioned(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 1, unpartitioned()))
    (row,) = read(write_daily_csv(str(tmp_path), DAY, CONFIG))
    assert (row["state"], row["status"], row["user"]) == ("unpartitioned", "unpartitioned", "")
