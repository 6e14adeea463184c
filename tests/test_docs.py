"""The documents say what is true."""

import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from gua_report.commands import demo
from gua_report.config import load_config, rules
from gua_report.live import observer
from gua_report.live.shown import SCHEMA_VERSION
from gua_sample import policy, schema
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.json_keys import key_paths
from tests.machine import GUA, SCRIPTS, call
from tests.repository import DOCS, ROOT, documented, page


def test_the_readme_shows_what_the_demo_prints() -> None:
    shown = (ROOT / "README.md").read_text().split("$ make demo\n")[1].split("...\n")[0]
    printed = call([GUA, "demo"], check=True).stdout
    # Only the name of the machine differs.
    assert printed.partition(":")[2].startswith(shown.rstrip("\n").partition(":")[2])
    assert 15 < shown.count("\n") < 30  # the first screen
    assert "docker:" not in printed.replace("docker: ", "")  # containers have names


def test_the_demo_says_that_it_is_simulated_and_how_its_report_is_shown_again(tmp_path: Path) -> None:
    keep = ["demo", "--days", "1", "--keep", "a try"]
    printed = call([GUA, *keep], cwd=tmp_path, check=True).stdout
    first, _, rest = printed.partition("\n\n")
    assert first == (ROOT / "README.md").read_text().split("$ make demo\n")[1].partition("\n")[0] == demo.SIMULATED
    report, command = rest.split("\nThe same report again: ")
    again = call(["bash", "-c", f'PATH="{SCRIPTS}:$PATH"; {command}'], cwd=tmp_path, check=True)
    assert again.stdout == report


def test_a_history_that_was_kept_is_reported_as_the_help_of_the_demo_says(tmp_path: Path) -> None:
    keep, report = re.findall(r"(gua demo .*--keep \./try|gua-report --data-dir \./try)", demo.EPILOG)
    commands = f'PATH="{SCRIPTS}:$PATH"; {keep} --days 1 >/dev/null && {report}'
    done = subprocess.run(["bash", "-c", commands], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_operations_shows_what_rolling_up_prints(tmp_path: Path) -> None:
    shown = page("operations.md").split("$ gua demo --keep ./week > demo.txt\n")[1].split("```")[0]
    printed = ""
    for line in ("gua demo --keep ./week > demo.txt", *re.findall(r"^\$ (.*)$", shown, re.MULTILINE)):
        done = call(["bash", "-c", f'PATH="{SCRIPTS}:$PATH"; {line}'], cwd=tmp_path, check=True)
        printed += f"$ {line}\n{done.stdout}"
    assert printed.removeprefix("$ gua demo --keep ./week > demo.txt\n") == shown


def test_a_page_keeps_each_demo_in_a_folder_of_its_own() -> None:
    """Who follows it from the top would be refused: made-up ticks are put into new folders alone."""
    kept_folders = 0
    for path in (ROOT / "README.md", *DOCS.glob("*.md")):
        folders = re.findall(r"--(keep|data-dir) (\./\w+)", path.read_text())
        kept = [place for place, (option, _) in enumerate(folders) if option == "keep"]
        kept_folders += len(kept)
        for place in kept:
            assert folders[place][1] not in [folder for _, folder in folders[:place]], path
    assert kept_folders >= 3


def test_the_configuration_that_is_shown_is_read_and_every_table_has_a_page(tmp_path: Path) -> None:
    section = page("operations.md").split("\n## Configuration\n")[1].split("\n## ")[0]
    (tmp_path / "gua.toml").write_text(section.split("```toml\n")[1].split("```")[0])
    assert load_config(str(tmp_path / "gua.toml")).price_per_gpu_hour == 1.8
    tables = {name.partition(".")[0] for name in (*rules.TABLES, *rules.NAMES)}
    assert {f"[{table}]" for table in tables} == set(re.findall(r"`(\[\w+\])`", section))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("day")
    demo.simulate(str(folder), 0, EXAMPLE_END_MS - DAY_MS, EXAMPLE_END_MS)
    return folder


def simulated(day: Path, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [GUA, verb, "--simulate", "--data-dir", str(day), *options]
    variables = os.environ | {"TZ": "UTC"}
    return call(command, env=variables)


def test_the_page_of_the_status_shows_what_status_and_free_print(day: Path) -> None:
    shown, rest = page("status.md").split("$ gua status\n")[1].split("...\n", 1)
    printed = simulated(day, "status").stdout
    assert printed.startswith(shown)
    last, refusal = rest.split("$ gua free -n 2\n")
    assert printed.endswith(last)
    assert simulated(day, "free", "-n", "2").stderr == refusal.split("```")[0]


def test_every_key_of_the_status_is_documented_and_no_other(day: Path) -> None:
    found = documented("status.md", "\n## JSON")
    assert len(found) == len(set(found))
    assert set(key_paths(json.loads(simulated(day, "status", "--json").stdout))) == set(found)
    assert f"`schema_version` is {SCHEMA_VERSION}:" in (DOCS / "status.md").read_text().split("\n## JSON")[1]


def test_the_page_of_the_status_tells_its_limits() -> None:
    text = page("status.md")
    assert f"does not answer within {observer.DRIVER_TIMEOUT.rstrip('s')} s" in text
    assert f"no more than {policy.DEFAULT.process_memory_mib:g} MiB" in text


def test_the_readme_tells_the_thresholds_of_the_policy() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"utilization of {policy.DEFAULT.utilization_percent:g} % or more" in readme
    assert f"more than {policy.DEFAULT.process_memory_mib:g} MiB held by processes" in readme
    assert f"more than {policy.DEFAULT.unattributed_memory_mib:g} MiB held by nobody" in readme


def first_column(table: str) -> list[str]:
    """The names in backquotes in the first column of a markdown table."""
    return re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))


def test_every_column_of_every_view_and_every_table_is_documented() -> None:
    text = page("schema.md")
    connection = sqlite3.connect(":memory:")
    for statement in schema.TABLES:
        connection.execute(statement)
    for table, added in schema.ADDED.items():
        for column in added:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER")
    for statement in schema.VIEWS:
        connection.execute(statement)
    for view in ("ticks", "card_ticks", "process_ticks"):
        section = text.split(f"## View {view}:")[1].split("\n## ")[0]
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
        assert sorted(first_column(section)) == sorted(columns)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    section = text.split("\n## Tables")[1].split("\n## ")[0]
    assert sorted(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))) == sorted(
        tables
    )
    connection.close()
    assert f"{schema.APPLICATION_ID:#x}" in text
    assert f"`user_version` {schema.VERSION}" in text


def test_every_module_is_described() -> None:
    text = page("architecture.md")
    for package in ("gua_sample", "gua_report"):
        for module in (ROOT / package).glob("*.py"):
            assert module.stem == "__init__" or f"`{module.stem}`" in text, module
        for room in (ROOT / package).glob("*/__init__.py"):
            assert f"`{room.parent.name}/`" in text, room


def test_every_make_target_is_listed_by_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    shown = call(["make", "-s", "--no-print-directory", "help"], cwd=ROOT, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == phony[1].split()


def test_each_page_that_names_contrib_says_where_it_is_installed() -> None:
    pages = [text for text in (path.read_text() for path in DOCS.glob("*.md")) if "contrib/" in text]
    assert len(pages) > 3
    assert all("`/opt/gua/share/gua/contrib`" in text for text in pages)


def test_the_readme_says_that_no_physical_gpu_was_tried_and_leads_to_a_recording_of_ones_own() -> None:
    section = (ROOT / "README.md").read_text().split("\n## Not yet run on a physical GPU\n")[1].split("\n## ")[0]
    assert "simulated drivers only" in section
    assert "gua doctor --record" in section
    heading = section.split("CONTRIBUTING.md#")[1].split(")")[0].replace("-", " ")
    how = (ROOT / "CONTRIBUTING.md").read_text().lower().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    assert "before you send it" in how


def test_no_page_installs_a_package_of_somebody_elses_that_is_called_gua() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")):
        assert not re.search(r"pip install [^\n]*(?<![./\w])gua\b(?![-/.])", path.read_text()), path
