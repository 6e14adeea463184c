"""Reservations against what the stand-in driver has on its cards; Redis is a real one, filled as canhazgpu does."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from gua_report.people.identities import resolve
from gua_report.reservations.cards import AVAILABLE, CONFIRMED, KINDS, SEVERAL_USERS, UNRESERVED, UNUSED
from gua_sample.policy import UNKNOWN
from gua_sample.processes import describe, read_boot, user_names
from tests.machine import GUA, SCRIPTS, Machine
from tests.redis_server import CERTIFICATE, KEY, Canhazgpu, free_port, needs_redis, redis_server
from tests.repository import ROOT
from tests.users import needs_root

PID = os.getpid()
HOUR = 3600
GPU_IS_LOST = 15

login_uid_is_set = Path("/proc/self/loginuid").exists() and int(Path("/proc/self/loginuid").read_text()) != 2**32 - 1


def me() -> str:
    """The identity that a process of ours has on a card."""
    who = describe(PID, read_boot())
    names = user_names({uid for uid in (who.uid, who.login_uid) if uid is not None})
    user, login = (names.get(uid) if uid is not None else None for uid in (who.uid, who.login_uid))
    return resolve(who.uid, who.login_uid, user, login, who.cgroup)


ME = me()


class Status(NamedTuple):
    cards: dict[int, dict[str, Any]]
    complaints: list[str]

    def kinds(self) -> list[str]:
        return [card["kind"] for card in self.cards.values()]


@contextmanager
def process_of(user: str) -> Iterator[int]:
    """A process that belongs to somebody else."""
    with subprocess.Popen(["sleep", "60"], user=user) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def gua(machine: Machine, config: str, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = machine.folder / "gua.toml"
    path.write_text(config)
    command = [GUA, verb, "--config", str(path), "--data-dir", str(machine.data_dir), *options]
    return subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False, timeout=60)


def status(machine: Machine, config: str, since_seconds: float = 0) -> Status:
    """By the real command, with a history of that length in which all was as it is now."""
    for step in range(4 if since_seconds else 0):
        clock_ms = round((time.time() - since_seconds * (4 - step) / 4) * 1000)
        machine.sample("--interval", f"{since_seconds / 4:.0f}s", clock_ms=clock_ms)
    done = gua(machine, config, "status", "--json")
    assert done.returncode == 0, done.stderr
    found = {card["index"]: card["validation"] for card in json.loads(done.stdout)["gpus"]}
    complaints = [line.removeprefix("gua status: warning: ") for line in done.stderr.splitlines()]
    return Status({index: card for index, card in found.items() if card is not None}, complaints)


def reserve_by_file(machine: Machine, *rows: str, header: str = "gpu,user,from,to,note", people: str = "") -> str:
    path = machine.folder / "reservations.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return f'[reservations]\nfile = "{path}"\n{people}'


def now() -> int:
    return int(time.time())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canhazgpu]:
    with redis_server(tmp_path_factory.mktemp("redis")) as found:
        yield found


# -- the states, from a file


def test_available_with_how_long_it_is_free(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.add_card()
    config = reserve_by_file(machine, f"1,{ME},{now() - HOUR},{now() - 600},")
    found = status(machine, config, since_seconds=3 * HOUR + 720)
    assert found.kinds() == [AVAILABLE, AVAILABLE]
    assert found.cards[0]["text"] == "available, free for ≥ 3h 12m"
    # Until ten minutes ago nobody could have had it.
    assert found.cards[1]["text"] == "available, free for 10m"
    assert found.cards[1]["free_seconds"] == pytest.approx(600, abs=60)
    assert found.complaints == []


def test_in_use_and_confirmed(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8452)])
    config = reserve_by_file(machine, f"0,{ME},{now() - HOUR},{now() + 2 * HOUR + 90},paper")
    found = status(machine, config)
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"] == f"in use by {ME}, confirmed: 8,452 MiB, 1 process, expires in 2h 01m"
    assert found.cards[0]["reservations"][0]["note"] == "paper"
    assert found.complaints == []


def test_confirmed_but_without_work(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=0, compute=[(PID, 8452)])
    found = status(machine, reserve_by_file(machine, f"0,{ME},2026-01-01,,"), since_seconds=2 * HOUR)
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"] == f"in use by {ME}, confirmed: 8,452 MiB, 1 process, no work for ≥ 2h"


@pytest.mark.parametrize("utilization", [80, 0])
def test_in_use_without_reservation_names_user_pids_names_and_memory(machine: Machine, utilization: int) -> None:
    command = Path(f"/proc/{PID}/comm").read_text().strip()
    machine.scenario.add_card(utilization_percent=utilization, compute=[(PID, 8000)])
    found = status(machine, reserve_by_file(machine))
    assert found.kinds() == [UNRESERVED]
    expected = f"in use WITHOUT RESERVATION by {ME}: PID {PID} ({command}) 8,000 MiB"
    assert found.cards[0]["text"] == expected
    details = found.cards[0]
    assert details["unreserved_users"] == [ME]
    assert details["processes"] == [{"user": ME, "pid": PID, "command": command, "memory_mib": 8000}]


def test_a_reservation_of_somebody_else_or_of_another_time_is_none(machine: Machine) -> None:
    for _ in range(3):
        machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    rows = [f"0,daemon,{now() - HOUR},,", f"1,{ME},{now() - HOUR},{now() - 1},", f"2,{ME},{now() + HOUR},,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [UNRESERVED] * 3
    assert found.cards[0]["text"].endswith(" 8,000 MiB; reserved by daemon")


def test_reserved_but_no_usage_detected(machine: Machine) -> None:
    uuid = machine.scenario.add_card().settings["uuid"]
    machine.scenario.add_card(graphics=[(PID, 45)])  # a desktop is no use
    rows = [f"{uuid},daemon,{now() - HOUR},{now() + HOUR + 30},", "1,daemon,2026-01-01,,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [UNUSED, UNUSED]
    assert found.cards[0]["text"] == "reserved by daemon, no usage detected, expires in 1h"
    assert found.cards[1]["text"] == "reserved by daemon, no usage detected"


@needs_root
@pytest.mark.skipif(login_uid_is_set, reason="with a login uid, all that we start belongs to one user")
def test_several_users_on_one_card(machine: Machine) -> None:
    with process_of("daemon") as theirs:
        for _ in range(3):
            card = machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000), (theirs, 900)])
            card.update(graphics=[(1, 45)])
        rows = [f"1,{ME},2026-01-01,,", f"2,{ME},2026-01-01,,", "2,daemon,2026-01-01,,"]
        found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [SEVERAL_USERS] * 3
    neither, one, both = (found.cards[index] for index in range(3))
    assert neither["text"].startswith(
        f"several users: {ME} WITHOUT RESERVATION and daemon WITHOUT RESERVATION: PID {PID} ("
    )
    expected = f"several users: {ME} (reserved) and daemon WITHOUT RESERVATION: PID {theirs} (sleep) 900 MiB"
    assert one["text"] == expected
    assert one["unreserved_users"] == ["daemon"]
    assert both["text"] == f"several users: {ME} (reserved) and daemon (reserved): 8,900 MiB, 2 processes"
    (overlap,) = found.complaints
    assert overlap.startswith("GPU 2 is reserved twice from 2026-01-01 00:00 on, both count: ")


def test_unknown(machine: Machine) -> None:
    for _ in range(2):
        machine.scenario.add_card(compute=[(PID, 8000)]).error(None, GPU_IS_LOST)
    found = status(machine, reserve_by_file(machine, "1,daemon,2026-01-01,,"))
    assert found.kinds() == [UNKNOWN, UNKNOWN]
    assert found.cards[0]["text"] == "unknown: the driver does not tell"
    assert found.cards[1]["text"] == "unknown: the driver does not tell; reserved by daemon"


def test_memory_that_no_process_shows_is_nobodys(machine: Machine) -> None:
    for _ in range(2):
        machine.scenario.add_card(memory_free_mib=60_000)
    found = status(machine, reserve_by_file(machine, "1,daemon,2026-01-01,,"))
    assert found.kinds() == [UNRESERVED, UNKNOWN]
    assert found.cards[0]["text"] == "in use WITHOUT RESERVATION by nobody visible"
    assert found.cards[1]["text"] == "unknown: in use, but no process shows by whom; reserved by daemon"


def test_where_work_cannot_be_measured_it_still_shows_who_holds_the_card(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=None, compute=[(PID, 8000)])
    machine.scenario.add_card(utilization_percent=None, samples=None, compute=[(PID, 8000)])
    found = status(machine, reserve_by_file(machine, f"1,{ME},2026-01-01,,"))
    assert found.kinds() == [UNRESERVED, CONFIRMED]


def test_people_are_the_same_on_both_sides(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    people = f'[people]\n"{ME}" = "Ada"\n"ada@lab" = "Ada"\n'
    found = status(machine, reserve_by_file(machine, "0,ada@lab,2026-01-01,,", people=people))
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"].startswith("in use by Ada, confirmed")
    assert found.complaints == []


def test_nothing_is_checked_unless_it_is_configured(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    assert status(machine, "") == Status({}, [])


# -- bad input: a line that names it, and the rest of the table is there


def test_a_bad_row_a_missing_card_and_a_missing_user_take_one_line_each(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    rows = [f"0,{ME},2026-01-01,,", f"1,{ME},tomorrow,,", "7,daemon,2026-01-01,,", "1,no-such-user,2026-01-01,,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [CONFIRMED, UNUSED]
    file = machine.folder / "reservations.csv"
    bad, card, user = found.complaints
    assert bad.startswith(f"{file} line 3: bad from 'tomorrow': expected a time such as ")
    assert card == f"GPU 7 does not exist: reserved for daemon in {file} line 4"
    assert user == f"no user 'no-such-user' on this machine, nor on a card: reservation in {file} line 5"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("gpu,usr,from,to,note", "line 1: no column user; unknown column 'usr': expected gpu,user,from,to,note"),
        ("gpu;user;from;to;note", "line 1: no column gpu, user, from, to; unknown column 'gpu;user;from;to;note'"),
        ("0,daemon,2026-01-01,,", "line 1: no column gpu, user, from, to; unknown column '0', 'daemon', "),
    ],
)
def test_a_wrong_column_is_named_and_nobody_is_blamed_for_it(machine: Machine, header: str, said: str) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    found = status(machine, reserve_by_file(machine, f"0,{ME},2026-01-01,,", header=header))
    assert found.kinds() == [UNKNOWN, UNKNOWN]
    assert found.cards[0]["text"] == f"unknown: in use by {ME}, but reservations can't be read"
    assert found.cards[1]["text"] == "unknown: not in use, but reservations can't be read"
    (line,) = found.complaints
    assert said in line


def test_a_missing_file_is_named(machine: Machine) -> None:
    machine.scenario.add_card()
    found = status(machine, '[reservations]\nfile = "/nowhere/reservations.csv"')
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert line.startswith("reservations can't be read from /nowhere/reservations.csv (No such file or directory): ")


# -- canhazgpu


def test_the_table_shows_the_check_below_each_card(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    done = gua(machine, reserve_by_file(machine, f"1,daemon,{now() - HOUR},,"), "status")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"     in use WITHOUT RESERVATION by {ME}: PID {PID}") for line in lines)
    assert "     reserved by daemon, no usage detected" in lines
    assert max(map(len, lines)) <= 78


def test_cards_that_somebody_else_has_reserved_are_not_free(machine: Machine) -> None:
    for _ in range(4):
        machine.scenario.add_card()
    own = pwd.getpwuid(os.getuid()).pw_name
    config = reserve_by_file(
        machine, f"1,daemon,{now() - HOUR},,", f"2,{own},{now() - HOUR},,", f"3,bin,{now() + HOUR},,"
    )
    assert gua(machine, config, "free").stdout == "0,2,3\n"
    done = gua(machine, config, "free", "-n", "4")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gua free: error: Requested 4, available 3 (1 reserved by daemon; gua status)\n"


def test_nothing_is_called_free_while_reservations_can_not_be_read(machine: Machine) -> None:
    machine.scenario.add_card()
    done = gua(machine, f'[reservations]\nfile = "{machine.folder}/none.csv"', "free")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Requested 1, available 0 (1 whose reservations can't be read; gua status)" in done.stderr.splitlines()[-1]


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
    found = status(machine, f'[reservations]\nredis = "{server.url}"', since_seconds=9 * HOUR)
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
def test_a_run_ends_with_its_heartbeats_and_a_manual_one_by_its_expiry(machine: Machine, server: Canhazgpu) -> None:
    server.admin(4)
    server.run(0, "daemon", now() - 2 * HOUR, now() - 16 * 60)
    server.beat(1, "daemon", now() - 2 * HOUR, now() - 14 * 60)
    server.reserve(2, "daemon", now() - 2 * HOUR, now() - 1)
    server.reserve(3, "daemon", now() - 2 * HOUR)
    for _ in range(4):
        machine.scenario.add_card()
    found = status(machine, f'[reservations]\nredis = "{server.url}"')
    assert found.kinds() == [AVAILABLE, UNUSED, AVAILABLE, UNUSED]


@needs_redis
def test_the_account_counts_not_the_name_that_somebody_gave(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    server.reserve(0, "the CI", now() - HOUR, now() + HOUR, account=ME)
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    found = status(machine, f'[reservations]\nredis = "{server.url}"')
    assert (found.kinds(), found.complaints) == ([CONFIRMED], [])


@needs_redis
def test_what_the_version_in_python_writes_is_understood(machine: Machine, server: Canhazgpu) -> None:
    server.admin(3)
    server.client.set("canhazgpu:gpu:0", json.dumps({"last_released": now() - 600}))
    server.client.set("canhazgpu:gpu:1", json.dumps({"user": "daemon", "start_time": now(), "last_heartbeat": now()}))
    server.client.set("canhazgpu:gpu:2", "{}")
    for _ in range(3):
        machine.scenario.add_card()
    found = status(machine, f'[reservations]\nredis = "{server.url}"', since_seconds=HOUR)
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
    found = status(machine, f'[reservations]\nredis = "{server.url}"')
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
    found = status(machine, f'[reservations]\nredis = "{server.url}"')
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


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@[", "redis://host:hunter2/0", "redis://127.0.0.1:1/0?password=hunter2"]
)
def test_no_url_shows_its_password(machine: Machine, url: str) -> None:
    machine.scenario.add_card()
    found = status(machine, f'[reservations]\nredis = "{url}"')
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert line.startswith(("reservations can't be read from ", "[reservations] redis in the config is no URL"))
    assert "hunter2" not in line or url == "redis://host:hunter2/0"  # a port, for all we know


@needs_redis
def test_a_wrong_password_takes_one_line_without_it(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    machine.scenario.add_card()
    found = status(machine, f'[reservations]\nredis = "redis://gua:hunter2@127.0.0.1:{server.port}/0"')
    (line,) = found.complaints
    assert "hunter2" not in line
    assert f"redis://127.0.0.1:{server.port}/0 (" in line


@needs_redis
def test_a_user_who_may_only_read_will_do(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    server.run(0, "daemon", now() - 60, now())
    page = (ROOT / "docs" / "reservations.md").read_text()
    (rule,) = re.findall(r"^(ACL SETUSER gua .*)$", page, re.MULTILINE)
    server.client.execute_command(*rule.replace("PASSWORD", "secret").split())
    machine.scenario.add_card()
    machine.tick()
    found = status(machine, f'[reservations]\nredis = "redis://gua:secret@127.0.0.1:{server.port}/0"')
    assert (found.kinds(), found.complaints) == ([UNUSED], [])
    assert report(machine, "--section", "reservations").stderr == ""


@needs_redis
def test_nothing_but_reading_is_sent(machine: Machine, server: Canhazgpu) -> None:
    server.admin(2)
    server.run(0, ME, now() - 60, now())
    server.record(1, ME, now() - 7200, now() - 3600)
    machine.scenario.add_card()
    machine.scenario.add_card()
    machine.tick()
    with server.client.monitor() as monitor:
        status(machine, f'[reservations]\nredis = "{server.url}"')
        report(machine, "--section", "reservations")
        server.client.ping()
        sent = []
        for command in monitor.listen():
            words = command["command"].split()
            if words[0] == "PING":
                break
            sent.append(words[0])
    assert set(sent) == {"GET", "ZRANGEBYSCORE"}


@needs_redis
def test_a_redis_is_reached_by_tls_by_a_unix_socket_and_in_another_database(
    machine: Machine, server: Canhazgpu
) -> None:
    server.admin(1)
    server.run(0, "daemon", now() - 60, now())
    server.client.copy("canhazgpu:gpu_count", "canhazgpu:gpu_count", destination_db=3)
    machine.scenario.add_card()
    trusted = f"ssl_ca_certs={CERTIFICATE}"
    other = server.url.removesuffix("0") + "3"
    kinds = {
        f"{server.tls_url}?{trusted}": [UNUSED],
        f"{server.tls_url}?{trusted}&ssl_certfile={CERTIFICATE}&ssl_keyfile={KEY}": [UNUSED],
        f"{server.tls_url.replace('localhost', '127.0.0.1')}?ssl_cert_reqs=none": [UNUSED],
        server.unix_url: [UNUSED],
        f"{server.unix_url}?db=3": [AVAILABLE],
        other: [AVAILABLE],
        f"{server.url}?db=3": [AVAILABLE],
        server.url.removesuffix("0"): [UNUSED],
    }
    for url, expected in kinds.items():
        found = status(machine, f'[reservations]\nredis = "{url}"')
        assert (found.kinds(), found.complaints) == (expected, []), url


@needs_redis
def test_a_server_whose_certificate_nobody_vouches_for_is_not_believed(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    machine.scenario.add_card()
    found = status(machine, f'[reservations]\nredis = "{server.tls_url}"')
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert "CERTIFICATE_VERIFY_FAILED" in line


@needs_redis
def test_a_password_may_hold_any_character(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    server.client.execute_command("ACL", "SETUSER", "odd", "on", ">a/b?c#d@e:f g%h", "~*", "+@all")
    machine.scenario.add_card()
    place = f"127.0.0.1:{server.port}/0"
    for login in ("odd:{}@" + place, place + "?username=odd&password={}"):
        url = "redis://" + login.format(quote("a/b?c#d@e:f g%h", safe=""))
        found = status(machine, f'[reservations]\nredis = "{url}"')
        assert (found.kinds(), found.complaints) == ([AVAILABLE], []), url


# -- over time


def report(machine: Machine, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / "gua-report"), "--data-dir", str(machine.data_dir), "--since", "1h", "--tz", "UTC"]
    command += ["--config", str(machine.folder / "gua.toml"), *options]
    return subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)


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


# -- what a second pair of eyes found


@pytest.mark.parametrize("row", ["0,bob,2026-01-01,2026-13-01,", '5,ada,2026-01-01,,"thesis\n0,bob,2026-01-01,,'])
def test_a_card_whose_row_can_not_be_read_is_not_called_free(machine: Machine, row: str) -> None:
    machine.scenario.add_card()
    config = reserve_by_file(machine, row)
    found = status(machine, config)
    assert found.kinds() == [UNKNOWN]
    assert len(found.complaints) == 1
    assert gua(machine, config, "free").returncode == 1


def test_a_card_with_too_many_digits_does_not_exist(machine: Machine) -> None:
    machine.scenario.add_card()
    found = status(machine, reserve_by_file(machine, f"{'9' * 5000},{ME},2026-01-01,,"))
    assert (found.kinds(), len(found.complaints)) == ([AVAILABLE], 1)


def test_a_card_that_is_reserved_twice_is_free_for_neither(machine: Machine) -> None:
    machine.scenario.add_card()
    own = pwd.getpwuid(os.getuid()).pw_name
    config = reserve_by_file(machine, f"0,{own},2026-01-01,,", "0,daemon,2026-01-01,,")
    assert "1 reserved by" in gua(machine, config, "free").stderr


@pytest.mark.parametrize("password", ["Secr3t#x", "Secr3t/x", "Secr3t?x", "Secr3t:a", "Secr3t"])
def test_no_part_of_the_password_is_shown(machine: Machine, password: str) -> None:
    machine.scenario.add_card()
    done = gua(machine, f'[reservations]\nredis = "redis://gua:{password}@localhost:1/0"', "status")
    assert done.returncode == 0
    assert "gua status: warning: " in done.stderr
    assert "Secr3t" not in done.stderr + done.stdout
    done = gua(machine, f'[reservations]\npassword = "{password}"', "status")
    assert (done.returncode, "Secr3t" in done.stderr) == (2, False)


def test_a_directory_of_users_that_hangs_holds_up_nobody(machine: Machine) -> None:
    machine.scenario.add_card()
    environment = machine.environment() | {"GUA_TEST_SLOW_FROM_UID": "0"}
    environment["LD_PRELOAD"] = str(machine.driver / "slow_names.so")
    command = [GUA, "free", "--config", "/dev/null", "--data-dir", str(machine.data_dir)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "0\n")


def test_hundreds_of_reservations_at_once_take_no_time(machine: Machine) -> None:
    machine.scenario.add_card()
    rows = [f"0,{'daemon' if number % 2 else 'bin'},2026-01-01,," for number in range(3000)]
    began = time.monotonic()
    found = status(machine, reserve_by_file(machine, *rows))
    assert time.monotonic() - began < 20
    assert len(found.complaints) == 6
