"""podman in a guest, as root and as a user: containers of one program, from an image made of busybox."""

import shlex

from tests.end_to_end.guest import Guest

# Limits, sysctls and networks of containers take rights that a guest lacks.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
default_sysctls = []
pids_limit = 0
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "systemd"
"""
STORAGE_CONF = """\
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
"""
IMPORT = "tar -C /opt/box -c . | podman import --quiet - box"
IMAGE = "localhost/box:latest"


def prepare(guest: Guest, user: str) -> None:
    """Make the image, for root and for a user, who is to have a manager of their own at each boot."""
    guest.write("/etc/containers/containers.conf", CONTAINERS_CONF)
    guest.write("/etc/containers/storage.conf", STORAGE_CONF)
    guest.write(f"/home/{user}/.config/containers/storage.conf", '[storage]\ndriver = "vfs"\n')
    guest.run("chown", "-R", f"{user}:", f"/home/{user}")
    guest.run("sh", "-c", "mkdir -p /opt/box/bin && cp /bin/busybox /opt/box/bin/ && ln -s busybox /opt/box/bin/sleep")
    guest.run("sh", "-c", IMPORT)
    start_user(guest, user)
    run_as(guest, user, IMPORT)


def start_user(guest: Guest, user: str) -> str:
    """Start the user's own manager, as a login does, and return the uid."""
    # A guest's own /proc has parts mounted over, and the kernel lets nobody mount a new one who sees but such.
    guest.run(
        "sh", "-c", "mountpoint -q /run/fullproc || { mkdir -p /run/fullproc; mount -t proc proc /run/fullproc; }"
    )
    guest.run("loginctl", "enable-linger", user)
    uid = guest.run("id", "-u", user).stdout.strip()
    guest.run("systemctl", "start", f"user@{uid}.service")
    return uid


def run_as(guest: Guest, user: str, command: str) -> str:
    """The output of a shell command in a session of the user's."""
    uid = guest.run("id", "-u", user).stdout.strip()
    bus = f"XDG_RUNTIME_DIR=/run/user/{uid} DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/{uid}/bus"
    session = ["--quiet", "--pipe", "--wait", "--collect", f"--uid={user}", "--property=PAMName=login"]
    words = [*session, f"--property=Environment={bus}", f"--working-directory=/home/{user}", "sh", "-c", command]
    return guest.run("systemd-run", *words, timeout=120).stdout


def start_container(guest: Guest, name: str, *options: str, user: str | None = None) -> tuple[str, int]:
    """Run a container; returns its id and the pid of its process."""
    start = shlex.join(["podman", "run", "--detach", "--name", name, *options, "box", "/bin/sleep", "600"])
    inspect = shlex.join(["podman", "inspect", "--format", "{{.Id}} {{.State.Pid}}", name])
    command = f"{start} >/dev/null && {inspect}"
    output = run_as(guest, user, command) if user else guest.run("sh", "-c", command, timeout=120).stdout
    container, pid = output.split()
    return container, int(pid)
