"""Mark what is held on purpose, by people's notes and the configuration; and who is over a limit."""

from __future__ import annotations

from collections.abc import Callable

from gua_report.config import Config
from gua_report.limits import Used, Week, judge, limit_of
from gua_report.live.cards_now import CardSeen, ProcessNow, Scene, UserNow
from gua_report.machine.child import ask_as_owner
from gua_report.machine.notes import KnownNotes, find_notes
from gua_sample.errors import StoreError
from gua_sample.notes import LATEST_MS
from gua_sample.policy import IDLE_HELD

UNUSED = Used(0.0, 0.0, 0.0, None)


def mark_meant(scene: Scene, config: Config, complain: Callable[[str], None]) -> Scene:
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


def mark_limits(scene: Scene, config: Config, data_dir: str, complain: Callable[[str], None]) -> Scene:
    names = {user.name for seen in scene.cards for user in seen.users}
    limits = {name: limit_of(name, config.limits, config.people) for name in names}
    if not data_dir or not any(hours is not None for limit in limits.values() for hours in limit):
        return scene
    from gua_report.rollups.week_hours import read_closed_week  # imported here because few have limits

    partitions, ts_ms = scene.files.partitions, scene.tick.ts_ms
    try:
        found = ask_as_owner(
            data_dir, lambda: read_closed_week(data_dir, partitions, config.policy, config.people, ts_ms)
        )
    except StoreError as error:
        complain(f"who is over a limit is not known: {error}")
        return scene
    week, people = Week(*found[0]), {name: Used(*used) for name, used in found[1].items()}

    def mark(user: UserNow) -> UserNow:
        used = people.get(user.name, UNUSED)
        return user._replace(standings=tuple(judge(used, limits[user.name], week)))

    cards = [seen._replace(users=[mark(user) for user in seen.users]) for seen in scene.cards]
    return scene._replace(cards=cards, week=week)
