"""gua doctor: whether sampling works on this machine, and what to do if it does not."""

import argparse
import os
import re
import sys
import textwrap
import time
from typing import Any

from gua_report.console import terminal
from gua_report.console.arguments import DATABASE_HINT
from gua_report.console.spelling import as_json
from gua_report.console.terminal import paint
from gua_report.doctor import data, driver, history, host, optional
from gua_report.doctor import user as users
from gua_report.doctor.findings import COMMENT, ERROR, OK, WARNING, Finding, error, ok, plural, shell
from gua_report.machine import units
from gua_report.machine.child import ask_as_owner
from gua_report.telling.log import check_telling
from gua_report.ticks.newest import Files, Newest, find_newest, list_history
from gua_sample import console, settings
from gua_sample.errors import DriverError, StoreError, UsageError
from gua_sample.partition_names import samples_dir
from gua_sample.rights import check_folder

PROG = "gua doctor"
DESCRIPTION = """\
Look at all that sampling needs, from the driver to the data folder, and say
what is wrong and how to mend it. Nothing is changed."""
EPILOG = """\
examples:
  gua doctor                       look at everything
  sudo gua doctor                  the same, as the sampler's user sees it
  gua doctor --json                for a machine
  gua doctor --data-dir ./try      another data folder
  gua doctor --timeout 2m          for a slow driver
  gua doctor --deep                read every tick and rollup back as well
  gua doctor --record gpu.jsonl    record the driver's answers, for a test

exit status: 0 sampling can work, 1 it can't (an error was found), 2 wrong
usage. With --record: 0 recorded, 1 the driver fails, hangs or crashes, or
the file can't be written; the file keeps what was recorded until then.
"""
RECORD_FOR, USUAL_INTERVAL_MS = "10m", 30_000
WIDTH = 78
NAME_WIDTH = 13
INDENT = " " * (NAME_WIDTH + 3)  # a mark, and a space on either side of the name
MARKS = {OK: "✓+", WARNING: "!!", ERROR: "✗x"}  # the latter in ASCII
COLORS = {OK: "32", WARNING: "33", ERROR: "31"}


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.hints = DATABASE_HINT
    parser.add_argument("--data-dir", metavar="DIR", help="where the history lives")
    parser.add_argument("--config", metavar="FILE", help="instead of /etc/gua/gua.toml")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--deep", action="store_true", help="look for bit rot: read all days back, which takes a while")
    parser.add_argument("--ascii", action="store_true", help="nothing but ASCII in the text")
    parser.add_argument("--timeout", metavar="D", default="30s", help="time limit of the driver (default %(default)s)")
    parser.add_argument("--record", metavar="FILE", help="instead of checks, record the driver's answers in a new file")
    parser.add_argument("--for", metavar="D", dest="length", help=f"how long to record (default {RECORD_FOR})")
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    seconds = settings.duration_ms(options.timeout) / 1000
    if options.record is not None and not (options.json or options.deep):
        return record(options, seconds)
    if options.record is not None or options.length is not None:
        raise UsageError("--for needs --record FILE, which goes with neither --json nor --deep")
    findings, facts = examine(*find_folder(options.data_dir), seconds, options.deep, options.config)
    if options.json:
        found = [finding._asdict() for finding in findings]
        console.say(PROG, as_json(ok=count(findings, ERROR) == 0, **facts, findings=found))
    else:
        console.say(PROG, to_text(findings, options.ascii, terminal.use_color()))
    return 1 if count(findings, ERROR) else 0


def record(options: argparse.Namespace, seconds: float) -> int:
    length_ms = settings.duration_ms(options.length or RECORD_FOR)
    if problem := driver.import_binding():
        raise DriverError("nvidia_ml_py_missing", f"NVML can't be asked ({problem})")
    from gua_report.doctor.recording import record

    data_dir, installed = find_folder(options.data_dir)
    feeding = installed.feeding(data_dir)
    interval_ms = (feeding and units.interval_ms(feeding)) or USUAL_INTERVAL_MS
    console.say(PROG, record(options.record, length_ms, interval_ms, seconds))
    return 0


def find_folder(option: str | None) -> tuple[str, units.Found]:
    data_dir = settings.data_dir(option)
    installed = units.find_units(data_dir)
    told = option or os.environ.get("GUA_DATA_DIR") or os.environ.get("STATE_DIRECTORY")
    if not told and not os.path.lexists(data_dir) and installed.units and installed.units.folder:
        data_dir = installed.units.folder
    return data_dir, installed


def examine(
    data_dir: str, installed: units.Found, driver_seconds: float, deep: bool = False, config_path: str | None = None
) -> tuple[list[Finding], dict[str, Any]]:
    feeding = installed.feeding(data_dir)
    user, sampler = data.find_sampler(feeding, data_dir)
    binding_problem = driver.import_binding()
    nodes, expected = driver.find_nodes(), driver.expected_nodes()
    seen = ask_driver(user, driver_seconds) if binding_problem is None else None
    cards = seen.cards if seen else []

    now_ms = time.time_ns() // 1_000_000
    start, roll_up, journal = commands(feeding, data_dir)
    config, about_config = optional.check_config(config_path)
    publishes = None if config is None else config.fleet.publish
    found, newest, clock, files = look_into(data_dir, now_ms, start, roll_up, deep, publishes)
    if newest and feeding:
        newest = newest.by_timer(units.interval_ms(feeding), units.next_run_ms(feeding, newest.ts_ms, now_ms))
    is_fresh = newest is not None and not newest.is_stale(now_ms)
    is_sampled = is_fresh and newest is not None and newest.error is None

    findings = [
        host.check_os(),
        host.check_python(binding_problem, is_sampled),
        *([driver.check_nodes(nodes, expected, seen, user)] if seen else []),
        *(driver.check_nvml(seen, user, is_sampled) if seen else []),
        *(
            ok("card", f"{driver.place(card)}: {card['name'] or '?'}, {card['uuid']}".replace("NVIDIA ", ""))
            for card in cards
        ),
        sampler,
        host.check_processes(user, feeding),
        *host.check_own_sight(user),
        data.check_folder(data_dir, user, feeding, start),
        *data.check_writers(data_dir),
        data.check_space(data_dir),
        *clock,
        history.check_newest(found, newest, now_ms, start, journal),
        *host.check_timer(installed, data_dir, is_fresh, now_ms, user),
        *host.check_service(installed, now_ms, newest.ts_ms if newest and feeding else None),
        *files,
        *about_config,
        *(optional.check_notes(now_ms, config) if config else []),
        *(check_telling(config, data_dir, config_path) if config else []),
    ]
    facts = {
        "data_dir": data_dir,
        "sampler_user": user.spelled,
        "driver_version": seen.driver_version if seen else None,
        "cards": len(seen.cards) if seen and seen.error is None else None,
        "newest_tick_ms": newest.ts_ms if newest else None,
        "newest_tick_is_stale": None if newest is None else not is_fresh,
        "partitions": None if found.hidden else len(found.partitions),
    }
    return findings, facts


def look_into(
    data_dir: str, now_ms: int, start: str, roll_up: str, deep: bool = False, publishes: bool | None = None
) -> tuple[Files, Newest | None, list[Finding], list[Finding]]:
    samples = samples_dir(data_dir)
    if deep:
        from gua_report.upkeep.damage import read_everything  # with pandas, which the child can't always import

    def look() -> list[Any]:
        found = list_history(samples)
        files = history.check_partitions(found, now_ms, start, terminal.progress_bar())
        files += history.check_rollups(found, now_ms, roll_up)
        files += history.check_published(data_dir, publishes, now_ms, roll_up) if publishes is not None else []
        files += optional.check_containers(data_dir)
        if deep:
            files += history.report_deep_check(*read_everything(data_dir, terminal.progress_bar("reading back")))
        return [found, find_newest(found, now_ms), history.check_clock(found, now_ms), files]

    try:
        check_folder(data_dir)
        found, newest, *findings = ask_as_owner(data_dir, look)
    except StoreError as problem:
        trouble = error(data.FOLDER, f"{data_dir} can't be looked into: {problem}", shell("ls", "-la", data_dir))
        return Files(samples, [], [], str(problem)), None, [], [trouble]
    clock, files = ([Finding(*finding) for finding in group] for group in findings)
    return Files(*found), Newest(*newest) if newest else None, clock, files


def ask_driver(user: users.User, seconds: float) -> driver.NvmlAnswer:
    shows = terminal.is_terminal(sys.stderr)
    if shows:
        print(f"\rasking the driver, for {seconds:g} s at most\x1b[K", end="", file=sys.stderr, flush=True)
    try:
        return driver.look(user, seconds)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def commands(feeding: units.Units | None, data_dir: str) -> tuple[str, str, str]:
    if feeding:
        return f"{feeding.systemctl} start gua-sample", f"{feeding.systemctl} start gua-rollup", feeding.journal
    by_hand = shell("gua-sample", "--data-dir", data_dir)
    return by_hand, shell("gua", "rollup", "--data-dir", data_dir), by_hand


def count(findings: list[Finding], status: str) -> int:
    return sum(finding.status == status for finding in findings)


def to_text(findings: list[Finding], ascii_only: bool = False, color: bool = False) -> str:
    lines = []
    for check, status, text, remedy in findings:
        if ascii_only:
            text, remedy = escape(text), remedy and escape(remedy)
        first, *others = textwrap.wrap(text, WIDTH - len(INDENT), break_on_hyphens=False) or [""]
        lines.append(f"{paint(MARKS[status][ascii_only], COLORS[status], color)} {check:<{NAME_WIDTH}} {first}")
        lines += [INDENT + line for line in others]
        lines += wrap_command(remedy) if remedy else []
    return "\n".join([*lines, "", paint(summary(findings), "1", color)])


def wrap_command(text: str) -> list[str]:
    """Wrap a command so that it still works when pasted into a shell: words stay whole, a comment is apart."""
    typed, _, comment = text.partition(COMMENT)
    width = WIDTH - len(INDENT) - len("->  \\")
    lines = [""]
    for word in re.findall(r"""(?:'[^']*'|"[^"]*"|\S)+""", typed):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    lines = [line + " \\" for line in lines[:-1]] + lines[-1:]
    if comment and len(lines[-1] + COMMENT + comment) <= width:
        lines[-1] += COMMENT + comment
    elif comment:
        lines += ["# " + line for line in textwrap.wrap(comment, width - 2, break_on_hyphens=False)]
    return [f"{INDENT}{'   ' if number else '-> '}{line}" for number, line in enumerate(lines)]


def summary(findings: list[Finding]) -> str:
    errors, warnings = count(findings, ERROR), count(findings, WARNING)
    counts = ", ".join(plural(number, noun) for number, noun in ((errors, ERROR), (warnings, WARNING)) if number)
    if errors:
        return f"{counts}: sampling does not work"
    newest = next(finding for finding in findings if finding.check == history.NEWEST)
    if warnings:
        return f"{counts}: " + ("sampling works" if newest.status == OK else "nothing found that prevents sampling")
    return f"all is well: newest tick {newest.text}"


def escape(text: str) -> str:
    """The text in ASCII. No character is replaced by a similar one: a command must not come to mean another file."""
    return text.encode("ascii", "backslashreplace").decode()
