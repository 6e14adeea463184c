"""The containers that run on this machine, as the cgroups of all processes tell."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
import re
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from gua_sample.identity import ContainerId, find_container, find_pod
from gua_sample.processes import read_cgroup
from gua_sample.service import LONGEST_CGROUP


class Running(NamedTuple):
    runtime: str
    id: str  # all 64 digits, if the cgroup has them
    # The users in whose slices it runs. None: it is the machine's, since only root names cgroups outside of slices.
    # Several: somebody made up a cgroup of this name.
    slice_uids: tuple[int, ...]
    pod: str | None  # the key of the pod that it is in


def find_running(keys: Collection[str], proc: str = "/proc") -> dict[str, Running]:
    """The containers with these keys that run now, by key."""
    found: dict[str, list[tuple[ContainerId, str]]] = defaultdict(list)
    for cgroup in _read_cgroups(proc):
        container = find_container(cgroup)
        if container and container.key and container.key in keys:
            found[container.key].append((container, cgroup))
    return {key: _describe(key, places) for key, places in found.items()}


def _describe(key: str, places: list[tuple[ContainerId, str]]) -> Running:
    of_machine = [place for place in places if place[0].slice_uid is None]
    container, cgroup = min(of_machine or places)
    full_id = re.search(rf"(?<![0-9a-f]){key}[0-9a-f]{{52}}(?![0-9a-f])", cgroup)
    uids = () if of_machine else sorted({one.slice_uid for one, _ in places if one.slice_uid is not None})
    return Running(container.runtime, full_id[0] if full_id else key, tuple(uids), find_pod(cgroup))


def _read_cgroups(proc: str) -> set[str]:
    found = {read_cgroup(pid, proc) for pid in os.listdir(proc) if pid.isdigit()}
    return {cgroup for cgroup in found if cgroup and len(cgroup) <= LONGEST_CGROUP}
