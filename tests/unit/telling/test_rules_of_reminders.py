"""The nine rules of gua remind: who gets a mail, when, and what is written down about it."""

import json
import os
import re
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timezone
from zoneinfo import ZoneInfo

import pytest

from gua_report.config import Mail, Remind
from gua_report.telling import log, reminders, watch
from gua_report.telling.reminders import MOST_REMINDERS, Persons, make_plan, why_not_now
from gua_sample.partition_names import DAY_MS
from tests.json_keys import key_paths
from tests.lab import HOUR_MS, Gpu, busy, held, lost, write
from tests.lab import tick as one_tick
from tests.machine import one_line
from tests.notes import content, put
from tests.repository import documented
from tests.telling import ADMINISTRATOR, BOOT, CONFIG, TUESDAY_NOON_MS, Desk, is_private, job

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


def test_with_to_everything_goes_to_one_and_nobody_counts_as_told(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("gdm", 300), index=2))
    assert desk.remind("--to", "me@lab.example").out.count("To: me@lab.example\n") == 3
    assert desk.recipients() == []
    assert desk.remind("--send", "--to", "me@lab.example").status == 0
    assert desk.recipients() == ["me@lab.example"] * 3
    assert desk.remind("--send").out.startswith("sent 3")
    assert desk.recipients()[3:] == ["alice@lab.example", "bob@lab.example", ADMINISTRATOR]


# 2. An episode that goes on, longer than `after`, seen again in a fresh look: same boot, pid and start time.


@pytest.mark.parametrize(
    ("hours", "options", "count"), [(1.9, (), 0), (2.1, (), 1), (1, ("--after", "30m"), 1), (0.6, (), 0)]
)
def test_what_is_held_for_less_than_configured_is_nobodys_business(
    desk: Desk, hours: float, options: tuple[str, ...], count: int
) -> None:
    desk.write(ALICE, hours=hours)
    assert len(json.loads(desk.remind("--json", *options).out)["reminders"]) == count
    desk.configure('[remind]\nafter = "30m"')
    assert "held for more than 30m on a card" in desk.remind().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": (busy(job("alice")),)}, ""),
        ({"gpus": (held(job("alice", start_time_ms=6000)),)}, ""),
        ({"gpus": (held(job("alice", 101)),)}, ""),
        ({"gpus": (held(job("bob", 101)),)}, ""),
        ({"boot": BOOT._replace(id="boot-2")}, ""),
        # The sampler's facts stand in for what /proc hides from us; whether a process is there, only /proc tells.
        ({"gone": {100}}, ", held back 1 (it is over by now: alice)"),
    ],
    ids=["at work", "another process with the same pid", "another pid", "somebody else", "a reboot", "ended"],
)
def test_what_a_fresh_look_does_not_see_again_is_over(desk: Desk, change: dict[str, object], said: str) -> None:
    desk.write(ALICE)
    vars(desk).update(change)
    assert (desk.remind("--send").out, desk.recipients()) == (f"sent 0{said}\n", [])


def test_a_mail_that_took_long_makes_it_look_again_before_the_next(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    monkeypatch.setattr(watch, "FRESH_SECONDS", -1.0)
    looks = []
    see = watch.see
    monkeypatch.setattr(watch, "see", lambda *some: looks.append(desk.now_ms) or see(*some))  # type: ignore[func-returns-value]
    assert desk.remind("--send").out == "sent 2\n"
    assert len(looks) == 3


# 3. One mail a person and day, the same again after 7 days; written down before; no log, no mail; two runs send once.


def test_nobody_gets_two_mails_a_day(desk: Desk) -> None:
    desk.write(ALICE, held(job("alice", 200), index=1), hours=3)
    assert desk.remind("--send").out == "sent 1\n"
    desk.later(3, ALICE, busy(job("alice", 200), index=1))
    desk.later(3, ALICE, held(job("alice", 200), index=1))  # a new episode
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"
    assert desk.recipients() == ["alice@lab.example"]


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


def test_it_is_written_down_before_it_is_sent(desk: Desk) -> None:
    desk.write(ALICE)
    path = desk.data_dir / log.REMIND_LOG
    (desk.outbox / "sendmail").write_text(f'#!/bin/sh\ncp {path} "$0.log"\n')
    assert desk.remind("--send").status == 0
    after = desk.log()
    shutil.copy(desk.outbox / "sendmail.log", path)
    (before,) = desk.log()
    episode = {"boot_id": "boot-1", "gpu_uuid": "GPU-0", "pid": 100, "start_time_ms": 5000}
    assert (before["who"], before["to"], before["outcome"]) == ("alice", "alice@lab.example", log.BEGUN)
    assert before["episodes"] == [episode]
    assert after == [{**before, "outcome": log.DONE}]
    assert is_private(path)


def test_while_the_log_is_held_there_is_no_mail(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE)
    monkeypatch.setattr(log, "WAIT_SECONDS", 0.05)
    log.open_log(str(desk.data_dir), log.REMIND_LOG)
    with closing(sqlite3.connect(desk.data_dir / log.REMIND_LOG)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert one_line(done.errors)
    assert f"{log.REMIND_LOG} is held by another process" in done.errors
    assert desk.remind("--send").out == "sent 1\n"


@pytest.mark.parametrize("is_new", [True, False])
def test_what_can_not_be_written_down_is_not_sent(desk: Desk, is_new: bool) -> None:
    desk.write(ALICE)
    if not is_new:
        log.open_log(str(desk.data_dir), log.REMIND_LOG)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        done = desk.remind("--send")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (done.status, desk.recipients()) == (1, [])
    assert one_line(done.errors)
    assert log.REMIND_LOG in done.errors
    assert desk.remind("--send").out == "sent 1\n"


# 4. Nothing if the newest tick failed or is stale, with gaps, if the card is unknown or the history not readable.


def fail_a_tick(desk: Desk) -> None:
    write(desk.data_dir, [one_tick(desk.now_ms - 60_000, error="driver_not_loaded", interval_ms=300_000)])


def damage_a_day(desk: Desk) -> None:
    sorted((desk.data_dir / "samples").iterdir())[0].write_text("garbage, more than sixteen bytes of it")


DOUBTS: dict[str, Callable[[Desk], object]] = {
    "the newest tick is 17m old: does the sampler run?": lambda desk: setattr(desk, "now_ms", desk.now_ms + 720_000),
    "the newest tick failed (driver_not_loaded)": fail_a_tick,
    "skipped: ": damage_a_day,
    "": lambda desk: desk.spool.chmod(0o777),  # notes that can't be used
}


@pytest.mark.parametrize(("said", "make"), DOUBTS.items())
def test_in_doubt_nobody_is_told(desk: Desk, said: str, make: Callable[[Desk], object]) -> None:
    desk.write(ALICE)
    make(desk)
    done = desk.remind("--send")
    assert (done.status, desk.recipients()) == (1, [])
    assert f"nobody is told: {said}" in done.errors


@pytest.mark.parametrize(("day", "count"), [(21, 0), (22, 1), (3, 0)])
def test_nobody_is_told_if_less_than_90_percent_of_the_last_day_was_seen(desk: Desk, day: float, count: int) -> None:
    if day == 3:  # with a gap before it
        now_ms, desk.now_ms = desk.now_ms, desk.now_ms - 6 * HOUR_MS
        desk.write(ALICE, day=40)
        desk.now_ms = now_ms
    desk.write(ALICE, day=day)
    done = desk.remind("--send")
    assert len(desk.recipients()) == count
    assert count or "nobody is told: 88% of the last day was observed, and 90% are needed" in done.errors


def test_a_card_that_is_unknown_tells_nothing_of_anybody(desk: Desk) -> None:
    desk.write(ALICE, held(job("bob", 200), index=1))
    desk.gpus = (lost(), desk.gpus[1])
    done = desk.remind("--send")
    assert (done.out, desk.recipients()) == ("sent 1, not known of GPU 0\n", ["bob@lab.example"])
    # A process's own utilization may be known where the card's is not.
    desk.write(Gpu(0, None, (job("alice", sm_percent=0), job("carol", 200, sm_percent=0))))
    assert desk.remind("--send").out == "sent 0, not known of GPU 0\n"


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


@pytest.mark.parametrize(
    ("line", "first"), [("UID_MIN 500", 500), ("#UID_MIN 500", 1000), ("UID_MIN 0", 1), ("", 1000)]
)
def test_where_people_begin_is_the_systems_to_say_and_services_are_none(desk: Desk, line: str, first: int) -> None:
    path = desk.folder / "login.defs"
    path.write_text(f"# comment\n{line}\nUID_MAX 60000\n")
    services = {"s": 61184, "t": 65519}  # as systemd numbers them
    desk.uids = {"below": first - 1, "first": first, "before": 61183, "after": 65536} | services
    assert reminders.find_persons(desk.uids, {}, str(path)).names == {"first", "before", "after"}


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


def test_what_is_exempt_or_covered_by_a_note_is_left_out(desk: Desk) -> None:
    desk.configure('[exempt]\ncarol = "serves the wiki"')
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("carol", 300), index=2))
    put(desk.spool, f"{os.geteuid()}.0", content(desk.now_ms - HOUR_MS, desk.now_ms + HOUR_MS, identity="alice"))
    assert desk.remind("--send").out == "sent 1, meant 2\n"
    assert desk.recipients() == ["bob@lab.example"]
    (act,) = json.loads(desk.remind("--log", "--json").out)["acts"]
    assert [act[key] for key in ("who", "to", "outcome", "ts_ms")] == ["bob", "bob@lab.example", "done", desk.now_ms]


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


def test_who_has_no_address_or_is_not_known_is_held_back_and_one_address_is_one_person(desk: Desk) -> None:
    addresses = '[mail.addresses]\nalice = "a@lab.example"\nbob = "a@lab.example"\n'
    desk.configure(mail=f'[mail]\nadministrator = "{ADMINISTRATOR}"\n{addresses}')
    desk.write(ALICE, held(job("bob", 200), index=1), held(job("carol", 300), index=2))
    assert desk.remind("--send").out == "sent 1, held back 2 (told today: bob; no address: carol)\n"
    assert desk.recipients() == ["a@lab.example"]
    desk.change_log("UPDATE act SET ts_ms = ?", TUESDAY_NOON_MS + 3 * DAY_MS)  # the clock was set back
    assert desk.remind("--send").out == "sent 0, held back 3 (told today: alice, bob; no address: carol)\n"
    desk.uids["alice"] = -1
    assert "the directory of users does not answer: alice; told today: bob" in desk.remind("--send").out
    desk.write(held(job("alice", 500, start_time_ms=None)))  # it may be another one
    assert desk.remind("--send").out == "sent 0\n"
    names = ("uid:1001", "docker:3f2a9c81d0b7", "(unattributed)", "unknown")
    assert reminders.find_persons(names, {f"x{name}": name for name in names}).names == set()


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


def test_a_mail_that_may_have_been_sent_counts_as_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(ALICE)
    good = (desk.outbox / "sendmail").read_text()
    (desk.outbox / "sendmail").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("gua_report.telling.reminders.MAIL_SECONDS", 0.2)
    done = desk.remind("--send")
    assert (done.status, done.out) == (1, "sent 0, failed 1\n")
    assert "not known whether it was done" in desk.remind("--log").out
    (desk.outbox / "sendmail").write_text(good)
    assert desk.remind("--send").out == "sent 0, held back 1 (told today: alice)\n"
    desk.later(24)
    assert desk.remind("--send").out == "sent 0, held back 1 (told within 7 days: alice)\n"


@pytest.mark.parametrize("name", [log.REMIND_LOG, "remind.log"])
@pytest.mark.parametrize("options", [(), ("--send",), ("--send", "--to", "me@lab.example")])
def test_a_damaged_log_holds_mails_back(desk: Desk, name: str, options: tuple[str, ...]) -> None:
    desk.write(ALICE)
    path = desk.data_dir / name
    path.write_text("\x1b[2J\n")
    path.chmod(0o600)
    done = desk.remind(*options)
    assert (done.status, desk.recipients()) == (1, [])
    assert one_line(done.errors)
    assert str(path) in done.errors
    assert "move it away" in done.errors


def test_the_day_on_which_clocks_are_set_back_is_one_day_of_25_hours() -> None:
    berlin, first_ms = ZoneInfo("Europe/Berlin"), 1792879200000  # 2026-10-25 00:00 there
    act = log.Act("a", first_ms, reminders.ADMINISTRATOR, None, (), outcome=log.DONE)
    episode = watch.Episode("boot", "uuid", 1, 1)
    one = watch.Held(episode, "gdm", "0", None, 0, None, "x", None, None, None, 0, "gdm", since_is_exact=True)

    def told(now_ms: int) -> str | None:
        mail, nobody = Mail(administrator=ADMINISTRATOR), Persons(set(), {}, set())
        return make_plan([one], nobody, [act], mail, now_ms, berlin).summary_to

    assert told(first_ms + 25 * HOUR_MS - 1) is None
    assert told(first_ms + 25 * HOUR_MS) == ADMINISTRATOR


# What is checked beforehand.


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
    others = found.pop("others")
    assert set(key_paths(found)) | {"others", "reminders", "held_back"} == set(
        documented("people.md", "### JSON of gua remind")
    )
    assert others[0].keys() == found["reminders"][0]["held"][0].keys()


def test_a_dry_run_outside_of_office_hours_shows_the_mail_then_why_it_waits(desk: Desk) -> None:
    desk.configure('[remind]\nhours = "13-19"')
    desk.write(ALICE)
    shown = desk.remind()
    assert "To: alice@lab.example\n" in shown.out
    last = shown.out.splitlines()[-1]
    why = "it is 12:00, and people are told from 13:00 to 19:00 ([remind] hours)"
    assert last == f"would send 0 (with --send), held back 1 ({why})"
    assert desk.remind("--send").out == f"sent 0, held back 1 ({why})\n"
    assert desk.recipients() == []


def test_a_dry_run_on_a_young_history_shows_the_mail_then_why_it_waits(desk: Desk) -> None:
    desk.write(ALICE, day=4)
    shown = desk.remind()
    assert (shown.status, "To: alice@lab.example\n" in shown.out) == (1, True)
    assert shown.out.endswith("would send 0 (with --send), held back 1 (in doubt)\n")
    assert "of the last day was observed, and 90% are needed" in shown.errors
    found = json.loads(desk.remind("--json").out)
    assert [(one["who"], one["outcome"]) for one in found["reminders"]] == [("alice", None)]
    assert "of the last day was observed" in found["doubts"][0]
    desk.remind("--send")
    assert desk.recipients() == []
