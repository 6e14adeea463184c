"""A fleet's report in every format, by every key, as a whole and of some people."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from gua_report.people.identities import Wanted
from gua_report.render import FORMATS, SECTIONS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.page import WIDTH
from gua_report.summary.names import select
from gua_report.summary.of_hosts import KEYS
from gua_report.summary.report import Report
from tests.fleets import add_host, fleet_report, make_fleet
from tests.lab import CONFIG, HOUR_MS

GROUPS = {"vision": ("lab*",), "rest": ("small", "never")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_fleet(tmp_path_factory.mktemp("fleet"))
    add_host(folder, "bad", "small").write_bytes(b"x" * 5000)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return fleet_report(folder, CONFIG._replace(hosts=GROUPS, groups={"people": ("ada",)}))


def document(report: Report, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(renderer("json")(report, Options(**options)))
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_hosts(report: Report, name: str) -> None:
    sections = ("hosts",) if name == "csv" else SECTIONS
    text = renderer(name)(report, Options(sections=sections))
    assert all(host in text for host in ("lab1", "lab2", "small"))


def test_text_fits_a_mail(report: Report) -> None:
    for options in (Options(), Options(brief=True, width=WIDTH), Options(ascii=True, width=60)):
        lines = renderer("text")(report, options).splitlines()
        assert max(map(len, lines)) <= options.width
        assert not options.brief or len(lines) <= 40


def test_in_brief_what_could_not_be_used_is_there_only_if_there_is_something(report: Report, tmp_path: Path) -> None:
    options = Options(brief=True, width=WIDTH)
    assert "What could not be used\n  Left out: bad: " in renderer("text")(report, options)
    whole = fleet_report(make_fleet(tmp_path, "small"))
    assert "What could not be used" not in renderer("text")(whole, options)
    assert "Every host was used" in renderer("text")(whole, Options())


def test_models_of_cards_can_be_told_apart_in_a_mail(report: Report) -> None:
    text = renderer("text")(report, Options(sections=("gpus",)))
    models = {str(name).removeprefix("NVIDIA ") for name in report.gpus["name"]}
    assert models
    assert all(model in text for model in models)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_can_be_had_alone(report: Report, section: str) -> None:
    for name in FORMATS:
        assert renderer(name)(report, Options(sections=(section,)))


def test_json_tells_hosts_and_what_was_left_out(report: Report) -> None:
    found = document(report)
    assert found["host"] is None
    assert found["fleet"]["expected"] == 5
    assert found["fleet"]["missing"] == ["bad", "never"]
    assert found["fleet"]["complete"] is False
    assert [row["host"] for row in found["hosts"]] == ["lab1", "lab2", "small"]
    assert {row["host"] for row in found["gpus"]} == {"lab1", "lab2", "small"}
    assert found["coverage"]["share"] is None
    assert [(row["host"], row["left_out"]) for row in found["not_used"]] == [("bad", True), ("never", True)]
    assert "breakdown" not in found
    assert "timeline" not in found


def test_json_has_counts_as_numbers_and_doubt_as_no_loss(folder: Path, tmp_path: Path) -> None:
    found = document(fleet_report(folder, CONFIG._replace(hosts=GROUPS), by="group"))
    rows = [*found["hosts"], *found["breakdown"]["rows"], *found["coverage"]["gap_totals"]]
    counts = [row[name] for row in rows for name in ("cards", "hosts", "gaps") if name in row]
    assert len(counts) > 3
    assert {type(count) for count in counts} == {int}
    make_fleet(tmp_path, "small")
    add_host(tmp_path, "other", "lab1", machine=f"{3:032x}")
    doubted = document(fleet_report(tmp_path))["not_used"]
    assert [(row["kind"], row["left_out"]) for row in doubted] == [("same machine", False)] * 2


def test_csv_of_cards_and_episodes_names_the_host(report: Report) -> None:
    for section in ("gpus", "episodes", "coverage"):
        rows = list(csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=(section,))))))
        assert {row["host"] for row in rows} <= {"lab1", "lab2", "small"}
        assert rows


@pytest.mark.parametrize("by", KEYS[1:])
def test_hours_by_each_key_add_up_to_those_of_the_hosts(folder: Path, by: str) -> None:
    report = fleet_report(folder, CONFIG._replace(hosts=GROUPS), by=by)
    found = document(report)
    assert found["breakdown"]["by"] == by
    rows = found["breakdown"]["rows"]
    idle = sum(row["idle_held_gpu_hours"] for row in rows)
    expected = sum(row["idle_held_gpu_hours"] for row in found["identities" if by == "person" else "hosts"])
    assert idle == pytest.approx(expected, abs=0.001)
    names = {"group": {"vision", "rest"}, "model": {"A100", "NVIDIA A100-SXM4-80GB"}}
    assert by == "person" or {row["name"] for row in rows} >= names[by] - {"NVIDIA A100-SXM4-80GB"}
    assert "By " in renderer("text")(report, Options())


def test_a_host_in_no_group_has_a_row_of_its_own(folder: Path) -> None:
    report = fleet_report(folder, CONFIG._replace(hosts={"vision": ("lab1",)}), by="group")
    assert report.fleet is not None
    rows = report.fleet.breakdown.set_index("name")
    assert rows["hosts"].to_dict() == {"vision": 1, "(no group)": 2}


def test_a_person_works_on_several_hosts(folder: Path) -> None:
    report = fleet_report(folder, by="person")
    assert report.fleet is not None
    rows = report.fleet.breakdown.set_index("name")
    assert rows["hosts"]["ollama"] == 2
    assert rows["hosts"]["uid:4711@small"] == 1


def test_the_report_of_one_person_is_of_all_hosts(report: Report) -> None:
    own = select(report, Wanted("ada", ("ada",)))
    assert own.identities["identity"].tolist() == ["ada"]
    for name in FORMATS:
        sections = ("identities", "identity_days", "episodes", "coverage")
        assert renderer(name)(own, Options(sections=sections[:1] if name == "csv" else sections))


def test_missing_hosts_are_something_to_act_on(report: Report) -> None:
    assert reasons(report, 1000 * HOUR_MS)[0] == "2 of 5 hosts missing (bad, never)"
    assert "1 of 5 hosts" not in renderer("text")(report, Options())


def test_a_report_of_one_host_has_no_section_of_hosts() -> None:
    from tests.rolling import report_of_lab

    one = report_of_lab()
    text = renderer("text")(one, Options())
    assert "Hosts, by" not in text
    assert "could not be used" not in text
    assert "--fleet DIR" in renderer("text")(one, Options(sections=("hosts",)))
    assert "hosts" not in json.loads(renderer("json")(one, Options()))
