"""JSON for programs, one of the two public interfaces: docs/ describes it. Lists are complete, whatever --top says."""

import io
import json

from gua_report.render import DEFAULTS, Options, sections
from gua_report.render.values import clean, iso, value
from gua_report.summary.report import Report
from gua_report.window import Window

SCHEMA_VERSION = 1


def render(report: Report, options: Options = DEFAULTS) -> str:
    """The document: the frame of every report and the requested sections; `attention` only if there is any."""
    contents = {
        kind.name: kind.document(report) if kind.document else sections.table_of(kind, report)[1]
        for kind in sections.chosen(options)
    }
    seen_ms = report.newest_failed.seen_ms if report.newest_failed else report.newest_ms
    group_problems = report.memberships.problems if report.memberships else []
    document = {
        "schema_version": SCHEMA_VERSION,
        **({"attention": list(options.attention)} if options.attention else {}),
        **_selection(report),
        **_week(report),
        "host": None if report.fleet else clean(report.host),
        **_fleet(report),
        "drivers": [clean(version) for version in report.driver_versions],
        "window": _window(report.window, report.timezone),
        "requested_window": _window(report.requested, report.timezone),
        "newest_tick": iso(report.newest_ms, report.window.zone),
        "newest_tick_error": clean(report.newest_failed.error) if report.newest_failed else None,
        "newest_tick_with_cards": None if seen_ms is None else iso(seen_ms, report.window.zone),
        "sources": {
            "from_ticks_seconds": value("seconds", report.from_ticks_seconds),
            "from_rollups_seconds": value("seconds", report.from_rollups_seconds),
        },
        "policy": report.policy._asdict(),
        **{name: content for name, content in contents.items() if content is not None},
        "warnings": [clean(warning) for warning in [*report.warnings, *report.people_problems]],
        "notes": [clean(note) for note in [*report.notes, *group_problems]],
    }
    text = io.StringIO()  # json.dumps keeps all pieces until it joins them: of a thousand hosts that is 50 MB
    json.dump(document, text, indent=2, ensure_ascii=options.ascii, allow_nan=False)
    text.write("\n")
    return text.getvalue()


def _selection(report: Report) -> dict[str, object]:
    whose = report.selection
    if whose is None:
        return {}
    median = whose.median and {
        "people": whose.median.people,
        "idle_held_gpu_hours": value("gpu_hours", whose.median.idle_held_gpu_hours),
        "idle_held_share": value("share", whose.median.idle_held_share),
    }
    kind = "group" if whose.is_group else "person"
    return {"selection": {"kind": kind, "name": clean(whose.name), "median": median}}


def _fleet(report: Report) -> dict[str, object]:
    fleet = report.fleet
    if fleet is None:
        return {}
    missing, late = ([clean(host) for host in hosts] for hosts in (fleet.missing, fleet.late))
    hosts = {"expected": fleet.expected, "missing": missing, "late": late, "complete": fleet.is_complete}
    return {"fleet": {"folder": clean(fleet.folder), **hosts}}


def _week(report: Report) -> dict[str, object]:
    week, zone = report.week, report.window.zone
    if week is None:
        return {}
    share = value("share", week.observed_share)
    return {"week": {"from": iso(week.start_ms, zone), "to": iso(week.end_ms, zone), "observed_share": share}}


def _window(window: Window, timezone: str) -> dict[str, str]:
    start, end = iso(window.start_ms, window.zone), iso(window.end_ms, window.zone)
    return {"from": start, "to": end, "timezone": clean(timezone)}
