"""gua export to Parquet: one file, or a folder of days that others read as one table."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gua_report.exporting.rows import CARD_TICKS
from tests.integration.export.exports import ALL, DAYS, export, exported, files_in, view
from tests.lab import DAY_MS, HOUR_MS, MONDAY_MS, Gpu, Job, busy, free, series, tick, write
from tests.machine import GUA, complaint
from tests.users import needs_mounts


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
def test_a_terminal_gets_no_parquet(data_dir: Path) -> None:
    command = f"'{GUA}' export --data-dir {data_dir} --format parquet"
    done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "parquet is not for a terminal" in done.stdout


def test_parquet_without_pyarrow_says_what_to_install(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "pyarrow.py").write_text("raise ImportError('No module named pyarrow')")
    done = export(
        data_dir, "--format", "parquet", "-o", str(tmp_path / "x"), *ALL, PYTHONPATH=str(tmp_path / "library")
    )
    assert "sudo make install EXTRAS=parquet, or python3 -m pip --python " in complaint(done, 1)
    assert os.listdir(tmp_path) == ["library"]


def read_folder(parquet: Any, folder: Path) -> list[dict[str, Any]]:
    """All rows, with host and day from the names of the folders."""
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return sorted(rows, key=lambda row: (row["host"], row["ts_ms"]))


def test_pandas_reads_the_folder_as_one_table(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    import pandas as pd

    exported(data_dir, "--format", "parquet", "-o", str(tmp_path), *ALL)
    frame = pd.read_parquet(tmp_path)
    assert len(frame) == len(view(data_dir, "card_ticks"))
    assert {"host", "day", "state", *CARD_TICKS} == set(frame.columns)
    assert frame["memory_used_mib"].isna().sum() == 15  # the lost card


def test_a_folder_has_whole_days_so_that_a_later_export_takes_nothing_away(
    data_dir: Path, tmp_path: Path, parquet: Any
) -> None:
    options = ("--what", "ticks", "--format", "parquet", "--host", "lab7", "-o", str(tmp_path), "--tz", "UTC")
    exported(data_dir, *options, "--from", "2026-11-16T15:00", "--to", "2026-11-17T01:00")
    rows = read_folder(parquet, tmp_path)
    assert [row["ts_ms"] for row in rows] == [
        row["ts_ms"] for row in view(data_dir, "ticks") if row["ts_ms"] < MONDAY_MS + 2 * DAY_MS
    ]
    # And has what came since; another host's days lie beside it.
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 23 * HOUR_MS, free())])
    exported(data_dir, *options, "--from", "2026-11-17T22:00", "--to", "2026-11-18T00:00")
    assert len(read_folder(parquet, tmp_path)) == len(rows) + 1
    exported(data_dir, *options[:5], "a/b=c", *options[6:], "--from", "2026-11-16", "--to", "2026-11-17")
    assert {row["host"] for row in read_folder(parquet, tmp_path)} == {"lab7", "a/b=c"}
    assert len(list(tmp_path.iterdir())) == 2


def test_days_have_the_same_types_whatever_their_values_are(open_folder: Path, tmp_path: Path, parquet: Any) -> None:
    """A day without any figure, and one that begins without; more rows than are put into columns at a time."""
    nothing, something = Gpu(0, None, (Job(memory_mib=None),), None, total_mib=None), busy(Job(sm_percent=5), energy=7)
    ticks = series(MONDAY_MS, 3, nothing)
    ticks += series(MONDAY_MS + DAY_MS, 11_000, nothing, every_ms=5000)
    ticks += series(MONDAY_MS + DAY_MS + 20 * HOUR_MS, 3, something)
    write(open_folder / "data", ticks)
    for name in ("card_ticks", "process_ticks"):
        exported(open_folder / "data", "--what", name, "--format", "parquet", "-o", str(tmp_path / name), *ALL)
        one, other = (parquet.read_schema(path) for path in sorted((tmp_path / name).rglob("*.parquet")))
        assert one.equals(other)
        assert "null" not in {str(kind) for kind in one.types}
        rows = read_folder(parquet, tmp_path / name)
        assert len(rows) == 11_006
        assert rows[-1]["memory_used_mib" if name == "card_ticks" else "memory_mib"] == 2000


def test_a_folder_is_of_one_table(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    exported(data_dir, "--format", "parquet", "-o", str(tmp_path), *ALL)
    before = files_in(tmp_path)
    done = export(data_dir, "--what", "ticks", "--format", "parquet", "-o", str(tmp_path), *ALL)
    assert f"{tmp_path} holds card_ticks, not ticks" in complaint(done, 2)
    assert files_in(tmp_path) == before
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"PAR1")  # damaged: may be replaced
    exported(data_dir, "--what", "ticks", "--format", "parquet", "-o", str(tmp_path), *ALL)
    assert len(read_folder(parquet, tmp_path)) == len(view(data_dir, "ticks"))


def test_one_parquet_file_can_be_redirected(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    expected = [json.loads(line) for line in exported(data_dir, "--format", "jsonl", *ALL).splitlines()]
    command = f"'{GUA}' export --data-dir {data_dir} --format parquet {' '.join(ALL)} | cat > {tmp_path}/piped"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    assert parquet.read_table(tmp_path / "piped").to_pylist() == expected
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("cat >", "true >")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    nothing = export(data_dir, "--format", "parquet", "--since", "1s", "--to", "2026-12-01")
    assert (nothing.returncode, nothing.stdout) == (3, "")


@needs_mounts
def test_a_full_disk_leaves_no_half_day(data_dir: Path, small_disk: Path, parquet: Any) -> None:
    write(data_dir, series(MONDAY_MS, 2000, *(busy(Job(pid)) for pid in range(1, 2)), every_ms=7001))
    (small_disk / "ballast").write_bytes(b"x" * 12_000)
    done = export(data_dir, "--format", "parquet", "-o", str(small_disk / "folder"), *ALL)
    assert "No space left on device" in complaint(done, 1)
    assert [path for path in files_in(small_disk) if path != "ballast"] == []


def test_two_exports_at_once_into_one_folder(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    command = [GUA, "export", "--data-dir", str(data_dir), "--format", "parquet"]
    command += ["-o", str(tmp_path), *ALL]
    running = [subprocess.Popen([*command, "--host", host]) for host in ("lab7", "lab7", "lab8")]
    assert [one.wait() for one in running] == [0] * 3
    assert files_in(tmp_path) == [f"host={host}/day={day}/part.parquet" for host in ("lab7", "lab8") for day in DAYS]
    assert len(read_folder(parquet, tmp_path)) == 2 * len(view(data_dir, "card_ticks"))
