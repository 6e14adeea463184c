"""gua-report --group and --who: the report of some people, in which nobody else is named."""

import csv
import io
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from gua_report.render import FORMATS, OF_PEOPLE
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Job, busy, held, series, write
from tests.machine import one_line
from tests.rolling import roll_up_days, run

OTHERS = "SOMEBODY-ELSE"  # in every name that has no place in a report of somebody else
END = "2026-11-18T12:00"
WINDOW = ("--from", "2026-11-16", "--to", END, "--tz", "UTC")
FIRST_HOUR = ("--from", "2026-11-16", "--to", "2026-11-16T01:00", "--tz", "UTC")
ADA = Job(100, "ada", command="jupyter-noteboo", memory_mib=20_480, sm_percent=0)
BEN = Job(200, "ben", command="python3", sm_percent=80)
BOX = Job(400, "root", uid=0, cgroup=f"/docker/3f2a9c81d0b7{'0' * 52}", command="serve")


def other(number: int, percent: int = 0) -> Job:
    return Job(1000 + number, f"{OTHERS}-{number}", command=f"{OTHERS}-run", sm_percent=percent)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days and a half of ada, who idles, ben, who works, and of others; a file that is none; a config."""
    folder = tmp_path_factory.mktemp("laboratory")
    gpus = (
        busy(ADA, other(1, 90), index=0),
        busy(BEN, index=1),
        held(other(2), other(3), index=2),
        held(BOX, index=3),
        held(other(4), index=4)._replace(used_mib=30_000),
    )
    write(folder / "data", series(MONDAY_MS, 60 * 60 // 5, *gpus, every_ms=5 * MINUTE_MS, interval_ms=5 * MINUTE_MS))
    (folder / "data" / "samples" / "2026-11-15.sqlite").write_text("no partition")
    roll_up_days(str(folder / "data"), {1})
    rows = [f"0,{OTHERS}-9,2026-11-16,2026-11-17,", f"0,ada,{OTHERS},,", f"7,{OTHERS}-8,2026-11-16,2026-11-17,"]
    (folder / "reservations.csv").write_text(
        "\n".join(["gpu,user,from,to,note", *rows, "0,ada,2026-11-16,2026-11-17,"])
    )
    (folder / "gua.toml").write_text(
        f'[reservations]\nfile = "{folder / "reservations.csv"}"\n'
        '[price]\nper_gpu_hour = 2\nper_kwh = 0.3\n[people]\n"docker:3f2a9c81d0b7" = "box"\n'
        f'"unit:{OTHERS}" = "{OTHERS}-7"\n[exempt]\n"unit:{OTHERS}" = "why"\n'  # a clash, which is told
        f'[groups]\nvision = ["ada", "zoe"]\nboth = ["ben", "box", "ada"]\nempty = ["zoe"]\n'
        f'{OTHERS} = ["{OTHERS}-1"]\n{OTHERS}2 = ["@{OTHERS}"]\nunknown = ["ada", "@no-such-group"]\n'
        f"[limits.everyone]\ngpu_hours = 1\n[limits.people.{OTHERS}-1]\ngpu_hours = 2\n"
        f"[limits.groups.{OTHERS}]\ngpu_hours = 1\n[limits.groups.vision]\ngpu_hours = 1\n"
    )
    return folder


def report(laboratory: Path, *arguments: str) -> tuple[int, str, str]:
    return run("report", laboratory / "data", *WINDOW, "--config", str(laboratory / "gua.toml"), *arguments)


def read(laboratory: Path, *arguments: str) -> dict[str, Any]:
    status, output, _ = report(laboratory, "--json", *arguments)
    assert status == 0
    found: dict[str, Any] = json.loads(output)
    return found


def test_the_whole_report_names_everybody(laboratory: Path) -> None:
    status, output, errors = report(laboratory)
    assert status == 0
    assert OTHERS in output  # else the tests below would say nothing
    assert OTHERS in errors


@pytest.mark.parametrize("whose", [("--group", "vision"), ("--group", "both"), ("--who", "ada"), ("--who", "ben")])
@pytest.mark.parametrize("name", FORMATS)
def test_nobody_else_is_named_in_any_format(laboratory: Path, whose: tuple[str, str], name: str) -> None:
    arguments = [*whose, "--format", name]
    sections = [["--section", section] for section in OF_PEOPLE] if name == "csv" else [[]]
    runs = [[*arguments, *section] for section in sections] + [[*arguments, "--quiet-if-clean", "1h"]]
    runs += [[*arguments, "--brief"]] if name in ("text", "markdown") else []
    for one in runs:
        status, output, errors = report(laboratory, *one)
        assert (status, OTHERS in output, OTHERS in errors) == (0, False, False), one


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "csv"])
def test_the_report_of_a_person_has_what_they_hold_their_hours_episodes_and_days(laboratory: Path, name: str) -> None:
    status, output, _ = report(laboratory, "--who", "ada", "--format", name)
    assert status == 0
    for part in ("ada", "jupyter-noteboo", "100"):
        assert part in output
    if name != "json":
        assert "ada holds 20.0 GiB on GPU 0 without work since at least 16 Nov 00:00 (pid 100," in " ".join(
            output.split()
        )
        assert "Day by day" in output


def test_the_figures_of_a_person_are_those_of_the_whole_report(laboratory: Path) -> None:
    whole, own = read(laboratory), read(laboratory, "--who", "ada")
    for section in ("identities", "identity_days", "episodes"):
        assert own[section] == [row for row in whole[section] if row["identity"] == "ada"]
        assert own[section]
    assert own["coverage"] == whole["coverage"]
    (now,) = own["now"]["processes"]
    assert now["since"] == "2026-11-16T00:00:00+00:00"
    assert {"headline", "gpus", "capacity", "timeline", "trend", "heatmap", "groups"} & own.keys() == set()


def test_a_person_stands_against_the_median_of_people_which_containers_and_units_are_not(laboratory: Path) -> None:
    own = read(laboratory, "--who", "ada")
    # ada, ben and the first three others hold a card, or work, for 60 h; the fourth too; the container is box.
    held_hours = sorted([60.0, 0.0, 0.0, 60.0, 60.0, 60.0, 60.0])
    assert own["selection"] == {
        "kind": "person",
        "name": "ada",
        "median": {"people": 7, "idle_held_gpu_hours": pytest.approx(held_hours[3]), "idle_held_share": 1.0},
    }
    _, text, _ = report(laboratory, "--who", "ben", "--section", "identities")
    expected = (
        "Against the median of the 7 people who were seen, without containers, jobs and units: 60.0 idle-held GPU-hours"
        " below its 60.0, and 100.0 points below its idle-held share of 100.0%."
    )
    assert expected in " ".join(text.split())


def test_of_fewer_than_five_people_there_is_no_median(tmp_path: Path) -> None:
    jobs = [Job(100 + number, f"user{number}") for number in range(4)]
    boxes = [BOX._replace(pid=900), Job(901, "root", uid=0, cgroup="/system.slice/ollama.service")]
    for people, expected in ((4, None), (5, 5)):
        data = tmp_path / str(people)
        extra = [Job(500, "fifth")] if people == 5 else []
        write(data, series(MONDAY_MS, 60, *(held(job, index=n) for n, job in enumerate([*jobs, *boxes, *extra]))))
        status, output, _ = run("report", data, *WINDOW, "--json", "--config", "/dev/null", "--who", "user0")
        median = json.loads(output)["selection"]["median"]
        assert (status, median and median["people"]) == (0, expected)


def test_the_report_of_a_group_has_its_people_and_its_row(laboratory: Path) -> None:
    found = read(laboratory, "--group", "both")
    assert found["selection"] == {"kind": "group", "name": "both", "median": None}
    assert {row["identity"] for row in found["identities"]} == {"ada", "ben", "box"}
    (row,) = found["groups"]
    assert (row["group"], row["people"]) == ("both", 3)
    assert row["gpu_hours"] == pytest.approx(180, rel=0.01)
    _, output, _ = report(laboratory, "--group", "both", "--format", "csv")
    assert {line["identity"] for line in csv.DictReader(io.StringIO(output))} == {"ada", "ben", "box"}


@pytest.mark.parametrize(
    ("arguments", "expected_status", "expected"),
    [
        (("--who", "zoe"), 3, "nobody of the name 'zoe' was seen"),
        (("--who", ""), 3, "nobody of the name ''"),
        (("--group", "empty"), 3, "nobody of the group 'empty' was seen"),
        (("--group", "visoin"), 2, "did you mean vision? (one of vision, both, empty, "),
        (("--group", "unknown"), 1, "not known who is in the group 'unknown'"),
        (("--group", "vision", "--who", "ada"), 2, "give one of them"),
        (("--who", "ada", "--section", "gpus"), 2, "unknown section about people 'gpus'"),
        (("--who", "ada", "--format", "csv", "--section", "now", "--section", "episodes"), 2, "exactly one --section"),
    ],
)
def test_who_was_not_seen_or_is_not_known_is_one_line(
    laboratory: Path, arguments: tuple[str, ...], expected_status: int, expected: str
) -> None:
    status, output, errors = report(laboratory, *arguments)
    assert (status, output) == (expected_status, "")
    assert expected in errors
    assert one_line(errors)
    assert f"{OTHERS}-" not in errors


def test_without_groups_a_group_is_an_error_that_says_where_they_are_configured(laboratory: Path) -> None:
    status, _, errors = run("report", laboratory / "data", *WINDOW, "--config", "/dev/null", "--group", "vision")
    assert status == 2
    assert "see [groups] in gua.toml" in errors


def test_a_person_is_found_by_any_of_their_names(laboratory: Path) -> None:
    for name in ("box", "docker:3f2a9c81d0b7"):
        assert read(laboratory, "--who", name)["selection"]["name"] == "box"


def test_me_is_the_user_who_asks_by_name_and_by_number_whatever_sudo_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid, name = os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    unnamed = Job(300, None, uid=uid, start_time_ms=1)
    mine = held(Job(100, name, command="jupyter", memory_mib=2048, uid=uid), index=0)
    write(tmp_path, series(MONDAY_MS, 60, mine, held(unnamed, index=1), held(Job(200, OTHERS), index=2)))
    monkeypatch.setenv("SUDO_UID", "54321")
    monkeypatch.setenv("USER", OTHERS)
    monkeypatch.setenv("LOGNAME", OTHERS)
    status, output, _ = run("report", tmp_path, *FIRST_HOUR, "--config", "/dev/null", "--who", "me")
    assert (status, OTHERS in output) == (0, False)
    told = " ".join(output.split())
    assert (
        "You hold 2.0 GiB on GPU 0 without work since at least 00:00 (pid 100, jupyter). Done? End the process." in told
    )
    config = tmp_path / "gua.toml"
    config.write_text(f'[people]\n{name} = "The Admin"\n"uid:{uid}" = "The Admin"\n')
    status, output, _ = run("report", tmp_path, *FIRST_HOUR, "--config", str(config), "--who", "me", "--json")
    assert [row["identity"] for row in json.loads(output)["identities"]] == ["The Admin"]


def test_a_clean_report_of_ones_own_prints_nothing(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 60, busy(Job(100, "ben")), held(Job(200, "ada"), index=1)))
    window = (*FIRST_HOUR, "--config", "/dev/null")
    assert run("report", tmp_path, *window, "--who", "ben", "--quiet-if-clean", "30m") == (0, "", "")
    status, output, _ = run("report", tmp_path, *window, "--who", "ada", "--quiet-if-clean", "30m", "--brief")
    assert (status, "To act on: 1 idle-held episode of 30m or more (ada ≥ 1h)" in output) == (0, True)
    assert len(output.splitlines()) <= 40
    assert max(map(len, output.splitlines())) <= 72


def test_what_is_not_known_now_is_said(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 60, held(Job(100, "ada"))) + series(MONDAY_MS + HOUR_MS, 30, error="gpu_is_lost")
    write(tmp_path, ticks)
    window = ("--from", "2026-11-16", "--to", "2026-11-16T01:30", "--tz", "UTC", "--config", "/dev/null")
    status, output, _ = run("report", tmp_path, *window, "--who", "ada")
    assert status == 0
    assert "It is not known who is on which card: driver error since 16 Nov 01:00 (gpu_is_lost)." in " ".join(
        output.split()
    )
    _, output, _ = run("report", tmp_path, *window, "--who", "ada", "--json")
    assert json.loads(output)["now"] == {"at": None, "processes": None}


def test_days_that_nobody_observed_are_unknown_in_the_days_of_a_person(tmp_path: Path) -> None:
    write(
        tmp_path,
        series(MONDAY_MS - 7 * DAY_MS, 60, held(Job(100, "ada")))
        + series(MONDAY_MS - 5 * DAY_MS, 60, held(Job(100, "ada"))),
    )
    window = ("--from", "2026-11-09", "--to", "2026-11-12", "--tz", "UTC", "--config", "/dev/null")
    _, output, _ = run("report", tmp_path, *window, "--who", "ada", "--section", "identity_days")
    days = {line.split()[1]: line.split()[-2:] for line in output.splitlines() if " Nov " in line and "to" not in line}
    assert days == {"9": ["1.0", "0.0"], "10": ["—", "—"], "11": ["1.0", "0.0"]}
