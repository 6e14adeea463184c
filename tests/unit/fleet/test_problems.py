"""What goes wrong with a host is a line in the fleet's report, and never its end."""

import os
import re
import resource
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gua_report.fleet import executors
from gua_report.fleet.executors import map_in_children, work_on
from gua_report.fleet.fleet_tables import same_cards
from gua_report.fleet.host_files import MOST_FILES, HostFile
from gua_report.fleet.read_host import MOST_NAMES
from gua_report.fleet.sums import SumHosts
from gua_report.machine import child
from gua_report.machine.child import Message
from gua_report.render import Options, renderer
from gua_report.rollups.reader import Columns, Reader
from gua_report.summary.report import Report
from gua_report.ticks.coverage import LEFT_OUT, NOT_COLLECTED
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.policy import RULE
from tests.fleets import (
    END_MS,
    NOW_MS,
    PUBLISHED_MS,
    START_MS,
    EachFile,
    add_host,
    by_host,
    change,
    fleet_report,
    is_complete,
    make_fleet,
    problems,
)
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, held, hour, hours, report_of, window, write


def details(report: Report, host: str) -> str:
    assert report.fleet is not None
    rows = report.fleet.problems
    return "; ".join(rows[rows["host"] == host]["detail"])


def test_a_fleet_without_trouble_is_complete(tmp_path: Path) -> None:
    report = fleet_report(make_fleet(tmp_path, "small"))
    assert problems(report) == {}
    assert is_complete(report)


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "newer", "hostile", "link", "pipe"])
def test_a_file_that_can_not_be_read_costs_its_host_alone(tmp_path: Path, damage: str) -> None:
    make_fleet(tmp_path, "small")
    whole = fleet_report(tmp_path)
    path = add_host(tmp_path, "bad", "small")
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:9000])
    elif damage == "text":
        path.write_text("no database at all\n" * 1000)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "newer":
        change(path, "PRAGMA user_version = 99")
    elif damage == "hostile":
        change(path, "CREATE TRIGGER t AFTER INSERT ON word BEGIN SELECT 1; END")
    else:
        path.unlink()
        path.symlink_to(tmp_path / "small" / "rollups.sqlite") if damage == "link" else os.mkfifo(path)
    report = fleet_report(tmp_path)
    assert report.fleet is not None
    assert report.fleet.missing == ["bad"]
    assert problems(report) == {"bad": ["not usable"]}
    assert not is_complete(report)
    assert hours(report) == hours(whole)
    if damage == "newer":
        assert "upgrade gua" in details(report, "bad")
    if damage == "empty":
        assert details(report, "bad") == "its file is empty, probably a copy that failed: collect it again"


def test_a_host_without_a_file_is_named(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    (tmp_path / "fresh").mkdir()
    config = CONFIG._replace(hosts={"vision": ("small", "never", "gpu*")})
    report = fleet_report(tmp_path, config)
    assert "nothing was collected" in details(report, "fresh")
    assert "in [hosts]" in details(report, "never")
    assert report.fleet is not None
    assert (report.fleet.expected, report.fleet.missing) == (3, ["fresh", "never"])


def test_missing_hosts_are_in_the_first_lines_of_every_format(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    for number in range(12):
        (tmp_path / f"gpu{number:02}").mkdir()
    report = fleet_report(tmp_path)
    assert "nothing was collected" in details(report, "gpu00")
    line = "Not in this report: 12 of 13 hosts"
    for name in ("text", "markdown", "html"):
        text = renderer(name)(report, Options())
        assert line in text
        assert text.index(line) < text.index("Headline")
    assert line in renderer("text")(report, Options(brief=True))


def test_a_late_host_has_a_gap_of_its_own_kind(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1", "small")
    change(tmp_path / "lab1" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-17'")
    report = fleet_report(tmp_path)
    assert problems(report) == {"lab1": ["late"]}
    assert "1 day not collected" in details(report, "lab1")
    assert report.fleet is not None
    assert report.fleet.late == ["lab1"]
    gaps = report.gaps[(report.gaps["host"] == "lab1") & (report.gaps["kind"] == NOT_COLLECTED)]
    ((start_ms, end_ms),) = gaps[["start_ms", "end_ms"]].to_numpy().tolist()
    assert 0 <= start_ms - (END_MS - DAY_MS) < 20_000, "to there the last tick before reaches"
    assert end_ms == END_MS
    assert not is_complete(report)


def test_before_six_in_the_morning_yesterday_is_not_missed_yet(tmp_path: Path) -> None:
    """The window ends a day earlier then, until all hosts have that day."""
    make_fleet(tmp_path, "lab1", "lab2")
    now_ms = END_MS + 5 * HOUR_MS
    assert fleet_report(tmp_path, now_ms=now_ms, end_ms=now_ms).window.end_ms == END_MS
    change(tmp_path / "lab1" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-17'")
    report = fleet_report(tmp_path, now_ms=now_ms, end_ms=now_ms)
    assert (problems(report), report.window.end_ms) == ({}, END_MS - DAY_MS)
    # Whoever asks for that day is told who lacks it.
    assert problems(fleet_report(tmp_path, now_ms=now_ms, end="2026-11-17")) == {"lab1": ["late"]}


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE day SET utilization_percent = 25 WHERE day = '2026-11-16'", "rolled up under other thresholds"),
        (f"UPDATE day SET rule = {RULE - 1} WHERE day = '2026-11-16'", "rolled up by an older rule"),
        (f"UPDATE day SET rule = {RULE + 1} WHERE day = '2026-11-16'", "rolled up by a newer rule (upgrade gua here)"),
    ],
)
def test_days_by_other_rules_are_left_out_and_named(tmp_path: Path, statement: str, reason: str) -> None:
    change(make_fleet(tmp_path, "lab1") / "lab1" / "rollups.sqlite", statement)
    report = fleet_report(tmp_path)
    assert details(report, "lab1") == f"left out: 2026-11-16, {reason}"
    assert not is_complete(report)
    second = report_of(make_fleet(tmp_path / "whole", "lab1") / "lab1", START_MS + DAY_MS, END_MS)
    assert hours(report) == pytest.approx(hours(second))
    left_out = report.gaps[report.gaps["kind"] == LEFT_OUT]
    assert left_out[["start_ms", "end_ms"]].to_numpy().tolist() == [[START_MS, START_MS + DAY_MS]]


def test_a_clock_that_is_off_is_a_warning(tmp_path: Path) -> None:
    add_host(tmp_path, "ahead", "small", published_ms=NOW_MS + 6 * MINUTE_MS)
    path = add_host(tmp_path, "behind", "lab1")
    os.utime(path, (END_MS / 1000, END_MS / 1000))  # its newest tick is half an hour after that
    path = add_host(tmp_path, "right", "lab2", published_ms=NOW_MS + 4 * MINUTE_MS, newest_tick_ms=NOW_MS)
    os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    report = fleet_report(tmp_path)
    assert problems(report) == {"ahead": ["clock"], "behind": ["clock"]}
    assert "6 minutes from now" in details(report, "ahead")
    assert "30 minutes after its file" in details(report, "behind")
    assert is_complete(report)


def test_a_card_on_two_hosts_at_a_time_is_named_at_both(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab2")
    add_host(tmp_path, "one", "lab1")
    path = add_host(tmp_path, "other", "lab1", machine="f" * 32)
    own = report_of(tmp_path / "one", START_MS, END_MS)
    uuid = own.gpus["uuid"][0]
    change(path, f"UPDATE card SET uuid = 'GPU-other' WHERE uuid != '{uuid}'")
    report = fleet_report(tmp_path)
    assert problems(report) == {"one": ["same card"], "other": ["same card"]}
    assert f"1 card of it ({uuid}) claimed by other too" in details(report, "one")
    assert is_complete(report)
    hours = report.gpus.set_index(["host", "uuid"])["gpu_hours"]
    assert hours["one", uuid] == hours["other", uuid] == pytest.approx(own.gpus["gpu_hours"][0])


def test_a_card_that_was_moved_to_another_host_is_no_trouble(tmp_path: Path) -> None:
    for number, (host, day) in enumerate((("one", "2026-11-16"), ("other", "2026-11-17"))):
        path = add_host(tmp_path, host, "lab1", machine=f"{number:032x}")
        change(path, f"DELETE FROM card_hour WHERE day_id = (SELECT id FROM day WHERE day = '{day}')")
    assert problems(fleet_report(tmp_path)) == {}


def test_a_reinstalled_host_counts_apart_from_what_it_was(tmp_path: Path) -> None:
    add_host(tmp_path, "gpu07", "lab1")
    add_host(tmp_path, "gpu07", "small", file="rollups-2025.sqlite")
    report = fleet_report(tmp_path, CONFIG._replace(hosts={"vision": ("gpu07",)}), by="group")
    assert problems(report) == {}
    assert report.fleet is not None
    assert report.fleet.hosts["host"].tolist() == ["gpu07", "gpu07~2025"]
    assert report.fleet.hosts["groups"].tolist() == ["vision", "vision"]
    assert (report.fleet.expected, report.fleet.missing) == (1, [])


def test_a_reinstalled_host_has_its_free_cards_once_beside_a_host_that_is_left_out(tmp_path: Path) -> None:
    """The others are read again then: not file by file."""
    add_host(tmp_path, "gpu07", "lab1")
    add_host(tmp_path, "gpu07", "small", file="rollups-2025.sqlite")
    whole = fleet_report(tmp_path)
    change(add_host(tmp_path, "bad", "lab2"), f"UPDATE card SET gpu_index = {1 << 60}")
    report = fleet_report(tmp_path)
    assert problems(report) == {"bad": ["not usable"]}
    pd.testing.assert_frame_equal(report.heatmap, whole.heatmap)


def test_a_file_without_a_day_in_the_window_is_not_missed(tmp_path: Path) -> None:
    add_host(tmp_path, "gpu07", "lab1")
    path = add_host(tmp_path, "gpu07", "small", file="rollups-2025.sqlite")
    change(path, "DELETE FROM day WHERE day = '2026-11-17'")
    change(add_host(tmp_path, "new", "lab2"), "DELETE FROM day WHERE day = '2026-11-16'")
    second = fleet_report(tmp_path, start_ms=START_MS + DAY_MS)
    assert second.fleet is not None
    assert second.fleet.hosts["host"].tolist() == ["gpu07", "new"]
    assert (is_complete(second), problems(second)) == (True, {})  # an earlier file is never late
    first = fleet_report(tmp_path, end_ms=START_MS + DAY_MS)
    assert problems(first) == {"new": ["no day yet"]}
    assert is_complete(first)
    with pytest.raises(NothingToReport, match="nothing of any host from 2026-11-14"):
        fleet_report(tmp_path, start_ms=START_MS - 2 * DAY_MS, end_ms=START_MS - DAY_MS)


def test_a_plain_copy_is_used_with_a_line(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    whole = fleet_report(tmp_path)
    change(tmp_path / "small" / "rollups.sqlite", "DROP TABLE meta")
    report = fleet_report(tmp_path)
    assert problems(report) == {"small": ["plain copy"]}
    assert hours(report) == hours(whole)


@pytest.mark.parametrize("key", ["host", "machine", "published_ms"])
def test_a_file_that_says_nonsense_of_itself_is_not_used(tmp_path: Path, key: str) -> None:
    make_fleet(tmp_path, "small", "lab1")
    change(tmp_path / "lab1" / "rollups.sqlite", f"UPDATE meta SET value = 'soon\n' WHERE key = '{key}'")
    report = fleet_report(tmp_path)
    assert problems(report) == {"lab1": ["not usable"]}
    assert key in details(report, "lab1")


def test_a_host_with_very_many_files_is_left_out(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    (tmp_path / "many").mkdir()
    for number in range(MOST_FILES + 1):
        (tmp_path / "many" / f"rollups-{number}.sqlite").touch()
    report = fleet_report(tmp_path)
    assert problems(report) == {"many": ["not usable"]}
    assert f"{MOST_FILES + 1} files" in details(report, "many")


def test_cards_that_could_not_tell_their_uuid_are_of_their_host(tmp_path: Path) -> None:
    for host in ("one", "other"):
        change(add_host(tmp_path, host, "small", machine=host.ljust(32, "0").encode().hex()[:32]), *RENAMED)
    assert problems(fleet_report(tmp_path)) == {}


RENAMED = ("UPDATE card SET uuid = 'unknown:index-' || id", "DELETE FROM unpartitioned_hour")


def test_what_is_beside_a_file_is_not_read(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    whole = fleet_report(tmp_path)
    write(tmp_path / "small", hour(held(index=5), start_ms=START_MS + DAY_MS))  # ticks of that day, which differ
    (tmp_path / "small" / "containers.json").write_text("nonsense")
    report = fleet_report(tmp_path)
    assert hours(report) == hours(whole)
    assert problems(report) == {}


def test_a_hostile_name_can_not_be_that_of_another_host(tmp_path: Path) -> None:
    change(make_fleet(tmp_path, "small") / "small" / "rollups.sqlite", SPOOFED)
    names = fleet_report(tmp_path).identities["identity"].tolist()
    assert "uid:4711@lab1@small" in names


SPOOFED = "UPDATE word SET text = 'uid:4711@lab1' WHERE text = 'uid:4711'"


def test_names_of_folders_that_no_host_has_are_not_used(tmp_path: Path) -> None:
    make_fleet(tmp_path, "small")
    for name in ("evil\x1b[2J", "small~2025", "x" * 120, ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "small")
    report = fleet_report(tmp_path)
    assert report.fleet is not None
    assert len(report.fleet.missing) == 4
    assert "\x1b" not in "".join(report.fleet.missing)


def test_hosts_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    report = fleet_report(make_fleet(tmp_path), CONFIG._replace(hosts={"gone": ("lab3", "zoo")}), pattern="lab*")
    assert report.fleet is not None
    assert report.fleet.hosts["host"].tolist() == ["lab1", "lab2"]
    assert report.fleet.missing == ["lab3"]


def test_on_the_first_day_of_all_hosts_there_is_nothing_to_report_and_nothing_wrong(tmp_path: Path) -> None:
    for host in ("lab1", "lab2"):
        change(add_host(tmp_path, host, "small"), "DELETE FROM day")
    with pytest.raises(NothingToReport, match=r"no day of any host is over yet: .* tomorrow"):
        fleet_report(tmp_path)
    add_host(tmp_path, "bad", "small").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match=r"nothing can be used: bad: .*, lab1: .*, lab2: "):
        fleet_report(tmp_path)


def test_nothing_to_read_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match="no folder"):
        fleet_report(tmp_path / "missing")
    with pytest.raises(NothingToReport, match="no host"):
        fleet_report(tmp_path)
    add_host(tmp_path, "bad", "small").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="nothing can be used: bad"):
        fleet_report(tmp_path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_no_hosts_file_is_copied_to_be_read(tmp_path: Path, suffix: str) -> None:
    """Its reader may be killed, and then a copy of up to a gigabyte would be left: by each report of such a host."""
    make_fleet(tmp_path, "lab1")
    path = add_host(tmp_path, "bad", "small")
    content = path.read_bytes()
    if suffix:
        path.with_name(path.name + suffix).write_bytes(b"x" * 1000)
    else:
        path.write_bytes(content[:18] + b"\2\2" + content[20:])  # a write-ahead log is announced
    assert "has a log or a journal" in details(fleet_report(tmp_path), "bad")
    asked = window(START_MS, END_MS)
    with pytest.raises(StoreError, match="has a log or a journal"):  # it may have come after the first look
        SumHosts(asked, asked, CONFIG, (), {"bad": "2026-11-17"}).read(0, HostFile("bad", "bad", str(path)))


def test_a_fleet_of_clones_takes_no_more_memory_than_others() -> None:
    hosts = [f"host{number:04}" for number in range(2000)]
    rows = [(host, f"GPU-{card}", START_MS, END_MS) for host in hosts for card in range(8)]
    tracemalloc.start()
    found = same_cards(pd.DataFrame(rows, columns=["host", "uuid", "start_ms", "end_ms"]))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert [problem.host for problem in found] == hosts


class Trouble(EachFile):
    """Work that ends its child, hangs or takes all memory at some hosts."""

    def find(self, file: HostFile) -> Any:
        if file.host == "kill":
            os.kill(os.getpid(), 9)
        if file.host == "once" and not os.path.exists(file.path):
            Path(file.path).touch()
            os.kill(os.getpid(), 9)
        if file.host == "mute":
            os._exit(0)
        if file.host == "hang":
            time.sleep(60)
        if "nap" in file.host:
            time.sleep(0.2 * len(file.host.split()))
        if file.host == "eat":
            return bytearray(64 << 30)
        if file.host == "bug":
            raise RecursionError("deep" * 1000)
        return file.host


@pytest.mark.parametrize("together", [1, 4, 16])
def test_what_ends_a_child_costs_that_host_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(executors, "SECONDS", 0.5)
    monkeypatch.setattr(child, "STALLED_SECONDS", 0.1)  # of a child that has all the time it needs
    hosts = ["a", "once", "b", "kill", "c", "hang", "d", "eat", "e", "bug", "f"]
    files = [HostFile(host, host, str(tmp_path / host)) for host in hosts]
    found, problems = by_host(map_in_children(files, Trouble(), together, 2))
    assert found == {host: host for host in ("a", "b", "once", "c", "d", "e", "f")}
    assert "ended early" in problems["kill"]
    assert "timed out" in problems["hang"]
    assert "memory" in problems["eat"]
    assert "RecursionError" in problems["bug"]
    assert len(problems["bug"]) == executors.MOST_PROBLEM_BYTES  # it may quote any name


class Hog(EachFile):
    """Work that leaves no memory to those after one host."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def find(self, file: HostFile) -> Any:
        if file.host != "hog":
            return len(bytearray(8 << 20))
        with suppress(MemoryError):
            while True:
                self.kept.append(bytearray(1 << 20))
        return len(self.kept.pop())


def test_time_and_memory_that_another_host_takes_are_not_held_against_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "SECONDS", 1.0)
    monkeypatch.setattr(executors, "MORE_MEMORY_BYTES", 64 << 20)
    works = {Trouble(): ["very long nap", "another long nap"], Hog(): ["hog", "modest", "b"]}
    for work, hosts in works.items():
        found, problems = by_host(map_in_children([HostFile(host, host, host) for host in hosts], work, 16))
        assert (sorted(found), problems) == (sorted(hosts), {})


def test_days_are_not_left_out_for_want_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def holds(reader: Reader) -> Columns:
        monkeypatch.undo()
        raise MemoryError

    make_fleet(tmp_path, "small")
    monkeypatch.setattr(Reader, "holds", holds)
    with pytest.raises(StoreError, match="more memory than that of any host"):
        fleet_report(tmp_path)


def test_two_threads_of_a_worker_leave_its_limit_as_it_was() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    files = [[HostFile(host, host, host)] for host in ("nap", "long nap")]
    tasks = [threading.Thread(target=executors._work_on_cluster, args=(own, Trouble())) for own in files]
    try:
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        assert resource.getrlimit(resource.RLIMIT_AS) == before
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_what_a_child_answers_is_of_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_over(files: list[HostFile], work: Any) -> Iterator[Message]:
        yield executors.BEGUN, b""
        yield from [(executors.DONE, work_on(files, work))] * (4 if files[0].host == "b" else 1)

    monkeypatch.setattr(executors, "_work_in_child", taken_over)
    files = [HostFile(host, host, host) for host in ("a", "b", "c", "mute", "d")]
    found, problems = by_host(map_in_children(files, Trouble(), 1, 1))
    assert (found, [*problems]) == ({host: host for host in "abcd"}, ["mute"])


def test_a_file_with_more_names_than_any_host_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "MOST_ANSWER_BYTES", 1000)
    with pytest.raises(StoreError, match="more people and cards than any host"):
        fleet_report(make_fleet(tmp_path, "small"))


@pytest.mark.parametrize("what", ["people", "cards", "days"])
def test_a_host_with_more_names_than_any_costs_itself_alone(tmp_path: Path, what: str) -> None:
    """The others would pay for them: all are kept by the machine that reports."""
    make_fleet(tmp_path, "small")
    path = add_host(tmp_path, "bad", "lab1")
    numbers = f"WITH RECURSIVE i(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM i WHERE n < {1000 + MOST_NAMES})"
    day = START_MS // DAY_MS
    if what == "people":
        change(path, f"INSERT INTO word {numbers} SELECT n, 'person' || n FROM i")
        change(path, f"INSERT INTO identity_hour {numbers} SELECT {day}, 5, 1, n, 1, 1, NULL FROM i")
    elif what == "days":
        same = "unixepoch'), 1, n, 1, 1, 1, 1, 1, 1, 1, NULL, NULL"
        many = numbers.replace(str(1000 + MOST_NAMES), str(START_MS // DAY_MS - 1)).replace("1000", "1", 1)
        change(path, f"INSERT INTO day {many} SELECT n, date(n * 86400, '{same} FROM i")
    else:
        change(path, f"INSERT INTO unpartitioned_hour {numbers} SELECT {day}, 5, 'GPU-' || n, 1 FROM i")
    report = fleet_report(tmp_path)
    assert problems(report) == {"bad": ["not usable"]}
    assert re.search("more people and cards|holds [0-9,]+ days", details(report, "bad"))


@pytest.mark.parametrize("value", [17, "x", [], [[], {}], [["small", 1, 2]], {"a": 1}])
def test_what_a_child_sends_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    make_fleet(tmp_path, "small")
    monkeypatch.setattr(SumHosts, "combine", lambda *_: value)
    with pytest.raises(StoreError, match="nonsense"):
        fleet_report(tmp_path)


def test_a_host_whose_sums_make_no_sense_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_fleet(tmp_path)
    combine = SumHosts.combine

    def combined(work: SumHosts, hosts: Any) -> Any:
        return [] if "small" in [host.file.host for host in hosts] else combine(work, hosts)

    monkeypatch.setattr(SumHosts, "combine", combined)
    report = fleet_report(tmp_path)
    assert report.fleet
    assert (report.fleet.missing, report.fleet.hosts["host"].tolist()) == (["small"], ["lab1", "lab2"])


def test_no_host_can_take_energy_from_others(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1")
    whole = fleet_report(tmp_path)
    change(add_host(tmp_path, "bad", "lab2"), "UPDATE card_hour SET energy_joules = -1000")
    report = fleet_report(tmp_path)
    assert problems(report) == {"bad": ["not usable"]}
    assert report.capacity["energy_kwh"].tolist() == pytest.approx(whole.capacity["energy_kwh"].tolist())


def leave_stamp(folder: Path, asked_ms: int) -> Path:
    """The time at which a collector asked for a file that was not there yet, as gua-collect leaves it."""
    path = folder / ".before"
    path.touch()
    os.utime(path, (asked_ms / 1000, asked_ms / 1000))
    return path


def test_a_clock_that_is_behind_is_a_warning_if_a_collector_had_asked_meanwhile(tmp_path: Path) -> None:
    for number, (host, minutes) in enumerate((("behind", 143), ("little", 4), ("right", -60))):
        path = add_host(tmp_path, host, "small", machine=f"{number:032x}")
        change(path, *RENAMED)
        leave_stamp(path.parent, PUBLISHED_MS + minutes * MINUTE_MS)
    report = fleet_report(tmp_path)
    assert problems(report) == {"behind": ["clock"]}
    assert details(report, "behind") == (
        "the clock is off by over five minutes: it published its file at least 143 minutes later than it says"
    )
    assert is_complete(report)


def test_when_a_collector_had_asked_tells_nothing_of_earlier_files_and_plain_copies(tmp_path: Path) -> None:
    path = add_host(tmp_path, "gpu07", "lab1", published_ms=NOW_MS)
    add_host(tmp_path, "gpu07", "small", file="rollups-until-2026-11-15.sqlite")
    leave_stamp(path.parent, NOW_MS)
    change(add_host(tmp_path, "plain", "lab2"), "DROP TABLE meta")
    leave_stamp(tmp_path / "plain", NOW_MS)
    assert problems(fleet_report(tmp_path)) == {"gpu07": ["stopped"], "plain": ["plain copy"]}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "text"])
def test_a_stamp_that_no_collector_left_is_passed_over(tmp_path: Path, kind: str) -> None:
    path = add_host(tmp_path, "small")
    stamp = leave_stamp(path.parent, PUBLISHED_MS + HOUR_MS)
    if kind == "text":
        stamp.write_text("x")
    else:
        stamp.rename(path.parent / "elsewhere")
        if kind == "link":
            stamp.symlink_to("elsewhere")
        else:
            os.mkfifo(stamp) if kind == "pipe" else stamp.mkdir()
    assert problems(fleet_report(tmp_path)) == {}


def test_an_earlier_file_of_a_host_may_be_of_the_same_machine(tmp_path: Path) -> None:
    """One whose history was lost, not its system. That of another host may not."""
    add_host(tmp_path, "gpu07", "lab1")
    change(add_host(tmp_path, "gpu07", "lab2", file="rollups-2025.sqlite", machine=f"{1:032x}"))
    assert problems(fleet_report(tmp_path)) == {}
    add_host(tmp_path, "other", "small", machine=f"{1:032x}")
    report = fleet_report(tmp_path)
    assert problems(report) == {name: ["same machine"] for name in ("gpu07", "gpu07~2025", "other")}
    assert details(report, "other") == "the same machine as gpu07~2025, gpu07"
    assert is_complete(report)
