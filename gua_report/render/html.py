"""HTML for notebooks: one self-contained fragment, for light and dark themes. Everything is escaped."""

from __future__ import annotations

from html import escape

from gua_report.render import DEFAULTS, Options
from gua_report.render.blocks import Bar, Block, Cell, Column, Heatmap, Section, State, Table
from gua_report.render.page import build_page
from gua_report.render.words import WEEKDAYS, percent
from gua_report.summary.build import Report
from gua_sample.policy import STATES

# Sections that are open initially.
OPEN = ("headline", "gpus", "identities")
STYLE = """\
.gua-report { font-size: 13px; line-height: 1.4; max-width: 60em; color: inherit }
.gua-report p { margin: .2em 0 }
.gua-report .gua-caption { opacity: .65 }
.gua-report summary { font-weight: 600; margin-top: 1em; cursor: pointer }
.gua-report table { border-collapse: collapse; margin: .5em 0; background: none }
.gua-report th, .gua-report td { padding: .15em .8em .15em 0; text-align: left; background: none; color: inherit }
.gua-report th { font-weight: 400; opacity: .65 }
.gua-report .gua-right { text-align: right; font-variant-numeric: tabular-nums }
.gua-report .gua-bar { display: flex; height: 1em; width: 8em; overflow: hidden; border-radius: 2px }
.gua-report p + .gua-bar { width: 100%; margin: .5em 0 }
.gua-report .gua-swatch { display: inline-block; width: .7em; height: .7em; margin-right: .4em; border-radius: 2px }
.gua-report .gua-active { background: #2f9e6e }
.gua-report .gua-idle-held { background: #e08a2e }
.gua-report .gua-truly-idle { background: rgba(128, 140, 155, .35) }
.gua-report .gua-unknown { background: repeating-linear-gradient(45deg, #888 0 2px, transparent 2px 5px) }
.gua-report .gua-heatmap td { padding: 0; width: 1.6em; height: 1.3em; text-align: center }
.gua-report .gua-heatmap th { padding: 0 .5em 0 0 }
"""


def render(report: Report, options: Options = DEFAULTS) -> str:
    page = build_page(report, options)
    parts = ['<div class="gua-report">', f"<style>\n{STYLE}</style>", f"<p><strong>{escape(page.title)}</strong></p>"]
    parts += [f"<p>{escape(line)}</p>" for line in page.attention + page.header]
    parts += [*map(_section, page.sections), "</div>"]
    text = "\n".join(parts) + "\n"
    # Plain ASCII: a fragment can't declare its encoding, and a browser may guess wrong.
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _section(section: Section) -> str:
    return "\n".join(
        [
            f"<details{' open' if section.name in OPEN else ''}><summary>{escape(section.title)}</summary>",
            f'<p class="gua-caption">{escape(section.caption)}</p>',
            *(_block(block) for block in section.blocks),
            "</details>",
        ]
    )


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Bar):
        return _bar(block)
    return _heatmap(block) if isinstance(block, Heatmap) else _table(block)


def _bar(bar: Bar) -> str:
    parts = [
        f'<div class="gua-{state}" style="width: {share:.2%}" title="{state} {escape(percent(share))}"></div>'
        for state, share in zip(STATES, bar.shares, strict=True)
        if share > 0
    ]
    return f'<div class="gua-bar">{"".join(parts)}</div>'


def _table(table: Table) -> str:
    titles = "".join(_tagged("th", column, escape(column.title)) for column in table.columns)
    rows = [
        "<tr>" + "".join(_tagged("td", *pair) for pair in zip(table.columns, map(_cell, row), strict=True)) + "</tr>"
        for row in table.cells()
    ]
    return "\n".join(["<table>", f"<tr>{titles}</tr>", *rows, "</table>"])


def _tagged(tag: str, column: Column, content: str) -> str:
    attribute = ' class="gua-right"' if column.right else ""
    return f"<{tag}{attribute}>{content}</{tag}>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        return _bar(cell)
    if isinstance(cell, State):
        return f'<span class="gua-swatch gua-{cell.name}"></span>{cell.name}'
    return escape(cell)


def _heatmap(heatmap: Heatmap) -> str:
    hours = "".join(f"<th>{hour if hour % 3 == 0 else ''}</th>" for hour in range(24))
    rows = [
        f"<tr><th>{day}</th>" + "".join(_hour(day, hour, share) for hour, share in enumerate(shares)) + "</tr>"
        for day, shares in zip(WEEKDAYS, heatmap.shares, strict=True)
    ]
    return "\n".join(['<table class="gua-heatmap">', f"<tr><th></th>{hours}</tr>", *rows, "</table>"])


def _hour(day: str, hour: int, share: float | None) -> str:
    when = f"{day} {hour:02}:00"
    if share is None:
        return f'<td title="{when}: unknown">?</td>'
    return f'<td style="background: rgba(47, 158, 110, {share:.2f})" title="{when}: {escape(percent(share))}"></td>'
