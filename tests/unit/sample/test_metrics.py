"""The metrics of a tick: names, labels, and what is left out because it is not known."""

import json
import os
import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from gua_sample.containers import FILE_NAME, LABEL, Container, Known
from gua_sample.idle_state import carry_on
from gua_sample.idleness import begin, follow
from gua_sample.metrics import FAMILIES, describe, read_known
from gua_sample.policy import DEFAULT
from gua_sample.processes import printable
from gua_sample.records import Tick
from tests import lab, repository
from tests.lab import MONDAY_MS, SECOND_MS, Gpu, Job, busy, free, held, lost, mig, series, tick, unpartitioned

EVERY_MS = 30 * SECOND_MS
GIB = 1 << 30
ALICE, BOB = lab.ALICE._replace(memory_mib=2048), lab.BOB._replace(memory_mib=1024)
PAGE = repository.page("metrics.md")
GOLDEN = repository.ROOT / "tests" / "golden" / "metrics.prom"


def page(ticks: list[Tick], **environment: str) -> str:
    carried = begin()
    for one in ticks:
        carried = follow(carried, one)
    return describe(ticks[-1], carried, environment)


def page_of(*gpus: Gpu, ticks: int = 3, **environment: str) -> str:
    return page(series(MONDAY_MS, ticks, *gpus, every_ms=EVERY_MS), **environment)


def values(text: str, name: str) -> dict[str, float]:
    """The series of a metric: what is between the braces, and the value."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def names(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


POD = "/kubepods.slice/kubepods-pod2f9c0a11_1234_4abc_8def_0123456789ab.slice/x"
DESKTOP = Job(1, "root", 700, 0, command="Xorg", type="graphics")
SCENE = (
    busy(ALICE, BOB),
    free(1),
    Gpu(2, None, (Job(100, sm_percent=None, memory_mib=None),), None, total_mib=None),  # what is not known is absent
    busy(ALICE, Job(300, sm_percent=None), index=3),  # so the sum of idle memory is not known
    busy(ALICE, Job(300, sm_percent=0, memory_mib=None), index=4),
    held(ALICE, DESKTOP, index=5),  # a desktop is no compute process
    lost(6),
    Gpu(7, used_mib=3072),  # memory that no process shows has a holder too
    mig(8, 0, None, (ALICE,)),
    mig(8, 1),
    unpartitioned(9),
    # Each identity once, in its most active state.
    busy(ALICE, ALICE._replace(pid=101, sm_percent=40), Job(300, "root", 500, 0, uid=0, cgroup=POD), index=10),
    held(ALICE._replace(sm_percent=None), DESKTOP._replace(memory_mib=45), Job(7, "x", 50, 0), index=11),
)


def test_a_page_of_all_that_may_be_on_cards() -> None:
    """To rewrite the golden file: GUA_REWRITE_GOLDEN=1 pytest tests/unit/sample/test_metrics.py"""
    ticks = series(MONDAY_MS, 3, *SCENE, every_ms=EVERY_MS)
    first, *others = ticks[-1].cards
    text = page([*ticks[:-1], ticks[-1]._replace(cards=[first._replace(power_watts=123.4), *others])])
    if os.environ.get("GUA_REWRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_names_and_namespaces_become_labels_of_every_series() -> None:
    text = page_of(held(ALICE), NODE_NAME="n1", POD_NAME='p"1', POD_NAMESPACE="")
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.search(r'[{,]node="n1",pod="p\\"1"} ', line) for line in series)
    assert "namespace" not in text


@given(st.text(), st.text(), st.text())
@example('say "hi"', "a\nb\x1b[0m", "back\\slash")
@example("größe 炬 {}=,# 1", "\\", 'x"} 1\ngua_tick_success 1\n')
def test_hostile_names_stay_inside_their_quotes(command: str, user: str, name: str) -> None:
    """Of processes, of users and of containers."""
    evil = HINTED._replace(name=name, image=name, owner=user)
    text = contained(docker(ID, 1)._replace(command=command, user=user or "x"), known=Known({ID: evil}))
    text.encode()
    series = [line for line in text.splitlines() if not line.startswith("#")]
    pattern = re.compile(r'(\w+)(\{\w+="([^"\\]|\\[\\"])*"(,\w+="([^"\\]|\\[\\"])*")*\})? \S+')
    assert all(pattern.fullmatch(line) for line in series)
    assert text.count("\n") == contained(docker(ID, 1)).count("\n")
    (shown,) = {found[1] for line in series if (found := re.search(r'process="((?:[^"\\]|\\.)*)"', line))}
    assert re.sub(r"\\(.)", r"\1", shown) == (printable(command) or "unknown")


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
HINTED = Container("docker", "train", "pytorch", "ada", LABEL, 1)
KNOWN = Known({ID: HINTED})


def docker(ident: str, pid: int, login_user: str | None = None) -> Job:
    scope = f"/system.slice/docker-{ident}{'0' * 52}.scope"
    return Job(pid, "root", uid=0, login_user=login_user, cgroup=scope)


def rootless(uid: int, pid: int) -> Job:
    scope = f"/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{ID}{'0' * 52}.scope"
    return Job(pid, "alice", uid=uid, cgroup=scope)


def contained(*jobs: Job, known: Known = KNOWN) -> str:
    one = tick(MONDAY_MS, held(*jobs))
    return describe(one, follow(begin(), one), {}, known)


def test_a_container_on_a_card_is_told_beside_its_identity() -> None:
    text = contained(docker(ID, 1), docker(ID, 2), docker("0" * 12, 3), rootless(1000, 4), rootless(1001, 5))
    assert values(text, "gua_container_info") == {
        f'identity="docker:{ID}",container="train",owner_hint="ada",how="label",image="pytorch"': 1
    }
    plain = contained(docker(ID, 1), known=Known({}))
    assert text.count("gua_holder{") == 3
    assert "gua_container_info" not in plain
    assert values(plain, "gua_holder") == {f'gpu="0",uuid="GPU-0",identity="docker:{ID}",state="idle-held"': 1}


def test_there_is_one_container_for_each_identity_that_a_query_joins() -> None:
    """Somebody who logged in to a container is that person, in whichever container."""
    other = HINTED._replace(name="serve")
    known = Known({**KNOWN.containers, "0" * 12: other})
    jobs = docker(ID, 1, login_user="bob"), docker("0" * 12, 2, login_user="bob"), docker(ID, 3)
    assert [labels.split(",")[0] for labels in values(contained(*jobs, known=known), "gua_container_info")] == [
        f'identity="docker:{ID}"'
    ]


def test_a_file_of_names_is_read_only_if_a_process_is_in_a_container_and_costs_no_metric(tmp_path: Path) -> None:
    path, said = tmp_path / FILE_NAME, list[str]()

    def publish(one: Tick) -> str:
        known = read_known(str(tmp_path), one, said.append)
        return describe(one, carry_on(str(tmp_path), DEFAULT, one, None, said.append), {}, known)

    path.symlink_to("/etc/passwd")
    publish(tick(MONDAY_MS, held(ALICE)))
    publish(tick(MONDAY_MS + 1, error="timeout"))
    assert said == []
    text = publish(tick(MONDAY_MS + EVERY_MS, held(docker(ID, 1))))
    (line,) = said
    assert "names of containers are missing" in line
    assert values(text, "gua_tick_success") == {"": 1}
    assert list(values(text, "gua_holder")) == [f'gpu="0",uuid="GPU-0",identity="docker:{ID}",state="idle-held"']
    path.unlink()
    path.write_text(json.dumps({"version": 1, "containers": {ID: HINTED._asdict()}}))
    text = publish(tick(MONDAY_MS + 2 * EVERY_MS, held(docker(ID, 1))))
    assert (len(said), len(values(text, "gua_container_info"))) == (1, 1)
