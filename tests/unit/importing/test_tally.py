"""What gua import says that it took and left out."""

from __future__ import annotations

import pytest

from gua_report.commands import import_
from tests.gpu_usage_audit import NOON_MS, PeerDatabase, Seen, times
from tests.import_target import Target


def test_the_text_fits_a_mail_and_says_it_all(
    new: PeerDatabase, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    new.add([*times(NOON_MS, 3), "2999-01-01T00:00:00+00:00", "soon"], Seen(50, ((1, 500),)))
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 0
    text = capsys.readouterr().out
    assert "3 ticks of 1 day (2026-10-05 12:00:00 UTC to 2026-10-05" in text
    assert "left out   1 tick of the future: 2999-01-01 00:00:00 UTC\n" in text
    assert "left out   1 row whose time can't be read: soon\n" in text
    words = [line for line in text.splitlines() if str(target.folder) not in line and str(new.path) not in line]
    assert max(map(len, words)) <= 78
