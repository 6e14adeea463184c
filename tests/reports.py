"""Made-up reports with everything that a format has to show."""

from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd

from gua_report.config import Config
from gua_report.limits import Week, week_before
from gua_report.people.containers import People
from gua_report.people.groups import NO_GROUP, Memberships
from gua_report.people.identities import Wanted
from gua_report.summary.groups import GROUP_COLUMNS
from gua_report.summary.meant import COLUMNS as MEANT
from gua_report.summary.names import add_columns, name_containers, select
from gua_report.summary.now import NOW_COLUMNS
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_report.summary.week import LIMIT_COLUMNS
from gua_report.window import HOUR_MS, Window
from gua_sample.containers import LABEL, MOUNT, Container, Known
from gua_sample.policy import DEFAULT, STATES

NAN = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")
END_MS = 1_794_783_600_000  # 2026-11-16 00:00 in Berlin
WINDOW = Window(END_MS - 7 * 24 * HOUR_MS, END_MS, BERLIN)
HOSTILE = ["=cmd|x", "<script>alert(1)</script>", "\x1b[31mred", "a|b*c_`d`"]
EPISODE_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start_ms", "end_ms"]


def by_state(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=pd.Index(list(STATES), name="state"))


def gpu_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A report's GPUs from rows of uuid, index, mig_index, name, then GPU-hours in the order of STATES."""
    records = []
    for uuid, index, mig_index, name, *hours in rows:
        record = {"uuid": uuid, "index": index, "mig_index": mig_index, "name": name, "gpu_hours": sum(hours)}
        for state, some in zip(STATES, hours, strict=True):
            record[f"{state.replace('-', '_')}_gpu_hours"] = some
            record[f"{state.replace('-', '_')}_share"] = some / sum(hours)
        record["idle_held_cost"] = record["idle_held_gpu_hours"] * 2.6
        records.append(record)
    return pd.DataFrame(records)


def identity_frame(rows: list[tuple[str, float, float, float]]) -> pd.DataFrame:
    """A report's identities from rows of identity, idle-held, active and unknown GPU-hours."""
    frame = pd.DataFrame(
        [
            (who, idle + active + unknown, active, idle, unknown, idle / (idle + active), idle * 2.5, 0.0)
            for who, idle, active, unknown in rows
        ],
        columns=IDENTITY_COLUMNS,
    )
    return add_columns(frame, {})


def timeline_frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two days of the small report's first card, with an hour that was not observed, and an hour of the lost one."""
    holders, cells = [], []
    for hour in range(24, 72):
        start, end = WINDOW.start_ms + hour * HOUR_MS, WINDOW.start_ms + (hour + 1) * HOUR_MS
        if hour != 40:
            idle = 3600.0 if hour < 60 else 900.0
            cells.append(("GPU-a", 0, NAN, start, end, 3600.0 - idle, idle, 0.0, 0.0))
            who = HOSTILE[0] if hour < 60 else HOSTILE[1]
            holders.append(("GPU-a", who, start, end, 3600.0 - idle, idle, 0.0))
    cells.append(("unknown:index-2", 2, NAN, WINDOW.start_ms, WINDOW.start_ms + HOUR_MS, 0.0, 0.0, 600.0, 1200.0))
    states = ["active_seconds", "idle_held_seconds", "truly_idle_seconds", "unknown_seconds"]
    key = ["gpu_uuid", "gpu_index", "mig_index", "start_ms", "end_ms"]
    columns = ["gpu_uuid", "identity", "start_ms", "end_ms", states[0], states[1], states[3]]
    return pd.DataFrame(cells, columns=[*key, *states]), pd.DataFrame(holders, columns=columns)


def trend_frame() -> pd.DataFrame:
    """Seven days, the last of which was observed for six hours."""
    rows = []
    for day in range(7):
        start, hours = WINDOW.start_ms + day * 24 * HOUR_MS, 6 if day == 6 else 24
        rows.append((start, start + 24 * HOUR_MS, hours * 3600.0, hours * 1.2, hours * 0.9, hours * 0.6, hours * 0.3))
    states = ["active_gpu_hours", "idle_held_gpu_hours", "truly_idle_gpu_hours", "unknown_gpu_hours"]
    return pd.DataFrame(rows, columns=["start_ms", "end_ms", "observed_seconds", *states])


def identity_day_frame() -> pd.DataFrame:
    rows = []
    for number, who in enumerate(HOSTILE):
        for day in range(number, 7, number + 1):
            start = WINDOW.start_ms + day * 24 * HOUR_MS
            rows.append((who, start, start + 24 * HOUR_MS, 2.0, 10.0 / (number + 1), 0.0))
    hours = ["active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"]
    return pd.DataFrame(rows, columns=["identity", "start_ms", "end_ms", *hours])


def episode_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A report's episodes from rows of gpu_uuid, gpu_index, mig_index, identity, pid, command, start and end in hours
    relative to the window's end, memory, ongoing."""
    records = []
    for *facts, start, end, memory, ongoing in rows:
        times = END_MS + round(start * HOUR_MS), END_MS + round(end * HOUR_MS), round((end - start) * 3600)
        records.append((*facts, *times, memory, ongoing, 0.0, None, NAN, False))
    columns = [*EPISODE_COLUMNS, "seconds", "peak_memory_mib", "ongoing", *MEANT]
    frame = pd.DataFrame(records, columns=columns).assign(
        slurm_job=None, start_is_exact=[start > -50 for *_, start, _, _, _ in rows]
    )
    return add_columns(frame, {})


def now_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A report's processes now, from rows in the order of its columns; times in hours relative to the window's end."""
    frame = pd.DataFrame(rows, columns=NOW_COLUMNS)
    return frame.assign(since_ms=END_MS + frame["since_ms"] * HOUR_MS)


def small_report() -> Report:
    """A week of three cards: one whole, one in two MIG instances, one lost."""
    day_ms = 24 * HOUR_MS
    timeline, timeline_holders = timeline_frames()
    return Report(
        host="lab-1",
        driver_versions=["570.133.20", "580.65.06"],
        requested=WINDOW,
        window=WINDOW,
        timezone="Europe/Berlin",
        newest_ms=END_MS - 30_000,
        policy=DEFAULT,
        config=Config(DEFAULT, 2.5, 0.3, "EUR", {}),
        headline=by_state(share=[0.4, 0.3, 0.2, 0.1], gpu_hours=[200.0, 150.0, 100.0, 50.0]),
        before=by_state(share=[0.431, 0.3, 0.169, 0.1], gpu_hours=[210.0, 150.0, 90.0, 50.0]),
        before_observed_share=0.9931,
        capacity=by_state(
            gpu_hours=[200.0, 150.0, 100.0, 50.0],
            equivalent_gpus=[1.2, 0.9, 0.6, 0.3],
            energy_kwh=[60.0, 9.04, 4.0, NAN],
            cost=[518.0, 377.712, 251.2, NAN],
        ),
        unpartitioned=pd.DataFrame(
            [("GPU-c", 1, 1.0, 0.01), ("GPU-d", 3, 42.0, 0.25)],
            columns=["uuid", "index", "gpu_hours", "equivalent_gpus"],
        ),
        energy_known_share=0.9,
        reclaim=pd.DataFrame({"after_seconds": [1800.0, 3600.0, 7200.0], "freed_gpu_hours": [120.5, 99.0, 71.25]}),
        gpus=gpu_frame(
            [
                ("GPU-a", 0, NAN, "NVIDIA A100-SXM4-80GB", 120.0, 30.0, 16.0, 0.0),
                ("MIG-b", 1, 0.0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 60.0, 20.0, 4.0, 0.0),
                ("MIG-c", 1, 1.0, "NVIDIA A100-SXM4-40GB MIG 4g.20gb", 20.0, 50.0, 14.0, 0.0),
                ("unknown:index-2", 2, NAN, None, 0.0, 50.0, 66.0, 50.0),
            ]
        ),
        identities=identity_frame(
            [
                (HOSTILE[0], 61.5, 40.0, 0.0),
                (HOSTILE[1], 40.0, 12.0, 2.5),
                ("(unattributed)", 30.0, 0.0, 0.0),
                (HOSTILE[2], 12.25, 100.0, 0.0),
                (HOSTILE[3], 0.03, 48.0, 0.0),
            ]
        ),
        heatmap=pd.DataFrame(
            [
                (day, hour, NAN if day == 6 else (day + hour) / 29, NAN if day == 6 else (29 - day - hour) / 10)
                for day in range(7)
                for hour in range(24)
            ],
            columns=["weekday", "hour", "active_share", "free_gpus"],
        ),
        timeline=timeline,
        timeline_holders=timeline_holders,
        timeline_cell_seconds=3600.0,
        trend=trend_frame(),
        identity_days=identity_day_frame(),
        reclaim_curve=pd.DataFrame(
            {"after_seconds": [0.0, 600.0, 1800.0, 7200.0], "freed_gpu_hours": [140.0, 130.0, 120.5, 71.25]}
        ),
        episodes=episode_frame(
            [
                ("GPU-a", 0, NAN, HOSTILE[0], 4711, "python3", -51.0, 0.0, 40_960.0, True),
                ("MIG-c", 1, 1.0, HOSTILE[1], 4712, HOSTILE[2], -2.1, 0.0, NAN, True),
                ("GPU-a", 0, NAN, HOSTILE[2], 99, "-rm", -190.0, -150.0, 20_480.0, False),
                ("unknown:index-2", 2, NAN, HOSTILE[3], 100, None, -30.0, -29.8, 512.0, False),
                ("GPU-a", 0, NAN, "ada", 101, "jupyter-noteboo", -20.0, -19.99, 101.0, False),
            ]
        ),
        gaps=pd.DataFrame(
            [
                (WINDOW.start_ms, WINDOW.start_ms + HOUR_MS, "sampler not running"),
                (WINDOW.start_ms + day_ms, WINDOW.start_ms + day_ms + 30_000, "driver error"),
                (WINDOW.start_ms + 2 * day_ms, WINDOW.start_ms + 2 * day_ms + 60_000, "sampler killed (timeout)"),
                (WINDOW.start_ms + 3 * day_ms, WINDOW.start_ms + 3 * day_ms + 7_500_000, "host down"),
                (WINDOW.start_ms + 4 * day_ms, WINDOW.start_ms + 4 * day_ms + 30_000, "driver error"),
            ],
            columns=["start_ms", "end_ms", "kind"],
        ),
        coverage_share=0.9811,
        observed_seconds=593_580.0,
        from_ticks_seconds=90_000.0,
        from_rollups_seconds=503_580.0,
        warnings=["skipped: /var/lib/gua/samples/2026-11-10.sqlite is not a partition: file is not a database"],
        now=now_frame(
            [
                ("GPU-a", 0, NAN, HOSTILE[0], "idle-held", -51.0, False, 30_720.0, 4711, "python3"),
                ("GPU-a", 0, NAN, HOSTILE[2], "active", NAN, None, 2048.0, 98, "train"),
                ("MIG-c", 1, 1.0, HOSTILE[1], "idle-held", -2.1, True, NAN, 4712, HOSTILE[2]),
            ]
        ),
    )


def empty_report() -> Report:
    """A report whose sampler ran, but saw no card, no process and no hour; nothing is known of the time before."""
    full = small_report()
    nothing = [0.0] * 4
    return replace(
        full,
        driver_versions=[],
        config=full.config._replace(price_per_gpu_hour=None, price_per_kwh=None),
        headline=by_state(share=[NAN] * 4, gpu_hours=nothing),
        before=None,
        before_observed_share=0.0,
        capacity=by_state(gpu_hours=nothing, equivalent_gpus=nothing, energy_kwh=[NAN] * 4, cost=[NAN] * 4),
        unpartitioned=full.unpartitioned.iloc[:0],
        energy_known_share=None,
        reclaim=full.reclaim.iloc[:0],
        gpus=full.gpus.iloc[:0],
        identities=pd.DataFrame(columns=full.identities.columns),
        heatmap=full.heatmap.assign(active_share=NAN, free_gpus=NAN),
        timeline=full.timeline.iloc[:0],
        timeline_holders=full.timeline_holders.iloc[:0],
        trend=full.trend.assign(observed_seconds=0.0, **dict.fromkeys(full.trend.columns[3:], 0.0)),
        identity_days=full.identity_days.iloc[:0],
        reclaim_curve=full.reclaim_curve.iloc[:0],
        episodes=pd.DataFrame(columns=full.episodes.columns),
        gaps=full.gaps.iloc[:0],
        warnings=[],
        now=now_frame([]),
    )


def reserved_report() -> Report:
    """The small report with reservations, one of which is unreadable."""
    rows = [
        (HOSTILE[0], "GPU-a", 0, NAN, 40.0, 10.0, 30.0, 28.5, 0.0, 21.5, 1.5),
        ("ada", "MIG-c", 1, 1.0, 12.0, 0.0, 9.75, 0.0, 2.25, 0.0, 9.75),
        (HOSTILE[1], "unknown:index-2", 2, NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0),
        (HOSTILE[3], "MIG-b", 1, 0.0, 8.0, 8.0, 0.0, 0.0, 0.0, 0.01, 0.0),
    ]
    problem = f"/etc/gua/reservations.csv line 7: bad from {HOSTILE[2]!r}: expected a time"
    frame = pd.DataFrame(rows, columns=RESERVATION_COLUMNS)
    return replace(small_report(), reservations=frame, reservation_problems=[problem])


CONTAINER_IDS = {
    HOSTILE[0]: "docker:3f2a9c81d0b7",
    HOSTILE[1]: "pod:0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00",
    HOSTILE[2]: "container:d8b445df2ab6",
    HOSTILE[3]: "docker:904ef981a59f",
}
CONTAINERS = {
    "3f2a9c81d0b7": Container("docker", "train-resnet", "pytorch/pytorch:2.5.1", "ada", LABEL, 1),
    "0b5cdd124b4c4d2e9c806a3f1d1c2f00": Container("pod", "ml/<i>|*x*_`y`", "=image", None, None, 2),
    "d8b445df2ab6": Container("podman", "=cmd|\x1b[31m" + 90 * "x", None, "Müller", MOUNT, 3),
}


def contained_report(containers: dict[str, Container] | None = None) -> Report:
    """The reserved report, in which those with hostile names are containers; of the last one nothing is known."""
    report = reserved_report()
    renamed: dict[str, Any] = {
        field: frame.assign(identity=[CONTAINER_IDS.get(who, who) for who in frame["identity"]])
        for field, frame in report.named_frames.items()
    }
    known = Known(CONTAINERS if containers is None else containers)
    return name_containers(replace(report, **renamed), People(known))


def meant_report() -> Report:
    """The small report with notes: on what goes on, with and without an end, and on part of what is over."""
    full = small_report()
    said = pd.DataFrame(
        [
            (50_000.0, "=cmd|'/C calc'!A0", END_MS + 30 * HOUR_MS, True),
            (7560.0, "<script>alert(2)</script>", NAN, True),
            (3600.0, "\x1b[31ma|b*c_`d`", END_MS - 150 * HOUR_MS, False),
            (0.0, None, NAN, False),
            (0.0, None, NAN, False),
        ],
        columns=MEANT,
    )
    more = episode_frame([("MIG-b", 1, 0.0, "ada", 102, "python3", -4.0, 0.0, 9000.0, True)])
    episodes = pd.concat([full.episodes.assign(**said), more], ignore_index=True)
    identities = full.identities.assign(meant_gpu_hours=[50_000 / 3600, 2.1, 0.0, 1.0, 0.0])
    return replace(full, episodes=episodes, identities=identities, meant_gpu_hours=12.5)


def grouped_report() -> Report:
    """The small report with groups: one of them is not known, and somebody is in two."""
    rows = [
        ("<b>vision</b>", 2, 156.0, 52.0, 101.5, 2.5, 101.5 / 153.5, 21.25, 254.36),
        ("nlp|ai", 1, 101.5, 40.0, 61.5, 0.0, 61.5 / 101.5, NAN, NAN),
        ("@odd", *[NAN] * 8),
        (NO_GROUP, 2, 190.25, 148.0, 42.25, 0.0, 42.25 / 190.25, 40.0, 105.8),
    ]
    problem = "there is no Unix group '\x1bodd' here"
    of = {HOSTILE[0]: ("<b>vision</b>", "nlp|ai"), HOSTILE[1]: ("<b>vision</b>",)}
    frame = pd.DataFrame(rows, columns=GROUP_COLUMNS)
    groups = {"<b>vision</b>": HOSTILE[:2], "nlp|ai": HOSTILE[:1], "@odd": ["@\x1bodd"]}
    report = small_report()
    return replace(
        report,
        config=report.config._replace(groups={name: tuple(some) for name, some in groups.items()}),
        groups=frame,
        memberships=Memberships(of, ("@odd",), [problem]),
    )


def limited_report() -> Report:
    """The grouped report with limits: of two people, one of them over, and of the groups; the week was seen in part."""
    rows = [
        (HOSTILE[0], 101.5, 61.5, 0.0, 13.9, 20.0, 200.0, 3.075, True),
        (HOSTILE[1], 54.5, 40.0, 2.5, 0.0, 50.0, 200.0, 0.8, None),
        ("(unattributed)", 30.0, 30.0, 0.0, 0.0, NAN, NAN, NAN, None),
        (HOSTILE[3], 48.03, 0.03, 0.0, 0.0, 50.0, 200.0, 0.24, None),
    ]
    groups = [
        ("<b>vision</b>", 156.0, 101.5, 2.5, 13.9, NAN, 100.0, 1.56, True),
        ("@odd", *[NAN] * 4, 10.0, NAN, NAN, None),
    ]
    return replace(
        grouped_report(),
        week=Week(*week_before(END_MS), 0.9),
        limits=pd.DataFrame(rows, columns=["identity", *LIMIT_COLUMNS]),
        group_limits=pd.DataFrame(groups, columns=["group", *LIMIT_COLUMNS]),
    )


def own_report(is_reader: bool = False) -> Report:
    """The report of the first person of the grouped one, in a laboratory of five people."""
    report = replace(grouped_report(), reservations=reserved_report().reservations)
    fifth = identity_frame([("ada", 3.0, 9.0, 0.0)])
    report = replace(report, identities=pd.concat([report.identities, fifth], ignore_index=True))
    return select(report, Wanted(HOSTILE[0], (HOSTILE[0],), is_reader))


def group_report() -> Report:
    """The report of the first group of the grouped one."""
    return select(grouped_report(), Wanted("<b>vision</b>"))
