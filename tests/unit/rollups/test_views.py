"""rollups.sqlite opened by hand: its views tell what reports read from it."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from gua_report.exporting.rows import TABLES
from gua_report.rollups import schema
from gua_report.rollups.reader import Day, read_days
from gua_report.ticks.episodes import join_episodes
from gua_sample.containers import COLUMNS
from gua_sample.policy import DEFAULT, STATES
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Gpu, Job, busy, free, held, lost, mig, series, write
from tests.repository import page
from tests.rolling import lab_days, roll_up_days

PAGE = page("schema.md").split("\n## rollups.sqlite")[1]
CARDS = ["hour_ms", "gpu_uuid", "state"]


class Opened:
    """The same days as a person sees them and as a report does."""

    def __init__(self, folder: Path) -> None:
        days = roll_up_days(str(folder))
        self.path = folder / schema.FILE_NAME
        self.frames: Day = read_days(str(self.path), days[0], days[-1])

    def view(self, name: str, *columns: str) -> pd.DataFrame:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            return pd.read_sql(f"SELECT {', '.join(columns) or '*'} FROM {name}", connection)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("laboratory")
    lab_days(folder, days=3)
    return Opened(folder)


@pytest.fixture(scope="module")
def oddities(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """MIG instances, a lost card, cards that don't tell, driver errors, a reboot, a hold over two midnights."""
    folder = tmp_path_factory.mktemp("oddities")
    long, small = Job(7, "mara", 5000, start_time_ms=None), Job(8, None, 300, uid=None)
    start = MONDAY_MS + 20 * HOUR_MS
    ticks = series(start, 30 * 60, held(long), lost(1), Gpu(2, None, (small,), None, total_mib=None))
    ticks += series(start + 30 * HOUR_MS, 30, error="driver_not_loaded")
    ticks += series(
        start + 31 * HOUR_MS, 30, busy(energy=5), free(1), mig(2, 0, 0.0, (small,)), mig(2, 1), boot="boot-2"
    )
    write(folder, ticks)
    return Opened(folder)


@pytest.fixture(params=["laboratory", "oddities"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


def assert_same(view: pd.DataFrame, frame: pd.DataFrame, keys: list[str]) -> None:
    left, right = (one.sort_values(keys, ignore_index=True) for one in (view, frame[list(view.columns)]))
    left, right = (frame.astype(object).where(frame.notna(), -1) for frame in (left, right))
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(state=[STATES[code] for code in frame["state"]])


def test_card_hours_are_what_reports_add_up(opened: Opened) -> None:
    view = opened.view("card_hours", *CARDS, "weight_ms", "gpu_hours", "energy_joules", "energy_ms", "memory_mib")
    frame = opened.frames.rollup.cards
    told = frame["memory_ms"] > 0
    expected = named(frame).assign(
        gpu_hours=frame["gpu_ms"] / HOUR_MS,
        energy_joules=frame["energy_joules"].where(frame["energy_ms"] > 0),
        memory_mib=(frame["memory_mib_ms"] / frame["memory_ms"].where(told)),
    )
    assert_same(view, expected, CARDS)
    assert set(view["state"]) <= set(STATES)


def test_the_other_views_are_what_reports_read(opened: Opened) -> None:
    hours, people = ["hour_ms", "gpu_uuid"], opened.frames.rollup.identities
    spans = opened.frames.spans.fillna({"kind": schema.OBSERVED})
    for name, columns, frame, keys in (
        ("identity_hours", ["weight_ms", "gpu_hours"], named(people), [*hours, "identity", "state"]),
        ("holds", ["end_ms", "share"], opened.frames.rollup.holds, ["gpu_uuid", "start_ms"]),
        (
            "spans",
            ["end_ms", "boot_id", "driver_version", "kind"],
            spans.fillna({"kind": schema.OBSERVED}),
            ["start_ms"],
        ),
    ):
        expected = frame.assign(gpu_hours=frame["gpu_ms"] / HOUR_MS) if "gpu_ms" in frame else frame
        assert_same(opened.view(name, *keys, *columns), expected, keys)


def test_episode_days_are_the_pieces_of_episodes(opened: Opened) -> None:
    names = ["gpu_uuid", "pid", "start_time_ms", "command", "identity", "start_ms", "end_ms", "peak_memory_mib"]
    view = opened.view("episode_days", *names, "joins_before = 1 AS joins_before", "joins_after = 1 AS joins_after")
    assert_same(view, opened.frames.episodes, ["gpu_uuid", "pid", "start_ms"])
    seconds = opened.view("episode_days", "seconds - (end_ms - start_ms) / 1000.0 AS difference")
    assert (seconds["difference"] == 0).all()


def test_episodes_are_whole(opened: Opened) -> None:
    names = ["gpu_uuid", "pid", "start_time_ms", "command", "identity", "start_ms", "end_ms", "peak_memory_mib"]
    view = opened.view("episodes", *names, "joins_before = 1 AS joins_before", "joins_after = 1 AS joins_after")
    expected = join_episodes([opened.frames.episodes])
    assert len(expected) < len(opened.frames.episodes)  # some do cross midnight
    assert_same(view, expected, ["gpu_uuid", "pid", "start_ms"])


def test_an_episode_over_two_midnights_is_one_row_with_its_whole_length(oddities: Opened) -> None:
    whole = oddities.view("episodes").query("identity == 'mara'")
    assert whole["seconds"].tolist() == [30 * 3600]
    assert whole["start_ms"].tolist() == [MONDAY_MS + 20 * HOUR_MS]
    assert whole["peak_memory_mib"].tolist() == [5000]
    assert len(oddities.view("episode_days").query("identity == 'mara'")) == 3


def test_what_is_not_known_is_null_and_what_is_usual_is_decoded(oddities: Opened) -> None:
    cards = oddities.view("card_hours").astype(object).where(lambda frame: frame.notna(), None)
    lost_card = cards[cards["gpu_uuid"] == "GPU-1"].iloc[0]
    assert (lost_card["state"], lost_card["memory_mib"], lost_card["memory_total_mib"]) == ("unknown", None, None)
    assert (lost_card["energy_joules"], lost_card["energy_ms"]) == (None, 0)
    assert (lost_card["weight_ms"], lost_card["gpu_hours"]) == (HOUR_MS, 1.0)
    instances = cards[cards["parent_uuid"] == "GPU-2"]
    assert set(instances["mig_index"]) == {0, 1}
    assert set(instances["gpu_hours"]) == {0.25}  # half an hour of half a card
    assert set(instances["weight_ms"]) == {30 * MINUTE_MS}
    assert set(oddities.view("spans")["kind"]) == {"observed", "driver error"}
    assert set(oddities.view("holds")["share"]) == {1.0, 0.5}


def test_days_tell_thresholds_and_what_they_were_made_from(oddities: Opened) -> None:
    days = oddities.view("days").to_dict("records")
    assert [(day["day"], day["start_ms"]) for day in days] == [
        ("2026-11-16", MONDAY_MS),
        ("2026-11-17", MONDAY_MS + DAY_MS),
        ("2026-11-18", MONDAY_MS + 2 * DAY_MS),
    ]
    for day in days:
        assert {name: day[name] for name in DEFAULT._fields} == DEFAULT._asdict()
        found = os.stat(oddities.path.parent / "samples" / f"{day['day']}.sqlite")
        assert (day["partition_bytes"], day["partition_changed_ns"]) == (found.st_size, found.st_mtime_ns)
        assert (day["is_expired"], day["is_compact"]) == (0, 0)


def test_each_row_is_of_the_day_it_says(opened: Opened) -> None:
    for name, time in ("card_hours", "hour_ms"), ("identity_hours", "hour_ms"), ("holds", "start_ms"):
        view = opened.view(name)
        assert (pd.to_datetime(view[time], unit="ms").dt.strftime("%Y-%m-%d") == view["day"]).all()


def test_asked_for_a_day_no_table_is_searched_from_end_to_end(laboratory: Opened) -> None:
    with closing(sqlite3.connect(laboratory.path)) as connection:
        for view in ("card_hours", "identity_hours", "holds", "episode_days", "spans"):
            for condition in ("day = '2026-11-15'", "day BETWEEN '2026-11-14' AND '2026-11-15'"):
                plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE {condition}").fetchall()
                assert all(row[3].startswith("SEARCH") for row in plan), (view, plan)


def test_what_is_exported_are_the_columns_of_the_views_but_for_the_day(laboratory: Opened) -> None:
    for name, table in TABLES.items():
        if table.is_of_rollups:
            columns = [column for column in laboratory.view(name).columns if column != "day"]
            assert list(table.columns) == columns + (list(COLUMNS) if "identity" in columns else [])


def test_every_column_of_every_view_and_every_table_is_documented(laboratory: Opened) -> None:
    with closing(sqlite3.connect(laboratory.path)) as connection:
        names = dict(connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
    for view in (name for name, kind in names.items() if kind == "view"):
        section = PAGE.split(f"\n### View {view}:")[1].split("\n### ")[0]
        first_column = "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE))
        assert sorted(re.findall(r"`(\w+)`", first_column)) == sorted(laboratory.view(view).columns), view
    section = PAGE.split("\n### Tables")[1].split("\n### ")[0]
    documented = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
    assert sorted(documented) == sorted(name for name, kind in names.items() if kind == "table")
    assert f"{schema.APPLICATION_ID:#x}" in PAGE
    assert f"`user_version` {schema.VERSION}" in PAGE
