"""hanging_files.py FOLDER: mounts a file system there that answers only requests about itself.

A process that opens a file in it waits in the kernel and can't be killed, as with a hanging driver: FUSE waits for a
request that its server has taken, despite fatal signals. Ends with this process.
"""

import ctypes
import os
import struct
import sys

INIT, GETATTR, STATFS, ACCESS = 26, 3, 17, 34
DIRECTORY = 0o40755
HEADER = struct.Struct("=IIQQIIII")  # length, operation, unique, node, uid, gid, pid, padding


def attributes() -> bytes:
    """Attributes of the folder itself, valid for an hour."""
    attribute = struct.pack("=QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, DIRECTORY, 2, 0, 0, 0, 4096, 0)
    return struct.pack("=QII", 3600, 0, 0) + attribute


ANSWERS = {
    INIT: struct.pack("=IIIIHHIIHHIIIIIII", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    GETATTR: attributes(),
    STATFS: bytes(80),
    ACCESS: b"",
}


def main(folder: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hanging", folder.encode(), b"fuse.hanging", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    while True:
        request = os.read(device, 1 << 17)
        _, operation, unique, *_ = HEADER.unpack_from(request)
        answer = ANSWERS.get(operation)
        if answer is not None:
            os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)


if __name__ == "__main__":
    main(sys.argv[1])
