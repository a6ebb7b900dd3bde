"""The calls to DynamoDB that the store makes, items as Python values. Every read is strongly consistent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.conditions import Key as KeyAttr
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import CONDITION_FAILED, translated
from spotrelay.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from spotrelay.core.ports import Conflict, Denied, Throttled

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
class Put:
    """Write the item whole."""

    key: Key
    values: Values
    condition: ConditionBase | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Write some attributes of the item, which is made if it isn't there; None removes one."""

    key: Key
    values: Values
    condition: ConditionBase | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item; one that isn't there is fine."""

    key: Key
    condition: ConditionBase | None = None


Write = Put | Update | Delete

ABSENT = Attr(TABLE_PARTITION_KEY).not_exists()
"""Condition: there is no such item."""


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
        is_in_it: ConditionBase = KeyAttr(TABLE_PARTITION_KEY).eq(partition)
        if start:
            is_in_it &= KeyAttr(TABLE_SORT_KEY).gte(start)
        built = ConditionExpressionBuilder().build_expression(is_in_it, is_key_condition=True)
        request: dict[str, Any] = {
            "TableName": self._name,
            "ConsistentRead": True,
            "ScanIndexForward": not newest_first,
            "KeyConditionExpression": built.condition_expression,
            "ExpressionAttributeNames": built.attribute_name_placeholders,
            "ExpressionAttributeValues": _to_wire(built.attribute_value_placeholders),
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
        """Write all of it or nothing. A repeat that boto3 makes by itself writes nothing twice.

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
    """What a conditional write's request carries besides key and item."""

    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def condition(self, condition: ConditionBase) -> str:
        built = ConditionExpressionBuilder().build_expression(condition)
        self.names |= built.attribute_name_placeholders
        self.values |= built.attribute_value_placeholders
        return built.condition_expression

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


_SERIALIZER, _DESERIALIZER = TypeSerializer(), TypeDeserializer()


def _to_wire(values: Values) -> dict[str, Any]:
    return {name: _SERIALIZER.serialize(value) for name, value in values.items() if value is not None}


def _from_wire(item: Mapping[str, Any]) -> Values:
    return {name: _DESERIALIZER.deserialize(value) for name, value in item.items()}


def _wire_key(key: Key) -> dict[str, Any]:
    return {TABLE_PARTITION_KEY: {"S": key.partition}, TABLE_SORT_KEY: {"S": key.sort}}


def _key_of(item: Values) -> Key:
    return Key(item[TABLE_PARTITION_KEY], item[TABLE_SORT_KEY])
