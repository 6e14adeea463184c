"""What gua doctor prints."""

from __future__ import annotations

import pytest

from gua_report.commands import doctor
from gua_report.doctor.findings import Finding, error, ok, shell, warning


def test_every_line_fits_and_commands_can_be_pasted() -> None:
    path = "/srv/50% #1? '/samples/2026-11-16.sqlite"
    remedy = (
        f"{shell('sqlite3', '-readonly', path, '.recover')} | sqlite3 -safe recovered.sqlite; sudo {shell('rm', path)}"
    )
    text = doctor.to_text(
        [
            error("partitions", f"{path} " * 5 + "x" * 200, remedy),
            warning(
                "processes", "short", "sudo systemctl edit gua-sample   # under [Service]: SupplementaryGroups=proc"
            ),
            ok("newest tick", "now"),
        ]
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 78
    start = next(number for number, line in enumerate(lines) if "-> sqlite3" in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("!"))
    pasted = "\n".join(line.replace("->", "  ", 1) for line in lines[start:end])
    assert " ".join(pasted.replace("\\\n", " ").split()) == " ".join(remedy.split())
    assert lines[end + 1].strip() == "-> sudo systemctl edit gua-sample"
    assert lines[end + 2].strip() == "# under [Service]: SupplementaryGroups=proc"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([ok("newest tick", "12 s ago")], "all is well: newest tick 12 s ago"),
        ([ok("newest tick", "x"), warning("a", "x")], "1 warning: sampling works"),
        ([warning("newest tick", "x"), warning("a", "x")], "2 warnings: nothing found that prevents sampling"),
        ([error("newest tick", "x"), warning("a", "x")], "1 error, 1 warning: sampling does not work"),
        ([error("newest tick", "x"), error("a", "x")], "2 errors: sampling does not work"),
    ],
)
def test_the_last_line_sums_up(findings: list[Finding], expected: str) -> None:
    assert doctor.to_text(findings).splitlines()[-1] == expected
