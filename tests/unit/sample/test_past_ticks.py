"""Past ticks, as they are read to find since when states last."""

from __future__ import annotations

from pathlib import Path

from gua_sample.idleness import Rules, sight_of
from gua_sample.partition_file import open_to_read
from gua_sample.partition_names import list_partitions, samples_dir
from gua_sample.past_ticks import Past
from tests.lab import HOUR_MS, MONDAY_MS, Gpu, Job, free, lost, tick, write


def past_of(folder: Path, end_ms: int) -> Past:
    partitions = list_partitions(samples_dir(str(folder)))
    return Past(partitions, open_to_read, Rules(), (end_ms - 7 * 24 * HOUR_MS, end_ms), print)


def test_a_tick_of_the_history_tells_the_same_as_that_tick_now(tmp_path: Path) -> None:
    jobs: tuple[Job, ...] = (Job(1, memory_mib=None, sm_percent=0), Job(2, memory_mib=5, sm_percent=3))
    jobs += (Job(3, sm_percent=0), Job(4, memory_mib=100, sm_percent=None), Job(5, memory_mib=101, sm_percent=None))
    gpus = [Gpu(index, utilization, jobs[: index + 1]) for index, utilization in enumerate((0.0, None, 9.9, 10.0, 0.0))]
    gpus += [lost(7), Gpu(8, 0.0, (Job(6, memory_mib=60), Job(7, memory_mib=60)))]
    now = tick(MONDAY_MS, *gpus)
    write(tmp_path, [now])
    past, span = past_of(tmp_path, MONDAY_MS + 1), (MONDAY_MS, MONDAY_MS + 1)
    expected = sight_of(now)
    assert past.read(span) == [expected]
    (some,) = past.read(span, {"GPU-2", "GPU-8"})
    assert expected.cards
    assert some.cards == {uuid: expected.cards[uuid] for uuid in ("GPU-2", "GPU-8")}


def test_a_tick_without_the_cards_in_question_is_no_tick_without_cards(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS, free()), tick(MONDAY_MS + 1, error="timeout")])
    failed, seen = past_of(tmp_path, MONDAY_MS + 2).read((MONDAY_MS, MONDAY_MS + 2), {"GPU-9"})
    assert (failed.cards, seen.cards) == (None, {})
