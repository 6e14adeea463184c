"""Observe the cards as gua status and gua free do: ask the driver, and the sampler's last state since when.

And whether sampling is alive: the timer's state, and the age of the newest tick.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gua_report.config import Config, load_config
from gua_report.console.arguments import add_place, mebibytes
from gua_report.console.spelling import duration
from gua_report.live import snapshot
from gua_report.live.cards_now import Scene, see_card
from gua_report.live.snapshot import fill_in, left_by, read_recent
from gua_report.live.validation import Validation, check
from gua_report.machine import units
from gua_report.machine.child import ask_as_owner
from gua_report.people.containers import find_people, restore_people
from gua_report.ticks.newest import Files, Newest, find_newest, list_history
from gua_sample import console, idle_state, settings
from gua_sample.containers import NOTHING
from gua_sample.idleness import Carried, begin, follow, rename, runs_now
from gua_sample.partition_names import samples_dir
from gua_sample.pending import restore
from gua_sample.policy import OneThreshold, typical_gap
from gua_sample.records import Source, Tick
from gua_sample.rights import check_folder

DRIVER_TIMEOUT = "10s"


def add_options(parser: console.Parser) -> None:
    add_look_options(parser)
    parser.add_argument("--memory-threshold", metavar="MIB", type=mebibytes, help="held above this, by anybody")
    parser.add_argument(
        "--simulate", metavar="SEED", nargs="?", const="0", help="the laboratory of gua demo, when that ends"
    )


def add_look_options(parser: console.Parser) -> None:
    longest = f"how long the driver may take (default {DRIVER_TIMEOUT})"
    parser.add_argument("--timeout", metavar="D", default=DRIVER_TIMEOUT, help=longest)
    parser.set_defaults(memory_threshold=None, simulate=None)
    add_place(parser)


class Observer:
    def __init__(self, options: argparse.Namespace, complain: Callable[[str], None]) -> None:
        self.config = load_config(options.config)
        self.stored_policy = self.config.policy  # of the days in rollups
        if options.memory_threshold is not None:
            mib = options.memory_threshold
            policy = OneThreshold(self.config.policy.utilization_percent, mib, mib)
            self.config = self.config._replace(policy=policy)
        self._complain = complain
        self._said: set[str] = set()
        self.containers = NOTHING
        self.seconds = settings.duration_ms(options.timeout) / 1000
        self.seed = None if options.simulate is None else settings.seed(options.simulate, "--simulate")
        # The default history is of real cards, not of the simulated ones.
        told = options.data_dir is not None or self.seed is None
        self.data_dir = settings.data_dir(options.data_dir) if told else ""
        self.source: Source | None = None if self.seed is not None else snapshot.machine()
        if self.data_dir and (warning := check_folder(self.data_dir)):
            complain(f"warning: {warning}")

    def now_ms(self) -> int:
        if self.seed is None:
            return time.time_ns() // 1_000_000
        from gua_sample.simulate_plan import EXAMPLE_END_MS

        return EXAMPLE_END_MS

    def look(self) -> Scene:
        """The cards now, and since when, as far as the sampler's last state tells."""
        now_ms = self.now_ms()
        files, newest, recent, state = Files("", [], [], None), None, None, ""
        if self.data_dir:
            answer = ask_as_owner(self.data_dir, lambda: self.read_newest(now_ms))
            listed, found, with_cards, people, state, problems = answer
            files, newest = Files(*listed), Newest(*found) if found else None
            recent = restore(with_cards) if with_cards else None
            self.containers, nameless = restore_people(*people)
            for problem in filter(None, [nameless, *problems]):
                self.complain_once(problem)
        if self.source is None:
            tick = snapshot.simulate(self.seed or 0, now_ms)
        else:
            tick = snapshot.take(self.source, left_by(recent) if recent else None, now_ms, self.seconds)
        tick = fill_in(tick, recent, newest.stale_ms if newest else 0)
        carried = take_up(state, newest.ts_ms if newest else None, tick, self.config)
        runs = runs_now(carried)
        cards = [see_card(card, tick, carried, runs, self.config, self.containers) for card in tick.cards]
        cards.sort(key=lambda seen: (seen.card.facts.gpu_index, seen.card.facts.mig_index or 0))
        return Scene(tick, cards, newest, files, recent=recent, last_use_ms=carried.used_ms)

    def read_newest(self, now_ms: int) -> list[Any]:
        """As plain lists for a child to send."""
        files, people = list_history(samples_dir(self.data_dir)), find_people(self.data_dir, self.config.people)
        problems: list[str] = []
        recent = read_recent(files.partitions, now_ms, problems.append)
        return [files, find_newest(files, now_ms), recent, people, idle_state.read(self.data_dir), problems]

    def validate(self, scene: Scene) -> dict[str, Validation]:
        """Each card's use against reservations, by uuid; empty if none are configured."""
        return check(scene.cards, self.config, scene.tick.ts_ms, self.complain_once)

    def complain_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._complain(f"warning: {text}")


def take_up(text: str, newest_ms: int | None, tick: Tick, config: Config) -> Carried:
    """The state now, from that which the sampler left, if it is of the newest tick.

    By other thresholds than ours it tells only when each card was last used: free cards are in the order of that.
    """
    known, policy = idle_state.understand(text), config.policy
    if known is None or idle_state.is_outdated(known, newest_ms):
        known = begin(policy)
    elif known.policy != policy or isinstance(policy, OneThreshold):
        known = begin(policy)._replace(used_ms=known.used_ms)
    interval_ms = known.interval_ms or typical_gap(known.times_ms)  # a look is no tick, and tells of no interval
    return rename(follow(known, tick, interval_ms), config.people)


class Sampling(NamedTuple):
    timer: str | None  # active, inactive, failed, not installed, ...; None: unknown, or not asked for
    problem: str | None  # why the timer's state is unknown, or which other folder it writes to
    newest: Newest | None
    files: Files
    is_alive: bool
    has_folder: bool = True  # the data folder exists


def look_at_sampling(data_dir: str, files: Files, newest: Newest | None, now_ms: int) -> Sampling:
    found = units.find_units(data_dir)
    problem = found.problem
    if found.units and not found.units.feed(data_dir):
        problem = f"writes to {found.units.folder}"
    elif newest and found.units:
        due_ms = units.next_run_ms(found.units, newest.ts_ms, now_ms)
        newest = newest.by_timer(units.interval_ms(found.units), due_ms)
    is_alive = newest is not None and newest.error is None and not newest.is_stale(now_ms)
    timer = None if found.problem else _timer_state(found.units)
    return Sampling(timer, problem, newest, files, is_alive, os.path.lexists(data_dir))


def _timer_state(found: units.Units | None) -> str:
    load = found.timer.get("LoadState", "not-found") if found else "not-found"
    if found is None or load == "not-found":
        return "not installed"
    return found.timer.get("ActiveState") or "unknown" if load == "loaded" else load


def sampling_text(sampling: Sampling, now_ms: int) -> str:
    if sampling.timer is None:
        timer = "simulated" if sampling.problem is None else f"{units.TIMER} can't be asked"
    else:
        timer = f"{units.TIMER} {sampling.timer}" + (f" ({sampling.problem})" if sampling.problem else "")
    if sampling.files.hidden:
        newest = f"the history can't be looked into ({sampling.files.hidden})"
    elif sampling.newest is None:
        newest = "no tick that can be read" if sampling.files.partitions else "no tick yet"
        newest = newest if sampling.has_folder else "no data folder"
    else:
        newest = f"newest tick {duration(max(0, now_ms - sampling.newest.ts_ms) / 1000)} ago"
        newest += f" has no cards ({sampling.newest.error})" if sampling.newest.error else ""
    return f"Sampling: {timer}, {newest}" + ("" if sampling.is_alive else ": see gua doctor")
