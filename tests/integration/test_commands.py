"""The commands as a person types them: help, versions, mistakes, and what they import."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gua_sample import __version__
from tests.lab import free, series, write
from tests.machine import GUA, SCRIPTS, Machine, one_line
from tests.users import SOMEBODY, needs_root
from tests.verbs import Done, run


def start(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a shell does; for a report, that takes three times as long as `tests.verbs.run`."""
    command = [str(SCRIPTS / name), *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--interval", "soon"], "'soon'"),
        (["--interval", ""], "''"),
        (["--interval", "0s"], "'0s'"),
        (["--interval"], "expected one argument"),
        (["--data-dir", ""], "--data-dir is empty"),
        (["--simulate"], "needs --data-dir"),
        (["--simulate", "x", "--data-dir", "nowhere"], "'x'"),
        (["--simulate", "-1", "--data-dir", "nowhere"], "-1"),
        (["--simulat", "1"], "--simulat"),
        (["now"], "now"),
    ],
)
def test_bad_values_exit_2_in_one_line_and_write_nothing(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = start("gua-sample", *arguments, XDG_STATE_HOME=str(tmp_path / "state"))
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["gua-sample"],
        ["gua-report"],
        ["gua"],
        ["gua", "demo"],
        ["gua", "sample"],
        ["gua", "mail"],
        ["gua", "remind"],
        ["gua", "hook"],
    ],
)
def test_help_has_examples_and_fits_a_narrow_terminal(command: list[str]) -> None:
    done = start(*command, "--help", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "examples" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize("command", [["gua-sample", "--version"], ["gua-report", "--version"], ["gua", "version"]])
def test_versions_are_told(command: list[str]) -> None:
    assert start(*command).stdout == f"{command[0]} {__version__}\n"


def test_gua_runs_the_verbs(machine: Machine) -> None:
    machine.scenario.add_card()
    command = [GUA, "sample", "--data-dir", str(machine.data_dir)]
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(machine.ticks()) == 1


def test_an_unknown_verb_is_corrected() -> None:
    done = start("gua", "reprot")
    assert done.returncode == 2
    assert done.stderr == "gua: error: unknown verb 'reprot': did you mean report?\n"
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
        done = subprocess.run(
            command, env=machine.environment() | variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}

    machine.scenario.add_card(compute=[(os.getpid(), 100)])
    sample = (str(script), "--data-dir", str(machine.data_dir))
    assert "gua_sample.identity" in imported(*sample)  # a first look at a cgroup
    ours = imported(*sample) - imported(sys.executable, "-c", "import pynvml, sqlite3")
    others = {name for name in ours if not name.startswith("gua_sample")}
    others.discard("gc")  # a part of the interpreter, which a tick turns off: that saves more than a module costs
    assert others <= {
        "__future__",
        "argparse",
        "gettext",
        "locale",
        "typing",
        "_typing",
        "pwd",
        "fcntl",
        "copyreg",
        "annotationlib",
    }
    assert "gua_sample.simulate" not in ours
    assert ours.isdisjoint({"gua_sample.nvml_gpm", "gua_sample.container_note", "gua_sample.identity"})


@pytest.mark.parametrize("command", [["gua-report", "--help"], ["gua", "--help"], ["gua", "version"]])
def test_pandas_is_not_imported_to_show_help(command: list[str]) -> None:
    script = str(SCRIPTS / command[0])
    done = subprocess.run(
        [sys.executable, "-X", "importtime", script, *command[1:]], capture_output=True, text=True, check=True
    )
    assert "pandas" not in done.stderr


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
    machine.tick("--interval", "30s")
    done = report(machine, "--json", "--to", "2100-01-01", "--since", "2000-01-01")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    shares = [
        {state: value["share"] for state, value in gpu["states"].items() if value["share"]} for gpu in found["gpus"]
    ]
    assert shares == [
        {"active": 1},
        {"idle-held": 1},
        {"truly-idle": 1},
        {"unknown": 1},
        {"truly-idle": 1},
        {"unknown": 1},
    ]
    assert sum(gpu["gpu_hours"] for gpu in found["gpus"]) == pytest.approx((4 + 2 / 7) * 30 / 3600, rel=0.01)
    assert found["capacity"]["unpartitioned"]["gpu_hours"] == pytest.approx(5 / 7 * 30 / 3600, rel=0.01)
    (episode,) = found["episodes"]
    assert (episode["pid"], episode["gpu_index"], episode["ongoing"]) == (os.getpid(), 1, True)


def test_a_report_may_be_sent_to_standard_output_by_its_name(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    for name in ("-", "/dev/stdout"):
        words = ("--section", "gpus", "--format", "csv", "-o", name)
        done = start("gua-report", "--data-dir", str(machine.data_dir), *words)  # to a pipe
        assert (done.returncode, done.stderr) == (0, "")
        assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["uuid", machine.cards()[0]["gpu_uuid"]]
    assert not Path("-").exists()


def test_the_report_is_written_to_a_file_whole_and_readable(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    target = machine.folder / "report.md"
    done = report(machine, "--format", "markdown", "-o", str(target))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "idle-held" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert sorted(os.listdir(machine.folder)) == ["data", "report.md", "scenario"]
    done = report(machine, "-o", str(machine.folder / "nowhere" / "x"))
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert report(machine, "-o", "/dev/full").returncode == 1


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_report_in_a_pipe_has_neither_colour_nor_progress(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    done = start("gua-report", "--data-dir", str(machine.data_dir))
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert max(len(line) for line in done.stdout.splitlines()) <= 78
    ascii_report = report(machine, "--ascii").stdout
    assert ascii_report.isascii()


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
def test_a_report_on_a_terminal_is_in_colour_unless_told_otherwise(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    command = f"'{SCRIPTS}/gua-report' --data-dir {machine.data_dir}"
    for variables, expected in ({}, True), ({"NO_COLOR": "1"}, False):
        terminal = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("\x1b[1m" in terminal.stdout) == expected


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
@pytest.mark.parametrize(("columns", "expected"), [(70, 70), (100, 100), (300, 120)])
def test_a_report_uses_the_width_of_a_terminal_up_to_120_columns(machine: Machine, columns: int, expected: int) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    command = f"stty cols {columns}; '{SCRIPTS}/gua-report' --data-dir {machine.data_dir} --color never"
    environment = dict(os.environ)  # readline, which pytest imports, adds a COLUMNS that Python does not know of
    ran = subprocess.run(
        ["script", "-qec", command, "/dev/null"], env=environment, capture_output=True, text=True, check=True
    )
    shown = ran.stdout
    assert max(len(line) for line in shown.splitlines()) == expected  # the bar of the headline is as wide as it can be


def test_colour_is_there_if_it_is_asked_for(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    assert "\x1b[33m" in report(machine, "--color", "always").stdout
    attention = report(machine, "--color", "always", "--quiet-if-clean", "1s").stdout
    assert attention.startswith("\x1b[33mTo act on: ")
    assert "\x1b" not in report(machine, "--color", "never").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--color", "allways"], "did you mean always?"),
        (["--brief", "--format", "json"], "--brief"),
        (["--brief", "--section", "gpus"], "--brief"),
        (["--since", "soon"], "'soon'"),
        (["--since", "1d", "--from", "2026-01-01"], "--since and --from"),
        (["--from", "yesterday"], "'yesterday'"),
        (["--from", "2026-02-01", "--to", "2026-01-01"], "empty"),
        (["--tz", "Mars/Olympus"], "'Mars/Olympus'"),
        (["--section", "episode"], "did you mean episodes?"),
        (["--format", "jsn"], "did you mean json?"),
        (["--top", "0"], "'0'"),
        (["--width", "10"], "60 to 400"),
        (["--util-threshold", "101"], "'101'"),
        (["--memory-threshold", "nan"], "'nan'"),
        (["--reclaim-after", "5"], "'5'"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
        (["--format", "csv", "--section", "gpus", "--section", "episodes"], "--section"),
        (["--quiet-if-clean", "soon"], "'soon'"),
        (["--quiet-if-clean", "--format", "csv", "--section", "gpus", "--section", "episodes"], "--section"),
    ],
)
def test_mistakes_are_named_with_what_was_expected(tmp_path: Path, arguments: list[str], expected: str) -> None:
    write(tmp_path, series(time.time_ns() // 1_000_000, 1, free()))
    done = run("report", "--data-dir", tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert expected in done.stderr


@pytest.mark.parametrize("arguments", [[], ["1h"], ["-o", "report"]])
def test_a_report_is_quiet_if_there_is_nothing_to_act_on(machine: Machine, arguments: list[str]) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    target = machine.folder / "report"
    given = [str(target) if argument == "report" else argument for argument in arguments]
    done = report(machine, "--format", "json", "--quiet-if-clean", *given)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not target.exists()


@pytest.mark.parametrize("name", ["text", "markdown", "json", "csv", "html"])
def test_a_report_says_what_there_is_to_act_on(machine: Machine, name: str) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 4000)])
    machine.tick()
    target = machine.folder / "report"
    done = report(machine, "--format", name, "--quiet-if-clean", "10s")
    assert (done.returncode, done.stderr) == (0, "")
    assert ("1 idle-held episode of 10s or more" in done.stdout) == (name != "csv")
    assert report(machine, "--format", name, "--quiet-if-clean", "10s", "-o", str(target)).stdout == ""
    assert ("1 idle-held episode of 10s or more" in target.read_text()) == (name != "csv")


def test_a_clean_report_leaves_an_older_file_alone(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    target = machine.folder / "report"
    target.write_text("of last week")
    assert report(machine, "--quiet-if-clean", "-o", str(target)).returncode == 0
    assert target.read_text() == "of last week"


def test_no_data_are_not_taken_for_a_clean_week(tmp_path: Path) -> None:
    done = run("report", "--data-dir", tmp_path, "--quiet-if-clean")
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)


def test_a_partition_that_can_not_be_read_is_not_taken_for_a_clean_week(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick(clock_offset_ms=-86_400_000)
    machine.tick()
    machine.partitions()[0].write_text("garbage, more than sixteen bytes of it")
    done = report(machine, "--quiet-if-clean")
    assert done.returncode == 0
    assert done.stdout.startswith("To act on: 1 partition not readable\n\n")


def test_the_configuration_sets_prices_people_and_thresholds(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=5, compute=[(os.getpid(), 4000)])
    machine.tick()
    config = machine.folder / "gua.toml"
    user = json.loads(report(machine, "--json").stdout)["identities"][0]["identity"]
    config.write_text(f'[policy]\nutilization_percent = 5\n[price]\nper_gpu_hour = 2\n[people]\n"{user}" = "ada"\n')
    found = json.loads(report(machine, "--json", "--config", str(config)).stdout)
    assert found["policy"]["utilization_percent"] == 5
    assert found["identities"][0]["identity"] == "ada"
    assert found["capacity"]["states"]["active"]["cost"] == pytest.approx(
        2 * found["headline"]["states"]["active"]["gpu_hours"], abs=1e-3
    )
    config.write_text("[price]\nper_gpu_hours = 2\n")
    done = report(machine, "--config", str(config))
    assert done.returncode == 2
    assert "did you mean per_gpu_hour?" in done.stderr


def test_a_report_without_data_says_what_to_check_and_exits_3(tmp_path: Path) -> None:
    done = run("report", "--data-dir", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)
    assert "run gua doctor" in done.stderr
    assert list(tmp_path.iterdir()) == []  # reading creates nothing


@pytest.mark.parametrize("form", ["text", "markdown", "json", "csv", "html"])
def test_a_driver_that_never_worked_is_one_line_with_its_error_in_every_format(machine: Machine, form: str) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    machine.sample()
    done = report(machine, "--format", form)
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)
    assert f"as the driver failed (driver_not_loaded): run gua doctor --data-dir {machine.data_dir}" in done.stderr


@pytest.mark.parametrize(
    "verb", [["report"], ["report", "--json"], ["export"], ["export", "--what", "rollups"], ["rollup", "--dry-run"]]
)
def test_a_folder_that_does_not_exist_is_not_called_empty(tmp_path: Path, verb: list[str]) -> None:
    folder = tmp_path / "nowhere"
    done = run(*verb, "--data-dir", folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)
    assert f"{folder} does not exist: give another --data-dir, or install gua first" in done.stderr
    folder.write_text("")
    done = run(*verb, "--data-dir", folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{folder} is no folder: give another --data-dir" in done.stderr


def test_a_report_skips_a_corrupt_partition_and_says_so(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick(clock_offset_ms=-86_400_000)
    machine.tick()
    machine.partitions()[0].write_text("garbage, more than sixteen bytes of it")
    done = report(machine, "--since", "2d")
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert str(machine.partitions()[0]) in done.stderr
    assert "skipped" in done.stdout
    assert machine.partitions()[0].read_text().startswith("garbage")


def test_a_report_that_can_read_nothing_says_why(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    machine.partitions()[0].write_text("garbage, more than sixteen bytes of it")
    done = report(machine)
    assert done.returncode == 1
    assert str(machine.partitions()[0]) in done.stderr


def test_the_demo_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("demo", "--days", "1", temporary=tmp_path, variables={"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 78
    assert {"active", "idle-held", "truly-idle"} <= set(done.stdout.split())
    assert list(tmp_path.iterdir()) == []
    assert run("demo", "--seed", "x").returncode == 2
    assert run("demo", "--days", "0").returncode == 2


def test_the_demo_keeps_its_history_if_asked_to(tmp_path: Path) -> None:
    done = run("demo", "--days", "1", "--keep", tmp_path / "try")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "try" / "samples").iterdir())) == 2
    assert run("demo", "--keep", tmp_path / "try").returncode == 2  # never into a folder with data


def test_the_demo_keeps_its_history_in_a_folder_below_this_one(tmp_path: Path) -> None:
    done = run("demo", "--days", "1", "--keep", "try", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "try" / "samples").iterdir())) == 2


@needs_root
def test_another_user_may_read_what_the_service_wrote(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir.mkdir()
    os.chown(machine.data_dir, SOMEBODY, SOMEBODY)
    machine.tick()
    assert machine.partitions()[0].stat().st_mode & 0o444 == 0o444
