"""What gua doctor makes of the driver: its cards, its errors, its device nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gua_report.doctor import driver as doctor_driver
from gua_report.doctor import user as doctor_user
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding
from gua_report.doctor.user import User
from tests.facts import GUA, put, statuses
from tests.users import SOMEBODY, needs_root


def look(**changes: Any) -> doctor_driver.Look:
    return doctor_driver.Look(GUA, [card()], "580.1", 0.1, None, "")._replace(**changes)


def card(**changes: Any) -> dict[str, Any]:
    facts = {"uuid": "GPU-1", "gpu_index": 0, "mig_index": None, "persistence_mode": 1, "status": "ok", "missing": None}
    return facts | changes


def check_nvml(seen: doctor_driver.Look, is_sampled: bool = False) -> list[Finding]:
    return list(doctor_driver.check_nvml(seen, GUA, is_sampled))


def test_cards_that_fail_are_named_and_cost_the_others_nothing() -> None:
    lost = card(uuid="GPU-2", gpu_index=1, status="gpu_is_lost")
    first, second = check_nvml(look(cards=[card(), lost]))
    assert (first.status, second.status) == (OK, WARNING)
    assert "card 1 (GPU-2) fails: gpu_is_lost" in second.text
    assert check_nvml(look(cards=[lost]))[0].status == ERROR


def test_a_card_that_nothing_can_use_is_named_with_the_command_that_mends_it() -> None:
    useless = card(uuid="GPU-2", gpu_index=1, status="unpartitioned", missing="compute_processes:no_permission")
    first, second = check_nvml(look(cards=[card(), useless]))
    assert (first.status, second.status) == (OK, WARNING)
    assert second.text == "card 1 (GPU-2) can't be used: MIG is on, without an instance"
    assert second.remedy is not None
    assert second.remedy.startswith("sudo nvidia-smi mig -i 1 -cgi 0 -C   # ")
    # Sampling works, though no card does.
    assert statuses(check_nvml(look(cards=[useless]))) == [OK, WARNING]


def test_what_cards_do_not_tell_is_named() -> None:
    silent = card(missing="energy:not_supported power:not_supported")
    told = check_nvml(look(cards=[silent, card(gpu_index=1, missing="energy:not_supported")]))
    assert statuses(told) == [OK, OK]
    assert told[1].text == "not reported by the driver: energy (not_supported); power (not_supported) of card 0"
    forbidden = check_nvml(look(cards=[card(missing="sm_percent:no_permission")]))
    assert statuses(forbidden) == [OK, WARNING]


def test_persistence_mode_that_is_off_is_a_warning_with_the_cards() -> None:
    off = [card(gpu_index=index, persistence_mode=0 if index > 8 else 1) for index in range(11)]
    found = check_nvml(look(cards=off))[1]
    assert (found.status, found.remedy) == (WARNING, "sudo systemctl enable --now nvidia-persistenced")
    assert "(card 9, 10)" in found.text
    # A card that does not tell is not one whose mode is off.
    assert len(check_nvml(look(cards=[card(persistence_mode=None)]))) == 1


def test_a_slow_driver_is_a_warning() -> None:
    assert statuses(check_nvml(look(seconds=4.9))) == [OK]
    assert statuses(check_nvml(look(seconds=5.1))) == [WARNING]


def test_errors_of_the_driver_come_with_something_to_type() -> None:
    (found,) = check_nvml(look(cards=[], error="driver_not_loaded", text="NVML failed"))
    assert (found.status, found.remedy) == (ERROR, "sudo modprobe nvidia; nvidia-smi")
    (found,) = check_nvml(look(cards=[], error="irq_issue", text="NVML failed"))
    assert found.remedy == doctor_driver.OTHER_COMMAND


def test_what_fails_only_here_is_no_error() -> None:
    """The sampler may be another user, and its unit may tell it where the library is."""
    somebody = User(1000, 1000, (1000,), "alice")
    for error_name, asked_as, expected in (
        ("no_permission", somebody, WARNING),
        ("no_permission", GUA, ERROR),
        ("library_not_found", GUA, WARNING),
    ):
        seen = look(cards=[], error=error_name, text="NVML failed", asked_as=asked_as)
        assert statuses(check_nvml(seen, is_sampled=True)) == [expected]
        assert statuses(check_nvml(seen, is_sampled=False)) == [ERROR]


def nodes(folder: Path, *names: str, mode: int = 0o666) -> list[str]:
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(mode)
    return doctor_driver.find_nodes(str(folder))


def driver_proc(folder: Path, *minors: int) -> str:
    for minor in minors:
        put(folder / f"driver/nvidia/gpus/0000:0{minor}:00.0/information", f"Model: \t X\nDevice Minor: \t {minor}\n")
    return str(folder)


def test_nodes_of_cards_are_told_from_others(tmp_path: Path) -> None:
    found = nodes(tmp_path, "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null")
    assert [os.path.basename(path) for path in found] == ["nvidia2", "nvidia10", "nvidiactl"]
    assert doctor_driver.find_nodes(str(tmp_path / "nowhere")) == []


def test_missing_nodes_are_named_with_who_makes_them(tmp_path: Path) -> None:
    present = nodes(tmp_path, "nvidia0", "nvidiactl")
    expected = doctor_driver.expected_nodes(str(tmp_path), driver_proc(tmp_path, 0, 1))
    assert [os.path.basename(path) for path in expected] == ["nvidia0", "nvidia1", "nvidiactl"]
    found = doctor_driver.check_nodes(present, expected, look(error="unknown"), GUA)
    assert (found.status, found.remedy) == (ERROR, "sudo systemctl enable --now nvidia-persistenced")
    assert f"{tmp_path}/nvidia1 missing" in found.text
    assert doctor_driver.check_nodes(present, expected, look(), GUA).status == WARNING


def test_no_nodes_at_all_matter_only_if_nvml_does_not_work() -> None:
    assert doctor_driver.check_nodes([], [], look(), GUA).status == OK
    found = doctor_driver.check_nodes([], [], look(error="driver_not_loaded"), GUA)
    assert (found.status, found.remedy) == (ERROR, "sudo nvidia-modprobe -u -c 0")
    assert doctor_driver.check_nodes([], [], look(error="library_not_found"), GUA).status == WARNING


@needs_root
def test_nodes_that_are_closed_to_the_sampler_are_an_error(open_folder: Path) -> None:
    somebody = doctor_user.find_user(SOMEBODY)
    present = nodes(open_folder, "nvidia0", mode=0o666) + nodes(open_folder, "nvidiactl", mode=0o660)[1:]
    found = doctor_driver.check_nodes(present, [], look(error="no_permission"), somebody)
    assert (found.status, found.remedy) == (ERROR, f"sudo chmod a+rw {open_folder}/nvidiactl")
    os.chown(open_folder / "nvidiactl", 0, 4242)
    found = doctor_driver.check_nodes(present, [], look(error="no_permission"), somebody)
    assert found.remedy == f"sudo usermod -aG 4242 {SOMEBODY}"
    # That NVML answered somebody else says nothing; that it answered this user does.
    assert doctor_driver.check_nodes(present, [], look(), somebody).status == ERROR
    assert doctor_driver.check_nodes(present, [], look(asked_as=somebody), somebody).status == WARNING
    (open_folder / "nvidiactl").chmod(0o666)
    assert doctor_driver.check_nodes(present, [], look(), somebody).status == OK
