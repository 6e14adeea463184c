"""The pictures of the page show the numbers of the JSON, read back from the SVG; and nobody's name can break out."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gua_report.commands import demo
from gua_report.render import Options, renderer
from gua_report.render.pictures.drawing import GAP_PX, LABEL_PX, NUMBER_PX
from gua_report.summary.report import Report
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.lab import HOUR_MS, MINUTE_MS, MONDAY_MS, Job, held, minutes, report_of, series, write
from tests.reports import empty_report, reserved_report
from tests.svg import Drawn, Page

Week = tuple[dict[str, Any], dict[str, Drawn]]
TITLES = {
    "timeline": "Who held which card when",
    "trend": "GPU-hours by state, day by day",
    "reclaim": "GPU-hours that a rule would have freed, by how long it waits",
    "people": "GPU-hours of each, on one scale",
    "days": "Idle-held GPU-hours of each, day by day",
    "work": "Share of GPU time at work, by hour of the week",
    "free": "GPUs free, by hour of the week",
}


def draw(report: Report, **options: Any) -> dict[str, Drawn]:
    page = Page(renderer("html")(report, Options(**options)))
    return {next(name for name, title in TITLES.items() if one.title == title): one for one in page.pictures}


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    """The JSON and the pictures of a week that begins within an hour."""
    folder = tmp_path_factory.mktemp("week")
    demo.simulate(str(folder), 0, EXAMPLE_END_MS - 6 * DAY_MS, EXAMPLE_END_MS)
    report = report_of(folder, EXAMPLE_END_MS - 5 * DAY_MS + 1_000_000, EXAMPLE_END_MS, "Asia/Kolkata")
    return json.loads(renderer("json")(report, Options())), draw(report, top=16)


def band(row: int, bar_px: int, numbers_px: int = 0) -> tuple[float, float]:
    top = row * (LABEL_PX + bar_px + numbers_px + GAP_PX) + LABEL_PX
    return top - 0.01, top + bar_px


def test_every_picture_is_there_with_its_title_and_description(week: Week) -> None:
    _, pictures = week
    assert set(pictures) == set(TITLES)
    assert all(one.description and one.told for one in pictures.values())


def test_cards_over_time_are_those_of_the_json(week: Week) -> None:
    document, pictures = week
    expected: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    for cell in document["timeline"]["cells"]:
        for state in STATES:
            expected[cell["gpu_uuid"]][state] += cell[f"{state.replace('-', '_')}_seconds"]
    for row, seconds in enumerate(expected.values()):
        found = pictures["timeline"].sums(*band(row, 18))
        for state in STATES:
            # Widths are in hours, heights in parts of 18 px; a box is rounded to a hundredth.
            assert found.get(state, 0.0) / 18 == pytest.approx(seconds[state] / 3600, abs=0.15), (row, state)


def test_everyone_on_a_card_is_told(week: Week) -> None:
    document, pictures = week
    told = " ".join(pictures["timeline"].told)
    holders = {holder["identity"] for cell in document["timeline"]["cells"] for holder in cell["holders"]}
    names = {row["identity"]: row["container"] or row["identity"] for row in document["identities"]}
    everyone = [names[holder] for holder in holders]
    assert len(everyone) > 5
    assert all(name in told for name in everyone)


def test_people_are_those_of_the_json_on_one_scale(week: Week) -> None:
    document, pictures = week
    for row, person in enumerate(document["identities"][:16]):
        found = pictures["people"].sums(*band(row, 18))
        for state in ("active", "idle-held"):
            hours = person[f"{state.replace('-', '_')}_gpu_hours"]
            assert found.get(state, 0.0) / 18 == pytest.approx(hours, abs=0.02)


def test_the_trend_is_that_of_the_json(week: Week) -> None:
    document, pictures = week
    bars = pictures["trend"].boxes["idle-held"]
    assert len(bars) == len(document["trend"]) == 6
    # The tallest bar is as tall as the highest rate, and all others are to scale.
    rates = []
    for entry in document["trend"]:
        seconds = pd.Timestamp(entry["end"]) - pd.Timestamp(entry["start"])
        rates.append(entry["idle_held_gpu_hours"] / (seconds.total_seconds() / 3600))
    scale = max(bar.height for bar in bars) / max(rates)
    assert [bar.height / scale for bar in bars] == pytest.approx(rates, rel=0.01)
    assert len({round(bar.y + bar.height, 1) for bar in bars}) == 1


def test_days_of_people_are_those_of_the_json(week: Week) -> None:
    document, pictures = week
    full = max(entry["idle_held_gpu_hours"] for entry in document["identity_days"])
    first = document["identities"][0]["identity"]
    hours = [one["idle_held_gpu_hours"] for one in document["identity_days"] if one["identity"] == first]
    top, bottom = band(0, 24, NUMBER_PX)
    boxes = [box for box in pictures["days"].boxes["idle-held"] if top <= box.y < bottom]
    assert [box.height / 24 * full for box in boxes] == pytest.approx(
        [one for one in hours if one > 0.01], abs=0.01 * full
    )


@pytest.mark.parametrize(
    ("name", "key", "kind", "factor"),
    [("work", "active_share", "active", 100), ("free", "free_gpus", "free", 1)],
)
def test_hours_of_the_week_and_the_numbers_below_their_bars_are_those_of_the_json(
    week: Week, name: str, key: str, kind: str, factor: float
) -> None:
    document, pictures = week
    values = {(one["weekday"], one["hour"]): one[key] for one in document["heatmap"]}
    full = 1.0 if name == "work" else max(value for value in values.values() if value is not None)
    drawn = pictures[name].boxes
    for (weekday, hour), value in values.items():
        top, bottom = band(weekday, 24, NUMBER_PX)
        of_hour = {
            state: [box for box in boxes if top <= box.y < bottom and abs(box.x - hour - 0.06) < 0.01]
            for state, boxes in drawn.items()
        }
        if value is None:
            assert len(of_hour["unobserved"]) == 1, (weekday, hour)
        elif value / full > 0.01:
            (box,) = of_hour[kind]
            assert box.height / 24 * full == pytest.approx(value, abs=0.01 * full)
    written = {}
    for (x, y), text in pictures[name].numbers.items():
        row = next(day for day in range(7) if y - NUMBER_PX < band(day, 24, NUMBER_PX)[1] <= y)
        written[row, int(x * 24)] = float(text.replace("<0.1", "0"))
    known = {place: factor * value for place, value in values.items() if value is not None}
    assert written.keys() == known.keys()
    for place, number in written.items():
        assert number == pytest.approx(known[place], abs=0.051 if known[place] < 9.9 else 0.5)


def test_the_numbers_below_the_bars_of_days_waits_and_people_are_those_of_the_json(
    week: Week,
) -> None:
    document, pictures = week
    shares = []
    for one in document["trend"]:
        total = sum(one[f"{state.replace('-', '_')}_gpu_hours"] for state in STATES)
        shares.append(f"{one['idle_held_gpu_hours'] / total:.0%}")
    assert [*pictures["trend"].numbers.values()] == shares
    freed = [one["freed_gpu_hours"] for one in document["capacity"]["reclaim_curve"]]
    assert [float(text) for text in sorted_numbers(pictures["reclaim"])] == pytest.approx(freed, abs=0.51)
    first = document["identities"][0]["identity"]
    hours = [one["idle_held_gpu_hours"] for one in document["identity_days"] if one["identity"] == first]
    row = [text for (_, y), text in sorted(pictures["days"].numbers.items()) if y < band(0, 24)[1] + NUMBER_PX]
    assert [float(text) for text in row] == pytest.approx([one for one in hours if one], abs=0.51)


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        ("timeline", "gpu when idle-held active who"),
        ("trend", "hour idle-held active idle-held share"),
        ("identity_days", "day ollama kim?"),
    ],
)
def test_where_a_text_is_too_narrow_for_all_numbers_of_a_picture_whole_columns_are_left_out(
    tmp_path: Path, section: str, shown: str
) -> None:
    demo.simulate(str(tmp_path), 0, EXAMPLE_END_MS - DAY_MS, EXAMPLE_END_MS)
    report = report_of(tmp_path, EXAMPLE_END_MS - DAY_MS, EXAMPLE_END_MS)
    _, table = renderer("text")(report, Options(sections=(section,))).split("those of UTC.\n")
    header, *rows = table.splitlines()
    assert " ".join(header.split()).startswith(shown)
    assert not [row for row in rows if re.search(r"\d\.?…| …", row)]


def sorted_numbers(picture: Drawn) -> list[str]:
    return [text for _, text in sorted(picture.numbers.items())]


@pytest.mark.parametrize(
    ("days", "unit"), [(1, "hour"), (7, "day"), (45, "day"), (46, "week"), (300, "week"), (365, "month")]
)
def test_the_trend_has_longer_bars_as_the_window_grows(tmp_path: Path, days: int, unit: str) -> None:
    write(tmp_path, series(MONDAY_MS, 2, held()))
    page = Page(renderer("html")(report_of(tmp_path, MONDAY_MS, MONDAY_MS + days * DAY_MS), Options()))
    assert page.pictures[1].title == f"GPU-hours by state, {unit} by {unit}"


def test_a_page_needs_no_script_and_no_network() -> None:
    page = Page(renderer("html")(reserved_report(), Options(links=(("week", "index.html"),))))
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    references = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href")]
    assert references == ["index.html"]
    meta = {
        attributes.get("name") or attributes.get("http-equiv"): attributes.get("content")
        for tag, attributes in page.tags
        if tag == "meta"
    }
    assert meta["robots"] == "noindex"
    assert meta["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_an_empty_report_has_pictures_of_nothing_observed() -> None:
    pictures = draw(empty_report())
    assert set(pictures) == {"trend"}
    assert set(pictures["trend"].boxes) == {"unobserved", "grid"}


def test_names_that_are_spelled_alike_do_not_hide_each_other(tmp_path: Path) -> None:
    ticks = []
    for name, start, end in (("\x01", 0, 18), ("\\x01", 18, 36), ("carol", 36, 60)):
        ticks += minutes(start, end, held(Job(100 + start, name)), interval_ms=MINUTE_MS)
    write(tmp_path, ticks)
    texts = draw(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS + 2 * DAY_MS))["timeline"].told
    assert "; \\x01, carol" in texts[0]
