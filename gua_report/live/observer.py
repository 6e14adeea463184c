"""Observe the cards as gua status and gua free do: ask the driver, and the history since when."""

import argparse
import time
from collections.abc import Callable
from typing import Any

from gua_report.config import load_config
from gua_report.console.arguments import add_place, mebibytes
from gua_report.live import snapshot
from gua_report.live.cards_now import CardSeen, Scene, see_card
from gua_report.live.last_tick import fill_in, read_recent, restore_recent
from gua_report.machine.as_owner import ask_as_owner
from gua_report.people.containers import People, find_people, restore_people
from gua_report.reservations.cards import Validation
from gua_report.ticks.newest import AHEAD_MS, Files, Newest, find_newest, list_history
from gua_report.ticks.open_partition import open_partition
from gua_sample import console, settings
from gua_sample.idle_state import from_text, to_text
from gua_sample.idleness import NOTHING, Carried, Key, Rules, Runs, follow, runs_now, sight_of
from gua_sample.look_back import find_last_use, look_back
from gua_sample.partition_names import DAY_MS, samples_dir
from gua_sample.past_ticks import Past
from gua_sample.policy import IDLE_HELD
from gua_sample.records import Source, Tick
from gua_sample.rights import check_folder

DRIVER_TIMEOUT = "10s"
# Limits of looking back: days of history, and seconds that a person is willing to wait.
LOOK_BACK_DAYS = 7
LOOK_BACK_SECONDS = 0.5


def add_options(parser: console.Parser) -> None:
    """Add the options of a command that shows the cards, also those of a made-up laboratory."""
    add_look_options(parser)
    parser.add_argument("--memory-threshold", metavar="MIB", type=mebibytes, help="held above this much memory")
    parser.add_argument(
        "--simulate", metavar="SEED", nargs="?", const="0", help="the laboratory of gua demo, when that ends"
    )


def add_look_options(parser: console.Parser) -> None:
    """Add the options of a command that looks at this machine's driver by the thresholds of the configuration."""
    longest = f"how long the driver may take (default {DRIVER_TIMEOUT})"
    parser.add_argument("--timeout", metavar="D", default=DRIVER_TIMEOUT, help=longest)
    parser.set_defaults(memory_threshold=None, simulate=None)
    add_place(parser)


class Observer:
    """Observe the cards repeatedly: what does not change is read once, findings from the history are remembered."""

    def __init__(self, options: argparse.Namespace, complain: Callable[[str], None]) -> None:
        self.config = load_config(options.config)
        if options.memory_threshold is not None:
            policy = self.config.policy._replace(process_memory_mib=options.memory_threshold)
            self.config = self.config._replace(policy=policy)
        self._complain = complain
        self._said: set[str] = set()
        self.mapped = self.config.people  # by the administrator
        self.learn(People(self.mapped))
        self.seconds = settings.duration_ms(options.timeout) / 1000
        self.seed = None if options.simulate is None else settings.seed(options.simulate, "--simulate")
        # The default history is of real cards, not of the simulated ones.
        told = options.data_dir is not None or self.seed is None
        self.data_dir = settings.data_dir(options.data_dir) if told else ""
        self.source: Source | None = None if self.seed is not None else snapshot.machine()
        if self.data_dir and (warning := check_folder(self.data_dir)):
            complain(f"warning: {warning}")
        self.known = NOTHING
        self.look_back_seconds = LOOK_BACK_SECONDS

    def learn(self, people: People) -> None:
        """Take over who is who; what is missing is reported once."""
        self.containers = people.containers
        self.config = self.config._replace(people=people.names)
        self.rules = Rules(self.config.policy, people.names)
        if people.problem:
            self.complain_once(people.problem)

    def now_ms(self) -> int:
        if self.seed is None:
            return time.time_ns() // 1_000_000
        from gua_sample.simulate_plan import EXAMPLE_END_MS

        return EXAMPLE_END_MS

    def look(self) -> Scene:
        """The cards now, as this look alone shows them."""
        now_ms = self.now_ms()
        files, newest, recent = Files("", [], [], None), None, None
        if self.data_dir:
            answer = ask_as_owner(self.data_dir, lambda: self.read_newest(now_ms))
            files = Files(*answer[0])
            newest = Newest(*answer[1]) if answer[1] else None
            recent = restore_recent(*answer[2]) if answer[2] else None
            self.learn(restore_people(*answer[3]))
        if self.source is None:
            tick = snapshot.simulate(self.seed or 0, now_ms)
        else:
            tick = snapshot.take(self.source, recent.previous if recent else None, now_ms, self.seconds)
        tick = fill_in(tick, recent, newest.stale_ms if newest else 0)
        alone = follow(NOTHING, sight_of(tick, self.rules), lambda ts_ms: 0, self.rules.policy)
        return Scene(tick, self.see_cards(tick, alone), newest, files)

    def read_newest(self, now_ms: int) -> list[Any]:
        """The files of the history, its newest tick, the newest with cards, people: plain lists for a child to send."""
        files, people = list_history(samples_dir(self.data_dir)), find_people(self.data_dir, self.mapped)
        return [files, find_newest(files, now_ms), read_recent(files.partitions, now_ms), people]

    def look_back(self, scene: Scene) -> Scene:
        """The scene, completed with durations from the history."""
        tick = scene.tick
        now = sight_of(tick, self.rules)
        # As a text, because a child may have to send it.
        text = self.ask_past(scene, lambda past: to_text(look_back(past, now, find_lasting, self.known)))
        self.known = from_text(text)
        return scene._replace(cards=self.see_cards(tick, self.known))

    def find_last_use(self, scene: Scene, uuids: set[str]) -> dict[str, int]:
        found: dict[str, int] = self.ask_past(scene, lambda past: find_last_use(past, uuids))
        return found

    def ask_past(self, scene: Scene, question: Callable[[Past], Any]) -> Any:
        """The answer to a question about past ticks; read errors are reported once."""
        now_ms, partitions = scene.tick.ts_ms, scene.files.partitions
        reach = (now_ms - LOOK_BACK_DAYS * DAY_MS, now_ms + AHEAD_MS + 1)

        def answer() -> list[Any]:
            problems: list[str] = []
            past = Past(partitions, open_partition, self.rules, reach, problems.append, self.look_back_seconds)
            return [question(past), problems]

        told, problems = ask_as_owner(self.data_dir, answer) if self.data_dir else answer()
        for problem in problems:
            self.complain_once(problem)
        return told

    def see_cards(self, tick: Tick, told: Carried) -> list[CardSeen]:
        runs = runs_now(told, self.config.policy)
        cards = [see_card(card, tick, told, runs, self.config, self.containers) for card in tick.cards]
        return sorted(cards, key=lambda seen: (seen.card.facts.gpu_index, seen.card.facts.mig_index or 0))

    def validate(self, scene: Scene) -> dict[str, Validation]:
        """Check each card's use against reservations; results by uuid, empty if no reservations are configured."""
        if not any(self.config.reservations):
            return {}
        from gua_report.reservations.check import check

        cards = [seen.told() for seen in scene.cards]
        return check(cards, self.config, scene.tick.ts_ms, self.complain_once)

    def complain_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._complain(f"warning: {text}")


def find_lasting(carried: Carried, runs: Runs, edge_ms: int) -> set[Key]:
    """The cards that are in their state, and the processes that idle-hold one, since that time or longer."""
    lasting = {key: run for key, run in runs.items() if run.since_ms <= edge_ms}
    return {key for key, run in lasting.items() if key[1] is None or run.state == IDLE_HELD}
