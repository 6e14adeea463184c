"""The names of Kubernetes pods, from the names of folders that the kubelet makes for their logs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

LOGS = "/var/log/pods"
# namespace_name_uid; the uid of a static pod has no dashes.
FOLDER = re.compile(
    r"([a-z0-9][-a-z0-9]{0,62})_([a-z0-9][-.a-z0-9]{0,252})_([0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})"
)


def find_pod_names(keys: Collection[str], logs: str = LOGS) -> dict[str, str]:
    """The pods of these uids without dashes, as `namespace/name`. Nothing in the folder is opened."""
    try:
        folders = os.listdir(logs) if keys else []
    except OSError:  # no kubelet here, or this user may not look
        return {}
    names = {}
    for match in filter(None, map(FOLDER.fullmatch, folders)):
        key = match[3].replace("-", "")
        if key in keys:
            names[key] = f"{match[1]}/{match[2]}"
    return names
