"""Mail addresses and mail servers that a user gives. Strict, since they become headers and arguments of commands."""

import re
from contextlib import suppress
from typing import NamedTuple

LONGEST_ADDRESS, LONGEST_LOCAL_PART, LONGEST_DOMAIN = 254, 64, 253
# No quotes, comments, display names or lists, and no "-" at the start, which a command would take for an option.
LOCAL_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(?:\.[A-Za-z0-9_+-]+)*")
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
PORTS = {"smtp": 587, "smtps": 465}


class Server(NamedTuple):
    scheme: str  # smtp: TLS by STARTTLS; smtps: TLS from the first byte
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def is_address(text: str) -> bool:
    local_part, _, domain = text.partition("@")
    is_sane = len(local_part) <= LONGEST_LOCAL_PART and LOCAL_PART.fullmatch(local_part) is not None
    return len(text) <= LONGEST_ADDRESS and is_sane and is_domain(domain)


def is_domain(text: str) -> bool:
    return len(text) <= LONGEST_DOMAIN and all(LABEL.fullmatch(label) for label in text.split("."))


def parse_server(url: str) -> Server | None:
    """The server of smtp://host:587 or smtps://host:465; None if the URL is anything else, or has a login."""
    from urllib.parse import urlsplit  # imported here, as few configurations name a server

    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        return None
    if scheme not in PORTS or port == 0 or not (is_domain(host) or _is_ip_address(host)):
        return None
    server = Server(scheme, host, PORTS[scheme] if port is None else port)
    plain = str(server).lower()
    return server if url.lower().rstrip("/") in (plain, plain.removesuffix(f":{server.port}")) else None


def _is_ip_address(text: str) -> bool:
    import ipaddress

    with suppress(ValueError):
        return "%" not in str(ipaddress.ip_address(text))
    return False
