"""Sources of reservations that are slow, endless or huge cost seconds and one line, and no card is called free."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gua_report.live.validation import UNUSED
from gua_sample.policy import UNKNOWN
from tests.bookings import HEADER
from tests.hostile_redis import BEHAVIOURS, MIB, PASSWORD, Behaviour, hostile_server
from tests.machine import SCRIPTS, Machine
from tests.odd_files import endless, fifo, folder

PID = os.getpid()
OWNER = "0,daemon,2026-01-01,,\n"
LONGEST_SECONDS = 40  # of which the start of Python and pandas is a part, on a machine that does other things too


# A small process in between: what a child of ours used would include what we use ourselves, up to its exec.
MEASURE = """
import json, resource, subprocess, sys
try:
    done = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=float(sys.argv[1]))
except subprocess.TimeoutExpired:
    sys.exit(f"took over {sys.argv[1]} s")
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stdout, done.stderr, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str
    cpu_seconds: float
    memory_mib: float

    def warnings(self) -> list[str]:
        return [line.partition("warning: ")[2] for line in self.stderr.splitlines()]


def run(machine: Machine, config: str, *command: str) -> Done:
    """Killed after LONGEST_SECONDS, so that a test fails instead of hanging."""
    (machine.folder / "gua.toml").write_text(config)
    options = ["--config", str(machine.folder / "gua.toml"), "--data-dir", str(machine.data_dir), "--json"]
    measure = [sys.executable, "-I", "-S", "-c", MEASURE, str(LONGEST_SECONDS)]
    whole = [*measure, str(SCRIPTS / command[0]), *command[1:], *options]
    done = subprocess.run(whole, env=machine.environment(), stdout=subprocess.PIPE, text=True, check=True)
    return Done(*json.loads(done.stdout))


def status(machine: Machine, config: str) -> tuple[Done, list[str]]:
    done = run(machine, config, "gua", "status")
    assert done.returncode == 0, done
    return done, [card["validation"]["kind"] for card in json.loads(done.stdout)["gpus"]]


# -- Redis


@pytest.mark.parametrize("behave", BEHAVIOURS)
def test_a_hostile_redis_costs_seconds_and_one_line_and_nothing_is_called_free_and_nobody_unreserved(
    machine: Machine, behave: Behaviour
) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.tick("--interval", "10m", clock_offset_ms=-600_000)
    machine.scenario.add_card()
    with hostile_server(behave) as server:
        config = f'[reservations]\nredis = "{server.url}"'
        now, kinds = status(machine, config)
        report = run(machine, config, "gua-report", "--since", "1h", "--section", "reservations")
    assert kinds == [UNKNOWN, UNKNOWN]
    assert report.returncode == 0, report
    found = json.loads(report.stdout)["reservations"]
    assert found["problems"] == report.warnings()
    assert [row["unreserved_hours"] for row in found["hours"]] in ([], [None])
    for done, most_mib in ((now, 100), (report, 300)):
        (line,) = done.warnings()
        assert line.startswith(f"reservations can't be read from {server.place} (")
        assert PASSWORD not in line
        assert line.isprintable()
        assert len(line) < 300
        assert done.memory_mib < most_mib
    assert server.bytes_sent < 128 * MIB  # what it was sent and did not read is in buffers of the kernel


# -- a file


def past(count: int) -> str:
    """Half an hour each on eight cards, one after the other, all long ago."""
    stamps = [f"2020-{1 + day // 28:02}-{1 + day % 28:02}T{hour:02}:" for day in range(336) for hour in range(24)]
    rows = []
    for number in range(count):
        stamp = stamps[number // 16 % len(stamps)]
        rows.append(
            f"{number % 8},u{number % 50},{stamp}{'00' if number % 16 < 8 else '30'},{stamp[:11]}23:59,n{number}"
        )
    return HEADER + OWNER + "\n".join(rows[: count - 1]) + "\n"


def long_notes(count: int) -> str:
    """Few rows of 100,000 bytes."""
    return HEADER + OWNER + f"1,daemon,2020-01-01,2020-01-02,{'x' * 99_970}\n" * (count // 1000)


def by_file(machine: Machine, text: str) -> str:
    path = machine.folder / "reservations.csv"
    path.write_text(text)
    return f'[reservations]\nfile = "{path}"'


def not_all(machine: Machine, rows: int) -> str:
    """The line about what was not read."""
    return (
        f"{machine.folder}/reservations.csv: only its first {rows:,} rows are read, as there are more than 100,000 or"
        " 16 MiB: take out those of the past; a card that these do not name may be reserved"
    )


@pytest.mark.parametrize(
    ("text", "rows"),
    [(past, 100_000), (long_notes, 168)],
)
def test_of_a_file_that_is_too_long_the_first_rows_count_and_the_rest_is_not_known(
    machine: Machine, text: Callable[[int], str], rows: int
) -> None:
    for _ in range(3):
        machine.scenario.add_card()
    done, kinds = status(machine, by_file(machine, text(1_000_000)))
    assert kinds == [UNUSED, UNKNOWN, UNKNOWN]
    assert done.warnings() == [not_all(machine, rows)]
    assert done.memory_mib < 200


def crowd(number: int) -> str:
    return f"{number % 2},{'daemon' if number % 4 < 2 else 'bin'},2026-01-01,,"


def strangers(number: int) -> str:
    return f"{number + 100},u{number},2026-01-01,,"


def nonsense(number: int) -> str:
    return f"{number},daemon,tomorrow,,"


@pytest.mark.parametrize(
    ("row", "lines", "last"),
    [
        (crowd, 6, "99,993 more reservations overlap"),
        (strangers, 42, "more users who have reserved cards are neither on this machine nor on a card"),
        (nonsense, 21, "more rows in "),
    ],
)
def test_as_many_rows_as_may_be_take_seconds_and_few_lines(
    machine: Machine, row: Callable[[int], str], lines: int, last: str
) -> None:
    machine.scenario.add_card()
    machine.scenario.add_card()
    without, _ = status(machine, by_file(machine, HEADER))
    text = HEADER + "\n".join(row(number) for number in range(100_000)) + "\n"
    done, _ = status(machine, by_file(machine, text))
    assert done.cpu_seconds - without.cpu_seconds < 6
    assert done.memory_mib < 300
    assert len(done.warnings()) == lines
    assert last in done.warnings()[-1]


def one_long_line(path: Path) -> None:
    path.touch()
    os.truncate(path, 4 << 30)


def columns(path: Path) -> None:
    path.write_text("," * 3_000_000 + "gpu\n")


@pytest.mark.parametrize("make", [fifo, endless, folder, one_long_line, columns])
def test_what_is_no_file_of_reservations_takes_one_line_and_is_not_waited_for(
    machine: Machine, make: Callable[[Path], None]
) -> None:
    machine.scenario.add_card()
    path = machine.folder / "reservations.csv"
    make(path)
    done, kinds = status(machine, f'[reservations]\nfile = "{path}"')
    assert kinds == [UNKNOWN]
    (line,) = done.warnings()
    assert str(path) in line
    assert len(line) < 300
    assert done.memory_mib < 200


def test_a_file_may_be_a_link(machine: Machine) -> None:
    machine.scenario.add_card()
    (machine.folder / "shared.csv").write_text(HEADER + OWNER)
    (machine.folder / "reservations.csv").symlink_to(machine.folder / "shared.csv")
    done, kinds = status(machine, f'[reservations]\nfile = "{machine.folder}/reservations.csv"')
    assert (kinds, done.warnings()) == ([UNUSED], [])
