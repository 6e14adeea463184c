"""Links, groups, journals, locks, outputs and sources that somebody planted, or exchanges, lead root nowhere."""

import fcntl
import os
import pwd
import shutil
import threading
import time
from pathlib import Path

import pytest

from gua_report.console import whole_file
from gua_report.doctor.recording import record
from gua_report.upkeep import nightly
from gua_sample import cli
from gua_sample.errors import GuaError
from tests import hostile
from tests.integration.attacks.attempts import (
    ANOTHER,
    DAYS,
    IN_THE_FOLDER,
    WINDOW,
    advice,
    calmly,
    command,
    copy,
    meanwhile,
    partition,
    plant_link,
)
from tests.machine import call
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

pytestmark = needs_root


@pytest.mark.parametrize("name", IN_THE_FOLDER)
def test_root_does_not_go_through_a_link_that_somebody_else_can_turn(
    history: Path, open_folder: Path, theirs: Path, name: str
) -> None:
    """It leads to a folder of root's while that is asked, and to somebody's when it is opened."""
    roots = copy(history, open_folder / "roots", 0)
    plant_link(theirs / "link", roots)
    before = sorted(roots.rglob("*"))
    done = command(name, theirs / "link")
    assert done.returncode == 1, done
    assert f"uid {SOMEBODY}" in done.stdout + done.stderr
    assert sorted(roots.rglob("*")) == before


@pytest.mark.parametrize("name", ["sample", "rollup"])
def test_nothing_is_written_elsewhere_while_somebody_turns_a_link(
    history: Path, open_folder: Path, theirs: Path, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "of root's"
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
def test_another_group_than_the_owners_is_not_taken(
    folder: Path, history: Path, name: str, owner: int, group: int
) -> None:
    """After a chown without a group, or in a folder that hands its group on, a folder's group may be anybody's."""
    hidden = copy(history, folder.parent / "for a group", 0)
    os.chown(hidden, 0, group)
    hidden.chmod(0o750)
    shutil.rmtree(folder / "samples")
    (folder / "samples").symlink_to(hidden / "samples")
    os.chown(folder, owner, group)
    done = calmly(command(name, folder))
    assert DAYS[0] not in done.stdout
    assert not (folder / "csv").exists()


def test_a_folder_of_somebody_whose_group_is_roots_can_be_read(folder: Path) -> None:
    for path in (folder, folder / "samples"):
        os.chown(path, SOMEBODY, 0)
    assert command("export", folder).returncode == 0


@pytest.mark.parametrize("place", ["csv", "publish"])
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
    history: Path, open_folder: Path, theirs: Path, victim: Path
) -> None:
    """A journal that names a file takes the place of a harmless one, between the look at it and its use."""
    folder = copy(history, open_folder / "data", 0)
    (folder / "samples").chmod(0o777)
    journal = partition(folder).with_name(f"{DAYS[1]}.sqlite-journal")
    hostile.plant_journal(partition(folder), victim)
    crafted = journal.read_bytes()
    journal.write_bytes(b"harmless")
    give(journal)

    def swap() -> None:
        for content in (b"harmless", crafted):
            (theirs / "new").write_bytes(content)
            os.rename(theirs / "new", journal)
            time.sleep(0.0002)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, swap):
        while time.monotonic() < ends and victim.exists():
            command("sample", folder)
    assert victim.read_text() == "of root's"


def test_a_folder_for_pages_is_not_made_where_somebodys_link_leads(folder: Path, theirs: Path, roots: Path) -> None:
    plant_link(theirs / "www", roots)
    done = run("page", theirs / "www" / "pages", "--names", "none", "--data-dir", folder)
    assert (done.returncode, f"through a link of uid {SOMEBODY}" in done.stderr) == (1, True), done
    assert list(roots.iterdir()) == []


def test_a_folder_for_pages_is_made_in_somebodys_folder(folder: Path, theirs: Path) -> None:
    assert run("page", f"{theirs}/pages/", "--names", "none", "--page", "week", "--data-dir", folder).returncode in (
        0,
        3,
    )
    assert (theirs / "pages" / "index.html").exists()


def test_a_recording_is_not_made_where_somebodys_link_leads(theirs: Path, roots: Path) -> None:
    plant_link(theirs / "new", roots)
    with pytest.raises(GuaError, match=f"through a link of uid {SOMEBODY}"):
        record(str(theirs / "new" / "gpu.jsonl"), 1000, 1000, 10)
    assert list(roots.iterdir()) == []


def test_an_export_opens_nothing_that_takes_the_place_of_its_output(
    folder: Path, theirs: Path, roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a device may have effects: one that watches the machine restarts it. Here a pipe stands for one."""
    output, device = theirs / "out.csv", roots / "device"
    os.mkfifo(device)
    output.touch()
    give(theirs)
    check = whole_file._check_regular
    was_opened = threading.Event()

    def wait_for_whoever_opens_it() -> None:
        os.close(os.open(device, os.O_WRONLY))
        was_opened.set()

    def check_then_exchange(found: os.stat_result) -> None:
        check(found)
        if not output.is_symlink():
            output.unlink()
            plant_link(output, device)

    monkeypatch.setattr(whole_file, "_check_regular", check_then_exchange)
    threading.Thread(target=wait_for_whoever_opens_it, daemon=True).start()
    run("export", *WINDOW, "-o", output, "--data-dir", folder)
    assert not was_opened.wait(0.5)
    os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK))  # ends the thread
    assert was_opened.wait(10)


@pytest.mark.parametrize("what", ["a report that was private", "pages of a private history"])
def test_nobody_opens_a_file_before_it_is_private(
    folder: Path, roots: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Whoever has opened it can read all that is written to it later."""
    seen = roots.parent / "seen"  # the command runs in a child
    fchmod = os.fchmod

    def look_first(descriptor: int, mode: int) -> None:
        with seen.open("a") as file:
            print(os.fstat(descriptor).st_mode & 0o077, file=file)
        fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", look_first)
    if what.startswith("pages"):
        folder.chmod(0o700)
        path = roots / "index.html"
        run("page", roots, "--names", "none", "--page", "week", "--data-dir", folder)
    else:
        path = roots / "report.txt"
        path.touch(0o600)
        run("report", *WINDOW, "-o", path, "--data-dir", folder)
    assert path.stat().st_size > 100
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(seen.read_text().split()) == {"0"}


def test_a_lock_that_is_held_for_ever_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "LONGEST_WAIT_SECONDS", 0.5)
    (folder / ".rollup.lock").touch()
    give(folder)
    with (folder / ".rollup.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command("rollup", folder)
    assert (done.returncode, "is held by another process" in done.stderr) == (1, True), done
    assert command("rollup", folder).returncode == 0


@pytest.mark.parametrize("verb", ["report", "export"])
@pytest.mark.parametrize(("planted", "mode"), [("link", 0o1777), ("file", 0o1777), ("file", 0o777)])
def test_an_output_that_somebody_planted_in_a_shared_folder_is_refused(
    folder: Path, shared: Path, victim: Path, verb: str, planted: str, mode: int
) -> None:
    shared.chmod(mode)
    output = shared / "output.csv"
    output.symlink_to(victim) if planted == "link" else output.write_text("")
    os.chown(output, SOMEBODY, SOMEBODY, follow_symlinks=False)
    done = run(verb, *WINDOW, "-o", output, "--data-dir", folder)
    refusal = "leads through a link of uid" if planted == "link" else "where everybody may write"
    assert (done.returncode, refusal in done.stderr) == (1, True), done
    assert victim.read_text() == "of root's"
    assert os.lstat(output).st_size < 1000
    output.unlink()
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0
    assert output.stat().st_uid == 0
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0


def test_metrics_of_a_run_that_failed_early_are_not_written_as_root(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "EARLIEST_MS", 1 << 60)  # the clock was never set
    metrics = open_folder / "metrics"
    metrics.mkdir()
    give(metrics)
    words = ("gua-sample", "--simulate", "--data-dir", folder, "--textfile", metrics / "gua.prom")
    assert run(*words).returncode == 1
    assert {path.stat().st_uid for path in (folder / "idle.state", metrics / "gua.prom")} == {SOMEBODY}


def test_a_folder_that_is_refused_gets_no_state_of_metrics_either(history: Path, open_folder: Path) -> None:
    folder = copy(history, open_folder / "data", 0)
    folder.chmod(0o777)
    done = run("gua-sample", "--simulate", "--data-dir", folder, "--textfile", open_folder / "gua.prom")
    assert done.returncode == 1
    assert not (folder / "idle.state").exists()
    assert not (open_folder / "gua.prom").exists()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_source_of_roots_that_somebody_can_exchange_is_not_read_as_root(
    history: Path, open_folder: Path, theirs: Path, kind: str
) -> None:
    (theirs / "inner").mkdir()
    source = copy(history, theirs / "inner" / "roots", 0)
    os.chown(theirs / "inner", 0, 0)
    path = source if kind == "folder" else partition(source)
    done = run("import", "--data-dir", open_folder / "other", path)
    assert (done.returncode, f"uid {SOMEBODY}" in done.stderr) == (1, True), done
    assert not (open_folder / "other").exists()


def test_the_doctor_advises_nothing_that_deletes_a_file(folder: Path, victim: Path) -> None:
    """To look at a damaged file as root is to roll back the journal beside it."""
    path = partition(folder)
    hostile.plant_journal(path, victim)
    give(folder)
    for text in advice(folder, "recover"):
        call(["sh", "-c", text], cwd=folder)
    assert victim.read_text() == "of root's"


@pytest.mark.parametrize(
    ("name", "begins"), [("a.html", "<!"), ("a.JSON", "{"), ("a.md", "# "), ("a.txt", "GPU use"), ("a.odd", "GPU use")]
)
def test_the_format_of_a_report_goes_by_its_name(folder: Path, tmp_path: Path, name: str, begins: str) -> None:
    assert run("report", *WINDOW, "-o", tmp_path / name, "--data-dir", folder).returncode == 0
    assert (tmp_path / name).read_text().startswith(begins)
    assert run("report", *WINDOW, "--format", "text", "-o", tmp_path / name, "--data-dir", folder).returncode == 0
    assert (tmp_path / name).read_text().startswith("GPU use")


def test_csv_without_a_section_says_which_table_it_is(folder: Path, tmp_path: Path) -> None:
    done = run("report", *WINDOW, "-o", tmp_path / "a.csv", "--data-dir", folder)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "csv is one table, here gpus; for another give --section: headline, now" in done.stderr
    assert (tmp_path / "a.csv").read_text().startswith("uuid,")
    chosen = run("report", *WINDOW, "--format", "csv", "--section", "gpus", "--data-dir", folder)
    assert (chosen.stderr, chosen.stdout) == ("", (tmp_path / "a.csv").read_text())
