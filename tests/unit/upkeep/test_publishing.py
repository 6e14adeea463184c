"""The published copy: what is in it, who may read it, and what becomes of it when something goes wrong."""

import os
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.config import Config, Fleet, Retention
from gua_report.machine.machine_key import find_machine_key
from gua_report.rollups import schema
from gua_report.rollups.index import Meta, read_index, read_meta
from gua_report.rollups.reader import read_days
from gua_report.rollups.writer import digest_sums
from gua_report.upkeep import outputs
from gua_report.upkeep.nightly import Done, Upkeep
from gua_sample import __version__
from tests.lab import CONFIG, DAY_MS, MINUTE_MS, write
from tests.machine import query
from tests.rolling import LAB_END_MS, rolled_up_days, run, stored

PUBLISHING = CONFIG._replace(fleet=Fleet(publish=True))
LATER_MS = LAB_END_MS + 2 * DAY_MS
MACHINE_ID = Path("/etc/machine-id")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Days that were rolled up, and not published yet."""
    rolled_up_days(tmp_path / "data")
    return tmp_path / "data"


def night(folder: Path, config: Config = PUBLISHING, now_ms: int = LATER_MS, dry_run: bool = False) -> tuple[Done, str]:
    """What a run of gua rollup has done, and what it complained of."""
    complaints: list[str] = []
    done = Upkeep(str(folder), config, now_ms, dry_run, complaints.append).run(False, False, None)
    return done, "\n".join(complaints)


def publish(folder: Path, now_ms: int = LATER_MS) -> Path:
    done, complaint = night(folder, now_ms=now_ms)
    assert (done.published, done.publish_failed, complaint) == (str(folder / "publish/rollups.sqlite"), False, "")
    return folder / "publish" / "rollups.sqlite"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- what is in it


def test_nothing_is_published_unless_it_is_asked_for(folder: Path) -> None:
    done, complaint = night(folder, CONFIG)
    assert (done.published, done.removed, complaint) == (None, [], "")
    assert not (folder / "publish").exists()


def test_the_copy_has_all_days_with_their_thresholds_rules_and_digests(folder: Path, tmp_path: Path) -> None:
    path = publish(folder)
    assert read_index(str(path), check=True) == read_index(str(folder / "rollups.sqlite"), check=True)
    for day, found in read_index(str(path)).items():
        assert found.rule is not None
        assert found.sums_digest == digest_sums(read_days(str(path), day, day))
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(path, alone)
    assert stored(alone) == stored(folder)
    assert query(path, "PRAGMA application_id") == [{"application_id": schema.APPLICATION_ID}]
    assert query(path, "PRAGMA user_version") == [{"user_version": schema.VERSION}]


def test_it_says_whose_it_is_when_it_was_made_and_how_far_it_goes(folder: Path) -> None:
    (newest,) = query(max((folder / "samples").glob("*.sqlite")), "SELECT max(ts_ms) AS ts_ms FROM tick")
    expected = Meta(socket.gethostname(), find_machine_key(), __version__, LATER_MS, newest["ts_ms"])
    path = publish(folder)
    assert read_meta(str(path)) == expected
    if MACHINE_ID.exists():
        assert MACHINE_ID.read_bytes().strip() not in path.read_bytes()


def test_a_copy_has_the_time_when_it_was_made_not_when_the_run_began(folder: Path) -> None:
    run = Upkeep(str(folder), PUBLISHING, LATER_MS, False, pytest.fail)
    run.started -= 20 * 60
    run.run(False, False, None)
    assert read_meta(str(folder / "publish/rollups.sqlite")).published_ms == LATER_MS + 20 * MINUTE_MS


def test_rollups_that_were_restored_from_a_copy_can_be_published(folder: Path) -> None:
    shutil.copyfile(publish(folder), folder / "rollups.sqlite")
    assert read_meta(str(publish(folder, LATER_MS + 60_000))).published_ms == LATER_MS + 60_000


def test_a_host_without_a_closed_day_is_published_as_such(tmp_path: Path) -> None:
    write(tmp_path, [])
    (tmp_path / "samples").mkdir(exist_ok=True)
    path = publish(tmp_path)
    assert read_index(str(path)) == {}
    assert read_meta(str(path)).newest_tick_ms is None


def test_names_that_have_expired_are_not_in_the_next_copy(folder: Path) -> None:
    path = publish(folder)
    text = query(path, "SELECT max(text) AS text FROM word JOIN identity_hour ON identity = id")[0]["text"].encode()
    assert text in path.read_bytes()
    shutil.rmtree(folder / "samples")
    (folder / "samples").mkdir()
    night(folder, PUBLISHING._replace(retention=Retention(rollup_days=1)), LATER_MS + 30 * DAY_MS)
    assert read_index(str(path)) == {}
    assert text not in path.read_bytes()


# -- who may read it


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700])
def test_it_has_the_readers_of_the_data_folder(folder: Path, mode: int, umask: int) -> None:
    folder.chmod(mode)
    before = os.umask(umask)
    try:
        path = publish(folder)
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o7777 == mode
    assert path.stat().st_mode & 0o7777 == mode & 0o644


def test_a_folder_that_the_administrator_has_closed_stays_closed(folder: Path) -> None:
    publish(folder).parent.chmod(0o700)
    publish(folder)
    assert (folder / "publish").stat().st_mode & 0o7777 == 0o700


# -- what goes wrong


def test_a_plain_copy_may_be_sound_and_wrong(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a transaction that is too large for the cache, its pages are in the file already."""
    monkeypatch.setattr(outputs, "BUSY_SECONDS", 0.1)
    path = publish(folder)
    before, plain = path.read_bytes(), tmp_path / "plain.sqlite"
    sums = "SELECT sum(weight_ms) AS ms FROM card_hour"
    truth = query(path, sums)
    with closing(sqlite3.connect(folder / "rollups.sqlite", isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute("UPDATE card_hour SET weight_ms = weight_ms + 1")
        shutil.copy(folder / "rollups.sqlite", plain)
        assert query(plain, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        assert query(plain, sums) != truth
        with pytest.raises(Exception, match="held by another process"):
            outputs.write_copy(str(folder / "rollups.sqlite"), str(folder), read_meta(str(path)))
        assert path.read_bytes() == before
        assert names(folder / "publish") == ["rollups.sqlite"]
        writer.execute("ROLLBACK")
    assert query(publish(folder), sums) == truth


@pytest.mark.parametrize("config", [CONFIG, PUBLISHING])
def test_half_a_copy_that_a_killed_run_left_is_removed(folder: Path, config: Config) -> None:
    publish(folder)
    for name in (".rollups.sqlite.unfinished", ".rollups.sqlite.unfinished-journal"):
        (folder / "publish" / name).write_bytes(b"half")
    night(folder, config)
    left = [str(path.relative_to(folder)) for path in folder.glob("publish/*")]
    assert left == (["publish/rollups.sqlite"] if config.fleet.publish else [])


# -- no longer


def test_switched_off_the_copy_is_removed_and_named_once(folder: Path) -> None:
    path = publish(folder)
    assert night(folder, CONFIG, dry_run=True)[0].removed == [str(path)]
    assert path.exists()
    assert night(folder, CONFIG)[0].removed == [str(path)]
    assert not path.parent.exists()
    assert night(folder, CONFIG)[0].removed == []


def test_switched_off_what_others_put_beside_the_copy_stays(folder: Path) -> None:
    path = publish(folder)
    (path.parent / "README").write_text("ours")
    night(folder, CONFIG)
    assert names(folder / "publish") == ["README"]


# -- the command


def test_the_command_says_what_it_would_publish_publishes_and_fails_with_one_line(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "gua.toml"
    config.write_text("[fleet]\npublish = true\n")
    path = folder / "publish" / "rollups.sqlite"
    arguments = ("--config", str(config))
    assert f"would publish {path}\n" in run("rollup", folder, *arguments, "--dry-run")[1]
    assert not path.exists()
    status, output, errors = run("rollup", folder, *arguments)
    assert (status, errors) == (0, "")
    assert f"published {path}\n" in output
    path.unlink()
    path.mkdir()
    status, output, errors = run("rollup", folder, *arguments)
    assert status == 1
    assert errors.startswith(f"gua rollup: warning: not published: {path} ")
    assert errors.count("\n") == 1
    assert "published" not in output
