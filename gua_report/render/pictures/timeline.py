"""Card by time: a row a card, filled by state, with the names of those who held it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from gua_report.render.blocks import Column, Picture, Table
from gua_report.render.blocks import Row as TableRow
from gua_report.render.pictures.rows import UNOBSERVED, Cell, Row, Scene, Span, draw
from gua_report.render.pictures.time_axis import TimeAxis, spell_span, time_axis
from gua_report.render.words import amount, clean, gpu, number, percent
from gua_report.summary.build import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

KINDS = (IDLE_HELD, ACTIVE, TRULY_IDLE, UNKNOWN, UNOBSERVED)  # from the bottom up
COLUMNS = {state: f"{state.replace('-', '_')}_seconds" for state in STATES}
LEAST_PART = 0.002  # of a cell: a clock is no more exact


class Seen(NamedTuple):
    """A cell of one card, or several in which the same people were on it."""

    start_ms: int
    end_ms: int
    seconds: dict[str, float]  # by kind
    holders: dict[str, float]  # seconds by name, idle or at work

    @property
    def main(self) -> str:
        return max(KINDS, key=lambda kind: self.seconds[kind])

    def parts(self) -> list[tuple[str, float]]:
        length = (self.end_ms - self.start_ms) / 1000
        return [(kind, min(value / length, 1.0)) for kind, value in self.seconds.items() if value > LEAST_PART * length]


def timeline_picture(report: Report) -> Picture:
    window, cell_ms = report.window, round(report.timeline_cell_seconds * 1000)
    times = time_axis(window, cell_ms)
    cards = list(_cards(report))
    runs = {key: list(_runs(seen)) for key, _, seen in cards}
    rows = [_row(report, times, key, card, seen, runs[key]) for key, card, seen in cards]
    title = "Who held which card when"
    description = f"A row for each card, a bar for every {_cell_name(report)}, filled by state; the numbers are below."
    columns = [
        Column("gpu", lambda row: row["gpu"]),
        Column("when", lambda row: spell_span(row["seen"].start_ms, row["seen"].end_ms, window)),
        *map(_column, KINDS),
        Column("who", lambda row: _names(row["seen"])),
    ]
    table = Table(columns, [{"gpu": card, "seen": run} for key, card, _ in cards for run in runs[key]])
    scene = Scene("timeline", title, description, times.axis(), rows)
    return Picture(title, lambda: draw(scene), table, KINDS)


def _cell_name(report: Report) -> str:
    seconds = report.timeline_cell_seconds
    names = {3600: "hour", 86400: "day", 604800: "week"}
    return names.get(round(seconds), "month" if seconds > 604800 else f"{number(seconds / 60)} min")


def _cards(report: Report) -> Iterator[tuple[str, str, list[Seen]]]:
    """The key, the number and the cells of each card, all of the window: those that were not seen too."""
    window, holders = report.window, _holders(report)
    states = [COLUMNS[kind] for kind in KINDS[:-1]]
    frame = report.timeline[["gpu_uuid", "gpu_index", "mig_index", "start_ms", "end_ms", *states]]
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
        yield uuid, card, cells + _unseen(reached, window.end_ms)


def _holders(report: Report) -> dict[tuple[str, int], dict[str, float]]:
    """The seconds of everyone by card and start of the cell."""
    frame = report.timeline_holders
    names = {who: clean(who) for who in frame["identity"].unique()}
    seconds = frame[[COLUMNS[state] for state in (IDLE_HELD, ACTIVE, UNKNOWN)]].sum(axis=1)
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    columns = (frame["gpu_uuid"], frame["start_ms"], frame["identity"], seconds)
    for uuid, start_ms, who, some in zip(*(column.tolist() for column in columns), strict=True):
        found[uuid, start_ms][names[who]] = some
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


def _row(report: Report, times: TimeAxis, uuid: str, card: str, cells: list[Seen], runs: list[Seen]) -> Row:
    facts = report.gpus[report.gpus["uuid"] == uuid].to_dict("records")
    name = clean(facts[0]["name"]).removeprefix("NVIDIA ") if facts else ""
    held = percent(facts[0]["idle_held_share"]) if facts else ""
    bars = [Cell(times.place(cell.start_ms), times.place(cell.end_ms), cell.parts()) for cell in cells]
    told = [Span(times.place(run.start_ms), times.place(run.end_ms), _tell(card, run, report)) for run in runs]
    return Row(f"GPU {card}  {name}", f"{held} idle-held", bars, told, _written(times, cells))


def _written(times: TimeAxis, cells: list[Seen]) -> tuple[Span, ...]:
    """The name of whoever had the card for most of a stretch of cells."""
    spans = []
    for name, group in groupby(cells, lambda cell: max(cell.holders, key=lambda one: cell.holders[one], default="")):
        run = list(group)
        if name:
            spans.append(Span(times.place(run[0].start_ms), times.place(run[-1].end_ms), name))
    return tuple(spans)


def _tell(card: str, run: Seen, report: Report) -> str:
    hours = [f"{amount(run.seconds[kind] / 3600)} h {kind}" for kind, _ in run.parts()]
    who = _names(run)
    return f"GPU {card}, {spell_span(run.start_ms, run.end_ms, report.window)}: {', '.join(hours)}" + (
        f"; {who}" if who else ""
    )


def _names(run: Seen) -> str:
    return ", ".join(sorted(run.holders, key=lambda name: -run.holders[name]))


def _column(kind: str) -> Column:
    def cell(row: TableRow) -> str:
        seconds = row["seen"].seconds[kind]
        return amount(seconds / 3600) if seconds else ""

    return Column(kind, cell, right=True)
