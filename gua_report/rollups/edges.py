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

from gua_report.rollups.index import NOTHING_NEAR, Beside, Edges, after_key
from gua_report.ticks.classify import Classified
from gua_report.ticks.read_partition import CARD_FACTS, PROCESS_FACTS, TICK_COLUMNS
from gua_report.ticks.tick_weights import TICKS_AROUND, reach_ms
from gua_report.window import midnight_ms
from gua_sample.policy import LONGEST_GAP_INTERVALS

# Ticks are joined by the interval of the earlier one; the interval of a day that is not over may not be known yet.
WITHOUT_INTERVAL = [name for name in TICK_COLUMNS if name != "interval_ms"]


def edges_of(found: Classified, day: str) -> tuple[Edges, list[Beside]]:
    """The keys of the neighbours' ticks that the day depends on, and of its own ticks that they depend on."""
    own = np.flatnonzero((found.ticks["day"] == day).to_numpy())
    first, last = int(own[0]), int(own[-1]) + 1
    days = found.ticks["day"]
    edges, beside = Edges(NOTHING_NEAR, _after(found, last)), []
    if first > 0:
        edges = edges._replace(before=_before(found, first))
        beside.append(Beside(str(days.iloc[first - 1]), "after", _after(found, first)))
    if last < len(days):
        beside.append(Beside(str(days.iloc[last]), "before", _before(found, last)))
    return edges, beside


def _before(found: Classified, first: int) -> str:
    """The key of the ticks before position `first`, for the day that begins there."""
    context = found.ticks.iloc[max(0, first - TICKS_AROUND) : first]
    times = found.ticks["ts_ms"].to_numpy()
    longest = LONGEST_GAP_INTERVALS * float(context["interval_ms"].max())
    end_ms = times[first - 1] + found.ticks["weight_ms"].iloc[first - 1]
    reaches_in = end_ms > midnight_ms(str(found.ticks["day"].iloc[first]))
    if times[first] - times[first - 1] > longest and not reaches_in:
        return NOTHING_NEAR
    start = max(0, first - TICKS_AROUND, int(np.searchsorted(times, times[first - 1] - longest)))
    return _key(found, start, first, TICK_COLUMNS)


def _after(found: Classified, last: int) -> str:
    """The key of the ticks from position `last` up to the first that saw cards, for the day that ends at `last`.

    It begins with the time up to which a tick would make a difference, and the time of the first one that does.
    """
    until_ms = reach_ms(found.ticks.iloc[max(0, last - TICKS_AROUND) : last])
    times = found.ticks["ts_ms"].to_numpy()
    end = min(last + TICKS_AROUND, int(np.searchsorted(times, until_ms, side="right")))
    seen = found.rows.cards.tick[found.rows.cards.tick >= last]
    if len(seen):
        end = min(end, int(seen.min()) + 1)
    if end <= last:
        return after_key(until_ms)
    return after_key(until_ms, int(times[last]), _key(found, last, end, WITHOUT_INTERVAL))


def _key(found: Classified, first: int, last: int, columns: Iterable[str]) -> str:
    """A digest of the content of these ticks, independent of the ids in their file."""
    rows = found.rows
    cards, processes = (_part(table._asdict(), first, last) for table in (rows.cards, rows.processes))
    card, of, process = cards.pop("card"), processes.pop("card"), processes.pop("process")
    tables = (
        [found.ticks[name].to_numpy()[first:last] for name in columns],
        [*cards.values(), *(rows.card_facts[name].to_numpy()[card] for name in CARD_FACTS)],
        [
            *processes.values(),
            rows.card_facts["uuid"].to_numpy()[of],
            *(rows.process_facts[name].to_numpy()[process] for name in PROCESS_FACTS),
        ],
    )
    digest = blake2b(digest_size=12)
    for table in tables:
        values = zip(*([_plain(value) for value in column.tolist()] for column in table), strict=True)
        lines = sorted(repr(list(row)) for row in values)
        digest.update("\n".join([*lines, ""]).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _part(columns: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    """The rows of these ticks, by column; their ticks are counted from the first one."""
    wanted = (columns["tick"] >= first) & (columns["tick"] < last)
    part = {name: values[wanted] for name, values in columns.items()}
    return {**part, "tick": part["tick"] - first}


def _plain(value: Any) -> str | float | None:
    """The value with numbers as floats, because a column with missing values has floats."""
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else float(value)
