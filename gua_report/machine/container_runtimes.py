"""Ask the runtimes of this machine and of its users about containers, in children without root's rights.

Outside of users' slices only root names cgroups, so such a container is asked of the machine's sockets. One in a user's
slice is asked of that user's own sockets with that user's rights: they may lie, and speak for nobody else's containers.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gua_report.machine.child import Answer, ask
from gua_report.machine.container_socket import ContainerSocket, NoAnswer
from gua_report.machine.running_containers import Running
from gua_sample.console import plural
from gua_sample.containers import clean_text
from gua_sample.rights import NO_GROUP, become

NOBODY = (NO_GROUP, NO_GROUP, ())
MACHINE = 0  # the machine's runtimes are root's
# By path, the runtime that answers there.
MACHINE_SOCKETS = {"/run/docker.sock": "docker", "/var/run/docker.sock": "docker", "/run/podman/podman.sock": "podman"}
USER_SOCKETS = {"/run/user/{uid}/docker.sock": "docker", "/run/user/{uid}/podman/podman.sock": "podman"}
# The time for one container, for all that are the machine's or one user's, and for those of all users.
# A socket may have to start its runtime first.
QUESTION_SECONDS, SPEAKER_SECONDS, USERS_SECONDS = 5.0, 10.0, 20.0
CHILD_SECONDS = 1.0  # for a child to start and to end, beside the time of its sockets
LONGEST_PATH = 4096

Complain = Callable[[str], None]
Wanted = tuple[str, Running | None]  # the key of a container, and where it runs; None: it does not run any more


class Description(NamedTuple):
    """A container as its runtime describes it, in printable texts."""

    runtime: str
    name: str
    image: str | None
    label: str | None  # the value of the label that names the owner
    sources: list[str]  # absolute paths of the host that are mounted


def ask_runtimes(wanted: Iterable[Wanted], label: str, complain: Complain) -> dict[str, Description | None]:
    """What is told of the containers, by key; None if nobody knows one. Absent: there was nobody to ask, or no time."""
    by_uid: dict[int, list[Wanted]] = {MACHINE: []}  # the machine comes first
    answers: dict[str, Description | None] = {}
    for key, running in wanted:
        slice_uids = running.slice_uids if running else ()
        if len(slice_uids) > 1:  # somebody made up a cgroup of a colleague's: nobody can be believed
            answers[key] = None
        else:
            by_uid.setdefault(slice_uids[0] if slice_uids else MACHINE, []).append((key, running))
    _leave_out_others(by_uid, complain)
    users_end = time.monotonic() + SPEAKER_SECONDS + USERS_SECONDS
    for uid, ones in by_uid.items():
        deadline = min(time.monotonic() + SPEAKER_SECONDS, users_end)
        answers |= _ask_speaker(uid, ones, label, deadline, complain)
    return answers


def _leave_out_others(by_uid: dict[int, list[Wanted]], complain: Complain) -> None:
    """Without root, leave out the users whom we can't become."""
    if os.geteuid() != 0:
        left_out = [by_uid.pop(uid) for uid in [*by_uid] if uid not in (MACHINE, os.geteuid())]
        if left_out:
            count = plural(sum(map(len, left_out)), "container")
            complain(f"{count} of other users can't be asked for: run this as root")


def _ask_speaker(
    uid: int, wanted: list[Wanted], label: str, deadline: float, complain: Complain
) -> dict[str, Description | None]:
    """The answers of the machine's runtimes or a user's own, as far as the time reaches."""
    sockets = _sockets_of(uid)
    user = (uid, NO_GROUP, ()) if uid != MACHINE and os.geteuid() == 0 else None
    answers: dict[str, Description | None] = {}
    problems: Counter[str] = Counter()
    for key, running in wanted:
        seconds = min(QUESTION_SECONDS, deadline - time.monotonic())
        if seconds <= 0:
            problems["there is no time left"] += 1
            continue
        question = partial(_inspect, _order(sockets, running), running.id if running else key, label, seconds)
        path, told, problem = _understand(ask(question, seconds + CHILD_SECONDS, user))
        answers[key] = _describe(told, sockets.get(path, ""), running)
        if answers[key] is None and problem:
            problems[problem] += 1
    whose = f"the runtimes of uid {uid}" if uid != MACHINE else "the machine's runtimes"
    for problem, count in problems.items():
        complain(f"{plural(count, 'container')} of {whose} left without a name: {problem}")
    return answers


def _sockets_of(uid: int) -> dict[str, str]:
    if uid != MACHINE:
        return {path.format(uid=uid): runtime for path, runtime in USER_SOCKETS.items()}
    return {os.path.realpath(path): runtime for path, runtime in MACHINE_SOCKETS.items()}  # several may be one


def _order(sockets: dict[str, str], running: Running | None) -> list[str]:
    """The paths, first those of the runtime that the cgroup names: others may hang."""
    return sorted(sockets, key=lambda path: running is None or sockets[path] != running.runtime)


def _inspect(paths: list[str], container: str, label: str, seconds: float) -> list[Any]:
    """Ask the sockets one after the other: the path of the first that knows the container, what it tells, a problem.

    For a child: as root it connects, and reads as nobody.
    """
    started = time.monotonic()
    opened, problem = [], ""
    for path in paths:
        try:
            opened.append((path, ContainerSocket(path, seconds)))
        except FileNotFoundError:
            continue
        except NoAnswer as error:
            problem = f"{path}: {error}"
    if os.geteuid() == 0:
        become(*NOBODY)
    for number, (path, one) in enumerate(opened, 1):
        try:
            # One that hangs leaves the others their share of the time.
            told = one.inspect(container, label, started + seconds * number / len(opened))
        except NoAnswer as error:
            problem = f"{path}: {error}"
            continue
        if told:
            return [path, told, ""]
    return ["", None, problem]


def _understand(answer: Answer) -> tuple[str, list[Any] | None, str]:
    """The answer of a child, which is trusted no more than the user that it has become."""
    value = answer.value
    if answer.problem or not isinstance(value, list) or len(value) != 3:
        return "", None, answer.problem or "nonsense"
    path, told, problem = value
    is_told = isinstance(told, list) and len(told) == 4 and isinstance(told[3], list)
    return str(path), told if is_told else None, clean_text(problem) or ""


def _describe(told: list[Any] | None, runtime: str, running: Running | None) -> Description | None:
    if told is None:
        return None
    name, image, label, sources = told
    name = clean_text(name.removeprefix("/")) if isinstance(name, str) else None
    if name is None:
        return None
    if running and running.runtime != "container":
        runtime = running.runtime
    paths = [path for path in sources if isinstance(path, str) and path.startswith("/") and len(path) <= LONGEST_PATH]
    return Description(runtime, name, clean_text(image), clean_text(label), paths)
