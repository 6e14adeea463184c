"""Containers in a report: owners are hints in columns, from ticks and from rollups alike."""

import json
import re
from pathlib import Path

import pytest

from gua_report.config import Config
from gua_report.people.containers import write_containers
from gua_report.render import FORMATS, SECTIONS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.summary.names import number_people, without_names
from gua_report.window import HOUR_MS
from gua_sample.containers import FILE_NAME, LABEL, MOUNT, Container, Known
from tests.lab import CONFIG, DAY_MS, MONDAY_MS, Gpu, Job, Report, held, hours_by, minutes, report_of, row, write
from tests.reports import CONTAINERS, contained_report
from tests.rolling import assert_same, expire, roll_up_days

TRAIN, SAME_NAME = "3f2a9c81d0b7", "904ef981a59f"
HINTED = Container("docker", "train", "pytorch", "ada", LABEL, 1)
ADA = Job(100, "ada", uid=1000, sm_percent=0)
SLICE = "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + "ab" * 32 + ".scope"
INSIDE = Job(101, None, uid=100_999, sm_percent=0, cgroup=SLICE)  # its identity is uid:1000


def docker(ident: str, pid: int) -> Job:
    return Job(pid, "root", uid=0, sm_percent=0, cgroup=f"/system.slice/docker-{ident}{'0' * 52}.scope")


def days_of(folder: Path, *gpus: Gpu) -> None:
    """Write Monday and Tuesday, an hour of each, so that Monday is closed."""
    write(folder, minutes(600, 660, *gpus) + minutes(2040, 2100, *gpus))


def know(folder: Path, **containers: Container) -> None:
    write_containers(str(folder), Known({name.removeprefix("_"): one for name, one in containers.items()}))


def report_days(folder: Path, config: Config = CONFIG) -> Report:
    return report_of(folder, MONDAY_MS, MONDAY_MS + 2 * DAY_MS, config=config)


def idle_hours(report: Report) -> dict[str, float]:
    return {who: value for (who, _), value in hours_by(report.identities, "identity").items()}


def test_a_hint_is_beside_the_identity_and_never_merged_with_that_person(tmp_path: Path) -> None:
    days_of(tmp_path, held(docker(TRAIN, 1)), held(ADA, index=1))
    know(tmp_path, **{TRAIN: HINTED})
    report = report_days(tmp_path)
    assert idle_hours(report) == pytest.approx({f"docker:{TRAIN}": 2, "ada": 2})
    columns = ("container", "owner_hint", "how")
    for frame in (report.identities, report.episodes):
        told = {one["identity"]: tuple(one[name] for name in columns) for one in frame.to_dict("records")}
        assert told == {f"docker:{TRAIN}": ("train", "ada", "label"), "ada": (None, None, None)}
    assert report.who(f"docker:{TRAIN}") == "ada? (docker: train)"
    assert report.who("ada") == "ada"


def test_two_containers_of_the_same_name_are_two_rows(tmp_path: Path) -> None:
    """Names are chosen by whoever starts a container."""
    days_of(tmp_path, held(docker(TRAIN, 1), docker(SAME_NAME, 2)))
    know(tmp_path, **{TRAIN: HINTED, SAME_NAME: HINTED._replace(owner=None, how=None)})
    report = report_days(tmp_path)
    assert idle_hours(report) == pytest.approx({f"docker:{TRAIN}": 2, f"docker:{SAME_NAME}": 2})
    know(tmp_path, **{TRAIN: HINTED, SAME_NAME: HINTED})
    text = renderer("text")(report_days(tmp_path), Options(sections=("identities",), width=200))
    assert text.count("ada? (docker: train)") == 2


@pytest.mark.parametrize("rolled_up", [False, True])
def test_a_rootless_container_is_its_users_whatever_is_known_of_others(tmp_path: Path, rolled_up: bool) -> None:
    """As its processes have that user's login uid, by which the user's own manager was started."""
    inside = INSIDE._replace(login_user="ada")
    days_of(tmp_path, held(inside, ADA), held(docker(TRAIN, 5), index=1))
    know(tmp_path, **{TRAIN: HINTED, "ab" * 6: HINTED._replace(owner="eve")})
    if rolled_up:
        roll_up_days(str(tmp_path))
        expire(tmp_path, "2026-11-16", "2026-11-17")
    report = report_days(tmp_path)
    assert idle_hours(report) == pytest.approx({"ada": 2, f"docker:{TRAIN}": 2})
    assert (report.from_rollups_seconds > 0) == rolled_up


def test_the_administrators_word_counts(tmp_path: Path) -> None:
    days_of(tmp_path, held(INSIDE), held(docker(TRAIN, 5), index=1))
    know(tmp_path, **{TRAIN: HINTED})
    report = report_days(tmp_path, CONFIG._replace(people={"uid:1000": "eve", f"docker:{TRAIN}": "bob"}))
    assert idle_hours(report) == pytest.approx({"eve": 2, "bob": 2})
    assert row(report.identities, "identity", "bob")["owner_hint"] is None
    assert report.containers == {}


def test_a_file_that_cant_be_used_costs_a_line_and_the_names(tmp_path: Path) -> None:
    days_of(tmp_path, held(docker(TRAIN, 5)))
    expected = report_days(tmp_path)
    (tmp_path / FILE_NAME).symlink_to("/etc/passwd")
    report = report_days(tmp_path)
    assert_same(expected, report)
    assert report.warnings == []
    (problem,) = report.people_problems
    assert problem.startswith(f"{tmp_path}/{FILE_NAME} is a link")
    assert reasons(report, HOUR_MS) == reasons(expected, HOUR_MS)
    assert f"Warning: {problem}" in renderer("text")(report, Options(width=400))
    assert json.loads(renderer("json")(report, Options()))["warnings"] == [problem]
    assert problem not in renderer("html")(without_names(report, {}), Options())


@pytest.mark.parametrize("name", FORMATS)
def test_a_page_without_names_tells_of_no_container(name: str) -> None:
    report = contained_report()
    plain = without_names(report, number_people([report]))
    assert set(report.named_frames) == set(plain.named_frames)
    secrets = [text for one in CONTAINERS.values() for text in (one.name[:12], one.image, one.owner) if text]
    secrets += [*CONTAINERS, "904ef981a59f", "docker", "podman", "ml/"]
    for section in SECTIONS:
        options = Options(sections=(section,), attention=tuple(reasons(plain, HOUR_MS)) if name != "csv" else ())
        text = renderer(name)(plain, options)
        shown = renderer(name)(report, options)
        for secret in secrets:
            assert not re.search(rf"(?<!\w){re.escape(secret)}", text), (section, secret)
        assert "docker" in shown or section not in ("identities", "episodes")
    assert plain.containers == {}
    for frame in (plain.identities, plain.episodes):
        assert frame[["container", "owner_hint", "how"]].isna().all(axis=None)


def test_a_mounted_home_is_a_hint_too(tmp_path: Path) -> None:
    days_of(tmp_path, held(docker(TRAIN, 5)))
    know(tmp_path, **{TRAIN: HINTED._replace(how=MOUNT)})
    assert report_days(tmp_path).identities["how"].tolist() == ["mount"]
