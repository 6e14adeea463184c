"""Find the names and owners of containers: where they run, what their runtimes tell, who has an account here."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from gua_report.machine.child import ask
from gua_report.machine.container_runtimes import NOBODY, Complain, Description, ask_runtimes
from gua_report.machine.pod_names import find_pod_names
from gua_report.machine.running_containers import Running, find_running
from gua_report.people.container_owner import Traces, find_owners
from gua_sample.console import plural
from gua_sample.containers import POD_DIGITS, Container
from gua_sample.processes import ANSWER_SECONDS


class Names(NamedTuple):
    containers: dict[str, Container]  # by key
    unknown: list[str]  # keys that nobody knows now


def find_names(keys: list[str], label: str, now_ms: int, complain: Complain) -> Names:
    """The containers with these keys. Neither found nor unknown are those for which there was no time, or no right."""
    running = find_running(keys)
    found = _name_pods(keys, running, now_ms)
    rest = [(key, running.get(key)) for key in keys if key not in found and len(key) != POD_DIGITS]
    answers = ask_runtimes(rest, label, complain)
    told = {key: answer for key, answer in answers.items() if answer}
    found |= _add_owners(told, running, now_ms, complain)
    asked = {*answers, *(key for key in keys if len(key) == POD_DIGITS)}
    return Names(found, [key for key in keys if key in asked and key not in found])


def _name_pods(keys: list[str], running: Mapping[str, Running], now_ms: int) -> dict[str, Container]:
    """Pods, and containers in them, are named after the pod."""
    pods = {key: one.pod for key, one in running.items() if one.pod}
    pods |= {key: key for key in keys if len(key) == POD_DIGITS and (key not in running or running[key].pod)}
    names = find_pod_names(set(pods.values()))
    return {
        key: Container(running[key].runtime if key in running else "pod", names[pod], None, None, None, None, now_ms)
        for key, pod in pods.items()
        if pod in names
    }


def _add_owners(
    told: Mapping[str, Description], running: Mapping[str, Running], now_ms: int, complain: Complain
) -> dict[str, Container]:
    """The containers with their owners. Left out are those for which the directory of users did not answer."""
    traces = {key: Traces(_slice_of(running.get(key)), one.label, one.sources) for key, one in told.items()}
    traces = {key: one for key, one in traces.items() if any(value not in (None, []) for value in one)}
    owners, is_known = _ask_directory(traces) if traces else ({}, True)
    if not is_known:
        complain(f"the directory of users does not answer: {plural(len(traces), 'container')} left without a name")
    found = {}
    for key, one in told.items():
        if is_known or key not in traces:
            owner, how = owners.get(key, (None, None))
            slice_uid = _slice_of(running.get(key))
            found[key] = Container(one.runtime, one.name, one.image, owner, how, slice_uid, now_ms)
    return found


def _ask_directory(traces: Mapping[str, Traces]) -> tuple[dict[str, tuple[str, str]], bool]:
    """The owners, and whether the directory of users has answered. It may hang for minutes, so a child asks it."""
    answer = ask(partial(find_owners, list(traces.items())), ANSWER_SECONDS, NOBODY if os.geteuid() == 0 else None)
    owners = answer.value if isinstance(answer.value, dict) else {}
    return {key: (owner, how) for key, (owner, how) in owners.items()}, answer.problem is None


def _slice_of(running: Running | None) -> int | None:
    return running.slice_uids[0] if running and running.slice_uids else None
