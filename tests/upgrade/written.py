"""What is written to be read by every later version: one of everything, with every field used somewhere.

A later version may add values here. What is here must stay as it is: it is what the recordings hold.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from spotrelay.plane.core.pools import CapacityPool, Cause, Cooldown, Offering, PurchaseOption, Scope, Survey
from spotrelay.plane.core.ports import Store
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.requirements import Amount, Requirements
from spotrelay.plane.core.rows import Backoff, Changes, LaunchIntent, LaunchWindow
from spotrelay.plane.core.spec import OnRebalance, OnWarning, ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds

NOW = datetime(2026, 11, 22, 10, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + seconds(60)
SERVICE = "chat"
REGION = "us-east-1"
POOL = CapacityPool(REGION, "us-east-1a", "g5.xlarge")
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND

ASKED = Requirements(
    instance_types=("g5.xlarge", "g6.xlarge"), cpus=Amount(8, at_least=True), zones=("us-east-1a",)
)

DOCUMENT = ServiceSpec(
    service=SERVICE,
    version=7,
    replicas=3,
    use_spot=True,
    instance_types=("g5.xlarge", "g6.xlarge"),
    ordered=True,
    subnets={"subnet-1": "us-east-1a", "subnet-2": "us-east-1b"},
    launch_template_id="lt-1",
    target_group_arn="arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/relay-chat/1",
    port=8081,
    on_demand_fallback=True,
    base_on_demand=1,
    max_price_share=0.8,
    requirements=ASKED,
    drain_s=45,
    on_warning=OnWarning.NEEDED,
    initial_delay_s=900,
    readiness_probe=ReadinessProbe("/v1/chat/completions", {"model": "tiny", "max_tokens": 1}, 15),
    on_rebalance=OnRebalance.REPLACE,
    surge=2,
    max_launches_per_minute=50,
)

PLAIN = replace(
    DOCUMENT, service="plain", max_price_share=None, requirements=None, readiness_probe=None, base_on_demand=0
)
"""Where everything that may be left out is."""


def _to(replica: Replica, *states: ReplicaState) -> Replica:
    for state in states:
        replica = replica.to(state, replica.since + seconds(1))
    return replica


def _requested(id_: int) -> Replica:
    return Replica.requested(SERVICE, id_, 7, NOW, reason="fewer replicas than wanted")


def _provisioned(id_: int) -> Replica:
    return _requested(id_).to(
        ReplicaState.PROVISIONING,
        NOW + seconds(1),
        offering=Offering(POOL, SPOT),
        instance_id=f"i-{id_}",
        launch_id="launch-1",
        launch="g5.xlarge in us-east-1a",
    )


READY = _to(_provisioned(1), ReplicaState.STARTING, ReplicaState.READY)
SERVES_ON = replace(
    _to(_provisioned(2), ReplicaState.STARTING, ReplicaState.READY),
    warned_at=NOW,
    replaced_by=4,
    unhealthy_since=LATER,
    rebalance_at=NOW,
)
FALLBACK = replace(
    _provisioned(3), purchase_option=ON_DEMAND, offering=Offering(POOL, ON_DEMAND), is_fallback=True
)
WAITING = replace(_requested(4), replaces=2, attempts=3, retry_at=LATER, launch_id="launch-2")
ENDED = _to(_provisioned(5), ReplicaState.DRAINING, ReplicaState.TERMINATED)

REPLICAS = (READY, SERVES_ON, FALLBACK, WAITING)
INTENT = LaunchIntent("launch-2", SERVICE, (4,), NOW, 5)
BACKOFF = Backoff(2, LATER, 7, LATER)
WINDOW = LaunchWindow(NOW, 4)

COOLDOWN = Cooldown(
    Scope(REGION, "us-east-1a", "g5.xlarge", "", SPOT), Cause.LOSS, NOW, LATER, "EC2 took i-2", 2
)
SURVEY = Survey(
    SERVICE,
    ASKED,
    NOW,
    (POOL, CapacityPool(REGION, "us-east-1b", "g6.xlarge")),
    {"g5.xlarge": 1.006},
    {POOL: 0.4321},
    {"us-east-1a": 7, "us-east-1b": 3},
)


def write(store: Store) -> None:
    """Write all of it."""
    store.keep_document(DOCUMENT)
    store.commit(
        Changes(
            SERVICE,
            highest_id=(0, 5),
            serving=(0, 1),
            create=(*REPLICAS, replace(ENDED, state=ReplicaState.DRAINING)),
            open_intent=INTENT,
            backoff=BACKOFF,
            window=(LaunchWindow(), WINDOW),
        )
    )
    store.commit(Changes(SERVICE, update=(ENDED,)))
    store.cool([COOLDOWN])
    store.note_survey(SURVEY)
    store.acquire(SERVICE, "holder", NOW, 60)
    store.claim_tick(SERVICE, LATER, NOW, None)
