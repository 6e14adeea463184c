"""Check gua.toml: whether it can be read, and whether the people and Unix groups in it exist."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Iterable
from itertools import chain

from gua_report.config import SYSTEM_CONFIG, Config, load_config
from gua_report.console.spelling import first_of
from gua_report.doctor.findings import Finding, ok, plural, shell, warning
from gua_report.doctor.user import ANSWER_SECONDS
from gua_report.machine.child import ask
from gua_sample.errors import UsageError
from gua_sample.notes import find_clashes

CONFIG = "gua.toml"
MOST_NAMED = 5


def check_config(path: str | None) -> tuple[Config | None, list[Finding]]:
    """The configuration, and findings about it; None if it can't be used. Without a path: the system's, if any.

    Sampling works without it, so nothing here is an error.
    """
    name = path or SYSTEM_CONFIG
    try:
        config = load_config(path)
    except UsageError as problem:
        return None, [warning(CONFIG, f"{problem}; until then reports, status and rollups fail", _edit(name))]
    if path is None and not os.path.exists(name):
        return config, []
    return config, [*_check_exempt(config, name), *_check_names(config, name)] or [
        ok(CONFIG, f"{name}{_content(config)}")
    ]


def _content(config: Config) -> str:
    counted = ((config.people, "name"), (config.groups, "group"), (config.exempt, "exemption"))
    named = [plural(len(found), noun) for found, noun in counted if found]
    return f": {', '.join(named)}" if named else ""


def _check_exempt(config: Config, path: str) -> list[Finding]:
    clashes = [f"{who} ({config.people[who]})" for who in find_clashes(config.exempt, config.people)]
    text = (
        f"[exempt] has names for which [people] gives another, to be exempted instead: {first_of(clashes, MOST_NAMED)}"
    )
    return [warning(CONFIG, text, _edit(path))] if clashes else []


def _check_names(config: Config, path: str) -> list[Finding]:
    members = list(chain.from_iterable(config.groups.values()))
    people = {*config.people, *config.people.values()}
    # An identity such as unit:ollama.service, or a person whom [people] names, need not have an account.
    users = [name for name in dict.fromkeys([*members, *config.exempt]) if _is_user(name) and name not in people]
    groups = [name[1:] for name in dict.fromkeys(members) if name.startswith("@")]
    answer = ask(lambda: [_find_missing(users, pwd.getpwnam), _find_missing(groups, grp.getgrnam)], ANSWER_SECONDS)
    if answer.problem:
        text = "the directory of users does not answer: whether the people in the groups exist is not known"
        return [warning(CONFIG, text, "getent passwd; systemctl status sssd nscd nslcd")]
    findings = []
    for kind, missing in zip(("user", "Unix group"), answer.value, strict=True):
        if missing:
            text = f"no such {kind} on this machine, and nobody whom [people] names: {first_of(missing, MOST_NAMED)}"
            findings.append(warning(CONFIG, text, _edit(path)))
    return findings


def _is_user(name: str) -> bool:
    return not name.startswith("@") and ":" not in name


def _find_missing(names: Iterable[str], look_up: Callable[[str], object]) -> list[str]:
    missing = []
    for name in names:
        try:
            look_up(name)
        except (KeyError, ValueError):  # ValueError: an impossible name
            missing.append(name)
    return missing


def _edit(path: str) -> str:
    return shell("sudoedit", path)
