"""Mistakes of whoever types a command: each is one line that names it, and nothing is read, sent or written for it."""

import shlex
import time
from pathlib import Path

import pytest

from gua_sample.notes import LONGEST_DAYS
from tests.lab import free, series, write
from tests.machine import complaint
from tests.notes import make_spool
from tests.verbs import run

GIVEN = {
    "gua-sample": "",
    "report": "--data-dir data",
    "doctor": "",
    "mail": "--data-dir data --config gua.toml --to root@localhost",
    "remind": "--data-dir data --config gua.toml",
    "page": "pages --data-dir data --config gua.toml",
    "note": "--config gua.toml",
    "gua-containers": "--data-dir data --config gua.toml",
}
# A command, what is typed, and what is said of it.
MISTAKES = f"""\
gua-sample: --interval soon -> 'soon'
gua-sample: --interval '' -> ''
gua-sample: --interval 0s -> '0s'
gua-sample: --interval -> expected one argument
gua-sample: --data-dir '' -> --data-dir is empty
gua-sample: --simulate -> needs --data-dir
gua-sample: --simulate x --data-dir nowhere -> 'x'
gua-sample: --simulate -1 --data-dir nowhere -> -1
gua-sample: --simulat 1 -> --simulat
gua-sample: now -> now
report: --color allways -> did you mean always?
report: --brief --format json -> --brief
report: --brief --section gpus -> --brief
report: --since soon -> 'soon'
report: --since 1d --from 2026-01-01 -> --since and --from
report: --from yesterday -> 'yesterday'
report: --from 2026-02-01 --to 2026-01-01 -> empty
report: --tz Mars/Olympus -> 'Mars/Olympus'
report: --section episode -> did you mean episodes?
report: --format jsn -> did you mean json?
report: --top 0 -> '0'
report: --width 10 -> 60 to 400
report: --util-threshold 101 -> '101'
report: --memory-threshold nan -> 'nan'
report: --reclaim-after 5 -> '5'
report: --config /nowhere.toml -> /nowhere.toml
report: --format csv --section gpus --section episodes -> --section
report: --quiet-if-clean soon -> 'soon'
report: --quiet-if-clean --format csv --section gpus --section episodes -> --section
doctor: --timeout soon -> 'soon'
doctor: --data-dir '' -> --data-dir is empty
doctor: now -> now
doctor: --for 1m -> --record
doctor: --record FILE --for soon -> 'soon'
doctor: --record FILE --for 0s -> '0s'
doctor: --record FILE --json -> --json
doctor: --record FILE --deep -> --deep
doctor: --record '' -> new file
mail: --to ada@lab.example,eve@evil.example -> bad address 'ada@lab.example,eve@evil.example' for --to
mail: --to=-oQ/tmp@lab.example -> bad address '-oQ/tmp@lab.example'
mail: --to root -> bad address 'root'
mail: --since x -> bad duration 'x'
mail: --quiet-if-clean x -> bad duration 'x'
mail: --tz Nowhere -> unknown time zone 'Nowhere'
remind: --to root -> bad address 'root' for --to
remind: --to a@lab.example,eve@evil.example -> bad address
remind: --check --send -> three commands
remind: --after x -> bad duration
remind: --tz Nowhere -> unknown time zone
page: -> --names is missing
page: --names all -> one of people, groups, none
page: --names groups -> no groups are configured, see [groups] in gua.toml
page: --names none --page weak -> did you mean week?
note: -> say until when, and why: gua note --until friday
note: --until 3d --identity x -> say until when, and why
note: --identity x why -> say until when, and why
note: --until 3d --identity x ' ' -> bad reason
note: --until 3d --identity x {"x" * 201} -> 200 printable characters
note: --until 3d --identity x '\x1b[2J' -> bad reason '\\x1b[2J'
note: --until yesterday --identity x why -> bad end 'yesterday'
note: --until 15d --identity x why -> {LONGEST_DAYS} days at most
note: --until 3d --tz Mars --identity x why -> unknown time zone
note: --until 3d --identity x --pid 1 why -> both say whose
note: --list why -> three commands
note: --list --remove 1 -> three commands
note: --remove 1 --until 3d why -> three commands
note: --remove x -> bad note 'x' for --remove
note: --remove 10 -> bad note '10' for --remove
note: --remove ../1.1 -> bad note '../1.1' for --remove
note: --remove ٣ -> for --remove
note: --pid x -> invalid int value
gua-containers: docker: -> bad id
gua-containers: train-resnet -> bad id
gua-containers: ../../x -> bad id
"""


@pytest.mark.parametrize("line", MISTAKES.splitlines())
def test_a_mistake_is_one_line_that_names_it_and_nothing_is_done(tmp_path: Path, line: str) -> None:
    typed, said = line.split("-> ")
    command, words = typed.split(":", 1)
    write(tmp_path / "data", series(time.time_ns() // 1_000_000, 1, free()))
    (tmp_path / "gua.toml").write_text(f'[notes]\nspool = "{make_spool(tmp_path)}"\n')
    before = sorted(tmp_path.rglob("*"))
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = run(command, *shlex.split(f"{GIVEN[command]} {words}"), cwd=tmp_path, variables=state)
    assert said in complaint(done, 2)
    assert sorted(tmp_path.rglob("*")) == before
