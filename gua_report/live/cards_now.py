"""The cards now and who is on them: what is meant, who is over a limit, and what a user may mark by a note."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import first_of, gpu
from gua_report.limits import Standing, Used, Week, judge, limit_of
from gua_report.machine.child import ask_as_owner
from gua_report.machine.notes import MeantNow, find_notes
from gua_report.people.containers import spell
from gua_report.people.identities import UNATTRIBUTED, UNKNOWN, apply_mapping, find_uids, resolve
from gua_report.ticks.newest import Files, Newest
from gua_sample.console import plural
from gua_sample.containers import NOTHING as NO_CONTAINERS
from gua_sample.containers import Container, Known, runtime_of
from gua_sample.errors import GuaError, StoreError, UsageError
from gua_sample.identity import find_slurm_job
from gua_sample.idleness import Carried, Run, Runs
from gua_sample.notes import LATEST_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, unattributed_mib
from gua_sample.processes import printable
from gua_sample.records import Card, Process, Tick, Usage

UNUSED = Used(0.0, 0.0, 0.0, None)
SHOWN_PIDS = 3
START_FIRST = "start it first, then run this again"


class Since(NamedTuple):
    ts_ms: int
    is_exact: bool  # whether the beginning was seen; else the state may have lasted longer


class ProcessNow(NamedTuple):
    pid: int
    start_time_ms: int | None
    user: str  # the identity, or `unknown`
    command: str
    type: str
    memory_mib: int | None
    sm_percent: int | None
    state: str
    since: Since | None  # since when it idle-holds the card, if it does and the history tells
    container: Container | None = None  # that it is in, if that is known
    slurm_job: str | None = None
    meant: MeantNow | None = None  # why, if it does so on purpose

    @property
    def who(self) -> str:
        return spell(self.user, self.container)


class UserNow(NamedTuple):
    """A user with processes on a card; one active process makes the user active."""

    name: str
    is_idle: bool
    since: Since | None  # of the process that has been idle for longest
    container: Container | None = None  # that the user is, if a container is all that is known of whose it is
    meant: MeantNow | None = None  # if all of their idle processes there are meant
    standings: tuple[Standing, ...] = ()  # against their limits, the worst first; none if they have no limit

    @property
    def who(self) -> str:
        return spell(self.name, self.container)


class CardSeen(NamedTuple):
    card: Card
    state: str
    since: Since | None  # None: the history does not tell
    users: list[UserNow]  # those who have held it for longest first
    processes: list[ProcessNow]  # the largest first


class Scene(NamedTuple):
    tick: Tick
    cards: list[CardSeen]  # by index
    newest: Newest | None
    files: Files
    week: Week | None = None  # that limits are held against; None: nobody has one, or they are not known
    recent: Tick | None = None  # the newest tick with cards
    last_use_ms: Mapping[str, int] = {}  # when cards were last active or held, by uuid


def see_card(
    card: Card, tick: Tick, told: Carried, runs: Runs, config: Config, containers: Known = NO_CONTAINERS
) -> CardSeen:
    uuid = card.facts.uuid
    run = runs[uuid, None, None]
    processes = []
    for usage in card.usages:
        facts = tick.processes[usage.pid]
        container = containers.find_around(facts.cgroup)
        own_run = runs[uuid, usage.pid, facts.start_time_ms]
        processes.append(see_process(usage, facts, own_run, run, told, config)._replace(container=container))
    processes.sort(key=lambda one: (-(one.memory_mib or 0), one.pid))
    users = gather_users(processes)
    if unattributed_mib(card, config.policy) is not None:
        users.append(UserNow(UNATTRIBUTED, False, None))
    return CardSeen(card, run.state, tell_since(told, run), users, processes)


def see_process(usage: Usage, facts: Process, run: Run, of_card: Run, told: Carried, config: Config) -> ProcessNow:
    identity = resolve(facts.uid, facts.login_uid, facts.user, facts.login_user, facts.cgroup)
    user = apply_mapping(identity, config.people)
    since = tell_since(told, run) if run.state == IDLE_HELD else None
    if since and of_card.since_ms > since.ts_ms and (user != identity or user in config.people.values()):
        # The sampler knows identities alone: what else worked there may have been the same person's.
        since = Since(of_card.since_ms, False)
    return ProcessNow(
        usage.pid,
        facts.start_time_ms,
        user,
        UNKNOWN if facts.command is None else facts.command,
        usage.type,
        usage.memory_mib,
        usage.sm_percent,
        run.state,
        since,
        slurm_job=find_slurm_job(facts.cgroup),
    )


def tell_since(told: Carried, run: Run) -> Since | None:
    """The beginning of a state, unless this tick comes after a hole, with nothing before that it could be joined to."""
    is_exact = run.is_exact and run.since_ms != told.unbroken_ms
    return None if told.unbroken_ms == told.success_ms else Since(run.since_ms, is_exact)


def gather_users(processes: list[ProcessNow]) -> list[UserNow]:
    """The users with, if all of their idle processes are meant, what ends first of what is said of these."""
    users = []
    for name in dict.fromkeys(one.user for one in processes):
        own = [one for one in processes if one.user == name]
        idle = [one for one in own if one.state == IDLE_HELD]
        container = own[0].container if runtime_of(name) else None  # all of its processes are in that one
        user = UserNow(name, False, None, container)
        if idle and all(one.state != ACTIVE for one in own):
            since = min((one.since for one in idle if one.since), default=None)
            said = [one.meant for one in idle if one.meant]
            ends_first = min(said, key=lambda one: LATEST_MS if one.until_ms is None else one.until_ms, default=None)
            user = UserNow(name, True, since, container, ends_first if len(said) == len(idle) else None)
        users.append(user)
    # Idle users of unknown duration come first: theirs may be the longest.
    users.sort(key=lambda user: (not user.is_idle, user.since.ts_ms if user.since else 0, user.name))
    return users


def mark_meant(scene: Scene, config: Config, complain: Callable[[str], None]) -> Scene:
    known = find_notes(config, {one.user for seen in scene.cards for one in seen.processes if one.state == IDLE_HELD})
    for problem in known.problems:
        complain(problem)

    def mark(seen: CardSeen) -> CardSeen:
        uuid, ts_ms = seen.card.facts.uuid, scene.tick.ts_ms
        processes = [
            one._replace(meant=known.find(one.user, uuid, one.pid, one.start_time_ms, ts_ms))
            if one.state == IDLE_HELD
            else one
            for one in seen.processes
        ]
        users = gather_users(processes)
        return seen._replace(
            processes=processes, users=[*users, *seen.users[len(users) :]]
        )  # and what no process shows

    return scene._replace(cards=[mark(seen) for seen in scene.cards])


def mark_limits(scene: Scene, config: Config, data_dir: str, complain: Callable[[str], None]) -> Scene:
    names = {user.name for seen in scene.cards for user in seen.users}
    limits = {name: limit_of(name, config.limits, config.people) for name in names}
    if not data_dir or not any(hours is not None for limit in limits.values() for hours in limit):
        return scene
    from gua_report.rollups.week_hours import read_closed_week  # imported here because few have limits

    partitions, ts_ms = scene.files.partitions, scene.tick.ts_ms
    try:
        found = ask_as_owner(
            data_dir, lambda: read_closed_week(data_dir, partitions, config.policy, config.people, ts_ms)
        )
    except StoreError as error:
        complain(f"who is over a limit is not known: {error}")
        return scene
    week, people = Week(*found[0]), {name: Used(*used) for name, used in found[1].items()}

    def mark(user: UserNow) -> UserNow:
        used = people.get(user.name, UNUSED)
        return user._replace(standings=tuple(judge(used, limits[user.name], week)))

    cards = [seen._replace(users=[mark(user) for user in seen.users]) for seen in scene.cards]
    return scene._replace(cards=cards, week=week)


class About(NamedTuple):
    text: str
    identity: str | None = None
    gpu_uuids: tuple[str, ...] = ()
    processes: tuple[tuple[int, int], ...] = ()


class Holdings:
    """The processes on the cards that a user may mark: their own, or all if they own the spool."""

    def __init__(self, cards: list[CardSeen], uid: int, is_owner: bool, people: Mapping[str, str]) -> None:
        self.cards, self.is_owner = cards, is_owner
        # By identity, as reports do: they have nothing else to tell whose a process was.
        uids, _ = find_uids({one.user for seen in cards for one in seen.processes}, people)
        self.mine = {who for who, some in uids.items() if uid in some}

    def find_all(self) -> About:
        found = [one for seen in self.cards for one in seen.processes if one.user in self.mine]
        if not found:
            others = ", or say whose: --identity, --gpu or --pid" if self.is_owner else ""
            raise GuaError(f"you have no process on a card now: {START_FIRST}{others}")
        return self._tell(found)

    def find_process(self, pid: int) -> About:
        found = [one for seen in self.cards for one in seen.processes if one.pid == pid]
        if not found:
            raise GuaError(f"process {pid} is on no card now: gua status -v lists those that are")
        user = found[0].user
        if user not in self.mine and not self.is_owner:
            raise GuaError(f"process {pid} counts as {printable(user)}'s, not as yours: they can mark it, or root")
        return self._tell(found)

    def find_card(self, name: str, identity: str | None) -> About:
        """The card, or its MIG instances that the user has processes on; all for the spool's owner."""
        named = [seen for seen in self.cards if name in _names(seen)]
        if not named:
            raise UsageError(f"no GPU {name}: gua status lists them")
        used = [seen for seen in named if self.is_owner or any(one.user in self.mine for one in seen.processes)]
        if not used:
            raise GuaError(f"you have no process on GPU {name} now: {START_FIRST}")
        whose = f"{identity} has" if identity else "everybody has" if self.is_owner else "you have"
        places = ", ".join(gpu(seen.card.facts.gpu_index, seen.card.facts.mig_index) for seen in used)
        return About(f"what {whose} on GPU {places}", identity, tuple(seen.card.facts.uuid for seen in used))

    def _tell(self, found: list[ProcessNow]) -> About:
        known = {one.pid: one for one in found if one.start_time_ms is not None}
        if not known:
            raise GuaError("it is not known when these processes began: have they just ended?")
        commands = first_of([f"{pid} {one.command}" for pid, one in known.items()], SHOWN_PIDS)
        users = {one.user for one in known.values()}
        # The spool's owner's notes are about anybody: with the name, another user's later process can't be meant.
        identity = users.pop() if self.is_owner and len(users) == 1 else None
        processes = tuple((pid, one.start_time_ms) for pid, one in known.items() if one.start_time_ms is not None)
        return About(f"{plural(len(known), 'process', 'es')}, {commands}", identity, (), processes)


def _names(seen: CardSeen) -> tuple[str, ...]:
    """What people may call a card; the index of one with MIG on means all instances."""
    facts = seen.card.facts
    return str(facts.gpu_index), gpu(facts.gpu_index, facts.mig_index), facts.uuid
