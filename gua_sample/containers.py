"""The names and owners of containers: `containers.json` in the data folder.

`gua-containers` writes it, if it is installed. It is read as any file of a data folder: it may hold anything. An owner
is a fact if the container runs in that user's own slice; a label and a mounted home directory are chosen by whoever
started the container, and are hints.
"""

# No `from __future__ import annotations` here: see records.py.
import os
import re
from collections.abc import Iterator, Mapping
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
HIGHEST_UID = 2**32 - 2
ID = re.compile(r"[0-9a-f]{12,64}")
SHORT_DIGITS, POD_DIGITS = 12, 32  # of an id: a container's as `docker ps` shows it, a pod's uid without its dashes
ASK_AGAIN_MS = 3_600_000  # for the name of a container that nobody knew
SOCKET, LABEL, MOUNT = "socket", "label", "mount"  # how an owner was found
# What tables tell of a container: its name; the person whom a hint names; how the owner was found.
COLUMNS = ("container", "owner_hint", "how")
UNNAMED = "container"  # what the cgroup of a container is called that does not name its runtime
RUNTIMES = ("docker", "podman", "containerd", "crio", "pod", UNNAMED)  # prefixes of identities
# Names of none: memory that nobody shows would become somebody's, or somebody's nobody's.
NO_OWNERS = (UNATTRIBUTED, UNKNOWN, "root")
NOT_IN_OWNERS = frozenset(":?()")  # they would look like an identity, or like a hint


class Container(NamedTuple):
    runtime: str
    name: str
    image: str | None
    owner: str | None
    how: str | None  # SOCKET: a fact; LABEL, MOUNT: a hint; None: there is no owner
    slice_uid: int | None  # of a rootless one: the user in whose slice it runs
    seen_ms: int

    @property
    def is_fact(self) -> bool:
        """Whether the owner is known for sure, rather than by what the container says of itself."""
        return self.owner is not None and self.how == SOCKET and self.slice_uid is not None


class Known(NamedTuple):
    """The content of the file."""

    containers: dict[str, Container]  # by `key_of`; or by id alone, if no other has it
    asked_ms: dict[str, int]  # ids that no runtime knows, and when they were asked for

    def find(self, identity: str) -> Container | None:
        """The container behind an identity such as `docker:3f2a9c81d0b7`, which none has that is in a user's slice."""
        return self._find(identity.partition(":")[2], None) if runtime_of(identity) else None

    def find_around(self, cgroup: str | None) -> Container | None:
        """The container that a cgroup is in. One that is known from a user's slice speaks for that slice alone."""
        found = find_container(cgroup)
        # An LXC container is named by hand, perhaps like the id of another one.
        return self._find(found.id, found.slice_uid) if found and found.runtime in RUNTIMES else None

    def wants(self, key: str, now_ms: int) -> bool:
        """Whether to ask for the name of a container: it is not known, and was not asked for within the hour."""
        asked_ms = self.asked_ms.get(key)
        return key not in self.containers and (asked_ms is None or not 0 <= now_ms - asked_ms < ASK_AGAIN_MS)

    def people(self) -> dict[str, str]:
        """The owners that are facts, by identity, as `[people]` of the configuration has them; the newest counts."""
        found: dict[str, str] = {}
        for key, one in sorted(self.containers.items(), key=lambda item: item[1].seen_ms):
            if one.is_fact and one.owner:
                found[f"uid:{one.slice_uid}"] = one.owner
                ident = key.rpartition("/")[2]
                if self._find(ident, None) is None:
                    found[f"podman:{ident}"] = one.owner  # as rollups of an older gua have it
        return found

    def _find(self, ident: str, slice_uid: int | None) -> Container | None:
        ident = ident.replace("-", "")
        found = (self.containers.get(key) for key in (key_of(ident, slice_uid), ident))
        return next((one for one in found if one is not None and one.slice_uid == slice_uid), None)


NOTHING = Known({}, {})


def runtime_of(identity: str) -> str | None:
    """The runtime of an identity that is a container's; None if it is somebody's or something else's."""
    runtime, colon, _ = identity.partition(":")
    return runtime if colon and runtime in RUNTIMES else None


def tell(identity: str, container: Container | None) -> tuple[str | None, str | None, str | None]:
    """The values of COLUMNS. There is no hint where the identity is a person: by login, by the config, or as a fact."""
    if container is None:
        return None, None, None
    if container.is_fact:
        return container.name, None, container.how
    return (container.name, container.owner, container.how) if runtime_of(identity) else (container.name, None, None)


def key_of(ident: str, slice_uid: int | None) -> str:
    """The key in the file: `3f2a9c81d0b7`, or `1000/3f2a9c81d0b7` in a slice, whose user may have chosen the id."""
    return ident if slice_uid is None else f"{slice_uid}/{ident}"


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
    containers = {key: one for key, entry in _items(document.get("containers")) if (one := _restore(key, entry))}
    return Known(containers, {key: ms for key, ms in _items(document.get("asked_ms")) if _is_time(ms)})


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """The first entries, those whose keys are ids, perhaps behind a uid."""
    found = islice(value.items(), MOST_CONTAINERS) if isinstance(value, Mapping) else ()
    return ((key, entry) for key, entry in found if ID.fullmatch(key.rpartition("/")[2]))


def _restore(key: str, entry: Any) -> Container | None:
    """The container of an entry; None if the entry makes no sense."""
    if not isinstance(entry, dict):
        return None
    name, slice_uid, seen_ms = clean_text(entry.get("name")), entry.get("slice_uid"), entry.get("seen_ms", 0)
    is_uid = slice_uid is None or (type(slice_uid) is int and 0 < slice_uid <= HIGHEST_UID)
    if entry.get("runtime") not in RUNTIMES or not name or not is_uid or not _is_time(seen_ms):
        return None
    if key not in (ident := key.rpartition("/")[2], key_of(ident, slice_uid)):
        return None
    # In a slice the owner is the slice's user, whatever labels say; elsewhere no socket can tell.
    how = entry.get("how") if entry.get("how") in ((LABEL, MOUNT) if slice_uid is None else (SOCKET,)) else None
    owner = entry.get("owner") if how and _is_owner(entry.get("owner")) else None
    image = clean_text(entry.get("image"))
    return Container(entry["runtime"], name, image, owner, how if owner else None, slice_uid, seen_ms)


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_owner(value: Any) -> bool:
    """Whether this may be the name of a user. It is never shortened: that would be somebody else's."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME or value in NO_OWNERS:
        return False
    return value.isprintable() and value == value.strip() != "" and NOT_IN_OWNERS.isdisjoint(value)


def clean_text(value: Any) -> str | None:
    """The text, printable and not too long; None for anything else."""
    if not isinstance(value, str) or not value[:LONGEST_NAME].strip():
        return None
    return printable(value[:LONGEST_NAME])[:LONGEST_NAME]
