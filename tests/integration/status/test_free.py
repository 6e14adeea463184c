"""gua free: cards for a shell substitution, or who holds them."""

import re
import subprocess
import time

from tests.integration.status.shown import document, gua, status
from tests.lab import MINUTE_MS, MONDAY_MS, NOON_MS, SECOND_MS
from tests.machine import GUA, Machine, call


def test_free_cards_come_least_recently_used_first_for_a_shell_substitution(machine: Machine, sleeper: int) -> None:
    cards = [machine.scenario.add_card() for _ in range(5)]
    cards[4].error("nvmlDeviceGetHandleByIndex_v2", 15)
    now_ms = int(time.time() * 1000)
    for age, used in ((4, 0), (3, 1), (2, 3), (1, None)):
        for index, card in enumerate(cards):
            card.update(compute=[(sleeper, 4000)] if index == used else ())
        machine.tick(clock_ms=now_ms - age * 30 * SECOND_MS)
    # Card 2 was never used; then 0, 1 and 3, as it was; card 4 is lost.
    assert gua(machine, "free").stdout == "2,0,1,3\n"
    assert gua(machine, "free", "-n", "2").stdout == "2,0\n"
    uuids = [cards[index].settings["uuid"] for index in (2, 0)]
    assert gua(machine, "free", "-n", "2", "--uuid").stdout == ",".join(uuids) + "\n"
    script = f"CUDA_VISIBLE_DEVICES=$('{GUA}' free -n 2 --data-dir {machine.data_dir}) env"
    done = call(["sh", "-c", script], env=machine.environment(), check=True)
    assert "CUDA_VISIBLE_DEVICES=2,0\n" in done.stdout


def test_the_order_is_by_the_samplers_thresholds_if_one_gives_others(machine: Machine, sleeper: int) -> None:
    first, *_ = [machine.scenario.add_card() for _ in range(2)]
    first.update(compute=[(sleeper, 4000)])
    machine.tick(clock_ms=MONDAY_MS)
    first.update(compute=())
    machine.tick(clock_ms=MONDAY_MS + MINUTE_MS)
    now_ms = MONDAY_MS + MINUTE_MS + SECOND_MS
    assert gua(machine, "free", "--memory-threshold", "512", clock_ms=now_ms).stdout == "1,0\n"


def test_without_a_history_the_order_is_that_of_the_indices(machine: Machine) -> None:
    for _ in range(3):
        machine.scenario.add_card()
    done = gua(machine, "free")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0,1,2\n", "")


def test_too_few_free_cards_are_an_error_that_says_who_holds_them(machine: Machine, sleeper: int) -> None:
    cards = [machine.scenario.add_card() for _ in range(3)]
    start_ms = MONDAY_MS
    for number in range(6):
        for card in cards[1:]:
            card.update(compute=[(sleeper, 4000)] if number else ())
        machine.tick(clock_ms=start_ms + number * MINUTE_MS)
    now_ms = start_ms + 5 * MINUTE_MS + 10 * SECOND_MS
    user = document(machine, clock_ms=now_ms)["gpus"][1]["users"][0]["user"]
    done = gua(machine, "free", "-n", "3", clock_ms=now_ms)
    assert (done.returncode, done.stdout) == (1, "")
    expected = f"Requested 3, available 1 (2 idle-held by {user} for 4m; gua status)"
    assert done.stderr == f"gua free: error: {expected}\n"
    cards[0].update(utilization_percent=99)
    done = gua(machine, "free", clock_ms=now_ms)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Requested 1, available 0 (2 idle-held by {user} for 4m; 1 active; gua status)" in done.stderr
    script = f"set -e; devices=$('{GUA}' free -n 3 --data-dir {machine.data_dir}); echo never"
    stopped = subprocess.run(["sh", "-c", script], env=machine.environment(), capture_output=True, check=False)
    assert (stopped.returncode, stopped.stdout) == (1, b"")


def test_every_card_that_is_not_free_is_counted_with_its_reason(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card()
    for _ in range(2):
        machine.scenario.add_card(utilization_percent=99, compute=[(sleeper, 4000)])
    machine.scenario.add_card().error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.scenario.add_card(utilization_percent=0, compute=[(sleeper, 4000)])
    holder = document(machine)["gpus"][4]["users"][0]["user"]
    reasons = f"1 idle-held by {holder}; 2 active; 1 unknown"
    assert gua(machine, "free", "-n", "3").stderr == (
        f"gua free: error: Requested 3, available 1 ({reasons}; gua status)\n"
    )
    (machine.folder / "r.csv").write_text("gpu,user,from,to\n")
    config = machine.folder / "gua.toml"
    config.write_text(f'[reservations]\nfile = "{machine.folder}/r.csv"\n')
    done = gua(machine, "free", "-n", "3", "--config", str(config))
    assert f"({reasons}; 3 of these in use without reservation; gua status)" in done.stderr


def test_who_holds_little_of_a_card_that_is_held_is_named(machine: Machine, sleeper: int) -> None:
    memory = {"memory_total_mib": 81_920, "memory_reserved_mib": 0, "memory_free_mib": 81_920 - 600}
    machine.scenario.add_card(**memory, compute=[(sleeper, 200)])
    user = document(machine)["gpus"][0]["users"][0]["user"]
    done = gua(machine, "free", "--memory-threshold", "512")
    assert f"(1 idle-held by {user}; gua status)" in done.stderr


def test_mig_instances_are_cards_and_free_ones_are_printed_by_uuid(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card()
    card = machine.scenario.add_card()
    free = card.add_mig()
    held = card.add_mig(compute=[(sleeper, 4000)])
    found = document(machine)
    assert [(gpu["index"], gpu["mig_index"], gpu["state"]) for gpu in found["gpus"]] == [
        (0, None, "truly-idle"),
        (1, 0, "truly-idle"),
        (1, 1, "unknown"),  # before Hopper, the utilization of an instance can't be measured
    ]
    assert found["gpus"][2]["uuid"] == held.settings["uuid"]
    assert re.search(r"^1:0 .*MIG 1g", status(machine), re.MULTILINE)
    uuids = [machine.scenario.cards[0].settings["uuid"], free.settings["uuid"]]
    assert gua(machine, "free").stdout == ",".join(uuids) + "\n"
    assert gua(machine, "free", "-n", "1").stdout == "0\n"


def test_a_card_that_nothing_can_use_is_never_offered_and_status_says_why(machine: Machine) -> None:
    machine.scenario.add_card(mig_mode=1, mig_count=7)
    machine.scenario.add_card()
    for seconds in (0, 30, 60):
        machine.tick(clock_ms=NOON_MS + seconds * 1000)
    now_ms = NOON_MS + 90_000
    assert gua(machine, "free", clock_ms=now_ms).stdout == "1\n"
    done = gua(machine, "free", "-n", "2", clock_ms=now_ms)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Requested 2, available 1 (1 unpartitioned; gua status)" in done.stderr
    found = document(machine, clock_ms=now_ms)["gpus"][0]
    assert (found["state"], found["status"], found["seconds"]) == ("unpartitioned", "unpartitioned", 90)
    text = status(machine, clock_ms=now_ms)
    assert "1 truly-idle, 1 unpartitioned" in text.splitlines()[0]
    assert re.search(r"^0 .* unpartitioned +≥ 1m", text, re.MULTILINE)
    assert "MIG is on, without an instance: nothing can use it until one is made, see\n     gua doctor\n" in text


def test_a_simulated_laboratory_needs_neither_driver_nor_history() -> None:
    done = call([GUA, "status", "--simulate"], check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("8 GPUs at ")
    assert done.stdout.endswith("Sampling: simulated, no tick yet: see gua doctor\n")
    other = call([GUA, "status", "--simulate", "1"], check=True)
    assert other.stdout != done.stdout
