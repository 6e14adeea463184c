"""The page in a real browser: on a phone and on a wall, by day and by night, on paper, and for those who can't see."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gua_report.commands import demo
from gua_report.commands.page import main as gua_page
from gua_report.render import Options, renderer
from gua_report.render.attention import reasons
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.browser import PROGRAMS, Browser, running
from tests.lab import report_of
from tests.odd_reports import ODD_REPORTS
from tests.reports import empty_report, reserved_report

pytestmark = [
    pytest.mark.needs(*PROGRAMS),
    pytest.mark.filterwarnings("default"),  # selenium has its own
]
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PAGES = ("week", "reserved", "empty", *ODD_REPORTS)
WIDTHS, THEMES = (360, 800, 1600), ("dark", "light", "dark")
ROOT = "document.documentElement"
# Pairs of texts of one picture that lie over each other, as far as they are seen: a long label is cut by the SVG around
# it. Names over bars are not among them.
OVERLAPS = """[...document.querySelectorAll('.gua-picture')].flatMap(picture => {
    const {left: start, width} = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll('text:not(.gua-name)')].map(text => {
        const {left, right, top, bottom} = text.getBoundingClientRect();
        const cut = start + width * parseFloat(text.closest('svg').getAttribute('width')) / 100;
        return {left, right: Math.min(right, Math.max(cut, left)), top, bottom, words: text.textContent};
    }).filter(text => text.right > text.left);
    const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return texts.flatMap((a, n) => texts.slice(n + 1).filter(b => over(a, b)).map(b => [a.words, b.words]));
})"""


class Handler(SimpleHTTPRequestHandler):
    """Serves the pages as a careful administrator does, and remembers what was asked for."""

    asked: list[str] = []  # noqa: RUF012 - one for all

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *arguments: object) -> None:
        self.asked.append(self.path)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, data = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("data")
    demo.simulate(str(data), 0, EXAMPLE_END_MS - 8 * DAY_MS, EXAMPLE_END_MS)
    week = report_of(data, EXAMPLE_END_MS - 7 * DAY_MS, EXAMPLE_END_MS, "Europe/Berlin")
    odd = [make(tmp_path_factory.mktemp(name)) for name, make in ODD_REPORTS.items()]
    for name, report in zip(PAGES, (week, reserved_report(), empty_report(), *odd), strict=True):
        links = tuple((link, f"{link}.html") for link in PAGES)
        attention = tuple(reasons(report, HOUR_MS))
        html = renderer("html")(report, Options(attention=attention, links=links, link=f"{name}.html"))
        (folder / f"{name}.html").write_text(html)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    [
        *(("week", width, theme) for width in WIDTHS for theme in ("light", "dark")),
        *(("reserved", 360, "dark"), ("empty", 360, "light"), ("empty", 1600, "dark")),
        *((name, width, theme) for name in ODD_REPORTS for width, theme in zip(WIDTHS, THEMES, strict=True)),
    ],
)
def test_a_page_fits_asks_for_nothing_and_can_be_used_by_all(
    browser: Browser, site: str, name: str, width: int, theme: str, tmp_path: Path
) -> None:
    Handler.asked.clear()
    browser.open(f"{site}/{name}.html", width, theme)
    assert browser.ask(f"[{ROOT}.clientWidth, {ROOT}.scrollWidth]") == [width, width]
    assert browser.ask(OVERLAPS) == []
    sizes = browser.ask(
        "[...document.querySelectorAll('.gua-picture')].map(one => {"
        " const box = one.getBoundingClientRect();"
        " return [one.querySelector('title').textContent, box.left, box.right, box.height] })"
    )
    assert len(sizes) == {"empty": 1, "crowd": 6 + 8}.get(name, 7)
    for title, left, right, height in sizes:
        assert title
        assert 0 <= left < right <= width
        assert right - left > 0.8 * min(width, 1200)
        assert height > 50
    browser.screenshot(tmp_path / "page.png")
    if name != "crowd" or width == 360:  # it takes a while
        assert browser.violations() == []
    assert browser.messages() == []
    assert Handler.asked == [f"/{name}.html"]


def test_a_fold_opens_without_a_mouse_and_nothing_spills_over(browser: Browser, site: str) -> None:
    browser.open(f"{site}/week.html", 360)
    for number in range(6):
        browser.ask(f"document.querySelectorAll('summary')[{number}].focus()")
        browser.press("Enter")
    assert browser.ask(f"{ROOT}.scrollWidth") == 360
    assert browser.ask("document.querySelectorAll('details[open] table').length") == 6
    # A table that is too wide can be reached and moved.
    browser.ask("document.querySelector('details .gua-scroll').focus()")
    for _ in range(5):
        browser.press("ArrowRight")
    browser.wait_for("document.activeElement.scrollLeft > 0")
    assert browser.violations() == []


def test_dark_and_light_differ_by_the_readers_setting(browser: Browser, site: str) -> None:
    grounds = []
    for theme in ("light", "dark"):
        browser.open(f"{site}/week.html", 800, theme)
        grounds.append(browser.ask("getComputedStyle(document.body).color"))
    assert grounds == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


def test_the_page_prints_on_a4(browser: Browser, site: str) -> None:
    browser.open(f"{site}/week.html", 800)
    pdf = browser.pdf()
    boxes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([^\]]*)\]", pdf)}
    assert len(boxes) == 1
    _, _, width, height = boxes.pop()
    assert (round(width), round(height)) == (595, 842)
    assert 2 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 6


def test_paper_is_not_cut_through_a_picture_or_below_a_heading(browser: Browser, site: str) -> None:
    browser.open(f"{site}/week.html", 800, media="print")

    def styles(name: str, *elements: str) -> set[str]:
        found = (browser.ask(f"getComputedStyle(document.querySelector('{one}')).{name}") for one in elements)
        return set(found)

    assert styles("breakInside", "figure", "figcaption p", ".gua-scroll") == {"avoid"}
    assert styles("breakAfter", "h2", "h2 + p", "figcaption") == {"avoid"}
    assert styles("display", "details") == {"none"}
    assert styles("printColorAdjust", "body") == {"exact"}


def test_pages_of_a_set_lead_to_each_other(browser: Browser, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "pages"
    folder.mkdir()
    end_ms = browser.ask("Date.now()")
    demo.simulate(str(data), 0, end_ms - DAY_MS, end_ms)
    assert gua_page([str(folder), "--names", "none", "--data-dir", str(data), "--config", "/dev/null"]) == 0
    browser.open(f"file://{folder}/index.html", 800)
    for name in ("month", "year", "week"):
        browser.ask(f"[...document.querySelectorAll('nav a')].find(one => one.textContent == '{name}').click()")
        assert browser.ask("document.querySelector('nav a[aria-current]').textContent") == name
        assert browser.ask("document.querySelectorAll('.gua-picture').length") == 7
    assert browser.messages() == []
