"""gua status as a person types it: the real command on the stand-in driver and on real histories."""

import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.integration.status.shown import NOBODY, document, gua, sleeping, states, status
from tests.lab import MINUTE_MS, MONDAY_MS, SECOND_MS
from tests.machine import GUA, Machine, call, complaint, one_line
from tests.systemctl import install
from tests.users import gua_for_others, needs_mounts, needs_root, run_as_somebody


def add_all_states(machine: Machine, pid: int) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(pid, 4000)], process_utilization=[(pid, None, 80)])
    machine.scenario.add_card(compute=[(pid, 2000)])
    machine.scenario.add_card()
    machine.scenario.add_card().error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.scenario.add_card(memory_free_mib=70_000)  # held, and no process shows by whom
    machine.scenario.add_card(utilization_percent=None, samples=None, compute=[(pid, 2000)])


STATES = ["active", "idle-held", "truly-idle", "unknown", "idle-held", "unknown"]


def test_each_state_is_told_without_history_and_without_sampler(machine: Machine, sleeper: int) -> None:
    add_all_states(machine, sleeper)
    found = document(machine)
    assert states(found) == STATES
    assert [gpu["since_ms"] for gpu in found["gpus"]] == [None] * 6
    assert found["gpus"][3]["status"] == "gpu_is_lost"
    assert [user["user"] for user in found["gpus"][4]["users"]] == ["(unattributed)"]
    assert found["sampling"] == {
        "timer": "not installed",
        "problem": None,
        "newest_tick_ms": None,
        "newest_tick_error": None,
        "is_alive": False,
    }
    assert not machine.data_dir.exists()
    lines = status(machine).splitlines()
    assert re.fullmatch(r"6 GPUs at \d\d:\d\d:\d\d \S+: 1 active, 2 idle-held, 1 truly-idle, 2 unknown", lines[0])
    assert lines[-1] == "Sampling: gua-sample.timer not installed, no data folder: see gua doctor"
    machine.data_dir.mkdir()
    assert status(machine).splitlines()[-1].endswith("not installed, no tick yet: see gua doctor")
    rows = [line.split() for line in lines if re.match(r"\d", line)][1:]
    assert [row[2] for row in rows] == STATES
    assert {row[3] for row in rows} == {"-"}
    assert "     gpu_is_lost: see gua doctor" in lines


def test_a_process_is_told_by_pid_command_memory_utilization_and_user(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(
        utilization_percent=80, compute=[(sleeper, 4096)], process_utilization=[(sleeper, None, 77)]
    )
    (gpu,) = document(machine)["gpus"]
    (process,) = gpu["processes"]
    (user,) = gpu["users"]
    assert (process["pid"], process["command"], process["memory_mib"]) == (sleeper, "sleep", 4096)
    assert (process["sm_percent"], process["state"], process["type"]) == (77, "active", "compute")
    assert process["user"] == user["user"] != "unknown"
    assert (gpu["utilization_percent"], gpu["utilization_source"]) == (80, "samples")
    text = status(machine)
    assert re.search(rf"^ +{sleeper}  sleep +4\.0   77%  {re.escape(user['user'])}$", text, re.MULTILINE)
    machine.scenario.cards[0].update(compute=[(NOBODY, None)], utilization_percent=0, process_utilization=[])
    (gpu,) = document(machine)["gpus"]
    (process,) = gpu["processes"]
    assert (process["user"], process["command"], process["memory_mib"]) == ("unknown", "unknown", None)
    assert re.search(rf"{NOBODY}  unknown +\?    0%  unknown$", status(machine), re.MULTILINE)


def test_all_users_are_told_and_processes_past_two_shortened(machine: Machine) -> None:
    with sleeping(*["sleep"] * 4) as pids:
        machine.scenario.add_card(compute=[(pid, 1000 + number) for number, pid in enumerate(pids)])
        text, everything = status(machine), status(machine, "-v")
    shown = [line.split()[0] for line in text.splitlines() if "sleep" in line]
    assert shown == [str(pids[3]), str(pids[2])]  # the largest
    assert "     and 2 more (-v)" in text
    assert everything.count("sleep") == 4
    assert "more" not in everything


def test_durations_come_from_the_history(machine: Machine, sleeper: int) -> None:
    card = machine.scenario.add_card(utilization_percent=80, compute=[(sleeper, 4000)])
    start_ms = MONDAY_MS - 2 * MINUTE_MS  # so that midnight is within
    for number in range(7):
        card.update(utilization_percent=80 if number < 2 else 0)
        machine.tick(clock_ms=start_ms + number * 30 * SECOND_MS)
    assert len(machine.partitions()) == 2
    now_ms = start_ms + 200 * SECOND_MS
    found = document(machine, clock_ms=now_ms)
    (gpu,) = found["gpus"]
    (process,), (user,) = gpu["processes"], gpu["users"]
    began_ms = start_ms + 60 * SECOND_MS
    assert (gpu["since_ms"], gpu["since_is_exact"], gpu["seconds"]) == (began_ms, True, 140)
    assert (process["idle_since_ms"], process["idle_since_is_exact"]) == (began_ms, True)
    assert (user["idle_since_ms"], user["is_idle"]) == (began_ms, True)
    assert found["sampling"]["newest_tick_ms"] == start_ms + 180 * SECOND_MS
    assert found["sampling"]["is_alive"]
    text = status(machine, clock_ms=now_ms)
    assert re.search(r"^0 .* idle-held +2m .* \S+ \(idle 2m\)$", text, re.MULTILINE)
    assert text.splitlines()[-1] == "Sampling: gua-sample.timer not installed, newest tick 20s ago"
    # The same, but the sampler has stopped since.
    late = document(machine, clock_ms=start_ms + 600 * SECOND_MS)
    assert late["gpus"][0]["since_ms"] is None
    assert not late["sampling"]["is_alive"]
    assert status(machine, clock_ms=start_ms + 3600 * SECOND_MS).splitlines()[-1].endswith("57m ago: see gua doctor")


def test_a_lost_card_keeps_the_uuid_it_had_in_the_history(machine: Machine) -> None:
    machine.scenario.add_card()
    card = machine.scenario.add_card()
    uuid = card.settings["uuid"]
    machine.tick()
    card.error("nvmlDeviceGetHandleByIndex_v2", 15)
    found = document(machine)
    assert [(gpu["uuid"], gpu["state"]) for gpu in found["gpus"]][1] == (uuid, "unknown")
    shutil.rmtree(machine.data_dir)
    assert document(machine)["gpus"][1]["uuid"] == "unknown:index-1"


def test_names_can_not_steer_a_terminal(machine: Machine, tmp_path: Path) -> None:
    evil = tmp_path / "\x1b[31mx\n\u202e漢字"
    shutil.copy("/bin/sleep", evil)
    with sleeping(evil) as (pid,):
        machine.scenario.add_card(name="NVIDIA \x1b]0;A100\x07", compute=[(pid, 2000)])
        text, plain, found = status(machine), status(machine, "--ascii"), document(machine)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    assert plain.isascii()
    assert r"\x1b[31mx" in text
    assert found["gpus"][0]["processes"][0]["command"].startswith(r"\x1b[31mx\n")


def test_the_text_fits_a_mail(machine: Machine, sleeper: int) -> None:
    add_all_states(machine, sleeper)
    machine.scenario.cards[0].update(name="NVIDIA " + "Long " * 20)
    for options in ([], ["-v"], ["--ascii"]):
        text = status(machine, *options)
        assert max(map(len, text.splitlines())) <= 78
        assert "\x1b" not in text
    assert status(machine, "--ascii").isascii()


def test_the_threshold_decides_what_is_held(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(compute=[(sleeper, 150)])
    machine.scenario.add_card(compute=[(sleeper, 5)])
    assert states(document(machine)) == ["idle-held", "truly-idle"]
    assert states(document(machine, "--memory-threshold", "150")) == ["truly-idle", "truly-idle"]
    assert document(machine, "--memory-threshold", "0")["policy"]["process_memory_mib"] == 0
    assert gua(machine, "free").stdout == "1\n"
    assert gua(machine, "free", "--memory-threshold", "150").stdout == "0,1\n"
    assert gua(machine, "free", "--memory-threshold", "0").returncode == 1


def test_the_threshold_is_of_the_memory_in_use_whoever_holds_it(machine: Machine, sleeper: int) -> None:
    plain = {"memory_total_mib": 81_920, "memory_reserved_mib": 0}
    machine.scenario.add_card(**plain, memory_free_mib=81_920 - 1024)
    machine.scenario.add_card(**plain, memory_free_mib=81_920 - 800, compute=[(sleeper, 400)])
    assert gua(machine, "free", "--memory-threshold", "512").returncode == 1
    assert gua(machine, "free", "--memory-threshold", "900").stdout == "1\n"
    assert gua(machine, "free", "--memory-threshold", "99999").stdout == "0,1\n"
    assert states(document(machine, "--memory-threshold", "512")) == ["idle-held", "idle-held"]


def test_the_config_names_people_and_thresholds(machine: Machine, sleeper: int, tmp_path: Path) -> None:
    machine.scenario.add_card(compute=[(sleeper, 150)])
    user = document(machine)["gpus"][0]["users"][0]["user"]
    config = tmp_path / "gua.toml"
    config.write_text(f'[people]\n"{user}" = "Ada"\n[policy]\nprocess_memory_mib = 200\n')
    found = document(machine, "--config", str(config))
    assert found["gpus"][0]["users"][0]["user"] == "Ada"
    assert states(found) == ["truly-idle"]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({}, "gua-sample.timer active, newest tick"),
        ({"ActiveState": "inactive"}, "gua-sample.timer inactive, newest tick"),
        ({"LoadState": "masked"}, "gua-sample.timer masked, newest tick"),
    ],
)
def test_the_last_line_tells_the_timer(machine: Machine, units: Path, properties: dict[str, str], words: str) -> None:
    machine.scenario.add_card()
    machine.tick()
    install(units, "timer", **properties)
    install(units, "service")
    assert words in status(machine).splitlines()[-1]


def test_units_of_the_user_count_and_those_that_write_elsewhere_are_told(machine: Machine, units: Path) -> None:
    machine.scenario.add_card()
    machine.data_dir.mkdir()
    install(units, "timer")
    install(units, "service", StateDirectory="gua")
    assert "gua-sample.timer active (writes to /var/lib/gua), no tick yet" in status(machine)
    install(units, "timer", "user", ActiveState="failed")
    install(units, "service", "user", ExecStart=f"{{ argv[]=/x --data-dir {machine.data_dir} ; }}")
    assert "gua-sample.timer failed, no tick yet" in status(machine)


def test_without_systemctl_the_newest_tick_still_tells(machine: Machine, open_folder: Path) -> None:
    machine.scenario.add_card()
    machine.tick()
    (open_folder / "bin" / "systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    assert re.fullmatch(
        r"Sampling: gua-sample.timer can't be asked, newest tick \d+s ago", status(machine).splitlines()[-1]
    )


def test_a_newest_tick_without_cards_is_told(machine: Machine) -> None:
    assert machine.sample().returncode == 1
    machine.scenario.add_card()
    last = status(machine).splitlines()[-1]
    assert re.search(r"newest tick \d+s ago has no cards \(no_cards\): see gua doctor$", last)


def test_a_corrupt_partition_costs_its_ticks_and_is_told_in_one_line(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(compute=[(sleeper, 4000)])
    machine.tick()
    (path,) = machine.partitions()
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    done = gua(machine, "status")
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua status: warning: skipped: {path} is not usable")
    assert "idle-held" in done.stdout
    assert "no tick that can be read" in done.stdout.splitlines()[-1]
    content = path.read_bytes()
    assert gua(machine, "free").returncode == 1
    assert path.read_bytes() == content


@needs_root
def test_another_user_sees_the_cards_though_not_a_closed_history(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(compute=[(sleeper, 4000)])
    machine.tick()
    command = [*gua_for_others(machine.folder), "status", "--data-dir", str(machine.data_dir)]
    done = run_as_somebody(command, machine.environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"^ +{sleeper}  sleep ", done.stdout, re.MULTILINE)
    assert "newest tick" in done.stdout
    machine.data_dir.chmod(0o700)
    done = run_as_somebody(command, machine.environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^0 .* idle-held +- ", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].endswith("can't be looked into (Permission denied): see gua doctor")
    machine.data_dir.chmod(0o755)
    for path in machine.partitions():
        path.chmod(0o600)
    done = run_as_somebody(command, machine.environment())
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert "no tick that can be read" in done.stdout


@needs_mounts
def test_what_is_hidden_from_this_user_a_recent_tick_tells_and_else_the_doctor_why(
    machine: Machine, sleeper: int
) -> None:
    machine.scenario.add_card(compute=[(sleeper, 4000)])
    mount = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 54321 --regid 54321 --clear-groups"
    command = ["unshare", "--mount", "sh", "-c", f'{mount} "$@"', "sh", *gua_for_others(machine.folder)]

    def run(verb: str) -> str:
        arguments = [*command, verb, "--data-dir", str(machine.data_dir)]
        done = call(arguments, env=machine.environment())
        assert done.stderr == ""
        return done.stdout

    assert re.search(rf"{sleeper}  unknown .* unknown$", run("status"), re.MULTILINE)
    machine.tick()
    shown = run("status")
    assert re.search(rf"{sleeper}  sleep ", shown)
    assert "unknown" not in shown
    words = " ".join(run("doctor").split())
    assert "so gua status says unknown, where no recent tick tells more -> sudo gua status" in words


def test_a_driver_that_can_not_be_had_is_one_line_that_points_to_the_doctor(machine: Machine) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    for verb in ("status", "free"):
        done = gua(machine, verb)
        complaint(done, 1)
        assert done.stderr.startswith(f"gua {verb}: error: NVML failed (driver_not_loaded)")
        assert done.stderr.endswith("'gua doctor' says more\n")


def test_a_driver_that_hangs_is_not_waited_for(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.delay("nvmlInitWithFlags", 30_000)
    began = time.monotonic()
    done = gua(machine, "status", "--timeout", "500ms")
    assert time.monotonic() - began < 15
    assert "NVML does not answer within 0.5 s" in complaint(done, 1)


def test_pandas_is_not_imported(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(compute=[(sleeper, 4000)])
    machine.scenario.add_card()
    machine.tick()

    def imported(*command: str) -> set[str]:
        done = call(
            [sys.executable, "-X", "importtime", *command, "--data-dir", str(machine.data_dir)],
            env=machine.environment(),
            check=True,
        )
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}

    sampler = imported(*machine.command()[:1])
    for verb in ("status", "free"):
        more = imported(GUA, verb) - sampler
        slow = ("pandas", "numpy", "tabulate", "tempfile", "shutil", "statistics", "tomllib", "datetime")
        assert not more.intersection(slow)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status", "--watch", "often"], "'often'"),
        (["status", "--watch", "--json"], "--watch is for people"),
        (["status", "--timeout", "0s"], "'0s'"),
        (["status", "--memory-threshold", "much"], "'much'"),
        (["status", "--memory-threshold", "-1"], "-1"),
        (["status", "--simulate", "x"], "'x'"),
        (["status", "--config", "/nowhere"], "/nowhere"),
        (["free", "-n", "0"], "'0'"),
        (["free", "-n", "two"], "'two'"),
        (["free", "2"], "2"),
    ],
)
def test_wrong_usage_exits_2_in_one_line(arguments: list[str], expected: str) -> None:
    done = call([GUA, *arguments])
    assert expected in complaint(done, 2)
