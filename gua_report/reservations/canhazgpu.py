"""Reservations that canhazgpu keeps in Redis. Once connected, only GET and ZRANGEBYSCORE are ever sent.

Facts from https://github.com/russellb/canhazgpu: internal/types/types.go, internal/redis_client/client.go and, for
the version in Python, the script canhazgpu.
- `canhazgpu:gpu_count` is the number of cards, `canhazgpu:gpu:<index>` a JSON object for each. Without a `user`
  the card is available, and `last_released` is when it became so. `user` may be a name of the user's choice;
  `actual_user` (newer versions) is the account.
- A reservation is written with epoch seconds, and each heartbeat of the Go version rewrites it with RFC 3339 times and
  null for unset ones.
- A reservation of type run ends with its heartbeats, which come every 60 s: it is released 15 minutes after the last
  one, 5 minutes in newer versions, and only when somebody runs canhazgpu. A heartbeat of the version in Python leaves
  the type out.
- `canhazgpu:usage_history_sorted` has the released reservations, by the second of their end, for 90 days.
"""

from __future__ import annotations

import json
from datetime import timezone
from typing import Any

from gua_report.reservations.redis_client import (
    CONVERSATION_SECONDS,
    Conversation,
    ErrorAnswer,
    NoConversation,
    converse,
)
from gua_report.reservations.redis_url import OPTIONS, BadUrl, parse_url
from gua_report.reservations.reservation import FOREVER_MS, BadEntry, Book, FewLines, Reservation, moment_ms, shown

COUNT_KEY = "canhazgpu:gpu_count"
GPU_KEY = "canhazgpu:gpu:{}"
HISTORY_KEY = "canhazgpu:usage_history_sorted"
# The longer of the two timeouts: a late heartbeat must not make anybody unreserved.
HEARTBEAT_MS = 15 * 60_000
MOST_CARDS = 1024


def read(url: str, history_since_ms: int | None, book: Book) -> None:
    """Add the current reservations to the book and, if a time is given, those that ended since then."""
    try:
        address = parse_url(url)
    except BadUrl:
        book.give_up(
            "[reservations] redis in the config is no URL: in a password, write / ? # @ : as %2F %3F %23 %40 %3A;"
            f" what may follow a question mark is {', '.join(OPTIONS)}"
        )
        return
    try:
        with converse(address) as server:
            cards, ended = _ask(server, history_since_ms)
    except TimeoutError:
        said = f"not all answers came within {CONVERSATION_SECONDS:g} s"
    except OSError as error:
        said = error.strerror or str(error)
    except (NoConversation, BadEntry) as error:
        said = str(error)
    else:
        _add_cards(book, cards)
        _add_history(book, ended)
        return
    book.give_up(f"reservations can't be read from {address.place()} ({address.hide_secrets(said)})")


def _ask(server: Conversation, history_since_ms: int | None) -> tuple[list[Any], list[Any]]:
    """The values of all cards, and the entries of the history."""
    count = server.ask("GET", COUNT_KEY)
    if count is None:
        raise BadEntry(f"no {COUNT_KEY}: is it canhazgpu's database? canhazgpu admin --gpus N sets it")
    if not isinstance(count, bytes) or not count.isdigit() or len(count) > 4 or int(count) > MOST_CARDS:
        raise BadEntry(f"{COUNT_KEY} is {shown(count)}: expected a number of cards")
    cards = server.ask_all(("GET", GPU_KEY.format(index)) for index in range(int(count)))
    if history_since_ms is None:
        return cards, []
    # The score is the end, truncated to whole seconds.
    ended = server.ask("ZRANGEBYSCORE", HISTORY_KEY, history_since_ms // 1000 - 1, "+inf")
    if not isinstance(ended, list):
        raise BadEntry(f"{HISTORY_KEY} is {shown(ended)}: expected a list")
    return cards, ended


def _add_cards(book: Book, values: list[Any]) -> None:
    foreign = FewLines(book.complain, "more cards in Redis are not canhazgpu's")
    for index, value in enumerate(values):
        try:
            _add_card(book, index, value)
        except BadEntry as error:
            book.unreadable.add(str(index))
            foreign.say(f"{GPU_KEY.format(index)} in Redis is not canhazgpu's: {error}")
    foreign.finish()


def _add_card(book: Book, index: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, ErrorAnswer):  # a value of another type
        raise BadEntry(str(value))
    state = _object(value)
    released = _time(state, "last_released")
    if released is not None:
        book.released_ms[str(index)] = released
    user = _text(state, "actual_user") or _text(state, "user")
    if not user:
        return
    start_ms = _time(state, "start_time")
    if start_ms is None:
        raise BadEntry(f"reserved by {shown(user)} without a start_time")
    kind = _text(state, "type") or "run"
    end_ms = _time(state, "expiry_time")
    if end_ms is None:
        heartbeat = _time(state, "last_heartbeat") if kind == "run" else None
        end_ms = FOREVER_MS if heartbeat is None else heartbeat + HEARTBEAT_MS
    key = GPU_KEY.format(index)
    book.reservations.append(Reservation(str(index), user, start_ms, end_ms, kind, _text(state, "note"), key))


def _add_history(book: Book, members: list[Any]) -> None:
    bad = []
    for member in members:
        try:
            record = _object(member)
            index, user = record.get("gpu_id"), _text(record, "user")
            start_ms, end_ms = _time(record, "start_time"), _time(record, "end_time")
            if type(index) is not int or index < 0 or not user or start_ms is None or end_ms is None:
                raise BadEntry(f"expected user, gpu_id, start_time and end_time in {shown(member)}")
        except BadEntry as error:
            bad.append(str(error))
            continue
        kind = _text(record, "reservation_type") or "run"
        if end_ms > start_ms:
            book.reservations.append(Reservation(str(index), user, start_ms, end_ms, kind, "", HISTORY_KEY))
    if bad:
        book.complain(f"{HISTORY_KEY} in Redis: {len(bad)} of {len(members)} entries are not canhazgpu's: {bad[0]}")


def _object(value: object) -> dict[str, Any]:
    try:
        document = json.loads(value) if isinstance(value, bytes) else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadEntry(f"expected a JSON object, not {shown(value)}")
    return document


def _text(state: dict[str, Any], name: str) -> str:
    value = state.get(name)
    if value is not None and not isinstance(value, str):
        raise BadEntry(f"expected a text as {name}, not {shown(value)}")
    return value or ""


def _time(state: dict[str, Any], name: str) -> int | None:
    value = state.get(name)
    if value is None:
        return None
    ts_ms = moment_ms(value, timezone.utc)
    if ts_ms is None:
        raise BadEntry(f"expected a time as {name}, not {shown(value)}")
    return ts_ms
