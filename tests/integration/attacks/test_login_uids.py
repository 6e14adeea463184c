"""A process that tells the kernel that a colleague has logged in to start it, as every process may once."""

import subprocess
from pathlib import Path

from gua_sample.identity import find_person, resolve
from gua_sample.processes import describe, read_boot
from tests.integration.attacks.attempts import ANOTHER
from tests.users import SOMEBODY, needs_root

SET_AND_WAIT = f"echo {ANOTHER} >/proc/self/loginuid; echo done; exec cat"


@needs_root
def test_a_process_that_sets_a_colleagues_login_uid_stays_its_owners() -> None:
    with subprocess.Popen(
        ["sh", "-c", SET_AND_WAIT],
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        cwd="/",
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "done\n"
        own = Path("/proc/self/loginuid")
        one = describe(process.pid, read_boot())
        process.terminate()
    assert one.uid == SOMEBODY
    if own.exists() and own.read_text() == "4294967295":  # else the kernel does not let it
        assert one.login_uid == ANOTHER
    assert resolve(one.uid, one.login_uid, one.user, one.login_user, one.cgroup) != f"uid:{ANOTHER}"
    assert find_person(one.uid, one.login_uid, one.cgroup) != ANOTHER
