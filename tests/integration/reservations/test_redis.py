"""How a Redis is reached: by reading alone, without a password that anybody sees."""

import re
from urllib.parse import quote

import pytest

from gua_report.live.validation import AVAILABLE, UNUSED
from gua_sample.policy import UNKNOWN
from tests.integration.reservations.reserving import ME, by_redis, gua, now, report, status
from tests.machine import Machine
from tests.redis_server import CERTIFICATE, KEY, Canhazgpu, needs_redis
from tests.repository import page


def test_without_the_package_one_line_says_what_to_install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "library").mkdir()
    (machine.folder / "library" / "redis.py").write_text("raise ImportError('No module named redis')")
    monkeypatch.setenv("PYTHONPATH", str(machine.folder / "library"))
    found = by_redis(machine, "redis://:hunter2@localhost/0", 1)
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert "sudo make install EXTRAS=redis, or python3 -m pip --python " in line


@needs_redis
def test_nothing_but_reading_is_sent_and_a_user_who_may_do_no_more_is_enough(
    machine: Machine, server: Canhazgpu
) -> None:
    (rule,) = re.findall(r"^(ACL SETUSER gua .*)$", page("reservations.md"), re.MULTILINE)
    server.client.execute_command(*rule.replace("PASSWORD", "secret").split())
    server.admin(2)
    server.run(0, "daemon", now() - 60, now())
    server.record(1, ME, now() - 7200, now() - 3600)
    machine.scenario.add_card()
    machine.scenario.add_card()
    machine.tick()
    with server.client.monitor() as monitor:
        found = status(machine, f'[reservations]\nredis = "redis://gua:secret@127.0.0.1:{server.port}/0"')
        assert report(machine, "--section", "reservations").stderr == ""
        server.client.ping()
        sent = []
        for command in monitor.listen():
            words = command["command"].split()
            if words[0] == "PING":
                break
            sent.append(words[0])
    assert (found.kinds(), found.complaints) == ([UNUSED, AVAILABLE], [])
    assert set(sent) == {"AUTH", "GET", "ZRANGEBYSCORE"}


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
        found = by_redis(machine, url)
        assert (found.kinds(), found.complaints) == (expected, []), url
    found = by_redis(machine, server.tls_url)  # whose certificate nobody vouches for
    assert found.kinds() == [UNKNOWN]
    assert "CERTIFICATE_VERIFY_FAILED" in found.complaints[0]


@needs_redis
def test_a_password_may_hold_any_character(machine: Machine, server: Canhazgpu) -> None:
    server.admin(1)
    server.client.execute_command("ACL", "SETUSER", "odd", "on", ">a/b?c#d@e:f g%h", "~*", "+@all")
    machine.scenario.add_card()
    place = f"127.0.0.1:{server.port}/0"
    for login in ("odd:{}@" + place, place + "?username=odd&password={}"):
        url = "redis://" + login.format(quote("a/b?c#d@e:f g%h", safe=""))
        found = by_redis(machine, url)
        assert (found.kinds(), found.complaints) == ([AVAILABLE], []), url


@pytest.mark.parametrize("password", ["Secr3t#x", "Secr3t/x", "Secr3t?x", "Secr3t:a", "Secr3t"])
def test_no_part_of_the_password_is_shown(machine: Machine, password: str) -> None:
    machine.scenario.add_card()
    done = gua(machine, f'[reservations]\nredis = "redis://gua:{password}@localhost:1/0"', "status")
    assert done.returncode == 0
    assert "gua status: warning: " in done.stderr
    assert "Secr3t" not in done.stderr + done.stdout
    done = gua(machine, f'[reservations]\npassword = "{password}"', "status")
    assert (done.returncode, "Secr3t" in done.stderr) == (2, False)
