"""Write the mails, from templates: to whoever holds a card without work, and to the administrator about the rest."""

import re
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from string import Template
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.fitting import fit
from gua_report.console.whole_file import read_bounded
from gua_report.limits import spell_hours
from gua_report.mailing.message import NO_SENDMAIL, Letter, find_sendmail, host_name, paragraph, sign
from gua_report.telling.watch import Held
from gua_sample.console import plural
from gua_sample.errors import GuaError, UsageError
from gua_sample.held_file import plain, spell_held, spell_since
from gua_sample.processes import printable

MOST_BYTES = 64 << 10
FIELDS = frozenset(
    ("host", "person", "summary", "held", "commands", "hours", "idle_held_hours", "after", "rule", "ask", "more")
)
EACH_FIELDS = frozenset(("host", "gpu", "gib", "since", "pid", "command", "job"))
NEEDED = "held"
SUBJECT, EACH = "Subject", "Each"

BUILT_IN = """\
Subject: $host: $summary

Hello $person,

just a reminder, in case it was forgotten. On $host:

$held

As long as that memory is held, nobody else can use it.

Done? End the process. A notebook: shut its kernel down, as closing the
tab leaves it running. Anything else, on $host:

$commands

Still needed? Then say so, and you get no mail about it:

    gua note --until friday "what it is for"

$hours

$more

$rule

Questions? Ask $ask.
"""
PROG = "gua remind"
MOST_TOLD = 20  # processes in one mail
LONGEST_NAME = 60
BETWEEN = "\n* * *\n\n"  # two languages


class Words(NamedTuple):
    subject: Template
    each: Template | None  # None: in the words of the line at login
    text: Template


def parse_template(content: str, path: str) -> Words:
    lines = content.replace("\r\n", "\n").split("\n")
    heads: dict[str, Template] = {}
    while lines and lines[0].startswith((f"{SUBJECT}:", f"{EACH}:")):
        name, _, value = lines.pop(0).partition(":")
        heads[name] = Template(value.strip())
    text = Template("\n".join(lines).strip() + "\n")
    words = Words(heads.get(SUBJECT, Template("$host: $summary")), heads.get(EACH), text)
    where = (path, f"{path}, in the line {EACH}:", path)
    for template, known, place in zip(words, (FIELDS, EACH_FIELDS, FIELDS), where, strict=True):
        try:
            (template or Template("")).substitute(dict.fromkeys(known, ""))
        except KeyError as error:
            names = ", ".join(f"${name}" for name in sorted(known))
            raise UsageError(f"{place}: ${error.args[0]} has no meaning: expected one of {names}") from error
        except ValueError as error:
            raise UsageError(f"{place}: {str(error).lower()}: write $$ for a dollar sign") from error
    if "\0" not in text.safe_substitute({NEEDED: "\0"}):
        raise UsageError(f"{path}: the text has no ${NEEDED}, so it would not say what it is about: add it")
    return words


def load_templates(paths: tuple[str, ...]) -> list[Words]:
    found = []
    for path in paths:
        try:
            content = read_bounded(path, MOST_BYTES)
            if not content.is_whole:
                raise UsageError(f"{path}: a template has at most {MOST_BYTES >> 10} kB: is it the right file?")
            found.append(parse_template(content.data.decode(), path))
        except OSError as error:
            raise UsageError(f"{path}: the template can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: a template is a text in UTF-8: save it as such") from error
    return found or [parse_template(BUILT_IN, "the built-in text")]


def find_problems(config: Config) -> list[str]:
    mail, problems = config.mail, []
    try:
        load_templates(config.remind.templates)
    except UsageError as error:
        problems.append(str(error))
    if mail.domain is None and not mail.addresses:
        problems.append("nobody has an address: set domain, or [mail.addresses], in [mail]")
    if mail.administrator is None:
        problems.append("there is no administrator to be told of the rest: set administrator in [mail]")
    if mail.smtp is None and find_sendmail() is None:
        problems.append(NO_SENDMAIL)
    if mail.smtp_user is not None:
        from gua_report.mailing.smtp import read_login  # imported here, as most machines do without

        try:
            read_login(mail)
        except GuaError as error:
            problems.append(str(error))
    return problems


class Occasion(NamedTuple):
    config: Config
    words: Sequence[Words]
    now_ms: int
    zone: tzinfo
    after: str
    idle_held_hours: Mapping[str, float] | None  # of the last 7 days, by person; None: not known
    more: Mapping[str, Sequence[str]] = {}  # further sentences, by person


def write_reminder(who: str, to: str, held: Sequence[Held], occasion: Occasion) -> Letter:
    config, told, others = occasion.config, held[:MOST_TOLD], len(held) - MOST_TOLD
    pids = dict.fromkeys(str(one.episode.pid) for one in told if one.slurm_job is None)
    jobs = dict.fromkeys(one.slurm_job for one in told if one.slurm_job is not None)
    hours = (occasion.idle_held_hours or {}).get(who)
    spent = ""
    if hours is not None:
        spent = f"In the last 7 days you held cards without work for {spell_hours(hours)} GPU-hours in all."
        if (price := config.price_per_gpu_hour) is not None:
            currency = config.currency
            spent += f" At {price:.10g} {currency} a GPU-hour, that is {hours * price:,.2f} {currency}."
    rule = (
        f"The rule: a mail is sent when memory is held for more than {occasion.after} on a card at less than"
        f" {config.policy.utilization_percent:g} % utilization; at most one a day, and at most one a week about the"
        " same."
    )
    values = {
        "host": host_name(),
        "person": fit(printable(who), LONGEST_NAME),
        "summary": _sum_up(held),
        "commands": "\n".join(
            " ".join(["   ", *words]) for words in (["kill", *pids], ["scancel", *jobs]) if words[1:]
        ),
        "hours": paragraph(spent),
        "idle_held_hours": "?" if hours is None else spell_hours(hours),
        "after": occasion.after,
        "rule": paragraph(rule),
        "ask": config.remind.ask or config.mail.administrator or "your administrator",
        "more": "\n\n".join(paragraph(sentence) for sentence in occasion.more.get(who, ())),
    }
    subjects, texts = [], []
    for words in occasion.words:
        lines = [_tell(one, words, occasion) for one in told]
        lines += [paragraph(f"and {others:,} more: gua-report --who me", "  ")] if others > 0 else []
        values["held"] = "\n".join(lines)
        subjects.append(words.subject.substitute(values))
        text = words.text.substitute(values)
        texts.append(re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", text).strip() + "\n")  # empty values leave blank lines
    return Letter([to], subjects[0], BETWEEN.join(texts) + sign(PROG))


def _tell(one: Held, words: Words, occasion: Occasion) -> str:
    since = spell_since(one.since_ms, occasion.now_ms, occasion.zone, one.since_is_exact)
    if words.each is None:
        sentence = spell_held(one.gpu, one.memory_mib, since, one.episode.pid, one.command)
        job = f" It is Slurm job {one.slurm_job}." if one.slurm_job else ""
        return paragraph(f"{sentence[0].upper()}{sentence[1:]}{job}", "  ")
    values = {
        "host": host_name(),
        "gpu": one.gpu,
        "gib": "?" if one.memory_mib is None else f"{one.memory_mib / 1024:.1f}",
        "since": since,
        "pid": one.episode.pid,
        "command": plain(one.command),
        "job": one.slurm_job or "-",
    }
    return paragraph(words.each.substitute(values), "  ")


def _sum_up(held: Sequence[Held]) -> str:
    memories = [one.memory_mib for one in held if one.memory_mib is not None]
    memory = f"{sum(memories) / 1024:.1f} GiB" if len(memories) == len(held) else "memory"
    gpus = list(dict.fromkeys(one.gpu for one in held))
    return f"you hold {memory} on {f'GPU {gpus[0]}' if len(gpus) == 1 else f'{len(gpus)} GPUs'} without work"


def write_summary(others: Sequence[Held], too_many: Sequence[str], to: str, occasion: Occasion) -> Letter:
    what, parts = "memory held without work, and nobody to tell", []
    if too_many:
        what = f"{len(too_many):,} people hold cards without work"
        names = ", ".join(fit(printable(who), LONGEST_NAME) for who in too_many)
        text = (
            f"{len(too_many):,} people would have got a reminder in one run. That is more than a run sends, so nobody"
            f" got one: look whether something is wrong, and whether {occasion.after} is too short for [remind] after."
            f" They are: {names}."
        )
        parts.append(paragraph(text))
    if others:
        whose: dict[str, list[Held]] = {}
        for one in others:
            whose.setdefault(one.who, []).append(one)
        lines = [""]
        for who, held in list(whose.items())[:MOST_TOLD]:
            memory, gpus = sum(one.memory_mib or 0 for one in held) / 1024, dict.fromkeys(one.gpu for one in held)
            count = f"{plural(len(held), 'process', 'es')}, {memory:.1f} GiB, GPU {', '.join(gpus)}"
            lines.append(paragraph(f"{fit(printable(who), LONGEST_NAME)}: {count}", "  "))
        lines += [f"  and {len(whose) - MOST_TOLD:,} more"] if len(whose) > MOST_TOLD else []
        first = "No person is known to be behind these, so nobody was told. They hold memory without work for more than"
        parts.append("\n".join([paragraph(f"{first} {occasion.after}:"), *lines]))
        parts.append(paragraph("Name a person in [people] of gua.toml, or what is meant to be there in [exempt]."))
    return Letter([to], f"{host_name()}: {what}", "\n\n".join(parts) + "\n" + sign(PROG))
