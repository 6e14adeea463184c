"""Programs in the place of docker and podman: scripts that answer as these do, and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ID = "3f2a9c81d0b7" + "5" * 52
KEY = ID[:12]
SECRET = "hunter2-of-the-environment"  # noqa: S105 - nobody's
MIB = 1 << 20

# Like docker, it prefers names to the beginning of an id, and prints what --format asks for.
SCRIPT = """#!/usr/bin/env python3
import json, re, sys
with open({calls!r}, "a") as file:
    print(*sys.argv[1:], file=file)
wanted, layout = sys.argv[-1], sys.argv[sys.argv.index("--format") + 1]
with open({known!r}) as file:
    documents = json.load(file)
by_name = [one for one in documents if one["Name"] == "/" + wanted]
found = next(iter([*by_name, *(one for one in documents if one["Id"].startswith(wanted))]), None)
if found is None:
    sys.exit("Error response from daemon: No such container: " + wanted)
def look_up(match):
    value = found
    for name in match[1].split("."):
        value = value["Id" if name == "ID" else name]
    return json.dumps(value)
print(re.sub(r"{{{{json \\.([A-Za-z.]+)}}}}", look_up, layout))
"""


class Program:
    """A program in a folder for programs. `calls` are the arguments that it was given."""

    def __init__(self, path: Path) -> None:
        self.path, self._calls = path, path.with_name(f".{path.name}.calls")

    def knows(self, *documents: dict[str, Any]) -> Program:
        """Let it know these containers."""
        self.path.parent.mkdir(exist_ok=True)
        known = self.path.with_name(f".{self.path.name}.json")
        known.write_text(json.dumps(documents))
        return self._write(SCRIPT.format(calls=str(self._calls), known=str(known)))

    def does(self, script: str) -> Program:
        """Let it do that, whatever it is asked; `$1` in the script is the id."""
        start = f'#!/bin/sh\necho "$@" >>{self._calls}\nshift $(($# - 1))\n'
        return self._write(f"{start}{script}\n")

    def _write(self, script: str) -> Program:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(script)
        self.path.chmod(0o755)
        self._calls.touch()
        self._calls.chmod(0o666)
        return self

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


def inspection(full_id: str = ID, name: str = "/train-resnet", **more: Any) -> dict[str, Any]:
    """What Docker knows of a container, with secrets where people have them. `more`: labels, mounts, image."""
    return {
        "Id": full_id,
        "Name": name,
        "Path": SECRET,
        "Args": ["--password", SECRET],
        "Image": f"sha256:{'7' * 64}",
        "State": {"Pid": 4711, "Running": True, "Error": SECRET},
        "Mounts": [{"Type": "bind", "Source": source, "Destination": "/data"} for source in more.get("mounts", [])],
        "Config": {
            "Image": more.get("image", "pytorch:2.9"),
            "Env": [f"API_KEY={SECRET}"],
            "Cmd": ["python", SECRET],
            "Entrypoint": [SECRET],
            "Labels": more.get("labels", {}),
        },
    }


def says(*values: object) -> str:
    """A script that prints these values as they are asked for."""
    return f"cat <<'END'\n{json.dumps(values)}\nEND"


FINE: tuple[Any, ...] = ("image", {}, [])
# By what is wrong, a script and what is said of it.
HOSTILE = {
    "hang": ("exec sleep 60", "it does not answer in time"),
    "hang in the background": (f"sleep 5 & {says(ID)}", "it answers with nonsense"),
    "flood": ("yes", "it answers with more than 1 MiB"),
    "flood of errors": ("yes >&2", "it does not answer in time"),
    "nothing": ("true", "it answers with something that is no JSON"),
    "no JSON": ("echo hello", "it answers with something that is no JSON"),
    "half a JSON": ("echo '[1, 2'", "it answers with something that is no JSON"),
    "binary": ("head -c 4096 /dev/urandom; echo", "it answers with something that is no JSON"),
    "deep": ("head -c 500000 /dev/zero | tr '\\0' '['", "it answers with something that is no JSON"),
    "a number": ("head -c 500000 /dev/zero | tr '\\0' 9", "it answers with nonsense"),
    "another type": ("echo '{}'", "it answers with nonsense"),
    "too few": (says(ID, "/train"), "it answers with nonsense"),
    "another container": (says("f" * 64, "/train", *FINE), "it answers for another container"),
    "an empty id": (says("", "/train", *FINE), "it answers for another container"),
    "an id that is none": (says([ID], "/train", *FINE), "it answers for another container"),
    "a name of many megabytes": (
        "printf '[\"%s\",\"' $1; head -c 9999999 /dev/zero | tr '\\0' x; printf '\",null,null,null]'",
        "it answers with more than 1 MiB",
    ),
    "an error": (
        "printf 'Cannot connect\\033[2J to the daemon\\nmore\\n' >&2; exit 1",
        "Cannot connect\\x1b[2J to the daemon",
    ),
    "a silent error": ("exit 3", "it ends with status 3"),
    "an end by a signal": ("kill -SEGV $$", "it ends with status -11"),
}
