"""Who is in which group: by name, by the Unix groups of this machine, and what is said if those can't be had."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gua_report.people.groups import NO_GROUP, Memberships, find_memberships
from gua_report.people.identities import is_person
from tests.users import needs_mounts

ROOT_GROUP = "@root"  # root's own group, on any Linux


def test_people_are_in_the_groups_that_list_them_in_the_order_of_the_configuration() -> None:
    groups = {"vision": ("ada", "ben"), "nlp": ("cem", "ada"), "empty": ()}
    found = find_memberships(groups, ["ada", "ben", "cem", "zoe", "(unattributed)"], {})
    assert found == Memberships({"ada": ("vision", "nlp"), "ben": ("vision",), "cem": ("nlp",)}, (), [])
    assert [found.first_group(who) for who in ("ada", "zoe")] == ["vision", NO_GROUP]
    assert found.find_members("nlp") == ["ada", "cem"]


def test_people_are_those_of_the_configuration_whatever_the_group_calls_them() -> None:
    people = {"docker:3f2a9c81d0b7": "ada", "bn": "Ben B."}
    found = find_memberships({"one": ("docker:3f2a9c81d0b7",), "two": ("bn",)}, ["ada", "Ben B."], people)
    assert found.of == {"ada": ("one",), "Ben B.": ("two",)}


def test_a_unix_group_has_those_whose_own_group_it_is() -> None:
    for seen, people in (("root", {}), ("uid:0", {}), ("The Admin", {"root": "The Admin"}), ("x", {"uid:0": "x"})):
        assert find_memberships({"all": (ROOT_GROUP,)}, [seen, "ada"], people).of == {seen: ("all",)}
    # Who is somebody else by the configuration is not counted by the name that is no longer theirs.
    assert find_memberships({"all": (ROOT_GROUP,)}, ["root"], {"root": "ada"}).of == {}


def test_names_that_no_directory_knows_are_in_no_unix_group() -> None:
    odd = ["a\0b", "\udc80", "docker:root", "uid:x", "uid:99999999999999999999", "", "root\n", "x" * 100_000]
    assert find_memberships({"all": (ROOT_GROUP,)}, odd, {}) == Memberships({}, (), [])


@pytest.mark.parametrize("name", ["no-such-group", "", "a\0b", "\udc80"])
def test_a_unix_group_that_does_not_exist_is_a_line_and_not_empty(name: str) -> None:
    found = find_memberships({"odd": (f"@{name}", "ada"), "fine": ("ben",)}, ["ada", "ben"], {})
    assert found.unknown == ("odd",)
    (line,) = found.problems
    assert repr(name) in line
    assert "the hours of odd are not known" in line
    assert found.of == {"ada": ("odd",), "ben": ("fine",)}


def ask_elsewhere(variables: dict[str, str], *command: str) -> dict[str, Any]:
    """What a process with these variables finds, within half a second, and how long it took."""
    script = (
        "import json, time; from gua_report.people.groups import find_memberships as find; began = time.monotonic();"
        "groups = {'vision': ['@root'], 'named': ['ada'], 'both': ['@users', 'ada']};"
        "found = find({name: tuple(some) for name, some in groups.items()}, ['ada', 'ben', 'root'], {}, 0.5);"
        "print(json.dumps({**found._asdict(), 'seconds': time.monotonic() - began}), flush=True);"
        "import os; os._exit(0)"  # as commands do: a thread may hang
    )
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("variable", [("GUA_TEST_SLOW_GROUP", "users"), ("GUA_TEST_SLOW_USER", "ben")])
def test_a_directory_that_hangs_costs_its_time_limit_and_what_it_would_tell(
    driver: Path, variable: tuple[str, str]
) -> None:
    found = ask_elsewhere({"LD_PRELOAD": str(driver / "slow_names.so"), variable[0]: variable[1]})
    assert 0.4 < found["seconds"] < 10
    assert found["unknown"] == ["vision", "both"]
    assert found["of"] == {"ada": ["named", "both"]}
    assert [line.split(":")[0] for line in found["problems"]] == [
        f"the directory of users did not tell within 0.5 s who is in the Unix group '{name}'"
        for name in ("root", "users")
    ]


@needs_mounts
def test_a_unix_group_has_those_that_it_lists(tmp_path: Path) -> None:
    (tmp_path / "group").write_text("root:x:0:\nusers:x:100:ben,gone\n")
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\nada:x:1002:100::/:/bin/sh\n")
    mounts = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("group", "passwd"))
    found = ask_elsewhere({}, "unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh")
    assert found["of"] == {"ada": ["named", "both"], "ben": ["both"], "root": ["vision"]}
    assert (found["unknown"], found["problems"]) == ([], [])


def test_a_person_is_neither_a_container_nor_a_unit_nor_nobody() -> None:
    assert [name for name in ("ada", "uid:1234", "Ada L.") if not is_person(name)] == []
    others = ("docker:3f2a9c81d0b7", "pod:1", "slurm:4711", "unit:ollama.service", "lxc:x", "(unattributed)", "unknown")
    assert [name for name in others if is_person(name)] == []
