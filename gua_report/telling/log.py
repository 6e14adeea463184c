"""The log of what was done: `reminders.sqlite` and `hook.sqlite` in the data folder; and what gua doctor says of it.

A row is on the disk before something is done, and its outcome after it: whatever ends a run in between, it is known
that it may have been done. Of two runs at once, the first to write a row goes on. The files are private to the
folder's owner, with whose rights they are read and written.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import tzinfo
from typing import Any, NamedTuple

from gua_report.config import SYSTEM_CONFIG, Config, Remind
from gua_report.console.spelling import as_json, first_of
from gua_report.doctor.findings import Finding, moment, ok, shell, warning
from gua_report.machine.child import ask_as_owner, understanding
from gua_report.machine.program import Untrusted, check_target
from gua_report.telling.letters import find_problems
from gua_report.telling.watch import Episode
from gua_report.ticks.open_partition import Kind, errors_of, open_database
from gua_report.window import show
from gua_sample.errors import CorruptPartition, EmptyPartition, PartitionBusy, StoreError
from gua_sample.notes import LATEST_MS
from gua_sample.partition_file import check_types
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import printable
from gua_sample.safe_file import connect, is_begun, read_regular

REMIND_LOG, HOOK_LOG = "reminders.sqlite", "hook.sqlite"
FORMER = {REMIND_LOG: "remind.log", HOOK_LOG: "hook.log"}  # a JSON object in each line; it is taken over once
MOST_FORMER_BYTES = 64 << 20
WAIT_SECONDS = 10.0  # for another run, which holds the file for a moment
LONGEST_TEXT = 300
REMEMBER_MS = 7 * DAY_MS  # nothing older makes a difference
BEGUN, DONE, FAILED, UNSURE = "begun", "done", "failed", "unsure"

SHOWN_PIDS = 3
AS_OWNER = "run this as the folder's owner, or as root"
OUTCOMES = {BEGUN: "interrupted, so it may have been done", UNSURE: "not known whether it was done"}
REMIND, HOOK = "remind", "hook"  # in gua doctor

TABLE = (
    "CREATE TABLE act (id TEXT PRIMARY KEY, ts_ms INTEGER NOT NULL, who TEXT NOT NULL, address TEXT, episodes TEXT NOT"
    " NULL, is_trial INTEGER NOT NULL, outcome TEXT NOT NULL, text TEXT) STRICT"
)
NAMES = {"act": ("id", "who", "address", "outcome", "text")}
KIND = Kind("a log of gua's", 0x6775616C, 1, ("act",), (), NAMES, {})  # "gual"


class Act(NamedTuple):
    id: str
    ts_ms: int  # when it was begun
    who: str
    to: str | None  # the address of a mail
    episodes: tuple[Episode, ...]
    is_trial: bool = False  # it went to somebody who tries it out
    outcome: str = BEGUN  # that is all that is known of what has no other one
    text: str | None = None  # why it failed, or what the hook said

    def is_about(self, episode: Episode, earliest_ms: int) -> bool:
        """Whether it was about this episode: one that may have begun by then, of the same process on the same card."""
        return episode in self.episodes and earliest_ms <= self.ts_ms


class Read(NamedTuple):
    acts: list[Act]  # oldest first
    problems: list[str]  # why nothing is known of what was done


def read_log(data_dir: str, name: str) -> Read:
    try:
        acts = ask_as_owner(data_dir, lambda: _read(os.path.join(data_dir, name)))
    except CorruptPartition as error:
        return Read([], [f"{error}: it may hide that somebody was told, so look at it and move it away"])
    except StoreError as error:
        if isinstance(error.__cause__, PermissionError):
            path = os.path.join(data_dir, name)
            raise StoreError(f"{path} can't be read by this user: {AS_OWNER}") from error.__cause__
        raise
    with understanding():
        return Read([_check(*act) for act in acts], [])


def _read(path: str) -> list[Act]:
    with suppress(EmptyPartition):  # the run that made it was killed
        if os.path.lexists(path):
            with open_database(path, KIND) as connection:
                rows = connection.execute("SELECT * FROM act ORDER BY rowid")
                return [_check(*row[:4], json.loads(row[4]), *row[5:]) for row in rows]
    return _former_acts(path)


def _former_acts(path: str) -> list[Act]:
    """The acts of a former log. Its last line may not be finished, so what that announces was not done."""
    folder, name = os.path.split(path)
    former, acts = os.path.join(folder, FORMER[name]), dict[str, Act]()
    if os.path.lexists(former):
        with errors_of(former):
            for line in read_regular(former, MOST_FORMER_BYTES).split(b"\n")[:-1]:
                values = json.loads(line)
                episodes = tuple(Episode(**one) for one in values.pop("episodes"))
                act = Act(**values, episodes=episodes)
                acts[act.id] = _check(*act)
    return list(acts.values())


def _check(*values: Any) -> Act:
    act = Act(*values)
    check_types(act, str, int, str, (str, None), object, int, str, (str, None))
    f"{act.id}{act.who}{act.to}{act.text}".encode()  # half a surrogate pair has no encoding
    if not 0 <= act.ts_ms <= LATEST_MS or act.outcome not in (BEGUN, DONE, FAILED, UNSURE):
        raise ValueError("no act")
    episodes = (Episode(*check_types(tuple(one), str, str, int, int)) for one in act.episodes)
    return act._replace(episodes=tuple(episodes), is_trial=bool(act.is_trial))


class Log:
    def __init__(self, data_dir: str, name: str, count: int) -> None:
        self._data_dir, self._path, self._count = data_dir, os.path.join(data_dir, name), count

    def begin(self, ts_ms: int, who: str, to: str | None, episodes: Iterable[Episode], is_trial: bool = False) -> Act:
        """Write down what is about to be done. Raises StoreError, also if another run has done something meanwhile."""
        act = Act(os.urandom(8).hex(), ts_ms, who, to, tuple(episodes), is_trial)
        ask_as_owner(self._data_dir, lambda: _add(self._path, act, self._count))
        self._count += 1
        return act

    def end(self, act: Act, outcome: str, text: str | None) -> None:
        said = text and printable(text)[:LONGEST_TEXT]

        def finish() -> None:
            with _writing(self._path) as connection:
                connection.execute("UPDATE act SET outcome = ?, text = ? WHERE id = ?", (outcome, said, act.id))

        ask_as_owner(self._data_dir, finish)


def open_log(data_dir: str, name: str) -> tuple[Log, Read]:
    with suppress(CorruptPartition):  # read_log says so
        ask_as_owner(data_dir, lambda: _make(os.path.join(data_dir, name)))
    found = read_log(data_dir, name)
    return Log(data_dir, name, len(found.acts)), found


def _make(path: str) -> None:
    try:
        # Not by SQLite, so that it is private from the start.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(
            f"{path} can't be written ({error.strerror}), and nothing is done without it: {AS_OWNER}"
        ) from error
    with _writing(path) as connection:
        if not is_begun(connection, path, KIND.name, KIND.application_id, KIND.version):
            connection.execute(TABLE)
            connection.execute(f"PRAGMA application_id = {KIND.application_id}")
            connection.execute(f"PRAGMA user_version = {KIND.version}")
            for act in _former_acts(path):
                _insert(connection, act)


def _add(path: str, act: Act, count: int) -> None:
    with _writing(path) as connection:
        if connection.execute("SELECT count(*) FROM act").fetchone() != (count,):
            raise PartitionBusy(f"{path} was written by another run meanwhile, which goes on: this one stops")
        _insert(connection, act)


def _insert(connection: sqlite3.Connection, act: Act) -> None:
    row = act._replace(episodes=json.dumps(act.episodes))  # type: ignore[arg-type] # as the table has it
    connection.execute("INSERT INTO act VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


@contextmanager
def _writing(path: str) -> Iterator[sqlite3.Connection]:
    with errors_of(path), closing(connect(path, "rw", WAIT_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def show_log(found: Read, zone: tzinfo, is_for_programs: bool) -> str:
    if is_for_programs:
        acts = [{**act._asdict(), "episodes": [one._asdict() for one in act.episodes]} for act in found.acts]
        return as_json(acts=acts, problems=found.problems)
    lines = [_spell(act, zone) for act in found.acts] + [f"problem: {one}" for one in found.problems]
    return "\n".join(map(printable, lines)) or "nothing yet"


def _spell(act: Act, zone: tzinfo) -> str:
    pids = first_of(list(dict.fromkeys(str(one.pid) for one in act.episodes)), SHOWN_PIDS)
    to = f" <{act.to}>" if act.to else ""
    trial = "trial, " if act.is_trial else ""
    outcome = "" if act.outcome == DONE and not act.text else f", {_spell_outcome(act)}"
    return f"{show(act.ts_ms, zone)}  {trial}{act.who}{to}, pid {pids or '-'}{outcome}"


def _spell_outcome(act: Act) -> str:
    return OUTCOMES.get(act.outcome, act.outcome) + (f": {act.text}" if act.text else "")


def check_telling(config: Config, data_dir: str, config_path: str | None) -> list[Finding]:
    findings = []
    last, hidden, bad = _last(data_dir, REMIND_LOG, REMIND)
    if config.remind != Remind() or last or bad:
        edit = shell("sudoedit", config_path or SYSTEM_CONFIG)
        bad = [warning(REMIND, problem, edit) for problem in find_problems(config)] + bad
        if last and last.outcome != DONE:
            text = f"the last mail, to {last.to}, {moment(last.ts_ms)}: {_spell_outcome(last)}"
            bad.append(warning(REMIND, text, "sudo gua remind --log"))
        what = "a trial was last sent" if last and last.is_trial else "somebody was last told"
        when = f"{what} {moment(last.ts_ms)}" if last else hidden or "nobody was told yet"
        findings += bad or [ok(REMIND, f"{when}; after {config.remind.after}")]
    if config.hook.run is not None:
        findings += _check_hook(config.hook.run, data_dir)
    return findings


def _check_hook(program: str, data_dir: str) -> list[Finding]:
    last, hidden, bad = _last(data_dir, HOOK_LOG, HOOK)
    try:
        check_target(program)
    except Untrusted as problem:
        bad.append(warning(HOOK, f"it is not run: {problem}", shell("ls", "-ld", program)))
    if last and last.outcome != DONE:
        text = f"the last run, {moment(last.ts_ms)}: {_spell_outcome(last)}"
        bad.append(warning(HOOK, text, "sudo gua hook --log"))
    when = f"last run {moment(last.ts_ms)}: {last.text}" if last else hidden or "it was not run yet"
    return bad or [ok(HOOK, f"{program}: {when}")]


def _last(data_dir: str, name: str, check: str) -> tuple[Act | None, str | None, list[Finding]]:
    try:
        acts, problems = read_log(data_dir, name)
    except StoreError as problem:
        if isinstance(problem.__cause__, PermissionError):
            return None, "what was done is for root to see (sudo gua doctor)", []
        return None, None, [warning(check, str(problem))]
    return acts[-1] if acts else None, None, [warning(check, problem) for problem in problems]
