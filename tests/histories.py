"""Random histories from Hypothesis: ticks around a midnight, with everything that can happen to them."""

from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gua_sample.records import Tick
from tests.lab import (
    HIDDEN,
    HOUR_MS,
    MONDAY_MS,
    SECOND_MS,
    Gpu,
    Job,
    busy,
    failed,
    free,
    held,
    lost,
    mig,
    sliced,
    tick,
    unpartitioned,
)

KINDS: list[Any] = [
    lambda index, pid: busy(Job(pid, f"user{pid % 3}"), index=index),
    lambda index, pid: held(Job(pid, f"user{pid % 3}"), Job(pid + 50, f"user{pid % 2}"), index=index),
    lambda index, pid: free(index),
    lambda index, pid: lost(index),
    lambda index, pid: HIDDEN._replace(place=index),
    lambda index, pid: Gpu(index, None, (Job(pid),)),
    lambda index, pid: None,  # no such card
    # An idler beside a worker; two who work a little, and nobody else; a desktop beside an idler; work by nobody.
    lambda index, pid: busy(Job(pid, "user0", sm_percent=0), Job(pid + 50, "user1", sm_percent=80), index=index),
    lambda index, pid: Gpu(index, 12.0, (Job(pid, "user0", sm_percent=6), Job(pid + 50, "user1", sm_percent=5))),
    lambda index, pid: held(Job(pid, sm_percent=0), Job(7, "gdm", 45, 2, type="graphics"), index=index),
    lambda index, pid: Gpu(index, 95.0),
    # Less work than when it is busy.
    lambda index, pid: Gpu(index, 40.0, (Job(pid, f"user{pid % 3}", sm_percent=40),)),
    lambda index, pid: busy(Job(pid, "user0", sm_percent=35), Job(pid + 50, "user1", sm_percent=0), index=index),
    lambda index, pid: busy(Job(pid, "user0", sm_percent=90), Job(pid + 50, "user1", sm_percent=80), index=index),
    # Memory of processes is not told, or they are small, or one of them is not known to work.
    lambda index, pid: Gpu(index, 60.0, (Job(pid, "user0", None, 0), Job(pid + 50, "user1", None, 70)), used_mib=9000),
    lambda index, pid: Gpu(index, 4.0, (Job(7, "gdm", None, 3, type="graphics"),), used_mib=50),
    lambda index, pid: busy(Job(pid, "user0", 60, sm_percent=3), Job(pid + 50, "user1", 60), index=index),
    lambda index, pid: Gpu(index, 15.0, (Job(pid, "user0", sm_percent=4), Job(pid + 50, "user1"))),
]
# MIG on card 2, all sorts of it.
INSTANCES: list[list[Gpu]] = [
    [mig(2, 0, 90.0, (Job(90, "mig"),)), mig(2, 1)._replace(total_mib=20_000)],
    [sliced(2, 0, 3, 90.0, (Job(90, "mig"),)), sliced(2, 1)],
    [failed(mig(2, 0)), sliced(2, 1)],
    [sliced(2, 0, 3), failed(mig(2, 1)), mig(2, 2)],
    [mig(2, 0)._replace(parent_mib=81_920), sliced(2, 1, 4)],
    [sliced(2, place) for place in range(7)],
    [unpartitioned(2)],
]


class Moment(NamedTuple):
    """One tick in a short form, as failing examples are printed."""

    gap: int  # seconds since the tick before
    told: int | None
    boot: int
    error: str | None
    ran: int  # seconds until it ended or was killed
    kinds: tuple[int, int]  # positions in KINDS, one for each card
    pid: int
    instances: int | None  # position in INSTANCES

    def tick(self, ts_ms: int) -> Tick:
        gpus = [KINDS[kind](index, self.pid + 10 * index) for index, kind in enumerate(self.kinds)]
        gpus = [gpu for gpu in gpus if gpu is not None]
        gpus += [] if self.instances is None else INSTANCES[self.instances]
        error = self.error or (None if gpus else "no_cards")
        interval_ms = None if self.told is None else self.told * SECOND_MS
        boot, nvml_ms = f"boot-{self.boot}", self.ran * SECOND_MS
        return tick(ts_ms, *([] if error else gpus), interval_ms=interval_ms, boot=boot, error=error, nvml_ms=nvml_ms)


@st.composite
def histories(draw: st.DrawFn) -> list[Moment]:
    """Ticks around Monday's midnight: late, missing and slow ones, reboots, driver errors, cards that fail, MIG."""
    base = draw(st.sampled_from([10, 60, 300, 1800]))
    told = draw(st.sampled_from([None, base]))
    moments: list[Moment] = []
    boot = 0
    for _ in range(draw(st.integers(1, 14))):
        kinds = draw(st.tuples(st.integers(0, len(KINDS) - 1), st.integers(0, len(KINDS) - 1)))
        error = draw(st.sampled_from([None] * 6 + ["unknown", "timeout"]))
        pid = draw(st.integers(1, 4))
        instances = draw(st.sampled_from([*[None] * 6, *range(len(INSTANCES))]))
        for _ in range(draw(st.integers(1, 4))):  # several ticks see the same
            gap = round(base * draw(st.sampled_from([1, 1, 1, 1, 0.5, 1.3, 2, 2.5, 2.6, 9])))
            interval = None if draw(st.integers(0, 7)) == 7 else told
            ran = round(base * draw(st.sampled_from([0, 0, 0, 0.5, 1.2, 3, 7, 20])))
            moments.append(Moment(gap, interval, boot, error, ran, kinds, pid, instances))
        boot += draw(st.integers(0, 7)) == 7
    return moments


def ticks_of(moments: list[Moment], before_midnight: float) -> list[Tick]:
    """The ticks of these moments, with this fraction of the history before midnight."""
    length = sum(moment.gap for moment in moments) * SECOND_MS
    ticks, ts_ms = [], MONDAY_MS - round(before_midnight * length)
    for moment in moments:
        ts_ms += moment.gap * SECOND_MS
        ticks.append(moment.tick(ts_ms))
    return ticks


part = st.integers(0, 100).map(lambda percent: percent / 100)
many = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])


def span(ticks: list[Tick]) -> tuple[int, int]:
    """The time from the first tick to an hour after the last."""
    return ticks[0].ts_ms, ticks[-1].ts_ms + HOUR_MS
