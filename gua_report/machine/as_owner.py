"""Read a data folder with no more rights than its owner has: root does so in a child that becomes the owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gua_report.machine.child import Message, answer_of, stream
from gua_sample.rights import owner_to_become


def ask_as_owner(data_dir: str, question: Callable[[], Any], seconds: float | None = None) -> Any:
    """The result of the question, which must be serializable as JSON: tuples may come back as lists.

    `seconds`: how long a child may take, if not very long; raises StoreError after that.
    """
    owner = owner_to_become(data_dir)
    return question() if owner is None else answer_of(question, owner, seconds)


def ask_apart(data_dir: str, question: Callable[[], Any], seconds: float) -> Any:
    """The same, always from a child and in time, so that we go on whatever becomes of it.

    Raises GuaError, or ReadingFailed if it was a bug that ended the child.
    """
    return answer_of(question, owner_to_become(data_dir), seconds)


def stream_as_owner(data_dir: str, produce: Callable[[], Iterator[Message]]) -> Iterator[Message]:
    """The messages that `produce` yields. A GuaError that it raises is raised here too."""
    owner = owner_to_become(data_dir)
    return produce() if owner is None else stream(produce, owner)
