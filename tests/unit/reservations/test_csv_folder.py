"""A folder of reservations, one file for each Slurm job: what lies in it is read, passed over, or named in a line."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from gua_report.config import Reservations
from gua_report.live.cards_now import CardSeen
from gua_report.live.validation import Validation, check
from gua_report.reservations import csv_files
from gua_report.reservations.reservation import FOREVER_MS, JOB, MOST_LINES, Book
from gua_report.window import parse_zone
from gua_sample import safe_file
from gua_sample.processes import read_boot
from tests.bookings import HEADER, card, holder
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MONDAY_MS
from tests.odd_files import fifo

SECOND = MONDAY_MS // 1000


class Jobs:
    """A folder as prologs and epilogs leave it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(
        self, job: int, *cards: str, start: int = SECOND - 3600, end: int | None = None, user: str = "ada"
    ) -> Path:
        name = f"{job}-{start}.csv" if end is None else f"{job}-{start}-{end}.csv"
        rows = [f'{card},"{user}",{start},{"" if end is None else end},job {job}\n' for card in cards]
        return self.put(name, HEADER + "".join(rows))

    def put(self, name: str, content: str) -> Path:
        path = self.path / name
        path.write_text(content)
        return path

    def read(self, since_ms: int = 0) -> tuple[Book, list[str]]:
        said: list[str] = []
        book = Book(said.append)
        csv_files.read_folder(str(self.path), since_ms, parse_zone("UTC"), book)
        return book, said

    def check(self, *cards: CardSeen) -> tuple[list[Validation], list[str]]:
        said: list[str] = []
        config = CONFIG._replace(reservations=Reservations(folder=str(self.path)))
        found = check(list(cards), config, MONDAY_MS, said.append)
        return [found[one.card.facts.uuid] for one in cards], said


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    folder = tmp_path / "jobs"
    folder.mkdir()
    yield Jobs(folder)
    folder.chmod(0o755)


def test_each_file_is_read_and_tells_its_job(jobs: Jobs) -> None:
    running = jobs.begin(4711, "GPU-0", "GPU-1")
    jobs.begin(4712, "GPU-2", end=SECOND, user="Bob, the builder")
    jobs.put("by-hand.csv", HEADER + "3,carol,2026-11-16,,job interview\n")
    book, said = jobs.read()
    assert (said, book.is_complete) == ([], True)
    start = MONDAY_MS - HOUR_MS
    assert [one[:5] + one[7:8] for one in sorted(book.reservations)] == [
        ("3", "carol", MONDAY_MS, FOREVER_MS, "file", None),
        ("GPU-0", "ada", start, FOREVER_MS, JOB, "4711"),
        ("GPU-1", "ada", start, FOREVER_MS, JOB, "4711"),
        ("GPU-2", "Bob, the builder", start, MONDAY_MS, JOB, "4712"),
    ]
    assert {one.source for one in book.reservations if one.gpu == "GPU-1"} == {f"{running} line 3"}


def test_a_job_that_ended_before_the_window_is_not_even_opened(jobs: Jobs) -> None:
    (jobs.path / f"1-{SECOND - 100}-{SECOND - 1}.csv").mkdir()  # can't be read
    jobs.begin(2, "GPU-0", end=SECOND)
    for since_ms, count in ((MONDAY_MS - 1, 1), (MONDAY_MS, 0)):
        book, said = jobs.read(since_ms)
        assert (len(book.reservations), said) == (count, [])
    assert len(jobs.read(MONDAY_MS - 1001)[1]) == 1


def test_what_is_no_csv_file_is_passed_over(jobs: Jobs) -> None:
    for name in (".4711-1.csv.99", ".4711-1.csv", "README", "4711-1.csv~"):
        jobs.put(name, "nonsense")
    assert jobs.read()[1] == []


def test_a_folder_that_is_not_there_leaves_every_card_unknown(jobs: Jobs) -> None:
    jobs.path.rmdir()
    (found,), (line,) = jobs.check(card())
    assert line.startswith(f"reservations can't be read from {jobs.path} (No such file or directory): check ")
    assert found.text == "unknown: not in use, but reservations can't be read"
    jobs.path.write_text(HEADER)
    assert "Not a directory" in jobs.check(card())[1][0]
    jobs.path.unlink()
    jobs.path.mkdir()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_believed(jobs: Jobs, mode: int) -> None:
    jobs.begin(4711, "GPU-0")
    os.chown(jobs.path, -1, 12345) if os.geteuid() == 0 else None
    jobs.path.chmod(mode if os.geteuid() == 0 else mode | 0o002)
    (found,), (line,) = jobs.check(card())
    assert found.kind == "unknown"
    assert f"may write to {jobs.path}, and so reserve cards for anybody: " in line
    assert "chmod" not in line  # it may be anybody's folder, such as /tmp


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a device", "a folder", "huge", "binary", "empty", "no header"])
def test_a_file_that_is_none_takes_one_line_and_the_others_count(jobs: Jobs, kind: str) -> None:
    jobs.begin(1, "GPU-1")
    path = jobs.path / f"2-{SECOND}.csv"
    secret = jobs.path.parent / "secret"
    secret.write_text(HEADER + "GPU-0,eve,2026-01-01,,job 3\n")
    if kind == "a pipe":
        fifo(path)
    elif kind == "a link":
        path.symlink_to(secret)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.write_bytes({"binary": b"\xff\xfe\x00", "empty": b"", "no header": b"GPU-0,ada,1,,\n"}[kind])
    began = time.monotonic()
    found, said = jobs.check(card(0), card(1))
    assert time.monotonic() - began < 2
    assert len(said) == 1
    assert str(path) in said[0]
    assert [one.kind for one in found] == ["unknown", "unused"]  # the first may be reserved in that file


def test_a_name_that_steers_a_terminal_is_shown_as_it_is_spelled(jobs: Jobs) -> None:
    jobs.put("\x1b[2J\n.csv", "")
    (line,) = jobs.read()[1]
    assert line.isprintable()
    os.mkfifo(jobs.path / "\x1b]0;x.csv")
    assert all(line.isprintable() for line in jobs.read()[1])


def test_very_many_bad_files_take_a_few_lines(jobs: Jobs) -> None:
    for number in range(3 * MOST_LINES):
        jobs.put(f"{number}-1.csv", f"{HEADER}x,ada,1,,\nGPU-0,,1,,\n" if number % 2 else "")
    book, said = jobs.read()
    assert len(said) == MOST_LINES + 1
    assert said[-1] == f"{4 * MOST_LINES + MOST_LINES // 2 - MOST_LINES} more problems with files in {jobs.path}"
    assert not book.is_complete


def test_no_more_than_so_many_files_rows_and_bytes_are_read(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in range(30):
        jobs.begin(job, "GPU-0", start=SECOND + job, end=SECOND + 1000 + job)
    jobs.begin(99, "GPU-7")
    assert len(jobs.read()[0].reservations) == 31
    for name, most in (("MOST_NAMES", 20), ("MOST_FILES", 20), ("MOST_BYTES", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(csv_files, name, most)
            book, said = jobs.read()
        assert 0 < len(book.reservations) <= 21
        assert len(said) == 1
        assert said[0].startswith(f"{jobs.path} has more than is read (")
        assert said[0].endswith("remove old files; a card may be in those")
        assert not book.is_complete
    with monkeypatch.context() as patch:
        patch.setattr("gua_report.reservations.csv_files.MOST_ROWS", 3)
        book, said = jobs.read()
    assert ([one.job for one in book.reservations], len(said)) == (
        ["99", "29", "28"],
        1,
    )  # what matters most comes first


def test_a_file_that_vanishes_meanwhile_is_no_error_and_is_found_under_its_new_name(jobs: Jobs) -> None:
    early = jobs.begin(0, "GPU-9")
    running = jobs.begin(1, "GPU-0")
    jobs.begin(2, "GPU-1")
    gone = jobs.begin(3, "GPU-2")
    real, opened = safe_file.read_regular, []

    def read(path: str, most: int) -> bytes:
        opened.append(path)
        if path == str(gone) and gone.exists():
            gone.unlink()  # an administrator's rm
            early.rename(jobs.path / f"0-{SECOND - 3600}-{SECOND}.csv")  # which was read while the job ran
        if path == str(running) and running.exists():
            jobs.begin(1, "GPU-0", end=SECOND)  # an epilog's two steps, as one
            running.unlink()
        return real(path, most)

    with mock.patch.object(csv_files, "read_regular", read):
        book, said = jobs.read()
    assert (said, book.is_complete) == ([], True)
    found = sorted((one.gpu, one.end_ms) for one in book.reservations)
    assert found == [("GPU-0", MONDAY_MS), ("GPU-1", FOREVER_MS), ("GPU-9", FOREVER_MS)]
    assert opened.count(str(jobs.path / f"2-{SECOND - 3600}.csv")) == 1


def test_jobs_without_an_end_did_not_survive_a_reboot(jobs: Jobs) -> None:
    now = time.time_ns() // 1_000_000
    jobs.begin(1, "GPU-0", start=now // 1000 - 365 * 86400)
    jobs.begin(2, "GPU-1", start=now // 1000 - 5, end=now // 1000 - 4)
    for boot, is_over in ((read_boot().id, False), ("", False), ("another", True)):
        jobs.put(".boot", f"{boot}\n")
        open_end, ended = sorted(jobs.read()[0].reservations)
        assert (open_end.end_ms != FOREVER_MS) is is_over
        assert abs(open_end.end_ms - read_boot().time_ms) < 60_000 or not is_over
        assert ended.end_ms == (now // 1000 - 4) * 1000
    # By a clock that was set back meanwhile it begins after the boot: it still ends after it begins.
    jobs.begin(3, "GPU-2", start=now // 1000 + DAY_MS)
    late = next(one for one in jobs.read()[0].reservations if one.job == "3")
    assert late.end_ms == late.start_ms + 1


@pytest.mark.parametrize("content", ["x" * (2 << 20), "pipe", "folder"])
def test_a_boot_file_that_is_none_tells_nothing(jobs: Jobs, content: str) -> None:
    jobs.begin(1, "GPU-0")
    if content == "pipe":
        fifo(jobs.path / ".boot")
    elif content == "folder":
        (jobs.path / ".boot").mkdir()
    else:
        jobs.put(".boot", content)
    assert [one.end_ms for one in jobs.read()[0].reservations] == [FOREVER_MS]


@pytest.mark.parametrize(
    ("shown", "kind", "text"),
    [
        (card(), "unused", "allocated to ada (job 4711), not used"),
        (card(0, holder(memory_mib=20)), "unused", "allocated to ada (job 4711), no usage detected"),
        (card(0, holder(), state="active"), "confirmed", "in use by ada, confirmed: 5,000 MiB, 1 process"),
        (
            card(0, holder("bob"), state="active"),
            "unreserved",
            "in use WITHOUT RESERVATION by bob: PID 1 (python) 5,000 MiB; allocated to ada (job 4711)",
        ),
        (card(state="unknown"), "unknown", "unknown: the driver does not tell; allocated to ada (job 4711)"),
        (card(3), "available", "available"),
    ],
)
def test_a_card_that_is_allocated_says_to_whom_and_for_which_job(
    jobs: Jobs, shown: CardSeen, kind: str, text: str
) -> None:
    jobs.begin(4711, "GPU-0")
    jobs.begin(4000, "GPU-3", end=SECOND - 10)
    (found, _), said = jobs.check(shown, card(0) if shown == card(3) else card(3))
    assert (found.kind, found.text, said) == (kind, text, [])
    if kind == "unused":
        assert found.reserved_by == ["ada"]
        reservations = found.details["reservations"]
        times = {"from_ms": MONDAY_MS - HOUR_MS, "to_ms": None}
        told = {"type": "job", "note": "job 4711", "slurm_job": "4711", "heartbeat_ms": None}
        assert reservations == [{"user": "ada", **times, **told}]


def test_jobs_that_share_a_card_are_all_named_and_nobody_calls_it_reserved_twice(jobs: Jobs) -> None:
    jobs.begin(1, "GPU-0")
    jobs.begin(2, "GPU-0", user="bob")
    (found,), said = jobs.check(card())
    assert (found.text, said) == ("allocated to ada (job 1) and bob (job 2), not used", [])
    for job in range(3, 20):
        jobs.begin(job, "GPU-0")
    (found,), said = jobs.check(card())
    assert found.text.endswith(" and 9 more, not used")
    jobs.put("by-hand.csv", HEADER + "0,root,2026-01-01,,\n")
    (found,), said = jobs.check(card())
    assert found.text.endswith(" and 9 more and reserved by root, not used")
    assert len(said) == 6
    assert said[0].startswith("GPU 0 is reserved twice from ")


def test_slurm_knows_its_users_though_this_machine_may_not(jobs: Jobs) -> None:
    jobs.begin(1, "GPU-0", user="uid:54321")
    assert jobs.check(card())[1] == []
    jobs.begin(1, "GPU-9")
    assert jobs.check(card())[1] == [
        f"GPU-9 does not exist: reserved for ada in {jobs.path}/1-{SECOND - 3600}.csv line 2"
    ]


def test_a_card_that_the_prolog_could_not_tell_leaves_none_available(jobs: Jobs) -> None:
    jobs.begin(1, "unknown")
    (found,), (line,) = jobs.check(card())
    assert line.endswith("line 2: bad gpu 'unknown': expected the index of a card, or its uuid")
    assert found.kind == "unknown"
