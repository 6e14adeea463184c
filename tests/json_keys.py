"""The keys of a JSON document, spelled as in the pages of docs/."""

from collections.abc import Iterator
from typing import Any

from gua_sample.policy import STATES


def key_paths(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all keys with a plain value, spelled as in the pages: gpus[].states.<state>.share."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = "<state>" if key in STATES else key
            yield from key_paths(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from key_paths(item, f"{path}[]")
    else:
        yield path
