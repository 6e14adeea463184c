"""Text in columns of a terminal, where some characters are wide and colours take no room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.console import terminal
from gua_report.console.fitting import columns, fit, join, wrap

# Some that take one column, some that take two, and blanks to break lines at.
TEXT = st.text("ab- é小明ｗ", max_size=60)


def test_wide_characters_take_two_columns_and_colours_none() -> None:
    assert [columns(text) for text in ("abc", "é", "小明", "\x1b[33mab\x1b[0m", "\x1b[1m小\x1b[0m")] == [3, 1, 4, 2, 2]


def test_what_does_not_fit_is_cut_with_an_ellipsis() -> None:
    assert fit("python3", 7) == "python3"
    assert fit("python3", 5) == "pyth…"
    assert fit("python3", 5, ascii_only=True) == "py..."
    assert fit("小明小明", 6) == "小明…"
    assert fit("\x1b[33mpython3\x1b[0m", 5) == "pyth…"
    assert fit("A100-SXM4-80GB MIG 3g.20gb", 14, keep_end=True) == "A100-… 3g.20gb"


@given(TEXT, st.integers(1, 30), st.booleans(), st.booleans())
def test_nothing_is_longer_than_the_room_there_is(text: str, size: int, ascii_only: bool, keep_end: bool) -> None:
    assert columns(fit(text, size, ascii_only, keep_end)) <= size


@given(TEXT, st.integers(3, 30))
def test_wrapping_loses_nothing_but_blanks(text: str, size: int) -> None:
    lines = wrap(text, size)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(columns(line) <= size for line in lines)


def test_cells_are_aligned_by_what_is_seen() -> None:
    assert join(["小明", "1"], [6, 3], [False, True]) == "小明      1"
    assert join(["\x1b[33mab\x1b[0m", "x"], [4, 2], [False, False]) == "\x1b[33mab\x1b[0m    x"


def test_streams_that_are_closed_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert not terminal.use_color()
    assert terminal.progress_bar() is None
