"""The gua-containers command."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import NoReturn

from gua_report.console import fitting
from gua_report.console.arguments import add_place, find_history
from gua_report.machine.as_owner import ask_as_owner
from gua_report.people.containers import add_containers
from gua_sample import console
from gua_sample.containers import FILE_NAME, ID, NOTHING, POD_DIGITS, SHORT_DIGITS, Container, read_containers
from gua_sample.errors import NothingToReport, StoreError, UsageError
from gua_sample.service import WANTED

PROG = "gua-containers"
DESCRIPTION = """\
Find the names and owners of containers that the sampler saw on a card, and
keep them in containers.json in the data folder. A unit runs it as root when
the sampler asks for a name, if gua was installed with CONTAINERS=yes."""
EPILOG = """\
examples:
  sudo gua-containers                       those that the sampler wants to know
  sudo gua-containers docker:3f2a9c81d0b7   this one, as a report shows it
  gua-containers --list                     all that is known

It asks Docker's and podman's sockets, with GET alone, and reads the names of
folders in /var/log/pods. Environments and commands are not kept. A container
in a user's slice is asked of that user's own sockets, with that user's rights,
and its owner is a fact; an owner with a question mark is a hint, by the label
that the configuration names or by a home directory that is mounted.
Without root, it asks the sockets that you may open, for containers that are
the machine's or your own, and the data folder must be yours.
exit status: 0 done, 1 failed or nobody knows a container, 2 wrong usage,
3 there is no such data folder.
"""
DEFAULT_NOTE = f"/run/gua/{WANTED}"
FOLDER_SECONDS = 20.0
SIZES, HEADER = [23, 24, 14, 11], ["container", "name", "image", "owner"]


def entry() -> NoReturn:
    """Run the command and exit: the entry point of the console script."""
    console.leave(main())


def main(arguments: list[str] | None = None) -> int:
    return console.run(build_parser(), run, arguments)


def build_parser() -> console.Parser:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_place(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="ask for this container now, whatever is known of it")
    parser.add_argument("--list", action="store_true", help="print what is known, the newest first, and ask nobody")
    parser.add_argument("--note", metavar="FILE", default=DEFAULT_NOTE, help="the sampler's note (default %(default)s)")
    return parser


def run(options: argparse.Namespace) -> int:
    from gua_report.config import load_config
    from gua_report.machine.wanted_note import take_note

    named = [parse_id(text) for text in options.ids]
    # The note first: if anything below fails and it stayed, the path unit would start this again and again.
    noted = [] if named or options.list else take_note(options.note)
    config = load_config(options.config)
    data_dir = find_history(PROG, options.data_dir)
    if options.list:
        return show(ask_as_owner(data_dir, lambda: list_known(data_dir), FOLDER_SECONDS))
    now_ms = time.time_ns() // 1_000_000
    keys = named or (ask_as_owner(data_dir, lambda: choose(data_dir, noted, now_ms), FOLDER_SECONDS) if noted else [])
    return learn(data_dir, keys, config.containers.owner_label, now_ms, bool(named)) if keys else 0


def parse_id(text: str) -> str:
    """The key of a container from its id, or from an identity such as docker:3f2a9c81d0b7 or pod:UID."""
    digits = text.rpartition(":")[2].replace("-", "").lower()
    if not ID.fullmatch(digits):
        raise UsageError(f"bad id {text!r}: expected 12 to 64 of the digits 0-9a-f, such as 3f2a9c81d0b7")
    return key_of(digits)


def key_of(digits: str) -> str:
    return digits if len(digits) == POD_DIGITS else digits[:SHORT_DIGITS]


def choose(data_dir: str, noted: Iterable[str], now_ms: int) -> list[str]:
    """The keys to ask for now. Those that nobody knew before come last, in case that the time does not reach."""
    try:
        known = read_containers(data_dir)
    except StoreError:  # it will be made anew, and a line says so then
        known = NOTHING
    keys = [key for key in dict.fromkeys(map(key_of, noted)) if known.wants(key, now_ms)]
    return sorted(keys, key=lambda key: key in known.asked_ms)


def learn(data_dir: str, keys: list[str], label: str, now_ms: int, is_by_hand: bool) -> int:
    """Find the names and store them."""
    from gua_report.machine.container_names import find_names

    found, unknown = find_names(keys, label, now_ms, warn)
    lost = ask_as_owner(data_dir, lambda: add_containers(data_dir, found, unknown, now_ms), FOLDER_SECONDS)
    if lost:
        warn(f"{FILE_NAME} was made anew, and what was known before is lost: {lost}")
    if not is_by_hand:
        return 0
    if found:
        show(found.items())
    missing = [key for key in keys if key not in found]
    for key in missing:
        console.complain(PROG, f"error: nobody knows {key}: is it in 'docker ps --all' or 'podman ps --all'?")
    return 1 if missing else 0


def warn(text: str) -> None:
    console.complain(PROG, f"warning: {text}")


def list_known(data_dir: str) -> list[tuple[str, Container]]:
    """What is known, the newest first."""
    return sorted(read_containers(data_dir).containers.items(), key=lambda item: -item[1].seen_ms)


def show(rows: Iterable[tuple[str, Container]]) -> int:
    """Print a table of containers."""
    lines = [HEADER, *(cells(key, Container(*one)) for key, one in rows)]
    if len(lines) == 1:
        raise NothingToReport("no container is known yet: 'sudo make install CONTAINERS=yes' has their names looked up")
    fitted = [[fitting.fit(cell, size) for cell, size in zip(line, SIZES, strict=True)] for line in lines]
    console.say(PROG, "\n".join(fitting.join(line, SIZES, [False] * len(SIZES)) for line in fitted))
    return 0


def cells(key: str, container: Container) -> list[str]:
    owner = container.owner or ""
    hint = f"{owner}? {container.how}" if owner and not container.is_fact else owner
    digits = key.rpartition("/")[2]  # without the slice's user, who is the owner
    return [f"{container.runtime}:{digits[:SHORT_DIGITS]}", container.name, container.image or "", hint]
