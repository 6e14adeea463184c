"""A bit that flips on disk, in a closed partition or in rollups.sqlite, is found, named, and costs nothing further."""

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
from gua_report.rollups.index import UNREADABLE, Stored, path_of, read_index
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep import nightly
from gua_report.upkeep.damage import read_everything
from gua_report.upkeep.nightly import Done, Upkeep
from gua_report.window import number_of
from gua_sample import store
from gua_sample.policy import DEFAULT
from gua_sample.safe_file import connect
from gua_sample.simulate import Laboratory
from tests import rolling
from tests.lab import CONFIG, DAY_MS, HOUR_MS, report_of

GONE, THERE = ["2026-11-13", "2026-11-14"], ["2026-11-15", "2026-11-16"]
VIEWS = ("card_hours", "identity_hours", "holds", "episode_days", "spans")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """Four days that are rolled up, two of them without ticks. Not to be changed."""
    folder = tmp_path_factory.mktemp("days")
    start, end = rolling.lab_days(folder)
    rolling.upkeep(folder, end + 2 * DAY_MS, rolling.KEEP_LAST_TWO)
    assert rolling.days_left(folder) == THERE
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


def flip_a_figure(folder: Path, day: str, change_to: str = "weight_ms - 64") -> None:
    """In a stored day, as a flipped bit leaves it."""
    path = folder / "rollups.sqlite"
    with same_time(path):
        rolling.change(
            path, f"UPDATE card_hour SET weight_ms = {change_to} WHERE day_id = {number_of(day)} AND hour = 12"
        )


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
    assert all(one.sums_digest and one.ticks_digest for one in index(folder).values())
    done, said = night(folder, now_ms)
    assert (done.rolled_up, done.failed_check, said) == ([], (), [])


def test_every_bit_of_a_closed_partition_matters(folder: Path) -> None:
    path = rolling.partition(folder, THERE[0])
    content = path.read_bytes()
    chosen = random.Random(1)
    for _ in range(12):
        flip(path, chosen.randrange(len(content)), chosen.randrange(8))
        (text,) = troubles(folder)
        assert str(path) in text
        with same_time(path):
            path.write_bytes(content)
    assert troubles(folder) == []


@pytest.mark.parametrize("how", ["expire", "rebuild", "other thresholds"])
def test_rotten_ticks_are_named_never_used_and_never_removed_until_they_are_back(
    folder: Path, now_ms: int, how: str, window: tuple[Path, int, int]
) -> None:
    expected, before, path = report_of(folder, *window[1:]), rolling.stored(folder), rolling.partition(folder, THERE[0])
    content = path.read_bytes()
    flip(path, path.stat().st_size - 100)
    config = keep(THERE[1], now_ms) if how == "expire" else CONFIG
    if how == "other thresholds":
        config = config._replace(policy=DEFAULT._replace(utilization_percent=60.0))
    for dry_run in (True, False, False):
        done, said = night(folder, now_ms, config, rebuild=how == "rebuild", compacting=True, dry_run=dry_run)
        assert (done.failed_check, done.failed, done.kept) == ((THERE[0],), [], [])
        (text,) = [text for text in said if "bit rot" in text]
        assert str(path) in text
        assert rolling.stored(folder)[THERE[0]] == before[THERE[0]]
    assert path.exists()
    if how != "other thresholds":
        rolling.assert_same(expected, report_of(folder, *window[1:]))  # from rollups, which are right
    with same_time(path):
        path.write_bytes(content)
    done, said = night(folder, now_ms)
    assert (done.failed_check, said) == ((), [])


def test_every_bit_of_stored_days_is_found(window: tuple[Path, int, int], tmp_path: Path, now_ms: int) -> None:
    before = contents(window[0])
    chosen = random.Random(2)
    changed = 0
    for _ in range(25):
        folder = Path(shutil.copytree(window[0], tmp_path / "data"))
        path = folder / "rollups.sqlite"
        flip(path, chosen.randrange(100, path.stat().st_size), chosen.randrange(8))
        if contents(folder) != before:
            changed += 1
            assert troubles(folder) != []
            night(folder, now_ms, keep(THERE[1], now_ms))
            assert THERE[1] in rolling.days_left(folder)
        shutil.rmtree(folder)
    assert changed > 5


@pytest.mark.parametrize("change_to", ["weight_ms - 64", "-64"])
def test_rotten_sums_are_made_anew_before_their_ticks_may_go(folder: Path, now_ms: int, change_to: str) -> None:
    right = rolling.stored(folder)
    flip_a_figure(folder, THERE[0], change_to)
    assert len(troubles(folder)) == 1
    done, said = night(folder, now_ms, keep(THERE[1], now_ms))
    assert (done.rolled_up, done.failed_check, rolling.days_left(folder)) == ([THERE[0]], (), THERE[1:])
    assert [text for text in said if f"the rollup of {THERE[0]}" in text]
    assert (rolling.stored(folder), troubles(folder)) == (right, [])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE hold SET share_millionths = 600000",
        "UPDATE card_hour SET memory_mib = memory_mib + 64",
        "UPDATE card SET memory_total_mib = memory_total_mib + 1024",
        "UPDATE card SET gpu_index = gpu_index + 8",
        "UPDATE card_day SET instant_only = 1",
    ],
)
def test_every_column_is_checked(folder: Path, change: str) -> None:
    rolling.change(folder / "rollups.sqlite", change)
    assert len(troubles(folder)) == 4


def test_a_mark_that_says_expired_removes_no_ticks_that_are_to_stay(folder: Path, now_ms: int) -> None:
    rolling.change(folder / "rollups.sqlite", f"UPDATE day SET is_expired = 1 WHERE day = '{THERE[0]}'")
    done, said = night(folder, now_ms)
    assert (done.removed, said, rolling.days_left(folder)) == ([], [], THERE)


def test_touched_compacted_and_late_ticks_are_no_rot(folder: Path, now_ms: int, window: tuple[Path, int, int]) -> None:
    night(folder, now_ms, compacting=True)
    rolling.touch(folder, THERE[1])
    late = next(iter(Laboratory(1).history(window[2] - HOUR_MS + 1, window[2] - HOUR_MS + 2, 1000)))
    store.append(store.prepare(str(folder)), late, pytest.fail)
    assert troubles(folder) == []
    for compacting in (False, True, False):
        done, said = night(folder, now_ms, compacting=compacting)
        assert (done.failed_check, said) == ((), [])
    assert troubles(folder) == []
    assert all(one.is_compact and one.ticks_digest for day, one in index(folder).items() if day in THERE)


@pytest.mark.parametrize("when", ["it has begun", "the day is stored"])
def test_ticks_that_come_during_a_run_keep_their_day(
    folder: Path, now_ms: int, window: tuple[Path, int, int], when: str
) -> None:
    def come(*_: int) -> None:
        store.append_history(store.prepare(str(folder)), Laboratory(1).history(window[2] - 60_000, window[2], 30_000))

    if when == "the day is stored":
        rolling.touch(folder, THERE[1])
    run = Upkeep(str(folder), keep("2026-11-17", now_ms), now_ms, False, pytest.fail)
    if when == "it has begun":
        come()
    assert run.run(False, False, come).kept == THERE[1:]
    assert rolling.days_left(folder) == THERE[1:]


def test_a_partition_that_the_disk_can_not_read_stays(
    folder: Path, now_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite may not need the bad block. The day is checked again, by its ticks, when the disk is in order."""
    rolling.touch(folder, THERE[0])
    with monkeypatch.context() as patch:
        patch.setattr(nightly, "digest_partition", lambda *_: UNREADABLE)
        for _ in range(2):
            done, _ = night(folder, now_ms, keep(THERE[1], now_ms))
            assert (done.rolled_up, done.removed, done.kept) == (THERE[:1], [], THERE[:1])
    assert rolling.days_left(folder) == THERE
    done, said = night(folder, now_ms, keep(THERE[1], now_ms))
    assert (done.rolled_up, done.failed_check, said, rolling.days_left(folder)) == (THERE[:1], (), [], THERE[1:])


def test_a_tick_that_comes_right_before_the_compaction_counts(
    folder: Path, now_ms: int, window: tuple[Path, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = list(Laboratory(1).history(window[2] - 60_000, window[2], 30_000))

    def come_first(path: str, *arguments: Any) -> sqlite3.Connection:
        if path == str(rolling.partition(folder, THERE[1])):
            store.append_history(store.prepare(str(folder)), late)
        return connect(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(nightly, "connect", come_first)
        assert night(folder, now_ms, compacting=True)[0].compacted == THERE
    assert night(folder, now_ms)[0].rolled_up == THERE[1:]


def troubles_beside(folder: Path, action: Callable[[], object]) -> list[str]:
    """What gua doctor --deep finds if that happens after it has begun."""

    def progress(number: int, _: int) -> None:
        if number == 0:
            action()

    return read_everything(str(folder), progress)[1]


def test_what_a_run_makes_anew_or_removes_meanwhile_is_no_rot(
    folder: Path, now_ms: int, window: tuple[Path, int, int]
) -> None:
    late = Laboratory(1).history(window[2] - 60_000, window[2], 30_000)
    store.append_history(store.prepare(str(folder)), late)
    assert troubles_beside(folder, lambda: night(folder, now_ms)) == []
    config = CONFIG._replace(retention=Retention(raw_days=1, rollup_days=1))
    assert troubles_beside(folder, lambda: night(folder, now_ms, config)) == []


@pytest.mark.parametrize("step", range(1, 4))
def test_no_kill_leaves_a_wrong_digest(folder: Path, now_ms: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With partitions that do not shrink, so that nothing but the digest could tell the difference."""
    night(folder, now_ms - DAY_MS, compacting=True)
    rolling.change(folder / "rollups.sqlite", "UPDATE day SET is_compact = 0")
    mark, left = RollupWriter.mark, [step]

    def killed(self: RollupWriter, days: Any, **values: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise rolling.Killed
        mark(self, days, **values)

    with monkeypatch.context() as patch:
        patch.setattr(RollupWriter, "mark", killed)
        with pytest.raises(rolling.Killed):
            night(folder, now_ms, compacting=True)
    assert troubles(folder) == []
    for _ in range(2):
        done, said = night(folder, now_ms, compacting=True)
        assert (done.failed_check, said) == ((), [])
    assert all(one.ticks_digest for day, one in index(folder).items() if day in THERE)
