"""Worlds as files: what is written is read again, and what can't be is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.worlds import laboratory
from benchmarks.worlds.world import HZ, World, load, save

TWO_HOURS = 7200


@pytest.fixture(scope="module")
def world() -> World:
    return laboratory.make(3, TWO_HOURS)


@pytest.fixture
def path(world: World, tmp_path: Path) -> Path:
    file = tmp_path / "world.npz"
    save(world, file)
    return file


def change(path: Path, **arrays: Any) -> None:
    with np.load(path) as file:
        found = dict(file)
    np.savez_compressed(path, **{**found, **{name: value(found[name]) for name, value in arrays.items()}})


def test_a_world_is_read_as_it_was_written(world: World, path: Path) -> None:
    again = load(path)
    assert (again.seconds, again.cards) == (world.seconds, world.cards)
    assert (again.outages, again.reboots, again.losses) == (world.outages, world.reboots, world.losses)
    assert [vars(one) | {"load": None} for one in again.processes] == [
        vars(one) | {"load": None} for one in world.processes
    ]
    for one, other in zip(world.processes, again.processes, strict=True):
        assert np.array_equal(one.load, other.load)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seconds", lambda seconds: seconds // 2, "does not live within the world"),
        ("card_gpu", lambda gpus: gpus + 1, "numbered from 0"),
        ("card_slices", lambda slices: slices + 2, "7 slices"),
        ("process_card", lambda cards: cards + 99, "no such card"),
        ("process_pid", lambda pids: pids * 0 + 7, "two processes at a time"),
        ("load", lambda percents: percents + 101, "not from 0 to 100"),
        ("reboots", lambda spans: spans * 0 + [0, TWO_HOURS], "host is down"),
        ("process_samples", lambda counts: counts[:-1], "is no world"),
        ("process_memory_mib", lambda sizes: sizes * 1000, "more memory than"),
    ],
)
def test_what_can_not_be_is_refused(path: Path, name: str, value: Any, words: str) -> None:
    change(path, **{name: value})
    with pytest.raises(ValueError, match=words):
        load(path)


def test_a_card_does_what_its_processes_do_together_but_no_more_than_all_it_can(world: World) -> None:
    for card in range(len(world.cards)):
        sums = [0] * (TWO_HOURS * HZ)
        for one in world.processes:
            if one.card == card:
                for position, percent in enumerate(one.load.tolist(), one.first):
                    sums[position] += percent
        assert world.card_load(card).tolist() == [min(percent, 100) for percent in sums]
