"""What the report says of a recorded world beside the truth, and the peer's report beside both."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gua_report as gua
from benchmarks import peer
from benchmarks.worlds import peer_daemon
from benchmarks.worlds.driver import START_MS, card_uuid
from benchmarks.worlds.ground_truth import HELD, STATES, Edge, Episode
from benchmarks.worlds.world import World

WITHIN_SECONDS = 45


class Hours(NamedTuple):
    """A report in GPU-hours, and the edges of its episodes in seconds of the world."""

    observed: float
    states: list[float]
    cards: list[list[float]]
    people: dict[str, list[float]]  # active, idle-held
    starts: dict[tuple[int, int], list[float]]  # by card and pid
    ends: dict[tuple[int, int], list[float]]


def report_hours(world: World, data_dir: Path) -> Hours:
    """What `gua report` says of all of a world."""
    times = np.array([START_MS, START_MS + world.seconds * 1000]).astype("datetime64[ms]").astype("datetime64[s]")
    start, end = (f"{time}Z" for time in times.astype(str))
    report = gua.report(start=start, end=end, tz="UTC", data_dir=str(data_dir), config=os.devnull)
    names = [f"{state.replace('-', '_')}_gpu_hours" for state in STATES]
    by_uuid = {row["uuid"]: [float(row[name]) for name in names] for row in report.gpus.to_dict("records")}
    uuids = [card_uuid(world, card) for card in range(len(world.cards))]
    found: tuple[dict[tuple[int, int], list[float]], ...] = (defaultdict(list), defaultdict(list))
    for row in report.episodes.to_dict("records"):
        for edges, name in zip(found, ("start_ms", "end_ms"), strict=True):
            edges[uuids.index(row["gpu_uuid"]), int(row["pid"])].append((row[name] - START_MS) / 1000)
    return Hours(
        report.observed_seconds / 3600,
        [float(report.headline["gpu_hours"][state]) for state in STATES],
        [by_uuid.get(uuid, [0.0] * len(STATES)) for uuid in uuids],
        {row["identity"]: [float(row[name]) for name in names[:2]] for row in report.identities.to_dict("records")},
        *found,
    )


def largest_difference(one: Hours, other: Hours) -> float:
    """The largest difference of two reports in hours, whatever it is of; infinite if one tells more than the other."""
    if one.people.keys() != other.people.keys() or one.starts.keys() != other.starts.keys():
        return float("inf")

    def numbers(hours: Hours) -> list[float]:
        edges = (sorted(seconds) for found in (hours.starts, hours.ends) for _, seconds in sorted(found.items()))
        people = (values for _, values in sorted(hours.people.items()))
        in_hours = [hours.observed, *hours.states, *_flat(hours.cards), *_flat(people)]
        return in_hours + [second / 3600 for seconds in edges for second in seconds]

    return max(abs(a - b) for a, b in zip(numbers(one), numbers(other), strict=True))


def _flat(rows: Iterable[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


class Found(NamedTuple):
    """How many edges of clear episodes the report has within 45 s, of how many."""

    right: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.right / self.total if self.total else 100.0


def find_edges(episodes: list[Episode], hours: Hours, is_start: bool, only_sharp: bool) -> Found:
    right = total = 0
    for episode in episodes:
        edge: Edge | None = episode.start if is_start else episode.end
        if edge is None or (only_sharp and not edge.is_sharp):
            continue
        told = (hours.starts if is_start else hours.ends).get((episode.card, episode.pid), [])
        total += 1
        right += any(abs(second - edge.second) <= WITHIN_SECONDS for second in told)
    return Found(right, total)


def held_by_workload(world: World, held: dict[str, float]) -> dict[str, float]:
    """Held hours of people added up by what they do; of one who does several things, under all their names."""
    workloads: dict[str, set[str]] = defaultdict(set)
    for one in world.processes:
        workloads[one.user].add(one.workload)
    sums: dict[str, float] = defaultdict(float)
    for user, names in workloads.items():
        sums[" + ".join(sorted(names))] += held.get(user, 0.0)
    return dict(sums)


def held_of(people: dict[str, list[float]]) -> dict[str, float]:
    return {user: hours[HELD] for user, hours in people.items()}


def peer_hours(folder: Path, answers: Path, interval: float) -> dict[str, Any] | None:
    """What gpu-usage-audit reports of the driver's answers; None without a Python that it runs on, which it says."""
    if peer.find_python() is None:
        print("no Python 3.12 or newer here: gpu-usage-audit can't be run, so there is nothing to compare with")
        return None
    python = peer.install(folder / "peer").parent / "python"
    command = [str(python), "-I", str(peer_daemon.__file__), str(answers), str(folder / "peer.db"), str(interval)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found
