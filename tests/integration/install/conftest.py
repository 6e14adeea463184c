"""Installations: a first one, an upgrade of it, and one without root. They take their time, and are made once."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.install.checkout import (
    NO_CONFIG,
    NO_INDEX,
    USER_HOME,
    Checkout,
    copy_tree,
    listing,
    rewrite,
    suitable_python,
    unprivileged,
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Unlike pytest's own, other users may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="gua-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def checkout(folder: Path) -> Checkout:
    (folder / "checkout").mkdir()
    return Checkout(folder / "checkout", suitable_python())


@pytest.fixture(scope="module")
def wheels(checkout: Checkout, folder: Path, package_index: None) -> Path:
    wheels = folder / "wheels"
    done = checkout.make("wheels", f"WHEELS={wheels}", "EXTRAS=parquet")
    if "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return wheels


@pytest.fixture(scope="module")
def few_wheels(wheels: Path, folder: Path) -> Path:
    """For installations after the first: without the insides of pandas and pyarrow, which take most of the time."""
    few = folder / "few wheels"
    shutil.copytree(wheels, few, ignore=shutil.ignore_patterns("numpy-*", "pandas-*", "pyarrow-*"))
    for name in ("pandas", "pyarrow"):
        (real,) = wheels.glob(f"{name}-*.whl")
        version = real.name.split("-")[1]
        about = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(few / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    return few


@pytest.fixture(scope="module")
def installed(checkout: Checkout, wheels: Path, folder: Path) -> Path:
    """The tree of a first installation, made without root, without a home and without an index."""
    (folder / "anybody").mkdir()
    (folder / "anybody").chmod(0o777)
    target = folder / "anybody" / "installed"
    done = checkout.succeed(
        "install",
        f"DESTDIR={target}",
        f"WHEELS={wheels}",
        "EXTRAS=redis,parquet",  # as an administrator may have it in a script; redis comes anyway
        "READERS=group",
        "INTERVAL=15s",
        "CONTAINERS=yes",
        user=unprivileged(),
        variables=NO_INDEX | NO_CONFIG,
    )
    assert done.stdout.startswith(f"building the virtual environment in {target}/opt/gua ")
    return target


@pytest.fixture(scope="module")
def upgraded(checkout: Checkout, few_wheels: Path, installed: Path, folder: Path) -> Path:
    """The tree of an upgrade of that, after an administrator and an older version were at it."""
    target = copy_tree(installed, folder / "upgraded")
    rewrite(target / "etc/gua/gua-sample.env", "GUA_SAMPLE_OPTIONS=--interval 30s\n")
    rewrite(target / "etc/gua/gua.toml", "# as an older version had it\n")
    rewrite(target / "opt/gua/share/gua/gua.toml", "# as an older version had it\n")
    (target / "etc/systemd/system/gua-sample.service.d").mkdir()
    rewrite(target / "etc/systemd/system/gua-sample.service.d/own.conf", "[Service]\nNice=5\n")
    rewrite(target / "usr/local/bin/gua-former", "")
    manifest = target / "opt/gua/installed-files"
    rewrite(manifest, manifest.read_text() + "/usr/local/bin/gua-former\n")
    rewrite(target / "opt/gua/former", "")
    before = listing(checkout.folder)
    checkout.succeed("install", f"DESTDIR={target}", f"WHEELS={few_wheels}", variables=NO_INDEX)
    assert listing(checkout.folder) == before  # root could have left something in it
    return target


@pytest.fixture(scope="module")
def installed_by_user(checkout: Checkout, few_wheels: Path, installed: Path) -> tuple[Path, dict[str, str]]:
    target = installed.parent / "of a user"
    variables = NO_INDEX | NO_CONFIG | {"HOME": USER_HOME, "XDG_DATA_HOME": "relative", "XDG_STATE_HOME": "/my data"}
    checkout.succeed(
        "install-user",
        f"DESTDIR={target}",
        f"WHEELS={few_wheels}",
        "INTERVAL=2m",
        user=unprivileged(),
        variables=variables,
    )
    return target, variables
