"""Behaviour shared by all commands: one-line errors, exit codes, output to a closed pipe."""

import argparse
import gc
import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from gua_sample import __version__
from gua_sample.errors import LOGGED_BEFORE, GuaError, UsageError
from gua_sample.processes import printable


class Parser(argparse.ArgumentParser):
    def __init__(self, prog: str, description: str, epilog: str) -> None:
        as_it_is = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=as_it_is, allow_abbrev=False)
        self.hints: Mapping[str, str] = {}  # what to say of options that others know from another tool
        self.add_argument("--version", action="version", version=f"{prog} {__version__}")
        self.add_argument("--debug", action="store_true", help="show a traceback if something fails")

    def error(self, message: str) -> NoReturn:
        given = {word.partition("=")[0] for word in message.split()}
        hint = next((f"{option} is {text}" for option, text in self.hints.items() if option in given), message)
        raise UsageError(f"{hint} (see {self.prog} --help)")


def run(
    parser: Parser,
    body: Callable[[argparse.Namespace], int],
    arguments: list[str] | None,
    was_logged: Callable[[str], bool] = lambda text: False,
) -> int:
    # To import pandas makes 100,000 objects, none of them garbage: to look for it is a tenth of a short report.
    gc.set_threshold(1_000_000)
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # false if the stream is closed, or in a notebook
            stream.reconfigure(errors="backslashreplace")
    try:
        options = parser.parse_args(arguments)
        if not prints_utf_8() and getattr(options, "output", None) is None:
            options.ascii = True
        return body(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the outermost handler: it reports every error in one line
        if debug:
            show_traceback()
            return error.exit_code if isinstance(error, GuaError) else 1
        known = isinstance(error, GuaError | OSError)
        text = str(error) if known else f"{type(error).__name__}: {error} (this is a bug; --debug shows where)"
        text = import_failed(error) if isinstance(error, ImportError) else text
        if was_logged(text):
            return LOGGED_BEFORE
        complain(parser.prog, f"error: {text}")
        return error.exit_code if isinstance(error, GuaError) else 1


def import_failed(error: ImportError) -> str:
    """The message for a module that can't be imported, perhaps because root became another user."""
    return f"{error}; can uid {os.geteuid()} read all of {sys.prefix}? Install gua where everybody can read it"


def show_traceback() -> None:
    """Print the current traceback, escaped: it may quote a file."""
    import traceback

    if sys.stderr is not None:
        for line in traceback.format_exc().splitlines():
            print(printable(line), file=sys.stderr)


def leave(status: int, needs_output: bool = False) -> NoReturn:
    """Exit without interpreter teardown, which would take a sixth of the time of a tick."""
    status = status or int(needs_output and bool(lost_output))
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


lost_output: list[OSError] = []


def say(prog: str, text: str) -> bool:
    """Print the text and return whether that worked; a closed pipe is ignored."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Otherwise the interpreter would flush again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            lost_output.append(error)
            complain(prog, f"warning: standard output can't be written ({error.strerror})")
        return False
    return True


def prints_utf_8() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # None: closed, or kept in memory
    return encoding.lower() in ("utf-8", "utf8")


def complain(prog: str, message: str) -> None:
    """Print one line on stderr; in the journal, with a priority instead of the program's name, which is there already.

    It is escaped: SQLite's errors quote names from a file, which must not steer the terminal.
    """
    if sys.stderr is None:  # closed: print would take stdout instead
        return
    message = printable(message)
    priority = "<4>" if message.startswith("warning") else "<3>"
    print(f"{priority if is_journal() else prog + ': '}{message}", file=sys.stderr)


def plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{ending}"


def is_journal() -> bool:
    """Whether stderr is the journal. Systemd names the stream, but stderr may have been redirected since."""
    with suppress(OSError):
        found = os.fstat(2)
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False
