"""The commands and files of docs/fleet.md, taken from the page itself, so that tests follow it word for word."""

import re

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.repository import ROOT

PULL, PUSH, SHARED = "### Pull", "### Push", "### A shared folder"
FIRST_STEPS, PUBLISH, MAIL = "## From three machines to one mail", "## Publish", "### By mail"


def section(title: str) -> str:
    """The text between that title and the next one."""
    page = (ROOT / "docs" / "fleet.md").read_text().split(f"\n{title}\n")[1]
    return re.split(r"\n##+ ", page)[0]


def blocks(title: str, language: str = "sh") -> list[str]:
    """Each block of the section in that language. Commands are without sudo: in a guest, one is root."""
    found = re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)
    texts = (re.sub(r"^sudoedit .*\n", "", text, flags=re.MULTILINE) for text in found)
    return [without_sudo(text) for text in texts]


def without_sudo(commands: str) -> str:
    return re.sub(r"sudo -u (\S+)", r"runuser -u \1 --", commands).replace("sudo ", "")


def key_line(kind: str, key: str, address: str = "127.0.0.1") -> str:
    """The line of contrib/fleet/authorized_keys for that kind of key."""
    lines = (ROOT / "contrib" / "fleet" / "authorized_keys").read_text().splitlines()
    (line,) = (line for line in lines if f"rrsync {kind} " in line and not line.startswith("#"))
    return line.replace("192.0.2.1", address).replace("ssh-ed25519 AAAA...", " ".join(key.split()[:2])) + "\n"


def follow(guest: Guest, commands: str) -> None:
    """Run commands of the page where it supposes its reader to be: in a clone."""
    guest.run("sh", "-euc", commands, cwd=laboratory.SOURCE)
