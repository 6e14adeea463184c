"""gua note: say that something is held on purpose, why and until when."""

import argparse
import os
import re
import time
from datetime import tzinfo
from typing import Any

from gua_report.config import Config, load_config
from gua_report.console import fitting
from gua_report.console.arguments import ZONE
from gua_report.console.spelling import as_json, to_ascii
from gua_report.live.cards_now import About, Holdings
from gua_report.live.observer import Observer, add_look_options
from gua_report.live.shown import screen_width, spell_until
from gua_report.machine.notes import list_notes
from gua_report.window import parse_until, parse_zone
from gua_sample import console
from gua_sample.errors import GuaError, UsageError
from gua_sample.notes import (
    LONGEST_DAYS,
    LONGEST_REASON,
    Entry,
    NoNote,
    Note,
    Spool,
    check_text,
    open_spool,
    put_note,
    remove_note,
    spell_note,
)
from gua_sample.processes import printable, user_names

PROG = "gua note"
DESCRIPTION = """\
Say that you hold a card on purpose: why, and until when. Reports still count
the hours as idle-held, and say how much of them is meant; while a note is in
force, what it is about is nothing to act on."""
EPILOG = f"""\
examples:
  gua note --until friday "serving the demo"    my processes on cards now
  gua note --until 3d --gpu 2 "debugging"       what I have on GPU 2
  gua note --until "tue 18:00" --pid 4711 "waits for a colleague"
  gua note --list                               my notes; root: all
  gua note --remove 0                           it was never meant
  sudo gua note --until 14d --identity unit:ollama.service "a service"

--until takes a weekday, a date or a time (2026-11-20T18:00), or how long (3d),
{LONGEST_DAYS} days at most; a day counts to its end. A note begins now, never earlier.
Others' processes are theirs to mark, or root's. For a service without an end
there is [exempt] in gua.toml. Everybody can read notes, and their reasons.
exit status: 0 done, 1 failed or refused, 2 wrong usage.
"""
SAID = ("from_ms", "until_ms", "reason", "identity", "gpu_uuids", "processes")  # as in a note's file
NAME = re.compile(r"(?:(\d{1,10})\.)?(\d)", re.ASCII)  # of a note, with or without the uid
COLUMNS = ["note", "who", "until", "about", "reason"]


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("reason", metavar="REASON", nargs="*", help="why; everybody can read it")
    parser.add_argument("--until", metavar="WHEN", help="until when it is meant")
    parser.add_argument("--gpu", metavar="N", help="what I have on this card, as gua status numbers them")
    parser.add_argument("--pid", metavar="PID", type=int, help="this process of mine")
    parser.add_argument("--identity", metavar="NAME", help="for root: whoever reports call so")
    parser.add_argument("--list", action="store_true", help="list my notes; for root, all")
    parser.add_argument("--remove", metavar="N", help="remove this note, as --list numbers them")
    parser.add_argument("--json", action="store_true", help="for programs; see docs/people.md")
    parser.add_argument("--ascii", action="store_true", help="nothing but ASCII in the text")
    parser.add_argument("--tz", metavar="ZONE", help=ZONE)
    add_look_options(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.list + (options.remove is not None) + bool(options.until or options.reason) > 1:
        raise UsageError("--list, --remove N, and --until WHEN with a reason are three commands: give one of them")
    config = load_config(options.config)
    path = config.notes.spool
    try:
        with open_spool(path) as spool:
            if options.list:
                text = show(list_notes(path), options)
            elif options.remove is not None:
                text = remove(spool, options)
            else:
                text = write(spool, config, options)
    except FileNotFoundError as error:
        raise GuaError(
            f"no folder {path} for notes: sudo make install makes it; without root, name a folder of yours in a"
            " config file, [notes] spool, for this and for gua-report"
        ) from error
    console.say(PROG, text)
    return 0


def write(spool: Spool, config: Config, options: argparse.Namespace) -> str:
    reason, now_ms = " ".join(options.reason), time.time_ns() // 1_000_000
    if not reason or options.until is None:
        raise UsageError('say until when, and why: gua note --until friday "serving the demo"')
    try:
        check_text(reason, "the reason", LONGEST_REASON)
    except NoNote as error:
        raise UsageError(f"bad reason {reason[:60]!r}: {error}") from error
    zone = parse_zone(options.tz)
    until_ms = parse_until(options.until, zone, now_ms, LONGEST_DAYS)
    is_owner = os.geteuid() == spool.uid
    about = find_about(options, config, is_owner)
    note = Note(now_ms, until_ms, reason, os.geteuid(), is_owner, about.identity, about.gpu_uuids, about.processes)
    entry = put_note(spool, note, now_ms)
    if options.json:
        return as_json(note=document(entry, now_ms))
    when = spell_until(until_ms, now_ms, zone)
    return clean(f"meant until {when}: {about.text} (note {entry.number}; gua note --remove {entry.number})", options)


def find_about(options: argparse.Namespace, config: Config, is_owner: bool) -> About:
    if options.identity is not None:
        if not is_owner:
            raise GuaError("--identity is for root: your own processes need no name")
        if options.pid is not None:
            raise UsageError("--identity and --pid both say whose: give one of them")
        if options.gpu is None:
            return About(f"all that {options.identity} holds", options.identity)
    observer = Observer(options, lambda text: console.complain(PROG, text))
    held = Holdings(observer.look().cards, os.geteuid(), is_owner, config.people)
    if options.gpu is not None:
        return held.find_card(options.gpu, options.identity)
    return held.find_all() if options.pid is None else held.find_process(options.pid)


def show(entries: list[Entry], options: argparse.Namespace) -> str:
    now_ms = time.time_ns() // 1_000_000
    if options.json:
        return as_json(notes=[document(entry, now_ms) for entry in entries])
    if not entries:
        return 'no notes; to write one: gua note --until friday "serving the demo"'
    names = user_names({entry.uid for entry in entries})
    zone = parse_zone(options.tz)
    rows = [[clean(cell, options) for cell in spell(entry, names, now_ms, zone)] for entry in entries]
    if all(entry.uid == os.geteuid() for entry in entries):
        rows = [[row[0].rpartition(".")[2], *row[2:]] for row in rows]
        titles = [COLUMNS[0], *COLUMNS[2:]]
    else:
        titles = COLUMNS
    sizes = [max(fitting.columns(row[place]) for row in [titles, *rows]) for place in range(len(titles) - 1)]
    lines = [fitting.join(row, [*sizes, 0], [False] * len(titles)) for row in [titles, *rows]]
    return "\n".join(fitting.fit(line, screen_width(), options.ascii) for line in lines)


def spell(entry: Entry, names: dict[int, str | None], now_ms: int, zone: tzinfo) -> list[str]:
    who = names.get(entry.uid) or f"uid {entry.uid}"
    if entry.note is None:
        return [entry.name, who, "-", "-", f"does not count: {entry.problem}"]
    note = entry.note
    until = "-" if note.until_ms is None else spell_until(note.until_ms, now_ms, zone)
    about = [*([note.identity] if note.identity else []), *note.gpu_uuids, *(f"pid {pid}" for pid, _ in note.processes)]
    more = f" and {len(about) - 1} more" if len(about) > 1 else ""
    ended = "" if note.is_in_force(now_ms) else "ended " if note.start_ms <= now_ms else "not yet, "
    return [entry.name, who, ended + until, about[0] + more, note.reason]


def document(entry: Entry, now_ms: int) -> dict[str, Any]:
    note = entry.note
    said = spell_note(note) if note else dict.fromkeys(SAID)
    in_force = note.is_in_force(now_ms) if note else None
    whose = {"name": entry.name, "uid": entry.uid, "counts": note is not None, "problem": entry.problem}
    return {**whose, "is_in_force": in_force, **said}


def remove(spool: Spool, options: argparse.Namespace) -> str:
    found = NAME.fullmatch(options.remove)
    if found is None:
        raise UsageError(f"bad note {options.remove!r} for --remove: expected a number of gua note --list")
    name = f"{found[1] or os.geteuid()}.{found[2]}"
    remove_note(spool, name)
    if options.json:
        return as_json(removed=name)
    return f"removed {name}"


def clean(text: str, options: argparse.Namespace) -> str:
    return to_ascii(printable(text)) if options.ascii else printable(text)
