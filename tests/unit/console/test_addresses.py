"""What is an address, and what only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.console.addresses import Server, is_address, parse_server


@pytest.mark.parametrize(
    "address",
    [
        *("ada@lab.example", "ada@localhost", "ada.lovelace+gpu@cs.uni-lab.example", "_ada-1@xn--mnchen-3ya.example"),
        *("a" * 64 + "@lab.example", "ada@" + "a" * 63 + ".example", "A.B@C.D", "ada@10.0.0.1"),
    ],
)
def test_these_are_addresses(address: str) -> None:
    assert is_address(address)


@pytest.mark.parametrize(
    "text",
    [
        *("", "ada", "@", "ada@", "@lab.example", "root", "ada@lab.example@lab.example"),
        *("ada@lab.example,ben@lab.example", "ada@lab.example ben@lab.example", "ada@lab.example;ben@lab.example"),
        *("Ada <ada@lab.example>", "<ada@lab.example>", '"ada"@lab.example', "ada(x)@lab.example", "ada@[127.0.0.1]"),
        *("ada@lab.example\n", "ada@lab.example\r\nBcc: ben@lab.example", "ada\n@lab.example", "ada@lab\0.example"),
        *(" ada@lab.example", "ada@lab.example ", "ada @lab.example", "a\tb@lab.example", "ada@lab.example\u2028"),
        *("-f@lab.example", "-oQ/tmp@lab.example", "+x@lab.example", ".ada@lab.example", "ada.@lab.example"),
        *("a..b@lab.example", "ada@.lab.example", "ada@lab..example", "ada@lab.example.", "ada@-lab.example"),
        *("ada@lab-.example", "ada@lab_1.example", "ädä@lab.example", "ada@läb.example", "\uff41da@lab.example"),
        *("ada%ben@lab.example", "ben!ada@lab.example", "|sh@lab.example", "/etc/passwd@lab.example"),
        *("`id`@lab.example", "$HOME@lab.example", "=?utf-8?q?ada?=@lab.example", "a" * 65 + "@lab.example"),
        "ada@" + "a" * 64 + ".example",
        *("a@" + "b." * 127 + "example", "ada@" + "a." * 10**5 + "example", "a" * 10**5, "@" * 10**5),
    ],
)
def test_these_are_not(text: str) -> None:
    assert not is_address(text)


@given(st.text(), st.text())
def test_no_address_can_be_more_than_one_or_an_option(local_part: str, domain: str) -> None:
    address = f"{local_part}@{domain}"
    if is_address(address):
        assert address.isascii()
        assert address.isprintable()
        assert address.count("@") == 1
        assert not set(' ,;:<>()[]"\\|`$%!/=?') & set(address)
        assert not address.startswith("-")


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.lab.example:587", Server("smtp", "mail.lab.example", 587)),
        ("smtp://mail.lab.example", Server("smtp", "mail.lab.example", 587)),
        ("smtps://Mail.Lab.example/", Server("smtps", "mail.lab.example", 465)),
        ("smtps://127.0.0.1:2465", Server("smtps", "127.0.0.1", 2465)),
        ("smtp://[::1]:25", Server("smtp", "::1", 25)),
    ],
)
def test_a_server_is_read_from_its_url(url: str, server: Server) -> None:
    assert parse_server(url) == server
    assert parse_server(str(server)) == server


@pytest.mark.parametrize(
    "url",
    [
        *("", "mail.lab.example", "mail.lab.example:587", "http://mail.lab.example", "smtp:mail.lab.example"),
        "smtp://",
        *("smtp://gua:hunter2@mail.lab.example", "smtp://gua@mail.lab.example:587", "smtp://:587", "smtp://h:587/path"),
        *("smtp://h?x=1", "smtp://h#x", "smtp://h:0", "smtp://h:65536", "smtp://h:-1", "smtp://h:0587", "smtp://h:x"),
        *(
            "smtp://h\n",
            "smtp://h\r\nHELO",
            " smtp://h",
            "smtp://h h",
            "smtp://h,i",
            "smtp://[::1",
            "smtp://[fe80::1%lo]",
        ),
        *("smtp://-h", "smtp://h_i", "smtp://hä", "smtp://" + "a" * 300, "smtp://h:587:587", "smtp://h\t:587"),
    ],
)
def test_whatever_else_a_url_says_makes_it_none(url: str) -> None:
    assert parse_server(url) is None
