"""The names and owners of containers: `containers.json` in the data folder.

`gua-containers` writes it, if it is installed. It is read as any file of a data folder: it may hold anything. Whoever
started a container chose its name, and the label or the mounted home directory by which its owner is named: a hint.
"""

import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from gua_sample.errors import StoreError
from gua_sample.identity import UNATTRIBUTED, UNKNOWN, find_container
from gua_sample.partition_names import CONTAINERS_NAME
from gua_sample.processes import printable
from gua_sample.safe_file import read_regular

FILE_NAME = CONTAINERS_NAME
VERSION = 1
MOST_BYTES = 8 << 20
MOST_CONTAINERS = 10_000
LONGEST_NAME = 256
ID = re.compile(r"[0-9a-f]{12,64}")
SHORT_DIGITS, POD_DIGITS = 12, 32  # of an id: a container's as `docker ps` shows it, a pod's uid without its dashes
LABEL, MOUNT = "label", "mount"  # how an owner was found
# What tables tell of a container: its name; the person whom a hint names; how the owner was found.
COLUMNS = ("container", "owner_hint", "how")
UNNAMED = "container"  # what the cgroup of a container is called that does not name its runtime
RUNTIMES = ("docker", "podman", "containerd", "crio", "pod", UNNAMED)  # prefixes of identities
# Names of none: memory that nobody shows would become somebody's, or somebody's nobody's.
NO_OWNERS = ("", UNATTRIBUTED, UNKNOWN, "root")
NOT_IN_OWNERS = frozenset(":?()")  # they would look like an identity, or like a hint


class Container(NamedTuple):
    runtime: str
    name: str
    image: str | None
    owner: str | None
    how: str | None  # LABEL or MOUNT; None: there is no owner
    seen_ms: int


class Known(NamedTuple):
    containers: dict[str, Container]  # by id

    def find(self, identity: str) -> Container | None:
        """The container behind an identity such as `docker:3f2a9c81d0b7`."""
        return self.containers.get(identity.partition(":")[2].replace("-", "")) if runtime_of(identity) else None

    def find_around(self, cgroup: str | None) -> Container | None:
        """The container that a cgroup is in; none in a user's slice, where that user names the cgroups."""
        found = find_container(cgroup)
        return self.find(str(found)) if found and found.slice_uid is None else None


NOTHING = Known({})


def runtime_of(identity: str) -> str | None:
    runtime, colon, _ = identity.partition(":")
    return runtime if colon and runtime in RUNTIMES else None


def tell(identity: str, container: Container | None) -> tuple[str | None, str | None, str | None]:
    """The values of COLUMNS. There is no hint where the identity is a person."""
    if container is None:
        return None, None, None
    return (container.name, container.owner, container.how) if runtime_of(identity) else (container.name, None, None)


def key_of(digits: str) -> str:
    return digits if len(digits) == POD_DIGITS else digits[:SHORT_DIGITS]


def read_containers(data_dir: str) -> Known:
    """The containers that are known. Raises StoreError if the file is there and can't be used."""
    path = os.path.join(data_dir, FILE_NAME)
    if not os.path.lexists(path):
        return NOTHING
    import json  # imported late: most ticks need none

    try:
        document = json.loads(read_regular(path, MOST_BYTES))
    except FileNotFoundError:  # removed just now
        return NOTHING
    except StoreError as error:
        raise StoreError(f"{error}: names of containers are missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} can't be read ({error}): names of containers are missing; remove it") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise StoreError(f"{path} is not of this version of gua: names of containers are missing; remove it")
    entries = document.get("containers")
    found = islice(entries.items(), MOST_CONTAINERS) if isinstance(entries, Mapping) else ()
    return Known({key: one for key, entry in found if ID.fullmatch(key) and (one := _restore(entry))})


def _restore(entry: Any) -> Container | None:
    if not isinstance(entry, dict):
        return None
    name, seen_ms = clean_text(entry.get("name")), entry.get("seen_ms", 0)
    is_time = type(seen_ms) is int and 0 <= seen_ms < 2**63
    if entry.get("runtime") not in RUNTIMES or not name or not is_time:
        return None
    how: Any = entry.get("how")
    owner: Any = entry.get("owner")
    # A name is never shortened: that would be somebody else's.
    is_name = isinstance(owner, str) and len(owner) <= LONGEST_NAME and owner.isprintable() and owner == owner.strip()
    if how not in (LABEL, MOUNT) or not is_name or owner in NO_OWNERS or not NOT_IN_OWNERS.isdisjoint(owner):
        owner = how = None
    return Container(entry["runtime"], name, clean_text(entry.get("image")), owner, how, seen_ms)


def clean_text(value: Any) -> str | None:
    if not isinstance(value, str) or not value[:LONGEST_NAME].strip():
        return None
    return printable(value[:LONGEST_NAME])[:LONGEST_NAME]
