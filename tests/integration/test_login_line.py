"""The line at login: what the sampler writes, and what shells make of it."""

import os
import pty
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_sample.held_file import FIRST_LINE, MOST_LINES
from gua_sample.processes import read_boot, uptime_ms
from tests.lab import MINUTE_MS, MONDAY_MS
from tests.machine import Machine, call, complaint, one_line, within
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_root

SCRIPT = ROOT / "contrib" / "profile.d" / "gua.sh"
UID = os.getuid()
# Without the files of whoever runs the tests.
SHELLS = {
    "sh": ["sh"],
    "dash": ["dash"],
    "bash": ["bash", "--norc"],
    "zsh": ["zsh", "-f"],
    "busybox": ["busybox", "ash"],
}
EVERYWHERE = ("sh", "bash")
shells = pytest.mark.parametrize(
    "shell", [name if name in EVERYWHERE else pytest.param(name, marks=pytest.mark.needs(name)) for name in SHELLS]
)
SENTENCE = "you hold 20.0 GiB on GPU 1 without work since 09:45 (pid 1200641, jupyter-noteboo). Done? End the process."


def head(seconds_ago: int = 0, boot: str | None = None, first: str = FIRST_LINE) -> str:
    return f"{first} {uptime_ms() // 1000 - seconds_ago} {boot or read_boot().id}\n"


def line(uid: int = UID, sentence: str = SENTENCE) -> str:
    return f"{uid} 1 1794787200 20.0 1200641 jupyter-noteboo {sentence}\n"


def say(
    shell: str, commands: str, path: str | None = None, user: int | None = None, mode: tuple[str, ...] = ("-i",)
) -> list[str]:
    """The lines that these commands print in a shell on a terminal, an interactive one."""
    terminal, inside = pty.openpty()
    variables = {"PATH": path or os.environ["PATH"], "TERM": "dumb", "PS1": "", "LANG": "C.UTF-8"}
    command = [shutil.which(SHELLS[shell][0]) or shell, *SHELLS[shell][1:], *mode, "-c", f"{commands}\nexit 0"]
    process = subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, env=variables, start_new_session=True, user=user
    )
    os.close(inside)
    output = b""
    try:
        while part := os.read(terminal, 1 << 16):
            output += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(terminal)
    assert process.wait(30) == 0
    return output.decode().replace("\r\n", "\n").splitlines()


def told(shell: str, file: Path, path: str | None = None) -> list[str]:
    return [one for one in say(shell, f"GUA_HELD_FILE={file}; . '{SCRIPT}'", path) if one.startswith("gua:")]


@shells
def test_a_shell_tells_ones_own_lines_and_no_others(shell: str, tmp_path: Path) -> None:
    file = tmp_path / "held"
    others = [line(uid, "you hold the others").replace("1200641", "1") for uid in (UID + 1, UID * 10 + 7)]
    file.write_text(head(270) + others[0] + line() + others[1] + line(sentence="you hold 1.0 GiB on GPU 2:1"))
    assert told(shell, file) == [f"gua: {SENTENCE}", "gua: you hold 1.0 GiB on GPU 2:1"]


@shells
def test_a_shell_is_silent_about_what_is_missing_stale_large_or_odd(shell: str, tmp_path: Path) -> None:
    odd = {
        "empty": "",
        "well": head(),
        "stale": head(301) + line(),
        "of-the-future": head(-60) + line(),
        "of-another-boot": head(boot="00000000-0000-0000-0000-000000000000") + line(),
        "of-a-newer-version": head(first="gua held 2") + line(),
        "another-file": f"root:x:0:0:\n{line()}",
        "octal": head().replace(" held 1 ", " held 1 0") + line(),
        "no-number": f"{FIRST_LINE} x {read_boot().id}\n{line()}",
        "huge-number": f"{FIRST_LINE} {'9' * 40} {read_boot().id}\n{line()}",
        "a-sum": f"{FIRST_LINE} {uptime_ms() // 1000}+0 {read_boot().id}\n{line()}",
        "not-whole": head() + line().rstrip("\n"),
        "large": head() + line(UID + 1) * MOST_LINES + line(),
        "long": head() + line(sentence="x" * 201),
        "without-a-sentence": head() + f"{UID} 1 1794787200 20.0 1200641 python\n",
        "escapes": head() + "".join(line(sentence=f"you {one}") for one in ("\x1b[31m red", "\x07", "\x9b1m")),
        "commands": head() + "".join(line(sentence=f"you {one}") for one in ("$(echo x)", "`echo x`", ";ls", "a'b")),
        "foreign": head() + line(sentence="yöu") + line(sentence="a\u202eb"),
    }
    for name, text in odd.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "fine").write_text(head() + line())
    (tmp_path / "link").symlink_to(tmp_path / "fine")
    names = [*odd, "folder", "pipe", "link", "nowhere"]
    commands = [f"echo 'at {name}'; GUA_HELD_FILE={tmp_path / name}; . '{SCRIPT}'" for name in names]
    printed = say(shell, "\n".join([*commands, f"GUA_HELD_FILE={tmp_path / 'fine'}; . '{SCRIPT}'"]))
    expected = [*(f"at {name}" for name in names), f"gua: {SENTENCE}"]
    assert printed[printed.index("at empty") :][: len(expected)] == expected


@shells
def test_at_most_five_lines_are_shown(shell: str, tmp_path: Path) -> None:
    (tmp_path / "held").write_text(head() + line() * 7)
    assert told(shell, tmp_path / "held") == [f"gua: {SENTENCE}"] * 5 + ["gua: and more: gua-report --who me"]


@shells
def test_nothing_is_left_in_the_shell_and_no_option_of_it_gets_in_the_way(shell: str, tmp_path: Path) -> None:
    (tmp_path / "held").write_text(head() + line())
    for options in ("set -eu", "IFS=x", "set -f -C"):
        left = 'set | while IFS= read -r one; do case $one in *_gua_*=*|_gua_*) echo "left: $one";; esac; done'
        printed = say(shell, f"{options}\nGUA_HELD_FILE={tmp_path / 'held'}\n. '{SCRIPT}'\necho next\n{left}")
        assert f"gua: {SENTENCE}" in printed
        assert "next" in printed
        assert not [one for one in printed if one.startswith("left: _gua")]


@shells
def test_only_an_interactive_shell_on_a_terminal_says_anything(shell: str, tmp_path: Path) -> None:
    (tmp_path / "held").write_text(head() + line())
    assert say(shell, f"GUA_HELD_FILE={tmp_path / 'held'}; . '{SCRIPT}'", mode=()) == []
    variables = os.environ | {"GUA_HELD_FILE": str(tmp_path / "held")}
    for options in (["-c", f". '{SCRIPT}'"], ["-i", "-c", f". '{SCRIPT}'; exit 0"]):
        command = [*SHELLS[shell], *options]
        done = call(command, env=variables, start_new_session=True)
        assert (done.returncode, "gua" in done.stdout) == (0, False)


@shells
def test_a_file_without_an_end_of_line_holds_nobody_up(shell: str, tmp_path: Path) -> None:
    """As the sampler's user could write one, or change the file for a pipe after it was looked at."""
    held = tmp_path / "held"
    held.write_text(head() + line())
    with held.open("r+b") as file:
        file.truncate(20_000_000_000)
    with within(20):
        assert told(shell, held) == [f"gua: {SENTENCE}"]
    text = SCRIPT.read_text().replace('[ ! -f "$_gua_file" ] || ', "")
    (tmp_path / "unchecked.sh").write_text(text)
    held.unlink()
    os.mkfifo(held)
    with within(20):
        printed = say(shell, f"GUA_HELD_FILE={held}\n. {tmp_path / 'unchecked.sh'}\necho next")
        assert "next" in printed


def test_no_program_is_started_but_those_that_limit_reading_and_one_for_the_uid(tmp_path: Path) -> None:
    (tmp_path / "held").write_text(head() + line())
    (tmp_path / "bin").mkdir()
    assert told("bash", tmp_path / "held", path=str(tmp_path / "bin")) == []
    for name in ("timeout", "head"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    assert told("bash", tmp_path / "held", path=str(tmp_path / "bin")) == [f"gua: {SENTENCE}"]
    assert told("sh", tmp_path / "held", path=str(tmp_path / "bin")) == []
    (tmp_path / "bin" / "id").symlink_to(shutil.which("id") or "")
    assert told("sh", tmp_path / "held", path=str(tmp_path / "bin")) == [f"gua: {SENTENCE}"]


# --- the sampler's part ---


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a name that somebody has chosen with care."""
    program = tmp_path / "$(id)\n\x1b[31m`x`;"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "600"]) as running:
        yield running
        running.kill()


def hold(machine: Machine, file: Path, pid: int, ticks: int = 3, *options: str) -> list[str]:
    """The lines of the file after so many ticks, five minutes apart, at which the process idles on a card."""
    if not machine.scenario.cards:
        machine.scenario.add_card(compute=[(pid, 20_480)], utilization_percent=0)
    for number in range(ticks):
        clock_ms = MONDAY_MS + 5 * number * MINUTE_MS
        machine.tick("--held-file", str(file), "--interval", "5m", *options, clock_ms=clock_ms)
    return file.read_text().splitlines()


def test_what_the_sampler_writes_is_what_a_shell_says(
    machine: Machine, tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    file = machine.folder / "held"
    assert len(hold(machine, file, process.pid, 2)) == 1
    first, *lines = hold(machine, file, process.pid)
    assert file.stat().st_mode & 0o777 == 0o644
    assert re.fullmatch(rf"{FIRST_LINE} \d+ {read_boot().id}", first)
    assert len(lines) == 1
    login_uid = int(Path(f"/proc/{process.pid}/loginuid").read_text())
    assert int(lines[0].split()[0]) == (UID if login_uid == 0xFFFFFFFF else login_uid)
    if login_uid in (UID, 0xFFFFFFFF):
        sentence = (
            f"you hold 20.0 GiB on GPU 0 without work since at least 00:00 (pid {process.pid}, __id__n_x1b_31m_x__)."
        )
        assert told("sh", file) == [f"gua: {sentence} Done? End the process."]


def test_a_driver_that_fails_leaves_nothing_to_tell_and_a_tick_that_is_lost_an_older_file(
    machine: Machine, process: subprocess.Popen[bytes]
) -> None:
    file = machine.folder / "held"
    hold(machine, file, process.pid)
    machine.scenario.error("nvmlInitWithFlags", 9)
    assert machine.sample("--held-file", str(file), clock_ms=MONDAY_MS + 12 * MINUTE_MS).returncode == 1
    assert len(file.read_text().splitlines()) == 1
    before = file.read_text()
    machine.samples.rename(machine.data_dir / "elsewhere")
    machine.samples.write_text("a file where the folder should be")
    assert "samples" in complaint(machine.sample("--held-file", str(file)), 1)
    assert file.read_text() == before


def test_a_folder_that_is_missing_costs_no_tick_nor_the_other_file(machine: Machine) -> None:
    machine.scenario.add_card()
    held, textfile = machine.folder / "nowhere" / "held", machine.folder / "gua.prom"
    done = machine.sample("--held-file", str(held), "--textfile", str(textfile))
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua-sample: error: {held} can't be written (No such file or directory): ")
    assert textfile.exists()
    both = ("--held-file", str(held), "--textfile", str(held.with_name("gua.prom")))
    assert [text.split(":")[1] for text in machine.sample(*both).stderr.splitlines()] == [" warning", " error"]
    machine.scenario.error("nvmlInitWithFlags", 9)  # if all fails, the driver is the error
    assert "driver_not_loaded" in machine.sample(*both).stderr.splitlines()[-1]
    assert len(machine.ticks()) == 3


@pytest.mark.parametrize("value", ["", "folder"])
def test_what_is_no_file_is_refused(machine: Machine, value: str) -> None:
    (machine.folder / "folder").mkdir()
    done = machine.sample("--held-file", str(machine.folder / value) if value else "")
    complaint(done, 2)
    assert not machine.data_dir.exists()


@needs_root
def test_a_user_sees_what_is_theirs(tmp_path: Path, open_folder: Path) -> None:
    file, script = open_folder / "held", open_folder / "gua.sh"
    shutil.copy(SCRIPT, script)
    file.write_text(head() + line() + line(SOMEBODY, "you hold 1.0 GiB on GPU 3"))
    for shell in EVERYWHERE:
        printed = say(shell, f"cd /; GUA_HELD_FILE={file}; . {script}", user=SOMEBODY)
        assert [one for one in printed if one.startswith("gua:")] == ["gua: you hold 1.0 GiB on GPU 3"]
