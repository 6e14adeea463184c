"""The brief report: what fits a phone's mail."""

from dataclasses import replace

import pytest

from gua_report.console.fitting import columns
from gua_report.render import Options, renderer
from gua_report.render.attention import reasons
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from tests.reports import END_MS, empty_report, episode_frame, identity_frame, meant_report, small_report

LONG = "a-name-that-somebody-with-a-sense-of-humour-has-chosen-for-a-whole-service-account-of-theirs"


def brief(report: Report, name: str = "text", ascii_only: bool = False) -> str:
    attention = tuple(reasons(report, HOUR_MS))
    return renderer(name)(report, Options(width=72, brief=True, attention=attention, ascii=ascii_only))


def bad_week(count: int = 40, name: str = LONG) -> Report:
    """Everything that can take space does: many people with long names, lost cards, gaps, skipped files, no ticks."""
    report = small_report()
    people = [f"{number} {name}" for number in range(count)]
    episodes = [("GPU-a", 0, float("nan"), who, 4711, name, -51.0, 0.0, 40_960.0, True) for who in people]
    return replace(
        report,
        host=name,
        driver_versions=["570.133.20", "580.65.06", "535.261.03", "550.54.15", "560.35.03"] * 4,
        requested=report.requested._replace(start_ms=report.requested.start_ms - HOUR_MS),
        newest_ms=END_MS - 9 * HOUR_MS,
        identities=identity_frame([*((who, 61.5, 40.0, 1.0) for who in people), ("(unattributed)", 1.0, 0.0, 0.0)]),
        episodes=episode_frame(episodes),
        coverage_share=0.5,
        warnings=[f"skipped: {LONG} {LONG}", f"skipped: {LONG}"],
    )


def noted() -> Report:
    """A bad week with all sorts of notes."""
    bad, meant = bad_week(), meant_report()
    episodes = bad.episodes.assign(meant_now=[place % 10 > 2 for place in range(40)], meant_reason="x " * 100)
    return replace(bad, episodes=episodes, identities=meant.identities, meant_gpu_hours=meant.meant_gpu_hours)


REPORTS = {
    "small": small_report(),
    "empty": empty_report(),
    "bad": bad_week(),
    "crowd": bad_week(400),
    "wide": bad_week(400, "\u5c0f\u660e" * 60),
    "noted": noted(),
    "hostile": bad_week(400, "\x1b[31m\n\t" * 40),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_it_has_no_more_than_40_lines_of_72_columns(name: str, ascii_only: bool) -> None:
    lines = brief(REPORTS[name], ascii_only=ascii_only).splitlines()
    assert len(lines) <= 40
    assert max(map(columns, lines)) <= 72
    assert all(line.isprintable() for line in lines)
    assert any("Of which meant: 12.5 GPU-hours" in line for line in lines) == (name == "noted")


def test_it_tells_what_to_act_on_then_what_is_held_then_the_headline_and_five_people() -> None:
    text = brief(bad_week())
    parts = ["To act on: 40 idle-held episodes", "Held without work", "§1 Headline", "§4 Top identities", "§7 Coverage"]
    assert sorted(parts, key=text.index) == parts
    assert "§2" not in text
    people = text.split("§4 Top identities")[1].split("§7")[0]
    assert people.count("a-na") == 5
    assert "and 36 more" in people


def test_coverage_is_there_only_if_it_matters() -> None:
    report = small_report()
    assert "§7 Coverage" in brief(report)  # a partition was not readable
    assert "§7" not in brief(replace(report, warnings=[]))
    assert "Observed: 50.0%" in brief(replace(report, warnings=[], coverage_share=0.5))


def test_markdown_has_no_empty_captions() -> None:
    text = brief(small_report(), "markdown")
    assert "**" not in text
    assert "## §1 Headline" in text


def test_people_are_on_one_scale() -> None:
    people = identity_frame([("ada", 147.0, 0.0, 0.0), ("ben", 21.0, 0.0, 0.0), ("cem", 0.0, 21.0, 0.0)])
    report = replace(small_report(), identities=people)
    text = renderer("text")(report, Options(sections=("identities",), width=120))
    bars = {line.split()[0]: len(line.split()[1]) for line in text.splitlines() if set("█▓") & set(line)}
    assert bars["ada"] == 24
    assert bars["ben"] == bars["cem"] == round(24 * 21 / 147)


def test_what_is_worth_most_is_first_among_what_is_held_now() -> None:
    held = [
        ("GPU-a", 0, float("nan"), "long-and-small", 1, "x", -40.0, 0.0, 1_000.0, True),
        ("GPU-a", 0, float("nan"), "not-known", 2, "x", -30.0, 0.0, float("nan"), True),
        ("GPU-a", 0, float("nan"), "short-and-large", 3, "x", -2.0, 0.0, 80_000.0, True),
    ]
    text = brief(replace(small_report(), episodes=episode_frame(held)))
    names = ["short-and-large", "long-and-small", "not-known"]
    assert sorted(names, key=text.split("Held right now")[1].index) == names


def test_a_title_that_fits_in_its_line_is_not_cut() -> None:
    report = replace(small_report(), host="gpu-server-of-the-vision", driver_versions=["9"])
    assert "\nGPU use on gpu-server-of-the-vision: 4 GPUs (2 MIG instances), driver 9\n" in brief(report)
