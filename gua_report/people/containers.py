"""Who is behind containers, shown as hints.

What is known comes from `containers.json` in the data folder, which gua_sample/containers.py reads and describes.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gua_report.console.fitting import fit
from gua_sample.containers import COLUMNS as COLUMNS
from gua_sample.containers import (
    FILE_NAME,
    MOST_CONTAINERS,
    NOTHING,
    UNNAMED,
    VERSION,
    Container,
    Known,
    runtime_of,
)
from gua_sample.containers import read_containers as read_containers
from gua_sample.containers import tell as tell
from gua_sample.errors import StoreError
from gua_sample.safe_file import replace_file

LONGEST_SHOWN_NAME = 60


class People(NamedTuple):
    containers: Known = NOTHING  # their owners are called as the administrator calls them
    problem: str | None = None  # why names of containers are missing


def find_people(data_dir: str, mapped: Mapping[str, str]) -> People:
    """The people of a data folder. `mapped` is the administrator's [people]."""
    try:
        known = read_containers(data_dir)
    except StoreError as error:
        return People(problem=str(error))
    named = {key: one._replace(owner=mapped.get(one.owner or "", one.owner)) for key, one in known.containers.items()}
    return People(Known(named))


def restore_people(containers: Sequence[Any], problem: str | None) -> People:
    """A People from the plain lists of its JSON form."""
    (known,) = containers
    return People(Known({key: Container(*one) for key, one in known.items()}), problem)


def spell(identity: str, container: Container | None) -> str:
    """The name that people are shown: `ada? (docker: train-resnet)` if a hint names the owner.

    `container` is the one behind the identity, or around its process: somebody who is known needs no other name.
    """
    runtime = runtime_of(identity)
    if container is None or runtime is None:
        return identity
    runtime = container.runtime if runtime == UNNAMED else runtime
    name = f"{runtime}: {fit(container.name, LONGEST_SHOWN_NAME)}"
    return name if container.owner is None else f"{fit(container.owner, LONGEST_SHOWN_NAME)}? ({name})"


def add_containers(data_dir: str, found: Mapping[str, Container]) -> str | None:
    """Add to the file what was found out. Returns why its old content is lost, if it is."""
    known, problem = NOTHING, None
    try:
        known = read_containers(data_dir)
    except StoreError as error:
        problem = str(error)
    write_containers(data_dir, Known({**known.containers, **found}))
    return problem


def write_containers(data_dir: str, known: Known) -> None:
    """Write the file so that the data folder's readers can read it. For the folder's owner, never for root."""
    newest = sorted(known.containers.items(), key=lambda item: item[1].seen_ms)[-MOST_CONTAINERS:]
    document = {"version": VERSION, "containers": {key: one._asdict() for key, one in newest}}
    path = os.path.join(data_dir, FILE_NAME)
    try:
        replace_file(path, json.dumps(document, indent=0), durable=True)
    except OSError as error:
        raise StoreError(f"{path} can't be written ({error.strerror}): check its owner, mode and mount") from error
