import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gua_report import config
from gua_report.config import Config, Limit, Limits, Mail, Remind, load_config
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT, Policy

DEFAULTS = Config(DEFAULT, None, None, "USD", {})

Load = Callable[[str], Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str) -> Config:
        path = tmp_path / "gua.toml"
        path.write_text(text, encoding="utf-8")
        return load_config(str(path))

    return write_and_load


def test_every_key_is_read(load: Load) -> None:
    assert load(
        """
        policy = {utilization_percent = 5, process_memory_mib = 200.5, unattributed_memory_mib = 2048}
        price = {per_gpu_hour = 2, per_kwh = 0.31, currency = "€"}
        retention = {raw_days = 90, csv_days = 30, rollup_days = 3650}
        reservations = {file = "/etc/gua/rooms.csv", folder = "/var/spool/jobs", redis = "redis://localhost:6379/0"}
        people = {"docker:3f2a9c81d0b7" = "alice", "uid:1005" = "Bob Müller"}
        groups = {vision = ["alice", "@vision"], nobody = []}
        exempt = {"unit:ollama.service" = "serves the laboratory"}
        containers = {owner_label = "org.example.owner"}
        fleet = {publish = true}
        hosts = {vision = ["gpu01", "gpu1*"]}
        notes = {spool = "/srv/notes"}
        [mail]
        domain = "lab.example"
        administrator = "gpu-admins@lab.example"
        from = "gua@lab.example"
        smtp = "smtp://mail.lab.example:587"
        smtp_user = "gua"
        password_file = "/etc/gua/smtp-password"
        ca_file = "/etc/ssl/lab.pem"
        addresses = {"Bob Müller" = "bob@elsewhere.example"}
        groups = {vision = "head.of.vision@lab.example"}
        [limits]
        everyone = {idle_held_hours = 20, gpu_hours = 100.5}
        people = {"Bob Müller" = {idle_held_hours = 40}}
        groups = {vision = {gpu_hours = 500}}
        [remind]
        after = "90m"
        days = ["mon", "sun"]
        hours = "8-24"
        holidays = ["2026-12-25"]
        templates = ["/etc/gua/remind.txt"]
        ask = "Ada in room 7"
        [hook]
        idle_after = "1d"
        run = "/etc/gua/on-idle"
        timeout = "30s"
        """
    ) == Config(
        Policy(5.0, 200.5, 2048.0),
        *(2.0, 0.31, "€"),
        {"docker:3f2a9c81d0b7": "alice", "uid:1005": "Bob Müller"},
        config.Retention(90, 30, 3650),
        config.Reservations("/etc/gua/rooms.csv", "/var/spool/jobs", "redis://localhost:6379/0"),
        {"vision": ("alice", "@vision"), "nobody": ()},
        {"unit:ollama.service": "serves the laboratory"},
        config.Containers("org.example.owner"),
        config.Notes("/srv/notes"),
        Mail(
            *("lab.example", "gpu-admins@lab.example", "gua@lab.example", "smtp://mail.lab.example:587", "gua"),
            *("/etc/gua/smtp-password", "/etc/ssl/lab.pem"),
            addresses={"Bob Müller": "bob@elsewhere.example"},
            groups={"vision": "head.of.vision@lab.example"},
        ),
        config.Fleet(publish=True),
        Limits(Limit(20, 100.5), {"Bob Müller": Limit(40)}, {"vision": Limit(gpu_hours=500)}),
        Remind("90m", ("mon", "sun"), "8-24", ("2026-12-25",), ("/etc/gua/remind.txt",), "Ada in room 7"),
        config.Hook("1d", "/etc/gua/on-idle", "30s"),
        {"vision": ("gpu01", "gpu1*")},
    )


def test_what_the_file_leaves_out_has_its_default(load: Load) -> None:
    tables = ("policy", "price", "people", "retention", "reservations", "groups", "notes", "fleet", "remind", "hook")
    within = ("mail", "mail.addresses", "mail.groups", "limits", "limits.people", "limits.groups")
    assert load("") == load("\n".join(f"[{table}]" for table in (*tables, *within))) == DEFAULTS
    assert load("policy.process_memory_mib = 0") == DEFAULTS._replace(policy=DEFAULT._replace(process_memory_mib=0.0))


def test_without_an_option_the_systems_file_is_read_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gua.toml"
    monkeypatch.setattr(config, "SYSTEM_CONFIG", str(path))
    assert load_config(None) == DEFAULTS
    path.write_text("[price]\nper_kwh = 0\n")
    assert repr(load_config(None).price_per_kwh) == "0.0"
    path.write_text("[prices]\n")
    with pytest.raises(UsageError, match=f"^{path}: "):
        load_config(None)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(UsageError, match="can't be read: Too many levels"):
        load_config(None)


def test_a_named_file_must_exist_and_be_a_text(tmp_path: Path) -> None:
    path = tmp_path / "gua.toml"
    path.write_bytes(b"[price]\ncurrency = '\xff'\n")
    missing = str(tmp_path / "gau.toml")
    for name, said in (
        (missing, f"no config file '{missing}'"),
        ("", "no config file ''"),
        (str(tmp_path), "directory"),
        (str(path), "expected a TOML file"),
    ):
        with pytest.raises(UsageError, match=said):
            load_config(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[polcy]\nx = 1",
            ["unknown table, 'polcy' = {'x': 1}", "policy, price, retention, reservations, containers", "mean policy?"],
        ),
        ("[Price]", ["unknown table, 'Price'", "did you mean price?"]),
        ("[policy]\nutil = 5", ["unknown key in [policy], 'util' = 5", "did you mean utilization_percent?"]),
        ("[price]\n'\\u001b' = 3", [r"'\\u001b' = 3", "expected one of per_gpu_hour, per_kwh, currency"]),
        ("per_kwh = 0.3", ["unknown key, 'per_kwh' = 0.3", "it belongs in [price]"]),
        ("[policy]\nper_kwh = 0.3", ["unknown key in [policy], 'per_kwh' = 0.3", "it belongs in [price]"]),
    ],
)
def test_an_unknown_key_names_the_nearest_right_one(load: Load, text: str, said: list[str]) -> None:
    check_message(load, text, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[fleet]\npublish = "yes"', ["'publish' = 'yes' in [fleet]", "expected true or false"]),
        ("policy = 5", ["policy = 5", "expected a table, [policy]"]),
        ("[[people]]\nalice = 'a'", ["people = [{'alice': 'a'}]", "expected a table, [people]"]),
        ("[policy]\nutilization_percent = -1", ["'utilization_percent' = -1", "a number from 0 to 100"]),
        ("[policy]\nutilization_percent = '10'", ["= '10' in [policy]", "a number from 0 to 100"]),
        ("[policy]\nprocess_memory_mib = nan", ["nan", "a number of MiB, 0 or more"]),
        ("[price]\nper_gpu_hour = -0.01", ["-0.01", "a number, 0 or more"]),
        (f"[price]\nper_kwh = 1{'0' * 400}", ["1000", "...", "a number, 0 or more"]),
        ("[price]\ncurrency = ''", ["'currency' = ''", "a text of 1 to 12"]),
        ("[retention]\nraw_days = 0", ["'raw_days' = 0", "a whole number of days, 1 or more"]),
        ("[retention]\ncsv_days = 1.5", ["'csv_days' = 1.5", "a whole number of days"]),
        ("[reservations]\nredis = 'localhost'", ["'redis' = '...'", 'a URL such as "redis://localhost:6379/0"']),
        ("[people]\n'uid:1' = 1", ["'uid:1' = 1 in [people]", "a name in quotes"]),
        ('[people]\nbob = "a\\nb"', [r"'a\nb'", "without control characters"]),
        ("[mail]\ndomain = 'lab example'", ["'domain' = '...' in [mail]", "a domain such as"]),
        ("[mail]\nadministrator = 'root'", ["'administrator' = '...'", 'one address such as "root@localhost"']),
        ("[mail]\nsmtp = 'mail.lab.example'", ["'smtp' = ", "a URL such as", "without a login"]),
        ("[mail]\nsmtp_user = 'gü'", ["'smtp_user' = ", "a name in ASCII"]),
        ('[mail.addresses]\nada = "a@b\\nBcc: c@d"', [r"'a@b\nBcc: c@d'", "one address"]),
        ('[mail.addresses]\n"a\\n" = "a@b"', [r"bad key 'a\n' in [mail.addresses]", "without control characters"]),
        ("['mail.addresses']\nada = 'a@b'", ["unknown table, 'mail.addresses'"]),
        ("[mail]\nadministrators = 'a@b'", ["unknown key in [mail], 'administrators' = '...'", "mean administrator?"]),
        ("[remind]\nafter = 2", ["'after' = 2 in [remind]", 'a duration such as "2h"']),
        ("[remind]\ndays = ['monday']", ["a list of some of mon, tue"]),
        ("[remind]\nhours = '19-7'", ["hours of the day"]),
        ("[remind]\nhours = '\u0667-19'", ["hours of the day"]),
        ("[remind]\nholidays = ['25.12.']", ["a list of dates"]),
        ("[remind]\ntemplates = ['remind.txt']", ["a list of absolute paths"]),
        ('[remind]\nask = "a\\nb"', ["a text in quotes"]),
        ("[hook]\nrun = 'on-idle'", ["the absolute path of a file"]),
        ("[hook]\ntimeout = '0s'", ["a duration"]),
        ("[mail]\nsmtp = 'smtp://h'", ["[mail] has 'smtp' but no 'from': add it"]),
        ("[mail]\nca_file = '/ca'", ["[mail] has 'ca_file' but no 'smtp': add it"]),
        ("[mail]\nfrom='a@b'\nsmtp = 'smtp://h'\nsmtp_user = 'gua'", ["'smtp_user' but no 'password_file'"]),
        ("[mail]\nfrom='a@b'\nsmtp = 'smtp://h'\npassword_file = '/p'", ["'password_file' but no 'smtp_user'"]),
        ("[mail.groups]\nvision = 'a@b'", ["'vision' in [mail.groups] is no group: add it to [groups]"]),
        ("[groups]\nv = []\n[limits.groups.vision]\ngpu_hours = 1", ["'vision' in [limits.groups] is no group"]),
        ("[limits]\neveryone = 20", ["'everyone' = 20 in [limits]", "a table with idle_held_hours, gpu_hours or both"]),
        ("[limits.everyone]", ["'everyone' = {} in [limits]", "a table with idle_held_hours"]),
        ("[limits.everyone]\ngpu_hours = 0", ["{'gpu_hours': 0}", "a number of GPU-hours a week above 0"]),
        ("[limits.people.ada]\nhours = 1", ["'ada' = {'hours': 1} in [limits.people]", "a table with idle_held_hours"]),
        ("[limits.ada]\ngpu_hours = 1", ["unknown key in [limits], 'ada'", "expected one of everyone, people, groups"]),
    ],
)
def test_a_wrong_value_names_itself_and_what_was_expected(load: Load, text: str, said: list[str]) -> None:
    check_message(load, text, said)


@pytest.mark.parametrize(
    "text",
    [
        "[reservations]\nredis = 'http://gua:hunter2@host'",
        "[reservations]\nredis = 'http://host?password=hunter2'",
        "[reservations]\nrediss = 'redis://gua:hunter2/@@host'",
        "[reservation]\nredis = 'redis://:hunter2@host'",
        "[mail]\npassword = 'hunter2'",
        "[mail]\npassword_file = 'hunter2'",
        "[mail]\nsmtp = 'smtp://gua:hunter2@host'",
        "[mail]\nsmtp = 'hunter2'",
        "[mail.password]\nx = 'hunter2'",
        "[mail]\naddresses = {smtp_password = 'hunter2'}",
        "mail = 'hunter2'",
        "[mails]\npassword = 'hunter2'",
        "password = 'hunter2'",
    ],
)
def test_no_message_shows_a_password(load: Load, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert "..." in str(caught.value)
    assert "hunter2" not in str(caught.value)


def check_message(load: Load, text: str, said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load(text)
    message = str(caught.value)
    assert [part for part in ["gua.toml: ", *said] if part not in message] == [], message
    assert message.isprintable()  # one line, and nothing that steers a terminal
    assert caught.value.exit_code == 2


values = st.sampled_from(["1", "-1", "1e999", "nan", "true", "'x'", "''", "[]", "{}", "1979-05-27", '"\\u0000"'])
keys = st.sampled_from(["utilization_percent", "per_kwh", "currency", "raw_days", "'uid:1'", "x", "''", '"\\n"'])
tables = st.sampled_from(["policy", "price", "retention", "people", "'\x7f'", "x"])
lines = st.builds("[{}]\n{} = {}".format, tables, keys, values)


@given(lines | st.builds("{} = {}".format, tables | keys, values) | st.text(max_size=40))
@example("a = 1\na = 2")
@example("a=" + "[" * 9999)
@example("\r")
@example("\ufeff[price]")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_the_file_holds_is_a_config_or_one_line_of_error(load: Load, text: str) -> None:
    with suppress(UnicodeEncodeError):  # lone surrogates can't be in a file
        message = ""
        try:
            assert load(text).currency
        except UsageError as error:
            message = str(error)
        assert message.isprintable()


def test_a_missing_file_costs_no_parser() -> None:
    code = "import sys, gua_report.config as c; c.SYSTEM_CONFIG = '/nowhere'; c.load_config(None); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"tomllib", "tomli", "difflib", "pandas"} & set(run.stdout.split()) == set()
