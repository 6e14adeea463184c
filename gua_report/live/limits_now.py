"""Who is over a limit, by the closed days of the last week."""

from __future__ import annotations

from collections.abc import Callable

from gua_report.config import Config
from gua_report.limits import Used, Week, judge, limit_of
from gua_report.live.cards_now import Scene, UserNow
from gua_report.machine.as_owner import ask_as_owner
from gua_report.rollups.week_hours import ClosedWeek, read_closed_week
from gua_sample.errors import StoreError

NOTHING = Used(0.0, 0.0, 0.0, None)


def mark_limits(scene: Scene, config: Config, data_dir: str, complain: Callable[[str], None]) -> Scene:
    """The scene with how each user stands against their limits, if anybody has one and the history can be read."""
    names = {user.name for seen in scene.cards for user in seen.users}
    limits = {name: limit_of(name, config.limits, config.people) for name in names}
    if not data_dir or not any(hours is not None for limit in limits.values() for hours in limit):
        return scene
    try:
        found = ask_closed_week(data_dir, scene.files.partitions, config, scene.tick.ts_ms)
    except StoreError as error:
        complain(f"who is over a limit is not known: {error}")
        return scene

    def mark(user: UserNow) -> UserNow:
        used = found.people.get(user.name, NOTHING)
        return user._replace(standings=tuple(judge(used, limits[user.name], found.week)))

    cards = [seen._replace(users=[mark(user) for user in seen.users]) for seen in scene.cards]
    return scene._replace(cards=cards, week=found.week)


def ask_closed_week(data_dir: str, partitions: list[str], config: Config, now_ms: int) -> ClosedWeek:
    """The hours of the 7 days up to midnight UTC, read with the rights of the folder's owner. Raises StoreError."""
    week, people = ask_as_owner(
        data_dir, lambda: read_closed_week(data_dir, partitions, config.policy, config.people, now_ms)
    )
    return ClosedWeek(Week(*week), {name: Used(*used) for name, used in people.items()})
