"""containers.json: who is behind containers, as far as is known, and what a hostile file can't make of it."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gua_report.people.containers import People, find_people, restore_people, spell, tell, write_containers
from gua_sample.containers import (
    FILE_NAME,
    LABEL,
    LONGEST_NAME,
    MOST_BYTES,
    MOST_CONTAINERS,
    MOUNT,
    NOTHING,
    SOCKET,
    VERSION,
    Container,
    Known,
    key_of,
    read_containers,
)
from gua_sample.errors import StoreError
from tests import hostile
from tests.repository import page

ID, POD = "3f2a9c81d0b7", "0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00"
HINTED = Container("docker", "train-resnet", "pytorch/pytorch:2.5.1", "ada", LABEL, None, 1_794_000_000_000)
ROOTLESS = Container("podman", "notebook", "jupyter", "ada", SOCKET, 1000, 1_794_000_000_000)
NAMELESS = HINTED._replace(owner=None, how=None)
DOCKER = f"/system.slice/docker-{ID}{'0' * 52}.scope"
IN_SLICE = "/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-" + ID + "0" * 52 + ".scope"


def write(folder: Path, containers: Any, **more: Any) -> None:
    document = {"version": VERSION, "containers": containers, "asked_ms": {}, **more}
    (folder / FILE_NAME).write_text(json.dumps(document))


def entry(**changes: Any) -> dict[str, Any]:
    return {**HINTED._asdict(), **changes}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    pod = Container("pod", "ml/train-0", None, "mei", MOUNT, None, 3)
    written = Known({ID: HINTED, POD.replace("-", ""): pod, key_of(ID, 1000): ROOTLESS}, {"0123456789ab": 7})
    write_containers(str(tmp_path), written)
    assert read_containers(str(tmp_path)) == written


def test_without_the_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_containers(str(tmp_path)) == NOTHING
    assert find_people(str(tmp_path), {"bob": "Bob"}) == People({"bob": "Bob"})


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
    "a folder": os.mkdir,
    "8 GB, sparse": make_sparse,
    "nothing": Path.touch,
    "no JSON": lambda path: path.write_text("{"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00\xd8"),
    "deeply nested": lambda path: path.write_text("[" * 1_000_000),
    "a number of too many digits": lambda path: path.write_text('{"version": 1' + "0" * 100_000 + "}"),
    "a list": lambda path: path.write_text("[1]"),
    "a version to come": lambda path: path.write_text('{"version": 2, "containers": {}}'),
}


@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_cant_be_used_costs_the_names_and_nothing_else(tmp_path: Path, make: Any) -> None:
    make(tmp_path / FILE_NAME)
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"containers\.json .*: names of containers are missing"):
        read_containers(str(tmp_path))
    people = find_people(str(tmp_path), {"uid:1000": "Ada"})
    assert (people.names, people.containers) == ({"uid:1000": "Ada"}, NOTHING)
    assert people.problem
    assert time.monotonic() - began < 20


MAKES_NO_SENSE = [
    None,
    "train-resnet",
    [1],
    {},
    entry(name=None),
    entry(name=""),
    entry(name="  "),
    entry(name=["train"]),
    entry(runtime="ada"),
    entry(runtime=["docker"]),
    entry(seen_ms="now"),
    entry(seen_ms=float("nan")),
    entry(seen_ms=-1),
    entry(seen_ms=10**400),
    entry(slice_uid="1000"),
    entry(slice_uid=True),
    entry(slice_uid=0),
    entry(slice_uid=-5),
    entry(slice_uid=2**32),
    entry(slice_uid=1000.0),
]


@pytest.mark.parametrize("value", MAKES_NO_SENSE, ids=repr)
def test_an_entry_that_makes_no_sense_is_passed_over(tmp_path: Path, value: Any) -> None:
    write(tmp_path, {ID: value, "0123456789ab": entry()})
    assert read_containers(str(tmp_path)).containers == {"0123456789ab": HINTED}


@pytest.mark.parametrize(
    "key",
    ["", "3f2a9c81d0b", "3F2A9C81D0B7", ID + "g", "../" + ID[:9], "ada", "1000/", f"1000/{ID}", f"x/{ID}", "0" * 65],
)
def test_a_key_that_is_no_id_is_passed_over(tmp_path: Path, key: str) -> None:
    write(tmp_path, {key: entry()}, asked_ms={key: "now"})
    assert read_containers(str(tmp_path)) == NOTHING


@pytest.mark.parametrize("value", [1, "x", [], {ID: 1}, float("nan")])
def test_a_table_of_another_type_is_empty(tmp_path: Path, value: Any) -> None:
    write(tmp_path, value, asked_ms=value if isinstance(value, list) else [value])
    assert read_containers(str(tmp_path)) == NOTHING


@pytest.mark.parametrize(
    "owner",
    [
        *("(unattributed)", "unknown", "root", "docker:3f2a9c81d0b7", "uid:1000", "ada? (docker: x)", "ada?", " ada"),
        *("", "\x1b[31mada", "ada\n", "a" * (LONGEST_NAME + 1), 1000, ["ada"], None, float("nan"), {"ada": 1}),
    ],
    ids=repr,
)
def test_nobody_is_called_what_is_no_name_of_a_user(tmp_path: Path, owner: Any) -> None:
    write(tmp_path, {ID: entry(owner=owner), "0123456789ab": {**ROOTLESS._asdict(), "owner": owner}})
    found = read_containers(str(tmp_path))
    assert found.containers[ID] == NAMELESS
    assert found.people() == {}


@pytest.mark.parametrize(
    ("how", "slice_uid"), [("socket", None), ("label", 1000), ("mount", 1000), ("word", None), (1, None), (None, 1000)]
)
def test_an_owner_in_a_slice_is_told_by_its_socket_and_elsewhere_by_hints(
    tmp_path: Path, how: Any, slice_uid: int | None
) -> None:
    write(tmp_path, {ID: entry(how=how, slice_uid=slice_uid)})
    found = read_containers(str(tmp_path)).containers[ID]
    assert (found.owner, found.how, found.is_fact) == (None, None, False)


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
    found = Known({ID: HINTED, POD.replace("-", ""): pod}, {})
    assert found.find(f"docker:{ID}") == found.find(f"container:{ID}") == HINTED
    assert found.find(f"pod:{POD}") == pod
    for other in ("docker:000000000000", f"lxc:{ID}", ID, "docker", "", f"slurm:{ID}"):
        assert found.find(other) is None


def test_a_container_speaks_for_its_own_slice_alone() -> None:
    """Below a user's slice that user names cgroups, after a colleague's container too."""
    for key in (ID, key_of(ID, 1000)):
        mine = Known({key: ROOTLESS}, {})
        assert mine.find_around(IN_SLICE.format(uid=1000)) == ROOTLESS
        assert mine.find_around(IN_SLICE.format(uid=1001)) is None
        assert mine.find_around(DOCKER) is None
        assert mine.find(f"podman:{ID}") is mine.find(f"docker:{ID}") is None
    roots = Known({ID: HINTED}, {})
    assert roots.find_around(DOCKER) == HINTED
    assert roots.find_around(IN_SLICE.format(uid=1000)) is None


def test_an_id_that_somebody_took_from_a_colleague_hides_nothing() -> None:
    both = Known({ID: HINTED, key_of(ID, 1000): ROOTLESS}, {})
    assert both.find_around(DOCKER) == both.find(f"docker:{ID}") == HINTED
    assert both.find_around(IN_SLICE.format(uid=1000)) == ROOTLESS
    assert both.people() == {"uid:1000": "ada"}


def test_an_lxc_container_that_is_called_like_an_id_is_another_one() -> None:
    assert Known({ID: HINTED}, {}).find_around(f"/lxc.payload.{ID}/init.scope") is None


def test_the_owner_of_a_slice_is_a_fact_for_its_uid_and_for_what_older_rollups_say() -> None:
    assert Known({ID: ROOTLESS}, {}).people() == {"uid:1000": "ada", f"podman:{ID}": "ada"}
    assert Known({ID: HINTED, "0" * 12: NAMELESS}, {}).people() == {}


def test_of_two_names_of_a_user_the_newer_counts() -> None:
    old, new = ROOTLESS._replace(owner="ada.old", seen_ms=1), ROOTLESS._replace(owner="ada", seen_ms=2)
    for order in ({"0" * 12: old, "1" * 12: new}, {"1" * 12: new, "0" * 12: old}):
        assert Known(order, {}).people()["uid:1000"] == "ada"


def test_the_administrators_people_win_and_rename_owners(tmp_path: Path) -> None:
    hinted = HINTED._replace(owner="bob")
    write_containers(str(tmp_path), Known({ID: hinted, "0" * 12: ROOTLESS}, {}))
    people = find_people(str(tmp_path), {"bob": "Bob B.", "ada": "Ada L.", "podman:" + "0" * 12: "the group"})
    assert people.names["uid:1000"] == "Ada L."
    assert people.names["podman:" + "0" * 12] == "the group"
    assert spell(f"docker:{ID}", people.containers.find(f"docker:{ID}")) == "Bob B.? (docker: train-resnet)"
    assert find_people(str(tmp_path), {"uid:1000": "eve"}).names["uid:1000"] == "eve"


def test_a_hint_is_shown_as_a_hint() -> None:
    assert spell(f"docker:{ID}", HINTED) == "ada? (docker: train-resnet)"
    assert spell(f"docker:{ID}", NAMELESS) == "docker: train-resnet"
    assert spell(f"docker:{ID}", None) == f"docker:{ID}"
    assert spell(f"container:{ID}", HINTED) == "ada? (docker: train-resnet)"
    long = HINTED._replace(name="n" * 200, owner="o" * 200)
    assert len(spell(f"docker:{ID}", long)) < 140


@pytest.mark.parametrize("somebody", ["ada", "uid:1000", "docker", "slurm:7"])
def test_somebody_who_is_known_is_not_called_after_a_container(somebody: str) -> None:
    assert spell(somebody, HINTED) == somebody
    assert tell(somebody, HINTED) == ("train-resnet", None, None)
    assert tell(somebody, ROOTLESS) == ("notebook", None, "socket")


def test_tables_tell_the_container_the_hint_and_how_it_was_found() -> None:
    assert tell(f"docker:{ID}", HINTED) == ("train-resnet", "ada", "label")
    assert tell(f"docker:{ID}", NAMELESS) == ("train-resnet", None, None)
    assert tell("ada", None) == (None, None, None)


def test_people_pass_through_the_pipe_of_a_child(tmp_path: Path) -> None:
    write_containers(str(tmp_path), Known({ID: HINTED, key_of(ID, 1000): ROOTLESS}, {}))
    people = find_people(str(tmp_path), {})
    assert restore_people(*json.loads(json.dumps(people))) == restore_people(*people) == people


def test_the_page_of_the_files_shows_what_is_read(tmp_path: Path) -> None:
    section = page("schema.md").split("\n## containers.json")[1].split("\n## ")[0]
    shown = section.split("```json\n")[1].split("```")[0]
    (tmp_path / FILE_NAME).write_text(shown)
    found = read_containers(str(tmp_path))
    assert {key: one._asdict() for key, one in found.containers.items()} == json.loads(shown)["containers"]
    assert len(found.containers) == len(found.asked_ms) == 1
    fields = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
    assert sorted(fields) == sorted([*Known._fields, *Container._fields])
    assert f"up to {MOST_BYTES >> 20} MiB and {MOST_CONTAINERS:,} entries" in section
    assert f"at most {LONGEST_NAME} characters" in section
