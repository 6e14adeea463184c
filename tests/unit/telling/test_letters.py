"""The text of a reminder: what it says, in whose words, and by which template."""

from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Mail, Remind
from gua_report.mailing.message import build_message, text_of
from gua_report.people.identities import Wanted
from gua_report.render import Options
from gua_report.render import text as report_text
from gua_report.summary.names import select
from gua_report.telling.letters import BUILT_IN, MOST_TOLD, Occasion, load_templates, parse_template, write_reminder
from gua_report.telling.watch import Episode, Held
from gua_sample.errors import UsageError
from gua_sample.held_file import ADVICE, spell_line
from tests.lab import CONFIG, HOUR_MS, NOON_MS, held, report_of
from tests.lab import tick as one_tick
from tests.telling import Desk, job

GERMAN = """\
Subject: $host: Erinnerung
Each: $gib GiB auf GPU $gpu seit $since (Prozess $pid, $command, Job $job)
Hallo $person,

$held

länger als $after, diese Woche $idle_held_hours Stunden. Kostet 5 $$.

$commands
"""


def held_by(who: str = "ada", pid: int = 4711, gpu: str = "1", **more: Any) -> Held:
    facts = {"slurm_job": None, "memory_mib": 20_480, "command": "jupyter-noteboo", **more}
    since_ms = NOON_MS - 2 * HOUR_MS - 900_000
    memory_mib, command, slurm_job = facts["memory_mib"], facts["command"], facts["slurm_job"]
    episode = Episode("boot-1", f"GPU-{gpu}", pid, 5)
    return Held(episode, who, gpu, "A100", since_ms, memory_mib, command, slurm_job, 1001, 1001, 1, who, True)


def occasion(*templates: str, **more: Any) -> Occasion:
    config = CONFIG._replace(mail=Mail(administrator="gpu-admins@lab.example"), remind=more.pop("remind", Remind()))
    words = [parse_template(text, "a template") for text in templates or (BUILT_IN,)]
    return Occasion(config, words, NOON_MS, timezone.utc, "2h", more.pop("hours", {"ada": 12.34}), **more)


def write(*held: Held, who: str = "ada", about: Occasion | None = None) -> tuple[str, str]:
    """The subject and the text, as they come out of the message."""
    letter = write_reminder(who, "ada@lab.example", held, about or occasion())
    message = build_message(letter, "gua@lab.example")
    return message["Subject"].partition(": ")[2], text_of(message)


def test_it_says_what_is_held_how_to_free_it_how_to_say_it_is_meant_the_rule_the_hours_and_whom_to_ask() -> None:
    subject, text = write(held_by())
    assert subject == "you hold 20.0 GiB on GPU 1 without work"
    assert text.startswith("Hello ada,\n")
    flat = " ".join(text.split())
    for said in (
        "You hold 20.0 GiB on GPU 1 without work since 09:45 (pid 4711, jupyter-noteboo).",
        "Done? End the process.",
        "shut its kernel down",
        "kill 4711",
        'gua note --until friday "what it is for"',
        "In the last 7 days you held cards without work for 12.3 GPU-hours in all.",
        "held for more than 2h on a card at less than 10 % utilization",
        "Questions? Ask gpu-admins@lab.example.",
    ):
        assert said in flat
    assert max(map(len, text.splitlines())) <= 72
    assert "\n\n\n" not in text
    assert "$" not in text


def test_several_are_added_up_in_the_subject_and_too_many_are_counted() -> None:
    several = (held_by(), held_by(pid=5, gpu="2", slurm_job="815"), held_by(pid=6, gpu="3", slurm_job="815"))
    subject, text = write(*several)
    assert subject == "you hold 60.0 GiB on 3 GPUs without work"
    assert "\n    kill 4711\n    scancel 815\n" in text
    assert "It is Slurm job 815." in " ".join(text.split())
    assert write(held_by(memory_mib=None))[0] == "you hold memory on GPU 1 without work"
    _, text = write(*(held_by(pid=pid) for pid in range(1, MOST_TOLD + 4)))
    assert text.count("You hold") == MOST_TOLD
    assert "and 3 more: gua-report --who me" in text


def test_hours_and_costs_are_told_where_they_are_known_and_further_sentences_to_whom_they_are_for() -> None:
    about = occasion(more={"ada": ["A sentence."], "bob": ["Another."]})
    priced = about._replace(config=about.config._replace(price_per_gpu_hour=2.5, currency="EUR"))
    told = write(held_by(), about=priced)[1]
    assert "At 2.5 EUR a GPU-hour, that is 30.85 EUR." in " ".join(told.split())
    assert ("\n\nA sentence.\n\n" in told, "Another" in told) == (True, False)
    little = write(held_by(), about=priced._replace(idle_held_hours={"ada": 0.04}))[1]
    assert "<0.1 GPU-hours in all. At 2.5 EUR a GPU-hour, that is 0.10 EUR." in " ".join(little.split())
    unknown: tuple[dict[str, float] | None, ...] = (None, {})
    for hours in unknown:
        text = write(held_by(), about=priced._replace(idle_held_hours=hours))[1]
        assert not [said for said in ("EUR", "GPU-hours", "\n\n\n") if said in text]
    energy = about.config._replace(price_per_kwh=0.3, currency="EUR")
    for text in (write(held_by())[1], write(held_by(), about=about._replace(config=energy))[1]):
        assert not [said for said in ("EUR", "a GPU-hour,") if said in text]


def test_a_second_template_is_a_second_language_in_the_same_mail() -> None:
    subject, text = write(held_by(), about=occasion(GERMAN, BUILT_IN))
    assert subject == "Erinnerung"
    german, english = text.split("\n* * *\n")
    assert "  20.0 GiB auf GPU 1 seit 09:45 (Prozess 4711, jupyter-noteboo, Job -)" in german
    assert "länger als 2h, diese Woche 12.3 Stunden. Kostet 5 $." in german
    assert "Hello ada" in english
    assert text.count("\n-- \n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Hello $persom: $held", "$persom has no meaning: expected one of $after, "),
        (b"5 $ for $held", "invalid placeholder in string: line 1, col 3: write $$ for a dollar sign"),
        (b"Hello", "the text has no $held, so it would not say what it is about"),
        (b"$$held", "the text has no $held"),
        (b"Subject: $x\n$held", "$x has no meaning"),
        (b"Each: $person\n$held", "in the line Each:: $person has no meaning: expected one of $command"),
        (b"l\xe4nger $held", "a text in UTF-8"),
        (b"$held" * 20_000, "at most 64 kB"),
        (None, "No such file"),
    ],
)
def test_a_bad_template_is_found(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "remind.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_templates((str(path),))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


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
    assert in_capitals in " ".join(report_text.render(own, Options(sections=("now",))).split())
    mail = " ".join(desk.remind().out.split())
    assert in_capitals.removesuffix(f" {ADVICE}") in mail
    assert ADVICE in mail
