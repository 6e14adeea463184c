"""The key by which a fleet tells machines apart."""

from pathlib import Path

import pytest

from gua_report.machine.machine_key import find_machine_key

ID = "8a1f0c6f5f0e4c8f9d3b7a1e2c4d5e6f"
KEY = "fa2279f0f305f29626b0b5f9c93abd0f"


def test_the_key_is_always_the_same_another_for_each_machine_and_does_not_show_the_id(tmp_path: Path) -> None:
    """It stands in files of many years: another key for the same machine would be another machine."""
    path = tmp_path / "machine-id"
    path.write_text(ID + "\n")
    assert find_machine_key(str(path)) == KEY
    assert not any(ID[start : start + 6] in KEY for start in range(len(ID) - 6))
    path.write_text(ID[::-1])
    assert find_machine_key(str(path)) not in (None, KEY)


@pytest.mark.parametrize("content", ["", "uninitialized\n", "0" * 32, ID + ID, "X" * 32, None])
def test_a_machine_without_an_id_has_no_key(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "machine-id").write_text(content)
    assert find_machine_key(str(tmp_path / "machine-id")) is None
