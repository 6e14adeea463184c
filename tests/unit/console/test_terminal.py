"""What is a terminal, and what is not."""

from __future__ import annotations

import pytest

from gua_report.console import terminal


def test_streams_that_are_closed_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert not terminal.use_color()
    assert terminal.progress_bar() is None
