import fnmatch
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

# Most users lack pyarrow, and pandas stores texts differently without it. `gua export` is run as a command, with it.
if version("pandas") >= "3":
    sys.modules["pyarrow"] = None  # type: ignore[assignment]  # marks a module as not installed
    import pandas  # noqa: F401 - only so that it looks now

    del sys.modules["pyarrow"]

# A failed tick then shows its output, and two reports show their differences.
pytest.register_assert_rewrite(
    *("tests.import_target", "tests.lab", "tests.machine", "tests.rolling"),
    *("tests.integration.doctor.examination", "tests.integration.export.exports"),
    *("tests.integration.install.checkout", "tests.integration.reservations.reserving"),
    *("tests.integration.rollup.five_days", "tests.integration.rollup.runs", "tests.integration.status.shown"),
)

from tests.driver import build  # noqa: E402 - after what is above
from tests.machine import Machine  # noqa: E402

# The settings of the user who runs the tests must not affect where files are written, who may read them, or how output
# looks.
for variable in (
    *("GUA_DATA_DIR", "STATE_DIRECTORY", "XDG_STATE_HOME", "LD_PRELOAD"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "LC_ALL", "LC_CTYPE", "LANGUAGE"),
    *("PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONUTF8"),
):
    os.environ.pop(variable, None)
os.environ |= {"TERM": "xterm", "LANG": "C.UTF-8", "TZ": "UTC"}
time.tzset()
os.umask(0o022)
# The background of a script ignores SIGINT, and children of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REAL_FOLDERS = ("end_to_end", "torture")  # tests that take guests or minutes
REAL_FIXTURES = {"package_index"}
UNIT = Path(__file__).parent / "unit"
# Of tests/unit, what `make quick` runs: rooms and modules that need little time, but for these files and tests.
QUICK = ("console", "exporting", "live", "people", "sample", "ticks", "unit")
STARTS_PROCESSES = {"test_groups.py", "test_rights.py", "test_a_problem_is_told", "test_a_missing_file_costs_no_parser"}
PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"
skipped: dict[str, str] = {}  # reasons by the test's name
quick_now: list[str] = []  # the quick test that runs, if one does


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests that need guests, minutes or programs to `make test-real`; skip those whose program is missing."""
    for item in items:
        needed = [name for mark in item.iter_markers("needs") for name in mark.args]
        fixtures = REAL_FIXTURES & set(getattr(item, "fixturenames", ()))
        if needed or fixtures or item.path.parent.name in REAL_FOLDERS:
            item.add_marker("real")
        starts = {item.path.name, getattr(item, "originalname", item.name)} & STARTS_PROCESSES
        if item.path.is_relative_to(UNIT) and item.path.parent.name in QUICK and not starts:
            item.add_marker("quick")
        if missing := [name for name in needed if not shutil.which(name)]:
            item.add_marker(pytest.mark.skip(reason=f"not on this machine: {', '.join(missing)} (make test-deps)"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    quick_now.extend(mark.name for mark in item.iter_markers("quick"))
    try:
        return (yield)
    finally:
        quick_now.clear()


def refuse_processes(event: str, _: tuple[object, ...]) -> None:
    if event in PROCESS_EVENTS and quick_now:
        raise AssertionError(f"{event} in a quick test: name it in STARTS_PROCESSES of tests/conftest.py")


sys.addaudithook(refuse_processes)


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collection, which else goes through it in every test.

    It would do so in every forked command too, and copy it all.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped[report.nodeid] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in CI if a test was skipped that is not on the list: CI must not pass by skipping."""
    if os.environ.get("CI") == "true" and not hasattr(session.config, "workerinput") and find_unlisted():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if unlisted := find_unlisted():
        terminalreporter.section(f"skipped, and not in {ALLOWED_SKIPS.name}: CI fails")
        for name in unlisted:
            terminalreporter.line(f"{name}: {skipped[name]}")


def find_unlisted() -> list[str]:
    """The skipped tests that no line of the list matches. A line is a pattern of test names, then the reason."""
    lines = [line.split(None, 1) for line in ALLOWED_SKIPS.read_text().splitlines() if line.strip()]
    patterns = [line[0] for line in lines if not line[0].startswith("#")]
    return [name for name in sorted(skipped) if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _open_folder() -> Path:
    """A new temporary folder that other users may enter, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="gua-test-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def driver() -> Iterator[Path]:
    """The folder of the compiled stand-in driver."""
    folder = _open_folder()
    yield build(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def package_index() -> None:
    """Mark a test that installs packages with pip."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = _open_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(driver: Path, open_folder: Path) -> Machine:
    return Machine(driver, open_folder)
