"""Check whether the names of containers are known, and whether somebody takes the sampler's notes that ask for them."""

from __future__ import annotations

import os
import time

from gua_report.doctor.findings import COMMENT, OK, Finding, duration, ok, plural, shell, warning
from gua_sample.containers import FILE_NAME, read_containers
from gua_sample.errors import StoreError
from gua_sample.service import WANTED

CONTAINERS = "containers"
UNIT = "gua-containers.path"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
RUN_FOLDER = "/run/gua"
# The service is started at most once a minute, and takes half a minute at most.
TAKEN_WITHIN_MS = 120_000


def check_containers(data_dir: str, run_folder: str = RUN_FOLDER) -> list[Finding]:
    """Findings about names of containers; none where the sampler has met no container."""
    try:
        known = read_containers(data_dir)
    except StoreError as problem:
        return [warning(CONTAINERS, str(problem), shell("ls", "-la", os.path.join(data_dir, FILE_NAME)))]
    findings = []
    if known.containers or known.asked_ms:
        unknown = f", {len(known.asked_ms)} that nobody knows" if known.asked_ms else ""
        findings.append(ok(CONTAINERS, f"{plural(len(known.containers), 'name')} known{unknown}"))
    waits_ms = _find_waiting_ms(os.path.join(run_folder, WANTED))
    if waits_ms is None or waits_ms < TAKEN_WITHIN_MS:
        return findings
    if any(os.path.exists(os.path.join(folder, UNIT)) for folder in UNIT_FOLDERS):
        text = f"names were asked for {duration(waits_ms)} ago, and nobody has looked: {UNIT} does not work"
        restart = f"sudo systemctl restart {UNIT}{COMMENT}and see journalctl -u gua-containers"
        return [*findings, warning(CONTAINERS, text, restart)]
    text = "some are on cards, and are shown by their ids: CONTAINERS=yes has their names looked up"
    return [*findings, Finding(CONTAINERS, OK, text, f"sudo make install CONTAINERS=yes{COMMENT}if wanted")]


def _find_waiting_ms(path: str) -> float | None:
    """How long a note has been waiting; None if there is none."""
    try:
        return (time.time() - os.lstat(path).st_mtime) * 1000
    except OSError:
        return None
