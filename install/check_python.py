"""Can gua be installed with this Python? If not, says in one line what to do. Arguments: the make target, if any, and
what CONTAINERS= is.

Pythons as old as 2.7 must be able to read this file: no f-strings, no annotations.
"""
# ruff: noqa: UP032 - f-strings: see above

import os
import sys

PROTECTED = ("/home", "/root", "/run/user")  # out of the service's sight: ProtectHome=yes in the units
NOBODY = 65534
CANNOT_TRY = 100  # an exit status


def name_another(target, python):
    # type: (str, str) -> str
    return "name another with: make {}PYTHON={}".format(target + " " if target else "", python)


def check_version(target):
    # type: (str) -> str
    version = sys.version_info[:2]
    if version >= (3, 10):
        return ""
    reason = "gua needs Python 3.10 or newer, this is {}.{}".format(*version)
    return "{}; {}".format(reason, name_another(target, "python3.12"))


def check_modules(target):
    # type: (str) -> str
    try:
        import ensurepip
        import venv

        del ensurepip, venv
    except ImportError:
        package = "python{}.{}-venv".format(*sys.version_info)
        return "this Python has no venv; on Debian and Ubuntu, run: sudo apt install {}".format(package)
    try:
        import ctypes
        import sqlite3

        del ctypes
    except ImportError as error:
        reason = "this Python was built without a part that gua needs ({})".format(error)
        return "{}; {}".format(reason, name_another(target, "/usr/bin/python3"))
    if sqlite3.sqlite_version_info < (3, 37):
        reason = "gua needs SQLite 3.37 or newer, this Python has {}".format(sqlite3.sqlite_version)
        return "{}; {}".format(reason, name_another(target, "python3.12"))
    return ""


def check_reach(target):
    # type: (str) -> str
    """Whether the service, an unprivileged user without home folders, could run this Python."""
    # In a virtual environment it is the Python it was made from that matters.
    python = getattr(sys, "_base_executable", "") or sys.executable
    files = [os.path.realpath(python), os.path.realpath(os.__file__)]
    protected = any(file.startswith(folder + "/") for file in files for folder in PROTECTED)
    if protected or not nobody_can_run(python):
        reason = "the user gua, as whom the sampler runs, can't run {}".format(python)
        return "{}; {}".format(reason, name_another(target, "/usr/bin/python3"))
    return ""


def check_owner(target):
    # type: (str) -> str
    """Whether root's own service would run what somebody else can change."""
    python = getattr(sys, "_base_executable", "") or sys.executable
    for path in (os.path.realpath(python), os.path.dirname(os.path.realpath(os.__file__))):
        uid = os.stat(path).st_uid
        if uid != 0:
            reason = "with CONTAINERS=yes root would run {}, which is uid {}'s".format(path, uid)
            return "{}; {}".format(reason, name_another(target, "/usr/bin/python3"))
    return ""


def nobody_can_run(python):
    # type: (str) -> bool
    """Tried, not guessed: modes, ACLs, mount options and security modules all have a say. True if it can't be tried."""
    if os.geteuid() != 0:
        return True
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.chdir("/")
        except OSError:  # in a container whose root may not, or that has no such user
            os._exit(CANNOT_TRY)
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.execve(python, [python, "-I", "-c", "import ctypes, sqlite3"], {})  # noqa: S606 - no shell is wanted
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    return status == 0 or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == CANNOT_TRY)


def main():
    # type: () -> None
    target = sys.argv[1] if len(sys.argv) > 1 else ""
    checks = [check_version, check_modules] + ([check_reach] if target == "install" else [])
    checks += [check_owner] if sys.argv[2:] == ["yes"] else []
    for check in checks:
        complaint = check(target)
        if complaint:
            sys.exit(complaint)


if __name__ == "__main__":
    main()
