"""Going on as the owner of a folder, and who else may write to it."""

import ctypes
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import gua_report as gua
from gua_sample import rights
from gua_sample.errors import StoreError
from tests.users import SOMEBODY, needs_root

PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 1 << 2


def in_child(action: Callable[[], str]) -> str:
    """What the action returns, or the StoreError that it raises, in a process of its own."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the test runner has
        pid = os.fork()
    if pid == 0:
        try:
            try:
                text = action()
            except StoreError as error:
                text = f"refused: {error}"
            os.write(writing, text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def ids() -> str:
    return f"{os.getresuid()} {os.getresgid()} {os.getgroups()}"


@needs_root
@pytest.mark.parametrize(("gid", "expected"), [(SOMEBODY, SOMEBODY), (0, 65534), (4, 65534)])
def test_whoever_becomes_the_owner_has_no_right_left_of_root(gid: int, expected: int) -> None:
    """Nor of a group that the owner is not in."""

    def action() -> str:
        os.setgroups([0, 4])
        rights.become(SOMEBODY, gid)
        with open("/proc/self/status") as file:
            status = dict(line.split(":", 1) for line in file)
        capabilities = [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh")]
        return f"{ids()} {capabilities}"

    assert in_child(action) == f"{(SOMEBODY,) * 3} {(expected,) * 3} [] [0, 0, 0]"


@needs_root
def test_rights_that_could_be_regained_are_refused() -> None:
    """As in a process that keeps its capabilities when it changes its user."""

    def action() -> str:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0) == 0
        rights.become(SOMEBODY, SOMEBODY)
        return "became somebody"

    assert in_child(action).startswith("refused: root's rights can't be given up for good")


@needs_root
def test_one_who_may_not_become_another_is_told_to_run_it_as_that_user() -> None:
    def action() -> str:
        rights.import_late()  # while it is root, who can read all modules
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
        rights.become(SOMEBODY + 1, SOMEBODY + 1)
        return "became another"

    assert in_child(action).startswith(f"refused: uid {SOMEBODY + 1} can't be taken on")


@needs_root
@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ((0, 0), None),
        ((SOMEBODY, SOMEBODY), (SOMEBODY, SOMEBODY)),
        ((0, SOMEBODY), (SOMEBODY, SOMEBODY)),  # root made the folder, and the service fills it
    ],
)
def test_root_becomes_whoever_the_folder_or_its_samples_belong_to(
    tmp_path: Path, owners: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    samples = tmp_path / "data" / "samples"
    samples.mkdir(parents=True)
    for path, owner in zip((samples.parent, samples), owners, strict=True):
        os.chown(path, owner, owner)
    assert rights.owner_to_become(str(samples.parent)) == expected
    # One that is not there yet is of whoever it would be made by.
    assert rights.owner_to_become(str(samples / "a" / "b")) == ((SOMEBODY, SOMEBODY) if owners[1] else None)


@pytest.mark.parametrize(
    ("mode", "gid", "expected"),
    [
        (0o755, None, None),
        (0o775, None, None),  # the group is the owner's own
        (0o775, 54322, "group 54322 may write"),
        (0o777, None, "everybody may write"),
        (0o1777, None, "everybody may write"),
    ],
)
@needs_root
def test_the_mode_tells_who_else_may_write(tmp_path: Path, mode: int, gid: int | None, expected: str | None) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, SOMEBODY, SOMEBODY if gid is None else gid)
    folder.chmod(mode)
    found = rights.others_who_may_write(str(folder))
    assert found is None if expected is None else found is not None and found.text.startswith(expected)


def test_nobody_is_told_to_change_the_mode_of_a_folder_such_as_tmp(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert str(rights.others_who_may_write(str(tmp_path))).endswith(": use a folder that is for gua alone")
    tmp_path.chmod(0o777)
    assert "chmod o" in str(rights.others_who_may_write(str(tmp_path)))


@needs_root
@pytest.mark.parametrize("is_sticky", [True, False])
def test_a_folder_of_roots_in_one_that_others_may_write_to_could_be_exchanged(tmp_path: Path, is_sticky: bool) -> None:
    folder = tmp_path / "open" / "data"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o1777 if is_sticky else 0o777)
    if is_sticky:
        assert rights.check_folder(str(folder)) is None
    else:
        with pytest.raises(StoreError, match=r"exchange .*: move it to a folder that nobody else can change") as caught:
            rights.check_folder(str(folder))
        assert "chmod" not in str(caught.value)  # the folder around it is not gua's
    os.chown(folder.parent, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"lies in a folder of uid {SOMEBODY}"):
        rights.check_folder(str(folder))


@needs_root
@pytest.mark.parametrize("call", [gua.report, gua.load])
def test_a_notebook_of_roots_reads_nobody_elses_folder(tmp_path: Path, call: Callable[..., object]) -> None:
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"belongs to uid {SOMEBODY}"):
        call(data_dir=str(tmp_path))
