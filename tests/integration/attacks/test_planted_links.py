"""Who root becomes, and on which folder: links, groups and journals that somebody planted lead nowhere."""

from __future__ import annotations

import os
import pwd
import shutil
import time
from pathlib import Path

import pytest

from tests import hostile
from tests.integration.attacks.attempts import ANOTHER, DAYS, IN_THE_FOLDER, command, copy, meanwhile, partition
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

pytestmark = needs_root


@pytest.mark.parametrize("name", IN_THE_FOLDER)
def test_root_does_not_go_through_a_link_that_somebody_else_can_turn(
    history: Path, open_folder: Path, name: str
) -> None:
    """It leads to a folder of root's while that is asked, and to somebody's when it is opened."""
    theirs = open_folder / "theirs"
    theirs.mkdir()
    give(theirs)
    roots = copy(history, open_folder / "roots", 0)
    (theirs / "link").symlink_to(roots)
    os.chown(theirs / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    before = sorted(roots.rglob("*"))
    done = command(name, theirs / "link")
    assert done.returncode == 1, done
    assert f"uid {SOMEBODY}" in done.stdout + done.stderr
    assert sorted(roots.rglob("*")) == before


@pytest.mark.parametrize("name", ["sample", "rollup"])
def test_nothing_is_written_elsewhere_while_somebody_turns_a_link(
    history: Path, open_folder: Path, tmp_path: Path, name: str
) -> None:
    theirs, elsewhere = open_folder / "theirs", tmp_path / "of root's"
    theirs.mkdir()
    elsewhere.mkdir()
    roots = copy(history, open_folder / "roots", 0)
    crafted = copy(history, theirs / "crafted", SOMEBODY)
    (crafted / "csv").symlink_to(elsewhere)
    if name == "sample":
        shutil.rmtree(crafted / "samples")
        (crafted / "samples").symlink_to(elsewhere)
    (theirs / "link").symlink_to(roots)
    give(theirs)

    def turn() -> None:
        for target in (roots, crafted):
            os.symlink(target, theirs / "new")
            os.rename(theirs / "new", theirs / "link")
            time.sleep(0.0005)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, turn):
        while time.monotonic() < ends and not list(elsewhere.iterdir()):
            command(name, theirs / "link")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["report", "rollup", "export"])
@pytest.mark.parametrize("owner", [pwd.getpwnam("nobody").pw_uid, SOMEBODY], ids=["with a name", "without"])
@pytest.mark.parametrize("group", [0, ANOTHER])
def test_a_group_that_the_owner_is_not_in_is_not_taken_on(
    folder: Path, history: Path, name: str, owner: int, group: int
) -> None:
    """After a chown without a group, or in a folder that hands its group on, a folder's group may be anybody's."""
    hidden = copy(history, folder.parent / "for a group", 0)
    os.chown(hidden, 0, group)
    hidden.chmod(0o750)
    shutil.rmtree(folder / "samples")
    (folder / "samples").symlink_to(hidden / "samples")
    os.chown(folder, owner, group)
    done = command(name, folder)
    assert done.is_calm, done
    assert DAYS[0] not in done.stdout
    assert not (folder / "csv").exists()


def test_a_folder_of_somebody_whose_group_is_roots_can_be_read(folder: Path) -> None:
    for path in (folder, folder / "samples"):
        os.chown(path, SOMEBODY, 0)
    assert command("export", folder).returncode == 0


@pytest.mark.parametrize("place", ["csv", "edges", "publish"])
@pytest.mark.parametrize("owner", [0, SOMEBODY])
@pytest.mark.parametrize("how", ["owned", "open"])
def test_root_writes_to_no_folder_in_which_others_plant_links(
    history: Path, open_folder: Path, victim: Path, place: str, owner: int, how: str
) -> None:
    folder = copy(history, open_folder / "data", owner)
    inner = folder / place
    inner.mkdir()
    (inner / f"{DAYS[0]}.csv").symlink_to(victim)
    give(inner, ANOTHER if how == "owned" else owner)
    inner.chmod(0o755 if how == "owned" else 0o777)
    os.utime(victim, (1, 1))  # so that the file seems to be older than the ticks
    victim.chmod(0o666)  # were it owner's, he could write it
    victim.parent.chmod(0o777)
    done = command("rollup", folder)
    assert done.returncode == 1, done
    assert "not as root" in done.stderr
    assert victim.read_text() == "of root's"


def test_a_daily_file_takes_the_place_of_a_link_and_does_not_follow_it(folder: Path, open_folder: Path) -> None:
    target = open_folder / "target"
    target.mkdir()
    (target / "file").write_text("of somebody's")
    give(target)
    (folder / "csv").mkdir()
    (folder / "csv" / f"{DAYS[0]}.csv").symlink_to(target / "file")
    os.utime(target / "file", (1, 1))
    give(folder)
    assert command("rollup", folder).returncode == 0
    assert (target / "file").read_text() == "of somebody's"


ACCESS_LIST = bytes.fromhex("02000000 01000700ffffffff 02000700") + ANOTHER.to_bytes(4, "little")
ACCESS_LIST += bytes.fromhex("04000500ffffffff 10000700ffffffff 20000500ffffffff")


@pytest.mark.parametrize("owner", [0, SOMEBODY])
def test_an_access_list_that_lets_others_write_is_seen(history: Path, open_folder: Path, owner: int) -> None:
    folder = copy(history, open_folder / "data", owner)
    try:
        os.setxattr(folder, "system.posix_acl_access", ACCESS_LIST)
    except OSError:
        pytest.fail("this file system has no access lists")
    done = command("rollup", folder)
    assert (done.returncode, "may write to" in done.stderr) == (1, True), done


def test_the_sampler_as_root_deletes_nothing_where_everybody_may_write(
    history: Path, open_folder: Path, victim: Path
) -> None:
    """A journal that names a file takes the place of a harmless one, between the look at it and its use."""
    folder = copy(history, open_folder / "data", 0)
    (folder / "samples").chmod(0o777)
    journal = partition(folder).with_name(f"{DAYS[1]}.sqlite-journal")
    hostile.plant_journal(partition(folder), victim)
    crafted = journal.read_bytes()
    journal.write_bytes(b"harmless")
    give(journal)
    ready = open_folder / "theirs"
    ready.mkdir()
    give(ready)

    def swap() -> None:
        for content in (b"harmless", crafted):
            (ready / "new").write_bytes(content)
            os.rename(ready / "new", journal)
            time.sleep(0.0002)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, swap):
        while time.monotonic() < ends and victim.exists():
            command("sample", folder)
    assert victim.read_text() == "of root's"
