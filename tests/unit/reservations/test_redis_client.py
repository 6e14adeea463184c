"""URLs of Redis: none shows its password, and none is guessed at. The answers may be of any size."""

from collections.abc import Iterator

import pytest

from gua_report.reservations import canhazgpu
from gua_report.reservations.reservation import Book
from tests.redis_server import Canhazgpu, needs_redis, redis_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canhazgpu]:
    with redis_server(tmp_path_factory.mktemp("redis")) as found:
        yield found


def problems_of(url: str) -> list[str]:
    """What is said of reservations that can't be read from there."""
    problems: list[str] = []
    book = Book(problems.append)
    canhazgpu.read(url, 0, book)
    assert not book.is_complete
    return problems


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0"),
        ("redis://gua:hunter2@127.0.0.1:1", "redis://127.0.0.1:1"),
        ("redis://:hunter2@[::1]:1/1", "redis://[::1]:1/1"),
        ("rediss://127.0.0.1:1/0?password=hunter2", "rediss://127.0.0.1:1/0"),
        ("unix://gua:hunter2@/run/hunter2.sock?db=1", "unix:///run/hunter2.sock"),
    ],
)
def test_a_problem_names_the_place_without_a_password(url: str, place: str) -> None:
    (said,) = problems_of(url)
    assert said.startswith(f"reservations can't be read from {place} (")
    assert "hunter2" not in said.replace(place, "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/@:@host",
        "redis://:hunter2?@host",
        "redis://:hunter2@[",
        "redis://gua:12345/x@host",
        "redis://gua:12345?x@host",
        "redis://gua:12345#x@host",
        "redis://host:hunter2/0",
        "redis://host/0?socket_timeout=600",
        "redis://host/-1",
        "redis://host/0?db=hunter2",
        "redis://[",
        "unix://host/run/redis.sock",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_rather_than_guessed_at(url: str) -> None:
    (said,) = problems_of(url)
    assert said.startswith("[reservations] redis in the config is no URL: ")
    assert "hunter2" not in said
    assert "12345" not in said


@needs_redis
def test_a_long_history_is_read_as_a_whole(server: Canhazgpu) -> None:
    server.admin(1)
    for number in range(20_000):
        server.record(number % 8, f"user{number}", 1.7e9 + number, 1.7e9 + number + 3600)
    book = Book(pytest.fail)
    canhazgpu.read(server.url, 0, book)
    assert len(book.reservations) == 20_000


@needs_redis
def test_a_history_beyond_memory_is_not_known(server: Canhazgpu) -> None:
    server.admin(1)
    server.client.zadd("canhazgpu:usage_history_sorted", {b"x" * (150 << 20): 1.7e9})
    (problem,) = problems_of(server.url)
    assert problem.endswith("(an answer that Redis would not give, or that does not fit into 48 MiB)")
