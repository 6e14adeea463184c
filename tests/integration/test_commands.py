"""The commands as a person types them: help, versions, mistakes, and what they import."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import gua_report
from gua_sample import __version__
from tests.machine import SCRIPTS, Machine, call, complaint, one_line
from tests.verbs import Done, run


def start(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a shell does; for a report, that takes three times as long as `tests.verbs.run`."""
    command = [str(SCRIPTS / name), *arguments]
    return call(command, env=os.environ | variables)


@pytest.mark.parametrize(
    "command",
    [
        *("gua-sample", "gua-report", "gua"),
        *(f"gua {verb}" for verb in ("demo", "sample", "mail", "remind", "hook", "doctor", "status", "free")),
        *("gua import", "gua export"),
    ],
)
def test_help_has_examples_and_fits_a_narrow_terminal(command: str) -> None:
    done = start(*command.split(), "--help", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "examples" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize("command", [["gua-sample", "--version"], ["gua-report", "--version"], ["gua", "version"]])
def test_versions_are_told(command: list[str]) -> None:
    assert start(*command).stdout == f"{command[0]} {__version__}\n"


def test_an_unknown_verb_is_corrected() -> None:
    done = start("gua", "reprot")
    assert done.returncode == 2
    assert done.stderr == "gua: error: unknown verb 'reprot': did you mean report?\n"
    for verb in ("daemon", "start", "stop"):
        assert start("gua", verb).stderr.startswith(f"gua: error: no verb '{verb}': gua-sample is run by a timer: ")
    assert start("gua", "enroll").stderr.startswith("gua: error: no verb 'enroll': nothing is sent anywhere; ")
    assert start("gua", "zzz").stderr == "gua: error: unknown verb 'zzz' (see gua --help)\n"


def test_debug_shows_where_it_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    done = start("gua-sample", "--data-dir", str(tmp_path / "data"), "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_simulated_ticks_are_taken_now_and_follow_from_the_seed(tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    uuids = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        done = start("gua-sample", "--simulate", seed, "--data-dir", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, "")
        (path,) = (tmp_path / name / "samples").iterdir()
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT ts_ms, gpu_uuid FROM card_ticks").fetchall()
        connection.close()
        assert len(rows) == 8
        assert before_ms <= rows[0][0] <= time.time_ns() // 1_000_000
        uuids.append({row[1] for row in rows})
    assert uuids[0] == uuids[1]
    assert uuids[0] != uuids[2]


def test_a_tick_imports_nothing_that_it_does_not_need(machine: Machine) -> None:
    """Imports are most of what a tick costs, and it runs 2,880 times a day."""

    # A run in a unit looks for one before it, of its own name, that can't be killed. Outside of a unit, that may be any
    # process that another test has just killed: so this one has a name that no other has.
    script = machine.folder / "gua-imports"
    shutil.copy(SCRIPTS / "gua-sample", script)

    def imported(*command: str) -> set[str]:
        variables = {"RUNTIME_DIRECTORY": str(machine.folder), "PYTHONPROFILEIMPORTTIME": "1"}
        done = call(command, env=machine.environment() | variables)
        assert done.returncode == 0, done.stderr
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}

    machine.scenario.add_card(compute=[(os.getpid(), 100)])
    sample = (str(script), "--data-dir", str(machine.data_dir))
    imported(*sample)  # compiles them, and looks at a cgroup for the first time
    ours = imported(*sample) - imported(sys.executable, "-c", "import pynvml, sqlite3")
    others = {name for name in ours if not name.startswith("gua_sample")}
    others.discard("gc")  # a part of the interpreter, which a tick turns off: that saves more than a module costs
    harmless = "__future__ argparse gettext locale typing _typing pwd fcntl copyreg annotationlib"
    assert others <= {*harmless.split(" ")}
    assert "gua_sample.simulate" not in ours
    assert "gua_sample.containers" not in ours


@pytest.mark.parametrize("command", [["gua-report", "--help"], ["gua", "--help"], ["gua", "version"]])
def test_pandas_is_not_imported_to_show_help(command: list[str]) -> None:
    script = str(SCRIPTS / command[0])
    done = call([sys.executable, "-X", "importtime", script, *command[1:]], check=True)
    assert "pandas" not in done.stderr


@pytest.fixture
def holding(machine: Machine) -> Machine:
    """A machine after a tick of 20 s ago, at which this process held its card."""
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick(clock_offset_ms=-20_000)
    return machine


def report(machine: Machine, *arguments: str) -> Done:
    return run("gua-report", "--data-dir", str(machine.data_dir), *arguments)


def test_the_report_tells_the_states_of_what_was_sampled(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(os.getpid(), 4000)])
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.scenario.add_card()
    machine.scenario.add_card().error("nvmlDeviceGetHandleByIndex_v2", 15)
    mig = machine.scenario.add_card()
    mig.add_mig()
    mig.add_mig(compute=[(os.getpid(), 4000)])
    machine.tick("--interval", "30s", clock_offset_ms=-20_000)
    done = report(machine, "--json", "--since", "2000-01-01")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    shares = [
        {state: value["share"] for state, value in gpu["states"].items() if value["share"]} for gpu in found["gpus"]
    ]
    assert shares == [{state: 1} for state in ("active", "idle-held", "truly-idle", "unknown", "truly-idle", "unknown")]
    hours = found["coverage"]["observed_seconds"] / 3600
    assert sum(gpu["gpu_hours"] for gpu in found["gpus"]) == pytest.approx((4 + 2 / 7) * hours, abs=0.0004)
    assert found["capacity"]["unpartitioned"]["gpu_hours"] == pytest.approx(5 / 7 * hours, abs=0.0001)
    (episode,) = found["episodes"]
    assert (episode["pid"], episode["gpu_index"], episode["ongoing"]) == (os.getpid(), 1, True)
    # The tick stands for 30 s, not all of which are over.
    assert episode["end"] == found["window"]["to"]
    assert datetime.fromisoformat(found["window"]["to"]) <= datetime.now(timezone.utc)


def test_no_window_ends_in_the_future(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    for minutes in (40, 20, 0):
        machine.tick("--interval", "20m", clock_offset_ms=-60_000 * minutes)
    next_week = (datetime.now(timezone.utc) + timedelta(days=7)).isoformat()
    found = json.loads(report(machine, "--json", "--since", "8d", "--to", next_week).stdout)
    assert datetime.fromisoformat(found["window"]["to"]) <= datetime.now(timezone.utc)
    assert found["episodes"][0]["end"] == found["window"]["to"] == found["requested_window"]["to"]
    assert found["coverage"]["share"] > 0.999
    assert "to have stopped" not in report(machine, "--since", "8d", "--to", next_week).stdout
    built = gua_report.report("8d", end=next_week, data_dir=str(machine.data_dir), config="/dev/null")
    assert built.window.end_ms <= time.time_ns() // 1_000_000


def test_a_report_may_be_sent_to_standard_output_by_its_name(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    for name in ("-", "/dev/stdout"):
        words = ("--section", "gpus", "--format", "csv", "-o", name)
        done = start("gua-report", "--data-dir", str(machine.data_dir), *words)  # to a pipe
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["uuid", machine.cards()[0]["gpu_uuid"]]
    assert not Path("-").exists()


def test_the_report_is_written_to_a_file_whole_and_readable(holding: Machine) -> None:
    target = holding.folder / "report.md"
    done = report(holding, "--format", "markdown", "-o", str(target))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "idle-held" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert sorted(os.listdir(holding.folder)) == ["data", "report.md", "scenario"]
    done = report(holding, "-o", str(holding.folder / "nowhere" / "x"))
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert report(holding, "-o", "/dev/full").returncode == 1
    with open("/dev/full", "w") as full:
        command = [f"{SCRIPTS}/gua-report", "--data-dir", str(holding.data_dir)]
        assert subprocess.run(command, stdout=full, check=False).returncode == 1


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_where_the_output_is_not_utf_8_it_is_ascii(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    variables = {"PYTHONIOENCODING": encoding}
    data = ["--data-dir", str(tmp_path / "lab"), "--from", "2026-11-10", "--to", "2026-11-11"]
    start("gua", "demo", "--days", "2", "--keep", str(tmp_path / "lab"))
    shown = start("gua-report", *data, **variables).stdout
    assert "idle-held" in shown
    assert shown.isascii()
    assert "\\u" not in shown
    mail = start("gua", "mail", "--dry-run", "--data-dir", str(tmp_path / "lab"), **variables).stdout
    assert mail.isascii()
    assert "\\x" not in mail
    assert "\\u" not in mail
    start("gua-report", *data, "-o", str(file), **variables)  # a file is always UTF-8
    assert not file.read_text(encoding="utf-8").isascii()


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["gua", "report", "--interval", "30s"], "--interval is not needed: it is recorded with each tick"),
        (["gua", "report", "--db", "gua.db"], "gua import FILE"),
        (["gua", "demo", "--ticks=3"], "--ticks is not needed: --days N says"),
        (["gua", "doctor", "--db", "gua.db"], "gua import FILE"),
        (["gua", "status", "-l", "1"], "-l is nvidia-smi's: give --watch"),
        (["gua", "remind", "--dry-run"], "--dry-run is not needed: nothing is sent without --send"),
    ],
)
def test_options_of_other_tools_and_verbs_get_a_hint(command: list[str], hint: str) -> None:
    done = start(*command)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert hint in done.stderr


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
def test_a_report_is_in_colour_on_a_terminal_or_if_it_is_asked_for(holding: Machine) -> None:
    command = f"'{SCRIPTS}/gua-report' --data-dir {holding.data_dir}"
    for variables, expected in ({}, True), ({"NO_COLOR": "1"}, False):
        terminal = call(["script", "-qec", command, "/dev/null"], env=os.environ | variables, check=True)
        assert ("\x1b[1m" in terminal.stdout) == expected
    assert "\x1b[33m" in report(holding, "--color", "always").stdout
    attention = report(holding, "--color", "always", "--quiet-if-clean", "1s").stdout
    assert attention.startswith("\x1b[33mTo act on: ")
    plain = report(holding)  # in a pipe
    assert ("\x1b" in plain.stdout, plain.stderr) == (False, "")
    assert max(len(line) for line in plain.stdout.splitlines()) <= 78
    assert report(holding, "--ascii").stdout.isascii()


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
@pytest.mark.parametrize(("columns", "expected"), [(70, 70), (100, 100), (300, 120)])
def test_a_report_uses_the_width_of_a_terminal_up_to_120_columns(machine: Machine, columns: int, expected: int) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    for minutes in range(12, 0, -1):  # before, there is no headline
        machine.tick("--interval", "1m", clock_offset_ms=-60_000 * minutes)
    command = f"stty cols {columns}; '{SCRIPTS}/gua-report' --data-dir {machine.data_dir} --color never"
    environment = dict(os.environ)  # readline, which pytest imports, adds a COLUMNS that Python does not know of
    ran = call(["script", "-qec", command, "/dev/null"], env=environment, check=True)
    shown = ran.stdout
    assert max(len(line) for line in shown.splitlines()) == expected  # the bar of the headline is as wide as it can be


@pytest.mark.parametrize("arguments", [[], ["1h"], ["-o", "report"]])
def test_a_report_is_quiet_if_there_is_nothing_to_act_on(holding: Machine, arguments: list[str]) -> None:
    target = holding.folder / "report"
    target.write_text("of last week")
    given = [str(target) if argument == "report" else argument for argument in arguments]
    done = report(holding, "--format", "json", "--quiet-if-clean", *given)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert target.read_text() == "of last week"


@pytest.mark.parametrize("name", ["text", "markdown", "json", "csv", "html"])
def test_a_report_says_what_there_is_to_act_on(holding: Machine, name: str) -> None:
    target = holding.folder / "report"
    done = report(holding, "--format", name, "--quiet-if-clean", "10s")
    assert (done.returncode, "csv is one table, here gpus" in done.stderr) == (0, name == "csv")
    assert ("1 idle-held episode of 10s or more" in done.stdout) == (name != "csv")
    assert report(holding, "--format", name, "--quiet-if-clean", "10s", "-o", str(target)).stdout == ""
    assert ("1 idle-held episode of 10s or more" in target.read_text()) == (name != "csv")


@pytest.mark.parametrize("options", [(), ("--quiet-if-clean",)])  # nor is it taken for a clean week
def test_a_report_without_data_says_what_to_check_and_exits_3(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "run gua doctor" in complaint(run("report", "--data-dir", tmp_path, *options), 3)
    assert list(tmp_path.iterdir()) == []  # reading creates nothing


@pytest.mark.parametrize("form", ["text", "markdown", "json", "csv", "html"])
def test_a_driver_that_never_worked_is_one_line_with_its_error_in_every_format(machine: Machine, form: str) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    machine.sample()
    done = report(machine, "--format", form)
    assert f"as the driver failed (driver_not_loaded): run gua doctor --data-dir {machine.data_dir}" in complaint(
        done, 3
    )


@pytest.mark.parametrize(
    "verb", [["report"], ["report", "--json"], ["export"], ["export", "--what", "rollups"], ["rollup", "--dry-run"]]
)
def test_a_folder_that_does_not_exist_is_not_called_empty(tmp_path: Path, verb: list[str]) -> None:
    folder = tmp_path / "nowhere"
    done = run(*verb, "--data-dir", folder)
    assert f"{folder} does not exist: give another --data-dir, or install gua first" in complaint(done, 3)
    folder.write_text("")
    done = run(*verb, "--data-dir", folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{folder} is no folder: give another --data-dir" in done.stderr


def test_a_report_skips_a_corrupt_partition_and_says_so(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick(clock_offset_ms=-86_400_000)
    machine.tick()
    first, second = machine.partitions()
    first.write_text("garbage, more than sixteen bytes of it")
    done = report(machine, "--since", "2d")
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert str(first) in done.stderr
    assert "skipped" in done.stdout
    assert first.read_text().startswith("garbage")
    # Nor is it taken for a clean week.
    assert report(machine, "--quiet-if-clean").stdout.startswith("To act on: 1 partition not readable\n\n")
    second.write_text("garbage, more than sixteen bytes of it")
    done = report(machine)
    assert (done.returncode, str(second) in done.stderr) == (1, True)


def test_the_demo_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("demo", "--days", "1", temporary=tmp_path, variables={"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 78
    assert {"active", "idle-held", "truly-idle"} <= set(done.stdout.split())
    assert list(tmp_path.iterdir()) == []
    assert run("demo", "--seed", "x").returncode == 2
    assert run("demo", "--days", "0").returncode == 2


def test_the_demo_keeps_its_history_in_a_folder_if_asked_to(tmp_path: Path) -> None:
    done = run("demo", "--days", "1", "--keep", "try", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "try" / "samples").iterdir())) == 2
    assert run("demo", "--keep", tmp_path / "try").returncode == 2  # never into a folder with data
