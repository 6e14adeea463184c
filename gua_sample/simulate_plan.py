"""A week of the simulated laboratory: who uses which card, when, and how hard."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from gua_sample.records import Boot, CardFacts, Process, Usage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
FIRST_REBOOT_MS = 4 * DAY_MS + 4 * HOUR_MS  # 1970-01-01 was a Thursday
DOWN_MS = 4 * MINUTE_MS
OFFICE_MS = range(8 * HOUR_MS, 19 * HOUR_MS)
WEDNESDAY, FRIDAY = 2, 4
# The Wednesday noon at which `gua demo` ends: fixed, so that everybody sees the same report.
EXAMPLE_END_MS = 1_794_398_400_000

MOST_CARDS = 64  # so that a pid can name its card and still be below Linux's 4194304
HELD_WATTS = 12.0  # a context alone keeps the clocks up
HIGHEST_PERCENT = 94  # of the mean: with 5 points of noise on top, it stays below 100
MASK = (1 << 64) - 1
# So that equal keys don't give equal numbers.
FOR_CARD, FOR_BOOT, FOR_PLAN, FOR_CONTAINER, FOR_NOISE, FOR_DELAY = range(6)

Bounds = tuple[float, float]
ALWAYS: Bounds = (168, 168)


class Work(NamedTuple):
    """A kind of work that is repeated on a card: by whom, how hard, for how long."""

    users: Sequence[str]
    commands: Sequence[str]
    cgroup: str
    memory_mib: Bounds
    percent: Bounds  # while busy
    busy_minutes: Bounds
    rest_minutes: Bounds  # between busy times: a server waits, a run reads data and writes checkpoints
    night_rest: int  # factor on rest_minutes outside of office hours
    used_hours: Bounds = ALWAYS  # after that it is idle until its end
    hours: Bounds | None = ALWAYS  # lifetime; None: until somebody remembers it
    pause_hours: Bounds = (0.01, 0.02)  # before each start
    night_owls: float = 1  # share of users who also start it outside of office hours


A100 = ("NVIDIA A100-SXM4-80GB", 81920, 518, 55.0, 3.2)  # total MiB, reserved MiB, idle watts, watts per percent
A6000 = ("NVIDIA RTX A6000", 49140, 454, 22.0, 2.6)
H100 = ("NVIDIA H100 80GB HBM3", 81559, 551, 70.0, 6.0)
L40S = ("NVIDIA L40S", 46068, 460, 33.0, 3.0)
Model = tuple[str, int, int, float, float]
NAMES = ("ada", "anna", "ben", "emil", "eva", "finn", "hana", "ivo", "jan", "kim", "liam", "mei", "omar", "rosa")
UIDS = {"root": 0, "ollama": 997, **{name: 1000 + number for number, name in enumerate(NAMES)}}
LOGIN = "/user.slice/user-{uid}.slice/session-{number}.scope"
SLURM = "/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0"
DOCKER = "/system.slice/docker-{container}.scope"
PYTHON = ("python", "python3", "torchrun")
JUPYTER = ("jupyter-noteboo", "ipykernel_launc")  # Linux cuts names off after 15 bytes

# users, commands, cgroup, memory_mib, percent, busy_ and rest_minutes, night_rest, used_hours, hours, pause_hours, owls
OLLAMA = Work(("ollama",), ("ollama",), "/system.slice/ollama.service", (9e3, 2e4), (30, 80), (2, 9), (3, 30), 5)
XORG = Work(("root",), ("Xorg",), "/system.slice/gdm.service", (45, 46), (0, 0), (1, 1), (1, 1), 1, (0, 0))
RUN = Work(NAMES, PYTHON, LOGIN, (8e3, 38e3), (80, 94), (60, 300), (1, 4), 1, ALWAYS, (2, 72), (0.1, 8), 0.1)
SHORT_RUN = RUN._replace(hours=(2, 16), pause_hours=(1, 30))
JOB = RUN._replace(cgroup=SLURM, memory_mib=(2e4, 76e3), night_owls=0.5)  # the queue starts jobs at night too
NOTEBOOK = Work(NAMES, JUPYTER, LOGIN, (4e3, 15e3), (20, 75), (1, 6), (2, 8), 1, (0.7, 1.7), None, (0.1, 12), 0)
CONTAINER = RUN._replace(users=("root",), cgroup=DOCKER, memory_mib=(6e3, 35e3), rest_minutes=(15, 90), night_rest=8)
ROLES: dict[int, list[Work]] = {
    -2: [OLLAMA, XORG],
    -1: [RUN._replace(users=NAMES[0::2]), NOTEBOOK._replace(users=NAMES[1::2], memory_mib=(8e3, 30e3))],
    0: [NOTEBOOK, NOTEBOOK, NOTEBOOK._replace(pause_hours=(0.1, 30))],
    1: [CONTAINER, CONTAINER],
    2: [JOB],
    3: [JOB],
    4: [SHORT_RUN],
    5: [RUN, RUN._replace(hours=(2, 24))],
}


def role(index: int) -> int:
    """The role of a card: 0 to 5 in turn from index 2 on; the first two cards have -2 and -1."""
    return (index - 2) % 6 if index >= 2 else index - 2


class Hardware(NamedTuple):
    facts: CardFacts
    idle_watts: float
    watts_per_percent: float
    noise_key: int


class Session(NamedTuple):
    """One process on a card. A step is a time and the percentage of the card that it wants from then on."""

    process: Process
    at_rest: Usage
    steps: list[tuple[int, int]]
    end_ms: int


class Segment(NamedTuple):
    begin_ms: int
    lost: bool
    utilization_percent: int
    watts: float
    joules: float  # the counter at the beginning
    memory_used_mib: int
    usages: list[Usage]  # at rest
    shares: list[float]  # of the utilization, for each usage


class Week(NamedTuple):
    boot: Boot
    timelines: list[tuple[list[int], list[Segment]]]  # per card: when segments begin, and the segments
    processes: dict[int, Process]


def mix(*numbers: int) -> int:
    """A 64-bit hash of the numbers (splitmix64). Unlike random and hash, it is the same in every Python."""
    bits = 0
    for number in numbers:
        bits = (bits + number + 0x9E3779B97F4A7C15) & MASK
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
        bits ^= bits >> 31
    return bits


def make_uuid(*key: int) -> str:
    digits = f"{mix(*key, 0):016x}{mix(*key, 1):016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Plan:
    def __init__(self, seed: int, week: int, index: int, is_last: bool, people: Sequence[str] = NAMES) -> None:
        self.people = people
        # The second card of a pair repeats the plan of the first, so that the same processes are on both.
        self.key = (seed, week, index - 1 if role(index) == 3 else index)
        self.state = mix(FOR_PLAN, *self.key)
        self.reboot_ms = FIRST_REBOOT_MS + week * WEEK_MS
        self.boot_ms = self.reboot_ms + DOWN_MS
        self.end_ms = self.reboot_ms + WEEK_MS
        self.monday_ms = self.reboot_ms - 4 * HOUR_MS
        self.sessions: list[Session] = []
        for work in ROLES[role(index)]:
            self.repeat(work)
        lost_ms = self.at(WEDNESDAY, 13, 16)
        self.lost = range(lost_ms, lost_ms + HOUR_MS) if is_last else range(0)
        zombie_ms = self.at(WEDNESDAY, -20, 30)
        self.zombie = range(zombie_ms, zombie_ms + self.hours(3, 9)) if index == 3 else range(0)
        self.zombie_mib = int(self.between(2048, 6144))

    def between(self, low: float, high: float) -> float:
        self.state = mix(self.state)
        return low + (high - low) * (self.state >> 11) / (1 << 53)

    def choose(self, choices: Sequence[str]) -> str:
        return choices[int(self.between(0, len(choices)))]

    def hours(self, low: float, high: float) -> int:
        return int(self.between(low * HOUR_MS, high * HOUR_MS))

    def at(self, day: int, from_hour: float, to_hour: float) -> int:
        return self.monday_ms + day * DAY_MS + self.hours(from_hour, to_hour)

    def in_office(self, ts_ms: int) -> bool:
        day, time_ms = divmod(ts_ms - self.monday_ms, DAY_MS)
        return day <= FRIDAY and time_ms in OFFICE_MS

    def next_start(self, ts_ms: int, night_owls: float) -> int:
        """The given time in office hours or for a night owl, else the next morning."""
        if self.in_office(ts_ms) or self.between(0, 1) < night_owls:
            return ts_ms
        day = (ts_ms - self.monday_ms + DAY_MS - OFFICE_MS.start) // DAY_MS
        return self.at(day if day <= FRIDAY else 7, 8, 11)

    def remembered(self, ts_ms: int) -> int:
        """When somebody closes the notebook: that evening or the next day; from Friday on, nobody does."""
        day = (ts_ms - self.monday_ms) // DAY_MS
        if day >= FRIDAY:
            return self.end_ms
        return self.at(day, 19, 21) if self.between(0, 1) < 0.5 else self.at(day + 1, 8, 10)

    def repeat(self, work: Work) -> None:
        end_ms = self.boot_ms
        while True:
            begin_ms = self.next_start(end_ms + self.hours(*work.pause_hours), work.night_owls)
            if begin_ms >= self.end_ms:
                return
            end_ms = begin_ms + self.hours(*work.hours) if work.hours else self.remembered(begin_ms)
            self.sessions.append(self.session(work, begin_ms, min(end_ms, self.end_ms)))

    def session(self, work: Work, begin_ms: int, end_ms: int) -> Session:
        used_ms = min(end_ms, begin_ms + self.hours(*work.used_hours))
        steps = [(begin_ms, 0)]
        while (idle_ms := steps[-1][0]) < used_ms:
            rest = 1 if self.in_office(idle_ms) else work.night_rest
            busy_ms = idle_ms + rest * int(self.between(*work.rest_minutes) * MINUTE_MS)
            steps.append((busy_ms, int(self.between(*work.percent))))
            steps.append((busy_ms + int(self.between(*work.busy_minutes) * MINUTE_MS), 0))
        # Pids grow with time, as on a real host: 64 for every ten seconds, one of them for each card.
        pid = 1024 + (begin_ms - self.reboot_ms) // 10_000 * MOST_CARDS + self.key[2]
        while any(session.process.pid == pid for session in self.sessions):
            pid += MOST_CARDS
        user = self.choose([name for name in work.users if name in self.people or name not in NAMES] or self.people)
        uid = UIDS[user]
        login_uid, login_user = (uid, user) if user in NAMES else (None, None)
        container = make_uuid(FOR_CONTAINER, *self.key, pid) + make_uuid(FOR_CONTAINER, *self.key, begin_ms)
        number = begin_ms // MINUTE_MS % 1_000_000
        cgroup = work.cgroup.format(uid=uid, number=number, container=container.replace("-", ""))
        process = Process(pid, begin_ms, uid, login_uid, user, login_user, self.choose(work.commands), cgroup)
        kind = "graphics" if process.command == "Xorg" else "compute"
        return Session(process, Usage(pid, kind, int(self.between(*work.memory_mib)), 0), steps, end_ms)

    def segments(self, hardware: Hardware) -> list[Segment]:
        cuts = {self.boot_ms, self.lost.start, self.lost.stop, self.zombie.start, self.zombie.stop}
        for session in self.sessions:
            cuts.update(ts_ms for ts_ms, _ in session.steps)
            cuts.add(session.end_ms)
        begins = sorted(ts_ms for ts_ms in cuts if self.boot_ms <= ts_ms < self.end_ms)
        segments: list[Segment] = []
        joules = 0.0
        for begin_ms, end_ms in zip(begins, [*begins[1:], self.end_ms], strict=True):
            segments.append(self.segment(hardware, begin_ms, joules))
            joules += segments[-1].watts * (end_ms - begin_ms) / 1000
        return segments

    def segment(self, hardware: Hardware, begin_ms: int, joules: float) -> Segment:
        if begin_ms in self.lost:
            return Segment(begin_ms, True, 0, 0.0, joules, 0, [], [])
        here = [session for session in self.sessions if session.steps[0][0] <= begin_ms < session.end_ms]
        wanted = [session.steps[bisect_right(session.steps, (begin_ms, 100)) - 1][1] for session in here]
        total = sum(wanted)  # of integers, because Python 3.12 adds floats differently
        percent = min(total, HIGHEST_PERCENT)
        watts = hardware.idle_watts + hardware.watts_per_percent * percent + (HELD_WATTS if here else 0.0)
        usages = [session.at_rest for session in here]
        stray_mib = 4 + 38 * len(here) + (self.zombie_mib if begin_ms in self.zombie else 0)
        used_mib = stray_mib + sum(usage.memory_mib or 0 for usage in usages)
        shares = [part / total if total else 0.0 for part in wanted]
        return Segment(begin_ms, False, percent, watts, joules, used_mib, usages, shares)
