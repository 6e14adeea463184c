"""Renderers, on one small fixed report.

To rewrite the golden files: GUA_REWRITE_GOLDEN=1 pytest tests/unit/render/test_formats.py
"""

import csv
import html
import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from gua_report.console.spelling import duration
from gua_report.render import FORMATS, OF_PEOPLE, SECTIONS, Options, renderer
from gua_report.render.blocks import spread
from gua_report.render.markdown import escape
from gua_report.render.values import amount, percent, points
from gua_report.summary.now import NewestFailed
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT
from tests.machine import call
from tests.reports import (
    END_MS,
    NAN,
    by_state,
    empty_report,
    group_report,
    grouped_report,
    limited_report,
    meant_report,
    own_report,
    reserved_report,
    small_report,
)
from tests.repository import ROOT


def text_of(report: Report, **options: Any) -> str:
    return renderer("text")(report, Options(**options))


OF_SOME = ("now", "identities", "groups", "identity_days", "episodes")
# A report, the sections that its files show, and the one that its CSV shows.
REVIEWED: dict[str, tuple[Callable[[], Report], tuple[str, ...], str]] = {
    "report": (small_report, SECTIONS, "identities"),
    "reservations": (reserved_report, ("reservations",), "reservations"),
    "meant": (meant_report, ("headline", "capacity", "identities", "episodes"), "episodes"),
    "groups": (grouped_report, ("groups",), "groups"),
    "own": (own_report, tuple(section for section in OF_SOME if section != "groups"), "now"),
    "group": (group_report, OF_SOME, "now"),
    "limits": (limited_report, ("identities", "groups"), "identities"),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", REVIEWED)
def test_every_format_is_as_reviewed(kind: str, name: str) -> None:
    make, sections, table = REVIEWED[kind]
    text = renderer(name)(make(), Options(sections=(table,) if name == "csv" else sections))
    check_golden(f"{kind}.{ {'text': 'txt', 'markdown': 'md'}.get(name, name) }", text)
    if (kind, name) == ("report", "text"):
        check_golden("report.ascii.txt", text_of(make(), ascii=True))


def check_golden(name: str, text: str) -> None:
    """Check that a text is as reviewed; rewrite the file first, if that is asked for."""
    path = ROOT / "tests" / "golden" / name
    if os.environ.get("GUA_REWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_bytes().decode()


def with_jobs(*jobs: str | None) -> Report:
    """The small report, with Slurm jobs for its five episodes."""
    report = small_report()
    return replace(report, episodes=report.episodes.assign(slurm_job=pd.Series(jobs, dtype=object)))


def test_the_slurm_job_stands_beside_the_person_if_any_episode_has_one() -> None:
    report = with_jobs("4711", None, "=9\x1b[2J", None, None)
    text = text_of(report, width=100)
    held, whole = text.split("§6")[0], text.split("§6")[1]
    for part in (held, whole):
        assert re.search(r"gpu +who +job +since", part)
        assert re.search(r"0 +=cmd\|x +4711 +13 Nov 21:00", part)
        assert re.search(r"1:1 +<script>alert\(1\)</script> {2,}13 Nov|1:1 +<script>\S* +15 Nov", part)
    assert "=9\\x1b[2J" in whole
    assert [one["slurm_job"] for one in json.loads(renderer("json")(report, Options()))["episodes"]][:2] == [
        "4711",
        None,
    ]
    rows = csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=("episodes",)))))
    assert [row["slurm_job"] for row in rows] == ["4711", "", r"'=9\x1b[2J", "", ""]
    assert "job" not in text_of(small_report())
    assert "job" not in text_of(with_jobs(None, None, "9", None, None)).split("§1")[0]  # nobody who holds now is in one


@pytest.mark.parametrize("width", [60, 61, 78, 100, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_longer_than_the_width(width: int, ascii_only: bool) -> None:
    jobs = with_jobs("4711", "s0123456789ABC", None, "9" * 40, None)
    others = (meant_report(), grouped_report(), own_report(), jobs)
    for report in (small_report(), reserved_report(), empty_report(), *others):
        sections = OF_PEOPLE if report.selection else SECTIONS
        lines = text_of(report, sections=sections, width=width, ascii=ascii_only).splitlines()
        assert max(map(wcswidth, lines)) <= width


@pytest.mark.parametrize("name", FORMATS)
def test_ascii_is_ascii(name: str) -> None:
    report = small_report()
    foreign = replace(report, host="größe", identities=report.identities.assign(identity="小明"))
    sections = ("identities",) if name == "csv" else SECTIONS
    assert renderer(name)(foreign, Options(sections, ascii=True)).isascii()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize(
    "report",
    [small_report(), meant_report(), reserved_report(), grouped_report(), own_report(), group_report(), empty_report()],
    ids=["small", "meant", "reserved", "grouped", "own", "group", "empty"],
)
def test_each_section_renders_alone(name: str, section: str, report: Report) -> None:
    text = renderer(name)(report, Options(sections=(section,)))
    assert text.endswith("\n")
    assert "nan" not in re.sub("unan", "", text.lower())


def test_sections_with_nothing_to_show_say_so() -> None:
    text = text_of(empty_report())
    nobody = ("Nobody holds a card idle.", "Nobody was seen holding a card idle.", "Nobody was seen using a card.")
    for line in (*nobody, "No gaps."):
        assert line in text


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_window_before_that_was_hardly_observed_is_not_compared_with(name: str) -> None:
    report = replace(small_report(), before=None, before_observed_share=0.0001)
    shown = " ".join(renderer(name)(report, Options()).split())
    assert "not compared with the 7d before, &lt;0.1% of it observed".replace("&lt;", "<") in html.unescape(shown)
    assert "+3.1" not in shown
    headline = json.loads(renderer("json")(report, Options()))["headline"]
    assert headline["change"] is None
    assert headline["before_observed_share"] == 0.0001


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_what_is_held_is_told_by_the_last_tick_that_saw_cards_if_the_newest_failed(name: str) -> None:
    failed = NewestFailed("gpu_is_lost\x1b", END_MS - 30_000, END_MS - 60_000, True)
    shown = " ".join(html.unescape(renderer(name)(replace(small_report(), newest_failed=failed), Options())).split())
    assert "the last tick that saw cards, 15 Nov 23:59, 30s before the newest, which failed (gpu" in shown
    assert "not known who" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_of_a_few_minutes_there_is_no_headline_but_when_there_will_be_one(name: str, brief: bool) -> None:
    full = small_report()
    young = replace(full, observed_seconds=31.0, window=full.window._replace(start_ms=END_MS - 60_000))
    short = replace(young, requested=young.window)
    past = replace(full, observed_seconds=599.9, newest_ms=END_MS + HOUR_MS)
    for report, seen, expected in (
        (young, "31s", "There will be one after 10m more of sampling."),
        (replace(young, observed_seconds=599.9), "9m", "There will be one after 1m more of sampling."),
        (short, "31s", "This window is too short for one: ask for more than 10m."),
        (past, "9m", "Ask for a window in which more than 10m was observed."),
    ):
        text = " ".join(html.unescape(renderer(name)(report, Options(brief=brief and name != "html"))).split())
        assert f"§1 Headline: none, as only {seen} was observed" in text
        assert expected in text
        assert "of the GPU time was idle-held" not in text
        assert f"{'Held without work' if report is past else 'Held right now, without work'}" in text
        assert "python3" in text  # who holds a card is told
    enough = replace(young, observed_seconds=600.0)
    assert "30.0% of the GPU time was idle-held" in renderer(name)(enough, Options())
    for report, is_enough in ((past, False), (enough, True)):  # programs get the figures, too
        found = json.loads(renderer("json")(report, Options()))["headline"]
        assert (found["is_enough"], found["states"]["idle-held"]["share"]) == (is_enough, 0.3)


def unknown_report(full: Report) -> Report:
    """The report at whose end the driver has failed for an hour."""
    failed = NewestFailed("driver_not_loaded", END_MS - HOUR_MS, END_MS - HOUR_MS - 30_000, False)
    return replace(full, newest_failed=failed, episodes=full.episodes.assign(ongoing=None))


@pytest.mark.parametrize("full", [small_report(), empty_report()], ids=["some", "none"])
@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_nobody_is_never_said_where_it_is_not_known(name: str, full: Report) -> None:
    shown = " ".join(html.unescape(renderer(name)(unknown_report(full), Options())).replace("\\", "").split())
    why = "driver error since 15 Nov 23:00 (driver_not_loaded)"
    assert f"It is not known who holds what right now: {why}." in shown
    assert f"The driver does not work: {why}." in shown
    assert "? not known whether ongoing" in shown
    assert "Nobody holds" not in shown
    assert "> ongoing" not in shown


def test_a_small_idle_held_share_is_not_the_headline_where_much_is_unknown() -> None:
    report = small_report()
    assert "§1 Headline: 30.0% of the GPU time was idle-held (377.7 EUR), 10.0% is unknown\n" in text_of(report)
    dark = replace(report, headline=by_state(share=[0.0, 0.0, 0.0, 1.0], gpu_hours=[0.0, 0.0, 0.0, 8.0]))
    assert re.search(r"0.0% of the GPU time was idle-held[^,]*, 100.0%\s+is\s+unknown\n", text_of(dark))
    clear = replace(report, headline=by_state(share=[0.3, 0.3, 0.36, 0.04], gpu_hours=[3.0, 3.0, 3.6, 0.4]))
    assert "30.0% of the GPU time was idle-held (377.7 EUR)\n" in text_of(clear)


def test_what_is_not_known_is_null_and_not_false_or_zero() -> None:
    document = json.loads(renderer("json")(unknown_report(small_report()), Options()))
    assert document["newest_tick_error"] == "driver_not_loaded"
    assert document["newest_tick_with_cards"] == "2026-11-15T22:59:30+01:00"
    assert document["headline"]["ongoing"] is None
    assert [episode["ongoing"] for episode in document["episodes"]] == [None] * 5
    known = json.loads(renderer("json")(small_report(), Options()))
    assert known["newest_tick_error"] is None
    assert known["newest_tick_with_cards"] == known["newest_tick"]
    assert known["headline"]["ongoing"] == 2
    table = csv.DictReader(io.StringIO(renderer("csv")(unknown_report(small_report()), Options(("episodes",)))))
    assert [row["ongoing"] for row in table] == [""] * 5


def test_the_figures_of_what_was_observed_agree_with_each_other() -> None:
    report = small_report()
    minute = replace(
        report,
        window=report.window._replace(start_ms=END_MS - 60_000),
        coverage_share=0.796,
        observed_seconds=47.76,
        from_ticks_seconds=47.76,
        from_rollups_seconds=0.0,
    )
    assert "Observed: 79.6%, 48s of 1m (48s from ticks)." in text_of(minute)


def test_cards_that_were_read_at_instants_alone_are_named() -> None:
    report = replace(small_report(), instant_only=["GPU-a", "MIG-c"])
    shown = " ".join(text_of(report).split())
    assert "Instantaneous readings only: GPU 0, 1:1. The driver told no means over time" in shown
    assert "1/6 to 1 s" in shown
    assert "Instantaneous" not in text_of(small_report())
    assert json.loads(renderer("json")(report, Options()))["coverage"]["instant_only_gpus"] == ["GPU-a", "MIG-c"]


def test_without_a_price_there_is_no_cost() -> None:
    report = small_report()
    assert "EUR" in text_of(report)
    free = report.config._replace(price_per_gpu_hour=None, price_per_kwh=None)
    assert "EUR" not in text_of(replace(report, config=free))


def test_captions_show_the_thresholds_in_force() -> None:
    policy = DEFAULT._replace(utilization_percent=12.5, process_memory_mib=333.0, unattributed_memory_mib=4444.0)
    text = text_of(replace(small_report(), policy=policy))
    assert "12.5%" in text
    assert "over 333 MiB" in text
    assert "over 4444 MiB" in text
    assert not re.search(r"\b10%|\b100 MiB|\b1024 MiB", text)


def test_a_sampler_that_stopped_is_noticed() -> None:
    report = small_report()
    assert "stopped" not in text_of(report)
    newest_ms = END_MS - 3 * HOUR_MS
    gap = pd.DataFrame([(newest_ms + 30_000, END_MS, "sampler not running")], columns=["start_ms", "end_ms", "kind"])
    text = text_of(replace(report, newest_ms=newest_ms, gaps=gap))
    assert "The sampler seems to have stopped: no tick since 15 Nov 21:00, 3h earlier." in text
    assert "Held without work at the last tick" in text
    assert "right now" not in text


def test_a_window_of_the_past_does_not_claim_to_know_what_is_held_now() -> None:
    text = text_of(replace(small_report(), newest_ms=END_MS + 24 * HOUR_MS))
    assert "Held without work in this window, and still" in text
    assert "right now" not in text
    assert "Nobody holds" not in text_of(replace(empty_report(), newest_ms=END_MS + 24 * HOUR_MS))


def test_long_tables_show_the_top_and_count_the_rest() -> None:
    text = text_of(small_report(), top=2)
    assert re.search(r"and 3 more +\S* +42\.3 +148\.0 +0\.0 +22\.2%", text)
    assert "and 3 shorter gaps" in text
    assert text.count("and 3 more") == 2
    reserved = text_of(reserved_report(), top=2, sections=("reservations",))
    assert re.search(r"and 2 more +8\.0 +8\.0 +0\.0 +0\.0 +0\.0 +0\.0 +3\.0\n", reserved)


def test_reservations_are_there_if_they_are_configured_or_asked_for() -> None:
    assert "§8 Reservations: 31.2% of the reserved time was used, 19.5% not at all\n" in text_of(reserved_report())
    assert "§8" not in text_of(small_report())
    assert "reservations" not in json.loads(renderer("json")(small_report(), Options()))
    assert "§8 Reservations\n  None are configured" in text_of(small_report(), sections=("reservations",))


def test_colors_are_only_there_when_asked_for_and_do_not_shift_anything() -> None:
    plain, colored = text_of(small_report()), text_of(small_report(), color=True)
    assert "\x1b" not in plain
    assert "\x1b[33m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain
    assert "\x1b[31m" not in colored  # the user's


def test_json_has_only_the_sections_asked_for_and_all_of_their_rows() -> None:
    assert renderer("json")(small_report(), Options(top=1)) == renderer("json")(small_report(), Options())
    document = json.loads(renderer("json")(small_report(), Options(sections=("gpus", "coverage"))))
    assert [name for name in SECTIONS if name in document] == ["gpus", "coverage"]


def test_csv_of_everything_is_the_gpus_and_of_several_sections_an_error() -> None:
    rows = list(csv.DictReader(io.StringIO(renderer("csv")(small_report(), Options()))))
    assert [row["uuid"] for row in rows] == ["GPU-a", "MIG-b", "MIG-c", "unknown:index-2"]
    with pytest.raises(UsageError, match="exactly one --section, one of headline, now, timeline"):
        renderer("csv")(small_report(), Options(sections=("gpus", "episodes")))


@pytest.mark.parametrize(
    "text", ["https://evil.example/x", "HTTP://evil.example", "www.evil.example", "see (ftp://a.b"]
)
def test_no_address_in_markdown_becomes_a_link(text: str) -> None:
    """GitHub makes links of bare addresses. A backslash before a punctuation mark is not shown."""
    escaped = escape(text)
    assert "://" not in escaped
    assert "www." not in escaped
    assert escaped.replace("\\", "") == text


ATTENTION = ("2 idle-held episodes of 1h or more (<b>a|b*c</b> 6h, @ben 2h 05m)", "88.1% observed")


def test_what_to_act_on_is_said_at_the_top() -> None:
    said = {name: renderer(name)(small_report(), Options(attention=ATTENTION)) for name in FORMATS}
    lines = said["text"].splitlines()
    assert lines[:3] == [
        "To act on: 2 idle-held episodes of 1h or more (<b>a|b*c</b> 6h, @ben 2h 05m);",
        "88.1% observed",
        "",
    ]
    assert lines[3:] == text_of(small_report()).splitlines()
    assert said["markdown"].splitlines()[2] == (
        r"To act on: 2 idle-held episodes of 1h or more (&lt;b&gt;a\|b\*c&lt;/b&gt; 6h, &#64;ben 2h 05m);"
        " 88.1% observed"
    )
    assert (
        '<p class="gua-act">To act on: 2 idle-held episodes of 1h or more (&lt;b&gt;a|b*c&lt;/b&gt; 6h, @ben'
        in said["html"]
    )
    assert json.loads(said["json"])["attention"] == list(ATTENTION)
    assert said["csv"] == renderer("csv")(small_report(), Options())


@given(st.lists(st.floats(0, 1000), min_size=4, max_size=4).filter(any), st.integers(1, 200))
def test_a_bar_is_always_full(parts: list[float], cells: int) -> None:
    assert sum(spread(tuple(part / sum(parts) for part in parts), cells)) == cells


def test_durations_have_two_units_at_most() -> None:
    expected = {0: "0s", 59.9: "59s", 720: "12m", 3600: "1h", 7500: "2h 05m", 86_400: "1d", 97_200: "1d 3h"}
    assert {seconds: duration(seconds) for seconds in expected} == expected


def test_numbers_neither_hide_a_little_nor_invent_a_zero() -> None:
    shares = {0.0: "0.0%", 0.0001: "<0.1%", 0.123: "12.3%", 0.9999: ">99.9%", 1.0: "100.0%", NAN: "—"}
    assert {share: percent(share) for share in shares} == shares
    shares = {0.0: "0 %", 0.0049: "<1 %", 0.005: "<1 %", 0.0051: "1 %", 0.278: "28 %", 0.9951: ">99 %", 1: "100 %"}
    assert {share: percent(share, 0, " %") for share in shares} == shares
    assert [amount(value) for value in (0.0, 0.01, 1234.56, None)] == ["0.0", "<0.1", "1,234.6", "—"]
    assert [points(change) for change in (0.031, -0.0001, -0.2, NAN)] == ["+3.1", "0.0", "-20.0", "—"]


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import gua_report.render", "pandas|tabulate"),
        ("from gua_report.render import renderer; renderer('text')", r"gua_report\.render\.(pictures|markup)"),
    ],
)
def test_what_is_not_needed_is_not_imported(code: str, unwanted: str) -> None:
    listed = f"import sys; {code}; print(*sys.modules, sep='\\n')"
    modules = call([sys.executable, "-c", listed], check=True).stdout
    assert not re.search(f"^({unwanted})", modules, re.MULTILINE)


def test_wide_names_are_aligned_by_what_a_terminal_shows() -> None:
    names = ["\u5c0f\u660e", "e\u0301va", "\U0001f60a", "bob", "(unattributed)"]
    report = small_report()
    text = text_of(replace(report, identities=report.identities.assign(identity=names)), sections=("identities",))
    rows = [line for line in text.splitlines() if line.strip().startswith(tuple(names))]
    assert {wcswidth(line.rpartition("%")[0]) for line in rows[:5]} == {wcswidth(rows[0].rpartition("%")[0])}
