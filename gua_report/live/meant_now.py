"""Mark what is held on purpose, by people's notes and the configuration."""

from __future__ import annotations

from collections.abc import Callable

from gua_report.config import Config
from gua_report.live.cards_now import CardSeen, ProcessNow, Scene, UserNow
from gua_report.machine.notes import find_notes
from gua_sample.notes import LATEST_MS, KnownNotes
from gua_sample.policy import IDLE_HELD


def mark_meant(scene: Scene, config: Config, complain: Callable[[str], None]) -> Scene:
    """The scene with what the notes in force say of idle processes, and of users all of whose idle ones are meant."""
    known = find_notes(config, {one.user for seen in scene.cards for one in seen.processes if one.state == IDLE_HELD})
    for problem in known.problems:
        complain(problem)
    return scene._replace(cards=[_mark(seen, known, scene.tick.ts_ms) for seen in scene.cards])


def _mark(seen: CardSeen, known: KnownNotes, ts_ms: int) -> CardSeen:
    uuid = seen.card.facts.uuid
    processes = [
        one._replace(meant=known.find(one.user, uuid, one.pid, one.start_time_ms, ts_ms))
        if one.state == IDLE_HELD
        else one
        for one in seen.processes
    ]
    return seen._replace(processes=processes, users=[_mark_user(user, processes) for user in seen.users])


def _mark_user(user: UserNow, processes: list[ProcessNow]) -> UserNow:
    """The user with what ends first of what is said, if something is said of each idle process."""
    said = [one.meant for one in processes if one.user == user.name and one.state == IDLE_HELD]
    meant = [one for one in said if one is not None]
    if not user.is_idle or not meant or len(meant) < len(said):
        return user
    return user._replace(meant=min(meant, key=lambda one: LATEST_MS if one.until_ms is None else one.until_ms))
