"""The calls to DynamoDB that the store makes, items as Python values. Every read is strongly consistent."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import CONDITION_FAILED, translated
from spotrelay.plane.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from spotrelay.plane.core.ports import Conflict, Denied, Throttled

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import KeysAndAttributesUnionTypeDef

CONFLICT_WAITS_S = (0.02, 0.05, 0.1)
"""Between tries to write an item that a transaction is writing, doubled at most at random. Source:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html (conflict handling)."""

MAX_BATCH_GET = 100
"""DynamoDB's limit for one BatchGetItem."""

BATCH_ROUNDS = 5
"""How often keys that DynamoDB left unread are asked for; the waits between add up to 0.75 s."""

BATCH_FIRST_WAIT_S = 0.05
"""Before the second round; doubled for each further one."""

Values = Mapping[str, Any]
"""An item without its key: strings, numbers (`Decimal` when read), maps and lists of them."""


class Key(NamedTuple):
    """An item's primary key."""

    partition: str
    sort: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of an item, in DynamoDB's words: with a # before each name, and a ? for each value."""

    text: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Put:
    """Write the item whole."""

    key: Key
    values: Values
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Write some attributes of the item, which is made if it isn't there; None removes one."""

    key: Key
    values: Values
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item; one that isn't there is fine."""

    key: Key
    condition: Condition | None = None


Write = Put | Update | Delete

ABSENT = Condition(f"attribute_not_exists(#{TABLE_PARTITION_KEY})")
"""There is no such item."""

PRESENT = Condition(f"attribute_exists(#{TABLE_PARTITION_KEY})")


def as_read(revision: int) -> Condition:
    """The item has this revision; before the first one there is none."""
    return Condition("#revision = ?", (revision,)) if revision else ABSENT


class Table:
    """One DynamoDB table with a partition key and a sort key, both strings."""

    def __init__(self, clients: Clients, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clients = clients
        self._name = name
        self._sleep = sleep

    def get(self, key: Key) -> Values:
        """The item; empty if there is none."""
        with translated():
            answer = self._clients.dynamodb.get_item(
                TableName=self._name, Key=_wire_key(key), ConsistentRead=True
            )
        return _from_wire(answer.get("Item", {}))

    def get_many(self, keys: Collection[Key]) -> dict[Key, Values]:
        """The items that exist.

        Raises:
            Throttled: DynamoDB left some unread in every round.
        """
        found: dict[Key, Values] = {}
        ordered = sorted(set(keys))
        for start in range(0, len(ordered), MAX_BATCH_GET):
            found |= self._get_batch(ordered[start : start + MAX_BATCH_GET])
        return found

    def query(
        self,
        partition: str,
        *,
        start: str = "",
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[tuple[Key, Values]]:
        """The partition's items by sort key, from `start` on, at most `limit`."""
        expression, is_in_it = _Expression(), Condition(f"#{TABLE_PARTITION_KEY} = ?", (partition,))
        if start:
            is_in_it = Condition(f"{is_in_it.text} AND #{TABLE_SORT_KEY} >= ?", (partition, start))
        request: dict[str, Any] = {
            "TableName": self._name,
            "ConsistentRead": True,
            "ScanIndexForward": not newest_first,
            "KeyConditionExpression": expression.condition(is_in_it),
            "ExpressionAttributeNames": expression.names,
            "ExpressionAttributeValues": _to_wire(expression.values),
        }
        if limit is not None:
            request["Limit"] = limit
        with translated():
            pages = self._clients.dynamodb.get_paginator("query").paginate(**request)
            items = (_from_wire(item) for page in pages for item in page["Items"])
            return [(_key_of(item), item) for item in islice(items, limit)]

    def write(self, write: Write) -> bool:
        """Write one item; False if its condition doesn't hold.

        While a transaction writes the item DynamoDB refuses others, and botocore doesn't repeat that. It is
        over in milliseconds, so the write is tried again.

        Raises:
            Conflict: it was so each time.
        """
        for wait_s in CONFLICT_WAITS_S:
            try:
                return self._written(write)
            except Conflict:
                self._sleep(wait_s * (1 + random.random()))  # noqa: S311 - so that two don't meet again
        return self._written(write)

    def _written(self, write: Write) -> bool:
        request = {"TableName": self._name, **_request(write)}
        try:
            with translated():
                match write:
                    case Put():
                        self._clients.dynamodb.put_item(**request)
                    case Update():
                        self._clients.dynamodb.update_item(**request)
                    case Delete():
                        self._clients.dynamodb.delete_item(**request)
        except Denied as denied:
            if denied.code != CONDITION_FAILED:
                raise
            return False
        return True

    def transact(self, writes: Sequence[Write]) -> None:
        """Write all of it or nothing. A repeat that botocore makes by itself writes nothing twice.

        Raises:
            Cancelled: a condition doesn't hold, or somebody writes one of the items at this moment.
        """
        items: list[Any] = [
            {type(write).__name__: {"TableName": self._name, **_request(write)}} for write in writes
        ]
        with translated():
            self._clients.dynamodb.transact_write_items(TransactItems=items)

    def _get_batch(self, keys: Sequence[Key]) -> dict[Key, Values]:
        found: dict[Key, Values] = {}
        left: Mapping[str, KeysAndAttributesUnionTypeDef] = {
            self._name: {"Keys": [_wire_key(key) for key in keys], "ConsistentRead": True}
        }
        for round_ in range(BATCH_ROUNDS):
            if round_ > 0:
                self._sleep(BATCH_FIRST_WAIT_S * 2 ** (round_ - 1))
            with translated():
                answer = self._clients.dynamodb.batch_get_item(RequestItems=left)
            for wire in answer["Responses"].get(self._name, []):
                item = _from_wire(wire)
                found[_key_of(item)] = item
            left = answer.get("UnprocessedKeys", {})
            if not left:
                return found
        raise Throttled(f"DynamoDB left keys of {self._name} unread in {BATCH_ROUNDS} rounds")


@dataclass(slots=True)
class _Expression:
    """What a request with conditions carries besides key and item: names may be reserved words."""

    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def condition(self, condition: Condition) -> str:
        self.names |= {f"#{name}": name for name in re.findall(r"#(\w+)", condition.text)}
        self.values |= {f":c{n}": value for n, value in enumerate(condition.values)}
        positions = count()
        return re.sub(r"\?", lambda _: f":c{next(positions)}", condition.text)

    def update(self, values: Values) -> str:
        """`SET` what has a value, `REMOVE` what has none."""
        assigned, removed = [], []
        for position, (name, value) in enumerate(values.items()):
            self.names[f"#u{position}"] = name
            if value is None:
                removed.append(f"#u{position}")
            else:
                self.values[f":u{position}"] = value
                assigned.append(f"#u{position} = :u{position}")
        clauses = (("SET", assigned), ("REMOVE", removed))
        return " ".join(f"{verb} {', '.join(terms)}" for verb, terms in clauses if terms)


def _request(write: Write) -> dict[str, Any]:
    expression = _Expression()
    request: dict[str, Any]
    match write:
        case Put(key=key, values=values):
            request = {"Item": {**_wire_key(key), **_to_wire(values)}}
        case Update(key=key, values=values):
            request = {"Key": _wire_key(key), "UpdateExpression": expression.update(values)}
        case Delete(key=key):
            request = {"Key": _wire_key(key)}
    if write.condition is not None:
        request["ConditionExpression"] = expression.condition(write.condition)
    if expression.names:
        request["ExpressionAttributeNames"] = expression.names
    if expression.values:
        request["ExpressionAttributeValues"] = _to_wire(expression.values)
    return request


def _to_wire(values: Values) -> dict[str, Any]:
    return {name: encoded(value) for name, value in values.items() if value is not None}


def _from_wire(item: Mapping[str, Any]) -> Values:
    return {name: decoded(wire) for name, wire in item.items()}


# As boto3.dynamodb.types does it, which comes with all of boto3: a tenth of a cold start.
def encoded(value: object) -> dict[str, Any]:
    """A value as DynamoDB's API has it."""
    match value:
        case str():
            return {"S": value}
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": str(value)}
        case Mapping():
            return {"M": {name: encoded(one) for name, one in value.items()}}
        case list() | tuple():
            return {"L": [encoded(one) for one in value]}
    raise TypeError(f"the table has no {type(value).__name__}: {value!r}")


def decoded(wire: Mapping[str, Any]) -> Any:
    """A value of DynamoDB's API. Types that we don't write are left as they are: somebody else reads them."""
    ((kind, value),) = wire.items()
    match kind:
        case "N":
            return Decimal(value)
        case "NULL":
            return None
        case "M":
            return _from_wire(value)
        case "L":
            return [decoded(one) for one in value]
    return value


def _wire_key(key: Key) -> dict[str, Any]:
    return {TABLE_PARTITION_KEY: {"S": key.partition}, TABLE_SORT_KEY: {"S": key.sort}}


def _key_of(item: Values) -> Key:
    return Key(item[TABLE_PARTITION_KEY], item[TABLE_SORT_KEY])
