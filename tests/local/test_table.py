"""The table in the local cloud: what an operator can do to it, and what DynamoDB refuses."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotrelay.plane.aws import items
from spotrelay.plane.aws.table import Key
from spotrelay.plane.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from tests.e2e.damage import Damage
from tests.local.conftest import Aws

pytestmark = pytest.mark.xdist_group("local")

ITEM_LIMIT = 400 * 1024
"""Bytes; names of attributes count."""


class Rows:
    """A table with the product's keys."""

    def __init__(self, aws: Aws) -> None:
        self.name = f"table-{uuid.uuid4().hex[:8]}"
        self.dynamodb = aws.client("dynamodb")
        keys = {TABLE_PARTITION_KEY: "HASH", TABLE_SORT_KEY: "RANGE"}
        self.dynamodb.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
            KeySchema=[{"AttributeName": name, "KeyType": type_} for name, type_ in keys.items()],
        )

    def put(self, key: Key, text: str = "x") -> None:
        """Write an item with one attribute, `a`."""
        self.dynamodb.put_item(TableName=self.name, Item=self.item(key, text))

    def item(self, key: Key, text: str = "x") -> dict[str, Any]:
        """An item as DynamoDB's API has it."""
        return {**wire_key(key), "a": {"S": text}}

    def all(self) -> dict[Key, str]:
        """What is in the table: key to `a`."""
        found = self.dynamodb.scan(TableName=self.name)["Items"]
        return {Key(i[TABLE_PARTITION_KEY]["S"], i[TABLE_SORT_KEY]["S"]): i["a"]["S"] for i in found}


def wire_key(key: Key) -> dict[str, Any]:
    """A key as DynamoDB's API has it."""
    return {TABLE_PARTITION_KEY: {"S": key.partition}, TABLE_SORT_KEY: {"S": key.sort}}


@pytest.fixture
def rows(aws: Aws) -> Rows:
    """A table of the test's own."""
    return Rows(aws)


def test_damage_and_its_repair(rows: Rows) -> None:
    """Single items go, or all, and a snapshot brings back exactly what was there when it was taken."""
    meta, row, other = items.meta_key("demo"), items.replica_key("demo", 7), items.replica_key("demo", 8)
    for key in (meta, row, other):
        rows.put(key, "before")
    damage = Damage(rows.dynamodb, rows.name)
    snapshot = damage.snapshot()
    damage.lose_meta("demo")
    damage.lose_row("demo", 7)
    assert rows.all() == {other: "before"}
    with pytest.raises(AssertionError, match="has no item SERVICE#demo META"):
        damage.lose_meta("demo")
    rows.put(other, "after")
    rows.put(items.replica_key("demo", 9))
    damage.restore(snapshot)
    assert rows.all() == dict.fromkeys((meta, row, other), "before")
    damage.empty_table()
    assert rows.all() == {}


def test_a_transaction_writes_a_hundred_items_and_no_more(rows: Rows) -> None:
    """With one item more DynamoDB refuses it whole."""

    def write(count: int) -> None:
        puts = [
            {"Put": {"TableName": rows.name, "Item": rows.item(Key("p", f"{n:03}"))}} for n in range(count)
        ]
        rows.dynamodb.transact_write_items(TransactItems=puts)

    with pytest.raises(ClientError, match=r"ValidationException.*less than or equal to 100"):
        write(101)
    assert rows.all() == {}
    write(100)
    assert len(rows.all()) == 100


def test_a_batch_reads_a_hundred_keys_and_no_more(rows: Rows) -> None:
    """With one key more DynamoDB refuses it."""

    def read(count: int) -> None:
        keys = [wire_key(Key("p", f"{n:03}")) for n in range(count)]
        rows.dynamodb.batch_get_item(RequestItems={rows.name: {"Keys": keys}})

    with pytest.raises(ClientError, match="ValidationException"):
        read(101)
    read(100)


def test_an_item_of_more_than_400_kb_is_refused(rows: Rows) -> None:
    """However it is written; an update in a transaction cancels that, because it is only then known."""
    key = Key("p", "s")
    room = ITEM_LIMIT - len(TABLE_PARTITION_KEY + TABLE_SORT_KEY + "a") - len("p" + "s")
    change: dict[str, Any] = {
        "TableName": rows.name,
        "Key": wire_key(key),
        "UpdateExpression": "SET a = :a",
        "ExpressionAttributeValues": {":a": {"S": "x" * (room + 1)}},
    }
    too_large = r"ValidationException.*exceeded the maximum allowed size"
    with pytest.raises(ClientError, match=too_large):
        rows.put(key, "x" * (room + 1))
    with pytest.raises(ClientError, match=too_large):
        rows.dynamodb.transact_write_items(
            TransactItems=[{"Put": {"TableName": rows.name, "Item": rows.item(key, "x" * (room + 1))}}]
        )
    with pytest.raises(rows.dynamodb.exceptions.TransactionCanceledException) as cancelled:
        rows.dynamodb.transact_write_items(TransactItems=[{"Update": change}])
    (reason,) = cancelled.value.response["CancellationReasons"]
    assert reason["Code"] == "ValidationError"
    assert "exceeded the maximum allowed size" in reason["Message"]
    rows.put(key, "x" * room)
    with pytest.raises(ClientError, match=too_large):
        rows.dynamodb.update_item(**change)
    assert len(rows.all()[key]) == room
