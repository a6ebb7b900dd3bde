"""The replica's state machine, and the runtime document."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core.pools import OPTIONS, Cause, Cooldown, PoolMemory, PurchaseOption, Scope
from spotrelay.plane.core.replica import TRANSITIONS, IllegalTransitionError, Replica, ReplicaState
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSpec, SpecError
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.cases import a_replica
from tests.upgrade import written


@given(st.lists(st.sampled_from(ReplicaState), max_size=12))
def test_a_replica_only_ever_walks_the_state_machine(wishes: list[ReplicaState]) -> None:
    """Whatever is asked of a replica, it is only ever where its states lead, and ends for good."""
    replica = Replica.requested("demo", 1, 1, EPOCH, reason="test")
    for step, wish in enumerate(wishes, 1):
        now = EPOCH + seconds(step)
        if wish in TRANSITIONS[replica.state]:
            assert not replica.state.is_ended
            replica = replica.to(wish, now)
            assert replica.since == now
        else:
            with pytest.raises(IllegalTransitionError):
                replica.to(wish, now)
    times = list(replica.entered.values())
    assert times == sorted(times)


@pytest.mark.parametrize("name", [f.name for f in fields(Replica)])
def test_a_replica_with_one_field_changed_is_as_dataclasses_make_it(name: str) -> None:
    """Each field is changed alone, the one that it is made of stays, and a field that isn't is an error."""
    replica = a_replica(7, ReplicaState.READY)
    before, changed = replace(replica), dict[str, Any]({name: "new"})
    assert replica.but(**changed) == replace(replica, **changed)
    assert replica == before
    with pytest.raises(TypeError, match="no colour"):
        replica.but(**changed, colour="red")


def test_every_state_is_active_or_idle_or_ended() -> None:
    """No state is forgotten when replicas are counted."""
    for state in ReplicaState:
        is_idle = state in (ReplicaState.DRAINING, ReplicaState.STANDBY)
        assert [state.is_active, is_idle, state.is_ended].count(True) == 1


def test_every_state_can_be_reached_and_left_to_an_end() -> None:
    """A replica can't get stuck: from every state that isn't an end, an end can be reached."""
    reaches_end = {s for s in ReplicaState if s.is_ended}
    for _ in ReplicaState:
        reaches_end |= {s for s, nexts in TRANSITIONS.items() if nexts & reaches_end}
    assert reaches_end == set(ReplicaState)
    assert {s for nexts in TRANSITIONS.values() for s in nexts} | {ReplicaState.REQUESTED} == set(
        ReplicaState
    )


def test_the_runtime_document_round_trips() -> None:
    """What the stack writes is what the controller reads."""
    spec = replace(demo_spec(), ordered=True, drain_s=30, initial_delay_s=600)
    assert ServiceSpec.from_json(json.dumps(spec.to_dict())) == spec
    wanted = Requirements((Accelerators("L4", 1),), cpus=Amount(8, at_least=True), exclude=("g6f",))
    placed = replace(
        spec, on_demand_fallback=False, base_on_demand=2, max_price_share=0.6, requirements=wanted
    )
    assert ServiceSpec.from_json(json.dumps(placed.to_dict())) == placed
    reserved = replace(spec, on_demand_template=LaunchTemplate("lt-2", "5"))
    assert ServiceSpec.from_json(json.dumps(reserved.to_dict())) == reserved


def test_on_demand_may_have_a_launch_template_of_its_own() -> None:
    """Spot never gets it; nor does a launch in another version, which it may not say the same as."""
    spec = replace(demo_spec(), version=3)
    one, own = LaunchTemplate("lt-1", "3"), LaunchTemplate("lt-2", "5")
    assert spec.template(PurchaseOption.SPOT) == spec.template(PurchaseOption.ON_DEMAND) == one
    spec = replace(spec, on_demand_template=own)
    assert (spec.template(PurchaseOption.SPOT), spec.template(PurchaseOption.ON_DEMAND)) == (one, own)
    assert spec.in_version(3) == spec
    for option in OPTIONS.values():
        assert spec.in_version(2).template(option) == LaunchTemplate("lt-1", "2")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 2}, "deploy the control plane and the service with one version"),
        ({"replicas": -1}, "negative replicas"),
        ({"replicas": "many"}, "deploy the service again"),
        ({"instance_types": []}, "no instance types"),
        ({"subnets": {}}, "no subnets"),
        ({"port": None}, "deploy the service again"),
        ({"max_price_share": "half"}, "deploy the service again"),
        ({"requirements": ["L4:1"]}, "deploy the service again"),
        ({"on_warning": "run"}, "deploy the service again"),
        ({"on_demand_template": {"id": "lt-2"}}, "deploy the service again"),
    ],
)
def test_a_document_that_cannot_be_read_says_what_to_do(change: dict[str, object], complaint: str) -> None:
    """A runtime document of another version, or a damaged one, is met by a remedy."""
    with pytest.raises(SpecError, match=complaint):
        ServiceSpec.from_json(json.dumps({**demo_spec().to_dict(), **change}))


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "{}", "null"])
def test_what_is_no_document_says_so(text: str) -> None:
    """Anything but a JSON object with our fields is a `SpecError`, never another exception."""
    with pytest.raises(SpecError):
        ServiceSpec.from_json(text)


def test_pools_are_every_type_in_every_zone() -> None:
    """The pools of a service are its types times its zones, types in the file's order."""
    assert [str(p) for p in demo_spec().pools] == [
        "us-east-1a/g5.xlarge",
        "us-east-1b/g5.xlarge",
        "us-east-1a/g6.xlarge",
        "us-east-1b/g6.xlarge",
    ]


def test_of_several_cooldowns_the_last_to_end_is_told() -> None:
    """A pool that cools for more than one reason is left alone for the one that lasts longest."""
    offering = spot_pool("us-east-1a", "g5.xlarge")

    def lesson(scope: Scope, lasts_s: float) -> Cooldown:
        return Cooldown(scope, Cause.LIMIT, EPOCH, EPOCH + seconds(lasts_s), "why")

    short = lesson(Scope.of(offering), 60)
    long = lesson(Scope("us-east-1", quota="g", purchase_option=PurchaseOption.SPOT), 90)
    other = lesson(Scope("us-east-1", zone="us-east-1b"), 300)
    memory = PoolMemory((short, long, other))
    assert memory.cooling(offering, EPOCH) == long
    assert memory.cooling(offering, EPOCH + seconds(90)) is None, "not at its end, though it is remembered"
    assert memory.cooling(on_demand_pool("us-east-1a", "g5.xlarge"), EPOCH) is None


@pytest.mark.parametrize("field", fields(ServiceSpec), ids=lambda field: field.name)
def test_a_document_of_before_there_was_a_setting_is_read(field: Field[Any]) -> None:
    """Unreadable would be worse than the default; what has no default was always there, and is missed."""
    document = written.DOCUMENT.to_dict()
    del document[field.name]
    default: Any = field.default if field.default_factory is MISSING else field.default_factory()
    if default is MISSING:
        with pytest.raises(SpecError, match=f"'{field.name}'.*deploy the service again"):
            ServiceSpec.from_json(json.dumps(document))
    else:
        read = ServiceSpec.from_json(json.dumps(document))
        assert read == replace(written.DOCUMENT, **{field.name: default})


@pytest.mark.parametrize(
    ("facts", "serves", "stays", "counts"),
    [
        ({}, True, True, True),
        ({"warned_at": EPOCH}, True, False, False),
        ({"unhealthy_since": EPOCH}, False, False, True),
        ({"warned_at": EPOCH, "unhealthy_since": EPOCH}, False, False, False),
        ({"state": ReplicaState.STARTING}, False, False, True),
        ({"state": ReplicaState.DRAINING}, False, False, False),
    ],
)
def test_who_serves_who_stays_and_who_counts(
    facts: dict[str, Any], serves: bool, stays: bool, counts: bool
) -> None:
    """What EC2 takes back serves, and neither stays nor counts; what is ill counts, and does neither."""
    ready = replace(Replica.requested("demo", 1, 1, EPOCH, reason="test"), state=ReplicaState.READY)
    replica = replace(ready, **facts)
    assert (replica.serves, replica.stays, replica.is_counted) == (serves, stays, counts)
