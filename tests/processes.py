"""Real processes with chosen command names."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NAME_ITSELF = (
    "import sys, time; open('/proc/self/comm', 'wb').write(bytes.fromhex(sys.argv[1]));"
    " print('ready', flush=True); time.sleep(60)"
)


@contextmanager
def process_named(name: bytes) -> Iterator[int]:
    """The pid of a real process that has given itself this command name."""
    with subprocess.Popen([sys.executable, "-c", NAME_ITSELF, name.hex()], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()
