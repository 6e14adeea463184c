"""HTML: a page that needs nothing else, no script and no network, or the same as a fragment for notebooks."""

from gua_report.render import DEFAULTS, Options
from gua_report.render.blocks import SHOWN_STATES, Bar, Block, Cell, Picture, Section, State, Table
from gua_report.render.markup import FRAGMENT_STYLE, PAGE_STYLE, Markup, element, join, lines, start
from gua_report.render.page import Page, build_page
from gua_report.render.pictures.drawing import draw
from gua_report.render.values import percent
from gua_report.summary.report import Report
from gua_sample.policy import STATES

# What the page gets by with; a server may send the same.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LONG_TEXT = 40  # in characters: a cell of a table that has more is wrapped, or nobody would see the columns beside it


def render(report: Report, options: Options = DEFAULTS) -> str:
    page = build_page(report, options._replace(pictures=True))
    return _document(page.title, _content(page, options))


def render_empty(message: str, options: Options) -> str:
    title = "GPU use"
    return _document(title, lines([element("h1", title), *_links(options), element("p", message, class_="gua-act")]))


def _document(title: str, content: Markup) -> str:
    head = [
        start("meta", charset="utf-8"),
        start("meta", http_equiv="Content-Security-Policy", content=CONTENT_POLICY),
        start("meta", name="viewport", content="width=device-width, initial-scale=1"),
        start("meta", name="robots", content="noindex"),
        element("title", title),
        element("style", Markup(PAGE_STYLE)),
    ]
    body = element("body", element("main", content, class_="gua-report"))
    document = element("html", element("head", lines(head)), Markup("\n"), body, lang="en")
    return _to_ascii(f"<!DOCTYPE html>\n{document}\n")


def fragment(report: Report, options: Options = DEFAULTS) -> str:
    """The content of the page, to be shown in another one, whose font, colour and theme it takes on."""
    content = _content(build_page(report, options._replace(pictures=True)), options)
    return _to_ascii(element("div", element("style", Markup(FRAGMENT_STYLE)), content, class_="gua-report") + "\n")


def _to_ascii(text: str) -> str:
    # A fragment can't declare its encoding, and a file may be served under a wrong one.
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _content(page: Page, options: Options) -> Markup:
    parts = [element("h1", page.title), *_links(options)]
    parts += [element("p", line, class_="gua-act") for line in page.attention]
    parts += [element("p", line) for line in page.header]
    return lines([*parts, *map(_section, page.sections)])


def _links(options: Options) -> list[Markup]:
    links = [
        element("a", name, href=target, aria_current="page" if target == options.link else None)
        for name, target in options.links
    ]
    return [element("nav", *links, aria_label="Other pages")] if links else []


def _section(section: Section) -> Markup:
    caption = [element("p", section.caption, class_="gua-caption")] if section.caption else []
    return element("section", lines([element("h2", section.title), *caption, *map(_block, section.blocks)]))


def _block(block: Block) -> Markup:
    if isinstance(block, str):
        return element("p", block)
    if isinstance(block, Bar):
        return _bar(block)
    if isinstance(block, Picture):
        return _picture(block)
    assert isinstance(block, Table)  # instead of a heatmap there are pictures
    return _table(block)


def _picture(picture: Picture) -> Markup:
    scene = picture.scene
    legend = [element("span", _swatch(kind), name) for kind, name in picture.legend.items()]
    caption = [element("h3", scene.title), element("p", scene.description, class_="gua-caption")]
    caption += [element("p", *legend, class_="gua-legend")] if legend else []
    parts = [element("figcaption", *caption), draw(scene)]
    if picture.table:
        parts.append(element("details", element("summary", "The numbers"), _table(picture.table, scene.title)))
    return element("figure", lines(parts))


def _swatch(kind: str) -> Markup:
    return element("span", class_=f"gua-swatch gua-{kind}")


def _bar(bar: Bar) -> Markup:
    shares = dict(zip(STATES, bar.shares, strict=True))
    parts = [
        element("div", class_=f"gua-{state}", style=f"width: {share:.2%}", title=f"{state} {percent(share)}")
        for state in SHOWN_STATES
        if (share := shares[state]) > 0
    ]
    return element("div", *parts, class_="gua-bar")


def _table(table: Table, label: str = "Table") -> Markup:
    cells = table.cells()
    # A phone does without bars: the numbers beside them tell the same.
    bars = {place for row in cells[:1] for place, cell in enumerate(row) if isinstance(cell, Bar)}
    classes = [
        "gua-wide" if place in bars else "gua-right" if column.right else None
        for place, column in enumerate(table.columns)
    ]
    titles = [
        element("th", column.title, scope="col", class_=class_) if column.title else element("td", class_=class_)
        for column, class_ in zip(table.columns, classes, strict=True)
    ]
    # The page of a year has thousands of rows: HTML can do without the ends of cells, and empty ones need no class.
    rows = [join(start("tr"), *map(_start, classes, map(_cell, row))) for row in cells]
    content = element("table", element("thead", element("tr", *titles)), element("tbody", lines(rows)))
    # It scrolls by itself where it is too wide, so it has to be reachable with the keyboard.
    return element("div", content, class_="gua-scroll", tabindex=0, role="group", aria_label=label)


def _start(class_: str | None, content: str) -> Markup:
    if not isinstance(content, Markup) and len(content) > LONG_TEXT:
        class_ = "gua-long"
    return join(start("td", class_=class_), content) if content else start("td")


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return _bar(cell)
    return join(_swatch(cell.name), cell.name) if isinstance(cell, State) else cell
