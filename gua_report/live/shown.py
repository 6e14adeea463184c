"""The cards as a table for a terminal, a row for each and its processes below; or as JSON, as docs/status.md has it."""

import json
import os
import sys
import time
from datetime import datetime, tzinfo
from typing import Any

from gua_report.console import fitting, terminal
from gua_report.console.fitting import columns
from gua_report.console.spelling import MONTHS, WEEKDAYS, duration, gpu, to_ascii
from gua_report.limits import OVER, Week, spell_midnight
from gua_report.live.cards_now import CardSeen, ProcessNow, Scene, Since, UserNow
from gua_report.live.observer import Sampling, sampling_text
from gua_report.live.validation import Validation
from gua_report.machine.notes import MeantNow
from gua_report.people.containers import COLUMNS, tell
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD, STATES, STATUS_OK, UNPARTITIONED, Policy
from gua_sample.processes import printable

WIDTH = 78
WEEKDAYS_MS = 6 * DAY_MS  # from here on, a weekday could be taken for that of this week
NOT_KNOWN = "?"
NOT_TOLD = "-"  # the history does not tell
INDENT = " " * 5
SHOWN_PROCESSES = 2
LONGEST_MODEL = 26
LONGEST_COMMAND, SHORTEST_COMMAND = 15, 6
HEADER = ["gpu", "model", "state", "for", "GiB", "util", "who"]
OVER_LIMIT = "over limit"
RIGHT = ("for", "GiB", "util")
SCHEMA_VERSION = 1
# The attributes that have the names of their keys: of a process before what is told of time, and of a validation.
OF_PROCESS = ("pid", "start_time_ms", "user", "command", "type", "memory_mib", "sm_percent", "state")
CHECKED = ("kind", "text", "reserved_by")  # before its details


class Style:
    def __init__(self, ascii_only: bool = False, verbose: bool = False) -> None:
        self.ascii, self.verbose = ascii_only, verbose
        self.color = terminal.use_color()
        self.width = screen_width()

    def fit(self, text: str, size: int) -> str:
        """The text cut to `size` columns and cleaned, so that a name chosen by a user can't control the terminal."""
        return fitting.fit(self.clean(text), size, self.ascii)

    def clean(self, text: str) -> str:
        return to_ascii(printable(text)) if self.ascii else printable(text)

    def paint(self, text: str, code: str) -> str:
        return terminal.paint(text, code, self.color)


def screen_width() -> int:
    if terminal.is_terminal(sys.stdout):
        try:
            return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
        except OSError:
            pass
    return WIDTH


def render_text(scene: Scene, validations: dict[str, Validation], sampling: Sampling, style: Style) -> str:
    now_ms = scene.tick.ts_ms
    rows = [row_of(seen, now_ms, style) for seen in scene.cards]
    sizes = [max(columns(row[number]) for row in [HEADER, *rows]) for number in range(len(HEADER) - 1)]
    lines = [style.paint(title(scene), "1"), "", style.paint(join(HEADER, sizes, style, None), "2")]
    for seen, row in zip(scene.cards, rows, strict=True):
        room = style.width - sum(sizes) - 2 * len(sizes)
        inline = columns(row[-1]) <= room
        lines.append(join(row if inline else [*row[:-1], ""], sizes, style, seen.state))
        below = [] if inline else wrap([spell_user(user, now_ms) for user in seen.users], style)
        lines += below + details(seen, now_ms, style)
        if validation := validations.get(seen.card.facts.uuid):
            lines += fold(validation.text, style)
            lines += [INDENT + style.fit(told, style.width - len(INDENT)) for told in validation.reservations]
    if scene.week is not None:
        lines += ["", *(style.fit(line, style.width) for line in tell_week(scene.week))]
    last = style.clean(sampling_text(sampling, now_ms))
    return "\n".join([*lines, "", last if sampling.is_alive else style.paint(last, "33")])


def tell_week(week: Week) -> list[str]:
    lines = [f"Limits: GPU-hours of the 7 days up to {spell_midnight(week)}, closed days alone"]
    if not week.is_observed:
        lines.append(f"{INDENT}{week.observed_share:.0%} of these are known: who is not marked may be over a limit too")
    return lines


def title(scene: Scene) -> str:
    states = [seen.state for seen in scene.cards]
    counts = ", ".join(f"{states.count(state)} {state}" for state in (*STATES, UNPARTITIONED) if state in states)
    cards = "1 GPU" if len(states) == 1 else f"{len(states)} GPUs"
    when = time.strftime("%H:%M:%S %Z", time.localtime(scene.tick.ts_ms // 1000))
    return f"{cards} at {when}: {counts}"


def row_of(seen: CardSeen, now_ms: int, style: Style) -> list[str]:
    facts = seen.card.facts
    return [
        gpu(facts.gpu_index, facts.mig_index),
        style.fit((facts.name or NOT_KNOWN).removeprefix("NVIDIA "), LONGEST_MODEL),
        seen.state,
        style.clean(spell_since(seen.since, now_ms)),
        f"{gib(seen.card.memory_used_mib)}/{gib(facts.memory_total_mib)}",
        percent(seen.card.utilization_percent),
        style.clean(", ".join(spell_user(user, now_ms) for user in seen.users)),
    ]


def join(row: list[str], sizes: list[int], style: Style, state: str | None) -> str:
    painted = style.paint(state, terminal.STATE_COLORS[state]) if state else "state"
    cells = [painted if name == "state" else cell for name, cell in zip(HEADER, row, strict=True)]
    return fitting.join(cells, [*sizes, 0], [name in RIGHT for name in HEADER])


def details(seen: CardSeen, now_ms: int, style: Style) -> list[str]:
    lines = []
    if seen.state == UNPARTITIONED:
        lines += fold("MIG is on, without an instance: nothing can use it until one is made, see gua doctor", style)
    elif seen.card.facts.status != STATUS_OK:
        lines.append(INDENT + style.clean(f"{seen.card.facts.status}: see gua doctor"))
    count = len(seen.processes) if style.verbose else SHOWN_PROCESSES
    shown = seen.processes[:count]
    lines += [process_line(process, now_ms, style) for process in shown]
    if hidden := len(seen.processes) - len(shown):
        lines.append(f"{INDENT}and {hidden} more (-v)")
    return lines


def process_line(process: ProcessNow, now_ms: int, style: Style) -> str:
    """`pid command GiB SM user, job`. The command is the first to be shortened, the user the last."""
    is_idle = style.verbose and process.state == IDLE_HELD
    who = UserNow(process.user, is_idle, process.since, process.container, process.meant)
    job = "" if process.slurm_job is None else f", job {process.slurm_job}"
    user = style.clean(spell_user(who, now_ms) + job)
    before, after = f"{INDENT}{process.pid:>7}  ", f"  {gib(process.memory_mib):>5}  {percent(process.sm_percent):>4}  "
    room = style.width - len(before) - len(after) - columns(user)
    size = min(LONGEST_COMMAND, max(SHORTEST_COMMAND, room))
    command = style.fit(process.command, size)
    return style.fit(before + command + " " * (size - columns(command)) + after + user, style.width)


def wrap(items: list[str], style: Style) -> list[str]:
    lines = [INDENT]
    for number, item in enumerate(items):
        text = style.fit(item, style.width - len(INDENT) - 1) + ("," if number < len(items) - 1 else "")
        if lines[-1] != INDENT and columns(f"{lines[-1]} {text}") > style.width:
            lines.append(INDENT)
        lines[-1] += text if lines[-1] == INDENT else f" {text}"
    return lines


def fold(text: str, style: Style) -> list[str]:
    return [INDENT + line for line in fitting.wrap(style.clean(text), style.width - len(INDENT))]


def spell_user(user: UserNow, now_ms: int) -> str:
    """The name, and what is to be said of the user: `ada (over limit, idle 4m)`."""
    said = [OVER_LIMIT] if any(one.verdict == OVER for one in user.standings) else []
    if user.is_idle:
        idle = f"idle {spell_since(user.since, now_ms)}" if user.since else "idle"
        said.append(f"{idle}{spell_meant(user.meant, now_ms)}")
    return f"{user.who} ({', '.join(said)})" if said else user.who


def spell_meant(meant: MeantNow | None, now_ms: int) -> str:
    """`, meant until Fri 18:00: serving the demo`; nothing if it is not meant."""
    if meant is None:
        return ""
    until = f" until {spell_until(meant.until_ms, now_ms)}" if meant.until_ms is not None else ""
    return f", meant{until}: {meant.reason}"


def spell_until(until_ms: int, now_ms: int, zone: tzinfo | None = None) -> str:
    """A time to come in that zone, or this machine's, by its weekday or, if it is further away, by its date."""
    local = datetime.fromtimestamp(until_ms / 1000, zone)
    is_near = abs(until_ms - now_ms) < WEEKDAYS_MS
    day = WEEKDAYS[local.weekday()] if is_near else f"{local.day} {MONTHS[local.month - 1]}"
    return f"{day} {local:%H:%M}"


def spell_since(since: Since | None, now_ms: int) -> str:
    """The duration of a state, with `≥` if its beginning was not seen: it may be longer."""
    if since is None:
        return NOT_TOLD
    length = duration(max(0, now_ms - since.ts_ms) / 1000)
    return length if since.is_exact else f"≥ {length}"


def gib(mib: float | None) -> str:
    if mib is None:
        return NOT_KNOWN
    return "<0.1" if 0 < mib < 51 else f"{mib / 1024:.1f}"


def percent(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}%"


def render_json(scene: Scene, policy: Policy, validations: dict[str, Validation], sampling: Sampling) -> str:
    now_ms, week = scene.tick.ts_ms, scene.week
    limits = week and {"from_ms": week.start_ms, "until_ms": week.end_ms, "observed_share": week.observed_share}
    document = {
        "schema_version": SCHEMA_VERSION,
        "host": os.uname().nodename,
        "ts_ms": now_ms,
        "driver_version": scene.tick.driver_version,
        "policy": policy._asdict(),
        "sampling": {
            "timer": sampling.timer,
            "problem": sampling.problem,
            "newest_tick_ms": sampling.newest and sampling.newest.ts_ms,
            "newest_tick_error": sampling.newest and sampling.newest.error,
            "is_alive": sampling.is_alive,
        },
        "limits": limits,
        "gpus": [card(seen, validations.get(seen.card.facts.uuid), now_ms) for seen in scene.cards],
    }
    return json.dumps(document, indent=2)


def card(seen: CardSeen, validation: Validation | None, now_ms: int) -> dict[str, Any]:
    facts = seen.card.facts
    return {
        "uuid": facts.uuid,
        "index": facts.gpu_index,
        "mig_index": facts.mig_index,
        "parent_uuid": facts.parent_uuid,
        "name": facts.name,
        "status": facts.status,
        "state": seen.state,
        **since(seen.since, now_ms, ""),
        "utilization_percent": seen.card.utilization_percent,
        "utilization_source": seen.card.utilization_source,
        "memory_used_mib": seen.card.memory_used_mib,
        "memory_total_mib": facts.memory_total_mib,
        "users": [user(one, now_ms) for one in seen.users],
        "processes": [process(one, now_ms) for one in seen.processes],
        "validation": validation and {**{name: getattr(validation, name) for name in CHECKED}, **validation.details},
    }


def user(one: UserNow, now_ms: int) -> dict[str, Any]:
    return {
        "user": one.name,
        "is_idle": one.is_idle,
        **since(one.since, now_ms, "idle_"),
        **dict(zip(COLUMNS, tell(one.name, one.container), strict=True)),
        "meant": one.meant._asdict() if one.meant else None,
        "limits": [standing._asdict() for standing in one.standings],
    }


def process(one: ProcessNow, now_ms: int) -> dict[str, Any]:
    return {
        **{name: getattr(one, name) for name in OF_PROCESS},
        **since(one.since, now_ms, "idle_"),
        **dict(zip(COLUMNS, tell(one.user, one.container), strict=True)),
        "image": one.container.image if one.container else None,
        "slurm_job": one.slurm_job,
        "meant": one.meant._asdict() if one.meant else None,
    }


def since(told: Since | None, now_ms: int, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}since_ms": told.ts_ms if told else None,
        f"{prefix}seconds": max(0, now_ms - told.ts_ms) / 1000 if told else None,
        f"{prefix}since_is_exact": told.is_exact if told else None,
    }
