"""Who is on a card, against who reserved it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.live.cards_now import CardSeen
from gua_report.live.validation import Validation, check
from gua_report.reservations.reservation import ROUNDED_MS, Reservation, _overlaps
from gua_sample.policy import ACTIVE
from tests.bookings import card, configured, holder
from tests.lab import MONDAY_MS
from tests.machine import within

FREE = card()
INSTANCE = card(0, uuid="MIG-0", parent="GPU-0")


def checked(folder: Path, cards: list[CardSeen], *rows: str) -> tuple[list[Validation], list[str]]:
    """What is said of each card, and the complaints."""
    lines: list[str] = []
    found = check(cards, configured(folder, *rows), MONDAY_MS, lines.append)
    return [found[seen.card.facts.uuid] for seen in cards], lines


def test_no_name_steers_a_terminal(tmp_path: Path) -> None:
    cards = [card(0, holder("\x1b]0;me", "a\nb\x07"), state=ACTIVE), card(1)]
    found, lines = checked(tmp_path, cards, "0,\x1b[31mred,2026-01-01,,\x1b[0m", "1,\x1b[31mred,2026-01-01,,")
    assert found[0].text == (
        r"in use WITHOUT RESERVATION by \x1b]0;me: PID 1 (a\nb\x07) 5,000 MiB; reserved by \x1b[31mred"
    )
    assert lines
    assert all(line.isprintable() for line in [*lines, found[1].text])


def test_a_reservation_by_the_uuid_of_a_card_covers_its_mig_instances(tmp_path: Path) -> None:
    used = card(0, holder("root"), state=ACTIVE, uuid="MIG-1", parent="GPU-0")
    other = card(1, uuid="MIG-2", parent="GPU-1")
    found, lines = checked(tmp_path, [used, INSTANCE, other], "GPU-0,root,2026-01-01,,")
    assert ([one.kind for one in found], lines) == (["confirmed", "unused", "available"], [])


@pytest.mark.parametrize(
    ("seen", "row", "kind", "text"),
    [
        (INSTANCE, "GPU-0,root,tomorrow,,", "unknown", "unknown: not in use, but reservations can't be read"),
        (
            FREE._replace(state="unpartitioned"),
            "0,root,2026-01-01,,",
            "unknown",
            "unpartitioned: nothing can use it until an instance is made; reserved by root",
        ),
    ],
)
def test_what_is_not_known_is_not_available(tmp_path: Path, seen: CardSeen, row: str, kind: str, text: str) -> None:
    (found,), _ = checked(tmp_path, [seen], row)
    assert (found.kind, found.text) == (kind, text)


def test_many_overlaps_take_few_lines(tmp_path: Path) -> None:
    rows = [row for day in range(1, 6) for row in ("0,daemon,2026-01-01,,", f"0,nobody,2026-01-0{day},,")]
    _, lines = checked(tmp_path, [FREE], *rows)
    assert (len(lines), lines[-1]) == (6, "4 more reservations overlap")
    with within(20):
        assert len(checked(tmp_path, [FREE], *rows[:2] * 1500)[1]) == 6


def test_a_card_with_too_many_digits_does_not_exist(tmp_path: Path) -> None:
    (found,), lines = checked(tmp_path, [FREE], f"{'9' * 5000},root,2026-01-01,,")
    assert (found.kind, len(lines)) == ("available", 1)


def test_one_after_the_other_is_no_overlap_though_the_second_began_within_the_second(tmp_path: Path) -> None:
    rows = ["0,daemon,2026-11-16,2026-11-17T12:00:00.9,", "0,nobody,2026-11-17T12:00:00,2026-11-18,"]
    assert checked(tmp_path, [FREE], *rows)[1] == []
    assert len(checked(tmp_path, [FREE], *rows, "0,daemon,2026-11-17T13:00,,")[1]) == 1


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
