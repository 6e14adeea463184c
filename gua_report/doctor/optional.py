"""Check what sampling works without: gua.toml, people's notes, and the names of containers. Nothing is changed."""

import os
import time
from itertools import chain

from gua_report.config import SYSTEM_CONFIG, Config, load_config
from gua_report.console.spelling import duration, first_of
from gua_report.doctor.findings import COMMENT, OK, Finding, named, ok, plural, shell, sudo, warning
from gua_report.doctor.user import ANSWER_SECONDS
from gua_report.machine.notes import find_clashes, list_notes
from gua_report.people.groups import find_group
from gua_sample.containers import FILE_NAME, read_containers
from gua_sample.errors import StoreError, UsageError
from gua_sample.processes import ask_directory, user_ids, user_names
from gua_sample.service import WANTED

CONFIG = "gua.toml"
MOST_NAMED = 5
NOTES = "notes"
CONTAINERS = "containers"
UNIT = "gua-containers.path"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
RUN_FOLDER = "/run/gua"
# The service is started at most once a minute, and takes half a minute at most.
TAKEN_WITHIN_MS = 120_000


def check_config(path: str | None) -> tuple[Config | None, list[Finding]]:
    name = path or SYSTEM_CONFIG
    try:
        config = load_config(path)
    except UsageError as problem:
        return None, [warning(CONFIG, f"{problem}; until then reports, status and rollups fail", _edit(name))]
    if path is None and not os.path.exists(name):
        return config, []
    clashes = [f"{who} ({config.people[who]})" for who in find_clashes(config.exempt, config.people)]
    text = "[exempt] has names for which [people] gives another, to be exempted instead: "
    findings = [warning(CONFIG, text + first_of(clashes, MOST_NAMED), _edit(name))] if clashes else []
    findings += _check_names(config, name)
    counted = ((config.people, "name"), (config.groups, "group"), (config.exempt, "exemption"))
    content = ", ".join(plural(len(found), noun) for found, noun in counted if found)
    return config, findings or [ok(CONFIG, f"{name}: {content}" if content else name)]


def _check_names(config: Config, path: str) -> list[Finding]:
    members = list(chain.from_iterable(config.groups.values()))
    people = {*config.people, *config.people.values()}
    # An identity such as unit:ollama.service, or a person whom [people] names, need not have an account.
    names = dict.fromkeys([*members, *config.exempt])
    users = [name for name in names if not name.startswith("@") and ":" not in name and name not in people]
    groups = [name[1:] for name in dict.fromkeys(members) if name.startswith("@")]
    ids = user_ids(users, ANSWER_SECONDS)
    known = ask_directory(groups, find_group, ANSWER_SECONDS)
    if len(ids) < len(users) or len(known) < len(groups):
        text = "the directory of users does not answer: whether the people in the groups exist is not known"
        return [warning(CONFIG, text, "getent passwd; systemctl status sssd nscd nslcd")]
    findings = []
    for kind, missing in (
        ("user", [name for name in users if ids[name] is None]),
        ("Unix group", [name for name in groups if known[name] is None]),
    ):
        if missing:
            text = f"no such {kind} on this machine, and nobody whom [people] names: {first_of(missing, MOST_NAMED)}"
            findings.append(warning(CONFIG, text, _edit(path)))
    return findings


def _edit(path: str) -> str:
    return shell("sudoedit", path)


def check_notes(now_ms: int, config: Config) -> list[Finding]:
    path = config.notes.spool
    try:
        entries = list_notes(path)
    except FileNotFoundError:
        return []
    except (OSError, StoreError) as problem:
        return [warning(NOTES, str(problem), shell("ls", "-ld", path))]
    in_force = sum(entry.note is not None and entry.note.is_in_force(now_ms) for entry in entries)
    bad = [entry for entry in entries if entry.note is None]
    names = user_names({entry.uid for entry in bad}) if bad else {}
    complaints = [
        warning(
            NOTES,
            f"{path}/{entry.name}, where a note of {names.get(entry.uid) or f'uid {entry.uid}'} would be, does not"
            f" count: {entry.problem}",
            sudo("rm", "-r", f"{path}/{entry.name}"),
        )
        for entry in bad
    ]
    good = ok(NOTES, f"{plural(in_force, 'note')} in force, in {path}")
    return [good, *named(complaints, "files that are no notes")]


def check_containers(data_dir: str, run_folder: str = RUN_FOLDER) -> list[Finding]:
    try:
        known = read_containers(data_dir)
    except StoreError as problem:
        return [warning(CONTAINERS, str(problem), shell("ls", "-la", os.path.join(data_dir, FILE_NAME)))]
    findings = []
    if known.containers:
        findings.append(ok(CONTAINERS, f"{plural(len(known.containers), 'name')} known"))
    try:
        waits_ms = (time.time() - os.lstat(os.path.join(run_folder, WANTED)).st_mtime) * 1000
    except OSError:  # the sampler asks for none
        return findings
    if waits_ms < TAKEN_WITHIN_MS:
        return findings
    if any(os.path.exists(os.path.join(folder, UNIT)) for folder in UNIT_FOLDERS):
        text = f"names were asked for {duration(waits_ms / 1000)} ago, and nobody has looked: {UNIT} does not work"
        restart = f"sudo systemctl restart {UNIT}{COMMENT}and see journalctl -u gua-containers"
        return [*findings, warning(CONTAINERS, text, restart)]
    text = "some are on cards, and are shown by their ids: CONTAINERS=yes has their names looked up"
    return [*findings, Finding(CONTAINERS, OK, text, f"sudo make install CONTAINERS=yes{COMMENT}if wanted")]
