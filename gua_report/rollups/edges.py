"""Keys of a day's edges: digests of the neighbours' ticks that it depends on. If one changes, the rollup is stale.

The last tick of a day may reach over midnight, its energy depends on the tick after it, whether a process is idle
depends on the tick before, and episodes go on. So the start of a day depends on the ticks just before it, and its end
on those just after, with their cards and processes. Ticks too far away to be joined make no difference: then the key is
empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from gua_report.rollups.index import NOTHING_NEAR, Beside, Edges, after_key
from gua_report.ticks.history import Stretch
from gua_report.ticks.read_partition import CARD_FACTS, PROCESS_FACTS, TICK_COLUMNS
from gua_report.ticks.tick_weights import TICKS_AROUND, reach_ms
from gua_report.window import midnight_ms
from gua_sample.policy import LONGEST_GAP_INTERVALS

# Ticks are joined by the interval of the earlier one; the interval of a day that is not over may not be known yet.
WITHOUT_INTERVAL = [name for name in TICK_COLUMNS if name != "interval_ms"]


def edges_of(stretch: Stretch, day: str) -> tuple[Edges, list[Beside]]:
    """The keys of the neighbours' ticks that the day depends on, and of its own ticks that they depend on."""
    own = np.flatnonzero((stretch.ticks["day"] == day).to_numpy())
    first, last = int(own[0]), int(own[-1]) + 1
    days = stretch.ticks["day"]
    edges, beside = Edges(NOTHING_NEAR, _after(stretch, last)), []
    if first > 0:
        edges = edges._replace(before=_before(stretch, first))
        beside.append(Beside(str(days.iloc[first - 1]), "after", _after(stretch, first)))
    if last < len(days):
        beside.append(Beside(str(days.iloc[last]), "before", _before(stretch, last)))
    return edges, beside


def _before(stretch: Stretch, first: int) -> str:
    """The key of the ticks before position `first`, for the day that begins there."""
    context = stretch.ticks.iloc[max(0, first - TICKS_AROUND) : first]
    times = stretch.ticks["ts_ms"].to_numpy()
    longest = LONGEST_GAP_INTERVALS * float(context["interval_ms"].max())
    reaches_in = times[first - 1] + stretch.ticks["weight_ms"].iloc[first - 1] > midnight_ms(
        str(stretch.ticks["day"].iloc[first])
    )
    if times[first] - times[first - 1] > longest and not reaches_in:
        return NOTHING_NEAR
    start = max(0, first - TICKS_AROUND, int(np.searchsorted(times, times[first - 1] - longest)))
    return _key(stretch, start, first, TICK_COLUMNS)


def _after(stretch: Stretch, last: int) -> str:
    """The key of the ticks from position `last` up to the first that saw cards, for the day that ends at `last`.

    It begins with the time up to which a tick would make a difference, and the time of the first one that does.
    """
    until_ms = reach_ms(stretch.ticks.iloc[max(0, last - TICKS_AROUND) : last])
    times = stretch.ticks["ts_ms"].to_numpy()
    end = min(last + TICKS_AROUND, int(np.searchsorted(times, until_ms, side="right")))
    seen = stretch.rows.cards.tick[stretch.rows.cards.tick >= last]
    if len(seen):
        end = min(end, int(seen.min()) + 1)
    return (
        after_key(until_ms, int(times[last]), _key(stretch, last, end, WITHOUT_INTERVAL))
        if end > last
        else after_key(until_ms)
    )


def _key(stretch: Stretch, first: int, last: int, columns: Iterable[str]) -> str:
    """A digest of the content of these ticks, independent of the ids in their file."""
    rows = stretch.rows
    ticks = stretch.ticks.iloc[first:last][list(columns)]
    cards, processes = (
        _part(table, (table.tick >= first) & (table.tick < last), first) for table in (rows.cards, rows.processes)
    )
    cards = cards.join(rows.card_facts[list(CARD_FACTS)], on="card")
    processes = processes.join(rows.card_facts["uuid"], on="card").join(
        rows.process_facts[list(PROCESS_FACTS)], on="process"
    )
    digest = blake2b(digest_size=12)
    for frame in (ticks, cards.drop(columns="card"), processes.drop(columns=["card", "process"])):
        lines = sorted(map(_line, frame.astype(object).itertuples(index=False, name=None)))
        digest.update("\n".join([*lines, ""]).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _part(table: Any, wanted: np.ndarray[Any, Any], first: int) -> pd.DataFrame:
    columns = {name: values[wanted] for name, values in table._asdict().items()}
    return pd.DataFrame({**columns, "tick": columns["tick"] - first})


def _line(row: tuple[Any, ...]) -> str:
    return repr([_plain(value) for value in row])


def _plain(value: Any) -> str | float | None:
    """The value with numbers as floats, because a column with missing values has floats."""
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else float(value)
