"""Whatever happens to a folder, in any order: what is stored of a day is what a recount of its ticks says."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gua_report.config import Retention
from gua_report.importing.intake import Intake, Source, Tally
from gua_report.rollups.index import Stored, is_closed, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.summary.plan import make_plan
from gua_report.ticks.history import History
from gua_report.upkeep.nightly import Done, Upkeep, alone
from gua_report.window import midnight_ms, number_of
from gua_sample import store
from gua_sample.errors import EmptyPartition
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path
from gua_sample.policy import DEFAULT
from gua_sample.records import Tick
from tests.lab import CONFIG, HOUR_MS, MONDAY_MS, Gpu, Job, busy, free, held, lost, sliced, tick, unpartitioned
from tests.machine import query
from tests.recount import Counted, Recount, as_stored, differences
from tests.rolling import Killed

# To look further: GUA_TEST_MODEL_EXAMPLES=2000 GUA_TEST_MODEL_SEED=7 pytest tests/unit/upkeep/test_nightly_model.py
EXAMPLES = os.environ.get("GUA_TEST_MODEL_EXAMPLES")
SEED = os.environ.get("GUA_TEST_MODEL_SEED")
FEW, MANY = 10, 60  # in make test and in make test-real; each takes more than half a second

ALICE, BOB = Job(100, "alice"), Job(200, "bob", uid=1001)
IDLE_ALICE, BUSY_BOB = ALICE._replace(sm_percent=0), BOB._replace(sm_percent=60)
KINDS = ("busy", "held", "shared", "free", "lost", "sliced", "unpartitioned", "error")


def gpus(kind: str, ts_ms: int) -> list[Gpu]:
    joules = ((ts_ms - MONDAY_MS) // 100) ** 2  # not by the minute: who divides it elsewhere gets something else
    if kind == "sliced":
        return [sliced(0, 0, 3, 0.0, (ALICE,)), sliced(0, 1, 1), held(BOB, index=1, energy=joules)]
    card = {
        "busy": busy(BOB, energy=joules),
        "held": held(ALICE, energy=joules),
        "shared": busy(IDLE_ALICE, BUSY_BOB, energy=joules),
        "free": free(energy=joules),
        "lost": lost(),
        "unpartitioned": unpartitioned(),
    }
    return [] if kind == "error" else [card[kind], held(BOB, index=1, energy=joules)]


@contextmanager
def killed_at(folder: str, moment: int) -> Iterator[None]:
    """Before the change of that number to a file in the folder. A transaction is one change, when it is committed."""
    count = 0

    def step(path: Any) -> None:
        nonlocal count
        if str(path).startswith(folder):
            count += 1
            if count == moment:
                raise Killed

    def before(function: Any) -> Any:
        def call(path: Any, *arguments: Any, **keywords: Any) -> Any:
            step(path)
            return function(path, *arguments, **keywords)

        return call

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            changes = sql.lstrip().startswith(("COMMIT", "VACUUM", "CREATE")) or (
                sql.startswith(("UPDATE", "DELETE")) and not self.in_transaction
            )
            if changes and self.path.startswith(folder):
                step(self.path)
            return super().execute(sql, *arguments)

        path = ""

    connect = sqlite3.connect

    def counted(path: Any, *arguments: Any, **keywords: Any) -> Any:
        connection: Connection = connect(path, *arguments, **keywords, factory=Connection)
        connection.path = str(path).removeprefix("file:")
        return connection

    changed = {name: before(getattr(os, name)) for name in ("replace", "rename", "unlink", "utime", "mkdir", "link")}
    with patch.object(sqlite3, "connect", counted), patch.multiple(os, **changed):
        yield


class Folder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.data_dir = tempfile.mkdtemp(prefix="gua-model-")
        self.samples = store.prepare(self.data_dir)
        self.now_ms = MONDAY_MS + 20 * HOUR_MS
        self.boot = 1
        self.written: dict[int, Tick] = {}
        self.said: list[str] = []
        self.counted, self.days, self.counted_ticks = Recount([]), dict[str, Counted](), 0

    def teardown(self) -> None:
        shutil.rmtree(self.data_dir)

    # -- what happens

    @initialize()
    def begin(self) -> None:
        self.spend_a_day(30, ["held"], True, 7)

    @rule(
        every_s=st.sampled_from([30, 60, 300]),
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=7),
        told=st.booleans(),
        after_s=st.integers(0, 40),
        nightly=st.booleans(),
    )
    def spend_a_day(self, every_s: int, kinds: list[str], told: bool, after_s: int, nightly: bool = False) -> None:
        """Ticks up to midnight, after a hole, and some beyond it; more of them than are left when the day expires."""
        midnight = (self.now_ms // DAY_MS + 1) * DAY_MS
        start = max(self.now_ms, midnight - 100 * every_s * 1000) + after_s * 1000
        self.sample(start, midnight + 3 * every_s * 1000, every_s, kinds, told)
        if nightly:
            self.now_ms += HOUR_MS
            self.run(2, None, False, False)

    @rule(
        count=st.integers(1, 30),
        every_s=st.sampled_from([30, 60]),
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=7),
        told=st.booleans(),
    )
    def go_on(self, count: int, every_s: int, kinds: list[str], told: bool) -> None:
        self.sample(self.now_ms + 1000, self.now_ms + count * every_s * 1000, every_s, kinds, told)

    @rule(days=st.sampled_from([0, 0, 0, 1, 3]))
    def reboot(self, days: int) -> None:
        """And perhaps be off for some days."""
        self.now_ms += days * DAY_MS
        self.boot += 1

    @rule(data=st.data(), seconds=st.sampled_from([-40, -10, -1, 1, 3, 45]), kind=st.sampled_from(KINDS))
    def come_late(self, data: st.DataObject, seconds: int, kind: str) -> None:
        """A tick next to a midnight, as one that had to wait for its turn."""
        days = History(self.data_dir).days or sorted({self.day(ts_ms) for ts_ms in self.written})
        midnight = midnight_ms(data.draw(st.sampled_from(days))) + data.draw(st.sampled_from([0, DAY_MS]))
        late = self.tick(midnight + 1000 * seconds + 1, kind, data.draw(st.booleans()))
        if late.ts_ms > self.now_ms or self.is_final(self.day(late.ts_ms)):
            return
        assert not store.append(self.samples, late, self.said.append).kept
        self.written[late.ts_ms] = late

    @rule(data=st.data(), seconds=st.lists(st.integers(0, 86_399), min_size=1, max_size=3), kind=st.sampled_from(KINDS))
    def bring_in(self, data: st.DataObject, seconds: list[int], kind: str) -> None:
        """By the real importer, which takes nothing of days that are final."""
        days = sorted(
            {day_of(midnight_ms(self.day(ts_ms)) + step * DAY_MS) for ts_ms in self.written for step in (0, 1)}
        )
        midnight = midnight_ms(data.draw(st.sampled_from(days)))
        found = [self.tick(midnight + 1000 * second + 5, kind, True) for second in sorted(set(seconds))]
        if self.is_forgotten(day_of(midnight)):
            return
        before = {row["ts_ms"] for row in self.rows()}
        tally = Tally()
        source = Source("model", ["all"], lambda _: found)
        Intake(self.data_dir, tally, self.now_ms, False).take(source)
        assert not tally.refused
        taken = {row["ts_ms"] for row in self.rows()} - before
        for one in found:
            if one.ts_ms in taken:
                assert not self.is_final(self.day(one.ts_ms))
                self.written[one.ts_ms] = one

    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        """Not what a killed run was about to remove: that would be taken for ticks that came late, and said."""
        days = [day for day in History(self.data_dir).days if not self.is_final(day)]
        if days:
            os.utime(partition_path(self.samples, data.draw(st.sampled_from(days))))

    @rule(
        raw_days=st.sampled_from([None, 1, 2, 3]),
        rollup_days=st.sampled_from([None, None, 2, 5]),
        rebuild=st.booleans(),
        compacting=st.booleans(),
    )
    def roll_up(self, raw_days: int | None, rollup_days: int | None, rebuild: bool, compacting: bool) -> None:
        done = self.run(raw_days, rollup_days, rebuild, compacting)
        assert not done.failed
        again = self.run(raw_days, None, False, False)
        assert again.rolled_up == []
        stored = self.index()
        for day in History(self.data_dir).days:
            assert day in stored or day in done.open or not is_closed(day, self.now_ms), day

    @rule(
        raw_days=st.sampled_from([None, 1, 2, 3]),
        rollup_days=st.sampled_from([None, None, 2, 5]),
        rebuild=st.booleans(),
        compacting=st.booleans(),
        moment=st.integers(1, 60),
    )
    def be_killed(
        self, raw_days: int | None, rollup_days: int | None, rebuild: bool, compacting: bool, moment: int
    ) -> None:
        with killed_at(self.data_dir, moment), suppress(Killed):
            self.run(raw_days, rollup_days, rebuild, compacting)

    # -- what must be so

    @invariant()
    def what_reports_take_from_sums_is_what_a_recount_says(self) -> None:
        assert not self.said
        history = History(self.data_dir)
        plan = make_plan(history, DEFAULT)
        assert plan.warnings == ()
        assert plan.late == ()
        for day in sorted(plan.days):
            found = as_stored(read_days(path_of(self.data_dir), day, day))
            assert differences(found, self.recount(day)) == [], day

    # -- how

    def recount(self, day: str) -> Counted:
        """What was written of the day, counted again only if anything has been written since."""
        if self.counted_ticks < len(self.written):  # of which nothing is ever taken away or replaced
            self.counted, self.days, self.counted_ticks = Recount(self.written.values()), {}, len(self.written)
        if day not in self.days:
            self.days[day] = self.counted.day(number_of(day))
        return self.days[day]

    def sample(self, start: int, end: int, every_s: int, kinds: list[str], told: bool) -> None:
        ticks = []
        for number, ts_ms in enumerate(range(start, end, every_s * 1000)):
            one = self.tick(ts_ms, kinds[number % len(kinds)], told, every_s)
            ticks.append(one)
            self.written[one.ts_ms] = one
        store.append_history(self.samples, ticks)
        self.now_ms = max(self.now_ms, ticks[-1].ts_ms + 10) if ticks else self.now_ms

    def tick(self, ts_ms: int, kind: str, told: bool, every_s: int = 30) -> Tick:
        while ts_ms in self.written:
            ts_ms += 7
        boot = next((one.boot.id for ms, one in sorted(self.written.items(), reverse=True) if ms < ts_ms), "boot-1")
        if ts_ms >= self.now_ms:
            boot = f"boot-{self.boot}"
        error = "unknown_error" if kind == "error" else None
        interval_ms = every_s * 1000 if told else None
        return tick(ts_ms, *gpus(kind, ts_ms), interval_ms=interval_ms, boot=boot, error=error)

    def run(self, raw_days: int | None, rollup_days: int | None, rebuild: bool, compacting: bool) -> Done:
        config = CONFIG._replace(retention=Retention(raw_days=raw_days, csv_days=0, rollup_days=rollup_days))
        with alone(self.data_dir):
            upkeep = Upkeep(self.data_dir, config, self.now_ms, False, self.complain)
            return upkeep.run(rebuild, compacting, None)

    def complain(self, text: str) -> None:
        if "is empty: it is made again" not in text:  # as a kill right at its beginning leaves it
            self.said.append(text)

    def index(self) -> dict[str, Stored]:
        try:
            return read_index(path_of(self.data_dir))
        except EmptyPartition:
            return {}

    def rows(self) -> list[dict[str, Any]]:
        paths = list_partitions(self.samples)
        return [row for path in paths for row in query(Path(path), "SELECT ts_ms FROM tick")]

    def day(self, ts_ms: int) -> str:
        return day_of(ts_ms)

    def is_final(self, day: str) -> bool:
        stored = self.index().get(day)
        return self.is_forgotten(day) or (stored is not None and stored.is_expired)

    def is_forgotten(self, day: str) -> bool:
        """Whether even its sums were removed: what comes then is another day of that name."""
        there = day in History(self.data_dir).days or day in self.index()
        return not there and any(self.day(ts_ms) == day for ts_ms in self.written)


@pytest.mark.parametrize(("examples", "number"), [(FEW, 1), pytest.param(MANY, 2, marks=pytest.mark.real)])
def test_what_is_stored_is_what_was_written(examples: int, number: int) -> None:
    run_state_machine_as_test(
        seed(int(SEED or number))(Folder),
        settings=settings(
            max_examples=int(EXAMPLES or examples),
            stateful_step_count=20,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # a folder takes too long to shrink
            suppress_health_check=list(HealthCheck),
        ),
    )
