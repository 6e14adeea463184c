"""Send the mails of a run, each written down before it is sent; or only write them, to be shown."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from gua_report.config import Mail
from gua_report.mailing.message import Letter, build_message
from gua_report.mailing.outcome import Unsure
from gua_report.mailing.sending import send
from gua_report.telling.letters import Occasion, write_reminder, write_summary
from gua_report.telling.log import DONE, FAILED, UNSURE, Log
from gua_report.telling.reminders import ADMINISTRATOR, HeldBack, Plan
from gua_report.telling.watch import Held, Watch

MAIL_SECONDS = 30.0  # for one mail; the unit gives half an hour for all
OVER = "it is over by now"
# Imported by others only when they are used: by then we may be a user who can't read a Python under /root.
PRELOADED = ("email.generator", "encodings.idna")


def preload(mail: Mail) -> None:
    """Import all that sending takes, before this process becomes another user."""
    for module in (*PRELOADED, *(["gua_report.mailing.smtp"] if mail.smtp else [])):
        importlib.import_module(module)


class Mailed(NamedTuple):
    who: str
    to: str
    letter: Letter
    held: tuple[Held, ...]
    outcome: str | None = None  # None: it was only to be shown
    why: str | None = None


class Post:
    """Delivers the mails of a run. Without a log, nothing is sent; `trial_to` is who gets all of them instead."""

    def __init__(self, watch: Watch, occasion: Occasion, log: Log | None, trial_to: str | None) -> None:
        self._watch, self._occasion, self._log, self._trial_to = watch, occasion, log, trial_to

    def deliver(self, plan: Plan) -> list[Mailed]:
        """Send what is planned. What is over by now is held back, in the plan."""
        mailed = []
        for who, to, held in plan.reminders:
            still = tuple(one for one in held if self._watch.is_still_so(one))
            if still:
                address = self._trial_to or to
                mailed.append(
                    self._send(Mailed(who, address, write_reminder(who, address, still, self._occasion), still))
                )
            else:
                plan.held_back.append(HeldBack(who, OVER))
        if plan.summary_to is not None:
            mailed.append(self._send(self._summary(plan, self._trial_to or plan.summary_to)))
        return mailed

    def _summary(self, plan: Plan, to: str) -> Mailed:
        letter = write_summary(plan.others, plan.too_many, to, self._occasion)
        return Mailed(ADMINISTRATOR, to, letter, tuple(plan.others))

    def _send(self, mail: Mailed) -> Mailed:
        if self._log is None:
            return mail
        config = self._occasion.config.mail
        message = build_message(mail.letter, config.sender)
        episodes = [one.episode for one in mail.held]
        act = self._log.begin(self._watch.observer.now_ms(), mail.who, mail.to, episodes, self._trial_to is not None)
        why = send(message, [mail.to], config, MAIL_SECONDS).get(mail.to)
        outcome = DONE if why is None else UNSURE if isinstance(why, Unsure) else FAILED
        self._log.end(act, outcome, why)
        return mail._replace(outcome=outcome, why=why)
