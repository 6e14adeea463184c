"""A real Slurm on one node: slurmctld, slurmd and munge, with contrib/slurm as prolog and epilog, and gua beside them.

The cards are those of the stand-in driver, with device nodes made for Slurm and files in the place of
/proc/driver/nvidia. gres.conf has them in another order than their minors: Slurm numbers cards by that order.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import SOURCE
from tests.repository import ROOT

pytestmark = [pytest.mark.timeout(600), pytest.mark.needs("slurmctld", "slurmd", "munged")]

JOBS = "/var/spool/gua/jobs"
PROC = "/run/nvidia"
FREEZER = "/run/slurm-cgroup/freezer"
ADDRESS = "10.9.9.9"
UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(3)]  # by minor
ORDER = [2, 0, 1]  # the minors as gres.conf lists them
SLURM_CONF = """
ClusterName=lab
SlurmctldHost={node}({address})
SlurmUser=slurm
ReturnToService=2
SlurmdTimeout=0
MessageTimeout=60
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
GresTypes=gpu,shard
Prolog=/etc/slurm/gua-prolog
Epilog=/etc/slurm/gua-epilog
PrologFlags=Alloc
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldLogFile=/var/log/slurm/slurmctld.log
JobAcctGatherType=jobacct_gather/none
NodeName={node} NodeAddr={address} CPUs=2 Gres=gpu:x:1,gpu:y:1,gpu:z:1,shard:6
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8
"""
GRES_CONF = "".join(f"Name=gpu Type={kind} File=/dev/nvidia{minor}\n" for kind, minor in zip("xyz", ORDER, strict=True))
INFORMATION = "Model: \t\t NVIDIA A100\nGPU UUID: \t {}\nBus Type: \t PCIe\nDevice Minor: \t {}\nGPU Excluded:\t No\n"
GUA = f'[reservations]\nfolder = "{JOBS}"\n'


class Cluster:
    """A guest with a running Slurm."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.node = f"node{os.getpid()}"  # names a cgroup of the host's version 1 hierarchy
        self.scenario = Scenario()
        for uuid in UUIDS:
            self.scenario.add_card(uuid=uuid)

    def start(self) -> None:
        guest = self.guest
        laboratory.set_scenario(guest, self.scenario)
        guest.run("sh", "-c", f"rm -f {laboratory.SAMPLES}/*")  # of other cards
        guest.run("hostname", self.node)
        guest.run("sh", "-c", f"ip addr add {ADDRESS}/32 dev lo; echo '{ADDRESS} {self.node}' >>/etc/hosts")
        guest.run("mkdir", "-p", FREEZER, "/var/log/slurm", "/var/lib/slurm/slurmctld", "/var/lib/slurm/slurmd")
        guest.run("chown", "-R", "slurm", "/var/log/slurm", "/var/lib/slurm/slurmctld")
        mounted = guest.run("mount", "-t", "cgroup", "-o", "freezer", "freezer", FREEZER, check=False)
        if mounted.returncode:
            pytest.skip(f"Slurm 22.05 needs a cgroup hierarchy of version 1 here: {mounted.stderr}")
        for user in ("ada", "bob"):
            guest.run("useradd", "--create-home", user)
        for minor, uuid in enumerate(UUIDS):
            guest.run("mknod", "-m", "666", f"/dev/nvidia{minor}", "c", "195", str(minor))
            guest.write(f"{PROC}/gpus/0000:0{minor}:00.0/information", INFORMATION.format(uuid, minor))
        guest.write("/etc/slurm/slurm.conf", SLURM_CONF.format(node=self.node, address=ADDRESS))
        guest.write("/etc/slurm/gres.conf", GRES_CONF + "Name=shard Count=6\n")
        guest.write("/etc/slurm/cgroup.conf", f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={Path(FREEZER).parent}\n")
        guest.write("/etc/gua/gua.toml", GUA)
        order = ",".join(map(str, ORDER))
        guest.write("/etc/gua/slurm-jobs.conf", f"GUA_NVIDIA_PROC={PROC}\nGUA_GPU_ORDER={order}\n")
        scripts = [f"{SOURCE}/contrib/slurm/{name}" for name in ("gua-job", "gua-prolog", "gua-epilog")]
        guest.run("install", "-m", "755", *scripts, "/etc/slurm/")
        guest.run("systemctl", "start", "munge", "slurmctld", "slurmd")
        guest.wait_until(lambda: self.state() == "idle", 60, "the node to be idle")

    def stop(self) -> None:
        """End all jobs, and leave none of their cgroups, which are the host's too, behind."""
        if self.guest.is_running():
            self.cancel_all()
            self.guest.run("systemctl", "stop", "slurmd", check=False)
            remove = f"find {FREEZER}/slurm_{self.node} -depth -type d -exec rmdir {{}} ';' 2>/dev/null"
            gone = f"! [ -e {FREEZER}/slurm_{self.node} ]"
            self.guest.run("sh", "-c", f"for n in $(seq 50); do {remove}; {gone} && exit; sleep 0.1; done", check=False)

    def state(self) -> str:
        return self.guest.run("sinfo", "--noheader", "--format=%T", check=False).stdout.strip()

    def submit(self, gres: str, user: str = "ada", **environment: str) -> str:
        """The id of a batch job that sleeps, once its prolog has run."""
        batch = ["sbatch", "--parsable", f"--gres={gres}", "--mem=0", "--output=/dev/null"]
        job = self.guest.run(*batch, "--wrap=sleep 600", user=user, cwd="/tmp", environment=environment).stdout.strip()
        self.wait(job, "R")
        self.guest.wait_until(lambda: self.files(job, ended=False), 60, f"the prolog of job {job}")
        return job

    def wait(self, job: str, state: str, reason: str = "None") -> None:
        """Wait until a job is R (running), PD (pending) for some reason, or gone."""
        shown = f"{state} {reason}" if state else ""
        self.guest.wait_until(lambda: self.state_of(job) == shown, 60, f"job {job} to be {shown!r}")

    def state_of(self, job: str) -> str:
        return self.guest.run("squeue", "--noheader", "--format=%t %r", f"--jobs={job}", check=False).stdout.strip()

    def cancel(self, *jobs: str) -> None:
        self.guest.run("scancel", *jobs)
        for job in jobs:
            self.wait(job, "")
            self.guest.wait_until(lambda job=job: self.files(job, ended=True), 60, f"the end of job {job}")  # type: ignore[misc]

    def cancel_all(self) -> None:
        for user in ("ada", "bob"):
            self.guest.run("scancel", f"--user={user}", check=False)

    def files(self, job: str, ended: bool) -> list[str]:
        pattern = f"{job}-*-*.csv" if ended else f"{job}-*.csv"
        found = self.guest.run("sh", "-c", f"cd {JOBS} && ls {pattern} 2>/dev/null || :").stdout.split()
        return [name for name in found if ended or name.count("-") == 1]

    def pids(self, job: str, command: str) -> list[int]:
        """The processes of a job with this command, as the guest numbers them."""
        lines = self.guest.run("scontrol", "listpids", job, check=False).stdout.splitlines()[1:]
        pids = [int(line.split()[0]) for line in lines if line.split()[0].isdigit()]
        names = {pid: self.guest.run("cat", f"/proc/{pid}/comm", check=False).stdout.strip() for pid in pids}
        return [pid for pid, name in names.items() if name == command]

    def status(self) -> dict[int, dict[str, Any]]:
        """What gua status says of each card to an ordinary user, by index, and without a complaint."""
        done = self.guest.run("gua", "status", "--json", user="somebody")
        assert done.stderr == ""
        return {gpu["index"]: gpu for gpu in json.loads(done.stdout)["gpus"]}

    def sample(self, count: int = 3) -> None:
        for _ in range(count):
            assert laboratory.sample(self.guest) == 0
            time.sleep(1)

    def hours(self) -> dict[tuple[str, str], dict[str, float]]:
        """§8 of the report, by person and card."""
        found = laboratory.report(self.guest, "--since", "1h", "--section", "reservations")["reservations"]
        assert found["problems"] == []
        return {(row["identity"], row["gpu_uuid"]): row for row in found["hours"]}


@pytest.fixture(scope="module")
def cluster(bare: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Guest(tmp_path_factory.mktemp("slurm") / "guest", layers=[bare, installed]) as guest:
        found = Cluster(guest)
        found.start()
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture(autouse=True)
def quiet(cluster: Cluster) -> Iterator[None]:
    """No job is left of the test before, no process on a card, and no node drained by a prolog or an epilog."""
    yield
    cluster.cancel_all()
    cluster.guest.wait_until(lambda: cluster.state() == "idle", 60, "the node to be idle")
    for card in cluster.scenario.cards:
        card.update(compute=())
    laboratory.set_scenario(cluster.guest, cluster.scenario)


def test_a_card_that_is_allocated_and_not_used_is_seen(cluster: Cluster) -> None:
    """By salloc alone: no step, no process, nothing that a tick could see."""
    guest = cluster.guest
    allocate = ["salloc", "--no-shell", "--gres=gpu:x:1", "--mem=0", "--job-name=,\"=cmd'\n"]
    said = guest.run(*allocate, user="ada", cwd="/tmp").stderr
    job = said.split("Granted job allocation ")[1].split()[0]
    guest.wait_until(lambda: cluster.files(job, ended=False), 30, "the prolog")
    # The first device of gres.conf is /dev/nvidia2, and its number is 0.
    cards = cluster.status()
    assert (cards[2]["state"], cards[2]["validation"]["kind"]) == ("truly-idle", "unused")
    assert cards[2]["validation"]["text"] == f"allocated to ada (job {job}), not used"
    assert cards[2]["validation"]["reservations"][0]["slurm_job"] == job
    assert {cards[index]["validation"]["kind"] for index in (0, 1)} == {"available"}
    assert f"     allocated to ada (job {job}), not used\n" in guest.run("gua", "status", user="somebody").stdout
    cluster.sample()
    hours = cluster.hours()
    assert list(hours) == [("ada", UUIDS[2])]
    row = hours["ada", UUIDS[2]]
    assert row["reserved_hours"] >= row["not_used_hours"] == row["idle_hours"] > 0
    assert row["used_hours"] == row["idle_held_hours"] == row["unreserved_hours"] == 0
    text = guest.run("gua-report", "--since", "1h", "--section", "reservations", user="somebody").stdout
    assert "§8 Reservations: 0.0% of the reserved time was used, 100.0% not at all" in text
    free = guest.run("gua", "free", "--uuid", user="somebody").stdout.strip().split(",")
    assert set(free) == {UUIDS[0], UUIDS[1]}
    cluster.cancel(job)
    assert cluster.status()[2]["validation"]["kind"] == "available"


def test_a_process_is_shown_with_its_job_and_the_reservation_ends_with_it(cluster: Cluster) -> None:
    guest = cluster.guest
    job = cluster.submit("gpu:y:1")
    (pid,) = guest.wait_until(lambda: cluster.pids(job, "sleep"), 30, "the job's process")
    assert f"/uid_{guest.run('id', '-u', 'ada').stdout.strip()}/job_{job}/" in guest.read(f"/proc/{pid}/cgroup")
    cluster.scenario.cards[0].update(compute=[(pid, 4096)])  # gpu:y is /dev/nvidia0
    laboratory.set_scenario(guest, cluster.scenario)
    card = cluster.status()[0]
    (process,) = card["processes"]
    assert (process["user"], process["slurm_job"], process["pid"]) == ("ada", job, pid)
    assert card["validation"]["kind"] == "confirmed"
    assert f"  ada, job {job}\n" in guest.run("gua", "status", user="somebody").stdout
    cluster.sample()
    episodes = laboratory.report(guest, "--since", "1h", "--section", "episodes")["episodes"]
    assert [(one["identity"], one["slurm_job"], one["ongoing"]) for one in episodes] == [("ada", job, True)]
    row = cluster.hours()["ada", UUIDS[0]]
    assert row["idle_held_hours"] > 0
    assert row["unreserved_hours"] == 0

    (running,) = cluster.files(job, ended=False)
    cluster.cancel(job)
    (ended,) = cluster.files(job, ended=True)
    assert cluster.files(job, ended=False) == []
    start, end = ended.removesuffix(".csv").split("-")[1:]
    assert running == f"{job}-{start}.csv"
    assert guest.read(f"{JOBS}/{ended}") == f'gpu,user,from,to,note\n{UUIDS[0]},"ada",{start},{end},job {job}\n'
    assert abs(int(end) - time.time()) < 60


def test_jobs_that_share_a_card_by_shards_both_have_it(cluster: Cluster) -> None:
    one = cluster.submit("shard:1")
    other = cluster.submit("shard:1", user="bob")
    found = [card["validation"]["text"] for card in cluster.status().values()]
    assert f"allocated to ada (job {one}) and bob (job {other}), not used" in found
    assert found.count("available") == 2
    cluster.cancel(one, other)


def test_nobody_but_root_can_make_up_a_job(cluster: Cluster) -> None:
    refused = cluster.guest.run("touch", f"{JOBS}/1-1.csv", user="ada", check=False)
    assert refused.returncode != 0
    # A job may set what it likes: a prolog has none of its environment.
    job = cluster.submit("gpu:x:1", SLURM_JOB_USER="bob", GUA_JOBS="/tmp/elsewhere", CUDA_VISIBLE_DEVICES=UUIDS[1])
    (name,) = cluster.files(job, ended=False)
    (row,) = cluster.guest.read(f"{JOBS}/{name}").splitlines()[1:]
    assert row.split(",")[:2] == [UUIDS[2], '"ada"']
    assert cluster.guest.run("ls", "/tmp/elsewhere", check=False).returncode != 0
    cluster.cancel(job)


def test_the_hook_cancels_a_job_that_idles_and_no_other(cluster: Cluster) -> None:
    """With contrib/hooks as it says itself: program, units, and the drop-in by which it may cancel others' jobs."""
    guest = cluster.guest
    job, other = cluster.submit("gpu:y:1"), cluster.submit("gpu:x:1", user="bob")
    (pid,) = guest.wait_until(lambda: cluster.pids(job, "sleep"), 30, "the job's process")
    (busy,) = guest.wait_until(lambda: cluster.pids(other, "sleep"), 30, "the other job's process")
    cluster.scenario.cards[0].update(compute=[(pid, 4096)])
    cluster.scenario.cards[2].update(
        utilization_percent=80, compute=[(busy, 4096)], process_utilization=[(busy, None, 80)]
    )
    laboratory.set_scenario(guest, cluster.scenario)
    folder = ROOT / "contrib" / "hooks"
    for name in ("gua-hook.service", "root.conf"):
        for command in re.findall(r"^#\s+sudo (install .*)$", (folder / name).read_text(), re.MULTILINE):
            guest.run("sh", "-c", command, cwd=SOURCE)
    guest.write("/etc/gua/gua.toml", GUA + '[hook]\nrun = "/etc/gua/on-idle"\n')
    laboratory.let_it_last(guest, "gua-hook.service")
    done = guest.run("systemctl", "start", "gua-hook.service", check=False, timeout=120)
    lines = guest.journal("gua-hook.service")
    assert done.returncode == 0, lines
    assert lines[0].endswith(f"(pid {pid}, sleep). done: cancelled job {job}")
    assert lines[1:] == ["ran /etc/gua/on-idle for 1 process"]
    cluster.wait(job, "")
    assert cluster.state_of(other).startswith("R ")
    assert guest.run("stat", "--format=%U %a", "/var/lib/gua").stdout == "gua 755\n"
    assert guest.run("stat", "--format=%U %a", "/var/lib/gua/hook.sqlite").stdout == "gua 600\n"
