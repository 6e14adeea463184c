"""Turn the rules of gua_sample.policy into SQL: they take a column's name where the sampler gives a number."""

from __future__ import annotations


class Expression:
    """A column in SQL, or a condition on columns. NULL compares as false, like NaN in Python."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def __str__(self) -> str:
        return self.sql

    def __le__(self, other: object) -> Expression:
        return self._compare("<=", other)

    def __ge__(self, other: object) -> Expression:
        return self._compare(">=", other)

    def __gt__(self, other: object) -> Expression:
        return self._compare(">", other)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # SQL, not a bool
        return self._compare("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # SQL, not a bool
        # The rules write `x != x` to ask whether a number is missing.
        return Expression(f"({self} IS NULL)") if other is self else self._compare("<>", other)

    def __rmul__(self, other: int) -> Expression:
        return Expression(f"{other} * {self}")

    def __add__(self, other: Expression) -> Expression:
        return Expression(f"({self} + {other})")

    def __sub__(self, other: Expression) -> Expression:
        return Expression(f"({self} - {other})")

    def __and__(self, other: Expression) -> Expression:
        return Expression(f"({self} AND {other})")

    def __or__(self, other: Expression) -> Expression:
        return Expression(f"({self} OR {other})")

    def __xor__(self, other: bool) -> Expression:
        if other is not True:
            raise TypeError("the rules say `^ True` for not, and nothing else")
        return Expression(f"(NOT {self})")

    def __bool__(self) -> bool:
        raise TypeError("what SQL will say of a row is not known yet")

    def _compare(self, how: str, other: object) -> Expression:
        return Expression(f"coalesce({self} {how} {other}, 0)")
