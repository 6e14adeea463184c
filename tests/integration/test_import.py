"""gua import in real life: beside the real tool, a running daemon, our sampler; killed, without space, as root."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer import find_python
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition
from gua_sample.partition_names import list_partitions
from tests.disks import mounted
from tests.gpu_usage_audit import NOON_MS, PeerDatabase, Seen, times
from tests.import_target import photograph
from tests.lab import DAY_MS, HOUR_MS, SECOND_MS
from tests.machine import GUA, SCRIPTS, Machine, complaint, one_line, query
from tests.users import SOMEBODY, gua_for_others, needs_mounts, needs_root, run_as_somebody

# Run by the tool's own Python: a day and a half of five cards, two runs of its daemon, written by its own code.
MAKE_DATABASE = """
import datetime, random, sys
from gpu_usage_audit import db
from gpu_usage_audit.model import GPUSample, HostMeta, ProcSample, Snapshot

is_new = hasattr(db, "start_daemon_run")
connection = db.open_db(sys.argv[1])
connection.execute("PRAGMA synchronous = OFF")
random.seed(7)
interval = datetime.timedelta(seconds=60)
moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=37)
host = HostMeta("lab7", "bare", "570.86.10", moment)
run, users, jobs = {}, ["alice", "bob", "carol", None], {}
for number in range(2100):
    moment += interval + datetime.timedelta(microseconds=random.randrange(-9000, 9000))
    if number % 1200 == 0 and is_new:
        run = {"run_id": db.start_daemon_run(connection, moment, interval)}
    gpus, procs = [], []
    for card in range(5):
        if number % 45 == 0:
            # What begins to work, or is shared, is judged by another rule there: neither happens here.
            was_held = card in jobs and jobs[card][0] == "held"
            kind = random.choice(["held", "free"] if was_held else ["busy", "held", "free"])
            jobs[card] = kind, random.sample(range(1000, 30000), 2), [random.choice(users)] * 2
        kind, pids, people = jobs[card]
        uuid = f"GPU-{card}f2b3c4d-0000-4000-8000-00000000000{card}"
        mine = [] if kind == "free" else [
            ProcSample(gpu_uuid=uuid, pid=pids[0], mem_used_mb=random.randrange(9000, 9100), loginuid_user=people[0]),
            ProcSample(gpu_uuid=uuid, pid=pids[1], mem_used_mb=500, loginuid_user=people[1]),
        ][: 1 + pids[0] % 2]
        gpu = GPUSample(uuid=uuid, util_pct=random.randrange(30, 101) if kind == "busy" else random.randrange(1, 10))
        if is_new:
            gpu.index, gpu.name, gpu.memory_total_mb, gpu.temperature_c, gpu.power_w = card, "A100", 81920, 40, 90
            gpu.memory_used_mb, gpu.usage_state = 520 + sum(process.mem_used_mb for process in mine), "active"
        gpus.append(gpu)
        procs += mine
    db.write_snapshot(connection, moment, host, Snapshot(gpus=gpus, procs=procs), **run)
connection.close()
"""
# What 1.8.0 computes but no longer prints.
LOAD_FIGURES = """
import datetime, json, sys
from gpu_usage_audit import db, report
connection = db.open_db(sys.argv[1])
start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
gpus, identities = report.load_per_gpu(connection, start), report.load_top_identities(connection, start)
gpus = {gpu.uuid: [100 * gpu.active, 100 * gpu.idle_held, 100 * gpu.truly_idle] for gpu in gpus}
identities = {one.identity: [one.gpu_hours, 100 * one.idle_held] for one in identities}
print(json.dumps([gpus, identities]))
"""
STATES = ("active", "idle-held", "truly-idle")


class Tool:
    """gpu-usage-audit of some version, from the package index, in a folder of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        self._python, self._folder = python, folder

    def run(self, *arguments: str) -> str:
        variables = {"PYTHONPATH": str(self._folder), "PYTHONUTF8": "1", "PATH": os.environ["PATH"], "HOME": "/nowhere"}
        done = subprocess.run(
            [self._python, *arguments], env=variables, capture_output=True, text=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=["1.0.2", "1.8.0"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, package_index: None) -> Tool:
    python = find_python()
    if python is None:
        pytest.skip("gpu-usage-audit needs Python 3.12 or newer, and there is none")
    folder = tmp_path_factory.mktemp("tool")
    package = f"gpu-usage-audit=={request.param}"
    command = [python, "-m", "pip", "install", "--quiet", "--target", str(folder), package]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_CONSTRAINT", "PYTHON"))}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{package} can't be installed: {done.stderr.strip()[-200:]}")
    return Tool(python, folder)


def run(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    command = [GUA, "import", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **keywords)


def test_the_figures_are_those_that_gpu_usage_audit_prints(tool: Tool, tmp_path: Path) -> None:
    database, data_dir = tmp_path / "gua.db", tmp_path / "data"
    tool.run("-c", MAKE_DATABASE, str(database))
    before = photograph(database)
    assert run(str(database), "--data-dir", str(data_dir)).stderr == ""
    assert photograph(database) == before
    command = [str(SCRIPTS / "gua-report"), "--data-dir", str(data_dir), "--since", "9d", "--format", "json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    printed = tool.run("-m", "gpu_usage_audit", "report", "--db", str(database), "--since", "216h", "--interval", "60s")
    shares = [100 * report["headline"]["states"][state]["share"] for state in STATES]
    headline = re.search(r"^ +\S+ (\d+)% +· +\S+ (\d+)% +· +\S+ (\d+)%$", printed, re.MULTILINE)
    if headline:  # 1.8.0: in whole percent, and of single cards and people nothing any more
        assert shares == pytest.approx([float(share) for share in headline.groups()], abs=0.51)
        held_hours = re.search(r"≈ (\d+) GPU", printed)
        assert held_hours
        assert report["headline"]["states"]["idle-held"]["gpu_hours"] == pytest.approx(float(held_hours[1]), abs=0.51)
        gpus, identities = json.loads(tool.run("-c", LOAD_FIGURES, str(database)))
    else:
        number = r" +(\d+\.\d)%"
        assert shares == pytest.approx(
            [float(re.findall(rf"^  {state} +\S{number}", printed, re.MULTILINE)[0]) for state in STATES], abs=0.06
        )
        found = re.findall(
            rf"^  (GPU-\S+) +active{number} +idle-held{number} +truly-idle{number}", printed, re.MULTILINE
        )
        gpus = {uuid: list(map(float, shares)) for uuid, *shares in found}
        found = re.findall(rf"^  (\S+) +(\d+\.\d\d) {number} +\d+$", printed, re.MULTILINE)
        identities = {identity: list(map(float, figures)) for identity, *figures in found}

    assert len(gpus) == 5
    for gpu in report["gpus"]:
        assert [100 * gpu["states"][state]["share"] for state in STATES] == pytest.approx(gpus[gpu["uuid"]], abs=0.06)
    mine = {one["identity"]: [one["gpu_hours"], 100 * one["idle_held_share"]] for one in report["identities"]}
    assert mine.keys() == identities.keys() == {"alice", "bob", "carol", "unknown"}
    for identity, figures in identities.items():
        # Where one follows another on a card within a tick, it is not known here who worked until then.
        assert mine[identity] == pytest.approx(figures, abs=0.3), identity


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--dry"], ["a", "--data-dir", ""]])
def test_wrong_usage_exits_2_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path, env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")})
    complaint(done, 2)
    assert list(tmp_path.iterdir()) == []


# A daemon that goes on writing ----------------------------------------------------------------------------------------

WRITE = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA wal_autocheckpoint = 20")
for number in range(86_400):
    ts = f"2026-10-05T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000007+00:00"
    connection.execute("BEGIN")
    for index in range(4):
        row = (ts, f"GPU-{index}", 50, 1, "active", index, 100, 40, 70)
        connection.execute("INSERT INTO gpu_sample VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("COMMIT")
    if number == 20:
        print("ready", flush=True)
    time.sleep(0.002)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[PeerDatabase, subprocess.Popen[str]]]:
    (tmp_path / "live").mkdir()
    database = PeerDatabase(tmp_path / "live" / "gua.db")
    database.start(NOON_MS, 1.0)
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(database.path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    assert writer.stdout.readline() == "ready\n"
    yield database, writer
    writer.send_signal(signal.SIGCONT)
    writer.kill()
    writer.wait()
    writer.stdout.close()


def test_beside_a_running_daemon_whole_ticks_are_read(
    daemon: tuple[PeerDatabase, subprocess.Popen[str]], tmp_path: Path
) -> None:
    taken = 0
    for _ in range(3):
        done = run(str(daemon[0].path), "--data-dir", str(tmp_path / "data"), "--json")
        assert (done.returncode, done.stderr) == (0, "")
        said = json.loads(done.stdout)
        assert said["taken"]["ticks"] > 0
        assert said["there_already"]["ticks"] == taken
        taken += said["taken"]["ticks"]
    (path,) = list_partitions(str(tmp_path / "data" / "samples"))
    counts = query(Path(path), "SELECT count(*) AS cards FROM card_ticks GROUP BY ts_ms")
    assert [count["cards"] for count in counts] == [4] * taken


def test_nothing_is_written_beside_a_daemons_database(
    daemon: tuple[PeerDatabase, subprocess.Popen[str]], tmp_path: Path
) -> None:
    database, writer = daemon
    writer.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    before = photograph(database.path.parent)
    assert {Path(name).name for name in before} == {"gua.db", "gua.db-wal", "gua.db-shm"}
    assert run(str(database.path), "--data-dir", str(tmp_path / "data")).returncode == 0
    assert photograph(database.path.parent) == before


# Killed, without space, as root ---------------------------------------------------------------------------------------


@pytest.fixture
def three_days(open_folder: Path) -> PeerDatabase:
    (open_folder / "source").mkdir()
    database = PeerDatabase(open_folder / "source" / "gua.db")
    database.start(NOON_MS)
    for day in range(3):
        database.add(times(NOON_MS + day * DAY_MS, 200), Seen(50, ((1, 3000),)), Seen(3, ((2, 4000),)))
    return database


def ticks_by_day(data_dir: Path) -> dict[str, int]:
    """What a reader sees of each day, whatever state its file is in."""
    found = {}
    for path in list_partitions(str(data_dir / "samples")) if (data_dir / "samples").exists() else []:
        with suppress(EmptyPartition), open_partition(path) as connection:
            found[Path(path).stem] = connection.execute("SELECT count(*) FROM ticks").fetchone()[0]
    return found


WHOLE = {"2026-10-05": 200, "2026-10-06": 200, "2026-10-07": 200}


@pytest.mark.real
def test_killed_at_any_moment_there_are_whole_days_and_a_second_run_completes_them(
    machine: Machine, three_days: PeerDatabase
) -> None:
    command = [GUA, "import", str(three_days.path), "--data-dir", str(machine.data_dir)]
    killed = 0
    for moment in [1, 2, 5, 9, 15, 23, 40, 58, 77, 95, 120, 10_000]:
        shutil.rmtree(machine.data_dir, ignore_errors=True)
        variables = machine.environment(kill_at=moment)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        killed += done.returncode == -signal.SIGKILL
        assert ticks_by_day(machine.data_dir).items() <= WHOLE.items()
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (again.returncode, again.stderr) == (0, "")
        assert ticks_by_day(machine.data_dir) == WHOLE
    assert 5 < killed < 12


def test_two_imports_at_once_take_each_tick_once(three_days: PeerDatabase, tmp_path: Path) -> None:
    command = [GUA, "import", str(three_days.path), "--data-dir", str(tmp_path / "data")]
    importers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [importer.wait() for importer in importers] == [0] * 4
    assert ticks_by_day(tmp_path / "data") == WHOLE


@needs_mounts
def test_without_space_there_are_whole_days_one_line_and_later_the_rest(
    three_days: PeerDatabase, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk", "size=130k") as disk:
        done = run(str(three_days.path), "--data-dir", str(disk))
        found = ticks_by_day(disk)
        assert "no space left" in complaint(done, 1)
        assert f"{200 * len(found)} ticks of {len(found)} day" in done.stderr
        assert found.items() < WHOLE.items()
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        assert run(str(three_days.path), "--data-dir", str(disk)).returncode == 0
        assert ticks_by_day(disk) == WHOLE


@needs_mounts
def test_without_space_for_a_private_copy_it_says_where(three_days: PeerDatabase, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk, three_days.open() as connection:
        connection.execute("CREATE TABLE something (at_all)")  # so that there is a log
        variables = os.environ | {"TMPDIR": str(disk)}
        assert "set TMPDIR" in complaint(
            run(str(three_days.path), "--data-dir", str(tmp_path / "data"), env=variables), 1
        )
        assert list(disk.iterdir()) == []


@needs_root
def test_root_reads_its_own_and_writes_as_the_owner_of_the_folder(three_days: PeerDatabase, open_folder: Path) -> None:
    data_dir = open_folder / "data"
    data_dir.mkdir()
    os.chown(data_dir, SOMEBODY, SOMEBODY)
    three_days.path.parent.chmod(0o700)
    done = run(str(three_days.path), "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert ticks_by_day(data_dir) == WHOLE
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {SOMEBODY}
    assert {path.stat().st_gid for path in data_dir.rglob("*")} == {SOMEBODY}


@needs_root
def test_what_a_user_may_not_read_is_said_in_one_line(three_days: PeerDatabase, open_folder: Path) -> None:
    data_dir = open_folder / "data"
    data_dir.mkdir()
    os.chown(data_dir, SOMEBODY, SOMEBODY)

    def attempt(source: Path) -> subprocess.CompletedProcess[str]:
        command = [*gua_for_others(open_folder), "import", str(source), "--data-dir", str(data_dir)]
        return run_as_somebody(command, {})

    three_days.path.chmod(0o600)
    assert "closed to this user" in complaint(attempt(three_days.path), 1)
    three_days.path.parent.chmod(0o700)
    assert attempt(three_days.path.parent).returncode == 1
    folder = open_folder / "csv"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text(f"timestamp,user,pid,gpu,usage\n{NOON_MS // 1000},alice,1,0,50\n")
    (folder / "b.csv").chmod(0o600)
    done = attempt(folder)
    assert (done.returncode, one_line(done.stderr)) == (1, True)
    assert "b.csv can't be read (Permission denied)" in done.stderr
    assert list(ticks_by_day(data_dir).values()) == [1]


def test_the_sampler_goes_on_meanwhile(machine: Machine, tmp_path: Path) -> None:
    """Ticks of today, of a time before ours began, come into the partition that the sampler writes to."""
    machine.scenario.add_card(uuid="GPU-0")
    machine.tick()
    now_ms = machine.ticks()[0]["ts_ms"]
    start_ms = max(now_ms - now_ms % DAY_MS, now_ms - 3 * HOUR_MS)
    count = (now_ms - start_ms) // 1000 - 60
    if count < 60:
        pytest.skip("the day has only just begun")
    cards = 8 * 10_800 // count  # as many rows at any time of day
    database = PeerDatabase(tmp_path / "gua.db")
    database.start(start_ms, 1.0)
    database.add(times(start_ms, count, SECOND_MS), *[Seen(50, uuid=f"GPU-{index}") for index in range(cards)])
    command = [GUA, "import", str(database.path), "--data-dir", str(machine.data_dir)]
    importer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sampled = 1
    while importer.poll() is None:
        machine.tick()
        sampled += 1
    out, err = importer.communicate()
    assert (importer.returncode, err) == (0, ""), out
    assert sampled > 3
    machine.tick()  # takes in what had to wait
    boots = [tick["boot_id"].startswith("imported:gpu-usage-audit") for tick in machine.ticks()]
    assert (boots.count(True), boots.count(False)) == (count, sampled + 1)
