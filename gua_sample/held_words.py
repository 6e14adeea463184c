"""The words by which people are told that they hold a card without work: at login, in one's own report, by mail."""

# No `from __future__ import annotations` here: see records.py.
from datetime import datetime, tzinfo

# Not from strftime, which follows the locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ADVICE = "Done? End the process."
# People choose the names of their processes. Nothing is left of them that a shell or a terminal could act on. Not a
# regular expression, as compiling one would take longer than all the rest.
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")
LONGEST_COMMAND = 40


def tell_held(
    gpu: str,
    memory_mib: float | None,
    since: str | None,
    pid: int,
    command: str | None,
    who: str | None = None,
) -> str:
    """A sentence for whoever holds the card, with advice; or about them, if `who` names them. None: not known."""
    sentence = spell_held(gpu, memory_mib, since, pid, command, who)
    return sentence if who is not None else f"{sentence} {ADVICE}"


def spell_held(
    gpu: str,
    memory_mib: float | None,
    since: str | None,
    pid: int,
    command: str | None,
    who: str | None = None,
) -> str:
    """The sentence without the advice."""
    memory = "memory" if memory_mib is None else f"{memory_mib / 1024:.1f} GiB"
    begin = f"you hold {memory}" if who is None else f"{who} holds {memory}"
    how_long = f" since {since}" if since else ""
    return f"{begin} on GPU {gpu} without work{how_long} (pid {pid}, {plain(command)})."


def spell_since(since_ms: float, now_ms: float, zone: tzinfo | None = None) -> str:
    """The time in the zone, or by this machine's clock: 09:45, or 13 Nov 09:45 if it was not today."""
    since, now = (datetime.fromtimestamp(ms / 1000, zone) for ms in (since_ms, now_ms))
    day = "" if since.date() == now.date() else f"{since.day:02} {MONTHS[since.month - 1]} "
    return f"{day}{since.hour:02}:{since.minute:02}"


def plain(command: str | None) -> str:
    """The name of a command in letters, digits and . _ + - alone."""
    return "".join(c if c in SAFE else "_" for c in (command or "")[:LONGEST_COMMAND]) or "unknown"
