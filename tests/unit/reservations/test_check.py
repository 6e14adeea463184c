"""Who is on a card, against who reserved it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gua_report.config import Reservations
from gua_report.reservations.cards import CardNow, Holder
from gua_report.reservations.check import check
from gua_sample.policy import ACTIVE
from tests.bookings import HEADER
from tests.lab import CONFIG, MONDAY_MS


def test_no_name_steers_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}0,\x1b[31mred,2026-01-01,,\x1b[0m\n1,\x1b[31mred,2026-01-01,,\n", encoding="utf-8")
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    evil = Holder("\x1b]0;me", 1, "a\nb\x07", 5000.0)
    cards = [CardNow(0, "GPU-0", [evil], ACTIVE, None), CardNow(1, "GPU-1", [], "truly-idle", None)]
    lines: list[str] = []
    found = check(cards, config, MONDAY_MS, lines.append)
    assert all(one.text.isprintable() for one in found.values())
    assert found["GPU-0"].text == (
        r"in use WITHOUT RESERVATION by \x1b]0;me: PID 1 (a\nb\x07) 5,000 MiB; reserved by \x1b[31mred"
    )
    assert lines
    assert all(line.isprintable() for line in lines)


def test_a_reservation_by_the_uuid_of_a_card_covers_its_mig_instances(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}GPU-0,root,2026-01-01,,\n")
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    used = CardNow(0, "MIG-0", [Holder("root", 1, "python", 5000.0)], ACTIVE, None, parent_uuid="GPU-0")
    unused = CardNow(0, "MIG-1", [], "truly-idle", None, parent_uuid="GPU-0")
    other = CardNow(1, "MIG-2", [], "truly-idle", None, parent_uuid="GPU-1")
    lines: list[str] = []
    found = check([used, unused, other], config, MONDAY_MS, lines.append)
    assert [found[uuid].kind for uuid in ("MIG-0", "MIG-1", "MIG-2")] == ["confirmed", "unused", "available"]
    assert lines == []


def test_an_entry_that_makes_no_sense_for_a_card_leaves_its_mig_instances_unknown(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}GPU-0,root,tomorrow,,\n")
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    instance = CardNow(0, "MIG-0", [], "truly-idle", None, parent_uuid="GPU-0")
    found = check([instance], config, MONDAY_MS, lambda line: None)
    assert found["MIG-0"].text == "unknown: not in use, but reservations can't be read"


def test_a_card_that_nothing_can_use_is_not_available(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}0,root,2026-01-01,,\n")
    config = CONFIG._replace(reservations=Reservations(file=str(path)))
    card = CardNow(0, "GPU-0", [], "unpartitioned", None)
    (found,) = check([card], config, MONDAY_MS, lambda line: None).values()
    assert found.kind == "unknown"
    assert found.text == "unpartitioned: nothing can use it until an instance is made; reserved by root"


def test_it_is_checked_without_pandas(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEADER)
    code = (
        "import sys; from gua_report.reservations.check import check; from gua_report.reservations.cards import *;"
        "from gua_report.config import *; from gua_sample.policy import DEFAULT;"
        f"config = Config(DEFAULT, None, None, '', {{}}, reservations=Reservations({str(path)!r}));"
        "print(check([CardNow(0, 'GPU-0', [], 'truly-idle', None)], config, 1, print)); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "text='available'" in done.stdout
    assert {"pandas", "numpy", "ssl"} & set(done.stdout.split()) == set()
