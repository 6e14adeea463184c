"""Findings, in words that can be read and commands that can be typed."""

from __future__ import annotations

from gua_report.doctor.findings import as_root, duration, error, shell, size


def test_the_command_for_root_names_the_folder_unless_root_would_find_it() -> None:
    assert as_root("/var/lib/gua") == "sudo gua doctor"
    assert as_root("/srv/my gua") == "sudo gua doctor --data-dir '/srv/my gua'"


def test_findings_can_not_steer_a_terminal() -> None:
    found = error("x", "a\x1b[31mb\nc", shell("rm", "a\x1b[31m b"))
    assert (found.text, found.remedy) == (r"a\x1b[31mb\nc", r"rm 'a\x1b[31m b'")


def test_sizes_and_durations_are_spelled_for_people() -> None:
    assert [size(count) for count in (0, 1023, 1536, 20 * 1024**2, 3 * 1024**5)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "20 MiB",
        "3072 TiB",
    ]
    assert [duration(seconds * 1000) for seconds in (0, 119, 120, 7200, 172_800)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 days",
    ]
