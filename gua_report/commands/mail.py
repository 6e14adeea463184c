"""The gua mail command."""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from gua_report.config import SYSTEM_CONFIG, Config, Mail, load_config
from gua_report.console import terminal
from gua_report.console.addresses import is_address
from gua_report.console.arguments import ZONE, add_place, check_exists
from gua_report.console.spelling import to_ascii
from gua_report.fleet.asked import AskedFleet, ask_fleet, refuse_root
from gua_report.machine.child import ReadingFailed, ask_apart, understanding
from gua_report.mailing.message import (
    SECONDS,
    Attachment,
    Letter,
    build_message,
    host_name,
    paragraph,
    send,
    show_message,
    sign,
    text_of,
)
from gua_report.render import LONG_EPISODE, WHAT_COUNTS
from gua_report.window import DEFAULT_SINCE, Window, parse_window, show
from gua_sample import console, settings
from gua_sample.errors import GuaError, UsageError
from gua_sample.partition_file import check_types
from gua_sample.processes import printable
from gua_sample.rights import check_folder

if TYPE_CHECKING:
    from gua_report.render.mail import MailParts, Mails

PROG = "gua mail"
DESCRIPTION = """\
Mail the report: in brief as the text, with its page attached, and a subject
that says the most important. A report that fails is mailed as a failure."""
EPILOG = """\
examples:
  gua mail --dry-run                  see what would be sent
  gua mail                            to those in [mail] of gua.toml: the
                                      administrator, and heads of groups
  gua mail --to ada@lab.example --to ben@lab.example
  gua mail --since 30d --quiet-if-clean 4h
  gua mail --fleet /srv/gua           of many hosts; not as root

The head of a group ([mail.groups]) gets the report of its people alone.
It is sent by the machine's sendmail, or by the server in [mail] smtp. What
can't be sent is printed. contrib/mail has a timer, and a line for cron.
exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to report.
"""
MOST_WARNINGS = 10
FLEET = "fleet"  # in the name of its page, where others have their host's
# For the report, and for all mails together: the unit of contrib/mail gives 15 minutes. A server that hangs has used up
# the time of the mails after some of them; then each of the others still gets a short try.
REPORT_SECONDS, SENDING_SECONDS, LEAST_SECONDS = 600.0, 240.0, 2.0
MOST_PAGE_BYTES = 6 << 20  # encoded it is a third more, and many servers take 10 MB


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    whom = "whom to send it to, instead of those in [mail] of the config; may be repeated"
    parser.add_argument("--to", metavar="ADDRESS", action="append", help=whom)
    parser.add_argument("--since", metavar="D", help=f"how far back, or a time (default {DEFAULT_SINCE})")
    parser.add_argument("--tz", metavar="ZONE", help=ZONE)
    quiet = f"send nothing unless there is something to act on: {WHAT_COUNTS}"
    parser.add_argument("--quiet-if-clean", metavar="D", nargs="?", const=LONG_EPISODE, help=quiet)
    parser.add_argument("--fleet", metavar="DIR", help="of all hosts with a file in DIR/<host>/ (docs/fleet.md)")
    parser.add_argument("--dry-run", action="store_true", help="print the mail instead of sending it")
    add_place(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    if options.fleet is not None:
        if options.data_dir is not None:
            raise UsageError("--fleet and --data-dir are two reports: give one of them")
        refuse_root()
    config = load_config(options.config)
    to = find_recipients(options.to, config.mail, options.dry_run)
    window = parse_window(options.since, None, None, options.tz)
    quiet = options.quiet_if_clean is not None
    longest_ms = settings.duration_ms(options.quiet_if_clean if quiet else LONG_EPISODE)
    data_dir = settings.data_dir(options.data_dir)
    heads = {} if options.to else dict(config.mail.groups)
    try:
        if options.fleet is not None:
            from gua_report.render.mail import make_mails

            report = ask_fleet(AskedFleet(options.fleet, window, config, since=options.since))
            made = make_mails(report, longest_ms, heads)
        else:
            made = make(data_dir, config, window, longest_ms, tuple(heads))
    except (GuaError, ReadingFailed) as error:
        if terminal.is_terminal(sys.stderr) or console.is_journal():  # cron would mail it once more
            console.complain(PROG, f"error: {error}")
        text = paragraph(f"There is no report: {error}") + "\n" + sign(PROG) + "."
        failure = Letter(to, f"{host_name()}: GPU report failed", text)
        return post(failure, config.mail, options.dry_run) or getattr(error, "exit_code", 1)
    deadline = time.monotonic() + SENDING_SECONDS
    status = 0
    of_heads = [([heads[group]], parts) for group, parts in made.groups.items()]
    for recipients, parts in [(to, made.administrator), *of_heads]:
        whom = ", ".join(recipients)
        if isinstance(parts, str):
            console.complain(PROG, f"error: nothing is sent to {whom}: {printable(parts)}")
            status = 1
        elif quiet and parts.is_clean and not parts.warnings:
            tell(f"nothing to act on: nothing is sent to {whom}")
        else:
            letter = write_letter(parts, recipients, window, host_name() if options.fleet is None else FLEET)
            status = max(status, post(letter, config.mail, options.dry_run, deadline - time.monotonic()))
    return status


def find_recipients(given: list[str] | None, mail: Mail, dry_run: bool) -> list[str]:
    found = given or ([mail.administrator] if mail.administrator else [])
    if not found and not dry_run:
        raise UsageError(f"nobody to mail to: set administrator in [mail] of {SYSTEM_CONFIG}, or give --to ADDRESS")
    for address in found:
        if not is_address(address):
            raise UsageError(f"bad address {address!r} for --to: expected one such as ada@lab.example")
    return list(dict.fromkeys(found))


def make(data_dir: str, config: Config, window: Window, longest_ms: int, groups: tuple[str, ...]) -> "Mails":
    opening = check_folder(data_dir)
    check_exists(data_dir)
    from gua_report.render import mail
    from gua_report.summary.build import build_report
    from gua_report.summary.reserved_hours import read_told

    told = read_told(config, window.start_ms)

    def answer() -> "Mails":
        return mail.make_mails(build_report(data_dir, window, config, told=told), longest_ms, groups)

    with understanding():
        made = check_mails(ask_apart(data_dir, answer, REPORT_SECONDS), groups)
    warnings = [*([opening] if opening else []), *made.administrator.warnings]
    return made._replace(administrator=made.administrator._replace(warnings=warnings))


def check_mails(answer: Any, groups: tuple[str, ...]) -> "Mails":
    from gua_report.render.mail import MailParts, Mails

    def check(answer: Any) -> "MailParts":
        made = MailParts(*check_types(tuple(answer), str, str, str, list, bool))
        check_types(tuple(made.warnings), *[str] * len(made.warnings))
        return made

    administrator, by_group = answer
    found = {group: by_group[group] for group in groups}
    of_groups = {group: made if isinstance(made, str) else check(made) for group, made in found.items()}
    return Mails(check(administrator), of_groups)


def write_letter(made: "MailParts", to: list[str], window: Window, whose: str) -> Letter:
    warnings = [paragraph(f"Warning: {warning}") + "\n" for warning in made.warnings[:MOST_WARNINGS]]
    if len(made.warnings) > MOST_WARNINGS:
        warnings.append(f"and {console.plural(len(made.warnings) - MOST_WARNINGS, 'more warning')}\n")
    text = made.text + "".join(["\n", *warnings] if warnings else [])
    if not made.page:
        return Letter(to, made.subject, text + sign(PROG) + ".")
    if len(made.page) > MOST_PAGE_BYTES:
        text += sign(PROG) + ". Its page is too large for a mail: gua report --format html."
        return Letter(to, made.subject, text, has_tables=True)
    name = f"gpu-use-{whose}-{show(window.end_ms, window.zone, '%Y-%m-%d')}.html"
    text += sign(PROG) + ". The page attached has all of it, with pictures."
    return Letter(to, made.subject, text, (Attachment(name, made.page),), has_tables=True)


def post(letter: Letter, mail: Mail, dry_run: bool, seconds_left: float = SENDING_SECONDS) -> int:
    message = build_message(letter, mail.sender)
    if dry_run:
        print_out(show_message(message))
        return 0
    failed = send(message, letter.to, mail, min(SECONDS, max(seconds_left, LEAST_SECONDS)))
    for address, why in failed.items():
        console.complain(PROG, f"error: not sent to {address}: {why}")
    if len(failed) == len(letter.to):
        print_out(text_of(message))  # for the journal, or for cron to mail
    elif not failed:
        tell(f"sent to {', '.join(letter.to)}: {letter.subject}")
    return 1 if failed else 0


def print_out(text: str) -> None:
    console.say(PROG, text if console.prints_utf_8() else to_ascii(text))


def tell(text: str) -> None:
    """Say it to a person, and not to cron, which would make a mail of it."""
    if terminal.is_terminal(sys.stdout):
        console.say(PROG, printable(text))
