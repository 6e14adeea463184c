"""The daily unit at work: inside its sandbox it sums up, writes CSV files and removes what is old enough."""

from pathlib import Path
from typing import Any

from gua_sample.partition_names import DAY_MS, day_of
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.rolling import OLD, RECENT, TODAY_MS

UNIT = "gua-rollup.service"
HISTORY = """
import sys
from gua_sample import store
from gua_sample.simulate import Laboratory
samples = store.prepare("/var/lib/gua")
for start_ms in map(int, sys.argv[1:]):
    store.append_history(samples, Laboratory(1).history(start_ms, start_ms + 2 * 86_400_000, 600_000, latest_ms=0))
"""


def names(guest: Guest, folder: str) -> list[str]:
    return guest.run("ls", "--almost-all", f"/var/lib/gua/{folder}").stdout.split()


def run_unit(guest: Guest) -> None:
    """It succeeds, and nobody has to be told."""
    guest.run("systemctl", "start", UNIT)
    shown = guest.run("systemctl", "show", UNIT, "--property=Result,ExecMainStatus").stdout.splitlines()
    assert sorted(shown) == ["ExecMainStatus=0", "Result=success"]
    assert guest.journal(UNIT, "--priority=warning") == []


def figures(guest: Guest) -> dict[str, Any]:
    """What any user's report says of the simulated days."""
    arguments = ["--from", OLD[0], "--to", day_of(TODAY_MS - 3 * DAY_MS), "--tz", "UTC"]
    document = laboratory.report(guest, *arguments, user="somebody")
    return {name: document[name] for name in ("sources", "headline", "coverage", "gpus", "identities", "episodes")}


def test_the_daily_unit_sums_up_and_removes_what_is_old_enough(bare: Path, installed: Path, tmp_path: Path) -> None:
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        assert laboratory.sample(guest) == 0
        today = names(guest, "samples")
        starts = [str(TODAY_MS - days * DAY_MS) for days in (9, 5)]
        guest.run("/opt/gua/bin/python", "-c", HISTORY, *starts, user="gua")
        from_ticks = figures(guest)
        assert from_ticks["sources"]["from_rollups_seconds"] == 0

        run_unit(guest)
        owners = guest.run("find", "/var/lib/gua", "-printf", "%U:%G %p\n").stdout.splitlines()
        gua = guest.run("id", "--user", "gua").stdout.strip()
        group = guest.run("id", "--group", "gua").stdout.strip()
        assert {line.split()[0] for line in owners} == {f"{gua}:{group}"}
        assert names(guest, "csv") == [f"{day}.csv" for day in [*OLD, *RECENT]]
        assert guest.run("stat", "--format=%a", "/var/lib/gua/rollups.sqlite").stdout == "644\n"
        from_rollups = figures(guest)
        assert from_rollups["sources"]["from_ticks_seconds"] == 0
        for name in set(from_ticks) - {"sources"}:
            assert from_rollups[name] == from_ticks[name], name

        guest.write("/etc/gua/gua.toml", "[retention]\nraw_days = 6\ncsv_days = 6\n")
        run_unit(guest)
        assert names(guest, "samples") == [*(f"{day}.sqlite" for day in RECENT), *today]
        assert names(guest, "csv") == [f"{day}.csv" for day in RECENT]
        assert figures(guest) == from_rollups
        assert laboratory.sample(guest) == 0  # and the sampler does not mind

        timers = guest.run("systemctl", "list-timers", "gua-rollup.timer").stdout
        assert UNIT in timers
