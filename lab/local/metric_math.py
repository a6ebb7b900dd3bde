"""CloudWatch's metric math, as far as alarms here use it; the rest is refused.

The rules for values that are missing are those of the user guide, "Using metric math": in arithmetic and in
comparisons a missing value counts as 0 where the other series has one, a division by 0 leaves none, and IF
has none where its condition has none
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Series = dict[float, float]
"""Values by their time, or by whatever says which belong together."""

Value = Series | float
"""A time series or a scalar."""

MOST_METRICS, MOST_EXPRESSIONS = 10, 10
"""Of an alarm."""

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[A-Za-z_]\w*|==|!=|<=|>=|&&|\|\||[-+*/<>(),])")
_ID = re.compile("[a-z][a-zA-Z0-9_]{0,254}")

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_LOGIC: Mapping[str, Callable[[float, float], bool]] = {
    "AND": lambda a, b: bool(a) and bool(b),
    "&&": lambda a, b: bool(a) and bool(b),
    "OR": lambda a, b: bool(a) or bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}


class MathError(ValueError):
    """CloudWatch wouldn't take the expression, or nothing here emulates what is in it."""


def evaluate(expression: str, series: Mapping[str, Series]) -> Series:
    """The time series that an expression makes of others, each by its ID.

    Raises:
        MathError: it can't be read, names what isn't there, or is a scalar in the end.
    """
    value = _Reader(expression, series).read()
    if not isinstance(value, dict):
        raise MathError(f"The expression '{expression}' must return a time series, not a scalar.")
    return value


def check_alarm(queries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What of an alarm's queries is its own value: the one that returns data.

    Raises:
        MathError: CloudWatch would refuse an alarm on these.
    """
    ids = [str(query.get("Id", "")) for query in queries]
    if bad := [id_ for id_ in ids if not _ID.fullmatch(id_)]:
        raise MathError(f"The value {bad[0]} for parameter Metrics.Id doesn't begin with a lowercase letter.")
    if len(set(ids)) < len(ids):
        raise MathError("The values for parameter id in Metrics are not unique.")
    metrics = [query for query in queries if query.get("MetricStat")]
    expressions = [query for query in queries if query.get("Expression")]
    if len(metrics) + len(expressions) != len(queries) or any(query in expressions for query in metrics):
        raise MathError("Each of Metrics must have either an Expression or a MetricStat.")
    if len(metrics) > MOST_METRICS or len(expressions) > MOST_EXPRESSIONS:
        raise MathError(f"An alarm takes {MOST_METRICS} metrics and {MOST_EXPRESSIONS} expressions.")
    returned = [query for query in queries if query.get("ReturnData", True)]
    if len(returned) != 1:
        raise MathError("Exactly one element of Metrics should return data.")
    if len({query["MetricStat"].get("Period") for query in metrics}) > 1:
        raise MathError("Metrics of different periods aren't emulated.")
    nothing: Series = {0: 0}
    for query in expressions:
        evaluate(query["Expression"], dict.fromkeys(ids, nothing))
    return returned[0]


def returned_series(queries: Sequence[Mapping[str, Any]], series: Mapping[str, Series]) -> Series:
    """The value of an alarm's queries, of which `series` has those that are metrics."""
    own = check_alarm(queries)
    known = dict(series)
    waiting = [query for query in queries if query.get("Expression")]
    for query in sorted(waiting, key=lambda query: query is own):
        known[query["Id"]] = evaluate(query["Expression"], known)
    return known[own["Id"]]


class _Reader:
    """Reads and works out an expression: OR, AND, comparison, sum, product, sign, operand."""

    def __init__(self, expression: str, series: Mapping[str, Series]) -> None:
        self._expression = expression
        self._series = series
        self._tokens: list[str] = []
        at = 0
        text = expression.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise self._error(f"unsupported text at '{text[at:]}'")
            self._tokens.append(found.group(1))
            at = found.end()
        self._at = 0

    def read(self) -> Value:
        value = self._any()
        if self._next:
            raise self._error(f"unexpected '{self._next}'")
        return value

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._next
        if not token or (expected and token != expected):
            raise self._error(f"expected {expected or 'a value'} at '{token or 'the end'}'")
        self._at += 1
        return token

    def _error(self, why: str) -> MathError:
        return MathError(f"Error in expression '{self._expression}': {why}")

    def _chain(
        self,
        operators: Mapping[str, Callable[[float, float], float]],
        names: Sequence[str],
        operand: Callable[[], Value],
    ) -> Value:
        value = operand()
        while self._next in names:
            value = _combined(operators[self._take()], value, operand())
        return value

    def _any(self) -> Value:
        return self._chain(_LOGIC, ("OR", "||"), self._all)

    def _all(self) -> Value:
        return self._chain(_LOGIC, ("AND", "&&"), self._comparison)

    def _comparison(self) -> Value:
        return self._chain(_COMPARISONS, tuple(_COMPARISONS), self._sum)

    def _sum(self) -> Value:
        return self._chain(_ARITHMETIC, ("+", "-"), self._product)

    def _product(self) -> Value:
        return self._chain(_ARITHMETIC, ("*", "/"), self._signed)

    def _signed(self) -> Value:
        if self._next == "-":
            self._take()
            return _combined(operator.mul, -1.0, self._signed())
        return self._operand()

    def _operand(self) -> Value:
        word = self._take()
        if word == "(":
            value = self._any()
            self._take(")")
            return value
        if word == "IF":
            return self._if()
        if word[0].isdigit():
            return float(word)
        if word in self._series:
            return self._series[word]
        if self._next == "(":
            raise self._error(f"{word} isn't emulated here")
        raise self._error(f"nothing has the ID {word}")

    def _if(self) -> Value:
        self._take("(")
        arguments = [self._any()]
        while self._next == ",":
            self._take()
            arguments.append(self._any())
        self._take(")")
        if len(arguments) not in (2, 3):
            raise self._error("IF takes two or three arguments")
        condition, then, otherwise = (*arguments, None)[:3]
        if not isinstance(condition, dict):
            raise self._error("IF of a scalar isn't emulated here")
        found: Series = {}
        for at, is_so in condition.items():
            if is_so:
                found[at] = _at(then, at, 0.0) or 0.0
            elif (value := _at(otherwise, at, None)) is not None:
                found[at] = value
        return found


def _at(value: Value | None, at: float, default: float | None) -> float | None:
    return value.get(at, default) if isinstance(value, dict) else value


def _combined(combine: Callable[[float, float], float], left: Value, right: Value) -> Value:
    if not isinstance(left, dict) and not isinstance(right, dict):
        return float(combine(left, right))
    times = set(left if isinstance(left, dict) else ()) | set(right if isinstance(right, dict) else ())
    found: Series = {}
    for at in times:
        a, b = (value.get(at, 0.0) if isinstance(value, dict) else value for value in (left, right))
        if combine is operator.truediv and b == 0:
            continue
        found[at] = float(combine(a, b))
    return found
