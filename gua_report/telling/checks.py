"""Check what reminders and the hook need: for gua remind --check, and for gua doctor."""

from __future__ import annotations

import time

from gua_report.config import SYSTEM_CONFIG, Config, Hook, Remind
from gua_report.doctor.findings import Finding, moment, ok, shell, warning
from gua_report.mailing.login import NoLogin, read_login
from gua_report.mailing.sendmail import find_sendmail
from gua_report.telling.log import BEGUN, DONE, HOOK_LOG, REMIND_LOG, Act, read_log
from gua_report.telling.show_log import OUTCOMES
from gua_report.telling.target import Untrusted, check_target
from gua_report.telling.template import load_templates
from gua_sample.errors import StoreError, UsageError

REMIND, HOOK = "remind", "hook"
HIDDEN = "what was done is for root to see (sudo gua doctor)"


def find_problems(config: Config) -> list[str]:
    """Why reminders could not be sent, or not as the administrator would expect."""
    mail, problems = config.mail, []
    try:
        load_templates(config.remind.templates)
    except UsageError as error:
        problems.append(str(error))
    if mail.domain is None and not mail.addresses:
        problems.append("nobody has an address: set domain, or [mail.addresses], in [mail]")
    if mail.administrator is None:
        problems.append("there is no administrator to be told of the rest: set administrator in [mail]")
    if mail.smtp is None and find_sendmail() is None:
        problems.append("there is no sendmail on this machine: install postfix, exim or msmtp-mta, or set [mail] smtp")
    try:
        read_login(mail)
    except NoLogin as error:
        problems.append(str(error))
    return problems


def check_telling(config: Config, data_dir: str, config_path: str | None) -> list[Finding]:
    """What gua doctor says of both; nothing of what is not used."""
    edit = shell("sudoedit", config_path or SYSTEM_CONFIG)
    findings = _check_remind(config, data_dir, edit)
    return findings + (_check_hook(config.hook, data_dir) if config.hook != Hook() else [])


def _check_remind(config: Config, data_dir: str, edit: str) -> list[Finding]:
    last, is_hidden, about_log = _last(data_dir, REMIND_LOG, REMIND)
    if config.remind == Remind() and last is None and not about_log:
        return []
    bad = [warning(REMIND, problem, edit) for problem in find_problems(config)] + about_log
    if last is not None and last.outcome != DONE:
        text = f"the last mail, to {last.to}, {moment(last.ts_ms)}: {_spell(last)}"
        bad.append(warning(REMIND, text, "sudo gua remind --log"))
    when = "nobody was told yet" if last is None else f"somebody was last told {moment(last.ts_ms)}"
    when = HIDDEN if is_hidden else when
    return bad or [ok(REMIND, f"{when}; after {config.remind.after}")]


def _check_hook(hook: Hook, data_dir: str) -> list[Finding]:
    if hook.run is None:
        return []
    last, is_hidden, bad = _last(data_dir, HOOK_LOG, HOOK)
    try:
        check_target(hook.run)
    except Untrusted as problem:
        bad.append(warning(HOOK, f"it is not run: {problem}", shell("ls", "-ld", hook.run)))
    if last is not None and last.outcome != DONE:
        bad.append(warning(HOOK, f"the last run, {moment(last.ts_ms)}: {_spell(last)}", "sudo gua hook --log"))
    when = "it was not run yet" if last is None else f"last run {moment(last.ts_ms)}: {last.text}"
    when = HIDDEN if is_hidden else when
    return bad or [ok(HOOK, f"{hook.run}: {when}")]


def _last(data_dir: str, name: str, check: str) -> tuple[Act | None, bool, list[Finding]]:
    """The last thing that was done, whether that is hidden from this user, and what is wrong with the log."""
    try:
        acts, problems = read_log(data_dir, name, time.time_ns() // 1_000_000)
    except StoreError as problem:
        is_hidden = isinstance(problem.__cause__, PermissionError)
        return None, is_hidden, [] if is_hidden else [warning(check, str(problem))]
    return acts[-1] if acts else None, False, [warning(check, problem) for problem in problems]


def _spell(act: Act) -> str:
    what = OUTCOMES.get(act.outcome, act.outcome)
    return f"{what}: {act.text}" if act.text and act.outcome != BEGUN else what
