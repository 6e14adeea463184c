"""Plain text for terminals and mail: no line is longer than the width."""

from typing import Any

from tabulate import tabulate

from gua_report.console.fitting import SEPARATOR, columns, fit, wrap
from gua_report.console.spelling import WEEKDAYS, to_ascii
from gua_report.console.terminal import STATE_COLORS as COLORS
from gua_report.console.terminal import paint
from gua_report.render import DEFAULTS, Options
from gua_report.render.blocks import (
    SHOWN_STATES,
    Bar,
    Block,
    Cell,
    Column,
    Heatmap,
    Picture,
    Section,
    State,
    Table,
    shade,
    spread,
)
from gua_report.render.page import build_page
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

GLYPHS = {ACTIVE: "█", IDLE_HELD: "▓", TRULY_IDLE: "░", UNKNOWN: "·"}
ASCII_GLYPHS = {ACTIVE: "#", IDLE_HELD: "=", TRULY_IDLE: ".", UNKNOWN: "?"}
SHADES, ASCII_SHADES = " ░▒▓█", " .:=#"
BOLD, DIM, WARNING = "1", "2", "33"  # the last one is the colour of idle-held
INDENT = "  "


def render(report: Report, options: Options = DEFAULTS) -> str:
    page = build_page(report, options)
    first, *others = page.header
    top = _paragraph(f"{page.title}: {first}", options, BOLD)
    top += [line for paragraph in others for line in _paragraph(paragraph, options)]
    parts = [*(_paragraph(paragraph, options, WARNING) for paragraph in page.attention), top]
    parts += [_section(section, options) for section in page.sections]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _section(section: Section, options: Options) -> list[str]:
    inner = options._replace(width=options.width - len(INDENT))
    lines = _paragraph(section.caption, inner, DIM)
    previous: Block = ""
    for block in section.blocks:
        if isinstance(previous, Table) and isinstance(block, Table):
            lines.append("")
        lines += _draw(block, inner)
        previous = block
    return _paragraph(section.title, options, BOLD) + [f"{INDENT}{line}".rstrip() for line in lines]


def _draw(block: Block, options: Options) -> list[str]:
    if isinstance(block, str):
        return _paragraph(block, options)
    if isinstance(block, Bar):
        return [draw_bar(block, options.width, options)]
    if isinstance(block, Picture):
        return _draw(block.table, options) if block.table else []
    lines = draw_heatmap(block, options.ascii) if isinstance(block, Heatmap) else _draw_table(block, options)
    return [fit(line, options.width, options.ascii) for line in lines]


def draw_bar(bar: Bar, cells: int, options: Options) -> str:
    glyphs = ASCII_GLYPHS if options.ascii else GLYPHS
    sizes = dict(zip(STATES, spread(bar.shares, cells), strict=True))
    parts = [(state, glyphs[state] * sizes[state]) for state in SHOWN_STATES]
    return "".join(paint(part, COLORS[state], options.color) for state, part in parts)


def draw_heatmap(heatmap: Heatmap, ascii_only: bool) -> list[str]:
    """The heatmap's lines. Two characters an hour make a cell about as wide as it is high."""
    shades, unknown = (ASCII_SHADES, "?") if ascii_only else (SHADES, "·")
    lines = ["     " + "".join(f"{hour:02}    " for hour in range(0, 24, 3)).rstrip()]
    for day, shares in zip(WEEKDAYS, heatmap.shares, strict=True):
        cells = (unknown if share is None else shades[shade(share, len(shades))] for share in shares)
        lines.append(f"{day}  {''.join(cell * 2 for cell in cells)}".rstrip())
    steps = [f"{glyph * 2} {100 * step // len(shades)}%+" for step, glyph in enumerate(shades) if step]
    legend = [f"blank <{100 // len(shades)}%", *steps]
    if any(share is None for shares in heatmap.shares for share in shares):
        legend.append(f"{unknown * 2} unknown")
    return [*lines, "  ".join(legend)]


def _draw_table(table: Table, options: Options) -> list[str]:
    titles = [_plain(column.title, options) for column in table.columns]
    cells = [titles, *([_cell(cell, options) for cell in row] for row in table.cells())]
    sizes = _sizes(table, cells, options.width)
    fitted = [
        [fit(row[place], size, options.ascii, table.columns[place].keep_end) for place, size in sizes.items()]
        for row in cells
    ]
    text = lay_out([table.columns[place] for place in sizes], fitted, tablefmt="plain")
    first, *others = [line.rstrip() for line in text.split("\n")]
    return [paint(first, DIM, options.color), *others]


def lay_out(columns: list[Column], rows: list[list[str]], **options: Any) -> str:
    sides = ["right" if column.right else "left" for column in columns]
    return tabulate(rows, disable_numparse=True, colalign=sides, **options)


def _sizes(table: Table, cells: list[list[str]], width: int) -> dict[int, int]:
    natural = {position: max(columns(row[position]) for row in cells) for position in range(len(table.columns))}
    while True:
        optional = [position for position in natural if table.columns[position].may_go]
        sizes, excess = dict(natural), sum(natural.values()) + len(SEPARATOR) * (len(natural) - 1) - width
        for position in reversed(natural):
            column = table.columns[position]
            if column.least and excess > 0:
                # As long as a column may go, no other one gets narrower than is good.
                least = max(column.least, column.good) if optional else column.least
                cut = min(excess, max(sizes[position] - least, 0))
                sizes[position] -= cut
                excess -= cut
        if not optional or excess <= 0:
            return sizes
        del natural[optional[-1]]


def _cell(cell: Cell, options: Options) -> str:
    if isinstance(cell, Bar):
        return draw_bar(cell, min(max(8, (options.width - 62) // 2), 24), options)
    if isinstance(cell, State):
        glyph = (ASCII_GLYPHS if options.ascii else GLYPHS)[cell.name]
        return f"{paint(glyph, COLORS[cell.name], options.color)} {cell.name}"
    return _plain(cell, options)


def _paragraph(text: str, options: Options, code: str = "") -> list[str]:
    return [paint(line, code, options.color) for line in wrap(_plain(text, options), options.width)]


def _plain(text: str, options: Options) -> str:
    return to_ascii(text) if options.ascii else text
