"""Habits that all commands share: one-line errors that say what to do, exit codes, output nobody may be reading."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from gua_sample import __version__
from gua_sample.errors import GuaError, UsageError


class Parser(argparse.ArgumentParser):
    """With --version and --debug, no guessing of abbreviated options, and errors of one line."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action="version", version=f"{prog} {__version__}")
        self.add_argument("--debug", action="store_true", help="show a traceback if something fails")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def run(parser: Parser, body: Callable[[argparse.Namespace], int], arguments: list[str] | None) -> int:
    """Parse, call, and turn whatever goes wrong into a line on stderr and an exit code."""
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not if it is closed, nor in a notebook
            stream.reconfigure(errors="backslashreplace")
    try:
        return body(parser.parse_args(arguments))
    except (GuaError, OSError) as error:
        if debug:
            raise
        complain(parser.prog, f"error: {error}")
        return error.exit_code if isinstance(error, GuaError) else 1
    except KeyboardInterrupt:
        return 130


def leave(status: int) -> NoReturn:
    """End at once: to tear the interpreter down would take a sixth of what a tick or a short report costs."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def say(prog: str, text: str) -> None:
    """Print, and don't mind if nobody listens any more."""
    try:
        print(text, flush=True)
    except OSError as error:
        # Or the interpreter would try to flush again on its way out, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            complain(prog, f"warning: standard output can't be written ({error.strerror})")


def complain(prog: str, message: str) -> None:
    print(f"{prog}: {message}", file=sys.stderr)
