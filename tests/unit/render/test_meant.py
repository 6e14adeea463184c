"""What is meant is told apart, is nothing to act on, and its reason is nobody's way into a format."""

import re
from dataclasses import replace
from typing import Any

import pytest

from gua_report.render import FORMATS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.summary.names import number_people, without_names
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from tests.reports import NAN, episode_frame, meant_report, small_report

PRIVATE = "for the secret project"


def with_reason(reason: str) -> Report:
    report = meant_report()
    return replace(report, episodes=report.episodes.assign(meant_reason=reason))


def shown(report: Report, name: str = "text", **options: Any) -> str:
    sections = ("episodes",) if name == "csv" else ("headline", "identities", "episodes")
    return renderer(name)(report, Options(sections=sections)._replace(**options))


def marked(*meant: tuple[float, bool]) -> Report:
    """Episodes of ten hours that go on, with the seconds that each was meant, and whether it is now."""
    rows = [("GPU-a", 0, NAN, f"user{place}", place, "python", -10.0, 0.0, 1e4, True) for place in range(len(meant))]
    seconds, now = zip(*meant, strict=True)
    episodes = episode_frame(rows).assign(meant_seconds=seconds, meant_now=now, meant_reason="x")
    return replace(small_report(), episodes=episodes, warnings=[])


@pytest.mark.parametrize(
    ("seconds", "is_now", "counts"),
    [
        (0, False, True),
        (36_000, True, False),
        (60, True, False),  # what is meant now is nothing to act on, though it was not before
        (36_000 - 3600, False, True),  # an hour of it was not
        (36_000 - 3599, False, False),
    ],
)
def test_what_is_meant_is_nothing_to_act_on(seconds: float, is_now: bool, counts: bool) -> None:
    found = [line for line in reasons(marked((seconds, is_now)), HOUR_MS) if "episode" in line]
    assert bool(found) == counts


def test_only_the_others_are_counted_with_the_time_that_was_not_meant() -> None:
    report = marked((0, False), (18_000, False), (100, True), (35_000, False))
    (line,) = [line for line in reasons(report, HOUR_MS) if "episode" in line]
    assert line == "2 idle-held episodes of 1h or more (longest: user0 10h, user1 5h)"


def test_where_it_is_not_known_what_goes_on_nothing_is_excused() -> None:
    report = marked((18_000, False))
    dark = replace(report, episodes=report.episodes.assign(ongoing=None, meant_now=None))
    assert any("user0 5h" in line for line in reasons(dark, HOUR_MS))


def test_what_is_not_meant_has_its_place_before_what_is() -> None:
    text = shown(meant_report(), top=1).split("§1")[0]
    assert "ada" in text
    assert "=cmd" not in text
    assert "and 2 more that are meant" in text


def test_the_last_row_of_the_people_has_what_is_meant_of_all_others() -> None:
    people = shown(meant_report(), top=1, sections=("identities",))
    assert re.search(r"and 4 more +82\.3 +3\.1 ", people)


@pytest.mark.parametrize("name", FORMATS)
def test_pages_without_names_have_no_reasons(name: str) -> None:
    report = with_reason(PRIVATE)
    assert "secret" in shown(report, name)
    bare = shown(without_names(report, number_people([report])), name)
    assert "secret" not in bare
    assert "17" in bare  # the day until when it is meant


def test_pages_without_names_do_not_tell_whose_the_spool_is() -> None:
    line = "/var/spool/gua/notes is uid 1001's, not root's: notes are not used until root says chown root: /var/spool"
    report = without_names(replace(meant_report(), notes=[line]), {})
    assert report.notes == ["... is ...'s, not root's: notes are not used until root says chown root: ..."]
