"""Who has which address. Nothing is guessed."""

from __future__ import annotations

import pytest

from gua_report.config import Mail
from gua_report.mailing.recipients import address_of

LAB = Mail(domain="lab.example", addresses={"Bob Müller": "bob@elsewhere.example", "uid:1005": "eva@lab.example"})


@pytest.mark.parametrize(
    ("person", "address"),
    [
        ("ada", "ada@lab.example"),
        ("Bob Müller", "bob@elsewhere.example"),
        ("uid:1005", "eva@lab.example"),
        *((name, None) for name in ("uid:1006", "docker:3f2a9c81d0b7", "unit:x.service", "(unattributed)", "unknown?")),
        *((name, None) for name in ("LAB\\ada", "ada@other.example", "ada,ben", "ada\r\nBcc: ben", "-oQ", "")),
    ],
)
def test_a_person_has_the_address_of_the_map_or_of_the_domain_or_none(person: str, address: str | None) -> None:
    assert address_of(person, LAB) == address


def test_without_a_domain_only_the_map_counts() -> None:
    mail = LAB._replace(domain=None)
    assert address_of("ada", mail) is None
    assert address_of("Bob Müller", mail) == "bob@elsewhere.example"
