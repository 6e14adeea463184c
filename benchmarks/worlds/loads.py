"""What workloads do to a card: percent in each of `samples` samples."""

from __future__ import annotations

import numpy as np

from benchmarks.worlds.world import HZ, Load, Span

Rng = np.random.Generator


def uniform_log(rng: Rng, least: float, most: float) -> float:
    """A number between the two, short ones as often as long ones."""
    return float(np.exp(rng.uniform(np.log(least), np.log(most))))


def steady(rng: Rng, samples: int, percent: float) -> Load:
    return np.clip(rng.normal(percent, 3, samples), 1, 100).astype(np.uint8)


def training(rng: Rng, samples: int, pauses: Span, works: Span = (20, 120)) -> Load:
    """Work with pauses: first of all to load data, then for checkpoints, evaluation, epochs."""
    load = steady(rng, samples, rng.uniform(85, 97))
    at = _samples(rng.uniform(*pauses))
    load[:at] = 0
    while at < samples:
        at += _samples(rng.uniform(*works))
        pause = _samples(rng.uniform(*pauses))
        load[at : at + pause] = 0
        at += pause
    return load


def starved(rng: Rng, samples: int, shares: Span = (0.17, 0.5)) -> Load:
    """Training that waits for its data after each batch, and is busy for such a share of the time."""
    load = np.zeros(samples, np.uint8)
    share, batch = rng.uniform(*shares), rng.uniform(0.4, 1.5)
    wait = batch / share - batch
    at = 0
    while at < samples:
        busy = _samples(rng.normal(batch, batch / 5))
        load[at : at + busy] = rng.integers(88, 101)
        at += busy + _samples(rng.normal(wait, wait / 5))
    return load


def bursts(rng: Rng, samples: int, busy: Span, mean_gap: float, percent: Span = (60, 100)) -> Load:
    """Requests that come by chance, each of some seconds."""
    load = np.zeros(samples, np.uint8)
    at = _samples(rng.exponential(mean_gap))
    while at < samples:
        length = _samples(rng.uniform(*busy))
        load[at : at + length] = int(rng.uniform(*percent))
        at += length + _samples(rng.exponential(mean_gap))
    return load


def cells(rng: Rng, samples: int, gaps: Span, lengths: Span) -> Load:
    """A notebook: cells of some length, and gaps of thought, lunch or night."""
    load = np.zeros(samples, np.uint8)
    at = _samples(rng.uniform(10, 60))
    while at < samples:
        length = _samples(uniform_log(rng, *lengths))
        load[at : at + length] = int(rng.uniform(30, 100))
        at += length + _samples(uniform_log(rng, *gaps))
    return load


def _samples(seconds: float) -> int:
    return max(1, round(seconds * HZ))
