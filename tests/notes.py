"""People's notes: files in a spool, as `gua note` writes them or as somebody else might."""

import json
import os
from pathlib import Path
from typing import Any

from gua_sample.notes import MODE
from tests.lab import DAY_MS, HOUR_MS

REASON = "serving the demo"


def make_spool(folder: Path, mode: int = MODE) -> Path:
    """A spool that belongs to whoever runs the tests."""
    path = folder / "notes"
    path.mkdir()
    path.chmod(mode)
    return path


def content(start_ms: int, until_ms: int, **more: Any) -> dict[str, Any]:
    """What is in a note; about any card that is called GPU-0, unless it says something else."""
    about = more if more.keys() & {"identity", "gpu_uuids", "processes"} else {"gpu_uuids": ["GPU-0"], **more}
    return {"from_ms": start_ms, "until_ms": until_ms, "reason": REASON, **about}


def put(spool: Path, name: str, what: dict[str, Any] | bytes, uid: int | None = None) -> Path:
    """Put a file into the spool, and give it to that user."""
    path = spool / name
    path.write_bytes(what if isinstance(what, bytes) else json.dumps(what).encode())
    path.chmod(0o644)
    if uid is not None:
        os.chown(path, uid, uid)
    return path


def today(path: Path) -> dict[str, Any]:
    """A note from the last change of a file in the spool on, for a day."""
    changed_ms = path.stat().st_ctime_ns // 1_000_000
    return content(changed_ms - HOUR_MS, changed_ms + DAY_MS)
