"""gua doctor --record: every answer of the driver as a line of JSON, which tests/driver can replay.

pynvml gets all functions of the driver's library from one function. That is replaced here, so that each call is
written, and the ordinary code of a tick runs on top. What identifies people or cards is hashed; the salt is not kept.
"""

import ctypes
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml

from gua_report.console import terminal
from gua_report.console.whole_file import open_folder
from gua_report.doctor.driver import PR_SET_NO_NEW_PRIVS
from gua_report.machine.child import Silent, answer_of
from gua_sample import __version__, nvml, pending, processes
from gua_sample.errors import DriverError, GuaError, StoreError, UsageError
from gua_sample.nvml_buffers import poll
from gua_sample.records import Previous, Source

MOST_BYTES, LAST_LINE_BYTES = 20_000_000, 200
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NAMES, UIDS = ("user", "login_user", "command", "cgroup"), ("uid", "login_uid")
MACHINE = Source(processes.read_boot, nvml.read, processes.describe, processes.user_names)


def record(path: str, length_ms: int, interval_ms: int, seconds: float) -> str:
    try:
        folder, name = open_folder(path, follow=False)
        file = os.open(name, NEW, 0o600, dir_fd=folder)
        os.close(folder)
    except OSError as error:
        raise UsageError(f"--record can't create {path} ({error.strerror}): give the name of a new file") from error
    ours = f"/proc/{os.getpid()}/fd/{file}"  # this very file, whatever has its name by now
    try:  # in a child, since the driver may hang or crash; it keeps stderr, for its progress
        ended = answer_of(lambda: _record(ours, length_ms, interval_ms), None, length_ms / 1000 + seconds, (0, 1))
        return f"{path} was written: {ended}. Names are hashed.\nRead it before you send it (CONTRIBUTING.md)."
    except StoreError as error:
        problem = "does not answer" if isinstance(error, Silent) else "crashed"
        raise GuaError(f"NVML {problem}: the last lines of {path} say when") from error


def _record(path: str, length_ms: int, interval_ms: int) -> str:
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # as in driver.look
    recorder, reason, newest = Recorder(path), "the time is over", dict[tuple[int, str], int]()
    # Not all of what the kernel module says: it also names the host on which it was built.
    module = re.search(rb"Module .*?(\d+\.[\d.]+)", processes.read_file("/proc/driver/nvidia/version") or b"")
    about = {"driver_version": module and module[1].decode(), "kernel": os.uname().release, "interval_ms": interval_ms}
    recorder.write(recording=1, gua=__version__, **about, hashed=["uuid", *NAMES], left_out=UIDS)
    try:
        for due_ms in terminal.tracked(range(0, length_ms, 1000), terminal.progress_bar("recording")):
            if recorder.ms() > length_ms:  # the driver is slow
                break
            if due_ms % interval_ms == 0:
                recorder.tick()
            poll(newest)
            time.sleep(max(0, min(due_ms + 1000, length_ms) - recorder.ms()) / 1000)
    except EOFError:
        reason = "20 MB are full"
    except OSError as error:
        raise GuaError(f"the recording can't be written any further ({error.strerror})") from error
    recorder.write(end=reason)
    return reason


class Recorder:
    def __init__(self, path: str) -> None:
        self._file, self._salt = os.open(path, os.O_WRONLY), os.urandom(32)
        self._began, self._boot = time.monotonic(), processes.read_boot()
        self._previous, self._handles = Previous(self._boot, None, []), dict[int, int]()
        find = pynvml._nvmlGetFunctionPointer
        vars(pynvml).update(_nvmlGetFunctionPointer=lambda name: self._listening(name, find(name)))
        vars(time).update(clock_gettime_ns=self._listening("clock_gettime_ns", time.clock_gettime_ns))

    def ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 3)

    def write(self, **content: Any) -> None:
        line = json.dumps({"ms": self.ms(), **content}).encode() + b"\n"
        if os.fstat(self._file).st_size + len(line) > MOST_BYTES - (0 if "end" in content else LAST_LINE_BYTES):
            raise EOFError
        os.write(self._file, line)

    def tick(self) -> None:
        self.write(begin="tick", ts_ms=time.time_ns() // 1_000_000)
        try:
            reading = nvml.read(self._previous)
        except DriverError as problem:
            self.write(error=problem.name)
            raise GuaError(f"{problem} (this is recorded)") from problem
        self._previous = Previous(self._boot, reading.driver_version, reading.cursors)
        found = [one._asdict() for one in processes.describe_all(reading.cards, self._boot, MACHINE).values()]
        for one in found:
            one |= {name: one[name] and self._hash(one[name].encode("utf-8", "replace")).decode() for name in NAMES}
            one |= dict.fromkeys(UIDS)
        self.write(reading=pending.named(reading), processes=found)

    def _hash(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, key=self._salt, digest_size=6).hexdigest().encode()

    def _listening(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        def call(*given: Any) -> int:
            args, began = [plain(one, self._handles) for one in given], self.ms()
            code, took_ms = function(*given), round(self.ms() - began, 3)
            for one in given:
                if "UUID" in name and isinstance(one, ctypes.Array):  # before the tick sees it
                    one.value = re.sub(rb"[0-9a-fA-F]{4,}", lambda m: self._hash(m[0])[: len(m[0])], one.value)
            after = [plain(one, self._handles) for one in given]
            result = {number: one for number, one in enumerate(after) if one != args[number]}
            self.write(call=name, args=args, result=result, **{"return": code}, took_ms=took_ms)
            return code

        return call


def plain(value: Any, handles: dict[int, int]) -> Any:
    """An argument of a C function for JSON: structs as dicts, arrays without empty rows at the end, handles as #1."""
    value = getattr(value, "_obj", value)  # what byref() refers to
    if isinstance(value, ctypes._Pointer):
        address = ctypes.cast(value, ctypes.c_void_p).value
        return address and f"#{handles.setdefault(address, len(handles) + 1)}"
    if isinstance(value, ctypes.Union):
        return int.from_bytes(bytes(value), sys.byteorder)
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name), handles) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array) and value._type_ is not ctypes.c_char:
        rows, empty = [plain(row, handles) for row in value], plain(value._type_(), handles)
        while rows and rows[-1] == empty:
            rows.pop()
        return rows
    value = getattr(value, "value", value)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
