"""The service at work: on time, quiet, readable by others, and right across a reboot."""

import re
import time
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest


@pytest.mark.timeout(240)
def test_ticks_come_on_the_half_minute_and_somebody_reads_them_meanwhile(
    bare: Path, installed: Path, tmp_path: Path
) -> None:
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        laboratory.release_timer(guest)
        began_ms = time.time_ns() // 1_000_000
        earlier = len(laboratory.rows(guest, "ticks"))

        def new_ticks() -> list[int]:
            return [tick["ts_ms"] for tick in laboratory.rows(guest, "ticks")[earlier:]]

        reports = 0
        while len(new_ticks()) < 3:
            assert time.time_ns() // 1_000_000 - began_ms < 120_000, new_ticks()
            document = laboratory.report(guest, "--since", "1h", user="somebody")
            assert document["headline"]["states"]["idle-held"]["gpu_hours"] > 0
            reports += 1
            time.sleep(2)
        ticks = new_ticks()
        assert reports >= 3
        assert [ts_ms // 30_000 for ts_ms in ticks] == [ticks[0] // 30_000 + number for number in range(3)]
        assert max(ts_ms % 30_000 for ts_ms in ticks) < 5_000  # how long a busy machine takes to start it
        assert guest.journal("gua-sample.service") == []
        laboratory.assert_like_docs(guest, "systemctl list-timers 'gua-*'")
        laboratory.assert_like_docs(guest, "gua doctor")


def test_anybody_is_told_who_holds_what_now_and_that_sampling_is_alive(guest: Guest) -> None:
    assert laboratory.sample(guest) == 0
    process = laboratory.rows(guest, "process_ticks")[-1]
    assert (process["pid"], process["user"], process["command"]) == (1, "root", "systemd")
    folder = guest.run("stat", "--format=%U:%G %a", "/var/lib/gua", laboratory.SAMPLES).stdout.splitlines()
    assert folder == ["gua:gua 755", "gua:gua 755"]
    shown = guest.run("gua", "status", user="somebody").stdout
    assert re.search(r"^ +1  systemd .* root$", shown, re.MULTILINE)
    timer = guest.run("systemctl", "is-active", "gua-sample.timer", check=False).stdout.strip()
    assert re.fullmatch(rf"Sampling: gua-sample.timer {timer}, newest tick \d+s ago", shown.splitlines()[-1])
    free = guest.run("gua", "free", user="somebody", check=False)
    assert free.returncode in (0, 1)
    assert bool(free.stdout) == (free.returncode == 0)


def test_a_reboot_leaves_a_gap_not_a_wrong_number(bare: Path, installed: Path, tmp_path: Path) -> None:
    started_ms = time.time_ns() // 1_000_000
    for _ in range(2):
        with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
            laboratory.show_boot_id(guest)
            guest.write("/etc/gua/gua-sample.env", "GUA_SAMPLE_OPTIONS=--interval 1s\n")
            assert laboratory.sample(guest) == 0
            if len(boots := {tick["boot_id"] for tick in laboratory.rows(guest, "ticks")}) == 3:
                break  # one of them is the installation's
            time.sleep(3)
            guest.kill()  # a power cut
    else:
        pytest.fail(f"{boots}")
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        first, second = [tick["ts_ms"] for tick in laboratory.rows(guest, "ticks")][-2:]
        iso = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000)) for ms in (started_ms, second + 60_000)]
        # No window ends after now, and the last tick is worth a second: after a quick boot no gap would follow it.
        time.sleep(max(0.0, second / 1000 + 2 - time.time()))
        document = laboratory.report(guest, "--from", iso[0], "--to", iso[1])
    gaps = [(gap["kind"], gap["from"], gap["to"]) for gap in document["coverage"]["gaps"]]
    assert [kind for kind, _, _ in gaps] == ["host down", "host down", "sampler not running"], gaps
    assert second - first >= 3000
    assert document["coverage"]["observed_seconds"] == pytest.approx(2)
    states = document["headline"]["states"]
    assert sum(state["gpu_hours"] for state in states.values()) == pytest.approx(
        3 * 2 / 3600, abs=0.0002
    )  # three cards
