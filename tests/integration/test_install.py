"""make install and its relatives, run for real, as far as it goes without a systemd: into a DESTDIR, and refused."""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gua_report import config
from gua_sample.policy import DEFAULT
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_mounts, needs_root

SOURCES = ("Makefile", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "constraints.txt")
SOURCE_FOLDERS = ("gua_sample", "gua_report", "install", "systemd", "docs")
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0"}
NO_CONFIG = {"PIP_CONFIG_FILE": os.devnull, "HOME": "/nonexistent"}
LIBRARY = "opt/gua/lib/python3.*/site-packages"
USER_HOME = "/home/an na"

pytestmark = pytest.mark.timeout(600)  # for a busy machine: an installation takes some 20 s of CPU

Done = subprocess.CompletedProcess[str]


class Checkout:
    """A copy of the project that other users may read, so that they can run make in it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        for name in SOURCES:
            shutil.copy(ROOT / name, folder)
        for name in SOURCE_FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def command(self, *words: str) -> list[str]:
        return ["make", "--no-print-directory", f"PYTHON={self.python}", *words]  # the last PYTHON= counts

    def make(self, *words: str, user: int | None = None, variables: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=environment(variables or {}),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            umask=0o077,  # of a cautious administrator; it must not matter
            capture_output=True,
            text=True,
            check=False,
        )


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what a make that runs these tests hands on."""
    dropped = re.compile(
        r"MAKE|MFLAGS|XDG_|DESTDIR|PREFIX|VENVDIR|SYSCONFDIR|SYSTEMD_UNIT_DIR|WHEELS|READERS|PURGE|PYTHON"
    )
    return {name: value for name, value in os.environ.items() if not dropped.match(name)} | dict(changes)


def suitable_python() -> str:
    """One that a service can be installed with. The tests' own is not, if it is in a home folder."""
    complaints = []
    for python in [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]:
        if os.path.exists(python):
            check = [python, str(ROOT / "install/check_python.py"), "install"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return python
            complaints.append(done.stderr.strip())
    pytest.skip(" / ".join(complaints))


def unprivileged() -> int | None:
    """Whom to run as in order not to be root: somebody else, or ourselves."""
    return SOMEBODY if os.geteuid() == 0 else None


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """All that is in there, with size and time of change."""
    found = [path.lstat() for path in (folder, *sorted(folder.rglob("*")))]
    return [(str(path), 0, 0) for path in sorted(folder.rglob("*"))] + [("", s.st_size, s.st_mtime_ns) for s in found]


def files(folder: Path, *, without: str = "/opt/gua/") -> list[str]:
    """What is in there but folders, as paths below it."""
    found = [f"/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(path for path in found if not path.startswith(without))


def complaint(done: Done) -> str:
    """The one line that it was refused with; make adds another."""
    first, second = done.stderr.splitlines()
    assert second.startswith("make: *** ")
    assert (done.returncode, done.stdout) == (2, "")
    return first


def rewrite(path: Path, text: str) -> None:
    """As editors do: into a new file. The old one may be linked from another tree."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def copy_tree(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-al", source, target], check=True)
    return target


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Unlike pytest's own, other users may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="gua-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def checkout(folder: Path) -> Checkout:
    (folder / "checkout").mkdir()
    return Checkout(folder / "checkout", suitable_python())


@pytest.fixture(scope="module")
def wheels(checkout: Checkout, folder: Path, package_index: None) -> Path:
    wheels = folder / "wheels"
    done = checkout.make("wheels", f"WHEELS={wheels}", "EXTRAS=parquet")
    if "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return wheels


@pytest.fixture(scope="module")
def few_wheels(wheels: Path, folder: Path) -> Path:
    """For installations after the first: without the insides of pandas and pyarrow, which take most of the time."""
    few = folder / "few wheels"
    shutil.copytree(wheels, few, ignore=shutil.ignore_patterns("numpy-*", "pandas-*", "pyarrow-*"))
    for name in ("pandas", "pyarrow"):
        (real,) = wheels.glob(f"{name}-*.whl")
        version = real.name.split("-")[1]
        about = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(few / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    return few


@pytest.fixture(scope="module")
def installed(checkout: Checkout, wheels: Path, folder: Path) -> Path:
    """The tree of a first installation, made without root, without a home and without an index."""
    (folder / "anybody").mkdir()
    (folder / "anybody").chmod(0o777)
    target = folder / "anybody" / "installed"
    done = checkout.make(
        "install",
        f"DESTDIR={target}",
        f"WHEELS={wheels}",
        "EXTRAS=redis,parquet",  # as an administrator may have it in a script; for Redis nothing is needed any more
        "READERS=group",
        user=unprivileged(),
        variables=NO_INDEX | NO_CONFIG,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"building the virtual environment in {target}/opt/gua ")
    return target


@pytest.fixture(scope="module")
def upgraded(checkout: Checkout, few_wheels: Path, installed: Path, folder: Path) -> Path:
    """The tree of an upgrade of that, after an administrator and an older version were at it."""
    target = copy_tree(installed, folder / "upgraded")
    rewrite(target / "etc/gua/gua-sample.env", "GUA_SAMPLE_OPTIONS=--interval 30s\n")
    rewrite(target / "etc/gua/gua.toml", "# as an older version had it\n")
    rewrite(target / "opt/gua/share/gua/gua.toml", "# as an older version had it\n")
    (target / "etc/systemd/system/gua-sample.service.d").mkdir()
    rewrite(target / "etc/systemd/system/gua-sample.service.d/own.conf", "[Service]\nNice=5\n")
    rewrite(target / "usr/local/bin/gua-former", "")
    manifest = target / "opt/gua/installed-files"
    rewrite(manifest, manifest.read_text() + "/usr/local/bin/gua-former\n")
    rewrite(target / "opt/gua/former", "")
    before = listing(checkout.folder)
    done = checkout.make("install", f"DESTDIR={target}", f"WHEELS={few_wheels}", variables=NO_INDEX)
    assert (done.returncode, done.stderr) == (0, "")
    assert listing(checkout.folder) == before  # root could have left something in it
    return target


@pytest.fixture(scope="module")
def installed_by_user(checkout: Checkout, few_wheels: Path, installed: Path) -> tuple[Path, dict[str, str]]:
    target = installed.parent / "of a user"
    variables = NO_INDEX | NO_CONFIG | {"HOME": USER_HOME, "XDG_DATA_HOME": "relative", "XDG_STATE_HOME": "/my data"}
    done = checkout.make(
        "install-user", f"DESTDIR={target}", f"WHEELS={few_wheels}", user=unprivileged(), variables=variables
    )
    assert (done.returncode, done.stderr) == (0, "")
    return target, variables


# -- Refusals: one line, and nothing touched.


def stand_in_python(folder: Path, fault: str) -> Path:
    """A Python with something wrong."""
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; {fault}; {run}" "$@"\n')
    path.chmod(0o755)
    return path


PYTHON_FAULTS = {
    "sys.version_info = (3, 9, 2)": "gua needs Python 3.10 or newer, this is 3.9; "
    "name another with: make {}PYTHON=python3.12",
    "sys.modules['ensurepip'] = None": "this Python has no venv; on Debian and Ubuntu, run: "
    f"sudo apt install python3.{sys.version_info.minor}-venv",
    "sys.modules['sqlite3'] = None": "this Python was built without a part that gua needs "
    "(import of sqlite3 halted; None in sys.modules); name another with: make {}PYTHON=/usr/bin/python3",
    "import sqlite3; sqlite3.sqlite_version_info, sqlite3.sqlite_version = (3, 31, 1), '3.31.1'": "gua needs SQLite "
    "3.37 or newer, this Python has 3.31.1; name another with: make {}PYTHON=python3.12",
}


@pytest.mark.parametrize(("target", "name"), [("install", "install "), ("wheels", "wheels "), ("venv", "")])
@pytest.mark.parametrize("fault", PYTHON_FAULTS)
def test_a_python_that_will_not_do_is_refused(
    checkout: Checkout, tmp_path: Path, fault: str, target: str, name: str
) -> None:
    python = stand_in_python(tmp_path, fault)
    into = tmp_path / "into"
    done = checkout.make(target, f"PYTHON={python}", f"DESTDIR={into}", f"WHEELS={tmp_path}", f"VENV={into}")
    assert complaint(done) == PYTHON_FAULTS[fault].format(name)
    assert not into.exists()


def test_the_oldest_pythons_can_tell_that_they_are_too_old() -> None:
    probe = "import sys; sys.exit(sys.version_info >= (3, 10))"
    candidates = [
        "/usr/bin/python2",
        "/usr/bin/python3",
        *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python")),
    ]
    there = [python for python in candidates if os.path.exists(python)]
    old = [python for python in there if subprocess.run([python, "-c", probe], check=False).returncode == 0]
    if not old:
        pytest.skip("no Python older than 3.10 on this machine")
    for python in old:
        done = subprocess.run([python, ROOT / "install/check_python.py", "install"], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert re.fullmatch(rb"gua needs Python 3\.10 or newer, this is [23]\.\d+; .*\n", done.stderr)


@needs_root
def test_a_python_that_the_service_could_not_run_is_refused(checkout: Checkout, open_folder: Path) -> None:
    private = open_folder / "private"
    private.mkdir(mode=0o700)
    shutil.copy(os.path.realpath(checkout.python), private / "python3")
    done = checkout.make("install", f"PYTHON={private}/python3", f"DESTDIR={open_folder}/into")
    assert complaint(done) == (
        f"the user gua, as whom the sampler runs, can't run {private}/python3; "
        "name another with: make install PYTHON=/usr/bin/python3"
    )
    assert os.listdir(open_folder) == ["private"]


def test_a_python_that_is_not_there_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.make("install", "PYTHON=python3.999", f"DESTDIR={tmp_path}/into")
    wanted = "there is no python3.999; name a Python 3.10 or newer with: make install PYTHON=/usr/bin/python3"
    assert complaint(done) == wanted
    assert os.listdir(tmp_path) == []


REFUSALS = {
    "PURGE=maybe": "bad PURGE=maybe: expected 1",
    "READERS=nobody": "bad READERS=nobody: expected everyone or group",
    "EXTRAS=parquet,raquet": "bad EXTRAS=parquet,raquet: expected parquet or none",
    "WHEELS=/no/such": "there is no folder /no/such; fill one with: make wheels WHEELS=/no/such",
    "VENVDIR=opt/gua": "bad path 'opt/gua': expected one that begins with /",
    "VENVDIR=/": "bad path '': expected one that begins with /",
    "PREFIX=/opt/a%b": "bad path /opt/a%b: quotes, backslashes, colons, $ and % won't do",
    "VENVDIR=/home/gua": "VENVDIR=/home/gua won't do: home folders are out of the service's sight",
    "VENVDIR=/others": "{}/others is there already and not gua's; move it away, or choose another VENVDIR",
    "VENVDIR=/link": "VENVDIR=/link is a link; name the folder itself: VENVDIR={}/others",
    "PREFIX=/others": "{}/others/bin/gua is there already and not from /opt/gua; "
    "move it away, or choose another PREFIX",
}


@pytest.mark.parametrize("variable", REFUSALS)
def test_a_bad_variable_is_refused(checkout: Checkout, tmp_path: Path, variable: str) -> None:
    (tmp_path / "others" / "bin").mkdir(parents=True)
    (tmp_path / "others" / "bin" / "gua").touch()
    (tmp_path / "link").symlink_to("others")
    before = listing(tmp_path)
    assert complaint(checkout.make("install", f"DESTDIR={tmp_path}", variable)) == REFUSALS[variable].format(tmp_path)
    assert listing(tmp_path) == before


def test_wheels_asks_where_to(checkout: Checkout) -> None:
    assert complaint(checkout.make("wheels")) == "say which folder is to be filled: make wheels WHEELS=DIR"


def test_a_place_that_can_not_be_written_is_refused_before_anything_is_built(checkout: Checkout, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    done = checkout.make("install", f"DESTDIR={closed}", user=unprivileged())
    assert complaint(done) == f"{closed}/usr/local/bin can't be written"


@needs_root
def test_without_root_the_other_way_is_named(checkout: Checkout) -> None:
    install = checkout.make("install", user=SOMEBODY)
    assert complaint(install) == "make install takes root; run: sudo make install, or make install-user without root"
    assert complaint(checkout.make("uninstall", user=SOMEBODY)) == "make uninstall takes root; run: sudo make uninstall"


@needs_root
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_root_is_no_user(checkout: Checkout, tmp_path: Path, target: str) -> None:
    done = checkout.make(f"{target}-user", variables={"HOME": str(tmp_path)})
    assert complaint(done) == f"make {target}-user is for people, and this is root; run: make {target}"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["install-user", "uninstall-user"])
def test_a_user_whose_systemd_does_not_answer_is_told_to_log_in(
    checkout: Checkout, open_folder: Path, target: str
) -> None:
    done = checkout.make(target, user=unprivileged(), variables={"HOME": str(open_folder)})
    line = complaint(done)
    assert line.startswith("your systemd does not answer, as after su or sudo; log in (ssh ")
    assert line.endswith(f"@localhost) and run make {target} there")
    assert os.listdir(open_folder) == []


@needs_mounts
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_a_machine_without_systemd_is_refused(checkout: Checkout, tmp_path: Path, target: str) -> None:
    places = [f"PREFIX={tmp_path}", f"VENVDIR={tmp_path}/gua", f"SYSCONFDIR={tmp_path}"]  # should it not be refused
    hide = 'mount -t tmpfs tmpfs /run && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *checkout.command(target, *places)],
        cwd=checkout.folder,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = "this machine is not run by systemd, whose timers gua needs; to build a package, give DESTDIR"
    assert complaint(done) == wanted
    assert os.listdir(tmp_path) == []


# -- A first installation.


def test_nothing_else_is_installed_outside_the_environment(installed: Path) -> None:
    assert files(installed) == [
        "/etc/gua/gua-sample.env",
        "/etc/gua/gua.toml",
        "/etc/systemd/system/gua-.service.d/10-readers.conf",
        "/usr/local/bin/gua",
        "/usr/local/bin/gua-report",
        "/usr/local/bin/gua-sample",
        "/usr/local/lib/systemd/system/gua-rollup.service",
        "/usr/local/lib/systemd/system/gua-rollup.timer",
        "/usr/local/lib/systemd/system/gua-sample.service",
        "/usr/local/lib/systemd/system/gua-sample.timer",
        "/usr/local/lib/sysusers.d/gua.conf",
    ]
    manifest = (installed / "opt/gua/installed-files").read_text().splitlines()
    assert [path for path in manifest if not path.endswith("/")] == files(installed)
    for name in ("gua", "gua-sample", "gua-report"):
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
    assert {"gua", "gua-sample", "gua-report"} < commands
    assert not [name for name in commands if name.startswith("pip")]


def test_no_file_names_the_folder_that_it_was_built_in(installed: Path) -> None:
    names = [str(installed.parent), "/opt/gua.new", f"{tempfile.gettempdir()}/tmp"]
    patterns = [word for name in names for word in ("-e", name)]
    found = subprocess.run(
        ["grep", "-rlF", *patterns, str(installed), "--exclude-dir=tests"], capture_output=True, text=True, check=False
    )
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


def test_everybody_may_read_all_of_it_and_nobody_write(installed: Path) -> None:
    for path in installed.rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or (mode & 0o022 == 0 and mode & 0o444 == 0o444), path
        assert not path.is_dir() or path.is_symlink() or mode & 0o111 == 0o111, path


def test_what_was_installed_samples(installed: Path, tmp_path: Path) -> None:
    binaries = installed / "opt/gua/bin"
    command = [f"{binaries}/python", "-I", f"{binaries}/gua-sample", "--simulate", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == ["samples"]


# -- An upgrade.


def test_an_upgrade_keeps_what_was_edited_and_renews_the_rest(upgraded: Path, installed: Path) -> None:
    own = "/etc/systemd/system/gua-sample.service.d/own.conf"
    assert files(upgraded) == sorted([*files(installed), own])
    assert (upgraded / "etc/gua/gua-sample.env").read_text() == "GUA_SAMPLE_OPTIONS=--interval 30s\n"
    assert (upgraded / "etc/gua/gua.toml").read_bytes() == (ROOT / "systemd/gua.toml").read_bytes()
    assert not (upgraded / "opt/gua/former").exists()


def test_the_choice_of_readers_survives_an_upgrade(upgraded: Path) -> None:
    assert "0750" in (upgraded / "etc/systemd/system/gua-.service.d/10-readers.conf").read_text()
    assert "10-readers.conf" in (upgraded / "opt/gua/installed-files").read_text()


def test_the_choice_of_extras_survives_an_upgrade(upgraded: Path, installed_by_user: tuple[Path, object]) -> None:
    pattern = "**/site-packages/pyarrow-*.dist-info"
    chosen, plain = (list(tree.glob(pattern)) for tree in (upgraded, installed_by_user[0]))
    assert len(chosen) == 1
    assert plain == []


def test_an_upgrade_that_fails_leaves_the_old_version_and_nothing_else(
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

    done = checkout.make("uninstall", f"DESTDIR={target}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-3:] == [
        "kept /etc/gua/gua-sample.env, which was edited",
        "kept the history in /var/lib/gua and its owner, the user gua",
        "to remove them too: sudo make uninstall PURGE=1",
    ]
    assert files(target) == [
        "/etc/gua/gua-sample.env",
        "/etc/systemd/system/gua-.service.d/10-readers.conf",  # who may read what is kept
        "/etc/systemd/system/gua-sample.service.d/own.conf",
        "/var/lib/gua/samples/2026-11-16.sqlite",
    ]
    assert sorted(os.listdir(target)) == ["etc", "var"]  # no empty folders either

    again = checkout.make("uninstall", f"DESTDIR={target}")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == f"gua is not installed in {target}/opt/gua"

    purged = checkout.make("uninstall", f"DESTDIR={target}", "PURGE=1")
    assert (purged.returncode, purged.stderr) == (0, "")
    assert files(target) == ["/etc/systemd/system/gua-sample.service.d/own.conf"]
    assert not (target / "var/lib/gua").exists()


def test_a_purge_takes_away_edited_configuration_too(checkout: Checkout, upgraded: Path, tmp_path: Path) -> None:
    target = copy_tree(upgraded, tmp_path / "target")
    done = checkout.make("uninstall", f"DESTDIR={target}", "PURGE=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert files(target) == ["/etc/systemd/system/gua-sample.service.d/own.conf"]


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
    ]
    sample = (units / "gua-sample.service").read_text()
    # systemd takes the quotes off the first, the shell those of the second.
    assert f'\nExecStart="{environment}/bin/gua-sample" --data-dir "/my data/gua"\n' in sample
    assert f'exec "{environment}/bin/gua-sample" --record-timeout --data-dir "/my data/gua"\'\n' in sample
    rollup = (units / "gua-rollup.service").read_text()
    assert f'\nExecStart="{environment}/bin/gua" rollup --data-dir "/my data/gua"\n' in rollup
    assert "%h" not in sample + rollup
    page = "file:/home/an%%20na/.local/share/gua/share/doc/gua/operations.md"
    assert f"Documentation={page}\n" in (units / "gua-sample.timer").read_text()
    for name in ("gua", "gua-sample", "gua-report"):
        assert os.readlink(home / ".local/bin" / name) == f"{environment}/bin/{name}"
    assert files(target, without=environment) == sorted(
        [f"{USER_HOME}/.config/systemd/user/{name}" for name in os.listdir(units)]
        + [f"{USER_HOME}/.local/bin/{name}" for name in ("gua", "gua-sample", "gua-report")]
    )


def test_a_user_removes_all_but_the_history(checkout: Checkout, installed_by_user: tuple[Path, dict[str, str]]) -> None:
    target, variables = installed_by_user
    (target / "my data/gua").mkdir(parents=True)
    done = checkout.make("uninstall-user", f"DESTDIR={target}", user=unprivileged(), variables=variables)
    assert (done.returncode, done.stderr) == (0, "")
    kept = ["kept the history in /my data/gua", "to remove it too: make uninstall-user PURGE=1"]
    assert done.stdout.splitlines()[-2:] == kept
    assert [str(path.relative_to(target)) for path in sorted(target.rglob("*"))] == ["my data", "my data/gua"]


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
    for table, keys in config.TABLES.items():
        assert f"\n[{table}]\n" in settings
        for key in keys:
            assert re.search(f"^{key} = ", settings, re.MULTILINE), key
    assert shown.people
