"""gua import of gpu_stats_service's CSV files: what is taken, what is left out and why."""

from pathlib import Path

import pytest

from tests.gpu_usage_audit import NOON_MS
from tests.import_target import Target, left_out
from tests.lab import MINUTE_MS

HEADER = "timestamp,user,pid,gpu,usage\n"
NOON = NOON_MS // 1000


def stats(path: Path, *lines: str, header: str = HEADER) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def states_of(target: Target, start_ms: int = NOON_MS, minutes: int = 5) -> dict[str, str]:
    """The state of each card over some minutes in which it does not change."""
    gpus = target.report(start_ms, start_ms + minutes * MINUTE_MS)["gpus"]
    return {gpu["uuid"]: next(state for state, value in gpu["states"].items() if value["share"] == 1) for gpu in gpus}


def test_stats_files_tell_utilization_and_who_but_no_memory(tmp_path: Path, target: Target) -> None:
    folder = stats(
        tmp_path / "gpu_stats" / "20261005_gpu_stats.csv",
        f"{NOON - 300},carol,7,2,90",
        f"{NOON},alice,4711,0,83",
        f"{NOON},bob,4712,1,3",
        f"{NOON + 300},-,-,-,0",
    ).parent
    said = target.imports(folder)
    assert (said["kind"], said["taken"]["ticks"], said["taken"]["cards"]) == ("gpu_stats_service CSV", 3, 3)
    sessions = {(row["boot_id"], row["interval_ms"]) for row in target.rows("ticks")}
    assert sessions == {("imported:gpu_stats_service", None)}
    first = target.rows("card_ticks")[0]
    assert (first["gpu_uuid"], first["gpu_index"], first["utilization_percent"]) == ("stats-csv:gpu-2", 2, 90.0)
    # A card that was seen before and has no line has no process: it is idle. One with a process holds who knows what.
    assert states_of(target) == {
        "stats-csv:gpu-0": "active",
        "stats-csv:gpu-1": "unknown",
        "stats-csv:gpu-2": "truly-idle",
    }
    assert set(states_of(target, NOON_MS + 5 * MINUTE_MS).values()) == {"truly-idle"}
    (process,) = [row for row in target.rows("process_ticks") if row["pid"] == 4711]
    assert (process["user"], process["login_user"], process["memory_mib"], process["type"]) == (
        "alice",
        None,
        None,
        "unknown",
    )


def test_lines_of_a_day_in_two_files_are_merged_and_duplicates_taken_once(tmp_path: Path, target: Target) -> None:
    folder = tmp_path / "gpu_stats"
    stats(folder / "20261005.csv", f"{NOON},alice,1,0,83", f"{NOON},bob,2,1,50", f"{NOON + 300},alice,1,0,20")
    stats(folder / "copy of 20261005.csv", f"{NOON},alice,1,0,83", f"{NOON},carol,3,2,40", f"{NOON + 300},alice,1,0,99")
    said = target.imports(folder)
    assert said["taken"]["ticks"] == 2
    assert left_out(said) == {"line contradicting another of the same time, card and pid": 1}
    assert [(row["ts_ms"] // 1000, row["user"]) for row in target.rows("process_ticks")] == [
        (NOON, "alice"),
        (NOON, "bob"),
        (NOON, "carol"),
        (NOON + 300, "alice"),
    ]
    assert [row["utilization_percent"] for row in target.rows("card_ticks")] == [83.0, 50.0, 40.0, 20.0, None, None]


@pytest.mark.parametrize(
    "rest", ["", "1", str(NOON + 300)[:7], f"{NOON + 300}", f"{NOON + 300},", f"{NOON + 300},bob,2,1,5"]
)
def test_a_cut_line_costs_its_tick_and_no_other(tmp_path: Path, target: Target, rest: str) -> None:
    path = stats(tmp_path / "cut.csv", f"{NOON},alice,1,0,83", f"{NOON},bob,2,1,50", f"{NOON + 300},alice,1,0,20")
    with path.open("a") as file:
        file.write(rest)
    said = target.imports(path)
    is_cut = rest != ""
    assert said["taken"]["ticks"] == (1 if is_cut else 2)
    assert left_out(said) == ({"line cut off, and with it the others of its time": 2} if is_cut else {})
    with path.open("a") as file:
        file.write("\n")
    path.write_text(path.read_text().replace(f"{rest}\n", f"{NOON + 300},bob,2,1,50\n") if is_cut else path.read_text())
    target.imports(path)
    assert len(target.rows("card_ticks")) == 4


def test_a_cut_line_of_a_new_tick_leaves_the_one_before(tmp_path: Path, target: Target) -> None:
    path = stats(tmp_path / "cut.csv", f"{NOON},alice,1,0,83")
    with path.open("a") as file:
        file.write(f"{NOON + 300},alice,1,0,")
    said = target.imports(path)
    assert said["taken"]["ticks"] == 1
    assert left_out(said) == {"line cut off, and with it the others of its time": 1}


def test_lines_that_make_no_sense_are_left_out_by_reason(tmp_path: Path, target: Target) -> None:
    path = stats(
        tmp_path / "odd.csv",
        *(f"{NOON},alice,1,0,83", "", " ", "a,b", "soon,alice,1,0,83", f"-{NOON},alice,1,0,83"),
        *(f"{NOON},alice,1,x,83", f"{NOON},alice,1,0,101", f"{NOON},alice,0,0,83", f"{NOON},alice,1_0,0,83"),
        *(f"{NOON},alice,1,99999,83", '"', f"{NOON},a\0b,1,3,83", "99999999999,alice,1,0,83", "60,alice,1,0,83"),
    )
    said = target.imports(path)
    assert said["taken"]["ticks"] == 1
    found = left_out(said)
    assert {reason: found[reason] for reason in found if " whose " in reason or "tick" in reason} == {
        "line whose time can't be read": 2,
        "line whose gpu makes no sense": 2,
        "line whose usage makes no sense": 1,
        "line whose pid makes no sense": 2,
        "tick of the future": 1,
        "tick of a clock that was never set": 1,
    }
    assert next(left for left in said["left_out"] if "usage" in left["reason"])["examples"] == ["odd.csv:9"]


def test_spaced_and_extended_stats_files_are_understood(tmp_path: Path, target: Target) -> None:
    header = "\ufeffTimestamp, user ,pid,gpu,usage,memory_mib\r\n"
    path = stats(
        tmp_path / "more.csv",
        f"{NOON}, alice ,4711,0,83,2000\r",
        f'{NOON + 1}.0,"b,ob\x1b",4.0,1,3.0,\r',
        header=header,
    )
    assert target.imports(path)["taken"]["ticks"] == 2
    assert [(row["ts_ms"], row["user"], row["pid"]) for row in target.rows("process_ticks")] == [
        (NOON_MS, "alice", 4711),
        (NOON_MS + 1000, r"b,ob\x1b", 4),
    ]


def test_ticks_before_any_card_was_seen_say_nothing(tmp_path: Path, target: Target) -> None:
    path = stats(tmp_path / "idle.csv", f"{NOON},-,-,-,0", f"{NOON + 300},-,-,-,0")
    assert target.imports(path, status=3)["taken"]["ticks"] == 0
    assert "nothing to import" in target.errors
    stats(path, f"{NOON},-,-,-,0", f"{NOON + 300},alice,1,0,50", f"{NOON + 600},-,-,-,0")
    said = target.imports(path)
    assert (said["taken"]["ticks"], left_out(said)) == (2, {"tick before any card was seen": 1})


def test_files_with_other_columns_are_named(tmp_path: Path, target: Target) -> None:
    folder = tmp_path / "mixed"
    stats(folder / "good.csv", f"{NOON},alice,1,0,83")
    stats(folder / "other.csv", "1,2", header="time,power\n")
    stats(folder / "empty.csv", header="")
    stats(folder / "ours.csv", f"{NOON},alice,1,0,83,GPU-0", header="timestamp,user,pid,gpu,usage,gpu_uuid\n")
    (folder / "notes.txt").write_text("not ours")
    said = target.imports(folder)
    assert said["taken"]["ticks"] == 1
    assert {left["reason"]: left["examples"] for left in said["left_out"]} == {
        "without the columns timestamp,user,pid,gpu,usage": ["empty.csv", "other.csv"],
        "written by gua itself, whose data folder tells more: import that": ["ours.csv"],
    }
