"""`aws.table` and `aws.store`: what DynamoDB does only under load, and what only it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber

from spotrelay.aws import items
from spotrelay.aws.clients import Clients
from spotrelay.aws.store import COOLDOWNS_KEPT_S, SURVEY_KEPT_S, DynamoStore
from spotrelay.aws.table import BATCH_ROUNDS, Table
from spotrelay.model import Cause, Changes, Cooldown, Scope, Survey, seconds
from spotrelay.names import TABLE_TTL
from spotrelay.ports import Conflict, Throttled, Unavailable
from spotrelay.requirements import Requirements
from tests.contract.conftest import TABLE
from tests.contract.rows import NOW, OFFERING, create, ended, provisioned, row, update
from tests.examples import spot_pool

KEYS = {"Keys": ANY, "ConsistentRead": True}


@pytest.fixture
def dynamodb(clients: Clients) -> Iterator[Stubber]:
    """Answers for DynamoDB's calls."""
    with Stubber(clients.dynamodb) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def waits() -> list[float]:
    """How long the table slept, each time."""
    return []


@pytest.fixture
def stubbed(clients: Clients, waits: list[float]) -> DynamoStore:
    """A store that sleeps by writing down how long."""
    return DynamoStore(Table(clients, TABLE, waits.append))


def _entry(instance_id: str, replica: int) -> dict[str, Any]:
    return {
        "PK": {"S": f"INSTANCE#{instance_id}"},
        "SK": {"S": "META"},
        "service": {"S": "demo"},
        "replica": {"N": str(replica)},
    }


def _unread(*instance_ids: str) -> dict[str, Any]:
    keys = [{"PK": {"S": f"INSTANCE#{i}"}, "SK": {"S": "META"}} for i in instance_ids]
    return {TABLE: {"Keys": keys, "ConsistentRead": True}}


def test_keys_left_unread_are_asked_for_again(
    dynamodb: Stubber, stubbed: DynamoStore, waits: list[float]
) -> None:
    """What DynamoDB leaves unread in a batch is read in further rounds, after longer and longer waits."""
    first, second, third = ({TABLE: [_entry(f"i-{n}", n)]} for n in (1, 2, 3))
    left, less = _unread("i-2", "i-3"), _unread("i-3")
    dynamodb.add_response("batch_get_item", {"Responses": first, "UnprocessedKeys": left})
    dynamodb.add_response(
        "batch_get_item", {"Responses": second, "UnprocessedKeys": less}, {"RequestItems": left}
    )
    dynamodb.add_response("batch_get_item", {"Responses": third}, {"RequestItems": less})
    assert stubbed.locate({"i-1", "i-2", "i-3"}) == {f"i-{n}": ("demo", n) for n in (1, 2, 3)}
    assert waits == [0.05, 0.1]


def test_keys_that_stay_unread_are_a_throttle(
    dynamodb: Stubber, stubbed: DynamoStore, waits: list[float]
) -> None:
    """After a bounded number of rounds the caller hears of it, instead of taking instances for foreign."""
    for _ in range(BATCH_ROUNDS):
        dynamodb.add_response("batch_get_item", {"Responses": {}, "UnprocessedKeys": _unread("i-1")})
    with pytest.raises(Throttled):
        stubbed.locate({"i-1"})
    assert len(waits) == BATCH_ROUNDS - 1


def test_every_read_is_strongly_consistent(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """No read may miss what a commit before it wrote; META is read before any row."""
    dynamodb.add_response("get_item", {}, {"TableName": TABLE, "Key": ANY, "ConsistentRead": True})
    query: dict[str, Any] = {
        "TableName": TABLE,
        "ConsistentRead": True,
        "ScanIndexForward": True,
        "KeyConditionExpression": ANY,
        "ExpressionAttributeNames": ANY,
        "ExpressionAttributeValues": ANY,
    }
    dynamodb.add_response("query", {"Items": []}, query)
    stubbed.load("demo")
    dynamodb.add_response("batch_get_item", {"Responses": {}}, {"RequestItems": {TABLE: KEYS}})
    stubbed.read("demo", {1})
    dynamodb.add_response("query", {"Items": []}, {**query, "ScanIndexForward": False, "Limit": 3})
    stubbed.history("demo", 3)
    dynamodb.add_response("query", {"Items": []}, {**query, "FilterExpression": ANY})
    dynamodb.add_response("get_item", {}, {"TableName": TABLE, "Key": ANY, "ConsistentRead": True})
    stubbed.recall("demo", "us-east-1", NOW)


@pytest.mark.parametrize(
    ("reasons", "error"),
    [
        (["None", "None", "ConditionalCheckFailed"], Conflict),
        (["None", "TransactionConflict", "None"], Conflict),
        # Deciding anew beats repeating later what can't succeed any more.
        (["ThrottlingError", "ConditionalCheckFailed", "None"], Conflict),
        (["ThrottlingError", "None", "None"], Throttled),
        (["None", "ProvisionedThroughputExceeded", "None"], Throttled),
        (["None", "None", "ValidationError"], ClientError),
    ],
)
def test_why_a_transaction_was_cancelled(
    dynamodb: Stubber, stubbed: DynamoStore, reasons: list[str], error: type[Exception]
) -> None:
    """A changed row is a conflict, a throttle is one, and a mistake of ours stays what it is."""
    _add_cancellation(dynamodb, reasons)
    with pytest.raises(error):
        stubbed.commit(Changes("demo", highest_id=(0, 1), create=(row(1),)))


def test_a_conflict_names_the_rows(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """A conflict says which of the commit's rows had changed, for whoever reads the log."""
    _add_cancellation(dynamodb, ["None", "ConditionalCheckFailed", "TransactionConflict"])
    with pytest.raises(Conflict, match=r"demo: .* META, REPLICA#000000001"):
        stubbed.commit(Changes("demo", highest_id=(0, 1), create=(row(1),)))


def test_cooldowns_that_somebody_else_knows_keep_no_other_from_being_written(
    dynamodb: Stubber, stubbed: DynamoStore
) -> None:
    """Of cooldowns in one call, those known until later, or just being written, are dropped alone."""
    offerings = [spot_pool(zone, "g5.xlarge") for zone in ("us-east-1a", "us-east-1b", "us-east-1c")]
    _add_cancellation(dynamodb, ["ConditionalCheckFailed", "None", "TransactionConflict"])
    written: list[Mapping[str, Any]] = []
    dynamodb.client.meta.events.register_first(
        "provide-client-params.dynamodb.TransactWriteItems",
        lambda params, **_: written.append(params),
        unique_id="seen",
    )
    dynamodb.add_response("transact_write_items", {})
    stubbed.cool([_cooldown(Scope.of(o), 60) for o in offerings])
    dynamodb.client.meta.events.unregister(
        "provide-client-params.dynamodb.TransactWriteItems", unique_id="seen"
    )
    (only,) = written[-1]["TransactItems"]
    assert only["Put"]["Item"]["SK"] == {"S": "us-east-1b#g5.xlarge##spot"}


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ProvisionedThroughputExceededException", 400, Throttled),
        ("TransactionConflictException", 400, Conflict),
        ("InternalServerError", 500, Unavailable),
        ("ResourceNotFoundException", 400, ClientError),
    ],
)
def test_a_single_write_that_fails(
    dynamodb: Stubber, stubbed: DynamoStore, code: str, status: int, error: type[Exception]
) -> None:
    """A lease that couldn't be asked for isn't taken for one that somebody else holds."""
    dynamodb.add_client_error("update_item", code, "no", status)
    with pytest.raises(error):
        stubbed.acquire("demo", "first", NOW, 60)


def test_a_survey_is_read_once_a_minute(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """A launch is in a hurry, a survey changes by the hour: it is kept a while, also that there is none."""
    asked = {"TableName": TABLE, "Key": ANY, "ConsistentRead": True}
    survey = Survey("demo", Requirements(), NOW, (OFFERING.pool,), {"g5.xlarge": 1.006})
    item: dict[str, Any] = {
        name: {"S": value} for name, value in items.survey_item(survey).items() if isinstance(value, str)
    }
    for answer, found in (({}, None), ({"Item": item}, survey)):
        at = NOW + seconds(0 if found is None else SURVEY_KEPT_S + COOLDOWNS_KEPT_S + 1)
        for later_s in (0, SURVEY_KEPT_S):
            dynamodb.add_response("query", {"Items": []})
            if later_s == 0:
                dynamodb.add_response("get_item", answer, asked)
            assert stubbed.recall("demo", "us-east-1", at + seconds(later_s)).survey == found


def _add_entry(dynamodb: Stubber, instance_id: str) -> None:
    """The next look-up finds that it is replica 7 of the service `demo`."""
    key = items.instance_key(instance_id)
    entry = {
        "PK": {"S": key.partition},
        "SK": {"S": key.sort},
        "service": {"S": "demo"},
        "replica": {"N": "7"},
    }
    dynamodb.add_response("batch_get_item", {"Responses": {TABLE: [entry]}})


def test_whose_an_instance_is_is_asked_once(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """It never becomes another's, and brings several events; what is nobody's may yet become somebody's."""
    _add_entry(dynamodb, "i-1")
    assert stubbed.locate({"i-1", "i-2"}) == {"i-1": ("demo", 7)}
    assert stubbed.locate({"i-1"}) == {"i-1": ("demo", 7)}
    asked = {"RequestItems": {TABLE: {"Keys": [ANY], "ConsistentRead": True}}}
    dynamodb.add_response("batch_get_item", {"Responses": {TABLE: []}}, asked)
    assert stubbed.locate({"i-1", "i-2"}) == {"i-1": ("demo", 7)}


def test_only_so_many_instances_are_remembered(
    dynamodb: Stubber, stubbed: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that lives long doesn't grow for ever: the oldest are asked about again."""
    monkeypatch.setattr("spotrelay.aws.store.LOCATED_KEPT", 1)
    for instance_id in ("i-1", "i-2", "i-1"):
        _add_entry(dynamodb, instance_id)
        assert stubbed.locate({instance_id}) == {instance_id: ("demo", 7)}


def test_cooldowns_are_read_once_in_a_while(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """In a storm they aren't read for each batch, and yet this function knows what it has learned itself."""
    lesson = Cooldown(Scope.of(OFFERING), Cause.LOSS, NOW, NOW + seconds(900), "why")
    dynamodb.add_response("query", {"Items": []})
    dynamodb.add_response("get_item", {})
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == ()
    dynamodb.add_response("transact_write_items", {})
    stubbed.cool([lesson])
    assert stubbed.recall("demo", "us-east-1", NOW + seconds(COOLDOWNS_KEPT_S)).cooldowns == (lesson,)
    dynamodb.add_response("transact_write_items", {})
    stubbed.forgive([lesson.scope])
    assert stubbed.recall("demo", "us-east-1", NOW + seconds(COOLDOWNS_KEPT_S)).cooldowns == ()
    dynamodb.add_response("query", {"Items": []})
    stubbed.recall("demo", "us-east-1", NOW + seconds(COOLDOWNS_KEPT_S + 0.001))


def test_a_tick_that_is_announced_here_is_not_asked_about(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """Until it is due nobody need ask the table whether there is one, but for the tick that it is itself."""
    due = NOW + seconds(3)
    dynamodb.add_response("update_item", {})
    assert stubbed.claim_tick("demo", due, NOW, None)
    assert not stubbed.claim_tick("demo", NOW + seconds(4), NOW + seconds(1), None)
    dynamodb.add_response("update_item", {})
    assert stubbed.claim_tick("demo", NOW + seconds(6), NOW + seconds(2.9), due)
    dynamodb.add_response("update_item", {})
    assert stubbed.claim_tick("demo", NOW + seconds(9), NOW + seconds(6), None)


def test_forgiving_what_somebody_writes_is_no_error(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """A refusal that comes at that moment is newer than the instance: it stays, and nobody fails over it."""
    _add_cancellation(dynamodb, ["TransactionConflict"])
    stubbed.forgive([Scope.of(OFFERING)])


def test_what_expires(aws: Clients, table: Table) -> None:
    """History and instances expire 30 days after the end, cooldowns when forgotten, nothing else ever."""
    store = DynamoStore(table)
    first, second = update(store, *(provisioned(r) for r in create(store, 2)))
    (over,) = update(store, ended(first))
    store.cool([_cooldown(Scope.of(OFFERING), 0.5), _cooldown(Scope("us-east-1", quota="g"), 60)])
    store.note_survey(Survey("demo", Requirements(), NOW, (OFFERING.pool,)))
    store.acquire("demo", "first", NOW, 60)
    expiry = {
        f"{item['PK']['S']} {item['SK']['S']}": int(item[TABLE_TTL]["N"])
        for item in aws.dynamodb.scan(TableName=TABLE)["Items"]
        if TABLE_TTL in item
    }
    end = int(over.since.timestamp()) + 30 * 86_400
    assert expiry == {
        "HISTORY#demo REPLICA#000000001": end,
        f"INSTANCE#{first.instance_id} META": end,
        "COOLDOWN#us-east-1 us-east-1a#g5.xlarge##spot": int(NOW.timestamp()) + 1,
        "COOLDOWN#us-east-1 ##g#": int(NOW.timestamp()) + 120,
    }
    assert second.instance_id is not None


def _cooldown(scope: Scope, for_s: float) -> Cooldown:
    return Cooldown(scope, Cause.REFUSAL, NOW, NOW + seconds(for_s), "dry")


def _add_cancellation(stubber: Stubber, reasons: list[str]) -> None:
    stubber.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons {reasons}",
        400,
        modeled_fields={"CancellationReasons": [{"Code": reason} for reason in reasons]},
    )
