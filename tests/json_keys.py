"""The keys of a JSON document, spelled as the pages spell them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gua_sample.policy import STATES


def key_paths(value: Any, path: str = "") -> Iterator[str]:
    """Every key that has a plain value, as the page spells it: gpus[].states.<state>.share."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = "<state>" if key in STATES else key
            yield from key_paths(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from key_paths(item, f"{path}[]")
    else:
        yield path
