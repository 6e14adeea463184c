"""What the page costs: against the text report of a window from rollups, in bytes, and what `gua page` costs.

Prints each figure with the bound it has to hold and exits 1 if one does not. Takes some minutes, most of them to record
a year.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import Bounds, ratio, run_once
from gua_report.rollups.index import path_of
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from tests.untidy import untidy

CARDS, SEED, RUNS = 8, 1, 9
INTERVAL_MS, YEAR_INTERVAL_MS = 30_000, 300_000
MONTH_DAYS = 31


def command(*words: str) -> list[str]:
    code = "import sys; from gua_report.main import main; sys.exit(main())"
    return [sys.executable, "-c", code, *words]


def record(data_dir: Path, days: int, interval_ms: int) -> None:
    """Record days up to now, and roll up all that are closed."""
    end_ms = time.time_ns() // 1_000_000
    history = untidy(Laboratory(SEED, CARDS).history(end_ms - days * DAY_MS, end_ms - interval_ms, interval_ms), SEED)
    store.append_history(store.prepare(str(data_dir)), history)
    roll_up = command("rollup", "--data-dir", str(data_dir), "--config", "/dev/null")
    subprocess.run(roll_up, check=True, capture_output=True)
    assert Path(path_of(str(data_dir))).exists()


def report(data_dir: Path, days: int, name: str) -> list[str]:
    place = ["--data-dir", str(data_dir), "--config", "/dev/null", "--tz", "UTC"]
    return command("report", "--since", f"{days}d", "--format", name, *place)


def compare(ours: list[str], other: list[str]) -> float:
    """The ratio of CPU times, run in turn."""
    for one in (ours, other):
        run_once(one)  # caches, bytecode
    pairs = [(run_once(ours).cpu_seconds, run_once(other).cpu_seconds) for _ in range(RUNS)]
    return ratio((pair[0] for pair in pairs), (pair[1] for pair in pairs))


def size(words: list[str], path: Path) -> float:
    """The kilobytes that it writes."""
    subprocess.run([*words, "-o", str(path)], check=True)
    return path.stat().st_size / 1000


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        folder = Path(name)
        month, year, pages = folder / "month", folder / "year", folder / "pages"
        pages.mkdir()
        record(month, 2 * MONTH_DAYS, INTERVAL_MS)
        week = compare(report(month, 7, "html"), report(month, 7, "text"))
        bounds.show("page over text, a week of 8 cards from rollups", week, "x", 1.3)
        bounds.show("page of a week of 8 cards", size(report(month, 7, "html"), folder / "page"), "kB", 400)
        place = ["--data-dir", str(month), "--config", "/dev/null", "--tz", "UTC"]
        renew = command("page", str(pages), "--names", "people", *place, "--page", "month")
        one = report(month, 30, "text")
        bounds.show("gua page of an unchanged month over one report", compare(renew, one), "x", 1.5)
        print(f"  (with the week, as the timer renews both: {compare([*renew, '--page', 'week'], one):.2f} x)")
        record(year, 366, YEAR_INTERVAL_MS)
        bounds.show("page of a year of 8 cards", size(report(year, 365, "html"), folder / "page"), "kB", 1000)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
