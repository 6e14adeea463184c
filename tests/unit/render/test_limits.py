"""Limits in every format, on one small fixed report."""

from dataclasses import replace

import pandas as pd
import pytest

from gua_report.people.identities import Wanted
from gua_report.render import OF_PEOPLE, Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.mail import subject_of
from gua_report.summary.names import select
from gua_report.summary.report import Report
from gua_sample.partition_names import DAY_MS
from tests.reports import HOSTILE, limited_report

SECTIONS = ("identities", "groups")


def text_of(report: Report, *sections: str) -> str:
    return " ".join(renderer("text")(report, Options(sections=sections or SECTIONS)).split())


def own(report: Report, name: str = HOSTILE[0], is_reader: bool = False) -> Report:
    return select(report, Wanted(name, (name,), is_reader))


@pytest.mark.parametrize(
    ("share", "is_over", "observed", "cell"),
    [
        (0.8, False, 1.0, "80%"),
        (0.999, False, 1.0, "99%"),
        (1.0, False, 1.0, "100%"),
        (1.0001, True, 1.0, "101%"),
        (3.075, True, 1.0, "307%"),
        (0.8, None, 1.0, "≥ 80%"),
        (0.8, None, 0.5, "≥ 80%"),
        (3.075, True, 0.5, "≥ 307%"),
        (0.0, False, 1.0, "0%"),
    ],
)
def test_the_column_is_over_100_if_and_only_if_it_is_over(
    share: float, is_over: bool | None, observed: float, cell: str
) -> None:
    limited = limited_report()
    assert limited.limits is not None
    assert limited.week is not None
    first = limited.limits.head(1).assign(limit_share=share, over_limit=pd.Series([is_over], dtype=object))
    report = replace(limited, limits=first, week=limited.week._replace(observed_share=observed))
    lines = renderer("text")(report, Options(sections=("identities",))).splitlines()
    (line,) = (line for line in lines if line.startswith(f"  {HOSTILE[0]} "))
    assert line.endswith(f"  {cell}")
    (other,) = (line for line in lines if line.startswith("  a|b*c"))
    assert other.endswith("  0.1")  # who has none


def test_the_section_says_which_week_and_how_much_of_it_was_observed() -> None:
    limited = limited_report()  # which has seen 90 %, as in the golden files
    assert limited.week is not None
    whole = replace(limited, week=limited.week._replace(observed_share=1.0))
    assert "; of limit: the 7 days up to 16 Nov 00:00, against the limits in gua.toml." in text_of(whole)


def test_the_report_of_one_person_says_it_in_sentences() -> None:
    you = text_of(own(limited_report(), is_reader=True), "identities")
    assert (
        "You are over the limit of 20 idle-held GPU-hours a week: at least 61.5 in the 7 days up to 16 Nov 00:00, 13.9"
        " of them meant, 90% of which were observed." in you
    )
    assert "It is not known whether you are within the limit of 200 GPU-hours a week: at least 101.5" in you
    assert f"{HOSTILE[0]} is over the limit of 20" in text_of(own(limited_report()), "identities")


def test_the_report_of_a_group_says_it_of_the_group() -> None:
    report = select(limited_report(), Wanted("<b>vision</b>"))
    assert "the group <b>vision</b> is over the limit of 100 GPU-hours a week: at least 156.0" in text_of(report)
    assert "&lt;b&gt;vision&lt;/b&gt; is over" in renderer("html")(report, Options(sections=OF_PEOPLE))
    assert "@odd" not in renderer("json")(report, Options(sections=OF_PEOPLE))


def test_what_is_over_is_to_act_on_and_in_the_subject() -> None:
    found = reasons(limited_report(), 100 * DAY_MS)
    assert found[:2] == [
        f"1 person over a limit ({HOSTILE[0]} 61.5 of 20 idle-held GPU-hours)",
        "1 group over a limit (<b>vision</b> 156.0 of 100 GPU-hours)",
    ]
    assert subject_of(limited_report()).endswith(", 2 over limit")
    assert "limit" not in " ".join(reasons(own(limited_report(), HOSTILE[1]), 100 * DAY_MS))
