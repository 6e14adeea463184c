"""The processes on the cards now that a user may mark, by a note about them."""

from collections.abc import Mapping
from typing import NamedTuple

from gua_report.console.spelling import first_of, gpu
from gua_report.live.cards_now import CardSeen, ProcessNow
from gua_report.people.identities import find_uids
from gua_sample.console import plural
from gua_sample.errors import GuaError, UsageError
from gua_sample.processes import printable

SHOWN_PIDS = 3
START_FIRST = "start it first, then run this again"


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
