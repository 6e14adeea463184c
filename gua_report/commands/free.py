"""gua free: the cards that nobody holds, for CUDA_VISIBLE_DEVICES."""

import argparse
import os

from gua_report.console.arguments import positive
from gua_report.live.cards_now import CardSeen, Scene, Since, UserNow
from gua_report.live.observer import Observer, add_options
from gua_report.live.shown import spell_since
from gua_report.live.validation import AVAILABLE, UNRESERVED, UNUSED, Validation
from gua_report.people.identities import UNATTRIBUTED, apply_mapping
from gua_sample import console
from gua_sample.errors import GuaError
from gua_sample.policy import ACTIVE, IDLE_HELD, STATUS_OK, TRULY_IDLE, UNKNOWN, UNPARTITIONED
from gua_sample.processes import printable, user_names

PROG = "gua free"
DESCRIPTION = """\
The cards that are truly idle now, with one fresh look at the driver: those that
have not been used for longest first, separated by commas."""
EPILOG = """\
examples:
  CUDA_VISIBLE_DEVICES=$(gua free -n 2) python train.py
  export CUDA_VISIBLE_DEVICES=$(gua free -n 1 --uuid)
  gua free                          all that are free
  gua free --memory-threshold 512   cards with up to 512 MiB in use, by anybody

Indices are those of NVML and nvidia-smi, in the order of the PCI bus. CUDA
counts the fastest card first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set: on a
machine with cards of several kinds set that, or take --uuid, which is always
right. MIG instances have no index that CUDA takes: as soon as one of them is
among the cards, all are printed by uuid.
Cards that somebody else has reserved (docs/reservations.md) are left out.
Nothing is reserved by this: whoever is first has it.
exit status: 0 done, 1 not enough cards are free or the driver can't be used
(nothing is printed then but one line on stderr), 2 wrong usage.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = console.Parser(PROG, DESCRIPTION, EPILOG)
    parser.add_argument("-n", metavar="N", type=positive, help="so many, or none at all (default all that are free)")
    parser.add_argument("--uuid", action="store_true", help="uuids instead of indices")
    add_options(parser)
    return console.run(parser, run, arguments)


def run(options: argparse.Namespace) -> int:
    observer = Observer(options, lambda text: console.complain(PROG, text))
    scene = observer.look()
    validations = observer.validate(scene)
    idle = [seen for seen in scene.cards if is_free(seen)]
    uid = os.getuid()
    # uid:N if there is no name, or if the directory of users does not answer in time.
    name = (user_names({uid}).get(uid) if validations else None) or f"uid:{uid}"
    me = apply_mapping(name, observer.config.people)
    free = [seen for seen in idle if is_for(me, validations.get(seen.card.facts.uuid))]
    wanted = options.n or max(1, len(free))
    if len(free) < wanted:
        taken = [validations[seen.card.facts.uuid] for seen in idle if seen not in free]
        raise GuaError(too_few(scene, validations, taken, wanted, len(free)))
    # Cards never seen in use come first; ties keep the order of the indices.
    chosen = sorted(free, key=lambda seen: scene.last_use_ms.get(seen.card.facts.uuid, 0))[:wanted]
    console.say(PROG, ",".join(spell(chosen, options.uuid)))
    return 0


def is_free(seen: CardSeen) -> bool:
    return seen.state == TRULY_IDLE and seen.card.facts.status == STATUS_OK


def is_for(me: str, validation: Validation | None) -> bool:
    if validation is None or validation.kind == AVAILABLE:
        return True
    is_known = validation.details["unreserved_users"] is not None
    return validation.kind == UNUSED and is_known and validation.reserved_by == [printable(me)]


def spell(chosen: list[CardSeen], as_uuids: bool) -> list[str]:
    facts = [seen.card.facts for seen in chosen]
    if as_uuids or any(one.mig_index is not None for one in facts):
        return [one.uuid for one in facts]
    return [str(one.gpu_index) for one in facts]


def too_few(scene: Scene, validations: dict[str, Validation], taken: list[Validation], wanted: int, count: int) -> str:
    held = [seen for seen in scene.cards if seen.state == IDLE_HELD]
    reserved = [validation for validation in taken if validation.kind == UNUSED]
    owners = dict.fromkeys(owner for validation in reserved for owner in validation.reserved_by)
    # A card that fails is not free, whatever it was seen to do.
    states = [UNKNOWN if seen.state == TRULY_IDLE and not is_free(seen) else seen.state for seen in scene.cards]
    holders = spell_holders(held, scene.tick.ts_ms)
    counts = {
        f"idle-held by {', '.join(holders)}" if holders else IDLE_HELD: len(held),
        **{state: states.count(state) for state in (ACTIVE, UNKNOWN, UNPARTITIONED)},
        f"reserved by {', '.join(owners)}": len(reserved),
        "whose reservations can't be read": len(taken) - len(reserved),
        "of these in use without reservation": sum(
            one.kind == UNRESERVED or bool(one.details["unreserved_users"]) for one in validations.values()
        ),
    }
    reasons = "".join(f"{number} {kind}; " for kind, number in counts.items() if number)
    return f"Requested {wanted}, available {count} ({reasons}gua status)"


def spell_holders(held: list[CardSeen], now_ms: int) -> list[str]:
    longest: dict[str, str] = {}
    told: list[tuple[UserNow, Since | None]] = []
    for seen in held:
        # Nobody may be idle for themselves, if all hold little and a card's threshold is for all together.
        holders = [user for user in seen.users if user.is_idle or user.name == UNATTRIBUTED] or seen.users
        told += [(user, seen.since if user.name == UNATTRIBUTED else user.since) for user in holders]
    for user, since in sorted(told, key=lambda item: item[1].ts_ms if item[1] else now_ms):
        length = f" for {spell_since(since, now_ms)}" if since else ""
        longest.setdefault(user.name, f"{printable(user.who)}{length}")
    return list(longest.values())
