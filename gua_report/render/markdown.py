"""Markdown for wikis, issues and chat: the same content as the text. Names are escaped."""

import re

from gua_report.console.spelling import to_ascii
from gua_report.render import DEFAULTS, Options
from gua_report.render.blocks import Bar, Block, Cell, Heatmap, Picture, State, Table
from gua_report.render.page import build_page
from gua_report.render.text import ASCII_GLYPHS, GLYPHS, draw_bar, draw_heatmap, lay_out
from gua_report.summary.report import Report

BAR_CELLS, SMALL_BAR_CELLS = 60, 12
ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})  # &#64;: nobody must be notified
SPECIAL = re.compile(r"([\\`*_{}\[\]|~$])")
LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # where GitHub's markdown sees the begin of a link


def render(report: Report, options: Options = DEFAULTS) -> str:
    options = options._replace(color=False)
    page = build_page(report, options)
    parts = [f"# {escape(page.title)}", *map(escape, page.attention + page.header)]
    for section in page.sections:
        parts += [f"## {escape(section.title)}", f"*{escape(section.caption)}*"][: 2 if section.caption else 1]
        parts += [_block(block, options) for block in section.blocks]
    text = "\n\n".join(parts) + "\n"
    return to_ascii(text) if options.ascii else text


def _block(block: Block, options: Options) -> str:
    if isinstance(block, str):
        return escape(block)
    if isinstance(block, Bar):
        return f"`{draw_bar(block, BAR_CELLS, options)}`"
    if isinstance(block, Heatmap):
        return "\n".join(["```text", *draw_heatmap(block, options.ascii), "```"])
    if isinstance(block, Picture):
        return _table(block.table, options) if block.table else ""
    return _table(block, options)


def _table(table: Table, options: Options) -> str:
    rows = [[_cell(cell, options) for cell in row] for row in table.cells()]
    return lay_out(table.columns, rows, headers=[escape(column.title) for column in table.columns], tablefmt="pipe")


def _cell(cell: Cell, options: Options) -> str:
    if isinstance(cell, Bar):
        bar = draw_bar(cell, SMALL_BAR_CELLS, options)
        return f"`{bar}`" if bar else ""
    if isinstance(cell, State):
        return f"`{(ASCII_GLYPHS if options.ascii else GLYPHS)[cell.name]}` {cell.name}"
    return escape(cell)


def escape(text: str) -> str:
    """The text, escaped against markup, HTML, links and the end of a table's cell. It is one line, see `clean`."""
    return LINK.sub(r"\\", SPECIAL.sub(r"\\\1", text.translate(ENTITIES)))
