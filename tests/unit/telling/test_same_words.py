"""The line at login, the report of one's own and the reminder say the same in the same words."""

from __future__ import annotations

from gua_report.people.wanted import Wanted
from gua_report.render import Options, text
from gua_report.summary.selection import select
from gua_sample.held_file import spell_line
from gua_sample.held_words import ADVICE
from tests.lab import CONFIG, HOUR_MS, held, report_of
from tests.lab import tick as one_tick
from tests.telling import Desk, job


def test_login_report_and_reminder_say_the_same(desk: Desk) -> None:
    desk.write(held(job("alice", 1_200_641, command="jupyter-noteboo", cgroup="/x"), index=1))
    now = one_tick(desk.now_ms, *desk.gpus)
    (card,) = now.cards
    line = spell_line(1001, card, card.usages[0], now.processes[1_200_641], desk.now_ms - 3 * HOUR_MS, desk.now_ms)
    held_now = "you hold 20.0 GiB on GPU 1 without work since 09:00 (pid 1200641, jupyter-noteboo)."
    at_login = f"{held_now} Done? End the process."
    assert line.endswith(f" {at_login}")
    whole = report_of(desk.data_dir, desk.now_ms - 24 * HOUR_MS, desk.now_ms, config=CONFIG)
    own = select(whole, Wanted("alice", ("alice",), True))
    in_capitals = f"Y{at_login[1:]}"
    assert in_capitals in " ".join(text.render(own, Options(sections=("now",))).split())
    mail = " ".join(desk.remind().out.split())
    assert in_capitals.removesuffix(f" {ADVICE}") in mail
    assert ADVICE in mail
