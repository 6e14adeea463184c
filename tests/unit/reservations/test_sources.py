"""Reservations of one card at one time by several people."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gua_report.config import Reservations
from gua_report.reservations.cards import CardNow
from gua_report.reservations.check import check
from gua_report.reservations.reservation import Reservation
from gua_report.reservations.sources import ROUNDED_MS, _overlaps
from tests.bookings import HEADER
from tests.lab import CONFIG, MONDAY_MS


def test_many_overlaps_take_few_lines(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEADER + "".join(f"0,daemon,2026-01-01,,\n0,nobody,2026-01-0{day},,\n" for day in range(1, 6)))
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    lines: list[str] = []
    check([CardNow(0, "GPU-0", [], "truly-idle", None)], config, MONDAY_MS, lines.append)
    assert len(lines) == 6
    assert lines[-1] == "4 more reservations overlap"


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 20), st.integers(1, 9)), max_size=12),
)
def test_a_reservation_is_said_to_overlap_if_it_begins_while_another_person_has_the_card(
    rows: list[tuple[str, int, int]],
) -> None:
    own = [
        Reservation("0", user, start * 1000, (start + length) * 1000, "file", "", f"line {line}")
        for line, (user, start, length) in enumerate(rows)
    ]
    found = list(_overlaps(own, {"c": "b"}))  # c and b are one person
    in_order = sorted(own, key=lambda one: one.start_ms)
    who = [one.user.replace("c", "b") for one in in_order]
    expected = [
        one
        for position, one in enumerate(in_order)
        if any(
            who[before] != who[position] and min(in_order[before].end_ms, one.end_ms) - one.start_ms > ROUNDED_MS
            for before in range(position)
        )
    ]
    assert [later for _, later in found] == expected
    assert all(later.start_ms < earlier.end_ms for earlier, later in found)


def test_one_after_the_other_is_no_overlap_though_the_second_began_within_the_second(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    rows = "0,daemon,2026-11-16,2026-11-17T12:00:00.9,\n0,nobody,2026-11-17T12:00:00,{},\n"
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    for until, count in (("2026-11-18", 0), ("2026-11-18,\n0,daemon,2026-11-17T13:00,", 1)):
        path.write_text(HEADER + rows.format(until))
        lines: list[str] = []
        check([CardNow(0, "GPU-0", [], "truly-idle", None)], config, MONDAY_MS, lines.append)
        assert len(lines) == count
