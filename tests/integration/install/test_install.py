"""make install and its relatives, run for real, as far as it goes without a systemd: into a DESTDIR."""

import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from gua_report import config
from gua_report.config import rules
from gua_sample.policy import DEFAULT
from tests.integration.install.checkout import (
    LIBRARY,
    NO_CONFIG,
    NO_INDEX,
    USER_HOME,
    Checkout,
    copy_tree,
    environment,
    files,
    listing,
)
from tests.machine import call
from tests.repository import ROOT

COMMANDS = ("gua", "gua-sample", "gua-report", "gua-containers")
SPOOL = "var/spool/gua/notes"
pytestmark = pytest.mark.timeout(600)  # for a busy machine: an installation takes some 20 s of CPU


# -- A first installation.


def test_nothing_else_is_installed_outside_the_environment(installed: Path) -> None:
    assert files(installed) == [
        "/etc/gua/gua-sample.env",
        "/etc/gua/gua.toml",
        "/etc/systemd/system/gua-.service.d/10-readers.conf",
        "/etc/systemd/system/gua-sample.timer.d/10-interval.conf",
        "/usr/local/bin/gua",
        "/usr/local/bin/gua-containers",
        "/usr/local/bin/gua-report",
        "/usr/local/bin/gua-sample",
        "/usr/local/lib/systemd/system/gua-containers.path",
        "/usr/local/lib/systemd/system/gua-containers.service",
        "/usr/local/lib/systemd/system/gua-rollup.service",
        "/usr/local/lib/systemd/system/gua-rollup.timer",
        "/usr/local/lib/systemd/system/gua-sample.service",
        "/usr/local/lib/systemd/system/gua-sample.timer",
        "/usr/local/lib/sysusers.d/gua.conf",
    ]
    manifest = (installed / "opt/gua/installed-files").read_text().splitlines()
    assert [path for path in manifest if not path.endswith("/")] == files(installed)
    for name in COMMANDS:
        assert os.readlink(installed / "usr/local/bin" / name) == f"/opt/gua/bin/{name}"


def test_with_default_paths_files_are_installed_as_they_are(installed: Path) -> None:
    for path in [*(installed / "usr/local/lib/systemd/system").iterdir(), *(installed / "etc/gua").iterdir()]:
        assert path.read_bytes() == (ROOT / "systemd" / path.name).read_bytes()
    drop_in = installed / "etc/systemd/system/gua-.service.d/10-readers.conf"
    assert drop_in.read_text().splitlines()[-3:] == ["[Service]", "StateDirectoryMode=0750", "UMask=0027"]


def test_the_environment_holds_the_program_and_its_pages(installed: Path) -> None:
    environment = installed / "opt/gua"
    expected = ["bin", "include", "installed-files", "lib", "lib64", "pyvenv.cfg", "share"]
    assert sorted(set(os.listdir(environment)) | {"lib64"}) == expected
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {"README.md", "CHANGELOG.md", "LICENSE"}
    assert set(os.listdir(environment / "share/doc/gua")) == pages
    commands = set(os.listdir(environment / "bin"))
    assert {*COMMANDS} < commands
    assert not [name for name in commands if name.startswith("pip")]


def test_what_is_switched_on_by_hand_is_kept_beside_the_program(installed: Path) -> None:
    kept = installed / "opt/gua/share/gua/contrib"
    shipped = {path.relative_to(ROOT / "contrib") for path in (ROOT / "contrib").rglob("*") if path.is_file()}
    assert {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()} == shipped
    assert (kept / "fleet/gua-collect").read_bytes() == (ROOT / "contrib/fleet/gua-collect").read_bytes()


def test_no_file_names_the_folder_that_it_was_built_in(installed: Path) -> None:
    names = [str(installed.parent), "/opt/gua.new", f"{tempfile.gettempdir()}/tmp"]
    patterns = [word for name in names for word in ("-e", name)]
    found = call(["grep", "-rlF", *patterns, str(installed), "--exclude-dir=tests"])
    assert found.stdout == ""
    assert (installed / "opt/gua/bin/gua-sample").read_text().startswith("#!/opt/gua/bin/python")
    assert "VIRTUAL_ENV=/opt/gua\n" in (installed / "opt/gua/bin/activate").read_text().replace('"', "")


def test_bytecode_is_there_and_names_the_files_as_they_will_be(checkout: Checkout, installed: Path) -> None:
    sources = [*installed.glob(f"{LIBRARY}/gua_*/**/*.py"), *installed.glob(f"{LIBRARY}/pandas/core/**/*.py")]
    assert len(sources) > 100
    show = "import marshal, sys; print(marshal.loads(open(sys.argv[1], 'rb').read()[16:]).co_filename)"
    for source in sources:
        (compiled,) = source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
        if source.name == "cli.py":
            shown = subprocess.run([checkout.python, "-c", show, compiled], capture_output=True, text=True, check=True)
            assert shown.stdout == f"/{source.relative_to(installed)}\n"


def test_everybody_may_read_all_of_it_and_put_notes_into_the_spool_alone(installed: Path, upgraded: Path) -> None:
    for path in installed.rglob("*"):
        if path == installed / SPOOL:
            continue
        mode = path.lstat().st_mode
        assert path.is_symlink() or (mode & 0o022 == 0 and mode & 0o444 == 0o444), path
        assert not path.is_dir() or path.is_symlink() or mode & 0o111 == 0o111, path
    for target in (installed, upgraded):
        found = (target / SPOOL).lstat()
        assert (stat.S_ISDIR(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o1733)


def test_what_was_installed_samples(installed: Path, tmp_path: Path) -> None:
    binaries = installed / "opt/gua/bin"
    command = [f"{binaries}/python", "-I", f"{binaries}/gua-sample", "--simulate", "--data-dir", str(tmp_path)]
    done = call(command)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["idle.state", "samples"]


# -- An upgrade.


def test_an_upgrade_keeps_what_was_edited_and_renews_the_rest(upgraded: Path, installed: Path) -> None:
    own = "/etc/systemd/system/gua-sample.service.d/own.conf"
    assert files(upgraded) == sorted([*files(installed), own])
    assert (upgraded / "etc/gua/gua-sample.env").read_text() == "GUA_SAMPLE_OPTIONS=--interval 30s\n"
    assert (upgraded / "etc/gua/gua.toml").read_bytes() == (ROOT / "systemd/gua.toml").read_bytes()
    assert not (upgraded / "opt/gua/former").exists()


def test_the_defaults_take_the_choices_back(checkout: Checkout, few_wheels: Path, upgraded: Path) -> None:
    target = copy_tree(upgraded, upgraded.parent / "every 30 s")
    defaults = ("INTERVAL=30s", "CONTAINERS=no")
    checkout.succeed("install", f"DESTDIR={target}", f"WHEELS={few_wheels}", *defaults, variables=NO_INDEX)
    assert not (target / "etc/systemd/system/gua-sample.timer.d").exists()
    assert not list((target / "usr/local/lib/systemd/system").glob("gua-containers*"))
    listed = (target / "opt/gua/installed-files").read_text()
    assert "10-interval.conf" not in listed
    assert "systemd/system/gua-containers" not in listed


def test_all_choices_survive_an_upgrade(upgraded: Path, installed_by_user: tuple[Path, object]) -> None:
    units, manifest = upgraded / "etc/systemd/system", (upgraded / "opt/gua/installed-files").read_text()
    assert "0750" in (units / "gua-.service.d/10-readers.conf").read_text()
    interval = (units / "gua-sample.timer.d/10-interval.conf").read_text()
    assert interval.endswith("\n[Timer]\nOnCalendar=\nOnCalendar=*:*:0/15\n")
    for name in ("10-readers.conf", "10-interval.conf", "/gua-containers.path\n"):
        assert name in manifest
    assert (upgraded / "usr/local/lib/systemd/system/gua-containers.service").exists()
    for tree, expected in ((upgraded, {"pyarrow", "redis"}), (installed_by_user[0], {"redis"})):
        found = {path.name.split("-")[0] for path in tree.glob("**/site-packages/*.dist-info")}
        assert {"dask", "pyarrow", "redis"} & found == expected


def test_an_upgrade_that_fails_leaves_the_old_version_alone(
    checkout: Checkout, installed: Path, tmp_path: Path
) -> None:
    target = copy_tree(installed, tmp_path / "target")
    before = listing(target)
    (tmp_path / "empty").mkdir()
    (tmp_path / "temporary").mkdir()
    done = checkout.make(
        "install",
        f"DESTDIR={target}",
        f"WHEELS={tmp_path}/empty",
        "PREFIX=/usr",
        variables=NO_INDEX | NO_CONFIG | {"TMPDIR": f"{tmp_path}/temporary"},
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2] == "pip failed; nothing was changed"
    assert [line[0] for line in listing(target)] == [line[0] for line in before]
    assert os.listdir(tmp_path / "temporary") == []


def test_an_installation_that_is_interrupted_leaves_nothing(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        checkout.command("install", f"DESTDIR={tmp_path}/into"),
        cwd=checkout.folder,
        env=environment({"TMPDIR": f"{tmp_path}/temporary"}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # with a process group of its own, as a terminal's ^C finds it
    )
    while not (tmp_path / "into/opt/gua.new/bin").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    process.wait()
    assert process.returncode != 0
    assert os.listdir(tmp_path / "temporary") == []
    assert os.listdir(tmp_path / "into") == []


# -- Removal.


def test_uninstall_leaves_the_history_and_what_was_edited(checkout: Checkout, upgraded: Path, tmp_path: Path) -> None:
    target = copy_tree(upgraded, tmp_path / "target")
    (target / "var/lib/gua/samples").mkdir(parents=True)
    (target / "var/lib/gua/samples/2026-11-16.sqlite").touch()
    (target / SPOOL / "1001.0").touch()

    done = checkout.succeed("uninstall", f"DESTDIR={target}")
    assert done.stdout.splitlines()[-3:] == [
        "kept /etc/gua/gua-sample.env, which was edited",
        f"kept the history in /var/lib/gua and its owner, the user gua, and people's notes in /{SPOOL}",
        "to remove them too: sudo make uninstall PURGE=1",
    ]
    assert files(target) == [
        "/etc/gua/gua-sample.env",
        "/etc/systemd/system/gua-.service.d/10-readers.conf",  # who may read what is kept
        "/etc/systemd/system/gua-sample.service.d/own.conf",
        "/var/lib/gua/samples/2026-11-16.sqlite",
        f"/{SPOOL}/1001.0",
    ]
    assert sorted(os.listdir(target)) == ["etc", "var"]  # no empty folders either

    again = checkout.succeed("uninstall", f"DESTDIR={target}")
    assert again.stdout.splitlines()[0] == f"gua is not installed in {target}/opt/gua"

    checkout.succeed("uninstall", f"DESTDIR={target}", "PURGE=1")
    assert files(target) == ["/etc/systemd/system/gua-sample.service.d/own.conf"]
    assert not (target / "var/lib/gua").exists()
    assert not (target / "var/spool/gua").exists()


def test_a_purge_follows_no_link(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/history").touch()
    (tmp_path / "target/var/lib").mkdir(parents=True)
    (tmp_path / "target/var/lib/gua").symlink_to(tmp_path / "disk")
    done = checkout.make("uninstall", f"DESTDIR={tmp_path}/target", "PURGE=1")
    assert done.stdout.splitlines()[-1] == f"removing the link /var/lib/gua only; the history is in {tmp_path}/disk"
    assert os.listdir(tmp_path / "disk") == ["history"]
    assert os.listdir(tmp_path / "target/var/lib") == []


# -- Without root.


def test_a_user_gets_units_with_folders_of_their_own(installed_by_user: tuple[Path, dict[str, str]]) -> None:
    target, _ = installed_by_user
    home, environment = target / USER_HOME[1:], f"{USER_HOME}/.local/share/gua"
    units = home / ".config/systemd/user"
    assert sorted(os.listdir(units)) == [
        "gua-rollup.service",
        "gua-rollup.timer",
        "gua-sample.service",
        "gua-sample.timer",
        "gua-sample.timer.d",
    ]
    interval = units / "gua-sample.timer.d/10-interval.conf"
    assert interval.read_text().endswith("\n[Timer]\nOnCalendar=\nOnCalendar=*:0/2\n")
    sample = (units / "gua-sample.service").read_text()
    # systemd takes the quotes off the first, the shell those of the second.
    assert f'\nExecStart="{environment}/bin/gua-sample" --data-dir "/my data/gua" $GUA_POLICY\n' in sample
    assert f'exec "{environment}/bin/gua-sample" --record-timeout --data-dir "/my data/gua" $$GUA_POLICY\'\n' in sample
    rollup = (units / "gua-rollup.service").read_text()
    assert f'\nExecStart="{environment}/bin/gua" rollup --data-dir "/my data/gua"\n' in rollup
    assert "%h" not in sample + rollup
    page = "file:/home/an%%20na/.local/share/gua/share/doc/gua/operations.md"
    assert f"Documentation={page}\n" in (units / "gua-sample.timer").read_text()
    for name in COMMANDS:
        assert os.readlink(home / ".local/bin" / name) == f"{environment}/bin/{name}"
    assert files(target, without=environment) == sorted(
        [f"{USER_HOME}/.config/systemd/user/{path.relative_to(units)}" for path in units.rglob("*") if path.is_file()]
        + [f"{USER_HOME}/.local/bin/{name}" for name in COMMANDS]
    )


# -- The example of a configuration.


def test_the_example_says_what_holds_without_it(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    assert config.load_config(str(ROOT / "systemd/gua.toml")) == config.load_config(str(tmp_path / "empty.toml"))


def test_the_example_shows_every_setting(tmp_path: Path) -> None:
    example = (ROOT / "systemd/gua.toml").read_text()
    settings = re.sub("^#(?! )", "", example, flags=re.MULTILINE)
    (tmp_path / "gua.toml").write_text(settings)
    shown = config.load_config(str(tmp_path / "gua.toml"))
    assert shown.policy == DEFAULT
    assert shown.currency == config.DEFAULT_CURRENCY
    for table, keys in rules.TABLES.items():
        assert f"\n[{table}]\n" in settings
        for key in keys:
            assert re.search(f"^{key} = ", settings, re.MULTILINE), key
    assert shown.people
