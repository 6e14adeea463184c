"""Check the driver as the sampler will find it: its device nodes, and NVML's answers."""

import ctypes
import os
import re
import time
from collections.abc import Iterator
from glob import glob
from typing import Any, NamedTuple

from gua_report.console.spelling import gpu
from gua_report.doctor.findings import COMMENT, Finding, error, ok, plural, sudo, warning
from gua_report.doctor.user import User, group_name, may, ourselves
from gua_report.machine.child import NO_ANSWER, ask
from gua_sample.errors import DriverError
from gua_sample.policy import STATUS_OK, UNPARTITIONED
from gua_sample.processes import read_file
from gua_sample.records import TIMEOUT

NODES = "device nodes"
NVML = "NVML"
SLOW_SECONDS = 5.0
PERSIST = "sudo systemctl enable --now nvidia-persistenced"
MAKE_NODES = "sudo nvidia-modprobe -u -c 0"
# Profile 0 is all of a card, of whatever kind; -C makes the compute instance in it.
MAKE_INSTANCE = f"sudo nvidia-smi mig -i {{}} -cgi 0 -C{COMMENT}one of all of it; nvidia-smi mig -lgip lists others"
PR_SET_NO_NEW_PRIVS = 38

# Commands to type; nvml.REMEDIES explains the errors.
NO_LIBRARY = "library_not_found"
COMMANDS = {
    NO_LIBRARY: "ldconfig -p | grep libnvidia-ml",
    "driver_not_loaded": "sudo modprobe nvidia; nvidia-smi",
    "lib_rm_version_mismatch": "sudo reboot",
    "no_permission": "ls -l /dev/nvidia*",
    "driver_hangs": "sudo reboot",
    "no_cards": "nvidia-smi; lspci | grep -i nvidia",
    "gpu_is_lost": "sudo dmesg | grep -i nvrm",
    "reset_required": "sudo nvidia-smi --gpu-reset",
    TIMEOUT: "sudo dmesg | grep -i nvrm",
}
NO_NVML_ANSWER, NVML_CRASHED = "no_answer", "crashed"
SAYS_NOTHING_OF_NODES = (NO_LIBRARY, NO_NVML_ANSWER, NVML_CRASHED)
OTHER_COMMAND = "nvidia-smi; sudo dmesg | grep -i nvrm"


class NvmlAnswer(NamedTuple):
    asked_as: User  # the sampler's user, if we can be that; else ourselves
    cards: list[dict[str, Any]]  # facts of each
    driver_version: str | None
    seconds: float
    error: str | None  # the name of the error, if there are no cards
    text: str  # the error in words


def import_binding() -> str | None:
    try:
        from gua_sample import nvml  # noqa: F401 - whether it can be imported is the question
    except (ImportError, AttributeError, OSError) as problem:  # AttributeError: another project's old pynvml
        return str(problem)
    return None


def look(user: User, seconds: float) -> NvmlAnswer:
    """Ask NVML as the sampler would, with no more rights: so it makes no device nodes that the sampler could not."""
    as_user = user if os.geteuid() == 0 else ourselves()
    answer = ask(_read, seconds, None if as_user.is_us else as_user[:3])
    if answer.problem == NO_ANSWER:
        return NvmlAnswer(as_user, [], None, seconds, NO_NVML_ANSWER, f"NVML does not answer within {seconds:g} s")
    if answer.problem:
        return NvmlAnswer(as_user, [], None, 0, NVML_CRASHED, "NVML crashed")
    return NvmlAnswer(as_user, *answer.value)


def _read() -> tuple[Any, ...]:
    from gua_sample import nvml

    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    began = time.monotonic()
    try:
        reading = nvml.read(None)
    except DriverError as problem:
        return [], None, 0, problem.name, str(problem)
    cards = [card.facts._asdict() for card in reading.cards]
    return cards, reading.driver_version, time.monotonic() - began, None, ""


def check_nvml(seen: NvmlAnswer, user: User, is_sampled: bool) -> Iterator[Finding]:
    if seen.error:
        command = COMMANDS.get(seen.error, OTHER_COMMAND)
        if is_sampled and (seen.asked_as.uid != user.uid or seen.error == NO_LIBRARY):
            yield warning(NVML, f"{seen.text}; but the sampler can read the cards", command)
        else:
            yield error(NVML, seen.text, command)
        return
    failed = [card for card in seen.cards if card["status"] not in (STATUS_OK, UNPARTITIONED)]
    text = f"driver {seen.driver_version or 'of unknown version'}, {plural(len(seen.cards), 'card')}"
    took = f"{seen.seconds:.1f} s" if seen.seconds >= 1 else f"{seen.seconds * 1000:.0f} ms"
    text += f", answered in {took}" + ("" if seen.asked_as.is_us else f", as {seen.asked_as}")
    if len(failed) == len(seen.cards):
        yield error(NVML, f"{text}; all cards fail", OTHER_COMMAND)
    elif seen.seconds > SLOW_SECONDS:
        yield warning(NVML, f"{text}: that is slow", PERSIST)
    else:
        yield ok(NVML, text)
    for card in failed:
        command = COMMANDS.get(card["status"], OTHER_COMMAND)
        yield warning(NVML, f"card {place(card)} ({card['uuid']}) fails: {card['status']}", command)
    unpartitioned = [card for card in seen.cards if card["status"] == UNPARTITIONED]
    for card in unpartitioned:
        text = f"card {place(card)} ({card['uuid']}) can't be used: MIG is on, without an instance"
        yield warning(NVML, text, MAKE_INSTANCE.format(card["gpu_index"]))
    off = sorted({card["gpu_index"] for card in seen.cards if card["persistence_mode"] == 0})
    if off:
        text = "persistence mode is off: each tick initialises the card anew, which takes seconds"
        yield warning(NVML, f"{text} (card {', '.join(map(str, off))})", PERSIST)
    yield from _check_missing([card for card in seen.cards if card not in unpartitioned])


def _check_missing(cards: list[dict[str, Any]]) -> Iterator[Finding]:
    """A finding about figures that cards don't report. Few report all, so only a missing permission is a warning."""
    places: dict[str, list[str]] = {}
    for card in cards:
        for item in (card["missing"] or "").split():
            places.setdefault(item.replace(":", " (") + ")", []).append(place(card))
    if places:
        each = (f"{what} of card {', '.join(at)}" if len(at) < len(cards) else what for what, at in places.items())
        text = f"not reported by the driver: {'; '.join(each)}"
        yield warning(NVML, text) if "no_permission" in text else ok(NVML, text)


def place(card: dict[str, Any]) -> str:
    return gpu(card["gpu_index"], card["mig_index"])


def find_nodes(dev: str = "/dev") -> list[str]:
    """Device nodes of cards, and the control node. Call this before NVML is asked, which may create some."""
    names = [name for name in glob("*", root_dir=dev) if re.fullmatch(r"nvidia(\d+|ctl)", name)]
    return [os.path.join(dev, name) for name in sorted(names, key=lambda name: (len(name), name))]


def expected_nodes(dev: str = "/dev", proc: str = "/proc") -> list[str]:
    told = b"".join(read_file(path) or b"" for path in glob(f"{proc}/driver/nvidia/gpus/*/information"))
    minors = sorted(int(number) for number in re.findall(rb"Device Minor:\s*(\d+)", told))
    return [os.path.join(dev, f"nvidia{minor}") for minor in [*minors, "ctl"] if minors]


def check_nodes(nodes: list[str], expected: list[str], seen: NvmlAnswer, user: User) -> Finding:
    works = seen.error is None
    if not nodes and works:
        return ok(NODES, "none, and NVML works without (as under WSL)")
    if not nodes and seen.error in SAYS_NOTHING_OF_NODES:
        return warning(NODES, "none")
    if not nodes:
        return error(NODES, f"none, and {user} can't create them", PERSIST if expected else MAKE_NODES)
    missing = [path for path in expected if path not in nodes]
    if missing:
        text = f"{', '.join(missing)} missing, and {user} can't create what is missing"
        return warning(NODES, text, PERSIST) if works else error(NODES, text, PERSIST)
    closed = [path for path in nodes if not may(user, path, os.R_OK | os.W_OK)]
    if not closed:
        return ok(NODES, f"{', '.join(map(os.path.basename, nodes))}, open to {user}")
    # If NVML answered this very user, there is another way in.
    problem = warning if works and seen.asked_as.uid == user.uid else error
    found = os.stat(closed[0])
    mode = f"owner {found.st_uid}, group {group_name(found.st_gid)}, mode {found.st_mode & 0o7777:04o}"
    text = f"{', '.join(closed)} not open to {user} ({mode})"
    if found.st_mode & 0o060 == 0o060 and found.st_gid != 0:
        return problem(NODES, text, sudo("usermod", "-aG", group_name(found.st_gid), user.spelled))
    return problem(NODES, text, sudo("chmod", "a+rw", *closed))
