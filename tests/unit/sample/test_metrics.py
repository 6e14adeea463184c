"""The metrics of a tick: names, labels, and what is left out because it is not known."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_sample.carried_state import carry_on
from gua_sample.containers import FILE_NAME, LABEL, SOCKET, Container, Known, key_of
from gua_sample.idleness import NOTHING, follow_tick
from gua_sample.metrics import FAMILIES, describe, read_known
from gua_sample.records import Tick
from tests import lab, repository
from tests.lab import MONDAY_MS, SECOND_MS, Gpu, Job, busy, free, held, lost, mig, series, tick, unpartitioned

EVERY_MS = 30 * SECOND_MS
GIB = 1 << 30
ALICE, BOB = lab.ALICE._replace(memory_mib=2048), lab.BOB._replace(memory_mib=1024)
PAGE = repository.page("metrics.md")


def page(ticks: list[Tick], **environment: str) -> str:
    carried = NOTHING
    for one in ticks:
        carried = follow_tick(carried, one)
    return describe(ticks[-1], carried, environment)


def page_of(*gpus: Gpu, ticks: int = 3, **environment: str) -> str:
    return page(series(MONDAY_MS, ticks, *gpus, every_ms=EVERY_MS), **environment)


def values(text: str, name: str) -> dict[str, float]:
    """The series of a metric: what is between the braces, and the value."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def names(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def test_processes_have_the_names_and_labels_of_gpu_idle_exporter() -> None:
    text = page_of(busy(ALICE, BOB))
    alice, bob = 'gpu="0",pid="100",process="python"', 'gpu="0",pid="200",process="python"'
    assert values(text, "gpu_idle_process_compute_utilization_percent") == {alice: 0, bob: 95}
    assert values(text, "gpu_idle_process_memory_used_bytes") == {alice: 2 * GIB, bob: GIB}
    assert values(text, "gpu_idle_process_idle_seconds") == {alice: 30, bob: 0}
    assert values(text, "gpu_idle_process_idle_memory_bytes") == {alice: 2 * GIB, bob: 0}
    assert values(text, "gpu_idle_memory_total_bytes") == {'gpu="0"': 2 * GIB}


def test_cards_have_the_names_and_labels_of_gpu_idle_exporter() -> None:
    one = tick(MONDAY_MS, busy(ALICE, BOB))
    text = page([one._replace(cards=[one.cards[0]._replace(power_watts=123.4)])])
    labels = 'gpu="0",model="A100",uuid="GPU-0"'
    expected = {
        "utilization_percent": 90,
        "memory_used_bytes": 3 * GIB,
        "memory_total_bytes": 80_000 << 20,
        "power_watts": 123.4,
        "temperature_celsius": 40,
    }
    assert {name: values(text, f"gpu_idle_device_{name}") for name in expected} == {
        name: {labels: value} for name, value in expected.items()
    }


def test_nobody_is_idle_at_the_first_tick() -> None:
    text = page_of(held(ALICE), ticks=1)
    assert list(values(text, "gpu_idle_process_idle_seconds").values()) == [0]
    assert list(values(text, "gpu_idle_memory_total_bytes").values()) == [0]


def test_a_card_without_processes_has_no_idle_memory_which_is_known_and_0() -> None:
    assert values(page_of(free()), "gpu_idle_memory_total_bytes") == {'gpu="0"': 0}


def test_what_is_not_known_is_absent_not_0() -> None:
    unknown = Job(100, sm_percent=None, memory_mib=None)
    text = page_of(Gpu(utilization=None, jobs=(unknown,), used_mib=None, total_mib=None))
    assert "gpu_idle_device_temperature_celsius" in text
    for name in (
        *("process_compute_utilization_percent", "process_memory_used_bytes", "process_idle_seconds"),
        *("process_idle_memory_bytes", "memory_total_bytes", "device_utilization_percent", "device_memory_used_bytes"),
        *("device_memory_total_bytes", "device_power_watts"),
    ):
        assert f"gpu_idle_{name}" not in text
    assert "gua_process_idle_held_seconds" not in text
    assert "gua_holder_memory_bytes" not in text
    assert values(text, "gua_holder") == {'gpu="0",uuid="GPU-0",identity="alice",state="unknown"': 1}


def test_the_sum_of_idle_memory_is_not_known_if_a_part_of_it_is_not() -> None:
    assert values(page_of(busy(ALICE, Job(300, sm_percent=None))), "gpu_idle_memory_total_bytes") == {}
    assert values(page_of(busy(ALICE, Job(300, sm_percent=0, memory_mib=None))), "gpu_idle_memory_total_bytes") == {}


def test_desktops_are_no_compute_processes() -> None:
    text = page_of(held(ALICE, Job(1, "root", 700, 0, command="Xorg", type="graphics")))
    assert "Xorg" not in "".join(line for line in text.splitlines() if line.startswith("gpu_idle_"))
    assert values(text, "gpu_idle_memory_total_bytes") == {'gpu="0"': 2 * GIB}
    assert 'identity="root",state="idle-held"' in text


def test_a_lost_card_has_a_status_a_state_and_no_figures() -> None:
    text = page_of(held(ALICE), lost(1))
    assert values(text, "gua_card_status") == {
        'gpu="0",uuid="GPU-0",status="ok"': 1,
        'gpu="1",uuid="GPU-1",status="gpu_is_lost"': 1,
    }
    assert values(text, "gua_card_state")['gpu="1",uuid="GPU-1",state="unknown"'] == 1
    assert values(text, "gpu_idle_memory_total_bytes") == {'gpu="0"': 2 * GIB}


def test_a_card_is_in_one_state_and_not_in_the_others() -> None:
    states = values(page_of(held(ALICE)), "gua_card_state")
    assert states == {
        f'gpu="0",uuid="GPU-0",state="{state}"': int(state == "idle-held")
        for state in ("active", "idle-held", "truly-idle", "unknown")
    }


def test_holders_are_told_by_identity_in_their_most_active_state() -> None:
    pod = "/kubepods.slice/kubepods-pod2f9c0a11_1234_4abc_8def_0123456789ab.slice/x"
    text = page_of(
        busy(
            ALICE,
            ALICE._replace(pid=101, sm_percent=40),
            Job(300, "root", 500, 0, uid=0, cgroup=pod),
            Job(7, "x", 50, 0),
        )
    )
    pod_name = "pod:2f9c0a11-1234-4abc-8def-0123456789ab"
    assert values(text, "gua_holder") == {
        'gpu="0",uuid="GPU-0",identity="alice",state="active"': 1,
        f'gpu="0",uuid="GPU-0",identity="{pod_name}",state="idle-held"': 1,
    }
    assert values(text, "gua_holder_memory_bytes") == {
        'gpu="0",uuid="GPU-0",identity="alice"': 4 * GIB,
        f'gpu="0",uuid="GPU-0",identity="{pod_name}"': 500 << 20,
    }


def test_memory_that_no_process_shows_has_a_holder_too() -> None:
    text = page_of(Gpu(used_mib=3072))
    assert values(text, "gua_holder") == {'gpu="0",uuid="GPU-0",identity="(unattributed)",state="idle-held"': 1}
    assert list(values(text, "gua_holder_memory_bytes").values()) == [3 * GIB]


def test_idle_held_is_told_by_our_own_rule() -> None:
    """From the first tick on an idle card; and a desktop beside it holds nothing."""
    text = page_of(held(ALICE._replace(sm_percent=None), Job(1, "root", 45, 0, command="Xorg", type="graphics")))
    assert values(text, "gua_process_idle_held_seconds") == {
        'gpu="0",uuid="GPU-0",pid="100",process="python",identity="alice"': 60,
        'gpu="0",uuid="GPU-0",pid="1",process="Xorg",identity="root"': 0,
    }
    assert "gpu_idle_process_idle_seconds" not in text  # by that rule, who of both?


def test_mig_instances_are_told_apart_by_the_label_gpu() -> None:
    text = page_of(mig(0, 0, None, (ALICE,)), mig(0, 1), free(1))
    assert set(values(text, "gpu_idle_memory_total_bytes")) == {'gpu="0:0"', 'gpu="0:1"', 'gpu="1"'}
    assert set(values(text, "gpu_idle_process_memory_used_bytes")) == {'gpu="0:0",pid="100",process="python"'}


def test_a_card_that_nothing_can_use_is_in_no_state_and_its_status_says_why() -> None:
    text = page_of(unpartitioned(0), free(1))
    assert {labels.split(",")[0] for labels in values(text, "gua_card_state")} == {'gpu="1"'}
    assert values(text, "gua_card_status") == {
        'gpu="0",uuid="GPU-0",status="unpartitioned"': 1,
        'gpu="1",uuid="GPU-1",status="ok"': 1,
    }
    assert set(values(text, "gpu_idle_memory_total_bytes")) == {'gpu="1"'}


def test_names_and_namespaces_become_labels_of_every_series() -> None:
    text = page_of(held(ALICE), NODE_NAME="n1", POD_NAME='p"1', POD_NAMESPACE="")
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.search(r'[{,]node="n1",pod="p\\"1"} ', line) for line in series)
    assert "namespace" not in text


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('say "hi"', r"say \"hi\""),
        ("a\nb", r"a\\nb"),
        ("back\\slash", r"back\\slash"),
        ("\\", r"\\"),
        ("a\tb\x1b[0m\udc80", r"a\\tb\\x1b[0m\\udc80"),
        ("größe 炬", "größe 炬"),
        ("{}=,# 1", "{}=,# 1"),
        ("", "unknown"),
    ],
)
def test_hostile_names_stay_inside_their_quotes(name: str, label: str) -> None:
    text = page_of(held(ALICE._replace(command=name, user=name or "x")))
    assert list(values(text, "gpu_idle_process_idle_seconds")) == [f'gpu="0",pid="100",process="{label}"']
    text.encode()


def test_a_failed_run_tells_that_and_nothing_of_cards() -> None:
    ticks = [*series(MONDAY_MS, 3, held(ALICE), every_ms=EVERY_MS), tick(MONDAY_MS + 3 * EVERY_MS, error="timeout")]
    text = page(ticks)
    assert names(text) == {name for name in FAMILIES if name.startswith(("gua_last", "gua_tick"))}
    assert values(text, "gua_tick_success") == {"": 0}
    assert values(text, "gua_tick_error") == {'error="timeout"': 1}
    assert values(text, "gua_tick_errors_total") == {"": 1}
    assert values(text, "gua_last_tick_timestamp_seconds") == {"": ticks[-1].ts_ms / 1000}
    assert values(text, "gua_last_success_timestamp_seconds") == {"": ticks[-2].ts_ms / 1000}
    assert values(text, "gua_tick_interval_seconds") == {"": 30}


def test_a_run_that_could_not_store_its_tick_does_not_pass_for_one() -> None:
    carried = follow_tick(NOTHING, tick(MONDAY_MS, held(ALICE)))
    text = describe(None, carried, {})
    assert values(text, "gua_tick_error") == {'error="not_stored"': 1}
    assert values(text, "gua_last_tick_timestamp_seconds") == {"": MONDAY_MS / 1000}
    assert "gua_card" not in text


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    """And every one of the page is there."""
    one = tick(MONDAY_MS, busy(ALICE, BOB))
    one = one._replace(cards=[one.cards[0]._replace(power_watts=123.4)])
    text = page([one]) + page([tick(MONDAY_MS, error="timeout")]) + contained(docker(ID, 1))
    assert names(text) == set(FAMILIES)
    documented = re.findall(r"^\| `(g\w+)` \| (gauge|counter) \|([^|]*)\|", PAGE, re.MULTILINE)
    shown = {}
    for name in FAMILIES:
        (kind,) = set(re.findall(rf"^# TYPE {name} (\w+)$", text, re.MULTILINE))
        labels = next(iter(values(text, name)))
        shown[name] = kind, re.findall(r'(\w+)="', labels)
    assert {name: (kind, re.findall(r"\w+", labels)) for name, kind, labels in documented} == shown
    assert len(documented) == len(FAMILIES)


ID = "3f2a9c81d0b7"
HINTED = Container("docker", "train", "pytorch", "ada", LABEL, None, 1)
ROOTLESS = Container("podman", "notebook", None, "alice", SOCKET, 1000, 2)
KNOWN = Known({ID: HINTED, key_of(ID, 1000): ROOTLESS}, {})


def docker(ident: str, pid: int, login_user: str | None = None) -> Job:
    scope = f"/system.slice/docker-{ident}{'0' * 52}.scope"
    return Job(pid, "root", uid=0, login_user=login_user, cgroup=scope)


def rootless(uid: int, pid: int) -> Job:
    scope = f"/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{ID}{'0' * 52}.scope"
    return Job(pid, "alice", uid=uid, cgroup=scope)


def contained(*jobs: Job, known: Known = KNOWN) -> str:
    one = tick(MONDAY_MS, held(*jobs))
    return describe(one, follow_tick(NOTHING, one), {}, known)


def test_a_container_on_a_card_is_told_beside_its_identity() -> None:
    text = contained(docker(ID, 1), docker(ID, 2), docker("0" * 12, 3), rootless(1000, 4), rootless(1001, 5))
    assert values(text, "gua_container_info") == {
        f'identity="docker:{ID}",container="train",owner_hint="ada",how="label",image="pytorch"': 1,
        'identity="alice",container="notebook",owner_hint="",how="socket",image=""': 1,
    }
    plain = contained(docker(ID, 1), known=Known({}, {}))
    assert text.count("gua_holder{") == 3
    assert "gua_container_info" not in plain
    assert values(plain, "gua_holder") == {f'gpu="0",uuid="GPU-0",identity="docker:{ID}",state="idle-held"': 1}


def test_there_is_one_container_for_each_identity_that_a_query_joins() -> None:
    """Somebody who logged in to a container is that person, in whichever container."""
    other = HINTED._replace(name="serve")
    known = Known({**KNOWN.containers, "0" * 12: other}, {})
    jobs = docker(ID, 1, login_user="bob"), docker("0" * 12, 2, login_user="bob"), docker(ID, 3)
    assert [labels.split(",")[0] for labels in values(contained(*jobs, known=known), "gua_container_info")] == [
        f'identity="docker:{ID}"'
    ]


def test_no_name_of_a_container_breaks_the_file() -> None:
    evil = HINTED._replace(name='x"} 1\ngua_tick_success 1\n', image="\\", owner='a"b')
    lines = contained(docker(ID, 1), known=Known({ID: evil}, {})).splitlines()
    (line,) = (line for line in lines if line.startswith("gua_container_info"))
    assert line == (
        f'gua_container_info{{identity="docker:{ID}",container="x\\"}} 1\\\\ngua_tick_success 1\\\\n",'
        'owner_hint="a\\"b",how="label",image="\\\\"} 1'
    )
    assert sum(line.startswith("gua_tick_success") for line in lines) == 1


def test_names_are_read_only_if_a_process_is_in_a_container(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    lines: list[str] = []
    for one in (None, tick(MONDAY_MS, held(ALICE)), tick(MONDAY_MS, error="timeout")):
        assert read_known(str(tmp_path), one, lines.append) is None
    assert lines == []
    assert read_known(str(tmp_path), tick(MONDAY_MS, held(docker(ID, 1))), lines.append) is None
    assert len(lines) == 1
    assert "names of containers are missing" in lines[0]


def publish(data_dir: str, one: Tick, warn: Callable[[str], None]) -> str:
    """The metrics of a tick, as the sampler writes them."""
    return describe(one, carry_on(data_dir, one, warn), {}, read_known(data_dir, one, warn))


def test_a_file_of_names_that_cant_be_used_costs_no_metric(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / FILE_NAME).symlink_to("/etc/passwd")
    lines: list[str] = []
    text = publish(str(tmp_path), tick(MONDAY_MS, held(docker(ID, 1))), lines.append)
    assert len(lines) == 1
    assert values(text, "gua_tick_success") == {"": 1}
    assert list(values(text, "gua_holder")) == [f'gpu="0",uuid="GPU-0",identity="docker:{ID}",state="idle-held"']
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).write_text(json.dumps({"version": 1, "containers": {ID: HINTED._asdict()}}))
    text = publish(str(tmp_path), tick(MONDAY_MS + EVERY_MS, held(docker(ID, 1))), lines.append)
    assert len(lines) == 1
    assert len(values(text, "gua_container_info")) == 1


@pytest.mark.parametrize(("cgroup", "has_file"), [("/user.slice", True), (docker(ID, 1).cgroup, False)])
def test_metrics_without_known_containers_do_not_import_what_reads_them(
    tmp_path: Path, cgroup: str, has_file: bool
) -> None:
    (tmp_path / "samples").mkdir()
    if has_file:
        (tmp_path / FILE_NAME).write_text("{")
    code = (
        "import sys; from gua_sample.cli import publish; from gua_sample.records import *\n"
        f"processes = {{1: Process(1, *[None] * 6, {cgroup!r})}}\n"
        "one = Tick(1794787200000, None, Boot('b', 1), None, 1, None, [], processes, [])\n"
        f"assert publish(({str(tmp_path / 'gua.prom')!r}, None), {str(tmp_path)!r}, one) is None\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gua_sample.metrics" in done.stdout.split()
    assert not {"gua_sample.containers", "json"} & set(done.stdout.split())
