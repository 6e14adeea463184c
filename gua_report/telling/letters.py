"""Write the mails: to whoever holds a card without work, and to the administrator about the rest."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.fitting import fit
from gua_report.mailing.message import Letter, host_name
from gua_report.telling.template import Words, tidy
from gua_report.telling.watch import Held
from gua_sample.console import plural
from gua_sample.held_words import plain, spell_held, spell_since
from gua_sample.processes import printable

WIDTH = 72
MOST_TOLD = 20  # processes in one mail
LONGEST_NAME = 60
BETWEEN = "\n* * *\n\n"  # two languages


class Occasion(NamedTuple):
    """What is the same in all mails of a run."""

    config: Config
    words: Sequence[Words]
    now_ms: int
    zone: tzinfo
    after: str
    idle_held_hours: Mapping[str, float] | None  # of the last 7 days, by person; None: not known
    more: Mapping[str, Sequence[str]] = {}  # further sentences, by person


def write_reminder(who: str, to: str, held: Sequence[Held], occasion: Occasion) -> Letter:
    """The mail to a person about what they hold."""
    texts = [_fill(words, who, held, occasion) for words in occasion.words]
    subject = texts[0][0]
    return Letter([to], subject, BETWEEN.join(text for _, text in texts) + _sign())


def _fill(words: Words, who: str, held: Sequence[Held], occasion: Occasion) -> tuple[str, str]:
    """The subject and the text in one language."""
    told = held[:MOST_TOLD]
    lines = [_tell(one, words, occasion) for one in told]
    if len(held) > len(told):
        lines.append(_wrap(f"and {len(held) - len(told):,} more: gua-report --who me", "  "))
    values = {
        "host": host_name(),
        "person": fit(printable(who), LONGEST_NAME),
        "summary": summarize(held),
        "held": "\n".join(lines),
        "commands": "\n".join(f"    {command}" for command in _commands(told)),
        "hours": _wrap(_spell_hours(who, occasion)),
        "idle_held_hours": _count_hours(who, occasion) or "?",
        "after": occasion.after,
        "rule": _wrap(_spell_rule(occasion)),
        "ask": occasion.config.remind.ask or occasion.config.mail.administrator or "your administrator",
        "more": "\n\n".join(_wrap(sentence) for sentence in occasion.more.get(who, ())),
    }
    return words.subject.substitute(values), tidy(words.text.substitute(values))


def _tell(one: Held, words: Words, occasion: Occasion) -> str:
    """What is told of a process: in the words of the line at login, unless the template has others."""
    since = spell_since(one.since_ms, occasion.now_ms, occasion.zone)
    if words.each is None:
        sentence = spell_held(one.gpu, one.memory_mib, since, one.episode.pid, one.command)
        job = f" It is Slurm job {one.slurm_job}." if one.slurm_job else ""
        return _wrap(f"{sentence[0].upper()}{sentence[1:]}{job}", "  ")
    values = {
        "host": host_name(),
        "gpu": one.gpu,
        "gib": "?" if one.memory_mib is None else f"{one.memory_mib / 1024:.1f}",
        "since": since,
        "pid": one.episode.pid,
        "command": plain(one.command),
        "job": one.slurm_job or "-",
    }
    return _wrap(words.each.substitute(values), "  ")


def summarize(held: Sequence[Held]) -> str:
    """What is held in all: you hold 20.0 GiB on GPU 1 without work."""
    memories = [one.memory_mib for one in held if one.memory_mib is not None]
    memory = f"{sum(memories) / 1024:.1f} GiB" if len(memories) == len(held) else "memory"
    gpus = list(dict.fromkeys(one.gpu for one in held))
    return f"you hold {memory} on {f'GPU {gpus[0]}' if len(gpus) == 1 else f'{len(gpus)} GPUs'} without work"


def _commands(held: Sequence[Held]) -> list[str]:
    """The commands that end these processes, and these jobs."""
    pids = list(dict.fromkeys(str(one.episode.pid) for one in held if one.slurm_job is None))
    jobs = list(dict.fromkeys(one.slurm_job for one in held if one.slurm_job is not None))
    return [" ".join([name, *some]) for name, some in (("kill", pids), ("scancel", jobs)) if some]


def _count_hours(who: str, occasion: Occasion) -> str | None:
    hours = None if occasion.idle_held_hours is None else occasion.idle_held_hours.get(who)
    return None if hours is None else f"{hours:,.1f}"


def _spell_hours(who: str, occasion: Occasion) -> str:
    hours = _count_hours(who, occasion)
    if hours is None:
        return ""
    return f"In the last 7 days you held cards without work for {hours} GPU-hours in all.{_spell_cost(who, occasion)}"


def _spell_cost(who: str, occasion: Occasion) -> str:
    """What these hours cost, as a sentence; nothing unless the administrator has set a price."""
    price, currency = occasion.config.price_per_gpu_hour, occasion.config.currency
    if price is None or occasion.idle_held_hours is None:
        return ""
    return f" At {price:.10g} {currency} a GPU-hour, that is {occasion.idle_held_hours[who] * price:,.2f} {currency}."


def _spell_rule(occasion: Occasion) -> str:
    percent = occasion.config.policy.utilization_percent
    return (
        f"The rule: a mail is sent when memory is held for more than {occasion.after} on a card at less than"
        f" {percent:g} % utilization; at most one a day, and at most one a week about the same."
    )


def write_summary(others: Sequence[Held], too_many: Sequence[str], to: str, occasion: Occasion) -> Letter:
    """The mail to the administrator: what nobody was told of, as it is no person's, or as there are too many."""
    host, parts = host_name(), []
    if too_many:
        names = ", ".join(fit(printable(who), LONGEST_NAME) for who in too_many)
        text = (
            f"{len(too_many):,} people would have got a reminder in one run. That is more than a run sends, so nobody"
            f" got one: look whether something is wrong, and whether {occasion.after} is too short for [remind] after."
            f" They are: {names}."
        )
        parts.append(_wrap(text))
    if others:
        whose = dict.fromkeys(one.who for one in others)
        lines = [_sum_up(who, [one for one in others if one.who == who]) for who in list(whose)[:MOST_TOLD]]
        more = [f"  and {len(whose) - MOST_TOLD:,} more"] if len(whose) > MOST_TOLD else []
        first = "No person is known to be behind these, so nobody was told. They hold memory without work for more than"
        parts.append("\n".join([_wrap(f"{first} {occasion.after}:"), "", *lines, *more]))
        parts.append(_wrap("Name a person in [people] of gua.toml, or what is meant to be there in [exempt]."))
    what = (
        f"{len(too_many):,} people hold cards without work"
        if too_many
        else "memory held without work, and nobody to tell"
    )
    return Letter([to], f"{host}: {what}", "\n\n".join(parts) + "\n" + _sign())


def _sum_up(who: str, held: Sequence[Held]) -> str:
    memory = sum(one.memory_mib or 0 for one in held) / 1024
    gpus = ", ".join(dict.fromkeys(one.gpu for one in held))
    text = f"{fit(printable(who), LONGEST_NAME)}: {plural(len(held), 'process', 'es')}, {memory:.1f} GiB, GPU {gpus}"
    return _wrap(text, "  ")


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + ("  " if indent else ""),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sign() -> str:
    """The last lines of a mail, as mail programs recognize them."""
    return f"\n-- \ngua remind on {host_name()}"
