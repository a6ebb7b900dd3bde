"""What can befall the table by an operator's hand, or by a backup: items go, or are as they once were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lab.demo.operator import Operator
from spotrelay.plane.aws import items
from spotrelay.plane.aws.table import Key
from spotrelay.plane.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Snapshot = Sequence[Mapping[str, Any]]
"""Every item of a table, as DynamoDB's API has them."""


class Damage:
    """Damages one table, and repairs it. Everything goes past the product, as the operator."""

    def __init__(self, dynamodb: DynamoDBClient, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    @classmethod
    def to(cls, operator: Operator) -> Damage:
        """To the table of a deployment."""
        return cls(operator.session.client("dynamodb"), operator.deployment.table)

    def snapshot(self, service: str | None = None) -> Snapshot:
        """The table as it is now, or what one service has in it, for `restore`."""
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"] if service in (None, _service(item))]

    def lose_meta(self, service: str) -> None:
        """Delete what is noted of a service as a whole: its highest ID, back-off, launches of the minute."""
        self._lose(items.meta_key(service))

    def lose_row(self, service: str, id_: int) -> None:
        """Delete a replica that hasn't ended."""
        self._lose(items.replica_key(service, id_))

    def empty_table(self) -> None:
        """Delete every item."""
        self.restore([])

    def restore(self, snapshot: Snapshot, service: str | None = None) -> None:
        """Make the table, or a service's part of it, what it was: items that have come since go."""
        wanted = {_key_text(item) for item in snapshot}
        for item in self.snapshot(service):
            if _key_text(item) not in wanted:
                self._dynamodb.delete_item(TableName=self._table, Key=_key(item))
        for item in snapshot:
            self._dynamodb.put_item(TableName=self._table, Item=item)

    def _lose(self, key: Key) -> None:
        wire = {TABLE_PARTITION_KEY: {"S": key.partition}, TABLE_SORT_KEY: {"S": key.sort}}
        answer = self._dynamodb.delete_item(TableName=self._table, Key=wire, ReturnValues="ALL_OLD")
        # What wasn't there can't be lost, and a test that goes on would prove nothing.
        assert answer.get("Attributes"), f"{self._table} has no item {key.partition} {key.sort}"


def _service(item: Mapping[str, Any]) -> str | None:
    """Whose item it is; None if it belongs to no one service."""
    kind, _, name = item[TABLE_PARTITION_KEY]["S"].partition("#")
    if kind == "INSTANCE":
        return str(item["service"]["S"])
    return name if kind in ("SERVICE", "HISTORY", "SURVEY") else None


def _key(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in (TABLE_PARTITION_KEY, TABLE_SORT_KEY)}


def _key_text(item: Mapping[str, Any]) -> str:
    return f"{item[TABLE_PARTITION_KEY]['S']} {item[TABLE_SORT_KEY]['S']}"
