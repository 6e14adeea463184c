"""The nine rules of gua remind: who gets a mail, when, and what is written down about it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import smtplib
from concurrent.futures import ThreadPoolExecutor
from datetime import timezone
from zoneinfo import ZoneInfo

import pytest

from gua_report.commands import remind
from gua_report.config import Remind
from gua_report.telling import log, persons, watch
from gua_report.telling.reminders import MOST_REMINDERS, Before
from gua_report.telling.working_time import why_not_now
from gua_sample.partition_names import DAY_MS
from tests.json_keys import key_paths
from tests.lab import HOUR_MS, Gpu, busy, held, lost, write
from tests.lab import tick as one_tick
from tests.machine import one_line
from tests.mail_server import ELSEWHERE, mail_server
from tests.notes import content, put
from tests.redis_server import CERTIFICATE
from tests.repository import DOCS
from tests.telling import ADMINISTRATOR, CONFIG, TUESDAY_NOON_MS, Desk, is_private, job
from tests.verbs import run

ALICE = held(job("alice"))


# 1. It prints what it would send; only --send sends; --to sends everything to one.


def test_without_send_it_prints_the_mail_and_sends_and_writes_nothing(desk: Desk) -> None:
    desk.write(ALICE)
    done = desk.remind()
    assert (done.status, done.errors) == (0, "")
    assert "To: alice@lab.example\n" in done.out
    assert "  You hold 20.0 GiB on GPU 0 without work since 09:00 (pid 100, python).\n" in done.out
    assert done.out.splitlines()[-1] == "would send 1 (with --send)"
    assert desk.recipients() == []
    assert not (desk.data_dir / log.REMIND_LOG).exists()


def test_with_send_it_sends_and_says_so_in_one_line(desk: Desk) -> None:
    desk.write(ALICE)
    done = desk.remind("--send")
    assert done == (0, "sent 1\n", "")
    assert desk.recipients() == ["alice@lab.example"]


def test_with_to_everything_goes_to_one_and_nobody_counts_as_told(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("gdm", 300), index=2))
    assert desk.remind("--to", "me@lab.example").out.count("To: me@lab.example\n") == 3
    assert desk.recipients() == []
    assert desk.remind("--send", "--to", "me@lab.example").status == 0
    assert desk.recipients() == ["me@lab.example"] * 3
    assert desk.remind("--send").out.startswith("sent 3")
    assert desk.recipients()[3:] == ["alice@lab.example", "bob@lab.example", ADMINISTRATOR]


# 2. An episode that goes on, longer than `after`, seen again in a fresh look: same boot, pid and start time.


@pytest.mark.parametrize(("hours", "count"), [(1.9, 0), (2.1, 1)])
def test_what_is_held_for_less_than_configured_is_nobodys_business(desk: Desk, hours: float, count: int) -> None:
    desk.write(ALICE, hours=hours)
    assert len(json.loads(desk.remind("--json").out)["reminders"]) == count


def test_after_is_configured_or_given(desk: Desk) -> None:
    desk.write(ALICE, hours=1)
    assert desk.remind("--after", "30m").out.splitlines()[-1] == "would send 1 (with --send)"
    desk.configure('[remind]\nafter = "30m"')
    assert "held for more than 30m on a card" in desk.remind().out.replace("\n", " ")


@pytest.mark.parametrize(
    "now",
    [
        busy(job("alice")),
        held(job("alice", start_time_ms=6000)),
        held(job("alice", 101)),
        held(job("bob", 101)),
    ],
    ids=["it works again", "another process with the same pid", "another pid", "somebody else"],
)
def test_what_a_fresh_look_does_not_see_again_is_over(desk: Desk, now: Gpu) -> None:
    desk.write(ALICE)
    desk.gpus = (now,)
    assert desk.remind("--send").out == "sent 0\n"
    assert desk.recipients() == []


def test_what_was_before_a_reboot_is_over(desk: Desk) -> None:
    desk.write(ALICE)
    desk.boot = desk.boot._replace(id="boot-2")
    assert desk.remind("--send").out == "sent 0\n"


def test_a_process_that_has_ended_since_the_look_is_over(desk: Desk) -> None:
    """The sampler's facts stand in for what /proc hides from us; whether a process is still there, only /proc tells."""
    desk.write(ALICE)
    desk.gone = {100}
    done = desk.remind("--send")
    assert (done.out, desk.recipients()) == ("sent 0, held back 1 (it is over by now: alice)\n", [])


def test_a_mail_that_took_long_makes_it_look_again_before_the_next(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    monkeypatch.setattr(watch, "FRESH_SECONDS", -1.0)
    looks = []
    see = watch.see
    monkeypatch.setattr(watch, "see", lambda *some: looks.append(desk.now_ms) or see(*some))  # type: ignore[func-returns-value]
    assert desk.remind("--send").out == "sent 2\n"
    assert len(looks) == 3


def test_a_process_whose_start_is_not_known_may_be_another_one(desk: Desk) -> None:
    desk.write(held(job("alice", start_time_ms=None)))
    assert desk.remind("--send") == (0, "sent 0\n", "")


def test_just_before_a_mail_boot_pid_and_start_are_compared_again(desk: Desk) -> None:
    desk.write(ALICE)
    options = remind.build_parser().parse_args(
        ["--data-dir", str(desk.data_dir), "--config", str(desk.folder / "gua.toml")]
    )
    seen = watch.Watch(options, 2 * HOUR_MS)
    (one,) = seen.look().held
    assert seen.is_still_so(one)
    desk.gone = {100}
    assert not seen.is_still_so(one)
    desk.gone = set()
    desk.boot = desk.boot._replace(id="boot-2")
    assert not seen.is_still_so(one)


# 3. One mail a person and day, the same again after 7 days; written down before; no log, no mail; two runs send once.


def test_nobody_gets_two_mails_a_day(desk: Desk) -> None:
    desk.write(ALICE, held(job("alice", 200), index=1), hours=3)
    assert desk.remind("--send").out == "sent 1\n"
    desk.later(3, ALICE, busy(job("alice", 200), index=1))
    desk.later(3, ALICE, held(job("alice", 200), index=1))  # a new episode
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"
    assert desk.recipients() == ["alice@lab.example"]


def test_two_names_with_one_address_are_one_person(desk: Desk) -> None:
    desk.configure(mail=CONFIG + '[mail.addresses]\nbob = "alice@lab.example"\n')
    desk.write(ALICE, held(job("bob", 200), index=1))
    assert desk.remind("--send").out == "sent 1, held back 1 (told today: bob)\n"
    assert desk.remind("--send").out == "sent 0, held back 2 (told today: alice, bob)\n"


def test_the_same_episode_is_told_again_after_a_week_and_a_new_one_the_next_day(desk: Desk) -> None:
    desk.configure('[remind]\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]')
    desk.write(ALICE)
    assert desk.remind("--send").out == "sent 1\n"
    desk.later(24)
    assert desk.remind("--send").out == "sent 0, held back 1 (told within 7 days: alice)\n"
    desk.later(6 * 24 - 1)
    assert desk.remind("--send").out == "sent 0, held back 1 (told within 7 days: alice)\n"
    desk.later(2)
    assert desk.remind("--send").out == "sent 1\n"
    desk.later(1, busy(job("alice")))
    desk.later(23, ALICE)
    assert desk.remind("--send").out == "sent 1\n"


def test_a_clock_that_was_set_back_makes_nobody_untold(desk: Desk) -> None:
    desk.write(ALICE)
    assert desk.remind("--send").out == "sent 1\n"
    path = desk.data_dir / log.REMIND_LOG
    path.write_text(path.read_text().replace(str(TUESDAY_NOON_MS), str(TUESDAY_NOON_MS + 3 * DAY_MS)))
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"


def test_it_is_written_down_before_it_is_sent(desk: Desk) -> None:
    desk.write(ALICE)
    path = desk.data_dir / log.REMIND_LOG
    (desk.outbox / "sendmail").write_text(f'#!/bin/sh\ncp {path} "$0.log"\n')
    assert desk.remind("--send").status == 0
    (before,) = [json.loads(line) for line in (desk.outbox / "sendmail.log").read_text().splitlines()]
    episode = {"boot_id": "boot-1", "gpu_uuid": "GPU-0", "pid": 100, "start_time_ms": 5000}
    assert (before["who"], before["to"], before["outcome"]) == ("alice", "alice@lab.example", log.BEGUN)
    assert before["episodes"] == [episode]
    assert [line["outcome"] for line in desk.log()] == [log.BEGUN, log.DONE]
    assert is_private(path)


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "two links"])
def test_without_a_log_there_is_no_mail(desk: Desk, kind: str) -> None:
    desk.write(ALICE)
    path = desk.data_dir / log.REMIND_LOG
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(desk.folder / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.link(path, desk.folder / "second")
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert one_line(done.errors)
    assert str(path) in done.errors
    assert not (desk.folder / "elsewhere").exists()


def test_what_can_not_be_written_down_whole_is_not_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE)
    monkeypatch.setattr("gua_report.telling.log.os.fsync", _no_space)
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "No space left on device" in done.errors


def _no_space(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_two_runs_at_once_send_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE)
    monkeypatch.setattr(log, "WAIT_SECONDS", 0.05)
    with open(desk.data_dir / log.REMIND_LOG, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "is held by another run" in done.errors
    assert desk.remind("--send").out == "sent 1\n"


@pytest.mark.real
def test_of_two_runs_that_begin_together_one_waits_for_the_other(desk: Desk) -> None:
    desk.write(ALICE)
    script = (desk.outbox / "sendmail").read_text()
    (desk.outbox / "sendmail").write_text(script.replace("for to;", "sleep 1\nfor to;"))
    words = ("remind", "--send", "--data-dir", desk.data_dir, "--config", desk.folder / "gua.toml")
    with ThreadPoolExecutor() as threads:
        done = [future.result() for future in [threads.submit(run, *words) for _ in range(3)]]
    told_today = "sent 0, held back 1 (told today: alice)\n"
    assert sorted(one.stdout for one in done) == [told_today, told_today, "sent 1\n"]
    assert desk.recipients() == ["alice@lab.example"]


# 4. Nothing if the newest tick failed or is stale, with gaps, if the card is unknown or the history not readable.


def test_nobody_is_told_if_the_newest_tick_is_stale(desk: Desk) -> None:
    desk.write(ALICE)
    desk.now_ms += 12 * 60_000
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "nobody is told: the newest tick is 17m old: does the sampler run?" in done.errors


def test_nobody_is_told_if_the_newest_tick_failed(desk: Desk) -> None:
    desk.write(ALICE)
    write(desk.data_dir, [one_tick(desk.now_ms - 60_000, error="driver_not_loaded", interval_ms=300_000)])
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "nobody is told: the newest tick failed (driver_not_loaded)" in done.errors


@pytest.mark.parametrize(("day", "count"), [(21, 0), (22, 1)])
def test_nobody_is_told_if_less_than_nine_tenths_of_the_last_day_was_observed(
    desk: Desk, day: float, count: int
) -> None:
    desk.write(ALICE, day=day)
    done = desk.remind("--send")
    assert len(desk.recipients()) == count
    assert count or "nobody is told: 88% of the last day was observed, and 90% are needed" in done.errors


def test_gaps_count_too(desk: Desk) -> None:
    desk.write(ALICE, day=3)
    now_ms, desk.now_ms = desk.now_ms, desk.now_ms - 6 * HOUR_MS
    desk.write(ALICE, day=40)
    desk.now_ms = now_ms
    assert "88% of the last day was observed" in desk.remind("--send").errors


def test_a_card_that_is_unknown_tells_nothing_of_anybody(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    desk.gpus = (lost(), desk.gpus[1])
    done = desk.remind("--send")
    assert (done.out, desk.recipients()) == ("sent 1, not known of GPU 0\n", ["bob@lab.example"])


def test_who_idles_on_a_card_that_is_unknown_is_not_told(desk: Desk) -> None:
    """A process's own utilization may be known where the card's is not."""
    jobs = (job("alice", sm_percent=0), job("bob", 200, sm_percent=0))
    desk.write(Gpu(0, None, jobs))
    done = desk.remind("--send")
    assert (done.out, desk.recipients()) == ("sent 0, not known of GPU 0\n", [])


def test_nobody_is_told_if_a_day_of_the_history_can_not_be_read(desk: Desk) -> None:
    desk.write(ALICE)
    sorted((desk.data_dir / "samples").iterdir())[0].write_text("garbage, more than sixteen bytes of it")
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert "nobody is told: skipped: " in done.errors


def test_nobody_is_told_if_notes_can_not_be_read(desk: Desk) -> None:
    desk.write(ALICE)
    desk.spool.chmod(0o777)
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])


# 5. People only, by fact; others are summed up for the administrator.

NO_PEOPLE = {
    "root": job("root", 1),
    "gdm": job("gdm", 2),
    "nobody": job("nobody", 3),
    "deleted": job("deleted", 4),
    "docker:3f2a9c81d0b7": job("alice", 5, cgroup="/docker/3f2a9c81d0b7" + "0" * 52),
    "unit:ollama.service": job("root", 6, cgroup="/system.slice/ollama.service"),
    "slurm:4711": job("root", 7, cgroup="/slurm/uid_0/job_4711/step_0"),
    "uid:1001": job("alice", 8)._replace(user=None, uid=1001),
}


def test_what_is_no_person_is_summed_up_for_the_administrator(desk: Desk) -> None:
    desk.write(*(held(one, index=place) for place, one in enumerate(NO_PEOPLE.values())))
    done = desk.remind("--send")
    assert done.status == 0
    assert desk.recipients() == [ADMINISTRATOR]
    (mail,) = desk.mails()
    assert "No person is known to be behind these, so nobody was told." in mail
    summed_up = dict(re.findall(r"^  (\S+): 1 process, 20.0 GiB, GPU (\d)$", mail, re.MULTILINE))
    assert summed_up == {who: str(place) for place, who in enumerate(NO_PEOPLE)}
    desk.later(24)
    assert desk.remind("--send").out == "sent 0\n"  # the administrator, too, gets it once a week


def test_whom_the_administrator_names_needs_no_account_and_accounts_of_the_system_never_are_people(desk: Desk) -> None:
    desk.configure('[people]\n"uid:1001" = "Ada"\ngdm = "root"\n[mail.addresses]\nAda = "a@lab.example"')
    desk.write(held(job("alice")._replace(user=None, uid=1001)), held(job("gdm", 200), index=1))
    assert desk.remind("--send").out == "sent 2, no person 1 (root)\n"
    assert desk.recipients() == ["a@lab.example", ADMINISTRATOR]


def test_a_uid_or_a_container_is_no_person_even_if_the_administrator_calls_somebody_so(desk: Desk) -> None:
    names = ("uid:1001", "docker:3f2a9c81d0b7", "(unattributed)", "unknown")
    assert persons.find_persons(names, {f"x{name}": name for name in names}).names == set()


def test_nobody_is_a_person_while_the_directory_does_not_answer(desk: Desk) -> None:
    desk.uids["alice"] = -1
    desk.write(ALICE)
    done = desk.remind("--send")
    assert done.out == "sent 0, held back 1 (the directory of users does not answer: alice)\n"


@pytest.mark.parametrize(
    ("line", "first"), [("UID_MIN 500", 500), ("#UID_MIN 500", 1000), ("UID_MIN 0", 1), ("", 1000)]
)
def test_where_people_begin_is_the_systems_to_say_and_root_is_none(
    desk: Desk, line: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.folder / "login.defs"
    path.write_text(f"# comment\n{line}\nUID_MAX 60000\n")
    desk.uids = {"below": first - 1, "first": first}
    found = persons.find_persons(["below", "first"], {}, str(path))
    assert found.names == {"first"}


def test_an_account_that_systemd_made_for_a_service_is_no_person(desk: Desk) -> None:
    desk.uids |= {"first": 61184, "last": 65519, "before": 61183, "after": 65536}
    assert persons.find_persons(desk.uids, {}).names == {"alice", "bob", "carol", "before", "after"}


# Further sentences to a person.


def test_who_is_over_a_limit_is_told_so_in_the_reminder_and_nobody_else_is(desk: Desk) -> None:
    limits = "[limits.everyone]\nidle_held_hours = 2\n[limits.people.bob]\nidle_held_hours = 50\n"
    desk.configure(f"{limits}[price]\nper_gpu_hour = 2\ncurrency = 'EUR'")
    desk.write(ALICE, held(job("bob", 200), index=1))
    desk.remind("--send")
    told = {mail.split("\n", 1)[0]: " ".join(mail.split()) for mail in desk.mails()}
    alice, bob = told["To: alice@lab.example"], told["To: bob@lab.example"]
    over = "You are over the limit of 2 idle-held GPU-hours a week: at least 3.0 in the 7 days up to 12:00,"
    assert over in alice
    assert "limit" not in bob
    for text in (alice, bob):
        assert "for 3.0 GPU-hours in all. At 2 EUR a GPU-hour, that is 6.00 EUR." in text


# 6. Exempt and meant are left out; working days, hours and holidays.


def test_what_is_exempt_is_left_out(desk: Desk) -> None:
    desk.configure('[exempt]\nalice = "serves the wiki"')
    desk.write(ALICE)
    assert desk.remind("--send").out == "sent 0, meant 1\n"


def test_what_a_note_covers_is_left_out(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    put(desk.spool, f"{os.geteuid()}.0", content(desk.now_ms - HOUR_MS, desk.now_ms + HOUR_MS, identity="alice"))
    assert desk.remind("--send").out == "sent 1, meant 1\n"
    assert desk.recipients() == ["bob@lab.example"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Remind(holidays=("2026-11-17",)), "2026-11-17 is a holiday in [remind] holidays"),
        (Remind(days=("mon", "wed")), "tue is no working day in [remind] days"),
        (Remind(hours="8-12"), "it is 12:00, and people are told from 8:00 to 12:00 ([remind] hours)"),
        (Remind(hours="13-24"), "it is 12:00, and people are told from 13:00 to 24:00 ([remind] hours)"),
        (Remind(hours="12-13", days=("tue",), holidays=("2026-11-16", "2026-11-18")), None),
    ],
)
def test_working_time_is_by_days_hours_and_holidays(config: Remind, why: str | None) -> None:
    assert why_not_now(config, TUESDAY_NOON_MS, timezone.utc) == why


def test_outside_of_working_time_nobody_is_told_and_all_is_well(desk: Desk) -> None:
    desk.configure('[remind]\nholidays = ["2026-11-17"]')
    desk.write(ALICE)
    why = "2026-11-17 is a holiday in [remind] holidays"
    assert desk.remind("--send") == (0, f"sent 0, held back 1 ({why})\n", "")
    assert desk.recipients() == []


# 7. At most 20 in a run, beyond that one mail to the administrator and none to people.


@pytest.mark.parametrize("count", [MOST_REMINDERS, MOST_REMINDERS + 1])
def test_more_than_twenty_at_once_are_a_matter_for_the_administrator(desk: Desk, count: int) -> None:
    names = [f"user{number:02}" for number in range(count)]
    desk.uids = {name: 2000 + number for number, name in enumerate(names)}
    jobs = (job(name, 100 + number)._replace(uid=2000 + number) for number, name in enumerate(names))
    desk.write(*(held(one, index=number) for number, one in enumerate(jobs)))
    done = desk.remind("--send")
    if count <= MOST_REMINDERS:
        assert (done.status, done.out) == (0, f"sent {count}\n")
        assert sorted(desk.recipients()) == [f"{name}@lab.example" for name in names]
    else:
        assert done.status == 1
        assert done.out.startswith(f"sent 1, held back {count} (more than {MOST_REMINDERS} at once: user00, ")
        assert desk.recipients() == [ADMINISTRATOR]
        assert "user00, user01," in desk.mails()[0]
        desk.configure(mail='[mail]\ndomain = "lab.example"\n')
        assert "administrator is not set in [mail], or got a mail today" in desk.remind("--send").errors


# 8. Addresses from [mail]; nothing is guessed.


def test_who_has_no_address_is_held_back(desk: Desk) -> None:
    desk.configure(mail=f'[mail]\nadministrator = "{ADMINISTRATOR}"\n[mail.addresses]\nalice = "a@lab.example"\n')
    desk.write(ALICE, held(job("bob", 200), index=1))
    assert desk.remind("--send").out == "sent 1, held back 1 (no address: bob)\n"
    assert desk.recipients() == ["a@lab.example"]


# 9. Exit status and one line; --log shows who was told when.


def test_one_address_that_is_refused_costs_nobody_else_a_mail_and_is_tried_again(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    (desk.outbox / "sendmail.refuse").write_text("alice@lab.example\n")
    done = desk.remind("--send")
    assert (done.status, done.out) == (1, "sent 1, failed 1\n")
    assert re.fullmatch(r"gua remind: error: not sent to alice@lab.example: .* status 67: unknown user\n", done.errors)
    assert desk.recipients() == ["bob@lab.example"]
    (desk.outbox / "sendmail.refuse").unlink()
    assert desk.remind("--send").out == "sent 1, held back 1 (told today: bob)\n"
    assert desk.recipients() == ["bob@lab.example", "alice@lab.example"]
    told = desk.remind("--log").out.splitlines()
    assert [line.split(", ")[0] for line in told] == [
        "2026-11-17 12:00  alice <alice@lab.example>",
        "2026-11-17 12:00  bob <bob@lab.example>",
        "2026-11-17 12:00  alice <alice@lab.example>",
    ]
    assert "pid 100, failed: " in told[0]
    assert told[1].endswith("pid 200")


def test_a_mail_of_which_it_is_not_known_whether_it_was_sent_counts_as_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(ALICE)
    good = (desk.outbox / "sendmail").read_text()
    (desk.outbox / "sendmail").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("gua_report.telling.post.MAIL_SECONDS", 0.2)
    done = desk.remind("--send")
    assert (done.status, done.out) == (1, "sent 0, failed 1\n")
    assert "not known whether it was done" in desk.remind("--log").out
    (desk.outbox / "sendmail").write_text(good)
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"
    desk.later(24)
    assert desk.remind("--send").out == "sent 0, held back 1 (told within 7 days: alice)\n"


def test_a_run_that_was_killed_while_it_sent_counts_as_sent(desk: Desk) -> None:
    desk.write(ALICE)
    assert desk.remind("--send").out == "sent 1\n"
    path = desk.data_dir / log.REMIND_LOG
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "interrupted, so it may have been done" in desk.remind("--log").out
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"
    desk.later(24)
    assert desk.remind("--send").out == "sent 0, held back 1 (told within 7 days: alice)\n"


def test_a_line_that_was_not_finished_announces_nothing(desk: Desk) -> None:
    desk.write(ALICE)
    assert desk.remind("--send").out == "sent 1\n"
    path = desk.data_dir / log.REMIND_LOG
    path.write_text(path.read_text()[:60])
    assert desk.remind("--send").out == "sent 1\n"
    assert len(desk.log()) == 2


def test_a_bad_line_in_the_log_holds_mails_back(desk: Desk) -> None:
    desk.write(ALICE)
    path = desk.data_dir / log.REMIND_LOG
    path.write_text("\x1b[2J\n")
    path.chmod(0o600)
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert one_line(done.errors)
    assert "line 1 can't be understood, and may hide that somebody was told" in done.errors


def test_the_log_as_json_has_what_was_done(desk: Desk) -> None:
    desk.write(ALICE)
    desk.remind("--send")
    (act,) = json.loads(desk.remind("--log", "--json").out)["acts"]
    assert (act["who"], act["to"], act["outcome"], act["ts_ms"]) == (
        *("alice", "alice@lab.example", "done"),
        desk.now_ms,
    )


def test_days_are_those_of_the_machines_clock() -> None:
    act = log.Act("a", TUESDAY_NOON_MS, "alice", None, (), outcome=log.DONE)
    midnight_ms = TUESDAY_NOON_MS + 12 * HOUR_MS
    assert Before([act], midnight_ms - 1, timezone.utc).is_today("alice", "x")
    assert not Before([act], midnight_ms, timezone.utc).is_today("alice", "x")


def test_the_day_on_which_clocks_are_set_back_is_one_day_of_25_hours() -> None:
    berlin, first_ms = ZoneInfo("Europe/Berlin"), 1792879200000  # 2026-10-25 00:00 there
    act = log.Act("a", first_ms, "alice", None, (), outcome=log.DONE)
    assert Before([act], first_ms + 25 * HOUR_MS - 1, berlin).is_today("alice", "x")
    assert not Before([act], first_ms + 25 * HOUR_MS, berlin).is_today("alice", "x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "root"], "bad address 'root' for --to"),
        (["--to", "a@lab.example,eve@evil.example"], "bad address"),
        (["--check", "--send"], "three commands"),
        (["--after", "x"], "bad duration"),
        (["--tz", "Nowhere"], "unknown time zone"),
    ],
)
def test_wrong_usage_is_one_line_and_no_mail(desk: Desk, options: list[str], said: str) -> None:
    desk.write(ALICE)
    done = desk.remind(*options)
    assert (done.status, done.out) == (2, "")
    assert one_line(done.errors)
    assert said in done.errors


# By SMTP with TLS, and what is checked beforehand.


def configure_server(desk: Desk, url: str) -> None:
    login = f'from = "gua@lab.example"\nsmtp = "{url}"\nca_file = "{CERTIFICATE}"\n'
    desk.configure(mail=CONFIG + login)


@pytest.mark.real
def test_a_server_that_refuses_one_address_gets_the_others_and_is_tried_again(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    with mail_server(answers={"alice@lab.example": "550 no such user"}) as server:
        configure_server(desk, server.url)
        done = desk.remind("--send")
        assert (done.status, done.out) == (1, "sent 1, failed 1\n")
        assert "not sent to alice@lab.example: " in done.errors
        assert "550 no such user" in done.errors
    with mail_server() as server:
        configure_server(desk, server.url)
        assert desk.remind("--send").out == "sent 1, held back 1 (told today: bob)\n"
        (received,) = server.received
        assert (received.recipients, received.is_encrypted) == (["alice@lab.example"], True)


@pytest.mark.real
def test_a_server_with_a_bad_certificate_or_none_at_all_is_told_nothing_and_tried_again(desk: Desk) -> None:
    desk.write(ALICE)
    with mail_server(certificate=ELSEWHERE) as server:
        configure_server(desk, server.url)
        done = desk.remind("--send")
        assert (done.status, server.received) == (1, [])
        assert "has a certificate that is not trusted" in done.errors
    assert "can't be reached" in desk.remind("--send").errors
    assert [act["outcome"] for act in desk.log()] == [log.BEGUN, log.FAILED] * 2


@pytest.mark.real
def test_a_server_that_falls_silent_after_the_mail_began_may_have_taken_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(ALICE)
    monkeypatch.setattr("gua_report.mailing.smtp.smtplib.SMTP.sendmail", _disconnect)
    with mail_server() as server:
        configure_server(desk, server.url)
        assert desk.remind("--send").status == 1
    assert [act["outcome"] for act in desk.log()] == [log.BEGUN, log.UNSURE]
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"


def _disconnect(*_: object) -> None:
    raise smtplib.SMTPServerDisconnected("Connection unexpectedly closed")


def test_check_finds_what_is_missing_and_says_when_nothing_is(desk: Desk) -> None:
    assert desk.remind("--check") == (0, "templates, addresses and the way to send mail look good\n", "")
    template = desk.folder / "remind.txt"
    template.write_text("Hello $persom")
    desk.configure(f'[remind]\ntemplates = ["{template}"]', mail="")
    (desk.outbox / "sendmail").unlink()
    done = desk.remind("--check")
    assert (done.status, done.out) == (1, "")
    said = done.errors.splitlines()
    assert len(said) == 4
    for part, line in zip(
        ("$persom has no meaning", "nobody has an address", "no administrator", "no sendmail"), said, strict=True
    ):
        assert part in line
    desk.write(ALICE)
    assert desk.remind("--send").status == 2  # nor is anything sent with a bad template


def test_the_json_is_as_documented(desk: Desk) -> None:
    desk.configure(mail=f'{CONFIG}[mail.addresses]\nbob = "alice@lab.example"\n')
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("gdm", 300), index=2))
    found = json.loads(desk.remind("--json").out)
    page = (DOCS / "people.md").read_text().split("### JSON of gua remind")[1].split("\n## ")[0]
    documented = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|([^|]*)\|", page, re.MULTILINE)))
    others = found.pop("others")
    assert set(key_paths(found)) | {"others", "reminders", "held_back"} == set(documented)
    assert others[0].keys() == found["reminders"][0]["held"][0].keys()
