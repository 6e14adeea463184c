"""A bit that flips on disk, in a closed partition or in rollups.sqlite, is found, named, and costs nothing further."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Config, Retention
from gua_report.rollups.digests import digest_stored
from gua_report.rollups.index import Origin, Stored, path_of, read_index
from gua_report.rollups.writer import RollupWriter
from gua_report.ticks.open_partition import Waits
from gua_report.upkeep.deep_check import read_everything
from gua_report.upkeep.nightly import Done, Upkeep
from gua_report.upkeep.read_back import NIGHTS, choose_days, find_failure
from gua_report.window import number_of
from gua_sample import store
from gua_sample.policy import DEFAULT
from gua_sample.simulate import Laboratory
from tests.lab import CONFIG, DAY_MS, HOUR_MS, report_of
from tests.rolling import KEEP_LAST_TWO, Killed, assert_same, days_left, lab_days, partition, stored, touch, upkeep

GONE, THERE = ["2026-11-13", "2026-11-14"], ["2026-11-15", "2026-11-16"]
VIEWS = ("card_hours", "identity_hours", "holds", "episode_days", "spans")
ADDED = ("partition_digest", "compact_digest", "rows_digest", "checked_ms", "failed_check")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """Four days that are rolled up, two of them without ticks. Not to be changed."""
    folder = tmp_path_factory.mktemp("days")
    start, end = lab_days(folder)
    upkeep(folder, end + 2 * DAY_MS, KEEP_LAST_TWO)
    assert days_left(folder) == THERE
    return folder, start, end


@pytest.fixture
def folder(window: tuple[Path, int, int], tmp_path: Path) -> Path:
    shutil.copytree(window[0], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def now_ms(window: tuple[Path, int, int]) -> int:
    """The next night."""
    return window[2] + 3 * DAY_MS


@contextmanager
def same_time(path: Path) -> Iterator[None]:
    """What happens to the file does not show in its time of change."""
    found = path.stat()
    yield
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def flip(path: Path, position: int, bit: int = 0) -> None:
    with same_time(path):
        content = bytearray(path.read_bytes())
        content[position] ^= 1 << bit
        path.write_bytes(content)


def flip_a_figure(folder: Path, day: str) -> None:
    """In a stored day, as a flipped bit leaves it."""
    path = folder / "rollups.sqlite"
    with same_time(path):
        change(path, f"UPDATE card_hour SET weight_ms = weight_ms - 64 WHERE day_id = {number_of(day)} AND hour = 12")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def index(folder: Path) -> dict[str, Stored]:
    return read_index(path_of(str(folder)))


def contents(folder: Path) -> Any:
    """All that reports could take from rollups.sqlite; None if it can't be read."""
    try:
        with closing(sqlite3.connect(folder / "rollups.sqlite")) as connection:
            connection.text_factory = bytes
            return [sorted(map(repr, connection.execute(f"SELECT * FROM {view}"))) for view in VIEWS]
    except sqlite3.Error:
        return None


def keep(first: str, now_ms: int) -> Config:
    """Ticks from that day on are to stay."""
    return CONFIG._replace(retention=Retention(raw_days=now_ms // DAY_MS - number_of(first)))


def night(folder: Path, now_ms: int, config: Config = CONFIG, **options: bool) -> tuple[Done, list[str]]:
    """A run of gua rollup, and what it complains of."""
    said: list[str] = []
    run = Upkeep(str(folder), config, now_ms, options.get("dry_run", False), said.append)
    return run.run(options.get("rebuild", False), options.get("compacting", False), None), said


def troubles(folder: Path) -> list[str]:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*.sqlite")}
    found = read_everything(str(folder), None)[1]
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*.sqlite")}
    return found


def test_a_folder_in_order_has_digests_and_no_troubles(folder: Path, now_ms: int) -> None:
    assert troubles(folder) == []
    assert all(one.rows_digest and one.partition_digest and one.checked_ms for one in index(folder).values())
    done, said = night(folder, now_ms)
    assert (done.rolled_up, done.failed_check, said) == ([], (), [])


# -- in a closed partition


def test_every_bit_of_a_closed_partition_matters(folder: Path) -> None:
    path = partition(folder, THERE[0])
    content = path.read_bytes()
    chosen = random.Random(1)
    for _ in range(12):
        flip(path, chosen.randrange(len(content)), chosen.randrange(8))
        (text,) = troubles(folder)
        assert str(path) in text
        with same_time(path):
            path.write_bytes(content)
    assert troubles(folder) == []


@pytest.mark.parametrize("rebuild", [False, True])
def test_rotten_ticks_are_named_within_a_month_never_used_and_never_removed(
    folder: Path, now_ms: int, rebuild: bool, window: tuple[Path, int, int]
) -> None:
    expected = report_of(folder, *window[1:])
    path = partition(folder, THERE[0])
    flip(path, path.stat().st_size - 100)
    before = stored(folder)
    for _ in range(NIGHTS):
        done, said = night(folder, now_ms, rebuild=rebuild)
        if done.failed_check:
            break
        now_ms += DAY_MS
    assert done.failed_check == (THERE[0],)
    for dry_run in (True, False, False):
        done, said = night(folder, now_ms, keep(THERE[1], now_ms), rebuild=rebuild, compacting=True, dry_run=dry_run)
        assert done.failed_check == (THERE[0],)
        (text,) = [text for text in said if "bit rot" in text]
        assert str(path) in text
        assert str(path) not in done.removed
        assert stored(folder)[THERE[0]] == before[THERE[0]]
    assert path.exists()
    report = report_of(folder, *window[1:])
    assert_same(expected, report)  # from rollups, which are right
    assert [note for note in report.notes if THERE[0] in note and "may be wrong" in note]


def test_ticks_that_came_back_from_a_backup_are_right_again(folder: Path, now_ms: int) -> None:
    path = partition(folder, THERE[0])
    content = path.read_bytes()
    flip(path, 5000)
    assert night(folder, now_ms, keep(THERE[1], now_ms))[0].failed_check == (THERE[0],)
    with same_time(path):
        path.write_bytes(content)
    done, said = night(folder, now_ms)
    assert (done.failed_check, done.rolled_up, said) == ((), [], [])
    assert index(folder)[THERE[0]].failed_check is None


def test_a_day_is_not_made_from_rotten_ticks_under_other_thresholds_nor_is_its_neighbour(
    folder: Path, now_ms: int
) -> None:
    flip(partition(folder, THERE[0]), 5000)
    before = stored(folder)
    strict = CONFIG._replace(policy=DEFAULT._replace(utilization_percent=60.0))
    done, _ = night(folder, now_ms, strict)
    assert done.failed_check == (THERE[0],)
    assert stored(folder, THERE[:1]) == {THERE[0]: before[THERE[0]]}


# -- in rollups.sqlite


def test_every_bit_of_stored_days_that_makes_a_difference_is_named(
    window: tuple[Path, int, int], tmp_path: Path, now_ms: int
) -> None:
    before, right = contents(window[0]), stored(window[0])
    chosen = random.Random(2)
    changed = 0
    for _ in range(25):
        folder = Path(shutil.copytree(window[0], tmp_path / "data"))
        path = folder / "rollups.sqlite"
        flip(path, chosen.randrange(100, path.stat().st_size), chosen.randrange(8))
        if contents(folder) != before:
            changed += 1
            assert troubles(folder) != []
            named: list[str] = []
            for later in range(4):  # a day is read each night
                done, said = night(folder, now_ms + later * DAY_MS)
                named += [*said, *done.failed_check]
            assert named
            assert days_left(folder) == THERE
            if "days whose ticks are gone are lost" not in str(named):
                assert stored(folder, THERE) == {day: right[day] for day in THERE}
                assert all(day in str(named) or stored(folder)[day] == right[day] for day in GONE)
        shutil.rmtree(folder)
    assert changed > 5


def test_a_rotten_rollup_is_made_anew_from_its_ticks_and_that_is_said(folder: Path, now_ms: int) -> None:
    right = stored(folder)
    flip_a_figure(folder, THERE[0])
    (text,) = troubles(folder)
    assert f"the rollup of {THERE[0]}" in text
    done, said = night(folder, now_ms, keep(THERE[1], now_ms))
    assert (done.rolled_up, done.failed_check) == ([THERE[0]], ())
    assert [text for text in said if THERE[0] in text and "made anew" in text]
    assert stored(folder) == right
    assert troubles(folder) == []


def test_a_rotten_rollup_without_ticks_is_kept_and_named_every_night_and_in_reports(
    folder: Path, now_ms: int, window: tuple[Path, int, int]
) -> None:
    flip_a_figure(folder, GONE[1])
    rotten = stored(folder)
    for night_of in range(6):
        done, said = night(folder, now_ms + night_of * DAY_MS, rebuild=night_of == 5)
        if night_of > 3:  # all four were read by then
            assert done.failed_check == (GONE[1],)
            assert [text for text in said if GONE[1] in text]
    assert stored(folder) == rotten
    assert index(folder)[GONE[1]].failed_check == "rows"
    notes = report_of(folder, *window[1:]).notes
    assert [note for note in notes if GONE[1] in note and "may be wrong" in note]
    assert report_of(folder, window[2] - HOUR_MS, window[2]).notes == []


def test_until_a_rotten_rollup_is_made_anew_reports_take_its_ticks(folder: Path, window: tuple[Path, int, int]) -> None:
    expected = report_of(folder, *window[1:])
    flip_a_figure(folder, THERE[0])
    change(folder / "rollups.sqlite", f"UPDATE day SET failed_check = 'rows' WHERE day = '{THERE[0]}'")
    report = report_of(folder, *window[1:])
    assert_same(expected, report)
    assert (report.notes, report.from_ticks_seconds > 80_000) == ([], True)


def test_both_rotten_is_kept_and_named(folder: Path, now_ms: int) -> None:
    flip(partition(folder, THERE[0]), 5000)
    flip_a_figure(folder, THERE[0])
    rotten = stored(folder)
    for _ in range(2):
        done, said = night(folder, now_ms, keep(THERE[1], now_ms), rebuild=True)
        assert done.failed_check == (THERE[0],)
        assert [text for text in said if str(partition(folder, THERE[0])) in text and "the rollup of" in text]
    assert stored(folder, THERE[:1]) == {THERE[0]: rotten[THERE[0]]}
    assert days_left(folder)[0] == THERE[0]


def test_a_mark_that_says_expired_removes_no_ticks_that_are_to_stay(folder: Path, now_ms: int) -> None:
    change(folder / "rollups.sqlite", f"UPDATE day SET is_expired = 1 WHERE day = '{THERE[0]}'")
    done, said = night(folder, now_ms)
    assert (done.removed, said, days_left(folder)) == ([], [], THERE)


def test_damaged_rollups_are_not_made_again_from_rotten_ticks(folder: Path, now_ms: int) -> None:
    right = stored(folder)
    flip(partition(folder, THERE[0]), 5000)
    change(
        folder / "rollups.sqlite",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage = 2 WHERE name = 'sqlite_autoindex_word_1'",
    )
    flip_a_figure(folder, GONE[0])
    done, _ = night(folder, now_ms, keep(THERE[1], now_ms))
    assert (folder / "rollups.sqlite.corrupt-1").exists()
    assert set(done.failed_check) == {THERE[0], GONE[0]}
    assert stored(folder, THERE) == {day: right[day] for day in THERE}


# -- what is no rot


def test_all_days_are_read_within_a_month(tmp_path: Path) -> None:
    days: dict[str, Stored] = {}
    one = Stored(Origin(DEFAULT, 1, 1))
    read: set[str] = set()
    for count in range(400):
        days[f"day {count}"] = one._replace(checked_ms=count * DAY_MS)
    for now in range(400, 400 + NIGHTS):
        chosen = choose_days(days, now * DAY_MS)
        assert len(chosen) == 15
        read |= set(chosen)
        days |= {day: one._replace(checked_ms=now * DAY_MS) for day in chosen}
    assert len(read) == 400
    days["day 7"] = one._replace(checked_ms=2**62)  # rot, too
    assert "day 7" in choose_days(days, 428 * DAY_MS)
    assert choose_days({}, 0) == []


def test_touched_compacted_and_late_ticks_are_no_rot(folder: Path, now_ms: int, window: tuple[Path, int, int]) -> None:
    night(folder, now_ms, compacting=True)
    touch(folder, THERE[1])
    late = next(iter(Laboratory(1).history(window[2] - HOUR_MS + 1, window[2] - HOUR_MS + 2, 1000)))
    store.append(store.prepare(str(folder)), late, pytest.fail)
    assert troubles(folder) == []
    for later in range(5):
        done, said = night(folder, now_ms + later * DAY_MS, compacting=later == 3)
        assert (done.failed_check, said) == ((), [])
    assert troubles(folder) == []
    assert all(one.is_compact and one.ticks_digest for day, one in index(folder).items() if day in THERE)


def as_older_gua_does(folder: Path, *statements: str) -> None:
    change(folder / "rollups.sqlite", *statements)


def troubles_beside(folder: Path, action: Callable[[], object]) -> list[str]:
    """What gua doctor --deep finds if that happens after it has begun."""

    def progress(number: int, _: int) -> None:
        if number == 0:
            action()

    return read_everything(str(folder), progress)[1]


def test_what_a_run_of_gua_rollup_makes_anew_meanwhile_is_no_rot(
    folder: Path, now_ms: int, window: tuple[Path, int, int]
) -> None:
    late = Laboratory(1).history(window[2] - 60_000, window[2], 30_000)
    store.append_history(store.prepare(str(folder)), late)
    assert troubles_beside(folder, lambda: night(folder, now_ms)) == []


def test_what_a_run_of_gua_rollup_removes_meanwhile_is_no_rot(folder: Path, now_ms: int) -> None:
    config = CONFIG._replace(retention=Retention(raw_days=1, rollup_days=1))
    assert troubles_beside(folder, lambda: night(folder, now_ms, config)) == []


def test_a_rotten_day_stays_one_though_a_run_of_gua_rollup_marks_it_meanwhile(folder: Path, now_ms: int) -> None:
    flip(partition(folder, THERE[0]), 5000)
    (text,) = troubles_beside(folder, lambda: night(folder, now_ms))
    assert str(partition(folder, THERE[0])) in text


def test_rollups_that_are_busy_are_no_rot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waits, "in_vain", 10)
    path, found = path_of(str(folder)), index(folder)[GONE[0]]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert digest_stored(path, GONE[0]) is None
        assert find_failure(path, GONE[0], found, None) is None


def test_what_an_older_gua_wrote_or_compacted_is_no_rot_and_gets_digests(folder: Path, now_ms: int) -> None:
    unknown = ", ".join(f"{name} = NULL" for name in ADDED)
    path = partition(folder, THERE[0])
    with same_time(path):
        change(path, "VACUUM")
    size = path.stat().st_size
    as_older_gua_does(
        folder,
        f"UPDATE day SET is_compact = 1, partition_bytes = {size} WHERE day = '{THERE[0]}'",
        f"UPDATE day SET {unknown} WHERE day IN ('{THERE[1]}', '{GONE[0]}')",
    )
    assert troubles(folder) == []
    for later in range(4):
        done, said = night(folder, now_ms + later * DAY_MS)
        assert (done.failed_check, said) == ((), [])
    assert all(one.rows_digest and one.checked_ms for one in index(folder).values())
    assert all(index(folder)[day].ticks_digest for day in THERE)


def test_a_day_that_can_not_be_made_exactly_any_more_gets_the_digests_of_what_is_there(
    folder: Path, now_ms: int
) -> None:
    shutil.rmtree(folder / "edges")
    before = stored(folder)
    as_older_gua_does(folder, "UPDATE day SET partition_digest = NULL, rows_digest = NULL")
    done, said = night(folder, now_ms)
    assert (done.failed_check, said, THERE[0] in done.rolled_up) == ((), [], False)
    assert stored(folder) == before
    assert all(index(folder)[day].ticks_digest and index(folder)[day].rows_digest for day in THERE)
    assert night(folder, now_ms)[0].rolled_up == []


@pytest.mark.parametrize("step", range(1, 5))
def test_a_kill_between_any_two_marks_leaves_no_wrong_digest(
    folder: Path, now_ms: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With partitions that do not shrink, so that nothing but the digest could tell the difference."""
    touch(folder, THERE[0])
    mark, left = RollupWriter.mark, [step]

    def killed(self: RollupWriter, days: Any, **values: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed
        mark(self, days, **values)

    night(folder, now_ms - DAY_MS, compacting=True)
    as_older_gua_does(folder, "UPDATE day SET is_compact = 0, partition_digest = compact_digest")
    with monkeypatch.context() as patch:
        patch.setattr(RollupWriter, "mark", killed)
        with pytest.raises(Killed):
            night(folder, now_ms, compacting=True)
    assert troubles(folder) == []
    for later in range(4):
        done, said = night(folder, now_ms + later * DAY_MS, compacting=True)
        assert (done.failed_check, said) == ((), [])
