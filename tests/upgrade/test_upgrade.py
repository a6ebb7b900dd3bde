"""What earlier versions wrote is read, and what later ones write stops a version that doesn't know it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotrelay.plane.aws import items
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import NewerRows
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import SCHEMA, ServiceSpec
from spotrelay.plane.view.starts import start_of
from tests.contract.conftest import TABLE, make_table
from tests.unit.worlds import active, recorded, serving, warn
from tests.upgrade import written

RECORDED = sorted((Path(__file__).parent / "recorded").iterdir())
"""By the commit of the version that wrote it."""

VERSIONS = pytest.mark.parametrize("recording", RECORDED, ids=lambda directory: str(directory.name))

CHANGING = {"fleet.launch", "fleet.terminate", "router.deregister", "router.register", "store.commit"}

STRICTLY_READ = ("META", "REPLICA#000000002", "LAUNCH#launch-2")
"""Of a service: what is noted of it as a whole, a replica, a launch intent."""


@VERSIONS
def test_the_table_of_an_earlier_version_is_read(recording: Path, aws: Clients) -> None:
    """Every value that it wrote comes back, and its rows can be written on."""
    store = restored(recording, aws)
    rows = store.load(written.SERVICE)
    assert rows.replicas == {replica.id: replica for replica in written.REPLICAS}
    assert (rows.highest_id, rows.serving) == (5, 1)
    assert (rows.intents, rows.backoff, rows.window) == (
        {written.INTENT.id: written.INTENT},
        written.BACKOFF,
        written.WINDOW,
    )
    assert rows.document == store.document(written.SERVICE) == written.DOCUMENT
    assert store.history(written.SERVICE, 9) == [replace(written.ENDED, revision=1)]
    assert store.services() == [written.SERVICE]
    assert store.locate({"i-1", "i-5"}) == {"i-1": (written.SERVICE, 1), "i-5": (written.SERVICE, 5)}
    memory = store.recall(written.SERVICE, written.REGION, written.NOW)
    assert (memory.cooldowns, memory.survey) == ((written.COOLDOWN,), written.SURVEY)
    assert not store.acquire(written.SERVICE, "another", written.NOW, 60), "its lease holds"
    assert not store.claim_tick(written.SERVICE, written.LATER, written.NOW, None), "its tick is announced"
    store.commit(Changes(written.SERVICE, update=(written.READY,), highest_id=(5, 6)))
    assert store.load(written.SERVICE).replicas[1].revision == 1


@VERSIONS
def test_the_documents_of_an_earlier_version_are_read(recording: Path) -> None:
    """With everything in them, and with as little as there can be."""
    documents = json.loads((recording / "documents.json").read_text(encoding="utf-8"))
    read = [ServiceSpec.from_json(json.dumps(document)) for document in documents]
    assert read == [written.DOCUMENT, written.PLAIN]


def test_a_version_reads_what_it_writes(aws: Clients) -> None:
    """The recorder itself: what it would record of this version is all there is in the recordings."""
    store = DynamoStore(make_table(aws))
    written.write(store)
    now = {_key(item): item for item in scanned(aws)}
    then = {_key(item): item for item in json.loads((RECORDED[-1] / "table.json").read_text("utf-8"))}
    assert now.keys() == then.keys()
    for key, item in then.items():
        assert item.keys() <= now[key].keys(), key


@VERSIONS
def test_a_start_of_an_earlier_version_is_not_told_apart(recording: Path, aws: Clients) -> None:
    """Its instances tell nothing: from boot to load it is one part, with whatever else isn't on record."""
    replica = restored(recording, aws).load(written.SERVICE).replicas[written.READY.id]
    assert replica.phases == {}
    start = start_of(replica)
    assert start is not None
    assert [stretch.name for stretch in start.stretches][-1] == "instance + registration + check"


@pytest.mark.parametrize("sort", STRICTLY_READ)
def test_rows_of_a_later_version_stop_this_one(sort: str, aws: Clients) -> None:
    """Whichever of a service's it is: the service is not read at all."""
    store = DynamoStore(make_table(aws))
    written.write(store)
    rewrite(aws, items.service_partition(written.SERVICE), sort, schema=items.STANDBY_SCHEMA + 1)
    with pytest.raises(NewerRows, match=f"has schema {items.STANDBY_SCHEMA + 1}, and this version reads"):
        store.load(written.SERVICE)


def test_a_standby_stops_a_version_that_knows_none(aws: Clients) -> None:
    """It would take the row for a replica of its own; all other rows it still reads."""
    store = DynamoStore(make_table(aws))
    written.write(store)
    row = replace(written.READY, id=7, state=ReplicaState.STANDBY, is_standby=True, revision=0)
    store.commit(Changes(written.SERVICE, create=(row,)))
    schemas = {
        item["SK"]["S"]: json.loads(item["row"]["S"])["schema"] for item in scanned(aws) if "row" in item
    }
    assert schemas.pop("REPLICA#000000007") == items.STANDBY_SCHEMA > items.SCHEMA
    assert set(schemas.values()) == {items.SCHEMA}


@pytest.mark.parametrize("kind", ["COOLDOWNS#us-east-1", "SURVEY#chat"])
def test_a_later_version_s_memory_is_forgotten(kind: str, aws: Clients) -> None:
    """Cooldowns and surveys are learned anew: launches don't fail for them."""
    store = DynamoStore(make_table(aws))
    written.write(store)
    rewrite(aws, kind, "META", schema=items.STANDBY_SCHEMA + 1)
    store = DynamoStore(Table(aws, TABLE))
    memory = store.recall(written.SERVICE, written.REGION, written.NOW)
    assert (memory.survey is None) == (kind == "SURVEY#chat")
    assert (memory.cooldowns == ()) == (kind == "COOLDOWNS#us-east-1")
    store.cool([written.COOLDOWN])
    assert written.COOLDOWN in store.recall(written.SERVICE, written.REGION, written.NOW).cooldowns


def test_what_a_later_version_noted_of_a_replica_survives_this_one(aws: Clients) -> None:
    """After a rollback a row is written on, with the fields that this version doesn't know."""
    store = DynamoStore(make_table(aws))
    written.write(store)
    rewrite(aws, items.service_partition(written.SERVICE), "REPLICA#000000001", mood="good")
    replica = store.load(written.SERVICE).replicas[1]
    store.commit(Changes(written.SERVICE, update=(replace(replica, unhealthy_since=written.LATER),)))
    (item,) = (i for i in scanned(aws) if i["SK"]["S"] == "REPLICA#000000001")
    assert json.loads(item["row"]["S"])["mood"] == "good"


def test_a_service_of_a_later_version_is_left_as_it_is_and_rings() -> None:
    """At a tick, a warning, a call: nothing is taken, launched or written, and the alarm says why."""
    world, controller = serving()
    signals = warn(world, *active(world))
    for port in ("store.load", "store.read"):
        world.refuse(port, NewerRows("a replica in the table has schema 2"), times=None)
    world.calls.clear()
    assert controller.handle(signals) == [], "nothing to deliver again: it would be no different"
    controller.tick("demo")
    controller.leave("demo")
    assert CHANGING.isdisjoint(world.calls)
    assert world.telemetry.counts[Metric.HELD_BACK] == 3
    assert {(line["what"], line["remedy"]) for line in recorded(world, "held_back")} == {
        ("nothing is touched", NewerRows.remedy)
    }
    assert world.store.acquire("demo", "another", world.clock.now(), 1), "the lease was given back"


def test_a_later_document_s_schema_is_refused() -> None:
    """In words of its own; what becomes of an unreadable document is for the controller's tests."""
    later = {**written.DOCUMENT.to_dict(), "schema": SCHEMA + 1}
    with pytest.raises(ValueError, match=f"has schema {SCHEMA + 1}, this version reads {SCHEMA}"):
        ServiceSpec.from_json(json.dumps(later))


def restored(recording: Path, clients: Clients) -> DynamoStore:
    """A table with what an earlier version wrote."""
    store = DynamoStore(make_table(clients))
    for item in json.loads((recording / "table.json").read_text(encoding="utf-8")):
        clients.dynamodb.put_item(TableName=TABLE, Item=item)
    return store


def rewrite(clients: Clients, partition: str, sort: str, **fields: Any) -> None:
    """Add fields to an item, in its row if it has one, as a later version would have written them."""
    (item,) = (i for i in scanned(clients) if _key(i) == (partition, sort))
    if "row" in item:
        row = json.dumps({**json.loads(item["row"]["S"]), **fields})
        changed = {**item, "row": {"S": row}}
    else:
        changed = {**item, **{name: {"N": str(value)} for name, value in fields.items()}}
    clients.dynamodb.put_item(TableName=TABLE, Item=changed)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["PK"]["S"], item["SK"]["S"]


def scanned(clients: Clients) -> list[Mapping[str, Any]]:
    """Every item."""
    return list(clients.dynamodb.scan(TableName=TABLE)["Items"])
