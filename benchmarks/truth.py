"""How true the hours are: a world of which all is known is recorded and reported, and that compared with the truth.

    python benchmarks/truth.py                     a week of one seed, a tick every 30 s
    python benchmarks/truth.py --seed 1 2 3 --interval 15 --pauses 2:90
    python benchmarks/truth.py --world FILE        a world of your own: benchmarks/worlds/world.py has the format
    python benchmarks/truth.py --no-zeros          a driver that writes nothing while a card idles

The ticks go through the sampler's own code on a driver that keeps real buffers, the hours through the report, from
ticks and from rollups. gpu-usage-audit 1.8.0 takes its ticks at the same moments from the same driver. Prints the
errors by state, workload, person and card, and each bound; exits 1 if one is missed. A week takes three minutes.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tabulate import tabulate

from benchmarks.figures import Bounds
from benchmarks.worlds import compare, laboratory, world
from benchmarks.worlds.driver import Behaviour, Driver
from benchmarks.worlds.ground_truth import ACTIVE, HELD, STATES, Truth, find_truth
from benchmarks.worlds.record import moments_of, observed_spans, record
from gua_report.commands import rollup

MEMORY = "/dev/shm"  # noqa: S108 - only a place for temporary folders
DAY_SECONDS = 86_400
FINE_INTERVAL = 15
LONGEST_PAUSE_SECONDS, SHORTEST_BUFFER_SECONDS = 20, 16  # that ticks of 30 s can do with
ALLOWED_SHARE, ALLOWED_HOURS = 0.03, 0.5  # of a person's or workload's held hours: the larger


class Result(NamedTuple):
    """All that is known of one recorded world."""

    truth: Truth
    hours: compare.Hours
    from_rollups: compare.Hours
    peer: dict[str, Any] | None


class Allowed(NamedTuple):
    """Bounds of errors in percent, and of episodes in percent that are right."""

    held: float
    active: float
    episodes: float
    sharp_episodes: float


def allowed(interval: float, behaviour: Behaviour, longest_pause: float) -> Allowed | None:
    """The bounds that a recording has to hold; None where it can't know better."""
    if not behaviour.has_samples:
        return None
    if interval <= FINE_INTERVAL:
        return Allowed(0.3, 0.3, 98, 99)
    if longest_pause > LONGEST_PAUSE_SECONDS or behaviour.buffer_seconds < SHORTEST_BUFFER_SECONDS:
        return None
    return Allowed(1, 2, 90, 99)


def run(
    made: world.World, behaviour: Behaviour, interval: float, seed: int, folder: Path, with_peer: bool = True
) -> Result:
    """Record and report a world in a folder."""
    data_dir, answers = folder / "data", folder / "answers"
    moments = moments_of(made, interval, seed)
    with answers.open("w") as lines:
        record(Driver(made, behaviour), moments, data_dir, lines)
    truth = find_truth(made, observed_spans(moments, interval))
    hours = compare.report_hours(made, data_dir)
    with redirect_stdout(io.StringIO()):
        if rollup.main(["--data-dir", str(data_dir), "--config", os.devnull]):
            sys.exit("gua rollup failed")
    from_rollups = compare.report_hours(made, data_dir)
    return Result(truth, hours, from_rollups, compare.peer_hours(folder, answers, interval) if with_peer else None)


def percent_off(value: float, truth: float) -> float:
    if truth:
        return 100 * (value / truth - 1)
    return float("inf") if value else 0.0


def totals(cards: list[list[float]]) -> list[float]:
    return [sum(column) for column in zip(*cards, strict=True)]


def show_states(made: world.World, result: Result) -> None:
    whole = [hours for hours, card in zip(result.truth.cards, made.cards, strict=True) if not card.slices]
    truth, of_whole, by_second = totals(result.truth.cards), totals(whole), totals(result.truth.cards_by_second)
    rows = []
    for number, state in enumerate(STATES):
        told = result.hours.states[number]
        row = [state, truth[number], told, told - truth[number], percent_off(told, truth[number]), by_second[number]]
        theirs = result.peer.get(state) if result.peer else None
        rows.append(row + ([theirs, percent_off(theirs, of_whole[number])] if theirs is not None else [None, None]))
    headers = ["GPU-hours", "truth", "gua", "error h", "error %", "by second", "peer", "peer's error %"]
    show(rows, headers)


def show_people(made: world.World, result: Result) -> None:
    """Held hours of workloads, people and cards."""
    truth, told = compare.held_of(result.truth.people), compare.held_of(result.hours.people)
    theirs = result.peer["people"] if result.peer else {}
    by_workload = [compare.held_by_workload(made, held) for held in (truth, told)]
    rows: list[list[Any]] = [_row(name, value, by_workload[1][name], None) for name, value in by_workload[0].items()]
    people = [
        _row(user, truth.get(user, 0.0), told.get(user, 0.0), theirs.get(user)) for user in sorted({*truth, *told})
    ]
    cards = [
        _row(str(number), true[HELD], found[HELD], None)
        for number, (true, found) in enumerate(zip(result.truth.cards, result.hours.cards, strict=True))
    ]
    for what, found in (("workload", rows), ("person", people), ("card", cards)):
        show(found, [f"idle-held by {what}", "truth", "gua", "error h", "error %", "peer", "peer's error h"])


def _row(name: str, truth: float, told: float, theirs: float | None) -> list[Any]:
    error = None if theirs is None else theirs - truth
    # Of next to nothing, the error in hours is what counts.
    return [
        name,
        truth,
        told,
        told - truth,
        percent_off(told, truth) if truth >= ALLOWED_HOURS else None,
        theirs,
        error,
    ]


def show(rows: list[list[Any]], headers: list[str]) -> None:
    print(tabulate(rows, headers, floatfmt=[""] + [".2f"] * (len(headers) - 1), missingval="-"), end="\n\n", flush=True)


def judge(made: world.World, result: Result, bounds: Bounds, limit: Allowed | None) -> None:
    """Print each figure beside its bound, or by itself where there is none."""
    truth, hours = result.truth, result.hours
    rolled = compare.largest_difference(hours, result.from_rollups)
    bounds.show("the same report from rollups differs by", rolled * 3600, "s", 1)
    bounds.show("observed hours are off by", abs(percent_off(hours.observed, truth.observed_hours)), "%", 0.01)
    true = totals(truth.cards)
    if limit is None:
        print("  (no bounds: this driver, or these pauses, are beyond what such ticks can see)")
    else:
        bounds.show("idle-held in all is off by", abs(percent_off(hours.states[HELD], true[HELD])), "%", limit.held)
        bounds.show("active in all is off by", abs(percent_off(hours.states[ACTIVE], true[ACTIVE])), "%", limit.active)
        _judge_people(made, result, bounds)
    for only_sharp, what in ((False, "clear episodes"), (True, "  of which the edge is sharp")):
        for is_start, edge in ((True, "start"), (False, "end")):
            found = compare.find_edges(truth.episodes, hours, is_start, only_sharp)
            text = f"{what}: {edge} within 45 s, of {found.total}"
            if limit is None:
                print(f"{text:<58} {found.percent:7.2f} %")
            else:
                least = limit.sharp_episodes if only_sharp else limit.episodes
                bounds.show(text, found.percent, "%", least, least=True)
    print(flush=True)


def _judge_people(made: world.World, result: Result, bounds: Bounds) -> None:
    truth, told = compare.held_of(result.truth.people), compare.held_of(result.hours.people)
    by_workload = [compare.held_by_workload(made, held) for held in (truth, told)]
    pairs: list[tuple[str, dict[str, float], dict[str, float]]] = [
        ("workload", by_workload[0], by_workload[1]),
        ("person", truth, told),
    ]
    for what, true, found in pairs:
        over = {
            name: abs(found.get(name, 0.0) - true.get(name, 0.0))
            / max(ALLOWED_SHARE * true.get(name, 0.0), ALLOWED_HOURS)
            for name in {*true, *found}
        }
        worst = max(over, key=lambda name: over[name])
        bounds.show(f"worst {what}'s held hours, over 3 % or 0.5 h", over[worst], "x", 1)
        print(f"  ({worst}: {found.get(worst, 0.0):.2f} h, truth {true.get(worst, 0.0):.2f} h)")
    if by_workload[0].get(laboratory.IDLER):
        off = abs(percent_off(*(held[laboratory.IDLER] for held in reversed(by_workload))))
        bounds.show("an idler beside a worker: held hours are off by", off, "%", 0.5)


def parse_pauses(text: str) -> world.Span:
    shortest, longest = map(float, text.split(":"))
    if not 0 < shortest <= longest:
        raise ValueError
    return shortest, longest


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="of world and ticks; several are run in turn")
    parser.add_argument("--days", type=float, default=7.0, help="how long the world lasts (7)")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds from tick to tick (30)")
    parser.add_argument("--pauses", type=parse_pauses, default=(2.0, 20.0), help="of trainings, in seconds (2:20)")
    parser.add_argument("--world", type=Path, help="a world's file, instead of a seeded one")
    parser.add_argument("--save-world", type=Path, help="write the (last) world's file as well")
    parser.add_argument("--buffer", type=float, default=16.0, help="seconds that the driver's buffers hold (16)")
    parser.add_argument("--no-zeros", action="store_true", help="the driver adds nothing while a card idles")
    parser.add_argument("--only-rates", action="store_true", help="the driver has no buffer of utilization")
    parser.add_argument("--no-process-memory", action="store_true", help="the driver does not tell it")
    parser.add_argument("--no-peer", action="store_true", help="leave gpu-usage-audit out")
    return parser.parse_args(arguments)


def find_world(options: argparse.Namespace, seed: int) -> world.World:
    if options.world:
        return world.load(options.world)
    return laboratory.make(seed, round(options.days * DAY_SECONDS), options.pauses)


def main() -> int:
    options = parse()
    behaviour = Behaviour(options.buffer, not options.no_zeros, not options.only_rates, not options.no_process_memory)
    limit = allowed(options.interval, behaviour, 0 if options.world else options.pauses[1])
    bounds = Bounds()
    # On a memory file system where there is one: a week is 20,000 transactions, and no disk is measured.
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    for seed in options.seed:
        try:
            made = find_world(options, seed)
        except (OSError, ValueError) as error:
            sys.exit(str(error))
        if options.save_world:
            world.save(made, options.save_world)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="gua-truth-", dir=memory) as name:
            result = run(made, behaviour, options.interval, seed, Path(name), not options.no_peer)
        what = str(options.world) if options.world else f"seed {seed}"
        days, seconds = made.seconds / DAY_SECONDS, time.perf_counter() - began
        print(
            f"{what}: {days:g} days, {len(made.cards)} cards, a tick every {options.interval:g} s ({seconds:.0f} s)\n"
        )
        show_states(made, result)
        show_people(made, result)
        judge(made, result, bounds, limit)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
