"""contrib/slurm: the prolog and the epilog as slurmd runs them, whatever a job, a driver or a disk comes up with."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest

from gua_report.reservations import csv_files
from gua_report.reservations.reservation import FOREVER_MS, Book, Reservation
from gua_report.window import parse_zone
from gua_sample.processes import read_boot
from tests.machine import SCRIPTS, call, within
from tests.repository import ROOT, page
from tests.users import SOMEBODY, needs_root

FOLDER = ROOT / "contrib" / "slurm"
DAY = 86_400
# As kernel-open/nvidia/nv-procfs.c of NVIDIA's open-gpu-kernel-modules prints it.
INFORMATION = (
    "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\nVideo BIOS: \t 92.00.45.00.03\n"
    "Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t {bus}\n"
    "Device Minor: \t {minor}\nGPU Firmware: \t 535.129.03\nGPU Excluded:\t {excluded}\n"
)
# The lines that count of what nvidia-smi -q prints.
SMI = """#!/bin/sh
[ "$1" = -q ] || exit 2
cat <<'END'

==============NVSMI LOG==============

Driver Version                            : 535.129.03
Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU UUID                              : GPU-5a00
    Minor Number                          : 1
    GPU Part Number                       : 692-2G506-0210-002
GPU 00000000:0F:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU UUID                              : GPU-5b00
    Minor Number                          : 0
END
"""


class Node:
    """A node of a cluster: its cards in the order of the PCI bus, and the folder of its jobs."""

    def __init__(self, folder: Path) -> None:
        self.jobs, self.proc = folder / "spool" / "jobs", folder / "nvidia"
        self.settings: dict[str, str] = {}
        self.scripts = FOLDER
        self.shell: list[str] = []
        self.said = ""

    def add_card(self, uuid: str, minor: int | str, excluded: str = "No") -> None:
        bus = f"0000:{7 + 8 * len(list(self.proc.glob('gpus/*'))):02x}:00.0"
        path = self.proc / "gpus" / bus / "information"
        path.parent.mkdir(parents=True)
        path.write_text(INFORMATION.format(uuid=uuid, bus=bus, minor=minor, excluded=excluded))

    def run(self, name: str, job: str = "4711", **variables: str) -> None:
        """Run a script as slurmd does: it is called by its path, has no PATH, and must not fail."""
        environment = {
            "SLURM_JOB_ID": job,
            "SLURM_JOB_UID": "1001",
            "SLURM_JOB_USER": "ada",
            "SLURM_JOB_NAME": 'x"\n,=cmd',
            "GUA_JOBS": str(self.jobs),
            "GUA_NVIDIA_PROC": str(self.proc),
            "GUA_NVIDIA_SMI": "/nonexistent",
            **self.settings,
            **variables,
        }
        command = [*self.shell, str(self.scripts / name)]
        done = call(command, env=environment, cwd="/", timeout=30)
        assert (done.returncode, done.stdout) == (0, "")
        self.said = done.stderr

    def begin(self, gpus: str | None = "0", job: str = "4711", **variables: str) -> None:
        self.run("gua-prolog", job, **({} if gpus is None else {"SLURM_JOB_GPUS": gpus}), **variables)

    def end(self, job: str = "4711", **variables: str) -> None:
        self.run("gua-epilog", job, **variables)

    def names(self) -> list[str]:
        """The files in the folder, but for the note of the boot."""
        return sorted({path.name for path in self.jobs.glob("*")} - {csv_files.BOOT_FILE})

    def read(self) -> list[Reservation]:
        """The reservations as gua reads them, without a complaint."""
        said: list[str] = []
        book = Book(said.append)
        csv_files.read_folder(str(self.jobs), 0, parse_zone("UTC"), book)
        assert said == []
        return sorted(book.reservations, key=lambda one: (one.start_ms, one.gpu))

    def leave(self, job: int, start: int, end: int | None = None) -> str:
        """A file of an earlier job; returns its name."""
        self.jobs.mkdir(parents=True, exist_ok=True)
        name = f"{job}-{start}.csv" if end is None else f"{job}-{start}-{end}.csv"
        (self.jobs / name).write_text(f'gpu,user,from,to,note\nGPU-a0,"bob",{start},{end or ""},job {job}\n')
        return name


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Three cards, of which the second and the third have each other's minors."""
    found = Node(tmp_path)
    for uuid, minor in (("GPU-a0", 0), ("GPU-b1", 2), ("GPU-c2", 1)):
        found.add_card(uuid, minor)
    return found


def cards(node: Node) -> list[str]:
    (file,) = node.jobs.glob("*.csv")
    return [line.split(",")[0] for line in file.read_text().splitlines()[1:]]


def now() -> int:
    return int(time.time())


def test_shellcheck_has_nothing_to_say() -> None:
    scripts = sorted(map(str, FOLDER.glob("gua-*")))
    assert len(scripts) == 3
    done = call([SCRIPTS / "shellcheck", "--shell=sh", *scripts])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert all(os.access(script, os.X_OK) for script in scripts)


def test_the_page_tells_what_can_be_set_and_how_to_install_it() -> None:
    text, script = page("people.md"), (FOLDER / "gua-job").read_text()
    defaults = dict(re.findall(r"^(GUA_\w+)=\$\{\1:-(.*?)\}", script, re.MULTILINE))
    assert f"ended more than\n  {defaults['GUA_JOBS_DAYS']} days ago" in text
    assert f'folder = "{defaults["GUA_JOBS"]}"' in text
    assert f"install -d -m 755 {defaults['GUA_JOBS']}\n" in text
    assert all(name in text for name in ("GUA_JOBS=", "GUA_JOBS_DAYS=", "GUA_GPU_ORDER="))
    (installed,) = re.findall(r"^install -m 755 (.*) /etc/slurm/$", text, re.MULTILINE)
    assert sorted(installed.split()) == sorted(path.name for path in FOLDER.iterdir())
    (settings,) = re.findall(r"^settings=(.*)$", script, re.MULTILINE)
    assert f"# {settings}\n" in text


@pytest.mark.parametrize("shell", ["sh", "bash --posix", "busybox sh"])
def test_a_job_has_its_cards_from_its_prolog_to_its_epilog(node: Node, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell.split()[0]):
        node.scripts = tmp_path / "scripts"
        shutil.copytree(FOLDER, node.scripts)
        script = node.scripts / "gua-job"
        script.write_text(script.read_text().replace("#!/bin/sh", f"#!/usr/bin/env -S {shell}"))
    node.settings["GUA_GPU_ORDER"] = "pci"
    before = now()
    node.begin("0,2")
    assert node.said == ""
    first, second = node.read()
    assert (first.gpu, second.gpu) == ("GPU-a0", "GPU-c2")
    assert before * 1000 <= first.start_ms == second.start_ms <= now() * 1000
    assert {(one.user, one.end_ms, one.job) for one in (first, second)} == {("ada", FOREVER_MS, "4711")}
    assert node.names() == [f"4711-{first.start_ms // 1000}.csv"]
    time.sleep(1.1)
    node.end()
    ended = node.read()
    assert [one[:3] for one in ended] == [one[:3] for one in (first, second)]
    (end_ms,) = {one.end_ms for one in ended}
    assert first.start_ms < end_ms <= now() * 1000
    assert node.names() == [f"4711-{first.start_ms // 1000}-{end_ms // 1000}.csv"]


@needs_root
def test_the_folder_is_its_owners_alone_and_files_are_for_everybody_to_read(node: Node) -> None:
    node.begin()
    assert node.jobs.stat().st_mode & 0o7777 == 0o755
    (file,) = node.jobs.glob("*.csv")
    assert file.stat().st_mode & 0o7777 == 0o644
    for path in (node.jobs, *node.jobs.parents[:3]):
        path.chmod(0o755)
    done = call(["touch", str(node.jobs / "1-1.csv")], user=SOMEBODY, group=SOMEBODY)
    assert done.returncode != 0
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("order", "gpus", "expected"),
    [
        # Position and minor agree on the first card alone.
        ("", "0", ["GPU-a0"]),
        ("", "1", ["unknown"]),
        ("", "0,1,2", ["GPU-a0", "unknown", "unknown"]),
        ("pci", "0,1,2", ["GPU-a0", "GPU-b1", "GPU-c2"]),
        ("0,1,2", "0,1,2", ["GPU-a0", "GPU-c2", "GPU-b1"]),
        ("2,0,1", "0,1,2", ["GPU-b1", "GPU-a0", "GPU-c2"]),
        ("GPU-ff,MIG-ee,1", "0,1,2", ["GPU-ff", "MIG-ee", "GPU-c2"]),
        ("0,1", "2", ["unknown"]),
        ("7", "0", ["unknown"]),
        ("pci", "3", ["unknown"]),
        ("pci", "x", ["unknown"]),
        ("0,1,2", "-1", ["unknown"]),
        ("nonsense", "0", ["unknown"]),
        ("*", "0", ["unknown"]),
        ("0,1,2", "99999999999999999999", ["unknown"]),
    ],
)
def test_a_number_of_slurm_is_a_card_if_there_is_no_doubt(
    node: Node, order: str, gpus: str, expected: list[str]
) -> None:
    node.begin(gpus, GUA_GPU_ORDER=order)
    assert cards(node) == expected
    assert ("GUA_GPU_ORDER" in node.said) is ("unknown" in expected)
    assert len(node.said.splitlines()) == ("unknown" in expected)


def test_uuids_that_slurm_tells_are_taken_as_they_are(node: Node) -> None:
    node.begin("0,1,2", CUDA_VISIBLE_DEVICES="MIG-9d0b9e7b-4f0c-5a7e,0,MIG-GPU-a0/7/0")
    assert cards(node) == ["MIG-9d0b9e7b-4f0c-5a7e", "unknown", "MIG-GPU-a0/7/0"]
    (file,) = node.jobs.glob("*.csv")
    file.unlink()
    node.begin("0,1", CUDA_VISIBLE_DEVICES="GPU-a0;rm,GPU-$(touch x)")
    assert cards(node) == ["unknown", "unknown"]


def test_with_mig_instances_that_slurm_does_not_name_the_card_is_not_known(node: Node) -> None:
    (node.proc / "capabilities" / "gpu0" / "mig").mkdir(parents=True)
    node.begin("0")
    assert cards(node) == ["GPU-a0"]  # MIG is off, or nothing is made
    (node.proc / "capabilities" / "gpu0" / "mig" / "gi7").mkdir()
    for order, expected in (("", "unknown"), ("pci", "unknown"), ("MIG-1,MIG-2", "MIG-1")):
        shutil.rmtree(node.jobs)
        node.begin("0", GUA_GPU_ORDER=order)
        assert cards(node) == [expected]


def test_a_card_that_is_excluded_or_not_initialised_is_none(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_card("GPU-a0", 0, excluded="Yes")
    node.add_card("GPU-????????-????-????-????-????????????", 1)
    node.add_card("GPU-c2", 2)
    node.begin("0,1", GUA_GPU_ORDER="pci")
    assert cards(node) == ["unknown", "GPU-c2"]


def test_where_the_driver_does_not_tell_nvidia_smi_is_asked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    node.settings |= {"GUA_NVIDIA_SMI": str(smi), "GUA_GPU_ORDER": "pci"}
    node.begin("0,1")
    assert cards(node) == ["GPU-5a00", "GPU-5b00"]
    shutil.rmtree(node.jobs)
    node.begin("0,1", GUA_GPU_ORDER="0,1")
    assert cards(node) == ["GPU-5b00", "GPU-5a00"]
    shutil.rmtree(node.jobs)
    node.add_card("GPU-????????-????-????-????-????????????", 0)
    node.begin("0")
    assert cards(node) == ["GPU-5a00"]
    shutil.rmtree(node.jobs)
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    node.begin("0")
    assert cards(node) == ["unknown"]


def test_a_job_without_cards_leaves_nothing_and_a_machine_without_a_driver_a_line(node: Node, tmp_path: Path) -> None:
    for gpus in (None, ""):
        node.begin(gpus)
        assert not node.jobs.exists()
    node.end()
    assert not node.jobs.exists()
    without = Node(tmp_path / "without")
    without.begin("0")
    assert cards(without) == ["unknown"]
    assert without.said.startswith("gua-job: job 4711: SLURM_JOB_GPUS=0 can't be told from the driver's cards: ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ada", "ada"),
        ("Ada Lovelace", "Ada Lovelace"),
        ("LAB\\ada", "LAB\\ada"),
        ("a,b", "a,b"),
        ('a"b""c"', 'a"b""c"'),
        ("a',job 1", "a',job 1"),
        ("zoë", "zoë"),
        ("$(touch /tmp/x)`id`%s\\n", "$(touch /tmp/x)`id`%s\\n"),
        ("*", "*"),
        ("x" * 5000, "x" * 5000),
        ("=cmd|' /C calc'!A0", "uid:1001"),
        ("+1", "uid:1001"),
        ("-2", "uid:1001"),
        ("@SUM", "uid:1001"),
        ("a\nGPU-a0,eve,1,,", "uid:1001"),
        ("a\x1b[2J", "uid:1001"),
        ("a\r", "uid:1001"),
        ("", "uid:1001"),
        ("1001", "uid:1001"),  # a directory of users that does not answer
        ("nobody", "uid:1001"),
    ],
)
def test_a_name_arrives_as_it_is_or_as_a_number(node: Node, name: str, expected: str) -> None:
    node.begin("0", SLURM_JOB_USER=name)
    node.end()
    (one,) = node.read()
    assert (one.gpu, one.user, one.note, one.job) == ("GPU-a0", expected, "job 4711", "4711")
    assert one.end_ms < FOREVER_MS


@pytest.mark.parametrize("job", ["", "x", "1;rm", "../../etc/x", "-1", "1 2", "4711\n", "9" * 30])
def test_what_is_no_job_id_is_refused(node: Node, job: str) -> None:
    for variables in ({}, {"SLURM_JOB_UID": "x"}):
        node.begin("0", job, **variables)
        assert "are no numbers" in node.said
        node.end(job, **variables)
        assert not node.jobs.exists()
    node.begin("0", SLURM_JOB_UID="")
    assert not node.jobs.exists()


def test_a_prolog_that_runs_twice_leaves_one_reservation_that_goes_on(node: Node) -> None:
    node.begin("0")
    start = node.read()[0].start_ms
    time.sleep(1.1)
    node.begin("0")
    first, second = node.read()
    assert (first.start_ms, first.end_ms, second.end_ms) == (start, second.start_ms, FOREVER_MS)
    node.begin("0")  # within the same second, most likely
    assert [one.end_ms for one in node.read()].count(FOREVER_MS) == 1
    node.end()
    assert FOREVER_MS not in {one.end_ms for one in node.read()}
    assert min(one.start_ms for one in node.read()) == start


def test_a_job_that_is_requeued_keeps_its_first_run(node: Node) -> None:
    earlier = node.leave(4711, now() - 7200, now() - 3600)
    node.begin("0")
    node.end()
    assert earlier in node.names()
    first, second = node.read()
    assert (first.user, first.end_ms - first.start_ms) == ("bob", 3_600_000)
    assert second.start_ms >= first.end_ms
    assert second.end_ms < FOREVER_MS


def test_an_epilog_ends_its_own_job_alone(node: Node) -> None:
    others = [node.leave(471, now() - 60), node.leave(47110, now() - 60), node.leave(4, now() - 60)]
    node.begin("0")
    node.end()
    assert set(others) < set(node.names())
    assert sorted(one.job or "" for one in node.read() if one.end_ms == FOREVER_MS) == ["4", "471", "47110"]


def test_two_jobs_on_one_card_both_have_it(node: Node) -> None:
    node.begin("0", "1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
    node.begin("0", "2", SLURM_JOB_USER="bob")
    assert {(one.gpu, one.user, one.job) for one in node.read()} == {("GPU-a0", "ada", "1"), ("GPU-a0", "bob", "2")}
    node.end("1")
    assert {one.job for one in node.read() if one.end_ms == FOREVER_MS} == {"2"}


def test_when_the_clock_was_set_back_a_job_ends_right_after_it_began(node: Node) -> None:
    start = now() + 5000
    node.leave(4711, start)
    node.end()
    (one,) = node.read()
    assert (one.start_ms, one.end_ms) == (start * 1000, start * 1000 + 1000)
    assert node.names() == [f"4711-{start}-{start + 1}.csv"]


def test_files_of_jobs_that_ended_long_ago_go_and_no_others(node: Node) -> None:
    old, young = node.leave(1, now() - 100 * DAY, now() - 91 * DAY), node.leave(2, now() - 100 * DAY, now() - 89 * DAY)
    running = node.leave(3, now() - 100 * DAY)
    (node.jobs / ".boot").write_text(f"{read_boot().id}\n")
    odd = ["by-hand.csv", "1-2-3-4.csv", "9-x-1.csv", "9--1.csv", f"9-1-{'9' * 30}.csv", "1-1-1.csv.bak"]
    for name in odd:
        (node.jobs / name).write_text("gpu,user,from,to,note\n")
    node.end("4")
    assert node.names() == sorted([young, running, *odd])
    node.end("4", GUA_JOBS_DAYS="80")
    assert node.names() == sorted([running, *odd])
    assert old not in node.names()
    node.leave(1, now() - 100 * DAY, now() - 91 * DAY)
    node.end("4", GUA_JOBS_DAYS="a year")  # is none: the default
    assert old.split("-")[0] == "1"
    assert node.names() == sorted([running, *odd])


def test_jobs_that_ran_when_the_machine_went_down_end_with_the_next_boot(node: Node) -> None:
    booted = read_boot().time_ms // 1000
    before, after = node.leave(1, booted - 5000), node.leave(2, booted + 60)
    (node.jobs / ".boot").write_text("the boot before\n")
    (node.jobs / ".1-5.csv.99").write_text("half a row")
    node.begin("0")
    first = node.read()[0]
    assert (first.job, first.start_ms) == ("1", (booted - 5000) * 1000)
    assert abs(first.end_ms - booted * 1000) <= 2000
    assert before not in node.names()
    assert after in node.names()  # of a prolog that ran at the same time
    assert (node.jobs / ".boot").read_text() == f"{read_boot().id}\n"
    assert not (node.jobs / ".1-5.csv.99").exists()
    node.leave(3, booted - 5000)  # by a clock that was wrong then: this boot's jobs are not ended twice
    node.begin("0", "5")
    assert {one.job for one in node.read() if one.end_ms == FOREVER_MS} == {"2", "3", "4711", "5"}


@needs_root
def test_a_folder_that_is_not_ours_alone_is_left_alone(node: Node) -> None:
    for mode, owner in ((0o777, 0), (0o775, 0), (0o1777, 0), (0o755, SOMEBODY)):
        node.jobs.mkdir(parents=True, exist_ok=True)
        node.jobs.chmod(mode)
        os.chown(node.jobs, owner, owner)
        node.begin("0")
        assert "only its owner may write to" in node.said
        node.end()
        assert node.names() == []
    node.jobs.rmdir()
    target = node.jobs.parent / "target"
    target.mkdir()
    node.jobs.symlink_to(target)
    node.begin("0")
    assert "only its owner may write to" in node.said
    assert list(target.iterdir()) == []
    node.jobs.unlink()
    node.jobs.write_text("")
    node.begin("0")
    assert "only its owner may write to" in node.said


def test_a_full_disk_a_place_that_is_none_or_a_missing_script_lets_the_job_run(node: Node, tmp_path: Path) -> None:
    node.leave(1, now() - 60)
    before = {path: path.read_bytes() for path in node.jobs.iterdir()}
    node.shell = ["sh", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$0"']
    for name, job in (("gua-prolog", "4711"), ("gua-epilog", "1")):
        node.run(name, job, SLURM_JOB_GPUS="0")
        assert f"gua-job: job {job}: not written: is there room in {node.jobs}?" in node.said
        assert {path: path.read_bytes() for path in node.jobs.iterdir()} == before
    node.shell = []
    node.settings["GUA_JOBS"] = "/proc/gua/jobs"
    node.begin("0")
    assert "gua-job: job 4711: " in node.said
    node.end()
    del node.settings["GUA_JOBS"]
    node.scripts = tmp_path / "scripts"
    node.scripts.mkdir()
    for name in ("gua-prolog", "gua-epilog"):
        shutil.copy(FOLDER / name, node.scripts)
    node.begin("0")
    node.end()
    assert "gua-job" in node.said
    (node.scripts / "gua-job").write_text("#!/bin/sh\nif\n")
    (node.scripts / "gua-job").chmod(0o755)
    node.begin("0")


def test_many_files_of_ended_jobs_cost_little(node: Node) -> None:
    for job in range(5000):
        node.leave(job, now() - 20 * DAY, now() - 10 * DAY)
    with within(3):
        node.begin("0", "9999")
    assert len(node.names()) == 5001
