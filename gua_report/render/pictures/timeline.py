"""Card by time: a row a card, filled by state, with the names of those who held it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from gua_report.render.blocks import LEGEND, SHOWN_STATES, Column, Picture, Table
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.scene import UNOBSERVED, Cell, Row, Scene, Span
from gua_report.render.pictures.time_axis import UNIT_NAMES, TimeAxis, spell_span, time_axis
from gua_report.render.words import amount, clean, gpu, number, percent
from gua_report.summary.cells import MINUTE_MS
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

KINDS = tuple(LEGEND)  # from the bottom up
COLUMNS = {state: f"{state.replace('-', '_')}_seconds" for state in SHOWN_STATES}
LEAST_PART = 0.002  # of a cell: a clock is no more exact
LEAST_SEEN = 0.95  # of the window: if a card was seen for less, its share is said to be of that


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
    times, cards = time_axis(window, cell_ms), list(_cards(report))
    facts = {row["uuid"]: row for row in report.gpus.to_dict("records")}
    unit = UNIT_NAMES.get(cell_ms) or f"{number(cell_ms / MINUTE_MS)} minutes"
    scene = Scene(
        "timeline",
        "Who held which card when",
        f"A row for each card, filled {unit} by {unit} with what the card did. The names are those of whoever had it"
        " for longest; everyone else is named when you point at a bar, and among the numbers.",
        times.axis(),
        [_row(card, facts.get(card.uuid), times) for card in cards],
        gap=0.0,
    )
    columns = [
        Column("gpu", lambda row: row["gpu"]),
        Column("when", lambda row: spell_span(row["run"].start_ms, row["run"].end_ms, window)),
        *map(_column, KINDS),
        Column("who", lambda row: row["run"].names),
    ]
    table = Table(columns, [{"gpu": card.number, "run": run} for card in cards for run in card.runs])
    return Picture(scene, table, LEGEND)


def _cards(report: Report) -> Iterator[Card]:
    window, holders = report.window, _holders(report)
    frame = report.timeline[["gpu_uuid", "gpu_index", "mig_index", "start_ms", "end_ms", *COLUMNS.values()]]
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
    """The seconds of everyone by card and start of the cell."""
    frame = report.timeline_holders
    names = {who: clean(report.who(who)) for who in frame["identity"].unique()}
    seconds = frame[[COLUMNS[state] for state in (IDLE_HELD, ACTIVE, UNKNOWN)]].sum(axis=1)
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


def _row(card: Card, facts: TableRow | None, times: TimeAxis) -> Row:
    name = clean(facts["name"]).removeprefix("NVIDIA ") if facts else ""
    bars = [Cell(times.place(cell.start_ms), times.place(cell.end_ms), cell.parts()) for cell in card.cells]
    told = [Span(times.place(run.start_ms), times.place(run.end_ms), _tell(card, run, times)) for run in card.runs]
    return Row(f"GPU {card.number}  {name}", _note(card, facts), bars, tuple(told), tuple(_written(card.cells, times)))


def _note(card: Card, facts: TableRow | None) -> str:
    """How much of the card's time was idle-held, and of how much if that is not nearly all of the window."""
    if not facts:
        return ""
    length = (card.cells[-1].end_ms - card.cells[0].start_ms) / HOUR_MS
    seen = length - sum(cell.seconds[UNOBSERVED] for cell in card.cells) / 3600
    part = f" of {amount(seen)} h seen" if seen < LEAST_SEEN * length else ""
    return f"{percent(facts['idle_held_share'])} idle-held{part}"


def _written(cells: list[Seen], times: TimeAxis) -> Iterator[Span]:
    """The name of whoever had the card for most of a stretch of cells."""
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

    return Column(LEGEND[kind], cell, right=True)
