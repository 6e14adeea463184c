"""docs/json.md says what is true: each key of the JSON report and each column of the CSV tables, and no others.

To rewrite the example on the page: GUA_REWRITE_GOLDEN=1 pytest tests/test_json_docs.py
"""

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gua_report import notebook
from gua_report.commands import demo
from gua_report.render import MOST_UNKNOWN, SECTIONS, Options, renderer
from gua_report.render.csv import FORMULA
from gua_report.render.json import SCHEMA_VERSION
from gua_report.window import LEAST_COVERAGE
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD, STATES
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests import verbs
from tests.fleets import change, fleet_report, make_fleet
from tests.json_keys import key_paths
from tests.lab import CONFIG
from tests.repository import DOCS

PAGE = DOCS / "json.md"
END = "2026-11-11T12:00:00Z"
MORE = "..."


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("week")
    demo.simulate(str(folder), 0, EXAMPLE_END_MS - 7 * DAY_MS, EXAMPLE_END_MS)
    return folder


@pytest.fixture
def reservations(tmp_path: Path) -> Path:
    """A config with one, with a group, and with limits."""
    (tmp_path / "reservations.csv").write_text("gpu,user,from,to,note\n0,ivo,2026-11-09,2026-11-10,\n")
    config = tmp_path / "gua.toml"
    config.write_text(f'[reservations]\nfile = "{tmp_path / "reservations.csv"}"\n[groups]\nus = ["ivo"]\n')
    with config.open("a") as file:
        file.write("[limits.everyone]\ngpu_hours = 100\n[limits.groups.us]\nidle_held_hours = 20\n")
    return config


def run_report(folder: Path, *options: str) -> str:
    done = verbs.run("report", "--data-dir", folder, "--to", END, "--tz", "UTC", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_json(folder: Path, *options: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run_report(folder, "--format", "json", *options))
    return document


def documented_keys(page: str) -> list[str]:
    reference = page.split("\n## Example")[0]
    return re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|([^|]*)\|", reference, re.MULTILINE)))


def documented_columns(page: str) -> dict[str, list[str]]:
    """By section, the columns of its CSV table; what stands in parentheses is a remark."""
    rows = re.findall(r"^\| (\w+) \|([^|]*)\|", page.split("\n## CSV")[1], re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", text)) for name, text in rows if name != "section"}


def shortened(document: dict[str, Any]) -> str:
    """One entry of each list, and of the states only one but in the headline."""

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(item) for item in value[:1]] + [MORE] * (len(value) > 1)
        if isinstance(value, dict) and set(value) == set(STATES):
            return {MORE: 0, IDLE_HELD: cut(value[IDLE_HELD])}
        return {key: cut(item) for key, item in value.items()} if isinstance(value, dict) else value

    short = {key: item if key == "headline" else cut(item) for key, item in document.items()}
    text = json.dumps({**short, "host": "lab"}, indent=2)
    return re.sub(rf'"{re.escape(MORE)}"(: 0,)?', MORE, text)


def test_every_key_of_a_report_is_documented_and_no_other(week: Path, reservations: Path) -> None:
    # From Monday on: there is a gap that day, and something before it to compare with.
    document = read_json(week, "--from", "2026-11-09", "--quiet-if-clean", "--config", str(reservations))
    page = PAGE.read_text()
    documented = documented_keys(page)
    assert len(documented) == len(set(documented))
    of_some = {path for path in documented if path.startswith("selection.")}
    nullable = {"now.processes", "selection.median"}
    assert set(key_paths(document)) == set(documented) - of_some - nullable - of_fleets(page)
    own = read_json(week, "--from", "2026-11-09", "--who", "ivo")
    assert {path for path in key_paths(own) if path.startswith("selection.")} == of_some - nullable
    section = documented_keys(page.split("\n## With --group or --who")[1].split("\n## ")[0])
    assert set(section) == of_some


def of_fleets(page: str) -> set[str]:
    """The keys that only a fleet's report has."""
    titles = ("Section hosts", "Section breakdown", "Section not_used", "With --fleet")
    return {key for title in titles for key in documented_keys(page.split(f"\n## {title}\n")[1].split("\n## ")[0])}


def test_every_key_of_a_fleets_report_is_documented_and_no_other(tmp_path: Path) -> None:
    make_fleet(tmp_path, "lab1", "small")
    change(tmp_path / "lab1" / "rollups.sqlite", "DELETE FROM day WHERE day = '2026-11-17'")
    report = fleet_report(tmp_path, CONFIG._replace(groups={"us": ("ada",)}), by="model")
    found = set(key_paths(json.loads(renderer("json")(report, Options()))))
    found.discard("headline.change")  # null, as there is nothing before
    documented = set(documented_keys(PAGE.read_text()))
    assert of_fleets(PAGE.read_text()) <= found <= documented
    elsewhere = {"now", "timeline", "reservations", "selection", "attention", "week", "headline"}
    missing = {path for path in documented - found if not re.search(r"\.(week|limit|over)_", path)}
    assert {path.partition(".")[0] for path in missing} <= elsewhere


def test_every_section_and_the_schema_version_are_on_the_page() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^## Section (\w+)$", page, re.MULTILINE) == list(SECTIONS)
    assert f"`schema_version`\nis {SCHEMA_VERSION}:" in page
    assert f"| `schema_version` | | {SCHEMA_VERSION} |" in page


def test_without_the_sections_what_frames_them_stays(week: Path) -> None:
    document = read_json(week, "--since", "1h", "--section", "coverage")
    always = documented_keys(PAGE.read_text().split("\n## Section")[0])
    assert {path for path in key_paths(document) if not path.startswith("coverage")} == set(always)


def test_what_to_act_on_is_there_only_if_asked_for(week: Path) -> None:
    section = PAGE.read_text().split("\n## With --quiet-if-clean")[1]
    assert documented_keys(section) == ["attention"]
    assert f"less than {LEAST_COVERAGE * 100:g} %" in section
    assert f"more than {MOST_UNKNOWN * 100:g} %" in section
    assert "attention" not in read_json(week)
    long, *others = read_json(week, "--quiet-if-clean", "2h")["attention"]
    assert "idle-held episodes of 2h or more by " in long
    assert others == []
    assert run_report(week, "--quiet-if-clean", "9d", "--json") == ""


def test_the_example_is_a_real_report(week: Path) -> None:
    before, rest = PAGE.read_text().split("```json\n")
    shown, after = rest.split("```\n", 1)
    example = shortened(read_json(week)) + "\n"
    if os.environ.get("GUA_REWRITE_GOLDEN"):
        PAGE.write_text(f"{before}```json\n{example}```\n{after}")
        return
    assert shown == example, "if it should differ, rewrite it as is said at the top"


def test_every_column_of_every_csv_table_is_documented(week: Path) -> None:
    report = notebook.report("1h", end=END, tz="UTC", data_dir=str(week))
    for section, columns in documented_columns(PAGE.read_text()).items():
        table = csv.reader(io.StringIO(renderer("csv")(report, Options(sections=(section,)))))
        assert next(table) == columns
    assert list(documented_columns(PAGE.read_text())) == list(SECTIONS)


def test_the_page_names_what_begins_a_formula() -> None:
    escaping = PAGE.read_text().split("\n## CSV")[1]
    assert {character for character in FORMULA if character.isascii() and character.isprintable()} == set(
        re.findall(r"`([^\w`'])`", escaping)
    )
