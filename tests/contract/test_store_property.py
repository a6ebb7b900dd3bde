"""Whatever is done to them, the store in memory and the one in DynamoDB say the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from moto import mock_aws

from spotrelay.plane.aws.store import COOLDOWNS_KEPT_S, SURVEY_KEPT_S, DynamoStore
from spotrelay.plane.core.held import Answer, Held, HeldBack
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.pools import Cause, Cooldown, PurchaseOption, Scope, Survey
from spotrelay.plane.core.ports import Conflict, Store
from spotrelay.plane.core.replica import TOLD_BY_INSTANCES, TRANSITIONS, Replica, ReplicaState
from spotrelay.plane.core.requirements import Amount, Requirements
from spotrelay.plane.core.rows import (
    Backoff,
    Changes,
    LaunchIntent,
    LaunchWindow,
    Removal,
    ScaleRequest,
    Source,
    Starts,
)
from spotrelay.plane.core.scaling import OngoingTotal
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryStore
from tests.contract.conftest import Monotonic, make_table, shared_clients
from tests.contract.rows import NOW, provisioned, row
from tests.examples import demo_spec, on_demand_pool, spot_pool

T = TypeVar("T")

SERVICE = "demo"
HOLDERS = st.sampled_from(["first", "second"])
MOMENTS = st.integers(0, 4).map(lambda s: NOW + seconds(s))
POOL = spot_pool("us-east-1a", "g5.xlarge")
SCOPES = st.sampled_from(
    [
        Scope.of(POOL),
        Scope.of(on_demand_pool("us-east-1a", "g5.xlarge")),
        Scope("us-east-1", quota="g", purchase_option=PurchaseOption.SPOT),
        Scope("us-east-1", zone="us-east-1a"),
    ]
)


class Stores(RuleBasedStateMachine):
    """Does everything to both, and compares what they answer and what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self._mock = mock_aws()
        self._mock.start()
        self.memory = MemoryStore()
        self._monotonic = Monotonic()
        self.dynamo = DynamoStore(make_table(shared_clients()), self._monotonic)
        self._numbers = count(1)
        self._instances: set[str] = set()
        self._now = NOW
        """When something was last learned: what is forgotten by then need not be known of earlier times."""

    def teardown(self) -> None:
        """Close the AWS account."""
        self._mock.stop()

    def _both(self, act: Callable[[Store], T]) -> T | type[Conflict]:
        answers: list[T | type[Conflict]] = []
        for store in (self.memory, self.dynamo):
            try:
                answers.append(act(store))
            except Conflict:
                answers.append(Conflict)
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        data=st.data(),
        created=st.integers(0, 3),
        ids_late=st.integers(0, 3).map(lambda n: n == 0),
        revision_late=st.integers(0, 9).map(lambda n: n == 0),
        taken_in=st.booleans(),
        serving=st.none() | st.integers(0, 2),
        serving_late=st.integers(0, 3).map(lambda n: n == 0),
        backoff=st.none()
        | st.builds(Backoff, st.integers(0, 3), st.none() | MOMENTS, st.integers(0, 2), st.none() | MOMENTS),
        launched=st.none() | st.integers(0, 2),
        opens=st.booleans(),
        closes=st.booleans(),
    )
    def commit(
        self,
        data: st.DataObject,
        created: int,
        ids_late: bool,
        revision_late: bool,
        taken_in: bool,
        serving: int | None,
        serving_late: bool,
        backoff: Backoff | None,
        launched: int | None,
        opens: bool,
        closes: bool,
    ) -> None:
        """Some new rows and some changed ones, now and then decided on what is no longer so."""
        rows = self.memory.load(SERVICE)
        highest = max(rows.highest_id - (1 if ids_late and created else 0), 0)
        new = tuple(row(highest + n) for n in range(1, created + 1))
        if taken_in and new:
            instance_id = f"i-{next(self._numbers)}-taken-in"
            new = (replace(new[0], state=ReplicaState.READY, instance_id=instance_id), *new[1:])
        # A row that is created and changed at once is no commit that anybody could decide on.
        known = sorted(rows.replicas.keys() - {r.id for r in new})
        changed = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        updates = [self._next(rows.replicas[id_], data) for id_ in changed]
        if revision_late and updates:
            updates[-1] = replace(updates[-1], revision=updates[-1].revision + 1)
        ids = tuple(r.id for r in new)
        intent = LaunchIntent(f"launch-{next(self._numbers)}", SERVICE, ids, NOW, highest + created)
        as_read = rows.serving + 1 if serving_late else rows.serving
        changes = Changes(
            SERVICE,
            highest_id=(highest, highest + created) if created else None,
            serving=None if serving is None else (as_read, serving),
            create=new,
            update=tuple(updates),
            open_intent=intent if opens else None,
            close_intents=tuple(rows.intents) if closes else (),
            backoff=backoff,
            window=None if launched is None else (rows.window, LaunchWindow(NOW, launched)),
        )
        self._instances |= {r.instance_id for r in (*new, *updates) if r.instance_id}
        self._both(lambda store: store.commit(changes))

    @rule(replicas=st.integers(0, 3))
    def keep_document(self, replicas: int) -> None:
        """A document that could be read."""
        self._both(lambda store: store.keep_document(demo_spec(SERVICE, replicas)))

    @rule(removal=st.builds(Removal, st.none() | MOMENTS, st.integers(0, 3)))
    def note_removal(self, removal: Removal) -> None:
        """What speaks for it that the service was removed."""
        self._both(lambda store: store.note_removal(SERVICE, removal))

    @rule(what=st.sampled_from(("replica 1 is kept", "its replicas are kept")), is_answered=st.booleans())
    def note_held(self, what: str, is_answered: bool) -> None:
        """What is held back, and perhaps what became of an override."""
        held = Held((HeldBack(what, "why", "then", NOW),), Answer(NOW) if is_answered else None)
        self._both(lambda store: store.note_held(SERVICE, held))

    @rule(version=st.integers(0, 3), at=MOMENTS, rings=st.booleans(), is_late=st.booleans())
    def note_incidents(self, version: int, at: datetime, rings: bool, is_late: bool) -> None:
        """What alarms were told, perhaps by who hasn't read what was told last."""
        revision = self.memory.load(SERVICE).incidents.revision - is_late
        told = Incidents(max(revision, 0), version, {Alarm.NOT_WHOLE: AlarmState(rings, at)})
        self._both(lambda store: store.note_incidents(SERVICE, told))

    @rule(total=st.builds(OngoingTotal, MOMENTS, st.floats(0, 1e9), st.integers(0, 3)))
    def note_ongoing(self, total: OngoingTotal) -> None:
        """The requests that replicas had when last asked."""
        self._both(lambda store: store.note_ongoing(SERVICE, total))

    @rule(
        starts=st.dictionaries(
            st.integers(1, 4),
            st.dictionaries(st.sampled_from(TOLD_BY_INSTANCES), MOMENTS, max_size=2),
            max_size=2,
        )
    )
    def note_starts(self, starts: Starts) -> None:
        """What instances told of their starts."""
        self._both(lambda store: store.note_starts(SERVICE, starts))

    @rule(request=st.none() | st.builds(ScaleRequest, st.integers(0, 3), MOMENTS))
    def note_request(self, request: ScaleRequest | None) -> None:
        """What an operator asks for, or that they don't any more."""
        self._both(lambda store: store.note_request(SERVICE, Source.OPERATOR, request))

    @rule(scope=SCOPES, cause=st.sampled_from(Cause), later_s=st.integers(0, 2), lasts=st.integers(0, 2))
    def cool(self, scope: Scope, cause: Cause, later_s: int, lasts: int) -> None:
        """Something to leave alone, learned a little later than the last such thing."""
        self._now += seconds(later_s)
        until = self._now + seconds(lasts)
        cooldown = Cooldown(scope, cause, self._now, until, f"until {until:%S}", lasts)
        self._both(lambda store: store.cool([cooldown]))

    @rule(scopes=st.lists(SCOPES))
    def forgive(self, scopes: list[Scope]) -> None:
        """What may or may not cool."""
        self._both(lambda store: store.forgive(scopes))

    @rule(version=st.integers(1, 3))
    def note_survey(self, version: int) -> None:
        """What EC2 offers by now."""
        survey = Survey(
            SERVICE,
            Requirements(cpus=Amount(version, at_least=False)),
            NOW,
            (POOL.pool,),
            {"g5.xlarge": 1 / version},
        )
        self._both(lambda store: store.note_survey(survey))

    @rule(holder=HOLDERS, now=MOMENTS)
    def acquire(self, holder: str, now: datetime) -> None:
        """The lease, which may be somebody's."""
        self._both(lambda store: store.acquire(SERVICE, holder, now, 2))

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        """The lease, which may be somebody else's."""
        self._both(lambda store: store.release(SERVICE, holder))

    @rule(due=MOMENTS, now=MOMENTS, serving=st.none() | MOMENTS)
    def claim_tick(self, due: datetime, now: datetime, serving: datetime | None) -> None:
        """The next tick, which may be announced."""
        self._both(lambda store: store.claim_tick(SERVICE, due, now, serving))

    @rule()
    def forget(self) -> None:
        """The service, whatever it has."""
        self._both(lambda store: store.forget(SERVICE))

    @invariant()
    def hold_the_same(self) -> None:
        """Everything that can be read."""
        self._recall_the_same()  # what this function has written
        self._monotonic.advance(SURVEY_KEPT_S + COOLDOWNS_KEPT_S)
        self._recall_the_same()  # what is in the table
        self._both(lambda store: store.recall(SERVICE, "us-east-1", self._now).survey)
        self._both(lambda store: store.load(SERVICE))
        self._both(lambda store: store.document(SERVICE))
        self._both(lambda store: store.read(SERVICE, range(1, 5)))
        self._both(lambda store: list(store.history(SERVICE, 3)))
        self._both(lambda store: list(store.services()))
        self._both(lambda store: store.locate(self._instances))

    def _recall_the_same(self) -> None:
        for later_s in (0, 1, 3):
            now = self._now + seconds(later_s)
            self._both(lambda store, now=now: store.recall(SERVICE, "us-east-1", now).cooldowns)  # type: ignore[misc]

    def _next(self, replica: Replica, data: st.DataObject) -> Replica:
        """The replica in a state that it may go to, or unhealthy in its present one."""
        state = data.draw(st.sampled_from(sorted({*TRANSITIONS[replica.state], replica.state})))
        if state is replica.state:
            return replace(replica, unhealthy_since=NOW)
        if state is ReplicaState.PROVISIONING:
            return provisioned(replica)
        return replica.to(state, NOW + seconds(len(replica.entered)))


TestStores = Stores.TestCase
# Few and short: each step is a dozen calls to moto. What `test_store` states one by one, this mixes.
TestStores.settings = settings(
    max_examples=15,
    stateful_step_count=15,
    # A failure is shown as found: to shorten it, hypothesis would replay it for minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
