"""canhazgpu's reservations: now, and over time."""

import json
import time

import pytest

from gua_report.live.validation import AVAILABLE, CONFIRMED, KINDS, SEVERAL_USERS, UNRESERVED, UNUSED
from gua_sample.policy import UNKNOWN
from tests.integration.reservations.reserving import (
    GPU_IS_LOST,
    HOUR,
    ME,
    PID,
    by_redis,
    gua,
    now,
    report,
    reserve_by_file,
    status,
)
from tests.machine import Machine
from tests.redis_server import Canhazgpu, free_port, needs_redis


@needs_redis
def test_the_states_from_canhazgpu(machine: Machine, server: Canhazgpu) -> None:
    server.admin(5)
    server.release(0, now() - 1830)
    server.run(1, ME, now() - 930, now() - 5)
    server.reserve(3, "daemon", now() - 3700, now() + 3 * HOUR + 900 + 30)
    server.beat(4, ME, now() - 100.5, now() - 30.25)
    machine.scenario.add_card()
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8452)])
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 1024)])
    machine.scenario.add_card()
    machine.scenario.add_card().error(None, GPU_IS_LOST)
    found = by_redis(machine, server.url, since_seconds=9 * HOUR)
    assert found.kinds() == [AVAILABLE, CONFIRMED, UNRESERVED, UNUSED, UNKNOWN]
    assert set(found.kinds()) | {SEVERAL_USERS} == set(KINDS)
    assert [card["text"] for card in found.cards.values()][:2] == [
        "available, free for 30m",
        f"in use by {ME}, confirmed: 8,452 MiB, 1 process",
    ]
    assert found.cards[3]["text"] == "reserved by daemon, no usage detected, expires in 3h 15m"
    assert found.cards[4]["text"] == f"unknown: the driver does not tell; reserved by {ME}"
    assert [one["type"] for one in found.cards[1]["reservations"]] == ["run"]
    assert found.complaints == []


@needs_redis
def test_the_table_has_what_canhazgpus_has(machine: Machine, server: Canhazgpu) -> None:
    server.admin(3)
    server.beat(0, "daemon", now() - 930.5, now() - 125.25)
    state = {"user": "daemon", "start_time": now() - HOUR - 70, "type": "manual", "note": "\x1b[31mcamera-ready"}
    server.client.set("canhazgpu:gpu:1", json.dumps(state))
    server.release(2, now() - 1830)
    for _ in range(3):
        machine.scenario.add_card()
    config = f'[reservations]\nredis = "{server.url}"'
    lines = gua(machine, config, "status").stdout.splitlines()
    assert "     reserved 15m ago by daemon, type run, heartbeat 2m ago" in lines
    assert "     reserved 1h 01m ago by daemon, type manual: \\x1b[31mcamera-ready" in lines
    # There is no history: canhazgpu tells since when it is free.
    assert "     available, free for 30m" in lines
    found = status(machine, config).cards
    assert found[0]["reservations"][0]["heartbeat_ms"] == pytest.approx((now() - 125) * 1000, abs=30_000)
    assert found[1]["reservations"][0]["heartbeat_ms"] is None
    assert found[2]["free_seconds"] == pytest.approx(1830, abs=30)


@needs_redis
def test_a_run_ends_with_its_heartbeats_and_a_manual_one_by_its_expiry(machine: Machine, server: Canhazgpu) -> None:
    server.admin(4)
    server.run(0, "daemon", now() - 2 * HOUR, now() - 16 * 60)
    server.beat(1, "daemon", now() - 2 * HOUR, now() - 14 * 60)
    server.reserve(2, "daemon", now() - 2 * HOUR, now() - 1)
    server.reserve(3, "daemon", now() - 2 * HOUR)
    found = by_redis(machine, server.url, 4)
    assert found.kinds() == [AVAILABLE, UNUSED, AVAILABLE, UNUSED]


@needs_redis
def test_the_account_counts_not_the_name_that_somebody_gave(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    server.reserve(0, "the CI", now() - HOUR, now() + HOUR, account=ME)
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    found = by_redis(machine, server.url)
    assert (found.kinds(), found.complaints) == ([CONFIRMED], [])


@needs_redis
def test_what_the_version_in_python_writes_is_understood(machine: Machine, server: Canhazgpu) -> None:
    server.admin(3)
    server.client.set("canhazgpu:gpu:0", json.dumps({"last_released": now() - 600}))
    server.client.set("canhazgpu:gpu:1", json.dumps({"user": "daemon", "start_time": now(), "last_heartbeat": now()}))
    server.client.set("canhazgpu:gpu:2", "{}")
    found = by_redis(machine, server.url, 3, HOUR)
    assert found.kinds() == [AVAILABLE, UNUSED, AVAILABLE]
    assert found.cards[0]["text"] == "available, free for 10m"
    assert found.cards[2]["text"] == "available, free for ≥ 1h"
    assert found.complaints == []


@needs_redis
def test_foreign_values_take_one_line_each_and_cost_only_their_card(machine: Machine, server: Canhazgpu) -> None:
    server.admin(6)
    server.client.set("canhazgpu:gpu:0", b"\xffnot JSON\x1b[31m")
    server.client.rpush("canhazgpu:gpu:1", "a list")
    server.client.set("canhazgpu:gpu:2", json.dumps({"user": "daemon", "start_time": "soon"}))
    server.client.set("canhazgpu:gpu:3", json.dumps({"user": ["daemon"], "start_time": 1}))
    server.client.set("canhazgpu:gpu:4", "[1]")
    server.run(5, ME, now() - 60, now())
    for _ in range(6):
        machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    found = by_redis(machine, server.url)
    assert found.kinds() == [UNKNOWN] * 5 + [CONFIRMED]
    assert found.cards[0]["text"] == f"unknown: in use by {ME}, but reservations can't be read"
    for index, (line, said) in enumerate(
        zip(
            found.complaints,
            ["a JSON object, not", "WRONGTYPE", "a time as start_time, not 'soon'", "a text as user", "a JSON object"],
            strict=True,
        )
    ):
        assert line.startswith(f"canhazgpu:gpu:{index} in Redis is not canhazgpu's: ")
        assert said in line
        assert line.isprintable()


@needs_redis
def test_a_text_of_megabytes_fills_nobodys_screen(machine: Machine, server: Canhazgpu) -> None:
    server.admin(3)
    for index, name in enumerate(("user", "note", "type")):
        state = {"user": ME, "start_time": now() - 60, "type": "manual", name: "\x1b" * 500_000}
        server.client.set(f"canhazgpu:gpu:{index}", json.dumps(state))
    found = by_redis(machine, server.url, 3)
    assert found.kinds() == [UNKNOWN] * 3
    for name, line in zip(("user", "note", "type"), found.complaints, strict=True):
        assert f"expected a text as {name}, not" in line
        assert len(line) < 200


@needs_redis
@pytest.mark.parametrize(
    ("count", "said"), [(None, "no canhazgpu:gpu_count"), ("many", "canhazgpu:gpu_count is 'many'")]
)
def test_a_redis_that_is_not_canhazgpus_is_named(
    machine: Machine, server: Canhazgpu, count: str | None, said: str
) -> None:
    server.client.flushall()
    if count is not None:
        server.client.set("canhazgpu:gpu_count", count)
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    found = by_redis(machine, server.url)
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert said in line


def test_a_redis_that_is_down_takes_one_line_and_the_file_still_counts(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    place = f"127.0.0.1:{free_port()}/0"
    config = reserve_by_file(machine, f"0,{ME},2026-01-01,,") + f'redis = "redis://gua:hunter2@{place}"\n'
    before = time.monotonic()
    found = status(machine, config)
    assert time.monotonic() - before < 10
    assert found.kinds() == [CONFIRMED, UNKNOWN]
    (line,) = found.complaints
    assert line.startswith(f"reservations can't be read from redis://{place} (")
    assert "refused" in line
    assert "hunter2" not in line


@needs_redis
def test_a_report_has_what_canhazgpu_remembers(machine: Machine, server: Canhazgpu) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card(compute=[(PID, 8000)])
    for minute in (30, 20, 10):
        machine.tick("--interval", "10m", clock_offset_ms=-minute * 60_000)
    server.admin(2)
    server.record(0, ME, now() - 1805, now() - 900.5)  # half of the time
    server.record(0, ME, now() - 9 * HOUR, now() - 8 * HOUR)
    server.beat(1, ME, now() - 2 * HOUR, now())
    server.client.zadd("canhazgpu:usage_history_sorted", {"rubbish": now()})
    (machine.folder / "gua.toml").write_text(f'[reservations]\nredis = "{server.url}"')
    done = report(machine, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)["reservations"]
    (problem,) = found["problems"]
    assert problem.startswith("canhazgpu:usage_history_sorted in Redis: 1 of 2 entries are not canhazgpu's: ")
    assert done.stderr == f"gua-report: warning: {problem}\n"
    idle, used = sorted(found["hours"], key=lambda row: row["used_hours"])
    assert (idle["gpu_index"], used["gpu_index"]) == (1, 0)
    assert used["identity"] == ME
    assert used["used_hours"] == pytest.approx(0.25, abs=0.01)
    assert used["unreserved_hours"] == pytest.approx(0.25, abs=0.01)
    assert idle["idle_held_hours"] == pytest.approx(0.5, abs=0.01)
    assert idle["unreserved_hours"] == 0


def test_without_the_section_nothing_is_asked_for(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    (machine.folder / "gua.toml").write_text('[reservations]\nfile = "/nowhere"')
    assert report(machine, "--section", "gpus").stderr == ""
    done = report(machine)
    assert "§8 Reservations" in done.stdout
    assert done.stderr.startswith("gua-report: warning: reservations can't be read from /nowhere ")
