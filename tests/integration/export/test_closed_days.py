"""gua export of closed days, from rollups.sqlite."""

import csv
import io
import time
from pathlib import Path

import pytest

from tests.integration.export.exports import ALL, DAYS, export, exported, lines, view
from tests.lab import DAY_MS, HOUR_MS, MONDAY_MS, free, series, tick, write
from tests.machine import complaint
from tests.rolling import roll_up_days
from tests.verbs import run


def set_clock(monkeypatch: pytest.MonkeyPatch, now_ms: int) -> None:
    """Set the clock of this process, and of the commands that are forked from it."""
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time at which all these days are long over."""
    set_clock(monkeypatch, MONDAY_MS + 9 * DAY_MS)


def test_an_hour_belongs_to_the_window_in_which_it_begins(rolled_up: Path) -> None:
    window = ("--from", "2026-11-16T09:30Z", "--to", "2026-11-18T09:30Z")
    start_ms, end_ms = MONDAY_MS + 9.5 * HOUR_MS, MONDAY_MS + 2 * DAY_MS + 9.5 * HOUR_MS
    found = lines(exported(rolled_up, "--what", "card_hours", "--format", "jsonl", *window))
    assert found == view(rolled_up, "card_hours", f"hour_ms >= {start_ms} AND hour_ms < {end_ms}")
    assert found[0]["hour_ms"] == MONDAY_MS + 10 * HOUR_MS
    assert lines(exported(rolled_up, "--what", "rollups", "--format", "jsonl", *window)) == found  # another name


def test_identities_of_closed_days_are_people_and_hostile_ones_no_formulas(rolled_up: Path, tmp_path: Path) -> None:
    (tmp_path / "gua.toml").write_text('[people]\nalice = "=Ada"\n')
    for name in ("identity_hours", "episode_days"):
        options = ("--what", name, "--config", str(tmp_path / "gua.toml"), *ALL)
        before = [row["identity"] for row in view(rolled_up, name)]
        mapped = ["=Ada" if identity == "alice" else identity for identity in before]
        assert [row["identity"] for row in lines(exported(rolled_up, *options, "--format", "jsonl"))] == mapped
        rows = csv.DictReader(io.StringIO(exported(rolled_up, *options)))
        assert [row["identity"] for row in rows] == [identity.replace("=Ada", "'=Ada") for identity in mapped]
    assert "alice" in {row["identity"] for row in view(rolled_up, "identity_hours")}


@pytest.mark.usefixtures("later")
def test_closed_days_that_are_not_rolled_up_are_named_with_what_to_do(data_dir: Path, tmp_path: Path) -> None:
    options = ("--what", "card_hours", "--format", "jsonl", *ALL)
    todo = f"not rolled up yet, or ticks or thresholds have changed since; run gua rollup --data-dir {data_dir}\n"
    done = export(data_dir, *options)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"gua export: error: no card_hours of {DAYS[0]} to {DAYS[2]} (3 days): {todo}"
    roll_up_days(str(data_dir), {0, 1})
    done = export(data_dir, *options)
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[2]}: {todo}")
    assert lines(done.stdout) == view(data_dir, "card_hours")
    # The command that is named does it.
    assert run("rollup", "--data-dir", data_dir).returncode == 0
    done = export(data_dir, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert {row["hour_ms"] // DAY_MS for row in lines(done.stdout)} == {MONDAY_MS // DAY_MS + day for day in range(3)}
    # Thresholds that changed, and ticks that came, make days due again.
    (tmp_path / "gua.toml").write_text("[policy]\nprocess_memory_mib = 5000\n")
    done = export(data_dir, *options, "--config", str(tmp_path / "gua.toml"))
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[0]} to {DAYS[2]} (3 days): {todo}")
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 22 * HOUR_MS, free())])
    done = export(data_dir, *options)
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[1]}: {todo}")


def test_a_day_that_is_not_over_is_not_missed(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roll_up_days(str(data_dir), {0, 1})
    set_clock(monkeypatch, MONDAY_MS + 2 * DAY_MS + 12 * HOUR_MS)
    done = export(data_dir, "--what", "spans", *ALL)
    assert (done.returncode, done.stderr) == (0, "")
    done = export(data_dir, "--what", "spans", "--from", DAYS[2], "--to", "2026-11-19", "--tz", "UTC")
    assert "though there are ticks: a day is rolled up when it is over" in complaint(done, 3)


@pytest.mark.usefixtures("later")
def test_ticks_that_have_expired_are_named_and_where_their_sums_are(rolled_up: Path) -> None:
    hours = exported(rolled_up, "--what", "card_hours", *ALL)
    (rolled_up / "samples" / f"{DAYS[0]}.sqlite").unlink()
    done = export(rolled_up, "--what", "ticks", *ALL)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1 + len(view(rolled_up, "ticks")))
    sums = "have expired; --what card_hours has their sums\n"
    assert done.stderr == f"gua export: warning: the ticks of {DAYS[0]} {sums}"
    for day in DAYS[1:]:
        (rolled_up / "samples" / f"{day}.sqlite").unlink()
    done = export(rolled_up, "--what", "ticks", *ALL)
    assert (done.returncode, done.stdout) == (3, "")
    gone = f"the ticks of {DAYS[0]} to {DAYS[-1]} (3 days) {sums}"
    assert done.stderr == f"gua export: error: no ticks from {DAYS[0]} 00:00 to 2026-11-19 00:00 UTC: {gone}"
    assert exported(rolled_up, "--what", "card_hours", *ALL) == hours


@pytest.mark.usefixtures("later")
def test_ticks_that_came_when_those_of_their_day_had_expired_are_left_out_and_named(
    data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "gua.toml").write_text("[retention]\nraw_days = 7\n")  # the first two days go
    assert run("rollup", "--data-dir", data_dir, "--config", tmp_path / "gua.toml").returncode == 0
    last_day = view(data_dir, "ticks")
    assert {row["ts_ms"] // DAY_MS for row in last_day} == {MONDAY_MS // DAY_MS + 2}
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 22 * HOUR_MS, free())])
    late = data_dir / "samples" / f"{DAYS[1]}.sqlite"
    for name, expected in ("card_hours", view(data_dir, "card_hours")), ("ticks", last_day):
        done = export(data_dir, "--what", name, "--format", "jsonl", *ALL)
        said = done.stderr.splitlines()
        assert said[0] == f"gua export: warning: left out: {late}, as the ticks of its day have expired"
        assert len(said) == (2 if name == "ticks" else 1)
        assert (done.returncode, lines(done.stdout)) == (1, expected)
    assert {row["hour_ms"] // DAY_MS for row in view(data_dir, "card_hours")} == {
        MONDAY_MS // DAY_MS + day for day in range(3)
    }


def test_days_without_what_was_asked_for_are_not_taken_for_no_days(open_folder: Path) -> None:
    write(open_folder, series(MONDAY_MS, 3, free()))
    roll_up_days(str(open_folder))
    for name, more in (("episode_days", ""), ("process_ticks", ", though there are ticks")):
        done = export(open_folder, "--what", name, *ALL)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == f"gua export: error: no {name} from 2026-11-16 00:00 to 2026-11-19 00:00 UTC{more}\n"


def test_rollups_that_can_not_be_read_are_said(rolled_up: Path) -> None:
    (rolled_up / "rollups.sqlite").write_text("garbage, more than sixteen bytes of it")
    done = export(rolled_up, "--what", "card_hours", *ALL)
    assert "rollups.sqlite is not usable" in complaint(done, 1)
    assert "gua rollup makes it anew" in done.stderr
    (rolled_up / "rollups.sqlite").write_bytes(b"")  # it is just being begun
    assert export(rolled_up, "--what", "card_hours", *ALL).returncode == 3
