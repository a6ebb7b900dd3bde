"""`aws.table` and `aws.store`: what DynamoDB does only under load, and what only it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.aws import items
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import COOLDOWNS_KEPT_S, MAX_REWRITES, SURVEY_KEPT_S, DynamoStore
from spotrelay.plane.aws.table import (
    BATCH_ROUNDS,
    CONFLICT_WAITS_S,
    Key,
    Table,
    Update,
    Values,
    Write,
    decoded,
    encoded,
)
from spotrelay.plane.core.held import Answer, Held, HeldBack
from spotrelay.plane.core.names import TABLE_TTL
from spotrelay.plane.core.pools import Cause, Cooldown, Scope, Survey
from spotrelay.plane.core.ports import Conflict, Denied, Throttled, Unavailable
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Backoff, Changes, LaunchIntent, LaunchWindow, Removal, Rows
from spotrelay.plane.core.scaling import OngoingTotal
from spotrelay.plane.core.timing import seconds
from tests.contract.conftest import TABLE, Monotonic, shared_clients
from tests.contract.rows import NOW, OFFERING, create, ended, provisioned, row, update
from tests.examples import demo_spec

KEYS = {"Keys": ANY, "ConsistentRead": True}
COOLDOWNS = items.cooldowns_key("us-east-1")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.integers(-(10**30), 10**30)
    | st.decimals(-(10**9), 10**9, allow_nan=False, places=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_values_travel_as_boto3_s_do(value: object) -> None:
    """What we write is written, and what we read is read, as boto3's own types for DynamoDB would."""
    wire = TypeSerializer().serialize(value)
    assert encoded(value) == wire
    assert decoded(wire) == TypeDeserializer().deserialize(wire)


@pytest.mark.parametrize("value", [1.5, {"a": [1.5]}, {1, 2}, NOW])
def test_what_has_no_type_in_the_table_is_refused(value: object) -> None:
    """A float, as for boto3, a set or a time: nothing of the sort is written by mistake."""
    with pytest.raises(TypeError, match="the table has no"):
        encoded(value)


def test_what_somebody_else_wrote_holds_nothing_up() -> None:
    """An attribute of a type that we don't write comes as it is, beside the others."""
    wire = {"M": {"colours": {"SS": ["red"]}, "replicas": {"N": "3"}}}
    assert decoded(wire) == {"colours": ["red"], "replicas": Decimal(3)}


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
def stubbed(clients: Clients, waits: list[float], monotonic: Monotonic) -> DynamoStore:
    """A store that sleeps by writing down how long."""
    return DynamoStore(Table(clients, TABLE, waits.append), monotonic)


def _item(key: Key, values: Values) -> dict[str, Any]:
    """An item as DynamoDB answers with it: of strings and whole numbers."""
    said = {
        name: {"S": value} if isinstance(value, str) else {"N": str(value)} for name, value in values.items()
    }
    return {"PK": {"S": key.partition}, "SK": {"S": key.sort}, **said}


def _asked(key: Key) -> dict[str, Any]:
    """A request for this one item."""
    return {"TableName": TABLE, "Key": _item(key, {}), "ConsistentRead": True}


def _entry(instance_id: str, replica: int) -> dict[str, Any]:
    return _item(items.instance_key(instance_id), {"service": "demo", "replica": replica})


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
    dynamodb.add_response("get_item", {}, _asked(COOLDOWNS))
    dynamodb.add_response("get_item", {}, _asked(items.survey_key("demo")))
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
        (["None", "None", "ValidationError"], Denied),
    ],
)
def test_why_a_transaction_was_cancelled(
    dynamodb: Stubber, stubbed: DynamoStore, reasons: list[str], error: type[Exception]
) -> None:
    """A changed row is a conflict, a throttle is one, and a mistake of ours is denied."""
    _add_cancellation(dynamodb, reasons)
    with pytest.raises(error):
        stubbed.commit(Changes("demo", highest_id=(0, 1), create=(row(1),)))


class Recorder(Table):
    """Takes transactions and makes none."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients, TABLE)
        self.writes: list[Write] = []

    def transact(self, writes: Sequence[Write]) -> None:
        """Write it down."""
        self.writes += writes


def _in_state(id_: int, state: ReplicaState, *, has_instance: bool = True) -> Replica:
    return row(id_, state=state, entered={state: NOW}, instance_id=f"i-{id_}" if has_instance else None)


def _any_rows(first_id: int) -> st.SearchStrategy[tuple[Replica, ...]]:
    """Rows from that ID on, in any state, with an instance or without."""
    facts = st.tuples(st.sampled_from(ReplicaState), st.booleans())
    return st.lists(facts, max_size=9).map(
        lambda rows: tuple(
            _in_state(id_, state, has_instance=has_instance)
            for id_, (state, has_instance) in enumerate(rows, first_id)
        )
    )


@given(
    st.builds(
        Changes,
        st.just("demo"),
        highest_id=st.none() | st.just((0, 9)),
        serving=st.none() | st.just((2, 1)),
        create=_any_rows(1),
        update=_any_rows(100),
        open_intent=st.none() | st.just(LaunchIntent("launch-1", "demo", (1,), NOW)),
        close_intents=st.lists(st.integers(2, 99).map("launch-{}".format), unique=True, max_size=9).map(
            tuple
        ),
        backoff=st.none() | st.just(Backoff()),
        window=st.none() | st.just((LaunchWindow(), LaunchWindow(NOW, 1))),
    )
)
def test_a_commit_is_never_larger_than_it_says(changes: Changes) -> None:
    """Whoever keeps to `Changes.size` never has DynamoDB refuse a transaction for its size."""
    recorder = Recorder(shared_clients())
    DynamoStore(recorder).commit(changes)
    assert len(recorder.writes) <= changes.size
    assert len({write.key for write in recorder.writes}) == len(recorder.writes), "each item once"


def test_the_largest_commit_is_as_large_as_it_says() -> None:
    """What `Changes.size` counts is there where everything happens at once: it isn't too careful by much."""
    everything = Changes(
        "demo",
        highest_id=(0, 1),
        create=(_in_state(1, ReplicaState.READY),),
        update=(_in_state(2, ReplicaState.FAILED),),
        open_intent=LaunchIntent("launch-1", "demo", (1,), NOW),
        close_intents=("launch-2",),
    )
    recorder = Recorder(shared_clients())
    DynamoStore(recorder).commit(everything)
    assert len(recorder.writes) == everything.size


def test_a_conflict_names_the_rows(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """A conflict says which of the commit's rows had changed, for whoever reads the log."""
    _add_cancellation(dynamodb, ["None", "ConditionalCheckFailed", "TransactionConflict"])
    with pytest.raises(Conflict, match=r"demo: .* META, REPLICA#000000001"):
        stubbed.commit(Changes("demo", highest_id=(0, 1), create=(row(1),)))


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ProvisionedThroughputExceededException", 400, Throttled),
        ("InternalServerError", 500, Unavailable),
        ("ResourceNotFoundException", 400, Denied),
    ],
)
def test_a_single_write_that_fails(
    dynamodb: Stubber, stubbed: DynamoStore, code: str, status: int, error: type[Exception]
) -> None:
    """A lease that couldn't be asked for isn't taken for one that somebody else holds."""
    dynamodb.add_client_error("update_item", code, "no", status)
    with pytest.raises(error):
        stubbed.acquire("demo", "first", NOW, 60)


def test_a_write_that_meets_a_transaction_is_made_again(
    dynamodb: Stubber, stubbed: DynamoStore, waits: list[float]
) -> None:
    """It takes milliseconds, and botocore doesn't repeat it. After four times somebody else has to."""
    for _ in range(3):
        dynamodb.add_client_error("update_item", "TransactionConflictException", "ongoing", 400)
    dynamodb.add_response("update_item", {})
    assert stubbed.acquire("demo", "first", NOW, 60)
    assert all(least <= wait <= 2 * least for wait, least in zip(waits, CONFLICT_WAITS_S, strict=True))
    for _ in range(4):
        dynamodb.add_client_error("update_item", "TransactionConflictException", "ongoing", 400)
    with pytest.raises(Conflict):
        stubbed.acquire("demo", "first", NOW, 60)


def test_a_survey_is_read_once_a_minute(
    dynamodb: Stubber, stubbed: DynamoStore, monotonic: Monotonic
) -> None:
    """A launch is in a hurry, a survey changes by the hour: it is kept a while, also that there is none."""
    survey = Survey("demo", Requirements(), NOW, (OFFERING.pool,), {"g5.xlarge": 1.006})
    key = items.survey_key("demo")
    for answer, found in (({}, None), ({"Item": _item(key, items.survey_item(survey))}, survey)):
        dynamodb.add_response("get_item", {}, _asked(COOLDOWNS))
        dynamodb.add_response("get_item", answer, _asked(key))
        assert stubbed.recall("demo", "us-east-1", NOW).survey == found
        monotonic.advance(SURVEY_KEPT_S - 1)
        dynamodb.add_response("get_item", {}, _asked(COOLDOWNS))
        assert stubbed.recall("demo", "us-east-1", NOW).survey == found
        monotonic.advance(COOLDOWNS_KEPT_S)


def _add_entry(dynamodb: Stubber, instance_id: str) -> None:
    """The next look-up finds that it is replica 7 of the service `demo`."""
    dynamodb.add_response("batch_get_item", {"Responses": {TABLE: [_entry(instance_id, 7)]}})


def test_the_highest_id_is_as_old_as_the_read_of_it(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """What is created while a service is read has a higher ID than was read, though the query brings both."""
    key = items.meta_key("demo")
    found = [_item(key, {"highest_id": 1}), _item(items.replica_key("demo", 1), items.replica_item(row(1)))]
    dynamodb.add_response("get_item", {"Item": _item(key, {"highest_id": 0})}, _asked(key))
    dynamodb.add_response("query", {"Items": found})
    rows = stubbed.load("demo")
    assert (rows.highest_id, rows.replicas) == (0, {1: row(1)})


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
    monkeypatch.setattr("spotrelay.plane.aws.store.LOCATED_KEPT", 1)
    for instance_id in ("i-1", "i-2", "i-1"):
        _add_entry(dynamodb, instance_id)
        assert stubbed.locate({instance_id}) == {instance_id: ("demo", 7)}


def test_cooldowns_are_read_once_in_a_while(
    dynamodb: Stubber, stubbed: DynamoStore, monotonic: Monotonic
) -> None:
    """In a storm they aren't read for each batch, and yet this function knows what it has learned itself."""
    lesson = _cooldown(Scope.of(OFFERING), 900)
    dynamodb.add_response("get_item", {}, _asked(COOLDOWNS))
    dynamodb.add_response("get_item", {}, _asked(items.survey_key("demo")))
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == ()
    dynamodb.add_response("put_item", {})
    stubbed.cool([lesson])
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == (lesson,)
    dynamodb.add_response("put_item", {})
    stubbed.forgive([lesson.scope])
    monotonic.advance(COOLDOWNS_KEPT_S - 1)
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == ()
    monotonic.advance(1)
    _add_cooldowns(dynamodb, 3, lesson)
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == (lesson,)


def test_cooldowns_come_along_with_rows(
    dynamodb: Stubber, stubbed: DynamoStore, monotonic: Monotonic
) -> None:
    """Once a region's cooldowns were asked for, rows bring them in one call, and a launch asks no more."""
    lesson = _cooldown(Scope.of(OFFERING), 900)
    keys = [_item(key, {}) for key in (items.meta_key("demo"), items.replica_key("demo", 1))]

    def read(keys: list[dict[str, Any]], *found: dict[str, Any]) -> Rows:
        asked = {TABLE: {"Keys": keys, "ConsistentRead": True}}
        dynamodb.add_response("batch_get_item", {"Responses": {TABLE: found}}, {"RequestItems": asked})
        return stubbed.read("demo", {1})

    read(keys)
    dynamodb.add_response("get_item", {}, _asked(COOLDOWNS))
    dynamodb.add_response("get_item", {}, _asked(items.survey_key("demo")))
    stubbed.recall("demo", "us-east-1", NOW)
    monotonic.advance(COOLDOWNS_KEPT_S)
    cooldowns = _item(COOLDOWNS, items.cooldowns_item([lesson], 1))
    found = _item(items.replica_key("demo", 1), items.replica_item(row(1)))
    assert read([_item(COOLDOWNS, {}), *keys], cooldowns, found).replicas == {1: row(1)}
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == (lesson,)
    read([_item(COOLDOWNS, {}), *keys])
    assert stubbed.recall("demo", "us-east-1", NOW).cooldowns == ()


def test_what_is_known_is_not_written_again(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """A cooldown that ends no later than the one that is known, or forgiving what isn't, costs no write."""
    _add_cooldowns(dynamodb, 1, _cooldown(Scope.of(OFFERING), 900))
    stubbed.cool([_cooldown(Scope.of(OFFERING), s) for s in (60, 900)])
    stubbed.forgive([Scope("us-east-1", quota="g")])


def test_who_loses_the_race_for_cooldowns_writes_them_anew(table: Table) -> None:
    """Functions that learn at the same time lose neither's lessons, the first time nor later."""
    one, other = DynamoStore(table), DynamoStore(table)
    lessons = [_cooldown(Scope("us-east-1", zone=f"us-east-1{zone}"), 60) for zone in "abc"]
    for store in (one, other):
        assert store.recall("demo", "us-east-1", NOW).cooldowns == ()
    one.cool(lessons[:1])
    other.cool(lessons[1:2])  # believes that there are none
    one.cool(lessons[2:])  # believes that there is but its own
    for store in (one, DynamoStore(table)):
        assert list(store.recall("demo", "us-east-1", NOW).cooldowns) == lessons
    other.forgive([lessons[1].scope])  # doesn't know of the last
    for store in (other, DynamoStore(table)):
        assert list(store.recall("demo", "us-east-1", NOW).cooldowns) == [lessons[0], lessons[2]]


def test_who_loses_every_race_for_cooldowns_has_a_conflict(dynamodb: Stubber, stubbed: DynamoStore) -> None:
    """Writing anew comes to an end; the log then says what region it was about."""
    for revision in range(1, 1 + MAX_REWRITES):
        _add_cooldowns(dynamodb, revision)
        dynamodb.add_client_error("put_item", "ConditionalCheckFailedException", "no", 400)
    with pytest.raises(Conflict, match="us-east-1"):
        stubbed.cool([_cooldown(Scope.of(OFFERING), 60)])


def test_what_was_learned_since_is_not_forgiven(table: Table) -> None:
    """A refusal that comes while an instance is got of the same pool is newer than the instance: it stays."""
    one, other = DynamoStore(table), DynamoStore(table)
    scope = Scope.of(OFFERING)
    one.cool([_cooldown(scope, 60)])
    assert other.recall("demo", "us-east-1", NOW).cooldowns == (_cooldown(scope, 60),)
    one.cool([_cooldown(scope, 180)])
    other.forgive([scope])
    for store in (other, DynamoStore(table)):
        assert store.recall("demo", "us-east-1", NOW).cooldowns == (_cooldown(scope, 180),)


def test_what_is_forgotten_is_dropped_with_the_next_lesson(table: Table) -> None:
    """The item doesn't grow for ever: it has only what is still remembered when something is learned."""
    store = DynamoStore(table)
    first, *later = (Scope("us-east-1", zone=f"us-east-1{zone}") for zone in "abc")
    store.cool([_cooldown(first, 60)])
    for since_s, scope, kept in ((119.9, later[0], {first, later[0]}), (120, later[1], set(later))):
        at = NOW + seconds(since_s)
        store.cool([Cooldown(scope, Cause.REFUSAL, at, at + seconds(60), "dry")])
        assert items.cooldowns_of("us-east-1", table.get(COOLDOWNS)).keys() == kept


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


def test_an_instance_is_recorded_no_more_often_than_needed(table: Table) -> None:
    """Its entry is written when its row gets it or is made with it, and at the end."""
    store = DynamoStore(table)
    (starting,) = update(store, provisioned(create(store, 1)[0]).to(ReplicaState.STARTING, NOW + seconds(2)))
    recorder = Recorder(shared_clients())
    update(DynamoStore(recorder), starting)
    assert [write.key for write in recorder.writes] == [items.replica_key("demo", 1)]


def test_a_document_of_another_schema_is_none(table: Table) -> None:
    """One that was kept by a version that this one doesn't understand holds up neither rows nor tick."""
    store = DynamoStore(table)
    store.keep_document(demo_spec())
    rows = create(store, 1)
    item = table.get(items.document_key("demo"))
    later = {"document": item["document"].replace('"schema":1', '"schema":2')}
    assert later != {"document": item["document"]}
    table.write(Update(items.document_key("demo"), later))
    assert store.document("demo") is None
    assert store.load("demo") == Rows(1, is_whole=True, replicas={1: rows[0]})


def test_what_is_held_back_can_be_asked_for_by_itself(table: Table) -> None:
    """As the command asks that shows it: one item, and nothing else; a later version's says nothing."""
    store = DynamoStore(table)
    assert store.held("demo") == Held()
    held = Held((HeldBack("replica 7 is kept", "why", "then", NOW),), Answer(NOW))
    store.note_held("demo", held)
    assert store.held("demo") == held == store.load("demo").held
    table.write(Update(items.held_key("demo"), {"schema": items.SCHEMA + 1, "held": "[]"}))
    assert store.held("demo") == store.load("demo").held == Held()


def test_requests_in_progress_of_a_later_version_are_unknown(table: Table) -> None:
    """As if nobody had asked: the number of replicas holds, and nothing else is held up."""
    store = DynamoStore(table)
    store.note_ongoing("demo", OngoingTotal(NOW, 3.0, 0))
    table.write(Update(items.ongoing_key("demo"), {"schema": items.SCHEMA + 1}))
    assert store.load("demo").ongoing is None


def test_starts_of_a_later_version_are_unknown(table: Table) -> None:
    """And so is a phase that only a later version knows: nothing is held up for want of them."""
    store = DynamoStore(table)
    later = json.dumps({"1": {"booted": NOW.isoformat(), "dreams": NOW.isoformat()}})
    table.write(Update(items.starts_key("demo"), {"schema": items.SCHEMA, "starts": later}))
    assert store.load("demo").starts == {1: {Phase.BOOTED: NOW}}
    table.write(Update(items.starts_key("demo"), {"schema": items.SCHEMA + 1}))
    assert store.load("demo").starts == {}


def test_a_document_and_a_removal_leave_each_other_alone(table: Table) -> None:
    """Both are in one item: whoever writes the one writes nothing of the other, whatever the order."""
    store = DynamoStore(table)
    removal = Removal(NOW, 1)
    store.note_removal("demo", removal)
    store.keep_document(demo_spec())
    assert (store.load("demo").document, store.load("demo").removal) == (demo_spec(), removal)
    store.note_removal("demo", Removal())
    assert (store.load("demo").document, store.load("demo").removal) == (demo_spec(), Removal())
    assert "removed_at" not in table.get(items.document_key("demo"))


def test_what_expires(aws: Clients, table: Table) -> None:
    """History and instances expire 30 days after the end, nothing else ever."""
    store = DynamoStore(table)
    first, second = update(store, *(provisioned(r) for r in create(store, 2)))
    (over,) = update(store, ended(first))
    store.cool([_cooldown(Scope.of(OFFERING), 60)])
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
    }
    assert second.instance_id is not None


def _cooldown(scope: Scope, for_s: float) -> Cooldown:
    return Cooldown(scope, Cause.REFUSAL, NOW, NOW + seconds(for_s), "dry")


def _add_cooldowns(dynamodb: Stubber, revision: int, *cooldowns: Cooldown) -> None:
    """The next look finds that these are the region's cooldowns."""
    item = _item(COOLDOWNS, items.cooldowns_item(cooldowns, revision))
    dynamodb.add_response("get_item", {"Item": item}, _asked(COOLDOWNS))


def _add_cancellation(stubber: Stubber, reasons: list[str]) -> None:
    stubber.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons {reasons}",
        400,
        modeled_fields={"CancellationReasons": [{"Code": reason} for reason in reasons]},
    )
