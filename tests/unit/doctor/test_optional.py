"""What gua doctor makes of what sampling works without: gua.toml, notes, and the names of containers."""

import os
import threading
import time
from pathlib import Path

import pytest

from gua_report.config import Notes
from gua_report.doctor import optional, user
from gua_report.doctor.data import find_sampler
from gua_report.doctor.findings import NAMED, OK, WARNING, Finding
from gua_report.doctor.optional import check_config, check_containers, check_notes
from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME, Container, Known
from gua_sample.service import WANTED
from tests.facts import units
from tests.lab import CONFIG, DAY_MS
from tests.notes import content, make_spool, put
from tests.users import SOMEBODY, needs_root

GOOD = """
people = {"uid:5" = "zoe"}
groups = {vision = ["root", "zoe", "docker:3f2a9c81d0b7", "@root"], nlp = []}
exempt = {"unit:ollama.service" = "serves"}
"""
CLASH = '[people]\nroot = "Ada L."\n"uid:5" = "zoe"\n[exempt]\nroot = "x"\nzoe = "y"\n'
STRANGERS = '[groups]\nvision = ["root", "nobody-here", "@no-such-group"]\n[exempt]\nnobody-else = "serves"\n'


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (GOOD, OK, ["gua.toml: 1 name, 2 groups, 1 exemption"]),
        ("[polcy]", WARNING, ["mean policy?; until then reports, status and rollups fail"]),
        ("= 5", WARNING, ["; until then reports, status and rollups fail"]),
        (STRANGERS, WARNING, ["nobody whom [people] names: nobody-here, nobody-else", ": no-such-group"]),
        (CLASH, WARNING, ["gives another, to be exempted instead: root (Ada L.)"]),  # it has no effect
    ],
)
def test_a_config_is_named_with_what_it_has_or_what_is_wrong(
    tmp_path: Path, text: str, status: str, said: list[str]
) -> None:
    path = tmp_path / "gua.toml"
    path.write_text(text)
    config, found = check_config(str(path))
    assert (config is None) == any("fail" in one for one in said)
    for one, end in zip(found, said, strict=True):
        assert (one.check, one.status, one.text[-len(end) :]) == ("gua.toml", status, end)
        assert one.remedy == (None if status == OK else f"sudoedit {path}")


def test_a_directory_that_hangs_costs_seconds_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (optional, user):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    over = threading.Event()

    def hang(name: str) -> None:
        over.wait(60)
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwnam", hang)
    path = tmp_path / "gua.toml"
    path.write_text('[groups]\nvision = ["ada"]\n')
    _, (found,) = check_config(str(path))
    _, sampler = find_sampler(units(), str(tmp_path))
    over.set()
    for one in (found, sampler):
        assert (one.status, "does not answer" in one.text) == (WARNING, True)


def test_without_a_config_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gua_report.config.SYSTEM_CONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(optional, "SYSTEM_CONFIG", str(tmp_path / "none"))
    config, findings = check_config(None)
    assert config is not None
    assert findings == []


TRAIN = Container("docker", "train", None, None, None, 1)


def leave_note(folder: Path, age_seconds: float) -> None:
    (folder / WANTED).write_text("3f2a9c81d0b7\n")
    os.utime(folder / WANTED, times=(time.time() - age_seconds,) * 2)


def test_known_names_are_counted_and_a_file_that_can_not_be_used_is_a_warning(tmp_path: Path) -> None:
    assert check_containers(str(tmp_path), str(tmp_path)) == []
    write_containers(str(tmp_path), Known({"3f2a9c81d0b7": TRAIN}))
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, found.text) == (OK, "1 name known")
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).symlink_to("/etc/passwd")
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, "names of containers are missing" in found.text) == (WARNING, True)


def test_a_note_that_nobody_takes_is_a_warning_if_one_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "UNIT_FOLDERS", (str(tmp_path),))
    leave_note(tmp_path, 300)
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, str(found.remedy).split()[:4]) == (OK, ["sudo", "make", "install", "CONTAINERS=yes"])
    (tmp_path / optional.UNIT).touch()
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, found.text) == (
        WARNING,
        "names were asked for 5m ago, and nobody has looked: gua-containers.path does not work",
    )
    leave_note(tmp_path, 60)
    assert check_containers(str(tmp_path), str(tmp_path)) == []


ME = os.geteuid()
NOW_MS = time.time_ns() // 1_000_000


def check(path: Path) -> list[Finding]:
    return check_notes(NOW_MS + 60_000, CONFIG._replace(notes=Notes(str(path))))


@pytest.fixture
def spool(open_folder: Path) -> Path:
    return make_spool(open_folder)


def test_notes_in_force_are_counted_and_nobody_needs_a_spool(spool: Path) -> None:
    put(spool, f"{ME}.0", content(NOW_MS, NOW_MS + DAY_MS))
    put(spool, f"{ME}.1", content(NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS))
    assert check(spool) == [Finding("notes", OK, f"1 note in force, in {spool}")]
    spool.chmod(0o777)  # so that reports do not use it
    (finding,) = check(spool)
    assert (finding.status, "a folder of root's of mode 1733" in finding.text) == (WARNING, True)
    assert check(spool / "none") == []


@needs_root
def test_files_that_are_no_notes_are_named_with_whose_place_they_block(spool: Path) -> None:
    put(spool, f"{ME}.0", content(NOW_MS, NOW_MS + DAY_MS), SOMEBODY)
    put(spool, f"{SOMEBODY}.3", b"junk\x1b", SOMEBODY)
    (spool / "something else").touch()
    good, *bad = check(spool)
    assert good.text.startswith("0 notes")
    assert [(one.text, one.remedy) for one in bad] == [
        (f"{spool}/{name}, where a note of {whose} would be, does not count: {why}", f"sudo rm -r {spool}/{name}")
        for name, whose, why in (
            ("0.0", "root", f"it belongs to uid {SOMEBODY}"),
            (f"{SOMEBODY}.3", f"uid {SOMEBODY}", "it is no JSON"),
        )
    ]
    for number in range(1, NAMED + 4):
        put(spool, f"{SOMEBODY + number}.0", b"", SOMEBODY)
    assert [one.text for one in check(spool)][-1] == "and 5 more files that are no notes"
