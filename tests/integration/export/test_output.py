"""Where gua export writes to: a whole file or the one before it, and nothing beside it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.export.exports import ALL, DAYS, assert_leftovers_go, export, exported
from tests.lab import DAY_MS, MONDAY_MS, busy, series, write
from tests.machine import GUA, SCRIPTS, Machine, complaint
from tests.users import SOMEBODY, needs_mounts, needs_root


def test_the_format_follows_from_the_name_of_the_file(data_dir: Path, tmp_path: Path) -> None:
    for name, start in ("x.NDJSON", '{"ts_ms":'), ("x", "ts_ms,"):
        assert exported(data_dir, "-o", str(tmp_path / name), *ALL) == ""
        assert (tmp_path / name).read_text().startswith(start)
    exported(data_dir, "-o", str(tmp_path / "x.csv"), "--format", "jsonl", *ALL)
    assert (tmp_path / "x.csv").read_text().startswith("{")


def test_a_file_is_written_whole_gets_the_umask_and_keeps_its_mode(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    mask = os.umask(0o027)
    try:
        exported(data_dir, "-o", str(target), *ALL)
    finally:
        os.umask(mask)
    assert target.read_text() == exported(data_dir, *ALL)
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["cards.csv"]
    target.chmod(0o600)
    (tmp_path / "link").symlink_to("cards.csv")
    exported(data_dir, "-o", str(tmp_path / "link"), "--what", "ticks", *ALL)
    assert target.read_text() == exported(data_dir, "--what", "ticks", *ALL)
    assert target.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link").is_symlink()


@needs_root
def test_a_file_of_somebody_else_stays_theirs(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    target.touch()
    os.chown(target, SOMEBODY, SOMEBODY)
    exported(data_dir, "-o", str(target), *ALL)
    assert target.read_text().startswith("ts_ms,")
    assert (target.stat().st_uid, target.stat().st_gid) == (SOMEBODY, SOMEBODY)


def test_a_database_is_not_replaced(data_dir: Path) -> None:
    partition = data_dir / "samples" / f"{DAYS[0]}.sqlite"
    before = partition.read_bytes()
    done = export(data_dir, "-o", str(partition), *ALL)
    assert f"{partition} is a database" in complaint(done, 2)
    assert partition.read_bytes() == before


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_may_be_given_by_its_name(data_dir: Path, tmp_path: Path, name: str) -> None:
    command = [GUA, "export", "--data-dir", str(data_dir), "-o", name, *ALL]
    expected = exported(data_dir, *ALL)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    (tmp_path / "rows").write_text("of before\n")
    with (tmp_path / "rows").open("a") as file:
        subprocess.run(command, stdout=file, check=True, timeout=60)
    assert (tmp_path / "rows").read_text() == "of before\n" + expected


def test_a_pipe_with_a_name_is_written_to(data_dir: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        subprocess.run([SCRIPTS / "gua", "export", "--data-dir", data_dir, "-o", tmp_path / "pipe", *ALL], check=True)
        assert reader.communicate(timeout=60)[0] == exported(data_dir, *ALL)


def test_a_place_that_can_not_be_written_is_said_in_one_line(data_dir: Path, tmp_path: Path) -> None:
    for place in (str(tmp_path / "nowhere" / "x.csv"), "/dev/full"):
        done = export(data_dir, "-o", place, *ALL)
        assert place in complaint(done, 1)
    for output, problem in (("> /dev/full", " (No space left on device)"), (">&-", "")):
        command = f"'{GUA}' export --data-dir {data_dir} {' '.join(ALL)} {output}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert f"standard output can't be written{problem}" in complaint(done, 1)


@needs_mounts
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_full_disk_leaves_the_older_file_and_nothing_else(data_dir: Path, small_disk: Path, form: str) -> None:
    target = small_disk / f"cards.{form}"
    target.write_text("of last week")
    done = export(data_dir, "-o", str(target), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gua export: error: {target} can't be written (No space left on device): it is as it was\n"
    assert os.listdir(small_disk) == [target.name]
    assert target.read_text() == "of last week"


@pytest.mark.real
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_killed_at_any_moment_an_export_leaves_the_old_file_or_the_new_one(
    machine: Machine, tmp_path: Path, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    write(tmp_path, series(MONDAY_MS, 20, busy()))
    path = machine.data_dir / f"cards.{form}"
    path.parent.mkdir()
    path.write_bytes(b"of last week")
    seen, status, kills = set(), -9, 0
    while status == -9:
        variables = machine.environment(kill_at=kills + 1)
        status = export(tmp_path, "-o", str(path), *ALL, **variables).returncode
        seen.add(path.read_bytes())
        kills += 1
    assert status == 0
    assert kills > 2
    assert seen == {b"of last week", path.read_bytes()}
    assert_leftovers_go(path, lambda: exported(tmp_path, "-o", str(path), *ALL))


def test_a_closed_pipe_is_no_error(data_dir: Path) -> None:
    write(data_dir, series(MONDAY_MS + 3 * DAY_MS, 2000, *(busy(index=index) for index in range(4)), every_ms=30_000))
    command = f"'{GUA}' export --data-dir {data_dir} --from 2026-11-16 --to 2026-11-20 | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ts_ms,")
