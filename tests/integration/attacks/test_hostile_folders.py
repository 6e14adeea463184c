"""Whatever somebody put into a data folder: it costs its day, reaches nothing else, and ends no command."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests import hostile
from tests.integration.attacks import attempts
from tests.integration.attacks.attempts import DAYS, WINDOW, WRITERS, calmly, copy, execute, partition
from tests.machine import within
from tests.users import SOMEBODY, needs_root
from tests.verbs import Done, give, run

pytestmark = pytest.mark.real

BAD = DAYS[1]
TEN_MINUTES_MS = 600_000
READERS = {
    **{name: words for name, words in attempts.READERS.items() if name != "export of processes"},
    "report": ("report", "--json", *WINDOW, "--data-dir", "DIR"),
    "doctor": ("doctor", "--json", "--data-dir", "DIR"),
}
COMMANDS = READERS | WRITERS


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days, two of them rolled up. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    start_ms = EXAMPLE_END_MS - 2 * DAY_MS - DAY_MS // 2
    store.append_history(samples, Laboratory(0, 3).history(start_ms, EXAMPLE_END_MS, TEN_MINUTES_MS))
    assert run("rollup", "--data-dir", folder).returncode == 0
    shutil.rmtree(folder / "csv")
    return folder


@pytest.fixture
def folder(history: Path, open_folder: Path) -> Path:
    """A copy of it that belongs to somebody, who has not rolled it up."""
    path = copy(history, open_folder / "data", SOMEBODY)
    (path / "rollups.sqlite").unlink()
    return path


@pytest.fixture(scope="module")
def before(history: Path) -> dict[str, float]:
    """Observed hours, by day, of a report while all is well, from ticks or from rollups."""
    found = observed(run(*READERS["report"][:-1], history))
    assert observed(run(*READERS["report"][:-1], history, "--util-threshold", "11")) == pytest.approx(found)
    return found


@pytest.fixture
def rolled_up(history: Path, open_folder: Path) -> Path:
    return copy(history, open_folder / "rolled up", SOMEBODY)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def try_command(name: str, folder: Path, uid: int = 0) -> Done:
    """Run it, and see that nothing is left of private copies."""
    temporary = folder.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    other = folder.parent / "other"
    words = [str(folder) if word == "DIR" else str(other) if word == "OTHER" else word for word in COMMANDS[name]]
    done = run(*words, uid=uid, temporary=temporary)
    assert list(temporary.iterdir()) == []
    return done


def observed(done: Done) -> dict[str, float]:
    """Observed hours of a report, by day: what its gaps leave of it."""
    document = json.loads(done.stdout)
    left = dict.fromkeys(DAYS, 24.0)
    for gap in document["coverage"]["gaps"]:
        for day in left:
            start, end = f"{day}T00:00:00", f"{day}T23:59:59.999"
            begin, stop = max(gap["from"][:19], start), min(gap["to"][:19], end)
            if begin < stop:
                left[day] -= (_seconds(stop) - _seconds(begin)) / 3600
    return left


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


# -- a journal that names another file


@needs_root
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("database", ["partition", "rollups"])
def test_nothing_deletes_what_a_journal_names(
    folder: Path, rolled_up: Path, name: str, database: str, victim: Path
) -> None:
    partitions = [partition(folder, day) for day in DAYS]
    data_dir, paths = (folder, partitions) if database == "partition" else (rolled_up, [rolled_up / "rollups.sqlite"])
    for path in paths:
        hostile.plant_journal(path, victim)
    give(data_dir)
    calmly(try_command(name, data_dir))
    assert victim.read_text() == "of root's"


@needs_root
@pytest.mark.parametrize("name", READERS)
def test_nobody_loses_files_by_reading_a_colleagues_folder(folder: Path, name: str, open_folder: Path) -> None:
    reader = SOMEBODY + 1
    home = open_folder / "home of the reader"
    home.mkdir()
    victim = home / "thesis.tex"
    victim.write_text("years of work")
    give(home, reader)
    for day in DAYS:
        hostile.plant_journal(partition(folder, day), victim)
    give(folder)
    calmly(try_command(name, folder, uid=reader))
    assert victim.read_text() == "years of work"


@needs_root
def test_a_journal_of_ours_is_still_rolled_back_in_a_copy(folder: Path) -> None:
    """As a sampler that was killed leaves it: the day is read, nothing is written."""
    path = partition(folder)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM card_sample")
        connection.execute("DELETE FROM process_sample")
        hot = path.read_bytes(), beside(path, "-journal").read_bytes()
        connection.execute("ROLLBACK")
    before = observed(try_command("report", folder))
    path.write_bytes(hot[0])
    beside(path, "-journal").write_bytes(hot[1])
    give(folder)
    done = try_command("report", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert observed(done) == before
    assert (path.read_bytes(), beside(path, "-journal").read_bytes()) == hot


# -- one day, one fate


def bad_bytes(path: Path) -> None:
    """All pages but the first two as random bytes: what SQLite calls malformed."""
    content = bytearray(path.read_bytes())
    content[8192:] = bytes((position * 37) % 256 for position in range(len(content) - 8192))
    path.write_bytes(content)


def statement(*statements: str) -> Callable[[Path], None]:
    return lambda path: hostile.change(path, *statements)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS ts_ms FROM n"
DAMAGE: dict[str, Callable[[Path], None]] = {
    "bytes": bad_bytes,
    "a text for a number": statement("UPDATE card_sample SET utilization_hundredths = 'soon'"),
    "an infinite number": statement("UPDATE card_sample SET memory_used_mib = 9e999"),
    "a text for an id": statement("UPDATE process_sample SET process_id = 'x' || process_id"),
    "no session": statement("UPDATE tick SET session_id = NULL WHERE id = 7"),
    "an id below zero": statement("UPDATE card_sample SET card_id = -card_id"),
    "an id of two billion": statement("UPDATE card SET id = 2000000000 WHERE id = 1"),
    "a tick's id of two billion": statement("UPDATE tick SET id = 2000000000 WHERE id = 5"),
    "ids of nothing": statement("UPDATE card_sample SET card_id = card_id + 100"),
    "no uuid": statement("UPDATE card SET uuid = NULL"),
    "a blob for a name": statement("UPDATE process SET command = x'ff00ff', user = x'80'"),
    "a name that is no UTF-8": statement("UPDATE process SET command = CAST(x'ff41' AS TEXT)"),
    "a year before Christ": statement("UPDATE tick SET ts_ms = -99999999999999 WHERE id = 3"),
    "the year 9999": statement("UPDATE tick SET ts_ms = 253402300799999 WHERE id = 3"),
    "a year that no calendar has": statement("UPDATE tick SET ts_ms = 9223372036854775807 WHERE id = 3"),
    "a time that is a text": statement("UPDATE tick SET ts_ms = 'noon' WHERE id = 3"),
    "no time": statement("UPDATE tick SET ts_ms = NULL WHERE id = 3"),
    "an interval of ages": statement("UPDATE tick SET interval_ms = 9223372036854775807"),
    "an interval below zero": statement("UPDATE tick SET interval_ms = -5"),
    "two hundred thousand cards": statement(
        "INSERT INTO card (id, uuid, gpu_index, status) SELECT value + 100, 'GPU-' || value, value, 'ok'"
        " FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 200000) SELECT * FROM n)"
    ),
    "a view that never ends": lambda path: hostile.redefine(path, "tick", "view", f"CREATE VIEW tick AS {ENDLESS}"),
    "endless views of ours": lambda path: redefine_views(path),
    "a computed column": lambda path: hostile.redefine(
        path,
        "session",
        "table",
        "CREATE TABLE session (id INTEGER PRIMARY KEY, boot_id TEXT AS (printf('%.*c', 900000000, 'x')),"
        " boot_time_ms INTEGER, driver_version TEXT) STRICT",
    ),
    "a virtual table": lambda path: hostile.redefine(
        path, "session", "table", "CREATE VIRTUAL TABLE session USING fts5(boot_id, boot_time_ms, driver_version)"
    ),
    "a trigger": lambda path: execute(
        path, "CREATE TRIGGER t AFTER INSERT ON tick BEGIN DELETE FROM tick; DELETE FROM card_sample; END"
    ),
    "a pipe": hostile.replace_by_pipe,
    "a pipe for a journal": lambda path: os.mkfifo(beside(path, "-journal")),
    "a pipe for a log": lambda path: os.mkfifo(beside(path, "-wal")),
    "a pipe for an index of a log": lambda path: os.mkfifo(beside(path, "-shm")),
    "a log of zeros": lambda path: hostile.zeros(beside(path, "-wal")),
    "a journal of 50 GB": lambda path: hostile.make_sparse(beside(path, "-journal"), 50 << 30),
    "a journal of 50 GB that looks hot": lambda path: _sparse_hot_journal(path),
    "a file of 50 GB": lambda path: hostile.make_sparse(path, 50 << 30),
    "a device": lambda path: hostile.replace_by_link(path, "/dev/zero"),
    "a link to itself": lambda path: hostile.replace_by_link(path, path.name),
    "a folder": hostile.replace_by_folder,
    "nothing but zeros": hostile.zeros,
}


def redefine_views(path: Path) -> None:
    for view in ("ticks", "card_ticks", "process_ticks"):
        hostile.redefine(path, view, "view", f"CREATE VIEW {view} AS {ENDLESS}")


def _sparse_hot_journal(path: Path) -> None:
    hostile.plant_journal(path, path)
    hostile.make_sparse(beside(path, "-journal"), 50 << 30)


@needs_root
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_day_that_is_damaged_costs_that_day_alone(folder: Path, before: dict[str, float], damage: str) -> None:
    DAMAGE[damage](partition(folder))
    give(folder)
    for name in COMMANDS:
        with within(20):
            done = calmly(try_command(name, folder))
        if name == "report":
            assert done.returncode == 0, done
            after = observed(done)
            assert {day: after[day] for day in (DAYS[0], DAYS[2])} == pytest.approx(
                {day: before[day] for day in (DAYS[0], DAYS[2])}, abs=0.2
            )
            # Either its values can be told from what is left, or the day is named, and was not observed.
            if after[BAD] < 1:
                assert BAD in done.stderr
        if name == "export":
            assert f"{DAYS[2]}" not in done.stderr
        if name == "rollup":
            assert f"{DAYS[0]}" in done.stdout


ROLLUP_DAMAGE: dict[str, Callable[[Path], None]] = {
    "bytes": bad_bytes,
    "a pipe": hostile.replace_by_pipe,
    "a pipe for a journal": lambda path: os.mkfifo(beside(path, "-journal")),
    "a link": lambda path: hostile.replace_by_link(path, "/etc/passwd"),
    "a folder": hostile.replace_by_folder,
    "a view that never ends": lambda path: hostile.redefine(
        path, "card_hour", "view", f"CREATE VIEW card_hour AS {ENDLESS}"
    ),
    "a state of 7": statement("UPDATE card_hour SET state = 7 WHERE state = 0"),
    "a card of two billion": statement(
        "UPDATE card SET id = id + 2000000000", "UPDATE card_hour SET card_id = card_id + 2000000000"
    ),
    "a word of two billion": statement("UPDATE word SET id = 2000000000 WHERE id = 1"),
    "a day that is none": statement("UPDATE day SET day = 'someday' WHERE rowid = (SELECT min(rowid) FROM day)"),
    "hours of ages": statement("UPDATE card_hour SET weight_ms = 9223372036854775807"),
    "a name of the schema that is no UTF-8": lambda path: _not_utf8(path),
}


def _not_utf8(path: Path) -> None:
    content = path.read_bytes()
    assert b"CREATE VIEW days" in content
    path.write_bytes(content.replace(b"CREATE VIEW days", b"CREATE VIEW \xffays", 1))


@needs_root
@pytest.mark.parametrize("damage", ROLLUP_DAMAGE)
def test_damaged_rollups_cost_no_report_and_are_made_again(
    rolled_up: Path, before: dict[str, float], damage: str
) -> None:
    ROLLUP_DAMAGE[damage](rolled_up / "rollups.sqlite")
    give(rolled_up)
    for name in READERS:
        done = calmly(try_command(name, rolled_up))
        if name == "report":
            assert observed(done) == before
    done = calmly(try_command("rollup", rolled_up))
    healed = try_command("rollup", rolled_up)
    assert (healed.returncode, healed.stderr) == (0, ""), (done, healed)
    assert observed(try_command("report", rolled_up)) == before


# -- kept ticks


@needs_root
@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text('{"version": 1, "key": 1, "tick": [' + "9" * 5000 + "]}"),
        lambda path: path.write_bytes(b"\xff" * 1000),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: hostile.make_sparse(path, 50 << 30),
        lambda path: path.write_text(json.dumps({"version": 1, "key": 2, "tick": _tick(253_402_300_800_000)})),
        lambda path: path.write_text(json.dumps({"version": 1, "key": 2, "tick": _tick(-(10**17))})),
    ],
    ids=["brackets", "digits", "bytes", "pipe", "device", "sparse", "year 10000", "long ago"],
)
def test_what_is_no_kept_tick_is_set_aside_and_costs_no_tick(folder: Path, plant: Callable[[Path], None]) -> None:
    kept = folder / "samples" / f"{BAD}.00000000000001.pending"
    plant(kept)
    give(folder)
    for name in READERS:
        assert try_command(name, folder).is_calm, name
    done = try_command("sample", folder)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done
    assert not os.path.lexists(kept)
    done = try_command("sample", folder)
    assert (done.returncode, done.stderr) == (0, ""), done


def _tick(ts_ms: int) -> list[object]:
    return [ts_ms, None, ["boot", 5], None, 1, "x", [], {}, []]


# -- folders that others may write to


@needs_root
@pytest.mark.parametrize(
    "name",
    [name for name in COMMANDS if name not in ("sample", "doctor", "import --dry-run", "import", "mail --dry-run")],
)
@pytest.mark.parametrize("owner", [0, SOMEBODY])
def test_root_refuses_a_folder_that_everybody_may_write_to(folder: Path, name: str, owner: int) -> None:
    give(folder, owner)
    folder.chmod(0o777)
    done = try_command(name, folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"chmod o-w {folder}" in done.stderr


@needs_root
def test_that_root_refuses_a_folder_is_what_the_mail_says(folder: Path) -> None:
    folder.chmod(0o777)
    done = try_command("mail --dry-run", folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"There is no report: not as root: everybody may write to {folder}" in done.stdout.replace("\n", " ")


@needs_root
def test_the_doctor_says_that_others_may_write_there(folder: Path) -> None:
    (folder / "samples").chmod(0o777)
    done = try_command("doctor", folder)
    texts = [finding["text"] for finding in json.loads(done.stdout)["findings"] if finding["check"] == "data folder"]
    assert any(f"everybody may write to {folder / 'samples'}" in text for text in texts)


@needs_root
@pytest.mark.parametrize("name", ["report", "export", "sample"])
def test_others_get_a_warning_and_go_on(folder: Path, name: str) -> None:
    folder.chmod(0o777)
    done = try_command(name, folder, uid=SOMEBODY)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert f"chmod o-w {folder}" in done.stderr


@needs_root
@pytest.mark.parametrize("name", ["sample", "rollup"])
@pytest.mark.parametrize("place", ["samples", "partition", "rollups.sqlite", ".rollup.lock", "csv"])
def test_root_follows_no_link_that_somebody_planted(folder: Path, tmp_path: Path, name: str, place: str) -> None:
    """In a folder of root's that everybody may write to."""
    give(folder, 0)
    folder.chmod(0o777)
    target = tmp_path / "target"
    path = partition(folder, time.strftime("%Y-%m-%d")) if place == "partition" else folder / place
    if place in ("samples", "csv"):
        target.mkdir()
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)
    os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    calmly(try_command(name, folder))
    assert not target.exists() or list(target.iterdir()) == []


# -- rights


@needs_root
def test_what_root_reads_of_somebodys_folder_is_read_as_somebody(folder: Path) -> None:
    """What the owner can't read, a report by root can't read either."""
    path = partition(folder)
    os.chown(path, 0, 0)
    path.chmod(0o600)
    done = try_command("report", folder)
    assert done.returncode == 0
    assert f"{path} can't be used" in done.stderr
    path.chmod(0o644)
    assert try_command("report", folder).stderr == ""
