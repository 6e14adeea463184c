"""Guests with gua installed by `make install`, a stand-in driver, and a user."""

import email
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from tests.driver import Scenario, build
from tests.end_to_end.guest import Guest
from tests.mail_server import PASSWORD, USER
from tests.redis_server import CERTIFICATE
from tests.repository import ROOT, page

SOURCE = "/usr/local/src/gua"
WHEELS = "/usr/local/src/wheels"
PYTHON = "/usr/bin/python3"
DRIVER = "/usr/local/lib/libnvidia-ml.so.1"
SCENARIO = "/etc/gua-stand-in-scenario"
SAMPLES = "/var/lib/gua/samples"
UNIT = "gua-sample.service"
# Prefixes of variables that pip may need to reach the package index from here.
INDEX_VARIABLES = ("PIP_", "SSL_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "https_proxy")


NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}


def index_environment() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name.startswith(INDEX_VARIABLES)}
    return {name: value for name, value in found.items() if not name.endswith("CONSTRAINT")}


def clone(guest: Guest) -> None:
    """Copy the files that a fresh clone has, in their present state."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():  # git also lists deleted files
            path = Path(f"/proc/{guest.pid}/root{SOURCE}/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, path)


def make(guest: Guest, target: str, *variables: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options.setdefault("timeout", 300)
    options["environment"] = index_environment() | options.get("environment", {})
    return guest.run("make", target, f"PYTHON={PYTHON}", *variables, cwd=SOURCE, **options)


def make_renamable(guest: Guest) -> None:
    """Copy the environment: in a layer below, the old one can't be renamed by an upgrade; on a disk it can."""
    guest.run("sh", "-c", "cp -a /opt/gua /opt/copy && rm -r /opt/gua && mv /opt/copy /opt/gua")


def install_driver(guest: Guest, folder: Path, scenario: Scenario) -> None:
    build(folder)
    for library in folder.glob("*.so*"):
        shutil.copy(library, guest.path(f"/usr/local/lib/{library.name}"))
    guest.run("ldconfig")
    set_scenario(guest, scenario)


def set_scenario(guest: Guest, scenario: Scenario) -> None:
    guest.write(SCENARIO, scenario.text())


def busy_scenario() -> Scenario:
    """A scenario of three cards: one at work, one that pid 1 of the guest holds idle, one free."""
    scenario = Scenario()
    scenario.add_card(utilization_percent=87)
    scenario.add_card(compute=[(1, 8192)])
    scenario.add_card()
    return scenario


def drop_in(guest: Guest, unit: str, section: str, *lines: str, name: str = "50-test.conf") -> None:
    guest.write(f"/etc/systemd/system/{unit}.d/{name}", "\n".join([f"[{section}]", *lines, ""]))
    guest.run("systemctl", "daemon-reload")


def show_boot_id(guest: Guest) -> None:
    """Make the unit see the guest's boot id: in its fresh /proc it is the kernel's, that is, the host's."""
    boot_id = "/proc/sys/kernel/random/boot_id"
    guest.run("cp", boot_id, "/run/guest-boot-id")
    drop_in(guest, UNIT, "Service", f"BindReadOnlyPaths=/run/guest-boot-id:{boot_id}", name="boot.conf")


# Runs in the unit itself, which sees the boot id that it will see later: what is on the cards now was so for 26 hours.
LASTING = """
import time
from gua_report.live import snapshot
from gua_sample import store

now_ms = time.time_ns() // 1_000_000
tick = snapshot.look(snapshot.machine(), None, now_ms)
minutes = [tick._replace(ts_ms=now_ms - number * 60_000, interval_ms=60_000) for number in range(26 * 60, -1, -1)]
store.append_history(store.prepare("/var/lib/gua"), minutes)
"""


def let_it_last(guest: Guest, unit: str) -> None:
    """Make a history, at the first run of the unit, in which what is on the cards then has been so for long."""
    guest.write("/opt/history.py", LASTING)
    make = "/opt/gua/bin/python /opt/history.py"
    become = "setpriv --reuid gua --regid gua --init-groups"
    lines = [f"test -e {SAMPLES} && exit", f'test "$(id -u)" = 0 && exec {become} {make}', f"exec {make}"]
    guest.write("/opt/history.sh", "\n".join([*lines, ""]))
    guest.run("rm", "-rf", SAMPLES)
    drop_in(guest, unit, "Service", "ExecStartPre=/bin/sh /opt/history.sh", name="40-history.conf")


def install_units(guest: Guest, service: str, closed: bool = False) -> None:
    """Install units of contrib as the service says itself; or, `closed`, what closes it to all but a mail server."""
    for command in re.findall(r"^#\s+sudo (install .*)$", (ROOT / service).read_text(), re.MULTILINE):
        if ("smtp.conf" in command) == closed:
            guest.run("sh", "-c", command, cwd=SOURCE)
    guest.run("systemctl", "daemon-reload")


def is_there(guest: Guest, path: str) -> bool:
    return guest.run("test", "-s", path, check=False).returncode == 0


def read_mailbox(guest: Guest, user: str = "somebody") -> list[EmailMessage]:
    """The mails of the mailbox, in the order in which they came."""
    text = guest.read(f"/var/mail/{user}") if is_there(guest, f"/var/mail/{user}") else ""
    parts = re.split(r"^From .*\n", text, flags=re.MULTILINE)[1:]
    messages = [email.message_from_string(part, policy=email.policy.default) for part in parts]
    return [message for message in messages if isinstance(message, EmailMessage)]


# Runs beside a unit: the server of the unit tests, until it has got a mail.
MAIL_SERVER = """
import json, time
from pathlib import Path
from tests.mail_server import mail_server

with mail_server(login=True) as server:
    Path("/run/mail-server.url").write_text(server.url)
    while not server.received:
        time.sleep(0.05)
(got,) = server.received
facts = [got.sender, got.recipients, got.user, got.is_encrypted, got.content.decode()]
Path("/run/mail.json").write_text(json.dumps(facts))
"""


def start_mail_server(guest: Guest) -> str:
    """Start it, and leave its password and certificate for gua; returns what [mail] needs to use it."""
    guest.write("/opt/server.py", MAIL_SERVER)
    command = ["--setenv", f"PYTHONPATH={ROOT}", sys.executable, "/opt/server.py"]
    guest.run("systemd-run", "--unit=mail-server", "--setenv=PYTHONDONTWRITEBYTECODE=1", *command)
    guest.wait_until(lambda: is_there(guest, "/run/mail-server.url"), 60, "a server")
    guest.run("install", "-m", "640", "-o", "root", "-g", "gua", "/dev/null", "/etc/gua/smtp-password")
    guest.run("tee", "/etc/gua/smtp-password", stdin=PASSWORD + "\n")
    guest.run("install", "-m", "644", str(CERTIFICATE), "/etc/gua/ca.pem")
    login = f'smtp_user = "{USER}"\npassword_file = "/etc/gua/smtp-password"\nca_file = "/etc/gua/ca.pem"\n'
    return f'smtp = "{guest.read("/run/mail-server.url")}"\nfrom = "gua@lab.example"\n{login}'


def read_mail_of_server(guest: Guest) -> list[Any]:
    """Sender, recipients, who has logged in, whether it was encrypted, and the content."""
    guest.wait_until(lambda: is_there(guest, "/run/mail.json"), 60, "a mail")
    found: list[Any] = json.loads(guest.read("/run/mail.json"))
    return found


# Runs in the place of a unit's program, and says what it could do. Its device is everybody's, of a major number that no
# driver has (60, see the kernel's devices.txt): who is told more than that was stopped by the unit's device policy.
PROBE = """
import ctypes, json, os, socket, sys, time

def attempt(action):
    try:
        action()
    except OSError as error:
        return error.strerror
    return "done"

def write(folder):
    def action():
        path = os.path.join(folder, "probe")
        open(path, "w").close()
        os.unlink(path)
    return action

def call(name, *arguments):
    def action():
        if getattr(libc, name)(*arguments) == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return action

libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
folders = ["/", "/etc", "/etc/gua", "/opt/gua", "/usr/local/bin", "/var", "/var/lib", "/var/lib/gua",
           "/var/spool/probe", "/home", "/home/somebody", "/root", "/run", "/run/gua", "/run/user", "/dev", "/dev/shm",
           "/sys/fs/cgroup"]
found = {
    "writes": [folder for folder in folders if attempt(write(folder)) == "done"],
    "home": attempt(lambda: os.listdir("/home/somebody")),
    "inet": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
    "netlink": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()),
    "unix": attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()),
    "device": attempt(lambda: open("/opt/probe-node", "rb").close()),
    "become root": attempt(lambda: os.setuid(0)),
    "mount": attempt(call("mount", b"none", b"/mnt", b"tmpfs", 0, None)),
    "namespace": attempt(call("unshare", 0x10000000)),
    "clock": attempt(lambda: time.clock_settime(0, 0)),
    "of pid 1": os.path.exists("/proc/1"),
    "capabilities": [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")],
    "no new privileges": status["NoNewPrivs"].strip(),
}
# MORE
print("<4>PROBE " + json.dumps(found), file=sys.stderr)
"""


def probe(guest: Guest, unit: str, more: str = "") -> dict[str, Any]:
    """What the program of a unit could do, by trying it in the program's place."""
    guest.write("/opt/probe.py", PROBE.replace("# MORE", more))
    guest.run("mknod", "--mode=666", "/opt/probe-node", "c", "60", "0")
    guest.run("sh", "-c", "mkdir /var/spool/probe && chmod 777 /var/spool/probe /home/somebody")
    start = ("ExecStart=", "ExecStart=/opt/gua/bin/python /opt/probe.py")
    drop_in(guest, unit, "Service", *start, name="60-probe.conf")
    guest.run("systemctl", "start", unit)
    (said,) = [line.removeprefix("PROBE ") for line in guest.journal(unit) if line.startswith("PROBE ")]
    found: dict[str, Any] = json.loads(said)
    return found


HOLD = "/usr/lib/systemd/system/gua-sample.timer.d"


def hold_timer(guest: Guest) -> None:
    """Keep the enabled timer from starting from the next boot on, so that all runs are a test's own."""
    guest.write(f"{HOLD}/hold.conf", "[Unit]\nConditionPathExists=/nowhere\n")


def release_timer(guest: Guest) -> None:
    guest.run("rm", "-r", HOLD)
    guest.run("systemctl", "daemon-reload")
    guest.run("systemctl", "start", "gua-sample.timer")


def sample(guest: Guest) -> int:
    """Run the unit once; returns 0 if systemd calls it a success."""
    return guest.run("systemctl", "start", UNIT, check=False, timeout=120).returncode


# Not with the host's SQLite: it follows /proc/PID/root to the host's own files.
QUERY = """
import glob, json, sqlite3, sys
found = []
for path in sorted(glob.glob(sys.argv[1] + "/????-??-??.sqlite")):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    connection.row_factory = sqlite3.Row
    found += [dict(row) for row in connection.execute(f"SELECT * FROM {sys.argv[2]} ORDER BY ts_ms")]
print(json.dumps(found))
"""


def rows(guest: Guest, view: str) -> list[dict[str, Any]]:
    """All rows of a view, in the order of time."""
    found: list[dict[str, Any]] = json.loads(guest.run(PYTHON, "-c", QUERY, SAMPLES, view).stdout)
    return found


def errors(guest: Guest) -> list[str | None]:
    return [tick["error"] for tick in rows(guest, "ticks")]


def our_lines(guest: Guest) -> list[str]:
    """The lines that the sampler itself logged, each with its priority."""
    entries = [json.loads(line) for line in guest.journal(UNIT, output="json")]
    return [f"<{one['PRIORITY']}>{one['MESSAGE']}" for one in entries if one.get("_TRANSPORT") == "stdout"]


def report(guest: Guest, *arguments: str, user: str | None = None) -> dict[str, Any]:
    done = guest.run("gua-report", "--format", "json", *arguments, user=user)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def findings(guest: Guest, **options: Any) -> dict[str, str]:
    """Status and text of each check that `gua doctor` does not find ok."""
    document = json.loads(guest.run("gua", "doctor", "--json", check=False, **options).stdout)
    return {one["check"]: f"{one['status']}: {one['text']}" for one in document["findings"] if one["status"] != "ok"}


def files(guest: Guest) -> set[str]:
    """Paths in the folders that an installation may write to, without those that programs of the system leave there."""
    folders = (
        "/etc",
        "/opt",
        "/usr/local",
        "/usr/lib/systemd",
        "/usr/lib/sysusers.d",
        "/var/lib",
        "/var/spool",
        "/home",
        "/root",
    )
    found = guest.run("find", *folders, "-xdev").stdout.splitlines()
    passing = ("/root/.cache", "/var/lib/systemd", "/etc/.pwd.lock", HOLD)
    return {path for path in found if not path.startswith(passing) and not path.endswith("-")}


def documented_output(command: str) -> list[str]:
    """The output that docs/operations.md shows for a command, where it is about installing."""
    (block,) = [block for block in page("operations.md").split("```") if "$ sudo make install\n" in block]
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
    (output,) = [output for shown, _, output in parts if shown == command]
    return without_numbers(output.strip("\n"))


def without_numbers(text: str) -> list[str]:
    """The lines, with placeholders for everything that depends on the time or on the machine's size."""
    text = re.sub(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "DAY", text.strip("\n"))
    text = re.sub(r"[0-9][0-9.:-]*", "#", text)
    text = re.sub(r"# ?(ms|s|min|h|days?)\b", "#", text)
    text = re.sub(r"# ?([KMGT]iB|bytes)\b", "# bytes", text)
    return [re.sub(r"#( #)+", "#", " ".join(line.split())) for line in text.splitlines()]


def assert_like_docs(guest: Guest, command: str) -> None:
    """Compare a command's output with the docs, word for word, except for numbers and text after an ellipsis."""
    said, shown = without_numbers(guest.run("sh", "-c", command).stdout), documented_output(command)
    assert len(said) == len(shown), said
    for line, expected in zip(said, shown, strict=True):
        start, ellipsis, _ = expected.partition("...")
        assert line.startswith(start) if ellipsis else line == expected, said
