"""What is carried from run to run: taken up, followed to this tick, and left for the next run."""

from __future__ import annotations

import os
from collections.abc import Callable

from gua_sample import idle_state, idleness
from gua_sample.idleness import Carried
from gua_sample.records import Tick


def carry_on(data_dir: str, tick: Tick | None, warn: Callable[[str], None]) -> Carried:
    """The state at a tick, or at a run that could not store one, which is saved for the next run."""
    before = idle_state.load(data_dir) or idleness.NOTHING
    carried = follow(data_dir, before, tick) if tick else before._replace(errors=before.errors + 1)
    try:
        idle_state.save(data_dir, carried)
    except OSError as error:
        if tick:  # without a tick, a StoreError reports the same problem
            state = os.path.join(data_dir, idle_state.NAME)  # the error's own file name is a random one
            warn(f"{state} can't be written ({error.strerror}): idle time is looked up in the history each time")
    return carried


def follow(data_dir: str, before: Carried, tick: Tick) -> Carried:
    """Follow the state that the last run left up to this tick, which is stored or kept already."""
    if idleness.continues(before, tick):
        return idleness.follow_tick(before, tick)
    from gua_sample.look_back import recall  # imported here because few runs need it

    carried = recall(data_dir, tick)
    return carried._replace(success_ms=carried.success_ms or before.success_ms, errors=before.errors + (not tick.cards))
