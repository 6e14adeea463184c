"""Whatever people call themselves, their programs, containers, groups and reasons: it breaks out of no format."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from gua_report.render import SECTIONS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.csv import FORMULA
from gua_report.render.mail import subject_of
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.containers import LABEL, Container
from tests.odd_reports import HOSTILE
from tests.reports import CONTAINERS, contained_report, limited_report, meant_report, reserved_report
from tests.svg import Page

TEXTS = [*HOSTILE, "=1+1", "x;=1+1", '";"@x', "\uff1d1", "-1", "=HYPERLINK('http://x')", "\x1b[31m\r\nBcc: eve@x"]
TEXTS += ["\x1b]0;x\x07\x1b[2J\u202e", "a|b\n|c", "`*_[x](y)", "a | b `c` [d](http://x) @all", "x" * 256, "小" * 99]


def named(name: str) -> Report:
    """A report in which everything that has a name, a reason or a text of somebody's has this one."""
    report, reserved = limited_report(), reserved_report().reservations
    assert report.limits is not None
    assert report.groups is not None
    assert report.group_limits is not None
    assert reserved is not None
    people = report.identities["identity"].tolist()
    return replace(
        report,
        host=name,
        timezone=name,
        config=report.config._replace(currency=name or "x"),
        warnings=[name],
        notes=[name],
        reservation_problems=[name],
        gpus=report.gpus.assign(name=name),
        episodes=meant_report().episodes.assign(identity=name, command=name, meant_reason=name, slurm_job=name),
        identities=report.identities.assign(identity=[f"{name}{place}" for place in range(len(people))]),
        identity_days=report.identity_days.assign(identity=name),
        timeline_holders=report.timeline_holders.assign(identity=name),
        reservations=reserved.assign(identity=name),
        groups=report.groups.assign(group=[name, *report.groups["group"].tolist()[1:]]),
        limits=report.limits.assign(identity=[f"{name}{people.index(who)}" for who in report.limits["identity"]]),
        group_limits=report.group_limits.assign(group=[name, "@odd"]),
    )


@cache
def known_attributes() -> set[str]:
    return {key for _, attributes in Page(renderer("html")(named("x"), Options())).tags for key in attributes}


def check_lines(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n"))


@settings(max_examples=25, deadline=None)
@given(*(st.sampled_from(TEXTS) | st.text(max_size=40),) * 2, st.sampled_from([60, 78, 120]), st.booleans())
@example("ada", ";=", 78, False)
@example("!" + "x" * 10**4, "", 60, True)
def test_no_name_breaks_out_of_any_format(name: str, other: str, width: int, ascii_only: bool) -> None:
    container = Container("docker", name or "x", name or "x", other or "x", LABEL, 1)
    for report in (named(name), contained_report({**CONTAINERS, "3f2a9c81d0b7": container})):
        attention = tuple(reasons(report, HOUR_MS))
        check_lines("".join([*attention, subject_of(report)]))
        options = Options(width=width, ascii=ascii_only, attention=attention)
        text = renderer("text")(report, options)
        assert max(map(wcswidth, text.split("\n"))) <= width
        assert text.isascii() or not ascii_only
        shown = {form: renderer(form)(report, options) for form in ("markdown", "json", "html")}
        for one in (text, *shown.values()):
            check_lines(one)
        assert "<script" not in shown["markdown"]
        assert not re.search(r"(?<!\\)[|`\[\]]\(http|(?<!\\)`c|@all", shown["markdown"])
        tags = Page(shown["html"]).tags
        assert not {tag for tag, _ in tags} & {"script", "b", "i", "img"}
        assert {key for _, attributes in tags for key in attributes} <= known_attributes()


@pytest.mark.parametrize("name", TEXTS)
def test_no_formula_reaches_a_spreadsheet_and_no_text_is_lost(name: str) -> None:
    report = named(name)
    told = json.loads(renderer("json")(report, Options()))
    for section in SECTIONS:
        rows = list(csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=(section,))))))
        cells = [(key, value) for row in rows for key, value in row.items()]
        for key, value in cells:
            for part in value.split(";"):
                is_number = re.fullmatch(r"-?[\d.]+(e-\d+)?", part)
                assert is_number or not part.lstrip(' "').startswith(FORMULA), (section, key, value)
        if section in ("identities", "episodes", "groups"):
            # A quote stands before what a spreadsheet would run, also after a semicolon, where some spreadsheets split.
            texts = {key: value for key, value in told[section][0].items() if isinstance(value, str)}
            for key, value in texts.items():
                assert re.sub("(^|;)'", r"\1", rows[0][key]) == re.sub("(^|;)'", r"\1", value)
