"""Records what a version writes, so that every later one is held to reading it.

    python -m tests.upgrade.record tests/upgrade/recorded/NAME

It is run with the code of that version, once: a recording is never made anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import boto3
from moto import mock_aws

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from tests.contract.conftest import REGION, TABLE, make_table
from tests.upgrade import written


def record(directory: Path) -> None:
    """Write the table as a scan gives it, and the runtime documents."""
    directory.mkdir(parents=True)
    with mock_aws():
        clients = Clients(boto3.Session("testing", "testing", region_name=REGION))
        written.write(DynamoStore(make_table(clients)))
        items = clients.dynamodb.scan(TableName=TABLE)["Items"]
    _write(directory / "table.json", sorted(items, key=lambda item: (item["PK"]["S"], item["SK"]["S"])))
    documents = (written.DOCUMENT, written.PLAIN)
    _write(directory / "documents.json", [document.to_dict() for document in documents])


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
