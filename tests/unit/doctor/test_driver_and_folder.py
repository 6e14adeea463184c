"""What gua doctor makes of the driver and of the data folder, and of users and what they may do."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import doctor
from gua_report.doctor import data as doctor_data
from gua_report.doctor import driver as doctor_driver
from gua_report.doctor import user as doctor_user
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, error, ok, shell, warning
from gua_report.doctor.user import User
from gua_report.machine.units import Units
from tests.facts import GUA, put, statuses, units
from tests.users import SOMEBODY, needs_root


def look(**changes: Any) -> doctor_driver.NvmlAnswer:
    return doctor_driver.NvmlAnswer(GUA, [card()], "580.1", 0.1, None, "")._replace(**changes)


def card(**changes: Any) -> dict[str, Any]:
    facts = {"uuid": "GPU-1", "gpu_index": 0, "mig_index": None, "persistence_mode": 1, "status": "ok", "missing": None}
    return facts | changes


def check_nvml(seen: doctor_driver.NvmlAnswer, is_sampled: bool = False) -> list[Finding]:
    return list(doctor_driver.check_nvml(seen, GUA, is_sampled))


PERSIST = "sudo systemctl enable --now nvidia-persistenced"
USELESS = card(uuid="GPU-2", gpu_index=1, status="unpartitioned", missing="compute_processes:no_permission")
SILENT = [card(missing="energy:not_supported power:not_supported"), card(gpu_index=1, missing="energy:not_supported")]


@pytest.mark.parametrize(
    ("seen", "expected", "said", "remedy"),
    [
        (
            look(cards=[card(), USELESS]),
            [OK, WARNING],
            "card 1 (GPU-2) can't be used: MIG is on, without an instance",
            "sudo nvidia-smi mig -i 1 -cgi 0 -C   # ",
        ),
        (look(cards=[USELESS]), [OK, WARNING], "card 1 (GPU-2) can't be used", "sudo nvidia-smi mig"),
        (look(cards=SILENT), [OK, OK], "by the driver: energy (not_supported); power (not_supported) of card 0", ""),
        (look(cards=[card(missing="sm_percent:no_permission")]), [OK, WARNING], "sm_percent (no_permission)", ""),
        (
            look(cards=[card(gpu_index=index, persistence_mode=0) for index in (10, 9)]),
            [OK, WARNING],
            "9, 10)",
            PERSIST,
        ),
        (look(cards=[card(persistence_mode=None)]), [OK], "580.1, 1 card", ""),  # whose mode is not known
        (look(seconds=4.9), [OK], "answered in 4.9 s", ""),
        (look(seconds=5.1), [WARNING], "that is slow", PERSIST),
    ],
)
def test_what_the_driver_tells_of_cards_is_judged(
    seen: doctor_driver.NvmlAnswer, expected: list[str], said: str, remedy: str
) -> None:
    found = check_nvml(seen)
    assert statuses(found) == expected
    assert said in found[-1].text
    assert (found[-1].remedy or "").startswith(remedy)


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


def test_missing_nodes_are_named_with_who_makes_them(tmp_path: Path) -> None:
    present = nodes(tmp_path, "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null")
    assert [os.path.basename(path) for path in present] == ["nvidia2", "nvidia10", "nvidiactl"]
    assert doctor_driver.find_nodes(str(tmp_path / "nowhere")) == []
    expected = doctor_driver.expected_nodes(str(tmp_path), driver_proc(tmp_path, 2, 3))
    assert [os.path.basename(path) for path in expected] == ["nvidia2", "nvidia3", "nvidiactl"]
    found = doctor_driver.check_nodes(present, expected, look(error="unknown"), GUA)
    assert (found.status, found.remedy) == (ERROR, "sudo systemctl enable --now nvidia-persistenced")
    assert f"{tmp_path}/nvidia3 missing" in found.text
    assert doctor_driver.check_nodes(present, expected, look(), GUA).status == WARNING


def test_no_nodes_at_all_matter_only_if_nvml_does_not_work() -> None:
    for error_name, status in ((None, OK), ("driver_not_loaded", ERROR), ("library_not_found", WARNING)):
        found = doctor_driver.check_nodes([], [], look(error=error_name), GUA)
        assert (found.status, found.remedy) == (status, "sudo nvidia-modprobe -u -c 0" if status == ERROR else None)


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


def check_folder(path: str, user: User, units: Units | None) -> Finding:
    return doctor_data.check_folder(path, user, units, "START")


def us() -> User:
    return doctor_user.find_user(os.geteuid(), os.getegid())


def test_a_state_folder_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "gua"
    link.symlink_to(tmp_path / "real")
    found = check_folder(str(link), us(), units(StateDirectory=str(link)))
    assert found.status == ERROR
    assert "238/STATE_DIRECTORY" in found.text
    typed, _, comment = str(found.remedy).partition("   # ")
    assert typed == f"sudo rm {link} && sudo mkdir {link} && sudo mount --bind {tmp_path}/real {link}"
    assert comment.endswith('docs/operations.md "Moving the data"')
    # Without systemd's refusal it is a folder like any other; and for DynamicUser= systemd makes a link itself.
    assert check_folder(str(link), us(), units()).status == OK
    assert check_folder(str(link), us(), None).status == OK
    link.unlink()
    (tmp_path / "real").rename(tmp_path / "private")
    (tmp_path / "private/gua").mkdir()
    link.symlink_to("private/gua")
    assert check_folder(str(link), us(), units(StateDirectory=str(link))).status == OK


def test_no_advice_changes_a_folder_such_as_tmp(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    sampler = us()._replace(uid=us().uid + 1)
    for found in (check_folder(str(tmp_path), sampler, None), *doctor_data.check_writers(str(tmp_path))):
        assert "for gua alone" in found.text
        assert found.remedy == "gua doctor --data-dir DIR"


def test_a_link_to_nowhere_is_an_error(tmp_path: Path) -> None:
    """The sampler makes a folder that is missing, but not in place of a link."""
    (tmp_path / "link").symlink_to("nowhere")
    found = check_folder(f"{tmp_path}/link", us(), None)
    assert (found.status, found.remedy) == (ERROR, f"ls -l {tmp_path}/link")
    assert "is a link to a folder that does not exist" in found.text


@pytest.mark.parametrize(
    ("owner", "group", "mode", "expected"),
    [
        (990, 0, 0o600, True),
        (990, 0, 0o466, False),  # its owner's bits count, and no others
        (0, 44, 0o060, True),
        (0, 44, 0o606, False),
        (0, 0, 0o006, True),
        (0, 0, 0o664, False),
    ],
)
def test_access_is_judged_as_the_kernel_does(owner: int, group: int, mode: int, expected: bool) -> None:
    found = os.stat_result((stat.S_IFCHR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert doctor_user.allows(found, GUA, os.R_OK | os.W_OK) == expected


def test_findings_can_not_steer_a_terminal() -> None:
    found = error("x", "a\x1b[31mb\nc", shell("rm", "a\x1b[31m b"))
    assert (found.text, found.remedy) == (r"a\x1b[31mb\nc", r"rm 'a\x1b[31m b'")


def test_every_line_fits_and_commands_can_be_pasted() -> None:
    path = "/srv/50% #1? '/samples/2026-11-16.sqlite"
    remedy = (
        f"{shell('sqlite3', '-readonly', path, '.recover')} | sqlite3 -safe recovered.sqlite; sudo {shell('rm', path)}"
    )
    text = doctor.to_text(
        [
            error("partitions", f"{path} " * 5 + "x" * 200, remedy),
            warning(
                "processes", "short", "sudo systemctl edit gua-sample   # under [Service]: SupplementaryGroups=proc"
            ),
            ok("newest tick", "now"),
        ]
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 78
    start = next(number for number, line in enumerate(lines) if "-> sqlite3" in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("!"))
    pasted = "\n".join(line.replace("->", "  ", 1) for line in lines[start:end])
    assert " ".join(pasted.replace("\\\n", " ").split()) == " ".join(remedy.split())
    assert lines[end + 1].strip() == "-> sudo systemctl edit gua-sample"
    assert lines[end + 2].strip() == "# under [Service]: SupplementaryGroups=proc"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([ok("newest tick", "12 s ago")], "all is well: newest tick 12 s ago"),
        ([ok("newest tick", "x"), warning("a", "x")], "1 warning: sampling works"),
        ([warning("newest tick", "x"), warning("a", "x")], "2 warnings: nothing found that prevents sampling"),
        ([error("newest tick", "x"), warning("a", "x")], "1 error, 1 warning: sampling does not work"),
        ([error("newest tick", "x"), error("a", "x")], "2 errors: sampling does not work"),
    ],
)
def test_the_last_line_sums_up(findings: list[Finding], expected: str) -> None:
    assert doctor.to_text(findings).splitlines()[-1] == expected
