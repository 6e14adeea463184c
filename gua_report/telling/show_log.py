"""Show who was told when, or what the hook was run for."""

from __future__ import annotations

import json
from datetime import tzinfo

from gua_report.console.spelling import first_of
from gua_report.telling.log import BEGUN, DONE, UNSURE, Act, Read
from gua_report.window import show
from gua_sample.processes import printable

SCHEMA_VERSION = 1
SHOWN_PIDS = 3
OUTCOMES = {BEGUN: "interrupted, so it may have been done", UNSURE: "not known whether it was done"}


def show_log(found: Read, zone: tzinfo, as_json: bool) -> str:
    """The log, oldest first, as lines for people or as JSON for programs."""
    if as_json:
        acts = [{**act._asdict(), "episodes": [one._asdict() for one in act.episodes]} for act in found.acts]
        document = {"schema_version": SCHEMA_VERSION, "acts": acts, "problems": found.problems}
        return json.dumps(document, indent=2)
    lines = [printable(_spell(act, zone)) for act in found.acts]
    return "\n".join([*lines, *(f"problem: {printable(one)}" for one in found.problems)]) or "nothing yet"


def _spell(act: Act, zone: tzinfo) -> str:
    pids = first_of(list(dict.fromkeys(str(one.pid) for one in act.episodes)), SHOWN_PIDS)
    to = f" <{act.to}>" if act.to else ""
    what = OUTCOMES.get(act.outcome, act.outcome) + (f": {act.text}" if act.text else "")
    trial = "trial, " if act.is_trial else ""
    outcome = "" if act.outcome == DONE and not act.text else f", {what}"
    return f"{show(act.ts_ms, zone)}  {trial}{act.who}{to}, pid {pids or '-'}{outcome}"
