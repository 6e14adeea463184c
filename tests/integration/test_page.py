"""gua page: whose names are published, who may read them, and what stays when something is in the way."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest

from gua_report.render.html import CONTENT_POLICY
from tests import verbs
from tests.lab import DAY_MS, HOUR_MS, Job, busy, held, series, write
from tests.machine import GUA, call, one_line
from tests.repository import ROOT
from tests.svg import Page

FILES = ("index.html", "month.html", "year.html")
RECIPES = ROOT / "contrib" / "web"
SECRETS = ("ada-lovelace", "3f2a9c81d0b7", "train-alice", "4711471", "/home/")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty days, an hour of each, of two people: one by name, one in a container."""
    folder = tmp_path_factory.mktemp("home") / "home" / "history"
    now_ms = time.time_ns() // 1_000_000
    named = Job(4711471, "ada-lovelace", command="train-alice")
    boxed = Job(
        4711472, "root", uid=0, cgroup=f"/system.slice/docker-3f2a9c81d0b7{'0' * 52}.scope", command="train-alice"
    )
    ticks = []
    for days in range(40, -1, -1):
        who = (held(named), busy(boxed, index=1)) if days < 20 else (held(boxed), busy(named, index=1))
        ticks += series(now_ms - days * DAY_MS - HOUR_MS, 60, *who)
    write(folder, ticks)
    return folder


@pytest.fixture
def hour(open_folder: Path) -> tuple[Path, Path]:
    """A history of the last hour, and a folder for pages with an older one."""
    data, pages = open_folder / "data", open_folder / "pages"
    write(data, series(time.time_ns() // 1_000_000 - HOUR_MS, 60, held()))
    pages.mkdir()
    (pages / "index.html").write_text("older")
    return data, pages


def run(folder: Path, data_dir: Path, *arguments: str, config: str = "/dev/null") -> verbs.Done:
    return verbs.run("page", folder, "--data-dir", data_dir, "--config", config, *arguments, seconds=120)


def test_it_writes_three_pages_with_links_between_them(history: Path, tmp_path: Path) -> None:
    done = run(tmp_path, history, "--names", "people")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)
    for name in FILES:
        text = (tmp_path / name).read_text()
        links = [attributes["href"] for tag, attributes in Page(text).tags if tag == "a"]
        assert links == list(FILES)
        assert 'name="robots" content="noindex"' in text
        assert "ada-lovelace" in text
    assert "docker:3f2a9c81d0b7" in (tmp_path / "year.html").read_text()


def test_without_names_nobody_can_be_told_and_a_number_is_the_same_person_on_all_pages(
    history: Path, tmp_path: Path
) -> None:
    assert run(tmp_path, history, "--names", "none").returncode == 0
    # The container idled for longer in the year, and the person with a name in the week.
    for name, first in zip(FILES, ("person 2", "person 2", "person 1"), strict=True):
        text = (tmp_path / name).read_text()
        people = next(one for one in Page(text).pictures if "on one scale" in one.title)
        assert next(one for one in people.texts if one.startswith("person")) == first
        assert not [secret for secret in SECRETS if secret in text]


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """A config: one of the two is in both groups, the other in none."""
    config = tmp_path / "gua.toml"
    config.write_text('[groups]\nvision = ["ada-lovelace", "zoe"]\nnlp = ["ada-lovelace"]\nodd = ["@no-such-group"]\n')
    return config


def test_one_page_may_be_asked_for_with_costs_and_with_the_groups_of_the_config(
    history: Path, tmp_path: Path, groups: Path
) -> None:
    pages = tmp_path / "pages"  # which is made
    with groups.open("a") as file:
        file.write('[price]\nper_gpu_hour = 2\ncurrency = "EUR"\n')
    for names, costs in (("none", []), ("people", ["--costs"])):
        done = run(pages, history, "--names", names, "--page", "week", *costs, config=str(groups))
        assert (done.returncode, os.listdir(pages)) == (0, ["index.html"])
        text = (pages / "index.html").read_text()
        assert [a["href"] for tag, a in Page(text).tags if tag == "a"] == ["index.html"]
        assert ("EUR" in text, "vision" in text) == (bool(costs), names == "people")


def test_with_groups_for_names_nobody_can_be_told(history: Path, tmp_path: Path, groups: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    done = run(pages, history, "--names", "groups", "--config", str(groups))
    assert (done.returncode, done.stderr) == (0, "")
    for name in FILES:
        text = (pages / name).read_text()
        assert not [secret for secret in SECRETS if secret in text]
        people = next(one for one in Page(text).pictures if "on one scale" in one.title)
        assert {"vision", "(no group)"} <= set(people.texts)
        assert "nlp" not in text  # the first group counts, and the page says so
        assert "Note: 1 person is in several groups, and counted in the first of them" in text
        assert "Note: there is no Unix group &#x27;no-such-group&#x27; here" in text


@pytest.mark.parametrize(("mode", "expected"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600)])
def test_those_can_read_the_pages_who_can_read_the_history(hour: tuple[Path, Path], mode: int, expected: int) -> None:
    data, pages = hour
    data.chmod(mode)
    (pages / "index.html").chmod(0o666)
    assert run(pages, data, "--names", "none").returncode == 0
    for name in FILES:
        assert (pages / name).stat().st_mode & 0o777 == expected
        assert (pages / name).stat().st_gid == data.stat().st_gid


def test_a_folder_that_is_missing_is_named_in_one_line(history: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere" / "pages", history, "--names", "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    expected = f"pages can't be made (No such file or directory): make {tmp_path}/nowhere first, or give another folder"
    assert expected in done.stderr


def test_a_page_that_can_not_be_written_whole_leaves_the_older_one(history: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("older")
    command = f"ulimit -f 8; '{GUA}' page {tmp_path} --names none --data-dir {history} --config /dev/null"
    done = call(["bash", "-c", command])
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert os.listdir(tmp_path) == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "older"


def test_a_week_without_a_tick_has_a_page_that_says_so(tmp_path: Path) -> None:
    data, pages = tmp_path / "data", tmp_path / "pages"
    pages.mkdir()
    now_ms = time.time_ns() // 1_000_000
    write(data, series(now_ms - 20 * DAY_MS, 60, held()))
    assert run(pages, data, "--names", "none").returncode == 0
    assert "Nothing was observed in the last 7 days" in (pages / "index.html").read_text()
    assert "GPU time was idle-held" in (pages / "month.html").read_text()


@needs_root
def test_root_reads_as_the_owner_of_the_history(hour: tuple[Path, Path]) -> None:
    data, pages = hour
    for path in (data, *data.rglob("*")):
        os.chown(path, 1234, 1234)
    assert run(pages, data, "--names", "none").returncode == 0
    # What root alone can read is not read.
    for path in data.rglob("*.sqlite"):
        os.chown(path, 0, 0)
        path.chmod(0o600)
    done = run(pages, data, "--names", "none")
    assert done.returncode == 1
    assert one_line(done.stderr)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here to ask")
def test_the_units_say_how_they_are_installed_and_ask_for_what_is_there() -> None:
    for name, pages in (("gua-page", "--page week --page month"), ("gua-page-year", "--page year")):
        text = (RECIPES / f"{name}.service").read_text()
        assert re.search(rf'gua page /var/www/gua --names "\$\$NAMES" {pages}\'', text)
    assert "# To install: " in (RECIPES / "gua-page.service").read_text()
    assert "\nOnCalendar=*:0/10\n" in (RECIPES / "gua-page.timer").read_text()
    assert re.search(r"\nOnCalendar=\*-\*-\* 0\d:\d\d:00\n", (RECIPES / "gua-page-year.timer").read_text())
    units = [*RECIPES.glob("*.service"), *RECIPES.glob("*.timer")]
    done = call(["systemd-analyze", "verify", "--man=no", *units])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_servers_ask_for_a_password_and_send_the_policy_that_the_page_gets_by_with() -> None:
    for name, login in (("nginx.conf", "auth_basic_user_file "), ("apache.conf", "Require valid-user")):
        text = (RECIPES / name).read_text()
        assert CONTENT_POLICY in text
        assert f"\n    {login}" in text
