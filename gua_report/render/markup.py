"""HTML and SVG elements, and the style of pages. All that is not markup already is escaped here, and nowhere else."""

import re
from html import escape

SPECIAL = re.compile("[&<>\"']")
# Colours are chosen for light and dark grounds alike.
FRAGMENT_STYLE = """
.gua-report { font-size: 14px; line-height: 1.45; color: inherit; overflow-wrap: anywhere }
.gua-report h1 { font-size: 1.5em; margin: .2em 0 }
.gua-report h2 { font-size: 1.15em; margin: 1.6em 0 .1em }
.gua-report p { margin: .25em 0; max-width: 60em }
.gua-report .gua-act { border-left: 4px solid #d9791a; padding: .3em .8em; font-weight: 600 }
.gua-report h3 { font-size: 1em; margin: 0 }
.gua-report .gua-caption, .gua-report th { opacity: .75 }
.gua-report nav a { margin-right: 1em; color: inherit }
.gua-report nav a[aria-current] { font-weight: 600; text-decoration: none }
.gua-report .gua-scroll { overflow-x: auto; margin: .4em 0 }
.gua-report table { border-collapse: collapse; background: none }
.gua-report th, .gua-report td {
  padding: .15em 1em .15em 0; text-align: left; background: none; color: inherit; white-space: nowrap }
.gua-report th { font-weight: 400 }
.gua-report td.gua-long { white-space: normal; min-width: 16em; max-width: 26em }
.gua-report .gua-right { text-align: right; font-variant-numeric: tabular-nums }
.gua-report figure { margin: 1em 0 }
.gua-report .gua-legend > span { margin-right: 1.2em; white-space: nowrap }
.gua-report summary { cursor: pointer; opacity: .75 }
.gua-report .gua-bar { display: flex; height: 1em; width: 8em; overflow: hidden; border-radius: 2px }
.gua-report section > .gua-bar { width: 100%; height: 1.4em; margin: .5em 0 }
.gua-report .gua-swatch { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px }
.gua-report .gua-active { background: #24875a; fill: #24875a }
.gua-report .gua-idle-held { background: repeating-linear-gradient(#b85f0c 0 1px, #e88f33 1px 5px) }
.gua-report .gua-truly-idle { background: rgba(125, 145, 175, .22); fill: rgba(125, 145, 175, .22) }
.gua-report .gua-free { background: #4f86c6; fill: #4f86c6 }
.gua-report .gua-unknown {
  background: radial-gradient(circle, #8a8a8a 1.2px, transparent 1.3px) 0 0 / 4px 4px, rgba(128, 128, 128, .15) }
.gua-report .gua-unobserved { background: repeating-linear-gradient(135deg, #999 0 1.5px, transparent 1.5px 6px) }
.gua-picture { display: block; overflow: visible; shape-rendering: crispEdges; margin: .2em 0 }
.gua-picture text { font-size: 12px; fill: currentColor; shape-rendering: auto }
.gua-picture text.gua-name {
  fill: #16100a; pointer-events: none; paint-order: stroke; stroke: rgba(255, 255, 255, .6); stroke-width: 3px }
.gua-picture .gua-number text { font-size: 11px; text-anchor: middle }
.gua-picture rect { fill: transparent }
.gua-report .gua-picture path { background: none }
.gua-picture .gua-grid { stroke: currentColor; stroke-opacity: .18; vector-effect: non-scaling-stroke }
.gua-picture .gua-pattern-idle-held path { fill: #b85f0c }
.gua-picture .gua-pattern-idle-held .gua-ground { fill: #e88f33 }
.gua-picture .gua-pattern-unknown path { fill: #8a8a8a }
.gua-picture .gua-pattern-unknown .gua-ground { fill: rgba(128, 128, 128, .15) }
.gua-picture .gua-pattern-unobserved path { fill: #999 }
.gua-picture .gua-pattern-unobserved .gua-ground { fill: none }
@media (max-width: 600px) {
  .gua-picture text { font-size: 11px }
  .gua-picture .gua-number text, .gua-picture text.gua-name { font-size: 10px }
  .gua-report .gua-wide { display: none }
  .gua-report th, .gua-report td { padding-right: .6em }
}
"""
PAGE_STYLE = f"""
:root {{ color-scheme: light dark }}
body {{ font-family: system-ui, sans-serif; margin: 0 auto; padding: 1em; max-width: 80em }}
{FRAGMENT_STYLE}
@page {{ size: A4; margin: 14mm }}
@media print {{
  body {{ padding: 0; -webkit-print-color-adjust: exact; print-color-adjust: exact }}
  .gua-report {{ font-size: 11px }}
  figure, p, tr, .gua-scroll {{ break-inside: avoid }}
  h2, figcaption, .gua-caption {{ break-after: avoid }}
  details {{ display: none }}
}}
"""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element with its children. Attributes are spelled `class_` and `aria_label`, and left out if they are None."""
    return Markup(f"{start(name, **attributes)}{join(*children)}</{name}>")


def start(name: str, /, **attributes: object) -> Markup:
    """The start of an element; all of it if it is one that has no end, such as `meta`."""
    if not attributes:
        return Markup(f"<{name}>")
    given = [
        f' {key.rstrip("_").replace("_", "-")}="{_escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(given)}>")


def join(*parts: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else _escape(part) for part in parts))


def _escape(text: str) -> str:
    # A page has tens of thousands of texts, nearly all without anything to escape.
    return escape(text) if SPECIAL.search(text) else text


def lines(parts: list[Markup]) -> Markup:
    return Markup("\n".join(parts))
