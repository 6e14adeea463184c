"""Reservations as read from a file, and the hours of §8, counted again millisecond by millisecond."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import timezone
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.commands import demo
from gua_report.config import Config, Reservations
from gua_report.render import Options, renderer
from gua_report.reservations import csv_file
from gua_report.reservations.canhazgpu import HEARTBEAT_MS
from gua_report.reservations.cards import KINDS, CardNow, Holder
from gua_report.reservations.check import check
from gua_report.reservations.redis_client import CONVERSATION_SECONDS, MOST_BYTES
from gua_report.reservations.redis_url import OPTIONS, BadUrl, parse_url
from gua_report.reservations.reservation import FOREVER_MS, Reservation, moment_ms
from gua_report.reservations.sources import ROUNDED_MS, _overlaps
from gua_report.summary.build import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS, SUMS
from gua_report.upkeep.nightly import Upkeep
from gua_sample.policy import ACTIVE, IDLE_HELD, card_state
from gua_sample.records import Card, Tick
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    Naive,
    at,
    busy,
    free,
    held,
    lost,
    report_of,
    series,
    tick,
    write,
    written,
)
from tests.machine import SCRIPTS
from tests.repository import page

ALICE, BOB = Job(100, "alice"), Job(200, "bob", start_time_ms=6000)
HEADER = "gpu,user,from,to,note\n"

Read = Callable[[str], tuple[list[Reservation] | None, list[str]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_read(text: str) -> tuple[list[Reservation] | None, list[str]]:
        path = tmp_path / "r.csv"
        path.write_text(text, encoding="utf-8")
        said: list[str] = []
        rows = csv_file.read(str(path), ZoneInfo("Europe/Berlin"), said.append)
        found = None if rows is None else rows.reservations
        return found, [line.removeprefix(f"{path} ") for line in said]

    return write_and_read


# -- the page


PAGE = page("reservations.md")


def test_the_page_shows_what_a_report_shows(tmp_path: Path) -> None:
    demo.simulate(str(tmp_path), 0, EXAMPLE_END_MS - 7 * DAY_MS, EXAMPLE_END_MS)
    (tmp_path / "reservations.csv").write_text(PAGE.split("## A file\n\n```\n")[1].split("```")[0])
    (tmp_path / "gua.toml").write_text('[reservations]\nfile = "reservations.csv"\n')
    command = [str(SCRIPTS / "gua-report"), "--data-dir", ".", "--config", "gua.toml", "--tz", "UTC"]
    command += ["--to", "2026-11-11T12:00Z", "--section", "reservations", "--top", "7"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={"TZ": "UTC"})
    shown = PAGE.split("with the file above:\n\n```\n")[1].split("```")[0]
    assert done.stdout.endswith(f"\n\n{shown}")


def test_the_page_has_every_kind_of_validation() -> None:
    table = PAGE.split("| kind | ")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == sorted(KINDS)
    assert f"{HEARTBEAT_MS // 60_000} minutes after the last heartbeat" in PAGE
    assert f"gives up after {CONVERSATION_SECONDS:g} s or {MOST_BYTES >> 20} MiB" in PAGE
    assert all(f"`{option}`" in PAGE for option in OPTIONS)
    assert f"Its first {csv_file.MOST_ROWS:,} rows and {csv_file.MOST_BYTES >> 20} MiB are read" in PAGE


# -- times


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-16", at("2026-11-16")),
        ("2026-11-16T08:30", at("2026-11-16T08:30")),
        ("2026-11-16 08:30:15", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15Z", at("2026-11-16T08:30:15")),
        ("2026-11-16T08:30:15.372177993Z", at("2026-11-16T08:30:15.372")),
        ("2026-11-16T08:30:15.3+02:00", at("2026-11-16T06:30:15.300")),
        (1794816000, 1794816000_000),
        (1794816000.25, 1794816000_250),
        ("1794816000", 1794816000_000),
        ("1.794816e9", 1794816000_000),
        (1794816000123, 1794816000_123),
        ("20261116", None),  # a date without its dashes, not a second of 1970
        ("16.11.2026", None),
        ("2026-13-01", None),
        ("2026-11-16T25:00", None),
        ("", None),
        (0, None),
        (-1, None),
        (1e300, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ([], None),
    ],
)
def test_a_time_is_epoch_seconds_or_iso(value: object, expected: int | None) -> None:
    assert moment_ms(value, timezone.utc) == expected


@given(st.text(max_size=30) | st.floats() | st.integers() | st.none())
def test_anything_else_is_no_time(value: object) -> None:
    found = moment_ms(value, ZoneInfo("Europe/Berlin"))
    assert found is None or 0 < abs(found) <= FOREVER_MS


# -- the file


def test_a_file_is_read_in_the_time_of_the_machine(read: Read) -> None:
    found, said = read(
        "\ufeffGPU, user ,from,to,note\r\n"
        '0,alice,2026-11-16T08:30,2026-11-16T10:00Z,"a note, with a comma"\r\n'
        "\r\n"
        "GPU-1234,bob,2026-11-16,,\r\n"
        "03,carol,2026-11-16,2026-11-17\r\n"
    )
    assert said == []
    assert found
    assert [one[:6] for one in found] == [
        ("0", "alice", at("2026-11-16T07:30"), at("2026-11-16T10:00"), "file", "a note, with a comma"),
        ("GPU-1234", "bob", at("2026-11-15T23:00"), FOREVER_MS, "file", ""),
        ("3", "carol", at("2026-11-15T23:00"), at("2026-11-16T23:00"), "file", ""),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("x,alice,2026-11-16,,", "bad gpu 'x': expected the index of a card, or its uuid"),
        (",alice,2026-11-16,,", "bad gpu '': expected the index"),
        ("-1,alice,2026-11-16,,", "bad gpu '-1': expected the index"),
        ("²,alice,2026-11-16,,", "bad gpu '²': expected the index"),
        ("0, ,2026-11-16,,", "no user: expected the name"),
        ("0,alice,,,", "bad from '': expected a time such as"),
        ("0,alice", "bad from '': expected a time such as"),
        ("0,alice,2026-11-16,next week,", "bad to 'next week': expected a time such as"),
        ("0,alice,2026-11-16,2026-11-16,", "bad to '2026-11-16': expected a time after '2026-11-16'"),
        ("0,alice,2026-11-16,,a,b", "6 values, but 5 columns: put a text with commas in double quotes"),
        ("0,alice,\x1b[31m,,", r"bad from '\\x1b[31m': expected"),
        (f"0,alice,{'9' * 200000},,", "field larger than field limit"),
    ],
)
def test_a_bad_row_is_named_and_the_others_count(read: Read, row: str, said: str) -> None:
    found, lines = read(f"{HEADER}1,bob,2026-11-16,,\n{row}\n2,bob,2026-11-16,,\n")
    assert found is not None
    assert [one.gpu for one in found] == ["1", "2"]
    (line,) = lines
    assert line.startswith(f"line 3: {said}")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("header", "usable", "said"),
    [
        ("gpu,user,from,to", True, []),
        ("note,to,from,user,gpu", True, []),
        ("gpu,user,from,to,why", True, ["line 1: unknown column 'why': expected gpu,user,from,to,note"]),
        ("gpu,user,from,until", False, ["line 1: no column to; unknown column 'until': expected "]),
        ("gpu,user,user,from,to", False, ["line 1: column user twice: expected "]),
    ],
)
def test_columns_may_be_in_any_order_but_must_be_there(read: Read, header: str, usable: bool, said: list[str]) -> None:
    found, lines = read(f"{header}\n")
    assert (found is not None) == usable
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_an_empty_file_and_one_that_is_no_text_are_named(tmp_path: Path, read: Read) -> None:
    found, (line,) = read("\n\n")
    assert found is None
    assert line.endswith("is empty: expected a first line gpu,user,from,to,note")
    (tmp_path / "bytes.csv").write_bytes(b"gpu,user,from,to\n0,\xff,2026-11-16,\n")
    said: list[str] = []
    assert csv_file.read(str(tmp_path / "bytes.csv"), timezone.utc, said.append) is None
    assert said == [f"{tmp_path / 'bytes.csv'}: expected a CSV file in UTF-8"]


@given(st.text(alphabet="gpuserfomt,\n\r\"0aA-'\x00 2", max_size=80))
def test_whatever_the_file_holds_is_read_or_complained_of(text: str) -> None:
    said: list[str] = []
    rows = csv_file._read_rows("f", iter((HEADER + text).splitlines(keepends=True)), True, timezone.utc, said.append)
    assert rows is not None
    assert all(line.isprintable() for line in said)


# -- names are hostile, and so are URLs


def test_no_name_steers_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}0,\x1b[31mred,2026-01-01,,\x1b[0m\n1,\x1b[31mred,2026-01-01,,\n", encoding="utf-8")
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    evil = Holder("\x1b]0;me", 1, "a\nb\x07", 5000.0)
    cards = [CardNow(0, "GPU-0", [evil], ACTIVE, None), CardNow(1, "GPU-1", [], "truly-idle", None)]
    lines: list[str] = []
    found = check(cards, config, MONDAY_MS, lines.append)
    assert all(one.text.isprintable() for one in found.values())
    assert found["GPU-0"].text == (
        r"in use WITHOUT RESERVATION by \x1b]0;me: PID 1 (a\nb\x07) 5,000 MiB; reserved by \x1b[31mred"
    )
    assert lines
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://", "redis://localhost:6379/0"),
        ("redis://gua:hunter2@host/1", "redis://host:6379/1"),
        ("redis://:hunter2@[::1]:7000", "redis://[::1]:7000/0"),
        ("rediss://host/0?password=hunter2", "rediss://host:6379/0"),
        ("unix://gua:hunter2@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_a_place_has_no_password(url: str, place: str) -> None:
    address = parse_url(url)
    assert address.place() == place
    assert (address.password or "hunter2") == "hunter2"
    assert "hunter2" not in address.hide_secrets(f"no such server: {url}")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/@:@host",
        "redis://:hunter2?@host",
        "redis://gua:12345/x@host",
        "redis://gua:12345?x@host",
        "redis://gua:12345#x@host",
        "redis://host/0?socket_timeout=600",
        "redis://host/-1",
        "redis://[",
        "unix://host/run/redis.sock",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_rather_than_guessed_at(url: str) -> None:
    with pytest.raises(BadUrl, match=r"^$"):
        parse_url(url)


def test_many_overlaps_take_few_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEADER + "".join(f"0,daemon,2026-01-01,,\n0,nobody,2026-01-0{day},,\n" for day in range(1, 6)))
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    lines: list[str] = []
    check([CardNow(0, "GPU-0", [], "truly-idle", None)], config, MONDAY_MS, lines.append)
    assert len(lines) == 6
    assert lines[-1] == "4 more reservations overlap"


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 20), st.integers(1, 9)), max_size=12),
)
def test_a_reservation_is_said_to_overlap_if_it_begins_while_another_person_has_the_card(
    rows: list[tuple[str, int, int]],
) -> None:
    own = [
        Reservation("0", user, start * 1000, (start + length) * 1000, "file", "", f"line {line}")
        for line, (user, start, length) in enumerate(rows)
    ]
    found = list(_overlaps(own, {"c": "b"}))  # c and b are one person
    in_order = sorted(own, key=lambda one: one.start_ms)
    who = [one.user.replace("c", "b") for one in in_order]
    expected = [
        one
        for position, one in enumerate(in_order)
        if any(
            who[before] != who[position] and min(in_order[before].end_ms, one.end_ms) - one.start_ms > ROUNDED_MS
            for before in range(position)
        )
    ]
    assert [later for _, later in found] == expected
    assert all(later.start_ms < earlier.end_ms for earlier, later in found)


def test_one_after_the_other_is_no_overlap_though_the_second_began_within_the_second(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    rows = "0,daemon,2026-11-16,2026-11-17T12:00:00.9,\n0,nobody,2026-11-17T12:00:00,{},\n"
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    for until, count in (("2026-11-18", 0), ("2026-11-18,\n0,daemon,2026-11-17T13:00,", 1)):
        path.write_text(HEADER + rows.format(until))
        lines: list[str] = []
        check([CardNow(0, "GPU-0", [], "truly-idle", None)], config, MONDAY_MS, lines.append)
        assert len(lines) == count


def test_it_is_checked_without_pandas(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEADER)
    code = (
        "import sys; from gua_report.reservations.check import check; from gua_report.reservations.cards import *;"
        "from gua_report.config import *; from gua_sample.policy import DEFAULT;"
        f"config = Config(DEFAULT, None, None, '', {{}}, reservations=Reservations({str(path)!r}));"
        "print(check([CardNow(0, 'GPU-0', [], 'truly-idle', None)], config, 1, print)); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "text='available'" in done.stdout
    assert {"pandas", "numpy", "ssl"} & set(done.stdout.split()) == set()


# -- §8


def configured(folder: Path | str, *rows: str, config: Config = CONFIG) -> Config:
    path = Path(folder) / "reservations.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return config._replace(reservations=Reservations(file=str(path)))


def iso(ts_ms: int) -> str:
    return str(ts_ms)  # 13 digits: epoch milliseconds


def hours_of(report: Report) -> dict[tuple[str, str], list[float]]:
    assert report.reservations is not None
    return {(row[0], row[1]): list(row[4:]) for row in report.reservations.itertuples(index=False)}


def test_hours_by_hand(tmp_path: Path) -> None:
    start = MONDAY_MS
    ticks = series(start, 60, busy(ALICE), free(1))  # one hour at work,
    ticks += series(start + HOUR_MS, 30, held(ALICE), busy(BOB, index=1))  # half an hour without,
    ticks += series(start + HOUR_MS + 30 * MINUTE_MS, 30, lost(0), free(1))  # half an hour nobody knows
    write(tmp_path, ticks)
    config = configured(
        tmp_path,
        f"0,alice,{iso(start + 15 * MINUTE_MS + 1)},{iso(start + 3 * HOUR_MS)},",  # the last hour nobody looked
        f"GPU-1,alice,{iso(start)},{iso(start + 90 * MINUTE_MS)},",
        f"1,bob,{iso(start + 80 * MINUTE_MS)},,",
    )
    report = report_of(tmp_path, start, start + 3 * HOUR_MS, config=config)
    ms = 1 / HOUR_MS
    found = hours_of(report)
    assert found.keys() == {("alice", "GPU-0"), ("alice", "GPU-1"), ("bob", "GPU-1")}
    # reserved, used, idle, of which held, unknown, unreserved
    assert found["alice", "GPU-0"] == pytest.approx([2.75 - ms, 0.75 - ms, 0.5, 0.5, 1.5, 0.25 + ms], abs=1e-12)
    assert found["alice", "GPU-1"] == pytest.approx([1.5, 0, 1.5, 0, 0, 0], abs=1e-12)
    assert found["bob", "GPU-1"] == pytest.approx([100 / 60, 10 / 60, 30 / 60, 0, 1, 20 / 60], abs=1e-12)
    (overlap,) = report.reservation_problems
    assert overlap.startswith("GPU-1 is reserved twice from ")


def test_a_reservation_that_was_entered_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    rows = [f"0,alice,{iso(MONDAY_MS)},{iso(MONDAY_MS + HOUR_MS)},"] * 2
    rows.append(f"GPU-0,alice,{iso(MONDAY_MS + 30 * MINUTE_MS)},{iso(MONDAY_MS + HOUR_MS)},")
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=configured(tmp_path, *rows))
    assert hours_of(report) == {("alice", "GPU-0"): [1, 1, 0, 0, 0, 0]}
    assert report.reservation_problems == []


def test_who_works_where_nobody_is_seen_is_not_known(tmp_path: Path) -> None:
    # The process list fails while the card is at work; and memory that no process shows.
    ticks = series(MONDAY_MS, 30, Gpu(0, 90.0, (), 5000, "not_permitted"))
    ticks += series(MONDAY_MS + 30 * MINUTE_MS, 30, Gpu(0, 0.0, (), 5000))
    write(tmp_path, ticks)
    end = MONDAY_MS + HOUR_MS
    report = report_of(tmp_path, MONDAY_MS, end, config=configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,"))
    assert hours_of(report) == {("alice", "GPU-0"): [1, 0, 0.5, 0, 0.5, 0]}
    report = report_of(tmp_path, MONDAY_MS, end, config=configured(tmp_path))
    assert hours_of(report) == {("(unattributed)", "GPU-0"): [0, 0, 0, 0, 0, 0.5]}


def test_an_index_means_the_card_that_was_there_that_day(tmp_path: Path) -> None:
    old, new = Gpu(0, 90.0, (ALICE,), uuid="GPU-old"), Gpu(0, 90.0, (ALICE,), uuid="GPU-new")
    write(tmp_path, series(MONDAY_MS, 60, old) + series(MONDAY_MS + DAY_MS, 60, new, boot="boot-2"))
    config = configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,")
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + DAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("alice", "GPU-old"): [24, 1, 0, 0, 23, 0], ("alice", "GPU-new"): [1, 1, 0, 0, 0, 0]}


def test_a_card_that_is_gone_stays_reserved(tmp_path: Path) -> None:
    tuesday = MONDAY_MS + DAY_MS
    ticks = series(MONDAY_MS, 60, busy(ALICE), busy(BOB, index=1))
    ticks += series(tuesday, 60, busy(ALICE)) + series(tuesday + DAY_MS, 60, error="driver_not_loaded")
    write(tmp_path, ticks)
    config = configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,", f"1,bob,{iso(MONDAY_MS)},,")
    report = report_of(tmp_path, MONDAY_MS, tuesday + DAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("alice", "GPU-0"): [49, 2, 0, 0, 47, 0], ("bob", "GPU-1"): [49, 1, 0, 0, 48, 0]}


def test_an_index_means_all_mig_instances(tmp_path: Path) -> None:
    instances = [Gpu(0, 90.0, (ALICE,), mig_index=place, parent="GPU-0", total_mib=9856) for place in range(2)]
    write(tmp_path, series(MONDAY_MS, 60, *instances))
    config = configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,", f"MIG-0-1,bob,{iso(MONDAY_MS)},,")
    found = hours_of(report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config))
    assert found == {
        ("alice", "MIG-0-0"): [1, 1, 0, 0, 0, 0],
        ("alice", "MIG-0-1"): [1, 1, 0, 0, 0, 0],
        ("bob", "MIG-0-1"): [1, 0, 1, 0, 0, 0],
    }


def test_people_are_mapped_on_both_sides(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    config = configured(tmp_path, f"0,a.liddell,{iso(MONDAY_MS)},,")
    config = config._replace(people={"alice": "Alice", "a.liddell": "Alice"})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("Alice", "GPU-0"): [1, 1, 0, 0, 0, 0]}


def test_if_a_source_is_silent_nobody_is_called_unreserved(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    config = CONFIG._replace(reservations=Reservations(file=str(tmp_path / "none.csv")))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.reservations is not None
    assert report.reservations["unreserved_hours"].isna().all()
    (problem,) = report.reservation_problems
    assert "none.csv (No such file or directory)" in problem
    assert "—" in renderer("text")(report, Options(sections=("reservations",)))


def test_without_a_source_there_is_no_section(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    assert report.reservations is None
    assert "§8" not in renderer("text")(report, Options())
    assert "None are configured" in renderer("text")(report, Options(sections=("reservations",)))


def test_ticks_that_have_expired_are_said(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(ALICE)) + series(MONDAY_MS + DAY_MS, 60, busy(ALICE)))
    assert Upkeep(str(tmp_path), CONFIG, MONDAY_MS + 5 * DAY_MS, False, print).run(False, False, None).rolled_up
    (tmp_path / "samples" / "2026-11-16.sqlite").unlink()
    config = configured(tmp_path, f"0,alice,{iso(MONDAY_MS)},,")
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + DAY_MS + HOUR_MS, config=config)
    assert hours_of(report) == {("alice", "GPU-0"): [25, 1, 0, 0, 24, 0]}
    assert report.reservation_problems == ["ticks have expired: who used what in 2026-11-16 is not known here"]


class Count:
    """The same figures, in the order of SUMS, a tick at a time: cut at every boundary there is."""

    def __init__(self, ticks: list[Tick], rows: list[Reservation], start: int, end: int) -> None:
        self.rows = rows
        self.sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(SUMS))
        cuts = {start, end, *(cut for one in rows for cut in (one.start_ms, one.end_ms) if start < cut < end)}
        for begin, until in pairwise(sorted(cuts)):
            for place in range(2):
                for who in self.owners(place, begin):
                    self.sums[who, f"GPU-{place}"][0] += until - begin
                    self.sums[who, f"GPU-{place}"][4] += until - begin
            for one, _, length in Naive(ticks).pieces(begin, until, DAY_MS):
                for card in one.cards:
                    self.add(card, {one.processes[usage.pid].user or "" for usage in card.usages}, begin, length)

    def owners(self, place: int, begin: int) -> set[str]:
        return {one.user for one in self.rows if one.gpu == str(place) and one.start_ms <= begin < one.end_ms}

    def add(self, card: Card, there: set[str], begin: int, length: int) -> None:
        state, uuid, owners = card_state(card), card.facts.uuid, self.owners(card.facts.gpu_index, begin)
        for who in owners if state != "unknown" else ():
            sums = self.sums[who, uuid]
            sums[4] -= length
            sums[1 if who in there and state == ACTIVE else 2] += length
            sums[3] += length if who in there and state == IDLE_HELD else 0
        for who in there - owners:
            self.sums[who, uuid][5] += length if state in (ACTIVE, IDLE_HELD) else 0


JOBS = [ALICE, BOB, Job(300, "carol", start_time_ms=7000)]
some_jobs = st.sets(st.sampled_from(JOBS), min_size=1).map(lambda jobs: tuple(sorted(jobs)))
cards = (
    st.sampled_from([free, lost])
    | some_jobs.map(lambda jobs: lambda index: busy(*jobs, index=index))
    | some_jobs.map(lambda jobs: lambda index: held(*jobs, index=index))
)
steps = st.lists(st.tuples(st.integers(1, 7 * MINUTE_MS), cards, cards), min_size=2, max_size=12)
moments = st.integers(-HOUR_MS, HOUR_MS)
bookings = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["alice", "bob", "dora"]), moments, moments), max_size=6
)


@given(steps, bookings, moments, st.integers(1, HOUR_MS))
@settings(max_examples=40, deadline=None)
def test_used_and_idle_and_unknown_are_what_was_reserved_to_the_millisecond(
    history: list[tuple[int, Callable[[int], Gpu], Callable[[int], Gpu]]],
    booked: list[tuple[int, str, int, int]],
    begin: int,
    length: int,
) -> None:
    # Around midnight, so that ticks, reservations and windows are cut there too.
    now, ticks = MONDAY_MS - 20 * MINUTE_MS, []
    for step, one, other in history:
        now += step
        ticks.append(tick(now, one(0), other(1), interval_ms=MINUTE_MS))
    rows = [
        Reservation(str(card), who, MONDAY_MS + min(a, b), MONDAY_MS + max(a, b), "", "", "")
        for card, who, a, b in booked
        if a != b
    ]
    start = max(ticks[0].ts_ms, min(MONDAY_MS + begin, ticks[-1].ts_ms))
    end = max(start + length, next(one.ts_ms for one in ticks if one.ts_ms >= start) + 1)  # there is a tick in it
    with written(ticks) as folder:
        lines = [f"{one.gpu},{one.user},{iso(one.start_ms)},{iso(one.end_ms)}," for one in rows]
        report = report_of(folder, start, end, config=configured(folder, *lines))
    found = {key: [round(hours * HOUR_MS) for hours in values] for key, values in hours_of(report).items()}
    for reserved, used, idle, idle_held, unknown, _ in found.values():
        assert used + idle + unknown == reserved
        assert 0 <= idle_held <= idle
        assert min(used, unknown) >= 0
    again = Count(ticks, rows, start, end).sums
    assert found == {key: values for key, values in again.items() if any(values)}


def test_the_columns_are_there_without_rows(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, free()))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=configured(tmp_path))
    assert report.reservations is not None
    assert list(report.reservations.columns) == RESERVATION_COLUMNS
    assert "Nothing was reserved, and nothing used." in renderer("text")(report, Options())
