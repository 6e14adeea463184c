"""Pictures over time: who held which card when, and the hours by state of each day, week or month.

Places on their axis are times in cells of some length, counted so that most cells begin at whole numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from gua_report.console.spelling import MONTHS, WEEKDAYS, state_columns
from gua_report.render.blocks import LEGEND, SHOWN_STATES, UNOBSERVED, Column, Picture, Table, figure
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.drawing import Axis, Cell, Row, Scene, Span
from gua_report.render.values import amount, clean, gpu, number, percent, spell_span
from gua_report.summary.intervals import MINUTE_MS, MONTH_MS, UNIT_NAMES, WEEK_MS, choose_cell_ms, find_edges
from gua_report.summary.over_time import CELLS_MS, MOST_BARS
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS, Window
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

MOST_MARKS = 9
LAST_MARK = 0.9  # of the width: there is no room for text after it
KINDS = tuple(LEGEND)  # from the bottom up
SECONDS = state_columns("seconds", SHOWN_STATES)
HOURS = state_columns("gpu_hours", SHOWN_STATES)
LEAST_PART = 0.002  # of a cell: a clock is no more exact
LEAST_SEEN = 0.95  # of the window: if a card was seen for less, its share is said to be of that


class TimeAxis(NamedTuple):
    window: Window
    origin_ms: int
    cell_ms: int

    def place(self, ms: float) -> float:
        return (ms - self.origin_ms) / self.cell_ms

    def axis(self) -> Axis:
        begin, end = self.place(self.window.start_ms), self.place(self.window.end_ms)
        marks = [(self.place(ms), text) for ms, text in _marks(self.window)]
        return Axis(begin, end, [mark for mark in marks if mark[0] <= begin + LAST_MARK * (end - begin)])


def time_axis(window: Window, cell_ms: int) -> TimeAxis:
    edges = find_edges(window, cell_ms)
    return TimeAxis(window, int(edges[1] if len(edges) > 2 else edges[0]), cell_ms)


def _marks(window: Window) -> list[tuple[int, str]]:
    """Times to write on the axis: hours, days, weeks or months, no more than fit on a phone."""
    short = window.length_ms <= 2 * DAY_MS
    cell_ms = HOUR_MS if short else choose_cell_ms(window.length_ms, (DAY_MS, WEEK_MS, MONTH_MS), MOST_MARKS)
    times = find_edges(window, cell_ms)[1:-1].tolist()
    found = [(ms, datetime.fromtimestamp(ms / 1000, window.zone)) for ms in times]
    if short:
        step = next(step for step in (1, 2, 3, 6, 12) if len(found) <= MOST_MARKS * step)
        return [(ms, f"{one:%H:%M}") for ms, one in found if one.hour % step == 0]
    step = -(-len(found) // (12 if cell_ms == MONTH_MS else MOST_MARKS))
    return [(ms, _spell(one, cell_ms)) for ms, one in found[::step]] if found else []


def _spell(local: datetime, cell_ms: int) -> str:
    month = MONTHS[local.month - 1]
    if cell_ms == DAY_MS:
        return f"{WEEKDAYS[local.weekday()]} {local.day}"
    if cell_ms == WEEK_MS:
        return f"{local.day} {month}"
    return month if local.month > 1 else f"{local.year}"


class Seen(NamedTuple):
    """A cell of one card, or several in which the same people were on it."""

    start_ms: int
    end_ms: int
    seconds: dict[str, float]  # by kind
    holders: dict[str, float]  # seconds by name, idle or at work

    @property
    def main(self) -> str:
        return max(KINDS, key=lambda kind: self.seconds[kind])

    @property
    def names(self) -> str:
        return ", ".join(sorted(self.holders, key=lambda name: -self.holders[name]))

    def parts(self) -> list[tuple[str, float]]:
        length = (self.end_ms - self.start_ms) / 1000
        return [(kind, min(value / length, 1.0)) for kind, value in self.seconds.items() if value > LEAST_PART * length]


class Card(NamedTuple):
    uuid: str
    number: str
    cells: list[Seen]  # from the start of the window to its end
    runs: list[Seen]


def timeline_picture(report: Report) -> Picture:
    window, cell_ms = report.window, round(report.timeline_cell_seconds * 1000)
    times, cards = time_axis(window, cell_ms), list(_find_cards(report))
    facts = {row["uuid"]: row for row in report.gpus.to_dict("records")}
    unit = UNIT_NAMES.get(cell_ms) or f"{number(cell_ms / MINUTE_MS)} minutes"
    scene = Scene(
        "timeline",
        "Who held which card when",
        f"A row for each card, filled {unit} by {unit} with what the card did. The names are those of whoever had it"
        " for longest; everyone else is named when you point at a bar, and among the numbers.",
        times.axis(),
        [_card_row(card, facts.get(card.uuid), times) for card in cards],
        gap=0.0,
    )
    columns = [
        Column("gpu", lambda row: row["gpu"]),
        Column("when", lambda row: spell_span(row["run"].start_ms, row["run"].end_ms, window)),
        *map(_column, KINDS),
        Column("who", lambda row: row["run"].names, least=8, good=12),
    ]
    table = Table(columns, [{"gpu": card.number, "run": run} for card in cards for run in card.runs])
    return Picture(scene, table, LEGEND)


def _find_cards(report: Report) -> Iterator[Card]:
    window, holders = report.window, _holders(report)
    frame = report.timeline[["gpu_uuid", "gpu_index", "mig_index", "start_ms", "end_ms", *SECONDS.values()]]
    # Lists of columns: there are thousands of rows, and a dict for each takes longer than all the drawing.
    for uuid, found in groupby(zip(*(frame[name].tolist() for name in frame), strict=True), lambda row: row[0]):
        cells: list[Seen] = []
        card, reached = "", window.start_ms
        for _, index, mig_index, start_ms, end_ms, *seconds in found:
            card = card or gpu(index, mig_index)
            cells += _unseen(reached, start_ms)
            rest = max((end_ms - start_ms) / 1000 - sum(seconds), 0.0)
            by_kind = dict(zip(KINDS, [*seconds, rest], strict=True))
            cells.append(Seen(start_ms, end_ms, by_kind, holders.get((uuid, start_ms), {})))
            reached = end_ms
        cells += _unseen(reached, window.end_ms)
        yield Card(uuid, card, cells, list(_runs(cells)))


def _holders(report: Report) -> dict[tuple[str, int], dict[str, float]]:
    frame = report.timeline_holders
    names = {who: clean(report.who(who)) for who in frame["identity"].unique()}
    seconds = frame[[SECONDS[state] for state in (IDLE_HELD, ACTIVE, UNKNOWN)]].sum(axis=1)
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    columns = (frame["gpu_uuid"], frame["start_ms"], frame["identity"], seconds)
    for uuid, start_ms, who, some in zip(*(column.tolist() for column in columns), strict=True):
        found[uuid, start_ms][names[who]] += some  # different names may be spelled alike
    return found


def _unseen(start_ms: int, end_ms: int) -> list[Seen]:
    if end_ms <= start_ms:
        return []
    return [Seen(start_ms, end_ms, {**dict.fromkeys(KINDS, 0.0), UNOBSERVED: (end_ms - start_ms) / 1000}, {})]


def _runs(cells: list[Seen]) -> Iterator[Seen]:
    """Stretches with the same people and mostly the same state: what hovering and the table tell as one."""
    for _, group in groupby(cells, lambda cell: (cell.main, sorted(cell.holders))):
        run = list(group)
        seconds = {kind: sum(cell.seconds[kind] for cell in run) for kind in KINDS}
        names = {name: sum(cell.holders[name] for cell in run) for name in run[0].holders}
        yield Seen(run[0].start_ms, run[-1].end_ms, seconds, names)


def _card_row(card: Card, facts: TableRow | None, times: TimeAxis) -> Row:
    name = clean(facts["name"]).removeprefix("NVIDIA ") if facts else ""
    bars = [Cell(times.place(cell.start_ms), times.place(cell.end_ms), cell.parts()) for cell in card.cells]
    told = [Span(times.place(run.start_ms), times.place(run.end_ms), _tell(card, run, times)) for run in card.runs]
    return Row(f"GPU {card.number}  {name}", _note(card, facts), bars, tuple(told), tuple(_written(card.cells, times)))


def _note(card: Card, facts: TableRow | None) -> str:
    if not facts:
        return ""
    length = (card.cells[-1].end_ms - card.cells[0].start_ms) / HOUR_MS
    seen = length - sum(cell.seconds[UNOBSERVED] for cell in card.cells) / 3600
    part = f" of {amount(seen)} h seen" if seen < LEAST_SEEN * length else ""
    return f"{percent(facts['idle_held_share'])} idle-held{part}"


def _written(cells: list[Seen], times: TimeAxis) -> Iterator[Span]:
    for name, group in groupby(cells, lambda cell: max(cell.holders, key=lambda one: cell.holders[one], default="")):
        run = list(group)
        if name:
            yield Span(times.place(run[0].start_ms), times.place(run[-1].end_ms), name)


def _tell(card: Card, run: Seen, times: TimeAxis) -> str:
    hours = ", ".join(f"{amount(run.seconds[kind] / 3600)} h {LEGEND[kind]}" for kind, _ in run.parts())
    when = spell_span(run.start_ms, run.end_ms, times.window)
    return f"GPU {card.number}, {when}: {hours}" + (f"; {run.names}" if run.names else "")


def _column(kind: str) -> Column:
    def cell(row: TableRow) -> str:
        seconds = row["run"].seconds[kind]
        return amount(seconds / 3600) if seconds else ""

    return Column(LEGEND[kind], cell, right=True, may_go=kind != IDLE_HELD)


def trend_picture(report: Report) -> Picture:
    cell_ms = choose_cell_ms(report.window.length_ms, CELLS_MS, MOST_BARS)
    unit = UNIT_NAMES[cell_ms]
    times = time_axis(report.window, cell_ms)
    found = [_with_rates(row) for row in report.trend.to_dict("records")]
    # The bars stand for rates, so that the first and the last, which the window cuts, can be compared with the others.
    full = max((row["gpus"] for row in found), default=0.0) or 1.0
    label = f"Full height: {amount(full * cell_ms / HOUR_MS)} GPU-hours a {unit}"
    scene = Scene(
        "trend",
        f"GPU-hours by state, {unit} by {unit}",
        f"A bar for each {unit}; one that the window cuts is drawn as if it went on in the same way. The percentage"
        " below a bar is the idle-held share of what was observed.",
        times.axis(),
        [Row(label, "", [_bar(row, full, times) for row in found])],
        150,
    )
    columns = [
        Column(unit, lambda row: spell_span(row["start_ms"], row["end_ms"], report.window)),
        *(figure(state, column)._replace(may_go=state != IDLE_HELD) for state, column in HOURS.items()),
        figure("observed h", "observed_seconds", lambda seconds: amount(seconds / 3600))._replace(may_go=True),
        figure("idle-held share", "held_share", percent),
    ]
    return Picture(scene, Table(columns, found), LEGEND)


def _with_rates(row: TableRow) -> TableRow:
    """The row with how many cards were seen on average, and the idle-held share, which is None if none was seen."""
    total, hours = sum(row[column] for column in HOURS.values()), row["observed_seconds"] / 3600
    held_share = row[HOURS[IDLE_HELD]] / total if total else None
    return {**row, "gpus": total / hours if hours else 0.0, "held_share": held_share}


def _bar(row: TableRow, full: float, times: TimeAxis) -> Cell:
    length, observed = (row["end_ms"] - row["start_ms"]) / HOUR_MS, row["observed_seconds"] / 3600
    parts = [(state, row[column] / length / full) for state, column in HOURS.items()]
    parts.append((UNOBSERVED, max(1 - observed / length, 0.0) * (row["gpus"] / full or 1.0)))
    hours = [f"{amount(row[column])} GPU-hours {state}" for state, column in HOURS.items() if row[column]]
    when = spell_span(row["start_ms"], row["end_ms"], times.window)
    told = f"{when}: {', '.join([*hours, f'{amount(observed)} h observed'])}"
    number = "" if row["held_share"] is None else f"{row['held_share']:.0%}"
    return Cell(times.place(row["start_ms"]), times.place(row["end_ms"]), parts, told, number)
