"""Address and login of a Redis server, from a URL as redis-cli and redis-py take it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_PORT = 6379
OPTIONS = ("db", "username", "password", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class BadUrl(Exception):
    """An invalid URL. The error does not quote it, as it may hold a password in any place."""


class Address(NamedTuple):
    scheme: str  # redis, rediss (TLS) or unix
    host: str  # for unix, the path of the socket
    port: int
    database: int
    user: str
    password: str
    tls: dict[str, str]

    def place(self) -> str:
        """The server's URL without user and password."""
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.database}"

    def hide_secrets(self, text: str) -> str:
        """The text without the password, which a server may have repeated in its answer."""
        return text.replace(self.password, "...") if self.password else text


def parse_url(url: str) -> Address:
    """The address in a URL: redis://user:password@host:port/0, the same with rediss, or
    unix://user:password@/path?db=0."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)) if parts.query else {}
        is_path = parts.scheme == "unix"
        database = options.get("db") or ("" if is_path else parts.path.strip("/")) or "0"
        address = Address(
            parts.scheme,
            unquote(parts.path) if is_path else parts.hostname or "localhost",
            parts.port or DEFAULT_PORT,
            int(database),
            options.get("username") or unquote(parts.username or ""),
            options.get("password") or unquote(parts.password or ""),
            {name: value for name, value in options.items() if name.startswith("ssl_")},
        )
    except ValueError:
        raise BadUrl from None
    is_understood = parts.scheme in ("redis", "rediss", "unix") and set(options) <= {*OPTIONS} and not parts.fragment
    # Otherwise a password with a slash would end up as host or path.
    if not is_understood or "@" in address.host or not database.isdigit() or (is_path and parts.hostname):
        raise BadUrl
    return address
