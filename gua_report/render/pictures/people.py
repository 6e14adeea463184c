"""People: idle-held and active GPU-hours of each, on one scale."""

from __future__ import annotations

from gua_report.render.blocks import LEGEND, Picture
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.scene import Axis, Cell, Row, Scene
from gua_report.render.words import amount
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

HOURS = {state: f"{state.replace('-', '_')}_gpu_hours" for state in (IDLE_HELD, ACTIVE, UNKNOWN)}
MOST_MARKS = 6


def people_picture(rows: list[TableRow]) -> Picture:
    """The picture of these rows of a table of identities, whose names are clean."""
    title = "GPU-hours of each, on one scale"
    description = "A bar for each of them: first the GPU-hours held without work, then those at work."
    longest = max(sum(row[column] for column in HOURS.values()) for row in rows)
    axis = Axis(0, longest or 1, [(place, f"{place:g} h") for place in _marks(longest)])
    scene = Scene("people", title, description, axis, [_row(row) for row in rows], gap=0.0)
    return Picture(scene, None, {state: LEGEND[state] for state in HOURS if any(row[HOURS[state]] for row in rows)})


def _row(row: TableRow) -> Row:
    cells, reached = [], 0.0
    for state, column in HOURS.items():
        if hours := row[column]:
            told = f"{row['identity']}: {amount(hours)} GPU-hours {state}"
            cells.append(Cell(reached, reached + hours, [(state, 1.0)], told))
            reached += hours
    return Row(row["identity"], f"{amount(row[HOURS[IDLE_HELD]])} h idle-held", cells)


def _marks(longest: float) -> list[float]:
    """Round numbers from 0 to below the end of the scale, where there is room for their text."""
    step = next(
        factor * 10.0**exponent
        for exponent in range(-3, 12)
        for factor in (1, 2, 5)
        if longest <= MOST_MARKS * factor * 10.0**exponent
    )
    return [step * number for number in range(MOST_MARKS + 1) if step * number <= 0.93 * longest]
