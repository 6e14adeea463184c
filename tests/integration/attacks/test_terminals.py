"""Nothing that somebody can name steers root's terminal."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests import hostile
from tests.integration.attacks.attempts import COMMANDS, DAYS, ESCAPE, WINDOW, command, execute, is_tame, partition
from tests.users import needs_root
from tests.verbs import give, run

pytestmark = needs_root


def with_names(path: Path) -> None:
    """Put what steers a terminal wherever a text is stored."""
    hidden = "char(27, 93, 48, 59, 120, 7, 27, 91, 50, 74, 155, 49, 109, 13, 10, 8238, 60, 98, 62, 124, 96)"
    execute(
        path,
        f"UPDATE card SET uuid = uuid || {hidden}, name = name || {hidden}, missing = {hidden}",
        f"UPDATE card SET status = {hidden}, parent_uuid = {hidden} WHERE id % 2",
        f"UPDATE session SET boot_id = boot_id || {hidden}, driver_version = driver_version || {hidden}",
        f"UPDATE process SET user = user || {hidden}, login_user = {hidden}, command = command || {hidden}",
        f"UPDATE process SET cgroup = '/docker/' || {hidden} WHERE id % 3 = 0",
        f"UPDATE process SET type = type || {hidden} WHERE id % 3 = 1",
        f"UPDATE tick SET error = {hidden} WHERE id % 5 = 0 OR id = (SELECT max(id) FROM tick)",
    )


def with_a_trigger(path: Path) -> None:
    execute(path, f'CREATE TRIGGER "t{ESCAPE[:-1]}" AFTER INSERT ON tick BEGIN DELETE FROM tick; END')


def with_a_damaged_schema(path: Path) -> None:
    execute(path, f'CREATE TABLE "t{ESCAPE[:-1]}" (a)')
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = -7 WHERE name GLOB 't*owned*'")


def with_values(path: Path) -> None:
    hostile.change(path, f"UPDATE tick SET ts_ms = '{ESCAPE[:-1]}' WHERE id = 3")


def with_files(path: Path) -> None:
    for name in (f"{ESCAPE[:-1]}.pending", f"x{ESCAPE[:-1]}.sqlite.corrupt-1", f"{ESCAPE[:-1]}.csv"):
        path.with_name(name).write_text("timestamp,user,pid,gpu,usage\nbad\n")


@pytest.mark.parametrize("plant", [with_names, with_a_trigger, with_a_damaged_schema, with_values, with_files])
@pytest.mark.parametrize("name", [*COMMANDS, "report as markdown", "report as HTML", "report as CSV"])
def test_nothing_in_a_folder_steers_roots_terminal(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    for day in DAYS if plant is with_names else DAYS[1:2]:
        plant(partition(folder, day))
    give(folder)
    if name in ("export of sums", "status"):
        run("rollup", "--data-dir", folder)
    if name in COMMANDS:
        done = command(name, folder)
    else:
        form = name.rsplit(" ", 1)[1].lower()
        section = ("--section", "gpus") if form == "csv" else ()
        done = run("report", *WINDOW, "--format", form, *section, "--data-dir", folder)
    assert done.is_calm, done
    assert is_tame(done.stdout), done.stdout
    assert is_tame(done.stderr), done.stderr
    assert "<b>" not in done.stdout or "HTML" not in name


def test_names_of_files_to_import_do_not_steer_roots_terminal(open_folder: Path) -> None:
    source = open_folder / "csvs"
    source.mkdir()
    header = "timestamp,user,pid,gpu,usage\n"
    (source / f"a{ESCAPE[:-1]}.csv").write_text(header + "bad\n1794182400,x,1,0,5\n")
    (source / f"b{ESCAPE[:-1]}.csv").write_text("nothing\n")
    os.mkfifo(source / f"c{ESCAPE[:-1]}.csv")
    give(source)
    for words in ((), ("--dry-run",)):
        done = run("import", *words, "--data-dir", open_folder / "other", source)
        assert done.is_calm, done
        assert is_tame(done.stdout + done.stderr), done
