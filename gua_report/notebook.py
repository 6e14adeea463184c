"""The notebook interface, `import gua_report as gua`: a report, or the rows it is made of, as DataFrames."""

import time
import warnings
from dataclasses import fields
from datetime import tzinfo
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import load_config
from gua_report.console.arguments import check_exists, choose
from gua_report.fleet.asked import AskedFleet, ask_fleet, refuse_root
from gua_report.people.containers import COLUMNS, People, find_people, tell
from gua_report.summary.build import build_report
from gua_report.summary.of_hosts import HOST, KEYS
from gua_report.summary.report import Report, nothing
from gua_report.ticks.arrays import Booleans
from gua_report.ticks.classify import NO_PID, Classified, read_classified
from gua_report.ticks.history import History
from gua_report.window import midnight_ms, parse_window
from gua_sample import settings
from gua_sample.errors import StoreError
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES, UNPARTITIONED
from gua_sample.rights import check_folder, owner_to_become


class Frames(NamedTuple):
    """Rows of the window; docs/notebooks.md describes the columns. `time` is in the requested zone."""

    ticks: pd.DataFrame
    cards: pd.DataFrame
    processes: pd.DataFrame


class ShownReport(Report):
    def _repr_html_(self) -> str:
        from gua_report.render.html import fragment  # imported only if the report is displayed

        return fragment(self)


def report(
    since: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
    tz: str | None = None,
    data_dir: str | None = None,
    config: str | None = None,
    fleet: str | None = None,
    hosts: str | None = None,
    by: str = HOST,
    scheduler: str | None = None,
) -> ShownReport:
    """The report of a time window, as the gua-report command makes it; with `fleet`, that of many hosts.

    `hosts`: a pattern of their names. `by`: host, group, person or model. `scheduler`: that of a Dask cluster.
    """
    window = parse_window(since, start, end, tz)
    if fleet is None:
        now_ms = time.time_ns() // 1_000_000
        built = build_report(find_folder(data_dir), window, load_config(config), now_ms=now_ms)
    else:
        refuse_root()
        by = choose(by, "by", KEYS)
        built = ask_fleet(AskedFleet(fleet, window, load_config(config), hosts, by, scheduler, since, start, end))
    return ShownReport(**{field.name: getattr(built, field.name) for field in fields(built)})


def find_folder(data_dir: str | None) -> str:
    """The data folder. Raises StoreError if we are root and it is another user's: a notebook can't give up root.

    Raises NothingToReport if it does not exist.
    """
    folder = settings.data_dir(data_dir)
    check_exists(folder)
    owner = owner_to_become(folder)
    if owner is not None:
        raise StoreError(
            f"{folder} belongs to uid {owner[0]}, and root reads no file of others as root: run this as that user, or"
            " any other but root, or take gua-report --json, which gives up root first"
        )
    if warning := check_folder(folder):
        warnings.warn(warning, stacklevel=3)
    return folder


def load(
    since: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
    tz: str | None = None,
    data_dir: str | None = None,
    config: str | None = None,
) -> Frames:
    """The recorded rows of a time window as typed frames, with states, weights and identities."""
    window = parse_window(since, start, end, tz)
    folder = find_folder(data_dir)
    choices = load_config(config)
    people = find_people(folder, choices.people)
    history = History(folder)
    parts: list[Frames] = []
    for day in history.days_of(window.start_ms, window.end_ms):
        start_ms = midnight_ms(day)
        found = read_classified(history, start_ms, start_ms + DAY_MS, choices.policy, choices.people)
        if found is not None:
            first_ms, end_ms = max(start_ms, window.start_ms), min(start_ms + DAY_MS, window.end_ms)
            named = found._replace(process_facts=_add_containers(found.process_facts, people))
            parts.append(_frames(named, found.ticks["ts_ms"].between(first_ms, end_ms - 1).to_numpy()))
    for warning in [*history.warnings, *([people.problem] if people.problem else [])]:
        warnings.warn(warning, stacklevel=2)
    if not parts or not any(len(part.ticks) for part in parts):
        raise nothing(folder, window)
    return Frames(*(_with_time(pd.concat(some), window.zone) for some in zip(*parts, strict=True)))


def _add_containers(facts: pd.DataFrame, people: People) -> pd.DataFrame:
    pairs = zip(facts["identity"], facts["cgroup"].astype(object).where(facts["cgroup"].notna(), None), strict=True)
    told = [tell(identity, people.containers.find_around(cgroup)) for identity, cgroup in pairs]
    return facts.join(pd.DataFrame(told, columns=list(COLUMNS), index=facts.index, dtype=object))


def _frames(found: Classified, inside: Booleans) -> Frames:
    rows = found.rows
    names = np.array([*STATES, UNPARTITIONED], dtype=object)
    ticks = found.ticks.assign(ts_ms=found.ticks["ts_ms"].astype("int64"))
    # The time before a day's first tick is no observation of its own: it is that tick's.
    lead = ticks["is_lead"].to_numpy(dtype=bool)
    ticks["weight_ms"] += np.where(np.roll(lead, 1), np.roll(ticks["weight_ms"], 1), 0)
    inside = inside & ~lead
    times, weights = ticks["ts_ms"].to_numpy(), ticks["weight_ms"].to_numpy()
    tick = rows.cards.tick
    facts = rows.card_facts.iloc[rows.cards.card].reset_index(drop=True)
    column = pd.Index(found.cards["uuid"]).get_indexer(facts["uuid"])
    cards = (
        pd.DataFrame(rows.cards._asdict())
        .drop(columns=["tick", "card", "source"])
        .assign(
            ts_ms=times[tick],
            weight_ms=weights[tick],
            gpu_share=found.shares[tick, column],
            state=names[found.states[tick, column]],
        )
    )
    cards = pd.concat([cards, facts.rename(columns={"uuid": "gpu_uuid", "name": "gpu_name"})], axis=1)[inside[tick]]
    # A row is a process: what no process shows is left to the cards' rows.
    is_process = found.process_facts["pid"].to_numpy()[found.processes["process"]] != NO_PID
    seen = found.processes[is_process].reset_index(drop=True)
    tick = seen["tick"].to_numpy()
    process = found.process_facts.iloc[seen["process"].to_numpy()].reset_index(drop=True)
    card = found.cards.iloc[seen["card"].to_numpy()].reset_index(drop=True)
    state = seen["state"].to_numpy()
    processes = (
        process.drop(columns="key")
        .assign(
            ts_ms=times[tick],
            weight_ms=weights[tick],
            gpu_uuid=card["uuid"],
            gpu_index=card["gpu_index"],
            memory_mib=seen["memory_mib"],
            sm_percent=seen["sm_percent"],
            state=pd.Series(names[state], dtype="str"),
        )[inside[tick]]
        .astype({"gpu_index": "int64"})
    )  # until here missing for cards that are seen outside only
    return Frames(ticks[inside].drop(columns=["id", "boot_time_ms", "joined", "is_lead"]), cards, processes)


def _with_time(frame: pd.DataFrame, zone: tzinfo) -> pd.DataFrame:
    time = pd.to_datetime(frame["ts_ms"], unit="ms", utc=True).dt.tz_convert(zone)
    frame.insert(0, "time", time)
    return frame.sort_values("ts_ms", kind="stable", ignore_index=True)
