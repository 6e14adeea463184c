"""What make install refuses: one line, and nothing touched."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.install.checkout import Checkout, complaint, environment, listing, unprivileged
from tests.machine import call
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_mounts, needs_root

pytestmark = pytest.mark.timeout(600)  # for a busy machine: an installation takes some 20 s of CPU


def stand_in_python(folder: Path, fault: str) -> Path:
    """A Python with something wrong."""
    run = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "import sys; {fault}; {run}" "$@"\n')
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
def test_a_python_that_wont_do_is_refused(
    checkout: Checkout, tmp_path: Path, fault: str, target: str, name: str
) -> None:
    python = stand_in_python(tmp_path, fault)
    into = tmp_path / "into"
    done = checkout.make(target, f"PYTHON={python}", f"DESTDIR={into}", f"WHEELS={tmp_path}", f"VENV={into}")
    assert complaint(done) == PYTHON_FAULTS[fault].format(name)
    assert not into.exists()


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


@needs_root
def test_a_python_of_somebody_elses_is_refused_where_root_is_to_run_it(checkout: Checkout, open_folder: Path) -> None:
    python = open_folder / "python3"
    shutil.copy(os.path.realpath(checkout.python), python)
    os.chown(python, SOMEBODY, SOMEBODY)
    check = [str(python), str(ROOT / "install/check_python.py"), "install"]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    done = call([*check, "yes"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"with CONTAINERS=yes root would run {python}, which is uid {SOMEBODY}'s; "
        "name another with: make install PYTHON=/usr/bin/python3\n"
    )


def test_users_without_root_can_not_have_containers_asked_for(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.make("install-user", "CONTAINERS=yes", f"DESTDIR={tmp_path}/into", user=unprivileged())
    assert complaint(done) == "CONTAINERS=yes takes root, who may ask Docker; run: sudo make install CONTAINERS=yes"


def test_a_python_that_is_not_there_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.make("install", "PYTHON=python3.999", f"DESTDIR={tmp_path}/into")
    wanted = "there is no python3.999; name a Python 3.10 or newer with: make install PYTHON=/usr/bin/python3"
    assert complaint(done) == wanted
    assert os.listdir(tmp_path) == []


REFUSALS = {
    "PURGE=maybe": "bad PURGE=maybe: expected 1",
    "READERS=nobody": "bad READERS=nobody: expected everyone or group",
    **{
        f"INTERVAL={text}": f"bad INTERVAL={text}: expected 5s to 1h in whole seconds, such as 15s, 90s or 2m"
        for text in ("4s", "2h", "soon", "08s", "15", "1.5m", "-5s")
    },
    **{
        f"INTERVAL={text}": f"bad INTERVAL={text}: an hour is not a multiple of it; the next that work are {next_ones}"
        for text, next_ones in {"7s": "6s and 8s", "7m": "400s and 450s"}.items()
    },
    "CONTAINERS=perhaps": "bad CONTAINERS=perhaps: expected yes or no",
    "EXTRAS=parquet,raquet": "bad EXTRAS=parquet,raquet: expected none, parquet, fleet or parquet,fleet",
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
def test_a_user_whose_systemd_is_silent_is_told_to_log_in(checkout: Checkout, open_folder: Path, target: str) -> None:
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
    done = call(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *checkout.command(target, *places)],
        cwd=checkout.folder,
        env=environment({}),
    )
    wanted = "this machine is not run by systemd, whose timers gua needs; to build a package, give DESTDIR"
    assert complaint(done) == wanted
    assert os.listdir(tmp_path) == []


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("interval", ["5s", "8s", "45s", "90s", "2m", "225s", "10m", "1h"])
def test_what_divides_an_hour_is_an_interval_that_systemd_keeps(interval: str) -> None:
    script = """say() { printf '%s\\n' "$*"; }; . "$1/install/checks.sh"; INTERVAL=$2; check_interval
    sed "s|@calendar@|$calendar|" "$1/systemd/gua-interval.conf" """
    done = subprocess.run(["sh", "-euc", script, "sh", ROOT, interval], capture_output=True, text=True, check=True)
    calendars = re.findall(r"^OnCalendar=(.+)", done.stdout, re.MULTILINE)
    seconds = int(interval[:-1]) * {"s": 1, "m": 60, "h": 3600}[interval[-1]]
    base = "2026-11-16 00:00:00 UTC"
    count = 2 * 3600 // seconds
    command = ["systemd-analyze", "calendar", f"--iterations={count}", "--base-time", base]
    runs: set[str] = set()
    for calendar in calendars:
        environment = {**os.environ, "TZ": "UTC"}
        shown = subprocess.run([*command, calendar], env=environment, capture_output=True, text=True, check=True)
        runs |= set(re.findall(r"2026-11-16 (\d\d:\d\d:\d\d) UTC", shown.stdout))
    wanted = [f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}" for at in range(seconds, 3601, seconds)]
    assert sorted(run for run in runs if "00:00:00" < run <= "01:00:00") == wanted
