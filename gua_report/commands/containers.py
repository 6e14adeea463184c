"""The gua-containers command."""

import argparse
import time
from collections.abc import Iterable
from typing import NoReturn

from gua_report.config import load_config
from gua_report.console import fitting
from gua_report.console.arguments import add_place, find_history
from gua_report.machine.child import ask_as_owner
from gua_report.machine.container_names import find_names, parse_wanted, take_note
from gua_report.people.containers import add_containers
from gua_sample import console
from gua_sample.containers import FILE_NAME, NOTHING, SHORT_DIGITS, Container, read_containers
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

It runs docker and podman, which say what a container is called, and reads the
names in /var/log/pods and /var/log/containers. Environments and commands are
not asked for. An owner is a hint: by the label that the configuration names,
or by a home directory that is mounted. Rootless containers have no names here:
they are their user's.
Without root, docker and podman must answer you, and the data folder be yours.
exit status: 0 done, 1 failed or nobody knows a container, 2 wrong usage,
3 there is no such data folder.
"""
DEFAULT_NOTE = f"/run/gua/{WANTED}"
FOLDER_SECONDS = 20.0
SIZES, HEADER = [23, 24, 14, 11], ["container", "name", "image", "owner"]


def entry() -> NoReturn:
    console.leave(main())


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    add_place(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="ask for this container now, whatever is known of it")
    parser.add_argument("--list", action="store_true", help="print what is known, the newest first, and ask nobody")
    parser.add_argument("--note", metavar="FILE", default=DEFAULT_NOTE, help="the sampler's note (default %(default)s)")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    wanted = dict(map(parse_id, options.ids))
    is_by_hand = bool(wanted)
    # The note first: if anything below fails and it stayed, the path unit would start this again and again.
    if not is_by_hand and not options.list:
        wanted = take_note(options.note)
    config = load_config(options.config)
    data_dir = find_history(PROG, options.data_dir)
    if options.list:
        known = ask_as_owner(data_dir, lambda: list(read_containers(data_dir).containers.items()), FOLDER_SECONDS)
        return show(sorted(((key, Container(*one)) for key, one in known), key=lambda item: -item[1].seen_ms))
    if wanted and not is_by_hand:
        unknown = ask_as_owner(data_dir, lambda: leave_out_known(data_dir, wanted), FOLDER_SECONDS)
        wanted = {key: runtime for key, runtime in wanted.items() if key in unknown}
    return learn(data_dir, wanted, config.containers.owner_label, is_by_hand) if wanted else 0


def parse_id(text: str) -> tuple[str, str]:
    found = parse_wanted(text)
    if found is None:
        raise UsageError(f"bad id {text!r}: expected 12 to 64 of the digits 0-9a-f, such as 3f2a9c81d0b7")
    return found


def leave_out_known(data_dir: str, keys: Iterable[str]) -> list[str]:
    try:
        known = read_containers(data_dir)
    except StoreError:  # it will be made anew, and a line says so then
        known = NOTHING
    return [key for key in keys if key not in known.containers]


def learn(data_dir: str, wanted: dict[str, str], label: str, is_by_hand: bool) -> int:
    found = find_names(wanted, label, time.time_ns() // 1_000_000, warn)
    if found and (lost := ask_as_owner(data_dir, lambda: add_containers(data_dir, found), FOLDER_SECONDS)):
        warn(f"{FILE_NAME} was made anew, and what was known before is lost: {lost}")
    if found and is_by_hand:
        show(found.items())
    missing = [key for key in wanted if key not in found] if is_by_hand else []
    for key in missing:
        console.complain(PROG, f"error: nobody knows {key}: is it in 'docker ps --all' or 'podman ps --all'?")
    return 1 if missing else 0


def warn(text: str) -> None:
    console.complain(PROG, f"warning: {text}")


def show(rows: Iterable[tuple[str, Container]]) -> int:
    lines = [HEADER, *(cells(key, one) for key, one in rows)]
    if len(lines) == 1:
        raise NothingToReport("no container is known yet: 'sudo make install CONTAINERS=yes' has their names looked up")
    fitted = [[fitting.fit(cell, size) for cell, size in zip(line, SIZES, strict=True)] for line in lines]
    console.say(PROG, "\n".join(fitting.join(line, SIZES, [False] * len(SIZES)) for line in fitted))
    return 0


def cells(key: str, container: Container) -> list[str]:
    hint = f"{container.owner}? {container.how}" if container.owner else ""
    return [f"{container.runtime}:{key[:SHORT_DIGITS]}", container.name, container.image or "", hint]
