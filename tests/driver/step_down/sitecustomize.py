"""Loaded by each Python of a test: write down what it imports, or opens of its own files, after it gave up root.

Where the new user can't read Python's files, each of these would fail.
"""

import os
import sys

PLACES = tuple({os.path.realpath(path) + os.sep for path in (sys.prefix, sys.base_prefix)})
LOG = os.environ["GUA_TEST_STEP_DOWN_LOG"]
setresuid = os.setresuid
users: list[int] = []


def note_user(*uids: int) -> None:
    setresuid(*uids)
    if uids[0]:
        users.append(uids[0])


def watch(event: str, arguments: tuple[object, ...]) -> None:
    if not users or event not in ("import", "open"):
        return
    what = str(arguments[0])
    if what not in sys.modules if event == "import" else what.startswith(PLACES):
        descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{event} {what}\n".encode())
        os.close(descriptor)


os.setresuid = note_user
sys.addaudithook(watch)
