"""Who gets a reminder in this run, and who does not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

from gua_report.config import Mail
from gua_report.mailing.recipients import address_of
from gua_report.telling.log import BEGUN, DONE, REMEMBER_MS, UNSURE, Act
from gua_report.telling.persons import Persons
from gua_report.telling.watch import Held

MAY_BE_SENT = (BEGUN, DONE, UNSURE)  # rather no mail than a second one
MOST_REMINDERS = 20  # in a run: more than that is a mistake, or a matter for the administrator
ADMINISTRATOR = "(administrator)"
NO_ADDRESS, TOLD_TODAY, TOLD_LATELY = "no address", "told today", "told within 7 days"
TOO_MANY, NOT_ANSWERED = f"more than {MOST_REMINDERS} at once", "the directory of users does not answer"


class Reminder(NamedTuple):
    who: str
    to: str
    held: tuple[Held, ...]


class HeldBack(NamedTuple):
    who: str
    why: str


class Plan(NamedTuple):
    reminders: list[Reminder]
    held_back: list[HeldBack]
    others: list[Held]  # what no person holds, and the administrator has not been told of lately
    too_many: list[str]  # people who would all have got a mail
    summary_to: str | None  # who is told of these two; None: nothing, nobody to tell, or they were told today


def make_plan(
    held: Sequence[Held], persons: Persons, acts: Sequence[Act], mail: Mail, now_ms: int, zone: tzinfo
) -> Plan:
    """The reminders that are due. `acts` is what was done before; trials don't count."""
    before = Before([act for act in acts if not act.is_trial], now_ms, zone)
    reminders: list[Reminder] = []
    held_back: list[HeldBack] = []
    theirs = [one for one in held if persons.has(one) or one.who in persons.unanswered]
    for who in dict.fromkeys(one.who for one in theirs):
        found = _find(who, [one for one in theirs if one.who == who], persons, before, mail)
        if isinstance(found, Reminder) and found.to in {one.to for one in reminders}:
            found = HeldBack(who, TOLD_TODAY)
        if isinstance(found, Reminder):
            reminders.append(found)
        else:
            held_back.append(found)
    too_many = [one.who for one in reminders] if len(reminders) > MOST_REMINDERS else []
    if too_many:
        held_back += [HeldBack(who, TOO_MANY) for who in too_many]
        reminders = []
    others = [one for one in held if one not in theirs and not before.was_told(ADMINISTRATOR, one)]
    to = mail.administrator
    is_free = to is not None and to not in {one.to for one in reminders} and not before.is_today(ADMINISTRATOR, to)
    return Plan(reminders, held_back, others, too_many, to if (others or too_many) and is_free else None)


def _find(who: str, held: list[Held], persons: Persons, before: Before, mail: Mail) -> Reminder | HeldBack:
    if who in persons.unanswered:
        return HeldBack(who, NOT_ANSWERED)
    to = address_of(who, mail)
    if to is None:
        return HeldBack(who, NO_ADDRESS)
    if before.is_today(who, to):
        return HeldBack(who, TOLD_TODAY)
    new = tuple(one for one in held if not before.was_told(who, one))
    return Reminder(who, to, new) if new else HeldBack(who, TOLD_LATELY)


class Before:
    """What was done before this run."""

    def __init__(self, acts: Sequence[Act], now_ms: int, zone: tzinfo) -> None:
        self._acts, self._now_ms, self._zone = acts, now_ms, zone

    def is_today(self, who: str, to: str | None) -> bool:
        """Whether the person got a mail today, or may have. A clock that was set back does not make it untold."""
        today = self._day(self._now_ms)
        return any(
            (act.who == who or act.to == to) and act.outcome in MAY_BE_SENT and self._day(act.ts_ms) >= today
            for act in self._acts
        )

    def was_told(self, who: str, held: Held) -> bool:
        """Whether the person was told of this episode within the last days, or may have been."""
        return any(
            act.who == who
            and act.outcome in MAY_BE_SENT
            and self._now_ms - act.ts_ms < REMEMBER_MS
            and act.is_about(held.episode, held.earliest_ms)
            for act in self._acts
        )

    def _day(self, ts_ms: int) -> str:
        return datetime.fromtimestamp(ts_ms / 1000, self._zone).date().isoformat()
