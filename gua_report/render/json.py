"""JSON for programs, one of the two public interfaces: docs/ describes it. Lists are complete, whatever --top says."""

from __future__ import annotations

import json
from typing import Any

from gua_report.render import DEFAULTS, Options
from gua_report.render.values import (
    CAPACITY,
    GPU,
    HEATMAP,
    by_state,
    changes,
    currency,
    episodes,
    gaps,
    iso,
    records,
    value,
)
from gua_report.render.words import clean
from gua_report.summary.build import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS
from gua_report.summary.tables import IDENTITY_COLUMNS
from gua_report.window import Window
from gua_sample.policy import STATES

SCHEMA_VERSION = 1


def render(report: Report, options: Options = DEFAULTS) -> str:
    document = to_document(report, options.sections, options.attention)
    return json.dumps(document, indent=2, ensure_ascii=options.ascii, allow_nan=False) + "\n"


def to_document(report: Report, sections: tuple[str, ...], attention: tuple[str, ...]) -> dict[str, Any]:
    """The document: the frame of every report and the requested sections; `attention` only if there is any."""
    builders = {
        "headline": _headline,
        "capacity": _capacity,
        "gpus": _gpus,
        "identities": lambda report: records(report.identities, IDENTITY_COLUMNS),
        "heatmap": lambda report: records(report.heatmap, HEATMAP),
        "episodes": episodes,
        "coverage": _coverage,
    }
    return {
        "schema_version": SCHEMA_VERSION,
        **({"attention": list(attention)} if attention else {}),
        "host": clean(report.host),
        "drivers": [clean(version) for version in report.driver_versions],
        "window": _window(report.window, report.timezone),
        "requested_window": _window(report.requested, report.timezone),
        "newest_tick": iso(report.newest_ms, report.window),
        "sources": {
            "from_ticks_seconds": value("seconds", report.from_ticks_seconds),
            "from_rollups_seconds": value("seconds", report.from_rollups_seconds),
        },
        "policy": report.policy._asdict(),
        **{name: build(report) for name, build in builders.items() if name in sections},
        **(_reservations(report) if "reservations" in sections else {}),
        "warnings": [clean(warning) for warning in report.warnings],
        "notes": [clean(note) for note in report.notes],
    }


def _reservations(report: Report) -> dict[str, Any]:
    """The section of reservations; empty if none are configured."""
    if report.reservations is None:
        return {}
    problems = [clean(problem) for problem in report.reservation_problems]
    return {"reservations": {"hours": records(report.reservations, RESERVATION_COLUMNS), "problems": problems}}


def _window(window: Window, timezone: str) -> dict[str, str]:
    return {"from": iso(window.start_ms, window), "to": iso(window.end_ms, window), "timezone": clean(timezone)}


def _headline(report: Report) -> dict[str, Any]:
    return {"states": by_state(report.headline, ["share", "gpu_hours"]), "change": changes(report)}


def _capacity(report: Report) -> dict[str, Any]:
    return {
        "states": by_state(report.capacity, CAPACITY),
        "energy_known_share": value("share", report.energy_known_share),
        "currency": currency(report),
        "reclaim": records(report.reclaim, ["after_seconds", "freed_gpu_hours"]),
    }


def _gpus(report: Report) -> list[dict[str, Any]]:
    return [
        {**plain, "states": {state: _state_of(row, state) for state in STATES}}
        for plain, row in zip(records(report.gpus, GPU), report.gpus.to_dict("records"), strict=True)
    ]


def _state_of(row: dict[Any, Any], state: str) -> dict[str, Any]:
    prefix = state.replace("-", "_")
    return {name: value(name, row[f"{prefix}_{name}"]) for name in ("share", "gpu_hours")}


def _coverage(report: Report) -> dict[str, Any]:
    return {
        "share": value("share", report.coverage_share),
        "observed_seconds": value("seconds", report.observed_seconds),
        "gaps": gaps(report),
    }
