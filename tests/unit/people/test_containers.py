"""containers.json: who is behind containers, as far as is known, what is kept, and what a hostile file can't do."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gua_report.people.containers import (
    People,
    add_containers,
    find_people,
    spell,
    tell,
    write_containers,
)
from gua_sample.containers import (
    FILE_NAME,
    LABEL,
    LONGEST_NAME,
    MOST_BYTES,
    MOST_CONTAINERS,
    MOUNT,
    NOTHING,
    VERSION,
    Container,
    Known,
    read_containers,
)
from gua_sample.errors import StoreError
from tests import hostile, odd_files
from tests.repository import page

ID, POD = "3f2a9c81d0b7", "0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00"
HINTED = Container("docker", "train-resnet", "pytorch/pytorch:2.5.1", "ada", LABEL, 1_794_000_000_000)
NAMELESS = HINTED._replace(owner=None, how=None)
DOCKER = f"/system.slice/docker-{ID}{'0' * 52}.scope"
IN_SLICE = "/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-" + ID + "0" * 52 + ".scope"


def write(folder: Path, containers: Any, **more: Any) -> None:
    document = {"version": VERSION, "containers": containers, **more}
    (folder / FILE_NAME).write_text(json.dumps(document))


def entry(**changes: Any) -> dict[str, Any]:
    return {**HINTED._asdict(), **changes}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    pod = Container("pod", "ml/train-0", None, "mei", MOUNT, 3)
    written = Known({ID: HINTED, POD.replace("-", ""): pod})
    write_containers(str(tmp_path), written)
    assert read_containers(str(tmp_path)) == written
    assert add_containers(str(tmp_path), {"0" * 12: NAMELESS}) is None
    assert read_containers(str(tmp_path)) == Known({**written.containers, "0" * 12: NAMELESS})


def test_the_newest_are_kept_if_there_are_very_many(tmp_path: Path) -> None:
    many = {f"{number:012x}": HINTED._replace(seen_ms=number) for number in range(MOST_CONTAINERS + 50)}
    write_containers(str(tmp_path), Known(many))
    kept = read_containers(str(tmp_path)).containers
    assert (len(kept), min(one.seen_ms for one in kept.values())) == (MOST_CONTAINERS, 50)


def test_without_the_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_containers(str(tmp_path)) == NOTHING
    assert find_people(str(tmp_path), {"bob": "Bob"}) == People()


def make_link(path: Path) -> None:
    other = path.with_name("other.json")
    other.write_text(json.dumps({"version": VERSION, "containers": {ID: entry()}}))
    path.symlink_to(other)


def make_sparse(path: Path) -> None:
    path.touch()
    hostile.make_sparse(path, 8 << 30)


UNUSABLE = {
    "a link": make_link,
    "a fifo": os.mkfifo,
    "a link to what never ends": odd_files.endless,
    "a folder": os.mkdir,
    "8 GB, sparse": make_sparse,
    "nothing": Path.touch,
    "no JSON": lambda path: path.write_text("{"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00\xd8"),
    "deeply nested": lambda path: path.write_text("[" * 1_000_000),
    "a number of too many digits": lambda path: path.write_text('{"version": 1' + "0" * 100_000 + "}"),
    "a list": lambda path: path.write_text("[1]"),
    "a version to come": lambda path: path.write_text('{"version": 2, "containers": {}}'),
    "a version that is a text": lambda path: path.write_text('{"version": "1"}'),
    "9 MB": lambda path: path.write_bytes(b" " * (9 << 20)),
}


@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_cant_be_used_costs_the_names_and_nothing_else(tmp_path: Path, make: Any) -> None:
    make(tmp_path / FILE_NAME)
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"containers\.json .*: names of containers are missing"):
        read_containers(str(tmp_path))
    people = find_people(str(tmp_path), {"uid:1000": "Ada"})
    assert people.containers == NOTHING
    assert people.problem
    assert time.monotonic() - began < 20
    # What is found out next takes its place, and why its old content is lost is said.
    if (tmp_path / FILE_NAME).is_dir():
        with pytest.raises(StoreError, match="can't be written"):
            write_containers(str(tmp_path), NOTHING)
    else:
        assert add_containers(str(tmp_path), {ID: HINTED})
        assert read_containers(str(tmp_path)) == Known({ID: HINTED})
    assert not [path for path in tmp_path.iterdir() if path.name not in (FILE_NAME, "other.json")]


MAKES_NO_SENSE: list[Any] = [None, "train-resnet", [1], {}]
MAKES_NO_SENSE += [entry(name=name) for name in (None, "", "  ", ["train"], 7)]
MAKES_NO_SENSE += [entry(runtime=runtime) for runtime in ("ada", ["docker"])]
MAKES_NO_SENSE += [entry(seen_ms=moment) for moment in ("now", float("nan"), -1, 1.5, 10**400)]
NO_IDS = ["", ID[:-1], ID.upper(), f"{ID}g", f"../{ID[:9]}", "ada", "1000/", f"1000/{ID}", f"x/{ID}", "0" * 65]


@pytest.mark.parametrize(
    "entries", [*({ID: value} for value in MAKES_NO_SENSE), *({key: entry()} for key in NO_IDS)], ids=repr
)
def test_an_entry_that_makes_no_sense_is_passed_over(tmp_path: Path, entries: Any) -> None:
    write(tmp_path, {**entries, "0123456789ab": entry()})
    assert read_containers(str(tmp_path)).containers == {"0123456789ab": HINTED}


NO_USERS = ["(unattributed)", "unknown", "root", "docker:3f2a9c81d0b7", "uid:1000", "ada? (docker: x)", "ada?", " ada"]
NO_USERS += ["", "\x1b[31mada", "ada\n", "a" * (LONGEST_NAME + 1)]
NO_HINTS = [{"owner": owner} for owner in [*NO_USERS, 1000, ["ada"], None, float("nan"), {"ada": 1}]]
NO_HINTS += [{"how": how} for how in ("socket", "word", 1, None)]


@pytest.mark.parametrize("changes", NO_HINTS, ids=repr)
def test_an_owner_is_a_user_by_name_and_it_is_said_how_it_was_found(tmp_path: Path, changes: dict[str, Any]) -> None:
    write(tmp_path, {ID: entry(**changes)})
    assert read_containers(str(tmp_path)).containers[ID] == NAMELESS


def test_rootless_containers_that_an_older_gua_named_are_passed_over(tmp_path: Path) -> None:
    older = entry(how="socket", slice_uid=1000)
    write(tmp_path, {f"1000/{ID}": older, "0" * 12: entry(slice_uid=None)}, asked_ms={ID: 5})
    assert read_containers(str(tmp_path)) == Known({"0" * 12: HINTED})


def test_names_are_printable_and_not_too_long(tmp_path: Path) -> None:
    write(
        tmp_path, {ID: entry(name="\x1b[31m\u202ered\n", image="x" * 1_000_000), "0" * 12: entry(name="\x07" * 10**6)}
    )
    one, other = read_containers(str(tmp_path)).containers.values()
    assert one.name == "\\x1b[31m\\u202ered\\n"
    assert one.image == "x" * LONGEST_NAME
    assert len(other.name) == LONGEST_NAME
    assert other.name.isprintable()


def test_a_file_of_a_million_entries_is_read_as_far_as_gua_would_write_it(tmp_path: Path) -> None:
    rows = ",".join(f'"{number:012x}":{{"name":"n","runtime":"docker"}}' for number in range(MOST_CONTAINERS + 5))
    (tmp_path / FILE_NAME).write_text(f'{{"version": 1, "containers": {{{rows}}}}}')
    assert len(read_containers(str(tmp_path)).containers) == MOST_CONTAINERS
    rows = ",".join(f'"{number:012x}":0' for number in range(1_000_000))
    (tmp_path / FILE_NAME).write_text(f'{{"version": 1, "containers": {{{rows}}}}}')
    with pytest.raises(StoreError, match=f"too large .*at most {MOST_BYTES >> 20}"):
        read_containers(str(tmp_path))


def test_a_container_is_found_by_its_identity() -> None:
    pod = HINTED._replace(runtime="pod", name="ml/train-0")
    found = Known({ID: HINTED, POD.replace("-", ""): pod})
    assert found.find(f"docker:{ID}") == found.find(f"container:{ID}") == HINTED
    assert found.find(f"pod:{POD}") == pod
    for other in ("docker:000000000000", f"lxc:{ID}", ID, "docker", "", f"slurm:{ID}"):
        assert found.find(other) is None


def test_a_container_speaks_for_no_cgroup_in_a_users_slice() -> None:
    """There that user names cgroups, after a colleague's container too."""
    known = Known({ID: HINTED})
    assert known.find_around(DOCKER) == HINTED
    assert known.find_around(IN_SLICE.format(uid=1000)) is None
    assert known.find_around(f"/lxc.payload.{ID}/init.scope") is None, "a name that looks like an id"


def test_the_administrators_people_rename_owners(tmp_path: Path) -> None:
    write_containers(str(tmp_path), Known({ID: HINTED._replace(owner="bob")}))
    people = find_people(str(tmp_path), {"bob": "Bob B."})
    assert spell(f"docker:{ID}", people.containers.find(f"docker:{ID}")) == "Bob B.? (docker: train-resnet)"


def test_a_hint_is_shown_as_a_hint() -> None:
    assert spell(f"docker:{ID}", HINTED) == "ada? (docker: train-resnet)"
    assert spell(f"docker:{ID}", NAMELESS) == "docker: train-resnet"
    assert spell(f"docker:{ID}", None) == f"docker:{ID}"
    assert spell(f"container:{ID}", HINTED) == "ada? (docker: train-resnet)"
    long = HINTED._replace(name="n" * 200, owner="o" * 200)
    assert len(spell(f"docker:{ID}", long)) < 140
    assert tell(f"docker:{ID}", HINTED) == ("train-resnet", "ada", "label")
    assert tell(f"docker:{ID}", NAMELESS) == ("train-resnet", None, None)
    assert tell("ada", None) == (None, None, None)


@pytest.mark.parametrize("somebody", ["ada", "uid:1000", "docker", "slurm:7"])
def test_somebody_who_is_known_is_not_called_after_a_container(somebody: str) -> None:
    assert spell(somebody, HINTED) == somebody
    assert tell(somebody, HINTED) == ("train-resnet", None, None)


def test_the_page_of_the_files_shows_what_is_read(tmp_path: Path) -> None:
    section = page("schema.md").split("\n## containers.json")[1].split("\n## ")[0]
    shown = section.split("```json\n")[1].split("```")[0]
    (tmp_path / FILE_NAME).write_text(shown)
    found = read_containers(str(tmp_path))
    assert {key: one._asdict() for key, one in found.containers.items()} == json.loads(shown)["containers"]
    assert len(found.containers) == 1
    fields = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
    assert sorted(fields) == sorted([*Known._fields, *Container._fields])
    assert f"up to {MOST_BYTES >> 20} MiB and {MOST_CONTAINERS:,} entries" in section
    assert f"at most {LONGEST_NAME} characters" in section
