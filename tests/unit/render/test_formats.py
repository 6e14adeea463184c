"""Renderers, on one small fixed report.

To rewrite the golden files: GUA_REWRITE_GOLDEN=1 pytest tests/unit/render/test_formats.py
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gua_report.console.spelling import duration
from gua_report.render import FORMATS, OF_FLEETS, OF_PEOPLE, SECTIONS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.blocks import spread
from gua_report.render.words import amount, percent, points
from gua_report.summary.newest_failed import NewestFailed
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT, STATES
from tests.reports import (
    END_MS,
    NAN,
    by_state,
    empty_report,
    group_report,
    grouped_report,
    meant_report,
    own_report,
    reserved_report,
    small_report,
)
from tests.repository import ROOT

GOLDEN = ROOT / "tests" / "golden"


def columns_of(line: str) -> int:
    """How many columns of a terminal the line takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def text_of(report: Report, **options: Any) -> str:
    return renderer("text")(report, Options(**options))


def check_golden(path: Path, text: str) -> None:
    """Check that a text is as reviewed; rewrite the file first, if that is asked for."""
    if os.environ.get("GUA_REWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_bytes().decode()


@pytest.mark.parametrize(
    ("name", "file", "options"),
    [
        ("text", "report.txt", Options()),
        ("text", "report.ascii.txt", Options(ascii=True)),
        ("markdown", "report.md", Options()),
        ("json", "report.json", Options()),
        ("csv", "report.csv", Options(sections=("identities",))),
        ("html", "report.html", Options()),
    ],
)
def test_every_format_is_as_reviewed(name: str, file: str, options: Options) -> None:
    text = renderer(name)(small_report(), options)
    if os.environ.get("GUA_REWRITE_GOLDEN") == "1":
        (GOLDEN / file).write_text(text, encoding="utf-8", newline="")
    assert text == (GOLDEN / file).read_bytes().decode()


@pytest.mark.parametrize("name", FORMATS)
def test_reservations_are_as_reviewed_in_every_format(name: str) -> None:
    path = GOLDEN / f"reservations.{ {'text': 'txt', 'markdown': 'md'}.get(name, name) }"
    text = renderer(name)(reserved_report(), Options(sections=("reservations",)))
    check_golden(path, text)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_meant_is_as_reviewed_in_every_format(name: str) -> None:
    path = GOLDEN / f"meant.{ {'text': 'txt', 'markdown': 'md'}.get(name, name) }"
    sections = ("episodes",) if name == "csv" else ("headline", "capacity", "identities", "episodes")
    text = renderer(name)(meant_report(), Options(sections=sections))
    check_golden(path, text)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["groups", "own", "group"])
def test_groups_and_reports_of_some_people_are_as_reviewed_in_every_format(kind: str, name: str) -> None:
    path = GOLDEN / f"{kind}.{ {'text': 'txt', 'markdown': 'md'}.get(name, name) }"
    report = {"groups": grouped_report, "own": own_report, "group": group_report}[kind]()
    shown = ("now", "identities", "groups", "identity_days", "episodes")
    sections = ("groups",) if kind == "groups" else tuple(one for one in shown if kind == "group" or one != "groups")
    text = renderer(name)(report, Options(sections=sections if name != "csv" else sections[:1]))
    check_golden(path, text)


def test_the_first_screen_tells_how_much_is_idle_held_by_whom_and_since_when() -> None:
    screen = "\n".join(text_of(small_report()).splitlines()[:24])
    assert "30.0% of the GPU time was idle-held" in screen
    assert "Held right now" in screen
    assert re.search(r"0 +=cmd\|x +13 Nov 21:00 +2d 3h +40\.0 +4711 +python3", screen)


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
    assert "job" not in text_of(small_report())
    assert "job" not in text_of(with_jobs(None, None, "9", None, None)).split("§1")[0]  # nobody who holds now is in one


def test_programs_get_the_slurm_job_of_each_episode() -> None:
    report = with_jobs("4711", None, "=9", None, None)
    episodes = json.loads(renderer("json")(report, Options()))["episodes"]
    assert [one["slurm_job"] for one in episodes] == ["4711", None, "=9", None, None]
    rows = list(csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=("episodes",))))))
    assert [row["slurm_job"] for row in rows] == ["4711", "", "'=9", "", ""]


@pytest.mark.parametrize("width", [60, 61, 78, 100, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_longer_than_the_width(width: int, ascii_only: bool) -> None:
    jobs = with_jobs("4711", "s0123456789ABC", None, "9" * 40, None)
    others = (meant_report(), grouped_report(), own_report(), jobs)
    for report in (small_report(), reserved_report(), empty_report(), *others):
        sections = OF_PEOPLE if report.selection else SECTIONS
        lines = text_of(report, sections=sections, width=width, ascii=ascii_only).splitlines()
        assert max(map(columns_of, lines)) <= width


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


def test_sections_that_were_not_asked_for_are_left_out() -> None:
    text = text_of(small_report(), sections=("heatmap",))
    assert "§5" in text
    assert not re.search("§[1-46-7]|Held", text)


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_without_anything_renders(name: str) -> None:
    assert renderer(name)(empty_report(), Options())


def test_sections_with_nothing_to_show_say_so() -> None:
    text = text_of(empty_report())
    nobody = ("Nobody holds a card idle.", "Nobody was seen holding a card idle.", "Nobody was seen using a card.")
    for line in (*nobody, "No gaps."):
        assert line in text


def test_without_a_window_before_there_is_no_change() -> None:
    report = replace(small_report(), before=None, before_observed_share=0.0)
    text = text_of(report)
    assert "no data before" in text
    assert "+3.1" not in text
    assert json.loads(renderer("json")(report, Options()))["headline"]["change"] is None


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
    text = text_of(replace(report, newest_ms=END_MS - 3 * HOUR_MS))
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


def test_json_has_the_documented_keys_and_no_top() -> None:
    report = replace(grouped_report(), reservations=reserved_report().reservations)
    document = json.loads(renderer("json")(report, Options(top=1)))
    assert document["schema_version"] == 1
    assert set(document) >= {
        "host",
        "window",
        "requested_window",
        "sources",
        "policy",
        "warnings",
        "drivers",
        *SECTIONS,
    } - {*OF_FLEETS}
    assert document["window"] == {
        "from": "2026-11-09T00:00:00+01:00",
        "to": "2026-11-16T00:00:00+01:00",
        "timezone": "Europe/Berlin",
    }
    assert set(document["headline"]["states"]) == set(STATES)
    assert document["capacity"]["states"]["unknown"]["energy_kwh"] is None
    assert [gpu["mig_index"] for gpu in document["gpus"]] == [None, 0, 1, None]
    assert len(document["identities"]) == 5
    assert len(document["reservations"]["hours"]) == 4
    assert len(document["heatmap"]) == 7 * 24
    assert document["episodes"][1]["peak_memory_mib"] is None
    assert document["episodes"][0]["start"] == "2026-11-13T21:00:00+01:00"
    assert document["coverage"]["gaps"][0]["kind"] == "sampler not running"


def test_json_has_only_the_sections_asked_for() -> None:
    document = json.loads(renderer("json")(small_report(), Options(sections=("gpus", "coverage"))))
    assert [name for name in SECTIONS if name in document] == ["gpus", "coverage"]


@pytest.mark.parametrize("section", SECTIONS)
def test_no_formula_reaches_a_spreadsheet(section: str) -> None:
    report = reserved_report()
    assert report.reservations is not None
    hostile = ["=1+1", "a; =1", "-1", '";"@x', "\uff1d1"]
    report = replace(
        report,
        identities=report.identities.assign(identity=hostile),
        episodes=report.episodes.assign(identity=hostile, command=hostile),
        gpus=report.gpus.assign(name=hostile[:4]),
        reservations=report.reservations.assign(identity=hostile[:4]),
    )
    for row in csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=(section,))))):
        for cell in (part.lstrip(' "') for value in row.values() for part in value.split(";")):
            assert re.fullmatch(r"-?[\d.]+(e-\d+)?", cell) or not cell.startswith(("=", "+", "-", "@", "\uff1d"))


def test_csv_of_everything_is_the_gpus_and_of_several_sections_an_error() -> None:
    rows = list(csv.DictReader(io.StringIO(renderer("csv")(small_report(), Options()))))
    assert [row["uuid"] for row in rows] == ["GPU-a", "MIG-b", "MIG-c", "unknown:index-2"]
    with pytest.raises(UsageError, match="exactly one --section, one of headline, now, timeline"):
        renderer("csv")(small_report(), Options(sections=("gpus", "episodes")))


def test_markdown_and_html_escape_what_users_chose() -> None:
    html = renderer("html")(reserved_report(), Options())
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    markdown = renderer("markdown")(reserved_report(), Options())
    assert "<script" not in markdown
    assert r"a\|b\*c\_\`d\`" in markdown
    for text in (html, markdown):
        assert "\x1b" not in text


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


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_said_to_act_on_unless_asked_for(name: str) -> None:
    text = renderer(name)(small_report(), Options())
    assert "act on" not in text
    assert "attention" not in text


@settings(max_examples=60, deadline=None)
@example("ada", ";=", 78, False)
@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from([60, 78, 120]), st.booleans())
def test_no_name_can_steer_a_terminal_or_break_the_layout(who: str, command: str, width: int, ascii_only: bool) -> None:
    report = small_report()
    report = replace(
        report,
        host=who,
        identities=report.identities.assign(identity=who),
        episodes=report.episodes.assign(identity=who, command=command),
        gpus=report.gpus.assign(name=command),
        warnings=[command],
    )
    attention = tuple(reasons(report, HOUR_MS))
    assert len(attention) == 3
    text = text_of(report, width=width, ascii=ascii_only, attention=attention)
    assert max(map(columns_of, text.split("\n"))) <= width
    rendered = {name: renderer(name)(report, Options(attention=attention)) for name in ("markdown", "json", "html")}
    for shown in (text, *rendered.values()):
        assert shown.replace("\n", "").isprintable()
    row = next(iter(csv.DictReader(io.StringIO(renderer("csv")(report, Options(sections=("episodes",)))))))
    told = json.loads(rendered["json"])["episodes"][0]["command"]
    # In CSV a quote stands before what a spreadsheet would run, also after a semicolon, where some spreadsheets split.
    unquoted = [re.sub("(^|;)'", r"\1", name) for name in (row["command"], told)]
    assert unquoted[0] == unquoted[1]


@given(st.lists(st.floats(0, 1000), min_size=4, max_size=4).filter(any), st.integers(1, 200))
def test_a_bar_is_always_full(parts: list[float], cells: int) -> None:
    assert sum(spread(tuple(part / sum(parts) for part in parts), cells)) == cells


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (720, "12m"),
        (3600, "1h"),
        (7500, "2h 05m"),
        (86_400, "1d"),
        (97_200, "1d 3h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_neither_hide_a_little_nor_invent_a_zero() -> None:
    assert [percent(share) for share in (0.0, 0.0001, 0.123, 0.9999, 1.0, NAN)] == [
        "0.0%",
        "<0.1%",
        "12.3%",
        ">99.9%",
        "100.0%",
        "—",
    ]
    assert [amount(value) for value in (0.0, 0.01, 1234.56, None)] == ["0.0", "<0.1", "1,234.6", "—"]
    assert [points(change) for change in (0.031, -0.0001, -0.2, NAN)] == ["+3.1", "0.0", "-20.0", "—"]


def test_naming_the_sections_does_not_import_pandas() -> None:
    code = "import sys, gua_report.render; sys.exit('pandas' in sys.modules or 'tabulate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
