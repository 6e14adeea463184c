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

That Redis is not trusted. redis-py asks it in a child, with a limit of time and one of memory: the timeouts of redis-py
are for one read each, and it reads answers of any length.
"""

import json
import re
import sys
from datetime import timezone
from typing import Any

from gua_report.machine.child import NO_ANSWER, ask, limit_memory
from gua_report.reservations.reservation import FOREVER_MS, BadEntry, Book, Reservation, complain_of, moment_ms, shown
from gua_sample.processes import printable

COUNT_KEY = "canhazgpu:gpu_count"
GPU_KEY = "canhazgpu:gpu:{}"
HISTORY_KEY = "canhazgpu:usage_history_sorted"
# The longer of the two timeouts: a late heartbeat must not make anybody unreserved.
HEARTBEAT_MS = 15 * 60_000
MOST_CARDS = 1024

CONVERSATION_SECONDS = 2.0  # from the first look-up of the server's name to the last answer
MOST_MEMORY_BYTES = 48 << 20  # all answers, of which there are several copies for a moment
LONGEST_PROBLEM = 200
LONGEST_TEXT = 1000  # of names and notes, which are shown to everybody as they are
OPTIONS = ("db", "username", "password", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
# Stricter than redis-py, which takes a part of a password with a slash for a host or a port.
OPTION = f"(?:{'|'.join(OPTIONS)})=[^&#]*"
LOGIN, QUERY = r"(?:[^/?#@]*@)?", rf"(?:\?{OPTION}(?:&{OPTION})*)?"
SERVER = re.compile(rf"(rediss?://){LOGIN}([^/?#@]*(?:/\d*)?){QUERY}")
SOCKET = re.compile(rf"(unix://){LOGIN}(/[^?#@]*){QUERY}")

Card = tuple[Any, str | None]  # its value, and why there is none although there is a key


def read(url: str, history_since_ms: int | None, book: Book) -> None:
    """Add the current reservations to the book and, if a time is given, those that ended since then."""
    try:
        cards, ended = _ask_in_time(url, history_since_ms)
    except BadEntry as error:
        book.give_up(str(error))
        return
    _add_cards(book, cards)
    _add_history(book, ended)


def _ask(redis: Any, history_since_ms: int | None) -> tuple[list[Card], list[Any]]:
    count = redis.get(COUNT_KEY)
    if count is None:
        raise BadEntry(f"no {COUNT_KEY}: is it canhazgpu's database? canhazgpu admin --gpus N sets it")
    if not isinstance(count, str) or not count.isdecimal() or len(count) > 4 or int(count) > MOST_CARDS:
        raise BadEntry(f"{COUNT_KEY} is {shown(count)}: expected a number of cards")
    with redis.pipeline(transaction=False) as pipeline:
        for index in range(int(count)):
            pipeline.get(GPU_KEY.format(index))
        found = pipeline.execute(raise_on_error=False)
    cards: list[Card] = [(None, str(value)) if isinstance(value, Exception) else (value, None) for value in found]
    if history_since_ms is None:
        return cards, []
    # The score is the end, truncated to whole seconds.
    ended = redis.zrangebyscore(HISTORY_KEY, history_since_ms // 1000 - 1, "+inf")
    if not isinstance(ended, list):
        raise BadEntry(f"{HISTORY_KEY} is {shown(ended)}: expected a list")
    return cards, ended


def _add_cards(book: Book, cards: list[Card]) -> None:
    foreign: list[str] = []
    for index, (value, problem) in enumerate(cards):
        try:
            if problem is not None:  # a value of another type
                raise BadEntry(printable(problem))
            _add_card(book, index, value)
        except BadEntry as error:
            book.unreadable.add(str(index))
            foreign.append(f"{GPU_KEY.format(index)} in Redis is not canhazgpu's: {error}")
    complain_of(foreign, "more cards in Redis are not canhazgpu's", book.complain)


def _add_card(book: Book, index: int, value: Any) -> None:
    if value is None:
        return
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
    heartbeat_ms = _time(state, "last_heartbeat") if kind == "run" else None
    if end_ms is None:
        end_ms = FOREVER_MS if heartbeat_ms is None else heartbeat_ms + HEARTBEAT_MS
    note, key = _text(state, "note"), GPU_KEY.format(index)
    book.reservations.append(
        Reservation(str(index), user, start_ms, end_ms, kind, note, key, heartbeat_ms=heartbeat_ms)
    )


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
        document = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadEntry(f"expected a JSON object, not {shown(value)}")
    return document


def _text(state: dict[str, Any], name: str) -> str:
    value = state.get(name)
    if value is not None and not (isinstance(value, str) and len(value) <= LONGEST_TEXT):
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


def _ask_in_time(url: str, history_since_ms: int | None) -> Any:
    """What _ask gives. Raises BadEntry, whose text shows no password."""
    place, client = _find(url)

    def answer() -> dict[str, Any]:
        limit_memory(MOST_MEMORY_BYTES)
        return _answer(client, history_since_ms)

    found = ask(answer, CONVERSATION_SECONDS)
    if found.problem == NO_ANSWER:
        said = f"not all answers came within {CONVERSATION_SECONDS:g} s"
    elif found.problem:
        said = f"an answer that Redis would not give, or that does not fit into {MOST_MEMORY_BYTES >> 20} MiB"
    elif "value" in found.value:
        return found.value["value"]
    else:
        said = found.value["problem"]
    if password := client.get_connection_kwargs().get("password"):
        said = said.replace(password, "...")  # a server may repeat it
    said = printable(" ".join(said.split()))[:LONGEST_PROBLEM]
    raise BadEntry(f"reservations can't be read from {place} ({said})")


def _find(url: str) -> tuple[str, Any]:
    """The URL without its login and options, and a client that has not connected yet."""
    try:
        import redis  # here, as it takes 0.3 s
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as missing:
        raise BadEntry(
            "reservations in Redis need the package redis, which is optional: sudo make install EXTRAS=redis,"
            f" or python3 -m pip --python {sys.executable} install redis"
        ) from missing
    found = SERVER.fullmatch(url) or SOCKET.fullmatch(url)
    try:
        if found is None:
            raise ValueError
        seconds = {"socket_timeout": CONVERSATION_SECONDS, "socket_connect_timeout": CONVERSATION_SECONDS}
        texts = {"decode_responses": True, "encoding_errors": "backslashreplace"}
        # It would say who it is, for which a user needs one more right.
        plain = {"protocol": 2, "driver_info": None, "retry": Retry(NoBackoff(), 0)}
        return "".join(found.groups()), redis.Redis.from_url(url, **seconds, **texts, **plain)
    except ValueError:  # the text may quote a password
        raise BadEntry(
            "[reservations] redis in the config is no URL: in a password, write / ? # @ : as %2F %3F %23 %40 %3A;"
            f" what may follow a question mark is {', '.join(OPTIONS)}"
        ) from None


def _answer(client: Any, history_since_ms: int | None) -> dict[str, Any]:
    import redis

    try:
        return {"value": _ask(client, history_since_ms)}
    except redis.TimeoutError:
        problem = f"not all answers came within {CONVERSATION_SECONDS:g} s"
    except (redis.RedisError, OSError, BadEntry) as error:
        cause = error.__context__  # of the system, in whose words it is shorter
        problem = getattr(cause, "strerror", None) or str(error)
    return {"problem": problem}
