"""Containers in every format: hints are shown as hints, and no name breaks out.

To rewrite the golden files: GUA_REWRITE_GOLDEN=1 pytest tests/unit/render/test_containers.py
"""

import csv
import io
import json
import os
import re

import pytest

from gua_report.render import FORMATS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.window import HOUR_MS
from tests.reports import contained_report
from tests.repository import ROOT
from tests.svg import Page

GOLDEN = ROOT / "tests" / "golden"
SECTIONS = ("headline", "identities", "episodes", "reservations")


@pytest.mark.parametrize("name", ["text", "markdown", "json", "csv"])
def test_containers_are_as_reviewed(name: str) -> None:
    sections = ("identities",) if name in ("json", "csv") else SECTIONS
    text = renderer(name)(contained_report(), Options(sections=sections))
    path = GOLDEN / f"containers.{ {'text': 'txt', 'markdown': 'md'}.get(name, name) }"
    if os.environ.get("GUA_REWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_bytes().decode()


def test_a_page_names_containers_wherever_it_names_people() -> None:
    attention = tuple(reasons(contained_report(), HOUR_MS))
    assert "ada? (docker: train-resnet) ≥ 2d 3h" in "; ".join(attention)
    for section in ("headline", "timeline", "identities", "identity_days", "episodes", "reservations"):
        html = renderer("html")(contained_report(), Options(sections=(section,), attention=attention))
        texts = [*Page(html).content, *(" ".join(one.texts) for one in Page(html).pictures)]
        assert any("ada? (docker: train-resnet)" in text for text in texts[2:]), section
        assert "docker:3f2a9c81d0b7" not in html
    pictures = Page(renderer("html")(contained_report(), Options())).pictures
    assert sum("ada? (docker: train-resnet)" in " ".join(one.texts) for one in pictures) == 3  # cards, people, days


def test_json_and_csv_tell_identity_container_hint_and_how() -> None:
    report = contained_report()
    document = json.loads(renderer("json")(report, Options()))
    for section in ("identities", "episodes"):
        rows = {row["identity"]: row for row in document[section]}
        told = {who: [rows[who][name] for name in ("container", "owner_hint", "how")] for who in rows}
        assert told["docker:3f2a9c81d0b7"] == ["train-resnet", "ada", "label"]
        assert told["pod:0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00"] == ["ml/<i>|*x*_`y`", None, None]
        assert told["docker:904ef981a59f"] == [None, None, None]
        table = renderer("csv")(report, Options(sections=(section,)))
        csv_rows = {row["identity"]: row for row in csv.DictReader(io.StringIO(table))}
        for who, values in told.items():
            found = [csv_rows[who][name].removeprefix("'") for name in ("container", "owner_hint", "how")]
            assert found == [value or "" for value in values]
    assert {holder["identity"] for cell in document["timeline"]["cells"] for holder in cell["holders"]} == {
        "docker:3f2a9c81d0b7",
        "pod:0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00",
    }


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_without_containers_is_the_same_with_none_known(name: str) -> None:
    """The id is shown where nothing is known of it."""
    text = renderer(name)(contained_report({}), Options(sections=("identities",), width=120))
    assert "docker:3f2a9c81d0b7" in re.sub(r"\\(.)", r"\1", text)
    assert "train-resnet" not in text
