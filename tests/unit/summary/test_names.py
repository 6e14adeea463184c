"""Groups in place of names: the sums stay, and nothing else of anybody does."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gua_report.people.groups import NO_GROUP
from gua_report.render import FORMATS, SECTIONS, Options, renderer
from gua_report.render.attention import reasons
from gua_report.summary.names import number_people, with_groups, without_names
from tests.lab import CONFIG, HOUR_MS, Report, report_of
from tests.reports import reserved_report
from tests.rolling import lab_days

GROUPS = {"a": ("rosa", "hana"), "b": ("hana", "ollama"), "c": ("zoe",)}
HOURS = ["gpu_hours", "active_gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours"]
SECONDS = ["active_seconds", "idle_held_seconds", "unknown_seconds"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder: Path = tmp_path_factory.mktemp("days")
    start, end = lab_days(folder)
    return report_of(folder, start, end, config=CONFIG._replace(groups=GROUPS, price_per_gpu_hour=2.0))


def group_of(who: str) -> str:
    found = [name for name, members in GROUPS.items() if who in members]
    return who if who == "(unattributed)" else found[0] if found else NO_GROUP


def test_the_numbers_by_group_add_up_to_those_of_the_people(report: Report) -> None:
    grouped = with_groups(report)
    for field, columns in (
        ("identities", [*HOURS, "idle_held_cost"]),
        ("identity_days", HOURS[1:]),
        ("timeline_holders", SECONDS),
    ):
        frame, found = getattr(report, field), getattr(grouped, field)
        key = [name for name in frame if name in ("identity", "gpu_uuid", "start_ms", "end_ms")]
        expected = frame.assign(identity=frame["identity"].map(group_of)).groupby(key)[columns].sum()
        assert len(expected) == len(found) < len(frame)
        pd.testing.assert_frame_equal(
            found.set_index(key)[columns].sort_index(), expected, check_index_type=False, check_dtype=False
        )
        assert found[columns].sum().tolist() == pytest.approx(frame[columns].sum().tolist())
    assert set(grouped.identities["identity"]) == {"a", "b", NO_GROUP}
    used = grouped.identities["active_gpu_hours"] + grouped.identities["idle_held_gpu_hours"]
    share = grouped.identities["idle_held_gpu_hours"] / used
    assert grouped.identities["idle_held_share"].tolist() == pytest.approx(share.tolist())
    assert grouped.identities["idle_held_gpu_hours"].is_monotonic_decreasing


def test_nothing_of_anybody_is_left_in_any_format(report: Report) -> None:
    marks = {who: f"MARK-{number}" for number, who in enumerate(report.identities["identity"])}
    assert len(marks) > 10
    marked = {
        field: frame.assign(identity=[marks.get(who, who) for who in frame["identity"]])
        for field, frame in report.named_frames.items()
    }
    for field in ("episodes", "now"):
        marked[field] = marked[field].assign(command="MARK-command", pid=4_711_471)
    hidden = with_groups(replace(report, **marked, warnings=["skipped: /home/MARK/x.sqlite is no partition"]))  # type: ignore[arg-type]
    attention = tuple(reasons(hidden, HOUR_MS))
    for name in FORMATS:
        for sections in [(section,) for section in SECTIONS] if name == "csv" else [SECTIONS, ("now", "groups")]:
            text = renderer(name)(hidden, Options(sections=sections, attention=attention))
            assert "MARK" not in text
            assert "4711471" not in text


def test_reservations_are_added_up_too_and_what_is_unknown_stays_so() -> None:
    report = reserved_report()
    assert report.reservations is not None
    people = report.reservations["identity"].tolist()
    hidden = with_groups(replace(report, memberships=None))
    assert hidden.reservations is not None
    assert set(hidden.reservations["identity"]) == {NO_GROUP}
    assert hidden.reservations["reserved_hours"].sum() == report.reservations["reserved_hours"].sum()
    assert hidden.reservation_problems == ["1 problem in the sources of reservations"]
    unknown = replace(report, reservations=report.reservations.assign(unreserved_hours=float("nan")))
    found = with_groups(unknown).reservations
    assert found is not None
    assert found["unreserved_hours"].isna().all()
    assert without_names(report, number_people([report])).reservations is not None
    assert len(people) == 4


def test_that_somebody_is_in_several_groups_is_said_and_which_one_counts(report: Report) -> None:
    assert "1 person is in several groups, and counted in the first of them" in with_groups(report).notes
