"""The password of a mail server: which file is taken, and that nothing shows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.config import Mail
from gua_report.mailing.login import Login, NoLogin, read_login
from tests.users import SOMEBODY, needs_root

WORD = "hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "smtp-password"
    path.write_text(WORD + "\n")
    path.chmod(0o640)
    return path


def read(path: Path) -> Login | None:
    return read_login(Mail(smtp="smtp://h", sender="gua@h", smtp_user="gua", password_file=str(path)))


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o400, 0o440, 0o660])
@pytest.mark.parametrize("text", [f"{WORD}\n", WORD, f"{WORD}\r\n", f"{WORD}\n# of the lab's server\n"])
def test_the_first_line_is_the_password(path: Path, text: str, mode: int) -> None:
    path.write_text(text)
    path.chmod(mode)
    assert read(path) == Login("gua", WORD)


def test_blanks_belong_to_the_password(path: Path) -> None:
    path.write_text("  a b  \n")
    assert read(path) == Login("gua", "  a b  ")


def test_without_a_file_there_is_no_login() -> None:
    assert read_login(Mail(smtp="smtp://h", sender="gua@h")) is None


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o641, 0o666, 0o777])
def test_a_file_that_is_open_to_everybody_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(NoLogin, match=rf"is open to everybody \(mode 0{mode:o}\): sudo chmod 640 it"):
        read(path)


@needs_root
def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    os.chown(path, SOMEBODY, 0)
    with pytest.raises(NoLogin, match=f"belongs to uid {SOMEBODY}, who could exchange the password"):
        read(path)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    path.write_text(WORD + "\n" * 5000)


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (link, "is a link, which is not followed"),
        (pipe, "is no regular file"),
        (folder, "is no regular file"),
        (huge, "is too large"),
        (os.unlink, "can't be read (No such file or directory)"),
    ],
)
def test_what_is_no_plain_small_file_is_refused(path: Path, replace: Callable[[Path], None], said: str) -> None:
    replace(path)
    with pytest.raises(NoLogin) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} {said}")


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\nhunter2\n", b"hunt\xc3\xa4r2\n", b"hunter2\0\n", b"hunt\ter2\n", b"\xff\n"]
)
def test_a_first_line_that_is_no_password_is_refused_and_not_shown(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(NoLogin, match="has no password in its first line") as caught:
        read(path)
    assert "hunt" not in str(caught.value)


def test_no_text_shows_the_password() -> None:
    login = Login("gua", WORD)
    assert WORD not in f"{login} {login!r}"
    assert login.hide("a hunter2 aHVudGVyMg== AGd1YQBodW50ZXIy b") == "a ... ... ... b"
