"""The gua page command."""

import argparse
import os
from functools import partial

from gua_report.config import load_config
from gua_report.console.arguments import ZONE, add_place, choose, find_history
from gua_report.console.whole_file import check_place, open_folder, whole_file
from gua_report.machine.child import ask_as_owner
from gua_report.render import GROUPS, NAMES, NONE, PEOPLE
from gua_report.window import parse_window
from gua_sample import console
from gua_sample.errors import GuaError, NothingToReport, UsageError

PROG = "gua page"
DESCRIPTION = """\
Write the report as pages for a web server: index.html (the last week),
month.html and year.html. Whose names are on them is yours to decide."""
EPILOG = """\
examples:
  gua page /srv/www/gua --names people   who held which card, by name
  gua page /srv/www/gua --names groups   the groups of the config instead
  gua page /srv/www/gua --names none     person 1, person 2, ...
  gua page ./pages --names none --page week --page month

The files can be read by those who can read the history. contrib/web has units
that renew them, and shows how a web server asks for a password.
exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to report.
"""
PAGES = ("week", "month", "year")


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("folder", metavar="DIR", help="where to write them; made if there is none")
    parser.add_argument("--names", metavar="WHOSE", help=f"{PEOPLE}, {GROUPS} or {NONE}; there is no default")
    which = f"only this one; may be repeated: {', '.join(PAGES)}"
    parser.add_argument("--page", metavar="NAME", action="append", help=which)
    parser.add_argument("--costs", action="store_true", help="with what it costs, by the prices in the config")
    parser.add_argument("--tz", metavar="ZONE", help=ZONE)
    add_place(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.names is None:
        raise UsageError(
            f"--names is missing: {PEOPLE} publishes who held which card, {GROUPS} which group, {NONE} numbers people"
        )
    whose = choose(options.names, "--names", NAMES)
    chosen = {choose(name, "page", PAGES) for name in options.page or PAGES}
    config = load_config(options.config)
    if not options.costs:
        config = config._replace(price_per_gpu_hour=None, price_per_kwh=None)
    if whose == GROUPS and not config.groups:
        raise UsageError("--names groups: no groups are configured, see [groups] in gua.toml")
    if whose == NONE:
        config = config._replace(groups={})  # a group of one is a name
    now = parse_window("1s", None, None, options.tz)
    data_dir = find_history(PROG, options.data_dir)
    check_folder(options.folder)

    from gua_report.render.page_set import FILES, Pages, make_pages, window_of
    from gua_report.summary.build import build_report
    from gua_report.summary.report import spell_doctor
    from gua_report.summary.reserved_hours import read_told

    paths = {name: os.path.join(options.folder, FILES[name]) for name in PAGES}
    names = [name for name in PAGES if name in chosen]
    for name in names:
        check_place(paths[name])
    links = [name for name in PAGES if name in chosen or os.path.isfile(paths[name])]
    told = read_told(config, window_of(names[-1], now).start_ms)
    build = partial(build_report, data_dir, config=config, told=told)
    pages = Pages(*ask_as_owner(data_dir, lambda: make_pages(build, now, names, links, whose)))
    for warning in pages.warnings:
        console.complain(PROG, f"warning: {warning}")
    for name in names:
        with whole_file(paths[name], readers=data_dir) as file:
            file.write(pages.texts[name].encode())
    if pages.is_empty:
        raise NothingToReport(f"nothing was observed, and the pages say so: run {spell_doctor(data_dir)} to see why")
    return 0


def check_folder(folder: str) -> None:
    """Make the folder if there is none. Raise GuaError if it can't be written to: before reports are made."""
    if not os.path.isdir(folder):
        try:
            around, name = open_folder(folder, follow=False)
            os.mkdir(name, dir_fd=around)
            os.close(around)
        except OSError as error:
            above = os.path.dirname(os.path.abspath(folder))
            make = "" if os.path.lexists(above) else f"make {above} first, or "
            raise GuaError(f"{folder} can't be made ({error.strerror}): {make}give another folder") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise GuaError(f"{folder} can't be written by this user: give another folder, or its owner's rights")
