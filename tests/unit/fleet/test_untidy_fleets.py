"""Random fleets of untidy machines: every figure that adds up is the sum of the hosts' own, for any window."""

import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gua_report.fleet.read_host import is_of_fleet
from gua_report.summary.report import Report
from gua_sample.errors import NothingToReport
from gua_sample.simulate import Laboratory
from tests.fleets import fleet_report, record_host
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, report_of, write
from tests.untidy import untidy

START_MS, END_MS = MONDAY_MS, MONDAY_MS + 2 * DAY_MS
MS = 1.01 / HOUR_MS  # a millisecond, in hours: each figure of a host is rounded to one

Figures = Counter[tuple[object, ...]]


def figures(report: Report, host: str | None = None) -> Figures:
    """All that adds up, by name. `host`: whose report it is; None if it is a fleet's."""
    found: Figures = Counter({("observed",): report.observed_seconds / 3600})

    def add(kind: str, frame: pd.DataFrame, *keys: str) -> None:
        numbers = [name for name in frame if str(name).endswith(("hours", "kwh"))]
        for row in frame.to_dict("records"):
            row |= {"host": row.get("host", host)}
            if "identity" in row:
                row["identity"] = in_fleet(str(row["identity"]), host)
            for name in numbers:
                found[(kind, *(row[key] for key in keys), name)] += 0 if pd.isna(row[name]) else row[name]

    add("states", report.capacity.reset_index(), "state")
    add("card", report.gpus, "host", "uuid")
    add("unpartitioned", report.unpartitioned, "host", "uuid")
    add("who", report.identities, "identity")
    add("when", report.trend, "end_ms")
    add("who and when", report.identity_days, "identity", "end_ms")
    for frame in (report.reclaim, report.reclaim_curve):
        add("freed", frame.drop_duplicates("after_seconds"), "after_seconds")
    episodes = len(report.episodes) if report.fleet is None else sum(report.fleet.episodes.values())
    found["episodes",] = episodes
    return +found  # without zeros


def in_fleet(identity: str, host: str | None) -> str:
    """A name that a fleet and its hosts share: of containers, jobs and unnamed users, the kind and the host."""
    if host is None:
        name, at, home = identity.partition("@")
        return f"{name.partition(':')[0]}@{home}" if at else name
    return identity if is_of_fleet(identity) else f"{identity.partition(':')[0]}@{host}"


def own_figures(folders: dict[str, Path], edges: list[int]) -> tuple[int, Figures]:
    """How many hosts have something to report, and the sum of what they report."""
    hosts, total = 0, Counter[tuple[object, ...]]()
    for host, folder in folders.items():
        try:
            total += figures(report_of(folder, edges[0], edges[1]), host)
        except NothingToReport:
            continue
        hosts += 1
    return hosts, total


seconds = some.integers(START_MS // 1000, END_MS // 1000).map(lambda second: second * 1000)
full_hours = some.integers(START_MS // HOUR_MS, END_MS // HOUR_MS).map(lambda hour: hour * HOUR_MS)


def pairs(moments: some.SearchStrategy[int]) -> some.SearchStrategy[list[int]]:
    return some.tuples(moments, moments).filter(lambda pair: abs(pair[1] - pair[0]) >= HOUR_MS).map(sorted)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seeds=some.lists(some.integers(1, 1000), min_size=1, max_size=3, unique=True),
    minutes=some.sampled_from([5, 7, 10]),
    anywhere=pairs(seconds),
    on_the_hour=pairs(full_hours),
)
def test_every_figure_that_adds_up_is_the_sum_of_the_hosts(
    seeds: list[int], minutes: int, anywhere: list[int], on_the_hour: list[int]
) -> None:
    with tempfile.TemporaryDirectory(prefix="gua-fleet-") as name:
        fleet, from_ticks = Path(name) / "fleet", Path(name) / "ticks"
        for seed in seeds:
            ticks = list(untidy(Laboratory(seed, 2).history(START_MS, END_MS, minutes * MINUTE_MS), seed))
            record_host(fleet, f"host{seed}", ticks)
            write(from_ticks / f"host{seed}", ticks)
        # Hosts publish sums by the hour: of an hour that a window cuts, their own files too have but a share.
        for folder, edges in ((fleet, anywhere), (from_ticks, on_the_hour)):
            hosts, own = own_figures({path.name: path for path in sorted(folder.iterdir())}, edges)
            report = fleet_report(fleet, start_ms=edges[0], end_ms=edges[1])
            found = figures(report)
            assert report.fleet is not None
            assert (len(report.fleet.hosts), report.fleet.problems["kind"].tolist()) == (hosts, ["plain copy"] * hosts)
            assert found.keys() == own.keys()
            for key, value in found.items():
                assert value == pytest.approx(own[key], abs=len(seeds) * 4 * MS), key
