"""The page around its pictures: what comes first, what it needs, and whether it makes sense of odd reports."""

import re
from dataclasses import replace

import pytest

from gua_report.render import Options, renderer
from gua_report.render.attention import reasons
from gua_report.render.html import fragment
from gua_report.render.markup import PAGE_STYLE
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.policy import ACTIVE, TRULY_IDLE
from tests.odd_reports import CARDS, ODD_REPORTS, PEOPLE
from tests.reports import empty_report, reserved_report, small_report
from tests.svg import Page


def html_of(report: Report) -> str:
    return renderer("html")(report, Options(attention=tuple(reasons(report, HOUR_MS))))


@pytest.fixture(scope="module")
def odd_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pages = {name: html_of(make(tmp_path_factory.mktemp(name))) for name, make in ODD_REPORTS.items()}
    return {"small": html_of(small_report()), **pages}


def titles(html: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", html)


@pytest.mark.parametrize(
    ("before", "said"), [(0.345, "fell by 4.5"), (0.25, "rose by 5.0"), (0.3004, "did not change")]
)
def test_it_is_said_whether_it_got_better(before: float, said: str) -> None:
    report = small_report()
    assert report.before is not None
    changed = replace(report, before=report.before.assign(share=[0.4, before, 0.2, 0.1]))
    for text in (html_of(changed), renderer("text")(changed, Options(width=200))):
        assert f"500.0 GPU-hours were observed; idle-held {said} against the 7d before" in text


@pytest.mark.parametrize("report", [small_report(), reserved_report(), empty_report()], ids=["small", "more", "empty"])
def test_text_and_page_share_their_order(report: Report) -> None:
    text = [line for line in renderer("text")(report, Options(width=200)).splitlines() if re.match("§|Held", line)]
    pictures = ("Cards over time", "Trend", "Person by day")
    page = [title.replace("&#167;", "§") for title in titles(html_of(report)) if title not in pictures]
    assert page == text


def luminance(color: tuple[float, ...]) -> float:
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


@pytest.mark.parametrize("ground", [255, 18], ids=["light", "dark"])
def test_what_has_no_pattern_differs_in_lightness(ground: int) -> None:
    found = {}
    for state in (ACTIVE, TRULY_IDLE):
        (color,) = re.findall(rf"\.gua-{state} {{ background: (.*?);", PAGE_STYLE)
        if color.startswith("#"):
            found[state] = luminance(tuple(int(color[n : n + 2], 16) for n in (1, 3, 5)))
        else:
            *parts, opacity = map(float, re.findall(r"[\d.]+", color))
            found[state] = luminance(tuple(opacity * part + (1 - opacity) * ground for part in parts))
    assert (max(found.values()) + 0.05) / (min(found.values()) + 0.05) >= 3


def test_a_notebook_shows_the_pictures_too() -> None:
    page = Page(fragment(small_report()))
    assert len(page.pictures) == 7
    assert not {"html", "head", "script"} & {tag for tag, _ in page.tags}


def without_parts(text: str) -> list[str]:
    """The numbers of what hovering tells."""
    return re.findall(r"<?\d[\d,]*\.\d%?", text)


@pytest.mark.parametrize("name", ["small", *ODD_REPORTS])
def test_hovering_tells_nothing_that_the_tables_do_not(name: str, odd_pages: dict[str, str]) -> None:
    for section in odd_pages[name].split("<section>")[1:]:
        page = Page(f"<div>{section.split('</section>')[0]}</div>")
        cells = set(page.cells)
        for told in (text for one in page.pictures for text in one.told):
            where, _, said = told.partition(": ")
            assert set(without_parts(said)) <= cells, told
            whole = {*cells, *page.content}  # titles of columns, too
            label, _, when = where.partition(", ")
            assert where in whole or {label.removeprefix("GPU "), when} <= whole, told
            assert said.partition("; ")[2] in {*whole, ""}, told


@pytest.mark.parametrize("name", ODD_REPORTS)
def test_an_odd_report_has_every_picture_and_no_element_twice(name: str, odd_pages: dict[str, str]) -> None:
    html = odd_pages[name]
    page = Page(html)
    figures = html.split("<figure>")[1:]
    assert len(figures) == 7
    assert all(one.title and one.description and one.told for one in page.pictures)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"script", "b", "img"}.isdisjoint(tag for tag, _ in page.tags)
    assert "nan" not in re.sub("unan", "", html.lower())


def test_one_tick_is_not_taken_for_a_week(odd_pages: dict[str, str]) -> None:
    page = Page(odd_pages["one_tick"])
    timeline, *_, free = page.pictures
    assert "100.0% idle-held of <0.1 h seen" in timeline.texts
    assert list(free.numbers.values()) == ["0"]  # nothing is known of the other hours
    assert len([text for text in free.told if text.endswith("not known")]) == 167
    assert not [text for text in free.texts if "on average" in text]


def test_128_cards_are_drawn_in_parts_and_400_people_counted(odd_pages: dict[str, str]) -> None:
    html = odd_pages["crowd"]
    parts = [one for one in Page(html).pictures if one.title.startswith("Who held which card when")]
    assert [one.title for one in parts] == [f"Who held which card when, {number} of 8" for number in range(1, 9)]
    assert sum(text.startswith("GPU ") for one in parts for text in one.texts) == CARDS
    assert all("Wed 18" in one.texts for one in parts)  # every part has its axis
    assert f"and {PEOPLE - 10} more" in html
    people = next(one for one in Page(html).pictures if "on one scale" in one.title)
    assert sum(text.startswith("person") for text in people.texts) == 10


def test_a_year_of_gaps_is_hatched_and_what_was_seen_is_said(odd_pages: dict[str, str]) -> None:
    pictures = Page(odd_pages["year_of_gaps"]).pictures
    timeline, trend, *_ = pictures
    assert trend.title == "GPU-hours by state, month by month"
    assert "Idle-held GPU-hours of each, week by week" in [one.title for one in pictures]
    assert timeline.sums()["unobserved"] / 18 == pytest.approx(2 * 365, abs=2)
    assert "100.0% idle-held of 18.0 h seen" in timeline.texts
    assert set(trend.numbers.values()) == {"50%"}


def test_names_without_an_end_are_cut_before_what_is_beside_them(odd_pages: dict[str, str]) -> None:
    html = odd_pages["bad_names"]
    assert re.search(r'<svg y="\d+" width="64%" height="17"><text x="0" y="12">!x{299}</text></svg>', html)
    assert re.search('<td class="gua-long">!x{299}<', html)


def test_what_people_and_cards_cost_is_said_where_there_is_a_price(odd_pages: dict[str, str]) -> None:
    html = odd_pages["bad_names"]
    assert "(1,440.0 EUR)" in titles(html)[1]  # 72 hours of eight people at 2.5
    for number in (3, 4):
        section = html.split(f"<h2>&#167;{number}")[1].split("<h2>")[0]
        assert Page(f"<section><h2>{section}").cells.count("180.0") == 8
