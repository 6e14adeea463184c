"""Find the names and owners of containers: what the kubelet's logs are called, and what Docker and podman tell.

Whoever started a container chose most of what is told of it. All of it is checked, and nothing of it is looked at or
run. Environments and commands are not asked for.
"""

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from glob import glob
from typing import Any

from gua_report.machine.child import ask, ask_as_owner
from gua_report.machine.program import run_program
from gua_report.people.identities import Traces, find_owners
from gua_sample.console import plural
from gua_sample.containers import ID, RUNTIMES, UNNAMED, Container, clean_text, key_of
from gua_sample.errors import StoreError
from gua_sample.processes import ANSWER_SECONDS
from gua_sample.rights import NO_GROUP, others_on_the_way
from gua_sample.safe_file import read_regular
from gua_sample.service import MOST_WANTED

FOLDERS = "/usr/bin:/usr/local/bin"  # of programs
# Podman's service is asked, as Docker's is: without it, podman opens root's storage, with all of root's rights. By its
# URL: with few capabilities, podman takes root for a user, and looks for that user's own.
PROGRAMS = {
    "docker": ("docker", "container", "inspect"),
    "podman": ("podman", "--url", "unix:///run/podman/podman.sock", "container", "inspect"),
}
ENVIRONMENT = {"PATH": FOLDERS, "HOME": "/", "LC_ALL": "C"}
ASKED = (".ID", ".Name", ".Config.Image", ".Config.Labels", ".Mounts")
FORMAT = "[" + ",".join(f"{{{{json {field}}}}}" for field in ASKED) + "]"
QUESTION_SECONDS, ALL_SECONDS = 5.0, 20.0  # for one container, for all
MOST_BYTES = 1 << 20  # of an answer
MOST_NOTE_BYTES, TAKE_SECONDS = 64 << 10, 10.0  # of the note in which the sampler asks for names
LONGEST_REASON = 200
MOST_MOUNTS, LONGEST_PATH = 64, 4096
NOBODY = (NO_GROUP, NO_GROUP, ())
LOGS = "/var/log"
SPACE, POD = r"(?P<space>[a-z0-9][-a-z0-9]{0,62})", r"(?P<pod>[a-z0-9][-.a-z0-9]{0,252})"
NAMES = {
    # A folder for each pod. The uid of a static pod has no dashes.
    "pods": re.compile(rf"{SPACE}_{POD}_(?P<id>[0-9a-f]{{8}}(?:-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}})"),
    # A link for each container, whatever its runtime.
    "containers": re.compile(rf"{POD}_{SPACE}_[a-z0-9][-a-z0-9]*-(?P<id>[0-9a-f]{{64}})\.log"),
}

Complain = Callable[[str], None]
Described = tuple[Container, Traces]  # without the owner, whom the traces may tell


class NoAnswer(Exception):
    """A runtime that did not answer, or with nonsense; the text says why."""


def find_names(wanted: Mapping[str, str], label: str, now_ms: int, complain: Complain) -> dict[str, Container]:
    pods = find_pod_names(wanted)
    found = {key: Container(wanted[key], name, None, None, None, now_ms) for key, name in pods.items()}
    described = _ask_runtimes({key: runtime for key, runtime in wanted.items() if key not in pods}, label, complain)
    traces = {key: found for key, (_, found) in described.items() if any(found)}
    owners = _ask_directory(traces) if traces else {}
    if owners is None:
        complain(f"the directory of users does not answer: {plural(len(traces), 'container')} left without a name")
    for key, (container, _) in described.items():
        if owners is not None or key not in traces:
            owner, how = (owners or {}).get(key, (None, None))
            found[key] = container._replace(owner=owner, how=how, seen_ms=now_ms)
    return found


def _ask_directory(traces: Mapping[str, Traces]) -> dict[str, list[str]] | None:
    # In a child, as the directory may hang for minutes.
    answer = ask(partial(find_owners, traces), ANSWER_SECONDS, NOBODY if os.geteuid() == 0 else None)
    return answer.value if isinstance(answer.value, dict) else None


def _ask_runtimes(wanted: Mapping[str, str], label: str, complain: Complain) -> dict[str, Described]:
    ends = time.monotonic() + ALL_SECONDS
    found: dict[str, Described] = {}
    problems: Counter[str] = Counter()
    for key, runtime in wanted.items():
        for name in (name for name in PROGRAMS if runtime in (name, UNNAMED) and key not in found):
            try:
                if description := _inspect(name, key, label, min(QUESTION_SECONDS, ends - time.monotonic())):
                    found[key] = description
            except NoAnswer as error:
                problems[f"{name}: {error}"] += 1
    for problem, count in problems.items():
        complain(f"{plural(count, 'container')} left without a name: {problem}")
    return found


def _inspect(runtime: str, key: str, label: str, seconds: float) -> Described | None:
    program, *arguments = PROGRAMS[runtime]
    path = shutil.which(program, path=FOLDERS)
    if path is None:
        return None
    if os.geteuid() == 0 and (problem := others_on_the_way(path, 0)):
        raise NoAnswer(f"not run as root: {problem}")
    answer = _run([path, *arguments, "--format", FORMAT, key], seconds)
    return None if answer is None else _understand(answer, runtime, key, label)


def _run(command: list[str], seconds: float) -> bytes | None:
    if seconds <= 0:
        raise NoAnswer("there is no time left")
    try:
        status, content, errors = run_program(command, seconds, environment=ENVIRONMENT, most_bytes=MOST_BYTES)
    except OSError as error:
        raise NoAnswer(f"it can't be run ({error.strerror})") from error
    said = errors[: 4 * LONGEST_REASON].decode("utf-8", "replace").strip()
    if len(content) >= MOST_BYTES:
        raise NoAnswer(f"it answers with more than {MOST_BYTES >> 20} MiB")
    if status is None:
        raise NoAnswer("it does not answer in time")
    if status and "no such container" not in said.lower():
        raise NoAnswer(clean_text(said.partition("\n")[0][:LONGEST_REASON]) or f"it ends with status {status}")
    return None if status else content


def _understand(answer: bytes, runtime: str, key: str, label: str) -> Described | None:
    try:
        # Numbers are dropped: none is needed, and to read a very long one takes very long.
        told = json.loads(answer, parse_int=lambda _: None, parse_float=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("it answers with something that is no JSON") from error
    if not isinstance(told, list) or len(told) != len(ASKED):
        raise NoAnswer("it answers with nonsense")
    full_id, name, image, labels, mounts = told
    # A name may look like somebody else's id, and some runtimes prefer names.
    if not isinstance(full_id, str) or not full_id.startswith(key):
        raise NoAnswer("it answers for another container")
    name = clean_text(name.removeprefix("/")) if isinstance(name, str) else None
    labelled = clean_text(labels.get(label)) if isinstance(labels, dict) else None
    traces = Traces(labelled, _find_sources(mounts))
    return (Container(runtime, name, clean_text(image), None, None, 0), traces) if name else None


def _find_sources(mounts: Any) -> list[str]:
    listed = mounts[:MOST_MOUNTS] if isinstance(mounts, list) else []
    found = [one.get("Source") for one in listed if isinstance(one, dict)]
    return [path for path in found if isinstance(path, str) and path.startswith("/") and len(path) <= LONGEST_PATH]


def find_pod_names(keys: Collection[str], logs: str = LOGS) -> dict[str, str]:
    names = {}
    for folder, pattern in NAMES.items() if keys else ():
        for match in filter(None, map(pattern.fullmatch, glob("*", root_dir=os.path.join(logs, folder)))):
            names[key_of(match["id"].replace("-", ""))] = f"{match['space']}/{match['pod']}"
    return {key: names[key] for key in keys if key in names}


def take_note(path: str) -> dict[str, str]:
    """Remove the note, and return what it asks for: as the folder's owner, who could put a link there."""
    text = ask_as_owner(os.path.dirname(os.path.abspath(path)), lambda: _take(path), TAKE_SECONDS)
    lines = dict.fromkeys(text.split("\n")) if isinstance(text, str) else ()
    return dict(list(filter(None, map(parse_wanted, lines)))[:MOST_WANTED])


def parse_wanted(text: str) -> tuple[str, str] | None:
    runtime, _, ident = text.lower().rpartition(":")
    digits = ident.replace("-", "")
    return (key_of(digits), runtime if runtime in RUNTIMES else UNNAMED) if ID.fullmatch(digits) else None


def _take(path: str) -> str:
    text = ""
    with suppress(OSError, StoreError):  # what is no file of a sane size asks for nothing
        text = read_regular(path, MOST_NOTE_BYTES).decode("ascii", "replace")
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:  # as long as something lies there, the path unit starts gua-containers again
        raise StoreError(f"{path} can't be removed ({error.strerror}): remove it") from error
    return text
