"""A data folder to import into, and helpers that check the source and the result."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import import_
from gua_report.commands import report as report_cli
from gua_sample.partition_names import list_partitions
from tests.machine import query


class Target:
    """A data folder to import into."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.errors = ""

    def imports(self, source: Path, *options: str, status: int = 0) -> dict[str, Any]:
        """The JSON output of an import; the source must stay unchanged."""
        before = photograph(source)
        self._capsys.readouterr()
        found = import_.main([str(source), "--data-dir", str(self.folder), "--json", *options])
        said = self._capsys.readouterr()
        self.errors = said.err
        assert found == status, said
        assert photograph(source) == before
        document: dict[str, Any] = json.loads(said.out) if said.out else {}
        return document

    def rows(self, view: str) -> list[dict[str, Any]]:
        found = []
        for path in list_partitions(str(self.folder / "samples")):
            found += query(Path(path), f"SELECT * FROM {view} ORDER BY ts_ms")
        return found

    def report(self, start_ms: int, end_ms: int) -> dict[str, Any]:
        window = ["--from", iso(start_ms), "--to", iso(end_ms), "--tz", "UTC"]
        assert report_cli.main(["--data-dir", str(self.folder), "--format", "json", *window]) == 0
        document: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return document


def iso(ts_ms: int) -> str:
    return datetime.fromtimestamp(ts_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def photograph(path: Path) -> dict[str, Any]:
    """Time and content of each file in a folder; or of a file and its neighbours whose names begin like its own."""
    found = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in found if file.is_file()}


def left_out(document: dict[str, Any]) -> dict[str, int]:
    """The counts of skipped items by kind and reason."""
    return {f"{left['what']} {left['reason']}": left["count"] for left in document["left_out"]}
