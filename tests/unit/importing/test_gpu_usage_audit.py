"""gua import of a gpu-usage-audit database: what is taken, what is left out and why, and what a report makes of it."""

import pytest

from tests.gpu_usage_audit import FIRST_SEEN_MS, NOON_MS, PeerDatabase, Seen, text_of, times
from tests.import_target import Target, left_out
from tests.lab import HOUR_MS, MINUTE_MS, at


def test_a_database_of_1_8_0_tells_cards_and_processes(new: PeerDatabase, target: Target) -> None:
    with new.open() as connection:
        connection.execute("INSERT INTO gpu_device VALUES ('GPU-0', 'NVIDIA A100', 81920, '', '')")
    card = Seen(
        83, ((4711, 2000, "alice", "alice", "python3", "compute"), (9, 120, None, "gdm", "Xorg", "graphics")), 2600
    )
    new.add([NOON_MS, NOON_MS + 30_000], card, Seen(0))

    said = target.imports(new.path)

    assert said["kind"] == "gpu-usage-audit database (schema of 1.8.0, recorded on lab7)"
    assert said["taken"] == {
        "days": ["2026-10-05"],
        "ticks": 2,
        "cards": 2,
        "processes": 2,
        "first_ms": NOON_MS,
        "last_ms": NOON_MS + 30_000,
    }
    assert said["left_out"] == said["refused"] == said["warnings"] == []
    first = target.rows("ticks")[0]
    assert first == {
        "ts_ms": NOON_MS,
        "interval_ms": 30_000,
        "boot_id": f"imported:gpu-usage-audit:{text_of(FIRST_SEEN_MS)}",
        "driver_version": "570.86.10",
        "nvml_ms": None,
        "error": None,
    }
    busy_card, free_card, *_ = target.rows("card_ticks")
    told = {"utilization_percent": 83.0, "utilization_source": "rate", "memory_used_mib": 2600, "power_watts": 77.0}
    told |= {
        "temperature_celsius": 41,
        "process_memory_mib": 2120,
        "status": "ok",
        "gpu_index": 0,
        "gpu_name": "NVIDIA A100",
    }
    assert told.items() <= busy_card.items()
    assert (busy_card["memory_total_mib"], busy_card["energy_joules"], busy_card["missing"]) == (81920, None, None)
    assert (free_card["gpu_uuid"], free_card["gpu_index"], free_card["memory_total_mib"]) == ("GPU-1", 1, None)
    assert [
        (row["pid"], row["login_user"], row["user"], row["command"], row["type"], row["memory_mib"], row["sm_percent"])
        for row in target.rows("process_ticks")[:2]
    ] == [(4711, "alice", "alice", "python3", "compute", 2000, None), (9, None, "gdm", "Xorg", "graphics", 120, None)]


def test_a_database_of_1_0_2_tells_what_it_can(old: PeerDatabase, target: Target) -> None:
    old.add(
        [NOON_MS, NOON_MS + 30_000], Seen(3, ((4711, 2000, "alice"),)), Seen(0, uuid="GPU-b"), Seen(0, uuid="GPU-a")
    )
    assert target.imports(old.path)["kind"] == "gpu-usage-audit database (schema of 1.0.2, recorded on lab7)"
    first = target.rows("ticks")[0]
    assert (first["interval_ms"], first["driver_version"]) == (None, "570.86.10")
    assert first["boot_id"] == f"imported:gpu-usage-audit:{text_of(FIRST_SEEN_MS)}"  # since when the host is known
    cards = target.rows("card_ticks")[:3]
    # Cards are written in the order of their index, which has no column.
    assert [(card["gpu_uuid"], card["gpu_index"]) for card in cards] == [("GPU-0", 0), ("GPU-b", 1), ("GPU-a", 2)]
    assert {card["memory_used_mib"] for card in cards} == {card["power_watts"] for card in cards} == {None}
    (process,) = target.rows("process_ticks")[:1]
    assert (process["pid"], process["login_user"], process["user"], process["command"]) == (4711, "alice", None, None)


def test_each_run_of_its_daemon_is_a_boot_with_its_interval(new: PeerDatabase, target: Target) -> None:
    new.add([NOON_MS], Seen())
    new.start(NOON_MS + HOUR_MS, 60.0)
    new.add([NOON_MS + HOUR_MS], Seen())
    new.start(NOON_MS + 2 * HOUR_MS, "soon")
    new.add([NOON_MS + 2 * HOUR_MS], Seen())
    new.run_id = 99  # that nobody knows of
    new.add([NOON_MS + 3 * HOUR_MS], Seen())
    new.start(NOON_MS + 4 * HOUR_MS)  # and killed at once: the driver is that of the last run with a tick
    target.imports(new.path)
    found = [(row["interval_ms"], row["driver_version"]) for row in target.rows("ticks")]
    assert found == [(30_000, None), (60_000, None), (None, None), (None, "570.86.10")]
    assert len({row["boot_id"] for row in target.rows("ticks")}) == 4


def test_rows_from_before_an_upgrade_belong_to_no_run(new: PeerDatabase, target: Target) -> None:
    new.run_id = None
    new.add([NOON_MS], Seen(5, ((1, 300, "alice"),), state=None))
    new.run_id = 1
    new.add([NOON_MS + HOUR_MS], Seen(5, ((1, 300, "alice"),)))
    target.imports(new.path)
    assert [row["interval_ms"] for row in target.rows("ticks")] == [None, 30_000]
    assert [row["status"] for row in target.rows("card_ticks")] == ["ok", "ok"]


def test_a_process_list_that_could_not_be_had_is_unknown_not_idle(new: PeerDatabase, target: Target) -> None:
    new.add(times(NOON_MS, 2), Seen(0, state=None), Seen(0), Seen(50, state=None))
    target.imports(new.path)
    assert [row["status"] for row in target.rows("card_ticks")[:3]] == [
        "process_list_unavailable",
        "ok",
        "process_list_unavailable",
    ]
    states = target.report(NOON_MS, NOON_MS + MINUTE_MS)["headline"]["states"]
    assert {state: value["gpu_hours"] for state, value in states.items()} == pytest.approx(
        {"active": 1 / 60, "idle-held": 0, "truly-idle": 1 / 60, "unknown": 1 / 60}, abs=1e-4
    )


def test_what_cant_be_is_not_known(new: PeerDatabase, target: Target) -> None:
    odd = Seen(250, ((7, "much", "u1"), (-1, 5, "u1"), (8, -3, "u1")), used=-1)
    new.add([NOON_MS], odd, Seen("half"), Seen(12.7), Seen(1, uuid=""), Seen(1, uuid=b"\xff\x00"))
    said = target.imports(new.path)
    cards = target.rows("card_ticks")
    assert [card["utilization_percent"] for card in cards[:3]] == [None, None, 12.0]
    assert [card["missing"] for card in cards[:3]] == ["utilization:implausible", "utilization:implausible", None]
    assert (cards[0]["memory_used_mib"], cards[0]["process_memory_mib"]) == (None, None)
    assert [row["memory_mib"] for row in target.rows("process_ticks")] == [None, None]
    assert cards[3]["gpu_uuid"] == r"\xff\x00"
    assert left_out(said) == {"process row whose pid makes no sense": 1, "card without a name": 1}


def test_hostile_names_are_made_printable(new: PeerDatabase, target: Target) -> None:
    nasty = "\x1b]0;owned\x07\n=cmd()"
    new.add([NOON_MS], Seen(0, ((7, 500, nasty, nasty, nasty, nasty),), uuid=nasty))
    with new.open() as connection:
        connection.execute("UPDATE daemon_run SET started_at = ?", (nasty,))
        connection.execute("UPDATE host SET driver_version = ?, hostname = ?", ("x" * 100_000, "lab\x1b[31m\n7"))
        connection.execute("UPDATE proc_sample SET process_name = CAST(x'ff41' AS TEXT)")
    assert target.imports(new.path)["kind"].isprintable()
    (process,) = target.rows("process_ticks")
    assert process["login_user"] == process["user"] == r"\x1b]0;owned\x07\n=cmd()"
    assert process["command"].isprintable()
    assert process["type"] == "compute"
    for row in target.rows("ticks") + target.rows("card_ticks"):
        assert all(value.isprintable() and len(value) < 1000 for value in row.values() if isinstance(value, str))


def test_a_pid_that_is_twice_on_a_card_is_one_process(new: PeerDatabase, target: Target) -> None:
    twice = ((7, 500, "al", "alice", "python", "compute"), (7, 900, "al", "alice", "python", "graphics"))
    new.add([NOON_MS], Seen(0, twice), Seen(0, twice[:1]))
    target.imports(new.path)
    rows = target.rows("process_ticks")
    assert [(row["pid"], row["type"], row["memory_mib"]) for row in rows] == [
        (7, "compute+graphics", 900),
        (7, "compute", 500),
    ]
    assert {(row["user"], row["login_user"], row["command"]) for row in rows} == {("alice", "al", "python")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-10-05T12:00:00.123456+00:00", NOON_MS + 123),
        ("2026-10-05T12:00:00+00:00", NOON_MS),
        ("2026-10-05T12:00:00.987654321Z", NOON_MS + 987),
        ("2026-10-05 12:00:00", NOON_MS),
        ("2026-10-05T14:00:00.5+02:00", NOON_MS + 500),
        ("2026-10-05T23:30:00-02:00", at("2026-10-06 01:30")),
    ],
)
def test_its_times_are_understood(new: PeerDatabase, target: Target, text: str, expected: int) -> None:
    new.add([text], Seen())
    target.imports(new.path)
    assert [row["ts_ms"] for row in target.rows("ticks")] == [expected]


def test_rows_whose_time_makes_no_sense_are_left_out(new: PeerDatabase, target: Target) -> None:
    nonsense = [
        "soon",
        "2026-10-05Tnoon",
        5,
        "2026-13-77T00:00:00",
        "1970-01-01T00:05:00+00:00",
        "2999-01-01T00:00:00+00:00",
    ]
    new.add([NOON_MS, *(str(text) for text in nonsense)], Seen())
    said = target.imports(new.path)
    assert said["taken"]["ticks"] == 1
    assert left_out(said) == {
        "row whose time can't be read": 4,
        "tick of the future": 1,
        "tick of a clock that was never set": 1,
    }
    future = next(left for left in said["left_out"] if left["reason"] == "of the future")
    assert future["examples"] == ["2999-01-01 00:00:00 UTC"]


def test_processes_without_their_card_are_left_out(new: PeerDatabase, target: Target) -> None:
    new.add([NOON_MS], Seen(0, ((7, 500),)))
    with new.open() as connection:
        connection.execute(
            "INSERT INTO proc_sample (ts, gpu_uuid, pid, run_id) SELECT ts, 'GPU-9', 8, 1 FROM gpu_sample"
        )
        connection.execute("INSERT INTO proc_sample (ts, gpu_uuid, pid) SELECT ts, 'GPU-0', 9 FROM gpu_sample")
    said = target.imports(new.path)
    assert left_out(said) == {"process row without a row of their card": 2}
    assert [row["pid"] for row in target.rows("process_ticks")] == [7]


def test_memory_that_is_not_told_and_memory_of_nobody_are_judged_by_our_rule(new: PeerDatabase, target: Target) -> None:
    """It counts all three as truly idle: NULL is 0 to it, and nobody's memory nothing."""
    not_told = Seen(0, ((7, None, None, "alice"),), used=9000)
    nobodys = Seen(0, used=9000)
    small = Seen(0, ((8, 90, "carol", "carol"),), used=600)
    new.add(times(NOON_MS, 2), not_told, nobodys, small)
    target.imports(new.path)
    report = target.report(NOON_MS, NOON_MS + MINUTE_MS)
    assert [max(gpu["states"], key=lambda state: gpu["states"][state]["share"]) for gpu in report["gpus"]] == [
        "idle-held",
        "idle-held",
        "truly-idle",
    ]
    assert {one["identity"] for one in report["identities"]} == {"alice", "(unattributed)"}
