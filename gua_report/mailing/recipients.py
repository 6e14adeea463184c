"""The address of a person. Nothing is guessed: who is not in the configuration has none."""

from __future__ import annotations

from gua_report.config import Mail
from gua_report.console.addresses import is_address


def address_of(person: str, mail: Mail) -> str | None:
    """The address that the configuration gives the person, by name or by the domain; None if it gives none.

    A name such as docker:3f2a9c81d0b7 or DOMAIN\\ada makes no address.
    """
    if person in mail.addresses:
        return mail.addresses[person]
    address = f"{person}@{mail.domain}" if mail.domain else ""
    return address if is_address(address) else None
