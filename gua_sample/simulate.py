"""A simulated laboratory of cards and people, for demos, tests and benchmarks.

Everything is determined by the seed, the number of cards and the moment asked for. The host reboots every
Monday 04:00 UTC and is back four minutes later with a new boot id, so each week is planned on its own.
Cards have roles by index; from six cards on, every scene occurs:

0           an ollama service that answers in bursts, and a small Xorg beside it
1           one person trains, another one's forgotten notebook idles on the same card
2, 8, ...   notebooks: used for an hour, then held until the evening, the next day, or over the weekend
3, 9, ...   root's docker containers; on card 3, killed work leaves memory behind that no process shows
4+5, ...    Slurm jobs, each one process on both cards
6, 12, ...  little to do
7, 13, ...  two training runs at a time
last        what its index says, but the driver loses it for one hour of Wednesday afternoon
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gua_sample import simulate_plan as plans
from gua_sample.containers import LABEL, MOUNT, Container, Known
from gua_sample.errors import UsageError
from gua_sample.identity import find_container
from gua_sample.records import Boot, Card, CardFacts, Cursor, Previous, Process, Reading, Source, Tick, Usage
from gua_sample.simulate_plan import A100, A6000, NAMES, Hardware, Model, Plan, Segment, Week, make_uuid, mix

DRIVER_VERSION = "570.133.20"
LATEST_MS = 1000  # how late a timer's tick may be
# The containers of a week, as they come: name, image, and the owner that a hint names.
CONTAINERS = (
    ("eval-sweep", "lab/eval:7", "kim", LABEL),
    ("resnet50", "pytorch/pytorch:2.5.1", "ada", LABEL),
    ("sdxl-finetune", "pytorch/pytorch:2.5.1", "omar", LABEL),
    ("whisper", "lab/whisper:3", "mei", MOUNT),
    ("tritonserver", "tritonserver:24.10", None, None),
)


def look_at_card(hardware: Hardware, segment: Segment, ts_ms: int, noise: int) -> Card:
    if segment.lost:
        return Card(CardFacts(hardware.facts.uuid, hardware.facts.gpu_index, status="gpu_is_lost"))
    noise = (noise ^ hardware.noise_key) * 0xBF58476D1CE4E5B9 & plans.MASK
    joules = int(segment.joules + segment.watts * (ts_ms - segment.begin_ms) / 1000)
    milliwatts = segment.watts * 1000 + (noise >> 52) - 2048
    used_mib = segment.memory_used_mib
    if not segment.utilization_percent:
        # An idle card's sample buffer is empty, so the sampler asks for the rate.
        watts, celsius = int(milliwatts) / 1000, 31 + (noise >> 40 & 1)
        return Card(hardware.facts, 0.0, "rate", used_mib, watts, joules, celsius, segment.usages[:])
    points = ((noise >> 40 & 1023) - 512) / 100
    percent = int((segment.utilization_percent + points) * 100) / 100
    usages = []
    for usage, share in zip(segment.usages, segment.shares, strict=True):
        if share:
            pid, kind, memory_mib, _ = usage
            if memory_mib and not (ts_ms // (10 * plans.MINUTE_MS) * 40503 + pid * 69069) >> 11 & 7:
                used_mib += memory_mib >> 6  # now and then the process needs a little more
                memory_mib += memory_mib >> 6
            usage = Usage(pid, kind, memory_mib, int(percent * share + 0.5))
        usages.append(usage)
    watts = int(milliwatts + points * 1000 * hardware.watts_per_percent) / 1000
    celsius = 34 + int(percent * 0.42) + (noise >> 38 & 3)
    return Card(hardware.facts, percent, "samples", used_mib, watts, joules, celsius, usages)


class Laboratory:
    """A simulated host. Equal arguments give equal answers. `models`: of its larger and its smaller cards."""

    def __init__(
        self, seed: int = 0, cards: int = 8, models: tuple[Model, Model] = (A100, A6000), people: Sequence[str] = NAMES
    ) -> None:
        if not 1 <= cards <= plans.MOST_CARDS:
            raise UsageError(f"a laboratory has 1 to {plans.MOST_CARDS} cards, not {cards}")
        self.seed, self.models, self.people = seed, models, people
        self.hardware = [self._install(index) for index in range(cards)]
        self._plan = lru_cache(maxsize=4)(self._plan_week)  # a year of history must not fill the memory

    def source(self, ts_ms: int) -> Source:
        """The host at that moment; while it is down, as it will boot."""
        week = self._plan(self._number(ts_ms))

        def read(previous: Previous | None) -> Reading:
            return self._look(week, max(ts_ms, week.boot.time_ms))

        def describe(pid: int, boot: Boot) -> Process:
            return week.processes.get(pid) or Process(pid)

        return Source(lambda: week.boot, read, describe, lambda uids: dict.fromkeys(uids))

    def history(self, start_ms: int, end_ms: int, interval_ms: int, latest_ms: int = LATEST_MS) -> Iterator[Tick]:
        """A tick at every interval, up to `latest_ms` late, but none while the host is down."""
        latest_ms = min(latest_ms, interval_ms // 4)
        for due_ms in range(start_ms, end_ms, interval_ms):
            ts_ms = due_ms + (mix(plans.FOR_DELAY, due_ms, self.seed) % (latest_ms + 1) if due_ms > start_ms else 0)
            week = self._plan(self._number(ts_ms))
            if ts_ms >= week.boot.time_ms:
                driver_version, cards, cursors = self._look(week, ts_ms)
                processes = {usage.pid: week.processes[usage.pid] for card in cards for usage in card.usages}
                nvml_ms = 4 + mix(plans.FOR_NOISE, ts_ms, self.seed) % 17
                yield Tick(ts_ms, interval_ms, week.boot, driver_version, nvml_ms, None, cards, processes, cursors)

    def containers(self, start_ms: int, end_ms: int) -> Known:
        known = {}
        for number in range(self._number(start_ms), self._number(end_ms) + 1):
            processes = self._plan(number).processes.values()
            found = [(one.start_time_ms or 0, find_container(one.cgroup)) for one in processes]
            started = sorted((ms, one.id) for ms, one in found if one and ms < end_ms)
            for place, (seen_ms, ident) in enumerate(started):
                name, image, owner, how = CONTAINERS[place % len(CONTAINERS)]
                known[ident] = Container("docker", name, image, owner, how, seen_ms)
        return Known(known)

    def _install(self, index: int) -> Hardware:
        larger, smaller = self.models
        name, total_mib, reserved_mib, idle_watts, watts_per_percent = (
            smaller if plans.role(index) in (0, 4) else larger
        )
        uuid = "GPU-" + make_uuid(plans.FOR_CARD, self.seed, index)
        facts = CardFacts(uuid, index, None, name, None, total_mib, reserved_mib, 1)
        return Hardware(facts, idle_watts, watts_per_percent, mix(plans.FOR_NOISE, self.seed, index))

    def _number(self, ts_ms: int) -> int:
        return (ts_ms - plans.FIRST_REBOOT_MS) // plans.WEEK_MS

    def _plan_week(self, number: int) -> Week:
        last = len(self.hardware) - 1
        planned = [Plan(self.seed, number, index, index == last, self.people) for index in range(last + 1)]
        weeks = [plan.segments(hardware) for plan, hardware in zip(planned, self.hardware, strict=True)]
        timelines = [([segment.begin_ms for segment in week], week) for week in weeks]
        processes = {session.process.pid: session.process for plan in planned for session in plan.sessions}
        return Week(Boot(make_uuid(plans.FOR_BOOT, self.seed, number), planned[0].boot_ms), timelines, processes)

    def _look(self, week: Week, ts_ms: int) -> Reading:
        noise = mix(plans.FOR_NOISE, self.seed, ts_ms)
        ts_us, uptime_ms = ts_ms * 1000, ts_ms - week.boot.time_ms
        cards = []
        cursors = []
        for hardware, (begins, segments) in zip(self.hardware, week.timelines, strict=True):
            segment = segments[bisect_right(begins, ts_ms) - 1]
            cards.append(look_at_card(hardware, segment, ts_ms, noise))
            facts = hardware.facts
            cursors.append(Cursor(facts.uuid, facts.gpu_index, None, None, ts_us, ts_us, uptime_ms))
        return Reading(DRIVER_VERSION, cards, cursors)
