"""The report as a whole: right where others are wrong."""

from pathlib import Path

import pytest

from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    DAY_MS,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    build_report,
    busy,
    expect,
    free,
    held,
    hour,
    hours_by,
    lost,
    mig,
    report_hour,
    report_of,
    row,
    series,
    window,
    write,
)
from tests.rolling import roll_up_days

CONTAINER = "/system.slice/docker-3f2a9c81d0b7" + "0" * 52 + ".scope"
DESKTOP = Job(300, "root", 60, type="graphics", uid=0)
MANY = tuple(Job(100 + number) for number in range(5))
HELD = "idle-held"


@pytest.mark.parametrize(
    ("gpus", "states", "people"),
    [
        # One card does not hide the others.
        (
            [busy(index=0), lost(1), held(index=2), free(3)],
            {"active": 1, "idle_held": 1, "truly_idle": 1, "unknown": 1},
            {("alice", "active"): 1, ("alice", HELD): 1},
        ),
        (
            [busy(index=0), mig(1, 0, jobs=(Job(7),)), mig(1, 1, 50.0), free(2)],
            {"active": 1.5, "idle_held": 0.5, "truly_idle": 1},
            {("alice", "active"): 1, ("alice", HELD): 0.5},
        ),
        # One who idles on a card that somebody else keeps busy is found.
        ([busy(ALICE, BOB)], {"active": 1}, {("alice", HELD): 1, ("bob", "active"): 1}),
        # Hidden memory is held by nobody visible, beside a holder by both; a desktop is no holder.
        ([HIDDEN], {"idle_held": 1}, {("(unattributed)", HELD): 1}),
        ([Gpu(jobs=(Job(),), used_mib=20_000)], {"idle_held": 1}, {("alice", HELD): 1, ("(unattributed)", HELD): 1}),
        ([held(DESKTOP)], {"truly_idle": 1}, {}),
        ([Gpu(jobs=(DESKTOP,), used_mib=20_000)], {"idle_held": 1}, {("(unattributed)", HELD): 1}),
        # The first user of a container is not the host's first administrator.
        (
            [held(Job(100, "admin", uid=1000, cgroup=CONTAINER), Job(101, "admin", uid=1000))],
            {"idle_held": 1},
            {("admin", HELD): 1, ("docker:3f2a9c81d0b7", HELD): 1},
        ),
        # An identity counts once on a card, however many processes.
        ([held(*MANY), held(*MANY, index=1)], {"idle_held": 2}, {("alice", HELD): 2}),
        ([Gpu(0, 90.0, (Job(memory_mib=None),), used_mib=4000)], {"active": 1}, {("alice", "active"): 1}),
        # 10 % are active, 100 MiB are not held; many small processes hold a card together.
        (
            [Gpu(0, 10.0), Gpu(1, 0.0, (Job(1, memory_mib=100),)), Gpu(2, 0.0, (Job(2, memory_mib=101),))],
            {"active": 1, "truly_idle": 1, "idle_held": 1},
            {("alice", HELD): 1},
        ),
        ([held(Job(1, "alice", 60), Job(2, "bob", 60))], {"idle_held": 1}, {("alice", HELD): 1, ("bob", HELD): 1}),
    ],
)
def test_hours_of_an_hour_that_stays_the_same(
    tmp_path: Path, gpus: list[Gpu], states: dict[str, float], people: dict[tuple[str, str], float]
) -> None:
    report = report_hour(tmp_path, *gpus)
    expect(report, **states)
    assert hours_by(report.identities, "identity") == pytest.approx(people)
    assert set(report.episodes["identity"]) == {who for who, state in people if state == HELD}
    assert report.gpus["index"].tolist() == [gpu.place for gpu in gpus]
    assert report.coverage_share == 1


def test_a_card_that_was_lost_keeps_its_name_and_is_not_two(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 30, held()) + series(MONDAY_MS + 30 * MINUTE_MS, 30, lost()))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    found = row(report.gpus, "uuid", "GPU-0")
    assert found["name"] == "A100"
    assert found["idle_held_share"] == pytest.approx(0.5)
    assert found["unknown_share"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "gpu",
    [
        lost(),
        Gpu(utilization=None, jobs=(Job(),)),
        Gpu(jobs=(Job(memory_mib=None),), used_mib=None),
        Gpu(utilization=0.0, status="no_permission"),
    ],
    ids=["lost", "held but not measurable", "no memory known", "no process list"],
)
def test_unknown_is_its_own_column_and_never_idle(tmp_path: Path, gpu: Gpu) -> None:
    report = report_hour(tmp_path, gpu)
    expect(report, unknown=1)
    assert hours_by(report.gpus, "uuid") == pytest.approx({("GPU-0", "unknown"): 1.0})
    assert report.episodes.empty
    assert report.reclaim["freed_gpu_hours"].tolist() == [0, 0, 0]
    assert report.heatmap["active_share"].isna().all()
    assert (report.identities["idle_held_gpu_hours"] == 0).all()


def test_a_person_with_several_identities_counts_once_on_a_card(tmp_path: Path) -> None:
    write(tmp_path, hour(held(Job(), Job(101, "x", cgroup=CONTAINER))))
    config = CONFIG._replace(people={"docker:3f2a9c81d0b7": "alice"})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "idle-held"): 1})


# --- the change against the window before ---


@pytest.mark.parametrize(("observed", "is_compared"), [(54, True), (53, False), (1, False)])
@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_the_window_before_is_compared_if_nine_tenths_of_it_were_observed(
    tmp_path: Path, observed: int, is_compared: bool, is_rolled_up: bool
) -> None:
    started = series(MONDAY_MS + (60 - observed) * MINUTE_MS, observed, busy())
    write(tmp_path, started + hour(held(), start_ms=MONDAY_MS + HOUR_MS))
    if is_rolled_up:
        roll_up_days(str(tmp_path))
    report = report_of(tmp_path, MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)
    assert bool(report.from_rollups_seconds) == is_rolled_up
    assert report.before_observed_share == pytest.approx(observed / 60)
    assert (report.before is not None) == is_compared
    if report.before is not None:
        assert report.before["gpu_hours"]["active"] == pytest.approx(observed / 60)
        assert report.before["share"].to_dict() == {"active": 1, "idle-held": 0, "truly-idle": 0, "unknown": 0}


# --- thresholds and the header ---


def test_thresholds_decide(tmp_path: Path) -> None:
    write(tmp_path, hour(Gpu(0, 9.99, (Job(memory_mib=150),))))
    period = MONDAY_MS, MONDAY_MS + HOUR_MS
    expect(report_of(tmp_path, *period), idle_held=1)
    lower = CONFIG._replace(policy=CONFIG.policy._replace(utilization_percent=5.0))
    expect(report_of(tmp_path, *period, config=lower), active=1)
    higher = CONFIG._replace(policy=CONFIG.policy._replace(process_memory_mib=200.0))
    report = report_of(tmp_path, *period, config=higher)
    expect(report, truly_idle=1)
    assert report.episodes.empty
    assert report.identities.empty


def test_the_header_names_the_drivers_of_the_window(tmp_path: Path) -> None:
    ticks = [one._replace(driver_version="1") for one in hour(held())]
    ticks += [one._replace(driver_version="2") for one in hour(held(), start_ms=MONDAY_MS + HOUR_MS)]
    write(tmp_path, ticks)
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).driver_versions == ["1"]
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS).driver_versions == ["1", "2"]


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 24 * 9, held(), every_ms=HOUR_MS))
    told: list[tuple[int, int]] = []
    build_report(
        str(tmp_path),
        window(MONDAY_MS, MONDAY_MS + 9 * DAY_MS),
        CONFIG,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
