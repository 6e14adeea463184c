"""The table of results: a row for each kind of case, a column for each kind of harm."""

from collections import Counter
from collections.abc import Iterable

from tests.torture.workshop import Problem

COLUMNS = ("lost", "doubled", "corrupt", "wrong sums", "tracebacks", "hangs", "floods", "outside")


class Table:
    def __init__(self, kinds: Iterable[str]) -> None:
        self.runs = dict.fromkeys(kinds, 0)
        self.harm: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, runs: int, problems: list[Problem]) -> None:
        """Add the result of a case. A column counts cases, as one fault often shows in many ways."""
        self.runs[kind] += runs
        self.harm.update({(kind, problem.column) for problem in problems})

    def is_clean(self) -> bool:
        return not self.harm

    def __str__(self) -> str:
        header = f"{'':<16}{'runs':>8}" + "".join(f"{name:>12}" for name in COLUMNS)
        rows = [
            f"{kind:<16}{runs:>8,}" + "".join(f"{self.harm[kind, name]:>12}" for name in COLUMNS)
            for kind, runs in self.runs.items()
        ]
        return "\n".join([header, *rows])
