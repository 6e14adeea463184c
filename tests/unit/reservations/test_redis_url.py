"""URLs of Redis: none shows its password, and none is guessed at."""

from __future__ import annotations

import pytest

from gua_report.reservations.redis_url import BadUrl, parse_url


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://", "redis://localhost:6379/0"),
        ("redis://gua:hunter2@host/1", "redis://host:6379/1"),
        ("redis://:hunter2@[::1]:7000", "redis://[::1]:7000/0"),
        ("rediss://host/0?password=hunter2", "rediss://host:6379/0"),
        ("unix://gua:hunter2@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_a_place_has_no_password(url: str, place: str) -> None:
    address = parse_url(url)
    assert address.place() == place
    assert (address.password or "hunter2") == "hunter2"
    assert "hunter2" not in address.hide_secrets(f"no such server: {url}")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/@:@host",
        "redis://:hunter2?@host",
        "redis://gua:12345/x@host",
        "redis://gua:12345?x@host",
        "redis://gua:12345#x@host",
        "redis://host/0?socket_timeout=600",
        "redis://host/-1",
        "redis://[",
        "unix://host/run/redis.sock",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_rather_than_guessed_at(url: str) -> None:
    with pytest.raises(BadUrl, match=r"^$"):
        parse_url(url)
