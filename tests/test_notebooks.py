"""`import gua_report as gua` does what docs/notebooks.md and docs/example.ipynb show.

To rewrite the outputs saved in the example: GUA_REWRITE_GOLDEN=1 pytest tests/test_notebooks.py
"""

import dataclasses
import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from gua_report import notebook
from gua_sample.records import Tick
from tests.lab import HOUR_MS, MONDAY_MS, busy, free, held, series, write
from tests.machine import call
from tests.repository import DOCS, ROOT

EXAMPLE = DOCS / "example.ipynb"
REPORT_FRAMES = (
    *("headline", "before", "capacity", "unpartitioned", "reclaim", "reclaim_curve", "gpus", "identities"),
    *("identity_days", "heatmap", "timeline", "timeline_holders", "trend", "episodes", "gaps", "now"),
)
# The example does not tell whose machine it was run on.
HOST = "lab"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sunday's last hour and Monday's first, with a hole in between."""
    folder = tmp_path_factory.mktemp("history")
    ticks = series(MONDAY_MS - HOUR_MS, 56, busy(index=0), free(index=1))
    write(folder, ticks + series(MONDAY_MS, 60, held(index=0), free(index=1)))
    return folder


def monday(history: Path) -> dict[str, Any]:
    """The arguments for its first hour."""
    return {"start": "2026-11-16", "end": "2026-11-16T01:00", "tz": "UTC", "data_dir": str(history)}


def documented(heading: str) -> list[str]:
    """What the first column of the table below that heading names."""
    section = (DOCS / "notebooks.md").read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))


def names(frame: pd.DataFrame) -> list[str]:
    return [name for name in [*frame.index.names, *frame.columns] if name is not None]


def test_report_and_load_can_be_called_again_and_again(history: Path) -> None:
    # In a process of its own, where nothing is imported yet. A module of the same name would take a function's place.
    script = (
        "import importlib, pkgutil, sys, gua_report as gua\n"
        "arguments = dict(zip(('start', 'end', 'tz', 'data_dir'), sys.argv[1:]))\n"
        "for _ in range(2):\n"
        "    print(len(gua.report(**arguments).gpus), len(gua.load(**arguments).ticks))\n"
        "from gua_report.summary.report import Report\n"
        "print(callable(gua.report), callable(gua.load))\n"
    )
    command = [sys.executable, "-c", script, *monday(history).values()]
    result = call(command)
    assert (result.stdout, result.stderr) == ("2 60\n2 60\nTrue True\n", "")


@pytest.mark.parametrize("name", REPORT_FRAMES)
def test_every_column_of_a_report_is_documented(history: Path, name: str) -> None:
    report = notebook.report(**monday(history))
    assert sorted(names(getattr(report, name))) == sorted(documented(f"report.{name}"))


def test_every_plain_value_of_a_report_is_documented(history: Path) -> None:
    fields = {field.name for field in dataclasses.fields(notebook.report(**monday(history)))}
    if_configured = {"reservations", "groups", "limits", "group_limits"}
    assert sorted(documented("Plain values")) == sorted(fields - {*REPORT_FRAMES} - if_configured)


def test_every_column_of_what_is_configured_is_documented(history: Path, tmp_path: Path) -> None:
    (tmp_path / "reservations.csv").write_text("gpu,user,from,to,note\n0,alice,2026-11-16,,\n")
    config = f'[reservations]\nfile = "{tmp_path / "reservations.csv"}"\n[groups]\nus = ["alice"]\n'
    limits = "[limits.groups.us]\ngpu_hours = 1\n[limits.everyone]\ngpu_hours = 1.5\n"
    (tmp_path / "gua.toml").write_text(config + limits)
    plain = notebook.report(**monday(history))
    report = notebook.report(**monday(history), config=str(tmp_path / "gua.toml"))
    for name in ("reservations", "groups", "limits", "group_limits"):
        assert names(getattr(report, name)) == documented(f"report.{name}")
        assert len(getattr(report, name)) == 1
        assert getattr(plain, name) is None
    html = report._repr_html_()
    for said in ("Groups, by idle-held GPU-hours", "of limit", "50.0% of the GPU time was idle-held"):
        assert said in html


@pytest.mark.parametrize("name", notebook.Frames._fields)
def test_every_column_of_the_rows_is_documented(history: Path, name: str) -> None:
    frames = notebook.load(**monday(history))
    assert sorted(names(getattr(frames, name))) == sorted(documented(f"load().{name}"))


def test_the_columns_of_a_report_are_the_same_when_nothing_is_on_the_cards(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 5, free()))
    report = notebook.report(**monday(tmp_path))
    for name in set(REPORT_FRAMES) - {"before"}:
        assert sorted(names(getattr(report, name))) == sorted(documented(f"report.{name}"))


@pytest.mark.parametrize("ticks", [series(MONDAY_MS, 5, free()), series(MONDAY_MS, 5, error="driver_not_loaded")])
def test_the_columns_of_the_rows_are_the_same_when_nothing_is_on_the_cards(tmp_path: Path, ticks: list[Tick]) -> None:
    write(tmp_path, ticks)
    frames = notebook.load(**monday(tmp_path))
    for name in frames._fields:
        assert sorted(names(getattr(frames, name))) == sorted(documented(f"load().{name}"))


def test_every_argument_is_documented() -> None:
    section = (DOCS / "notebooks.md").read_text().split("\n## Arguments\n")[1].split("\n## ")[0]
    arguments = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert arguments == list(inspect.signature(notebook.report).parameters)
    both = list(inspect.signature(notebook.load).parameters)
    assert arguments[: len(both)] == both


def test_the_weights_of_the_rows_come_to_what_the_report_says(history: Path) -> None:
    report = notebook.report(**monday(history))
    cards = notebook.load(**monday(history)).cards
    hours = (cards["weight_ms"] * cards["gpu_share"] / HOUR_MS).groupby(cards["state"]).sum()
    assert hours.to_dict() == pytest.approx({"idle-held": 1.0, "truly-idle": 1.0})
    assert report.headline["gpu_hours"][list(hours.index)].to_dict() == pytest.approx(hours.to_dict())


def read_example() -> Any:
    return nbformat.read(EXAMPLE, as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no types


def outputs(document: Any) -> Iterator[tuple[str, str, str]]:
    """Of each code cell: which, what kind, and what it shows."""
    for cell in document.cells:
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {output.output_type: str(output)}).items():
                if kind != "text/plain":  # HTML says the same, and does not depend on pandas' version
                    yield cell.id, kind, without_host(text)


def without_host(html: str) -> str:
    return html.replace(f"<h1>GPU use on {socket.gethostname()}</h1>", f"<h1>GPU use on {HOST}</h1>")


def execute(folder: Path) -> Any:
    """The example, run from start to end in a kernel of this Python that touches nothing outside the folder."""
    document = read_example()
    client = NotebookClient(
        document,
        timeout=60,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    return document


def keep_jupyter_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "TMPDIR"):
        (folder / variable).mkdir()
        monkeypatch.setenv(variable, str(folder / variable))


@pytest.mark.filterwarnings("default")
def test_a_kernel_of_ones_own_finds_what_is_installed(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_jupyter_in(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # As make install leaves it: packages, and no pip.
    installed = tmp_path / "opt" / "gua"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(installed)], check=True)
    (packages,) = installed.glob("lib/python3*/site-packages")
    folders = [Path(folder) for folder in sys.path if folder.endswith("site-packages")]
    sources = [ROOT / "gua_sample", ROOT / "gua_report", *(source for folder in folders for source in folder.iterdir())]
    for source in sources:
        if source.suffix != ".pth" and not (packages / source.name).is_symlink():  # the first of a name counts
            (packages / source.name).symlink_to(source)
    page = (DOCS / "notebooks.md").read_text()
    commands = page.split("## In your own Jupyter")[1].split("```\n")[1].replace("/opt/gua", str(installed))
    # Packages come from the folder above instead of an index.
    offline = commands.replace("-m venv", "-m venv --without-pip").replace("~/gua-notebook/bin/pip install", "true")
    assert offline.count("--without-pip") == offline.count("true ipykernel") == 1
    subprocess.run(["bash", "-ec", offline], check=True, capture_output=True)
    code = f"import gua_report as gua, sys\nprint(sys.prefix, len(gua.report(**{monday(history)!r}).gpus))"
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])  # type: ignore[no-untyped-call]
    NotebookClient(document, timeout=60, kernel_name="gua", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [output.text for output in document.cells[0].outputs] == [f"{tmp_path / 'gua-notebook'} 2\n"]


# The warnings are Jupyter's own affair.
@pytest.mark.filterwarnings("default")
def test_the_example_runs_and_shows_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_jupyter_in(tmp_path, monkeypatch)
    executed = execute(tmp_path)
    shown = list(outputs(executed))
    unexpected = [text for _, kind, text in shown if kind != "text/html"]
    assert not unexpected  # no error, no warning
    assert len(shown) == 4
    assert not list((tmp_path / "TMPDIR").glob("gua-*"))
    if os.environ.get("GUA_REWRITE_GOLDEN"):
        save(executed)
    assert list(outputs(read_example())) == shown, "if it should differ, rewrite it as is said at the top"


def save(document: Any) -> None:
    """With the outputs, and without what would differ on the next machine."""
    document.metadata = {"kernelspec": document.metadata.kernelspec, "language_info": {"name": "python"}}
    for cell in document.cells:
        for output in cell.get("outputs", ()):
            output.data = {"text/html": without_host(output.data["text/html"])}
    nbformat.write(document, EXAMPLE)  # type: ignore[no-untyped-call]  # nbformat has no types


def test_the_example_is_saved_with_its_outputs_and_small() -> None:
    document = read_example()
    nbformat.validate(document)
    assert EXAMPLE.stat().st_size < 250_000  # most of it the pictures of a week
    assert all(cell.execution_count for cell in document.cells if cell.cell_type == "code")
    shown = list(outputs(document))
    assert [kind for _, kind, _ in shown] == ["text/html"] * 4
    assert f"GPU use on {HOST}<" in shown[0][2]
