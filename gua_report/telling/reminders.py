"""Who gets a reminder in this run, who does not, and why; and the sending."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

from gua_report.config import Mail, Remind
from gua_report.config.rules import WEEKDAYS, parse_hours
from gua_report.mailing.message import Letter, Unsure, address_of, build_message, send
from gua_report.people.identities import FIRST_UID, NOBODY, UID, is_of_person, is_person
from gua_report.telling.letters import Occasion, write_reminder, write_summary
from gua_report.telling.log import BEGUN, DONE, FAILED, REMEMBER_MS, UNSURE, Act, Log
from gua_report.telling.watch import Held, Watch
from gua_sample.processes import read_file, user_ids

LOGIN_DEFS = "/etc/login.defs"
MAY_BE_SENT = (BEGUN, DONE, UNSURE)  # rather no mail than a second one
MOST_REMINDERS = 20  # in a run: more than that is a mistake, or a matter for the administrator
ADMINISTRATOR = "(administrator)"
NO_ADDRESS, TOLD_TODAY, TOLD_LATELY = "no address", "told today", "told within 7 days"
TOO_MANY, NOT_ANSWERED = f"more than {MOST_REMINDERS} at once", "the directory of users does not answer"
MAIL_SECONDS = 30.0  # for one mail; the unit gives half an hour for all
OVER = "it is over by now"


class Persons(NamedTuple):
    names: set[str]  # of people
    uids: dict[str, int | None]  # of all names that were asked for; None: there is no such account
    unanswered: set[str]  # of whom the directory of users does not tell
    mapped: frozenset[str] = frozenset()  # identities for which the administrator names a person

    def has(self, held: Held) -> bool:
        """By the name, and by the uid that the kernel tells: names alone may come from files of the sampler's user.

        So the administrator's word counts for the very identity that [people] names.
        """
        is_mapped = held.unmapped in self.mapped
        name = held.unmapped if is_mapped else held.who
        uid = self.uids.get(name)
        is_theirs = is_mapped if uid is None else uid == held.person_uid
        return held.who in self.names and is_theirs and name not in self.unanswered


def find_persons(identities: Iterable[str], mapped: Mapping[str, str], login_defs: str = LOGIN_DEFS) -> Persons:
    """Tell people from others. Whom [people] (`mapped`) names needs no account; the system's accounts never are people.

    Nor is root, whatever the system says where people begin.
    """
    told_first = re.findall(rb"^\s*UID_MIN\s+([0-9]{1,9})\s*$", read_file(login_defs) or b"", re.MULTILINE)
    first_uid = max(1, int(told_first[-1])) if told_first else FIRST_UID
    names = {who for who in set(identities) if is_person(who) and not who.startswith(UID) and who not in NOBODY}
    told = user_ids(names) if names else {}
    named = set(mapped.values())
    people = {who for who, uid in told.items() if (who in named if uid is None else is_of_person(uid, first_uid))}
    return Persons(people, told, names - told.keys(), frozenset(mapped))


def why_not_now(remind: Remind, now_ms: int, zone: tzinfo) -> str | None:
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    if now.date().isoformat() in remind.holidays:
        return f"{now.date().isoformat()} is a holiday in [remind] holidays"
    if WEEKDAYS[now.weekday()] not in remind.days:
        return f"{WEEKDAYS[now.weekday()]} is no working day in [remind] days"
    first, end = parse_hours(remind.hours) or (0, 0)
    if not first <= now.hour < end:
        return f"it is {now:%H:%M}, and people are told from {first}:00 to {end}:00 ([remind] hours)"
    return None


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
    before = [act for act in acts if not act.is_trial and act.outcome in MAY_BE_SENT]

    def day(ts_ms: int) -> str:
        return datetime.fromtimestamp(ts_ms / 1000, zone).date().isoformat()

    def is_today(who: str, to: str) -> bool:
        # A clock that was set back does not make it untold.
        return any((act.who == who or act.to == to) and day(act.ts_ms) >= day(now_ms) for act in before)

    def was_told(who: str, one: Held) -> bool:
        lately = (act for act in before if act.who == who and now_ms - act.ts_ms < REMEMBER_MS)
        return any(act.is_about(one.episode, one.earliest_ms) for act in lately)

    reminders: list[Reminder] = []
    held_back: list[HeldBack] = []
    theirs = [one for one in held if persons.has(one) or one.who in persons.unanswered]
    for who in dict.fromkeys(one.who for one in theirs):
        to = address_of(who, mail)
        new = tuple(one for one in theirs if one.who == who and not was_told(who, one))
        if who in persons.unanswered:
            held_back.append(HeldBack(who, NOT_ANSWERED))
        elif to is None:
            held_back.append(HeldBack(who, NO_ADDRESS))
        elif is_today(who, to) or to in {one.to for one in reminders}:
            held_back.append(HeldBack(who, TOLD_TODAY))
        elif not new:
            held_back.append(HeldBack(who, TOLD_LATELY))
        else:
            reminders.append(Reminder(who, to, new))
    too_many = [one.who for one in reminders] if len(reminders) > MOST_REMINDERS else []
    if too_many:
        held_back += [HeldBack(who, TOO_MANY) for who in too_many]
        reminders = []
    others = [one for one in held if one not in theirs and not was_told(ADMINISTRATOR, one)]
    to = mail.administrator
    is_free = to is not None and to not in {one.to for one in reminders} and not is_today(ADMINISTRATOR, to)
    return Plan(reminders, held_back, others, too_many, to if (others or too_many) and is_free else None)


class Mailed(NamedTuple):
    who: str
    to: str
    letter: Letter
    held: tuple[Held, ...]
    outcome: str | None = None  # None: it was only to be shown
    why: str | None = None


def deliver(plan: Plan, watch: Watch, occasion: Occasion, log: Log | None, trial_to: str | None) -> list[Mailed]:
    mailed = []
    for who, to, held in plan.reminders:
        still, address = tuple(one for one in held if watch.is_still_so(one)), trial_to or to
        if still:
            mail = Mailed(who, address, write_reminder(who, address, still, occasion), still)
            mailed.append(_send(mail, watch, occasion.config.mail, log, trial_to is not None))
        else:
            plan.held_back.append(HeldBack(who, OVER))
    if plan.summary_to is not None:
        to = trial_to or plan.summary_to
        letter = write_summary(plan.others, plan.too_many, to, occasion)
        mail = Mailed(ADMINISTRATOR, to, letter, tuple(plan.others))
        mailed.append(_send(mail, watch, occasion.config.mail, log, trial_to is not None))
    return mailed


def _send(mail: Mailed, watch: Watch, config: Mail, log: Log | None, is_trial: bool) -> Mailed:
    if log is None:
        return mail
    message = build_message(mail.letter, config.sender)
    act = log.begin(watch.observer.now_ms(), mail.who, mail.to, [one.episode for one in mail.held], is_trial)
    why = send(message, [mail.to], config, MAIL_SECONDS).get(mail.to)
    outcome = DONE if why is None else UNSURE if isinstance(why, Unsure) else FAILED
    log.end(act, outcome, why)
    return mail._replace(outcome=outcome, why=why)
