"""Colour and progress, shown on a terminal only."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import TextIO, TypeVar

from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE, UNKNOWN, UNPARTITIONED

Item = TypeVar("Item")
Progress = Callable[[int, int], None]  # is told how many of how many steps are done

STATE_COLORS = {ACTIVE: "32", IDLE_HELD: "33", TRULY_IDLE: "36", UNKNOWN: "90", UNPARTITIONED: "90"}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal. None stands for a stream that was closed before the command began."""
    return stream is not None and stream.isatty()


def use_color() -> bool:
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and code and text else text


def progress_bar(verb: str = "reading") -> Progress | None:
    if not is_terminal(sys.stderr):
        return None
    shown_at = time.monotonic() + 0.4

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if done >= total:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - shown_at > 0.1:
            shown_at = time.monotonic()
            print(f"\r{verb}: {100 * done // total} %\x1b[K", end="", file=sys.stderr, flush=True)

    return show


def tracked(items: Iterable[Item], progress: Progress | None, count: int = 0) -> Iterator[Item]:
    try:
        for done, item in enumerate(items):
            if progress:
                progress(done, count or length_hint(items))
            yield item
    finally:
        if progress:
            progress(1, 1)
