"""Plain text for terminals and mail: no line is longer than the width, and tables are drawn by tabulate."""

from __future__ import annotations

import re
import textwrap
import unicodedata

from tabulate import tabulate

from gua_report.console.spelling import to_ascii
from gua_report.console.terminal import STATE_COLORS as COLORS
from gua_report.render import DEFAULTS, Options
from gua_report.render.blocks import Bar, Block, Cell, Heatmap, Section, State, Table, shade, spread
from gua_report.render.sections import attention, build_sections, header, title
from gua_report.render.words import WEEKDAYS
from gua_report.summary.build import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

GLYPHS = {ACTIVE: "█", IDLE_HELD: "▓", TRULY_IDLE: "░", UNKNOWN: "·"}
ASCII_GLYPHS = {ACTIVE: "#", IDLE_HELD: "=", TRULY_IDLE: ".", UNKNOWN: "?"}
SHADES, ASCII_SHADES = " ░▒▓█", " .:=#"
BOLD, DIM = "1", "2"
ANSI = re.compile(r"\x1b\[\d*m")
INDENT = "  "
SEPARATOR = 2  # blanks between two columns
# Follows a character that takes two columns of a terminal while lengths are computed. No text contains it, as it is
# not printable.
FILLER = "\0"


def render(report: Report, options: Options = DEFAULTS) -> str:
    first, *others = header(report)
    top = [paint(line, BOLD, options) for line in _wrap(f"{title(report)}: {first}", options)]
    top += [line for paragraph in others for line in _wrap(paragraph, options)]
    parts = [*(_wrap(paragraph, options) for paragraph in attention(options)), top]
    parts += [_section(section, options) for section in build_sections(report, options)]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _section(section: Section, options: Options) -> list[str]:
    inner = options._replace(width=options.width - len(INDENT))
    lines = [paint(line, DIM, options) for line in _wrap(section.caption, inner)]
    previous: Block = ""
    for block in section.blocks:
        if isinstance(previous, Table) and isinstance(block, Table):
            lines.append("")
        lines += draw(block, inner)
        previous = block
    titles = [paint(line, BOLD, options) for line in _wrap(section.title, options)]
    return titles + [f"{INDENT}{line}".rstrip() for line in lines]


def draw(block: Block, options: Options) -> list[str]:
    """The lines of a block, none longer than the width."""
    if isinstance(block, str):
        return _wrap(block, options)
    if isinstance(block, Bar):
        return [draw_bar(block, options.width, options)]
    if isinstance(block, Heatmap):
        return [_clip(line, options) for line in draw_heatmap(block, options.ascii)]
    return draw_table(block, options)


def draw_bar(bar: Bar, cells: int, options: Options) -> str:
    glyphs = ASCII_GLYPHS if options.ascii else GLYPHS
    parts = zip(STATES, spread(bar.shares, cells), strict=True)
    return "".join(paint(glyphs[state] * size, COLORS[state], options) for state, size in parts if size)


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


def draw_table(table: Table, options: Options) -> list[str]:
    titles = [_fit(column.title, options) for column in table.columns]
    # The titles are an ordinary row because tabulate would pad its own headers.
    cells = [titles, *([_cell(cell, options) for cell in row] for row in table.rows)]
    chosen = _choose(table, cells, options)
    text = tabulate(
        [
            [_shorten(row[position], size, options, table.columns[position].keep_end) for position, size in chosen]
            for row in cells
        ],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if table.columns[position].right else "left" for position, _ in chosen],
    )
    first, *others = [_clip(line.rstrip(), options) for line in text.split("\n")]
    return [paint(first, DIM, options), *others]


def _choose(table: Table, cells: list[list[str]], options: Options) -> list[tuple[int, int]]:
    """The positions and widths of the visible columns: columns are shortened, the last one first, then left out."""
    shown = list(range(len(table.columns)))
    natural = [max(len(ANSI.sub("", row[position])) for row in cells) for position in shown]
    while True:
        sizes = list(natural)
        excess = sum(sizes[position] for position in shown) + SEPARATOR * (len(shown) - 1) - options.width
        for position in reversed(shown):
            least = table.columns[position].least
            if least and excess > 0:
                cut = min(excess, max(sizes[position] - least, 0))
                sizes[position] -= cut
                excess -= cut
        optional = [position for position in shown if table.columns[position].may_go]
        if excess <= 0 or not optional:
            return [(position, sizes[position]) for position in shown]
        shown.remove(optional[-1])


def _cell(cell: Cell, options: Options) -> str:
    if isinstance(cell, Bar):
        return draw_bar(cell, min(max(8, (options.width - 62) // 2), 24), options)
    if isinstance(cell, State):
        glyph = (ASCII_GLYPHS if options.ascii else GLYPHS)[cell.name]
        return f"{paint(glyph, COLORS[cell.name], options)} {cell.name}"
    return _fit(cell, options)


def _fit(text: str, options: Options) -> str:
    """The text, padded to as many characters as it takes columns of a terminal."""
    if options.ascii:
        return to_ascii(text)
    if text.isascii():
        return text
    return "".join(c + FILLER if unicodedata.east_asian_width(c) in "WF" else c for c in text)


def _shorten(text: str, size: int, options: Options, keep_end: bool = False) -> str:
    if len(ANSI.sub("", text)) <= size:
        return text
    ellipsis = ("..." if options.ascii else "…")[:size]
    left = size - len(ellipsis)
    tail = left * 2 // 3 if keep_end else 0
    head = left - tail
    if text[head] == FILLER:  # half a character
        head -= 1
    return text[:head] + ellipsis + text[len(text) - tail :]


def _wrap(text: str, options: Options) -> list[str]:
    """The lines of a paragraph."""
    return [_clip(line, options) for line in textwrap.wrap(_fit(text, options), options.width, break_on_hyphens=False)]


def _clip(line: str, options: Options) -> str:
    """The line without fillers, cut to the width: the last resort for a table that can't be made narrower."""
    if len(ANSI.sub("", line)) > options.width:
        line = _shorten(ANSI.sub("", line), options.width, options)
    return line.replace(FILLER, "")


def paint(text: str, code: str, options: Options) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if options.color and text else text
