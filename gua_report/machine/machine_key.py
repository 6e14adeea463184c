"""A key by which a fleet tells machines apart, made from /etc/machine-id, which itself is published nowhere."""

import hashlib
import hmac
import re

MACHINE_ID = "/etc/machine-id"
# The label makes the key one for this purpose alone: nothing else that is made from the id can be compared with it.
LABEL = b"gua: the key of a machine in a fleet"
KEY_BYTES = 16
LONGEST = 64


def find_machine_key(path: str = MACHINE_ID) -> str | None:
    try:
        with open(path, "rb") as file:
            found = file.read(LONGEST).strip()
    except OSError:
        return None
    if not re.fullmatch(rb"[0-9a-f]{32}", found) or not found.strip(b"0"):
        return None  # such as "uninitialized", in the first moments of an image
    return hmac.new(found, LABEL, hashlib.sha256).digest()[:KEY_BYTES].hex()
