"""Render the cards as one JSON object, for programs; docs/status.md describes it."""

import json
import os
from typing import Any

from gua_report.live.cards_now import CardSeen, ProcessNow, Scene, Since, UserNow
from gua_report.live.observer import Sampling
from gua_report.live.validation import Validation
from gua_report.people.containers import COLUMNS, tell
from gua_sample.policy import Policy

SCHEMA_VERSION = 1
# The attributes that have the names of their keys: of a process before what is told of time, and of a validation.
OF_PROCESS = ("pid", "start_time_ms", "user", "command", "type", "memory_mib", "sm_percent", "state")
CHECKED = ("kind", "text", "reserved_by")  # before its details


def render(scene: Scene, policy: Policy, validations: dict[str, Validation], sampling: Sampling) -> str:
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
