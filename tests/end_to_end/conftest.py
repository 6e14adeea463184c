from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest, prepare_layer, why_not


@pytest.fixture(scope="session", autouse=True)
def can_boot() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine with a driver and a fresh clone, and nothing installed."""

    def prepare(guest: Guest) -> None:
        laboratory.clone(guest)
        laboratory.install_driver(guest, tmp_path_factory.mktemp("driver"), laboratory.busy_scenario())
        guest.run("useradd", "--create-home", "somebody")

    return prepare_layer("bare", tmp_path_factory, prepare)


@pytest.fixture(scope="session")
def installed(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with gua installed from the package index. `install.log` is what make said."""

    def prepare(guest: Guest) -> None:
        before = laboratory.files(guest)
        done = laboratory.make(guest, "install")
        guest.write("/root/before", "\n".join(sorted(before)))
        guest.write("/root/install.log", done.stdout)
        laboratory.make(guest, "wheels", f"WHEELS={laboratory.WHEELS}")
        laboratory.hold_timer(guest)

    return prepare_layer("installed", tmp_path_factory, prepare, layers=[bare], network=True)


@pytest.fixture
def guest(bare: Path, installed: Path, tmp_path: Path) -> Iterator[Guest]:
    """Booted anew, with the timer on hold: the only runs are the test's own."""
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        yield guest
