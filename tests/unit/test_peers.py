"""Whom a replica that starts may ask for its models, and that every launch says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.placement.peers import MAX_LENGTH, MOST, NOBODY, named
from spotrelay.plane.serving import reconcile
from tests.examples import demo_spec, spot_pool
from tests.unit.cases import NOW, a_replica, an_instance, seen_of
from tests.unit.worlds import active, rows, serving, settle, warn

PEERS = replace(demo_spec(), peers=True)

READY = ReplicaState.READY


def there(id_: int, zone: str = "us-east-1a", state: ReplicaState = READY, **facts: Any) -> Replica:
    """A replica that has its models, at an address of its own."""
    told: dict[str, Any] = {"address": f"10.0.0.{id_}", "offering": spot_pool(zone, "g5.xlarge"), **facts}
    return a_replica(id_, state, **told)


def test_each_zone_names_its_own() -> None:
    """By its letter, since one launch asks pools of several zones; of each zone somebody comes first."""
    found = named(PEERS, [there(1), there(2), there(3, "us-east-1b")])
    assert found == "a:10.0.0.1 b:10.0.0.3 a:10.0.0.2"


@pytest.mark.parametrize(
    "other",
    [
        there(1, version=2),
        there(1, state=ReplicaState.STARTING),
        there(1, state=ReplicaState.DRAINING),
        there(1, address=None),
        a_replica(1, ReplicaState.REQUESTED, address="10.0.0.1"),
    ],
)
def test_who_may_not_have_the_models_is_not_named(other: Replica) -> None:
    """Another version, or one that isn't ready, that ends, or whose address nobody knows."""
    assert named(PEERS, [other]) == NOBODY


@pytest.mark.parametrize("state", [READY, ReplicaState.DRAINING])
def test_one_that_ec2_takes_back_is_named_last(state: ReplicaState) -> None:
    """It serves models until its end, which may be two minutes away; the others are likelier to be there."""
    warned = there(1, state=state, warned_at=NOW)
    assert named(PEERS, [warned, there(2)]) == "a:10.0.0.2 a:10.0.0.1"


def test_as_many_are_named_as_fit() -> None:
    """At most four of a zone, and no more than a tag's value may have, with each zone's first among them."""
    zones = [f"us-east-1{letter}" for letter in "abcdef"]
    everywhere = [
        # One character more in the first zone: the fifteenth entry would end one beyond the limit.
        there(10 * number + n, zone, address=f"{110 if number == 1 else 10}.100.{100 + number}.{100 + n}")
        for number, zone in enumerate(zones, 1)
        for n in range(6)
    ]
    assert len(named(PEERS, everywhere[:6]).split()) == MOST
    text = named(PEERS, everywhere)
    assert MAX_LENGTH - len(" a:10.100.101.100") < len(text) <= MAX_LENGTH
    assert {one[0] for one in text.split()} == set("abcdef")


def test_an_instance_is_named_once() -> None:
    """However many replicas it hosts."""
    one = there(1)
    assert named(PEERS, [one, replace(one, id=2, instance_id="i-1:8082")]) == "a:10.0.0.1"


@pytest.mark.parametrize(("spec", "expected"), [(PEERS, "10.0.0.7"), (demo_spec(), None)])
def test_an_address_is_on_the_row_once_it_is_ready(spec: Any, expected: str | None) -> None:
    """Where peers may ask for it, and nowhere else: other rows are as they were."""
    starting = a_replica(7, ReplicaState.STARTING)
    seen = seen_of(starting, instances=[an_instance(7, address="10.0.0.7")], health={7: TargetState.HEALTHY})
    (ready,) = [step.after for step in reconcile.decide(spec, seen, NOW) if step.enters(READY)]
    assert ready
    assert ready.address == expected


def test_every_launch_names_the_others() -> None:
    """Those of a tick and those upon a warning, which needs to know who is ready besides whom it is about."""
    world, controller = serving(PEERS)
    (first, *_), addresses = active(world), {r.id: r.address for r in active(world)}
    assert all(addresses.values())
    controller.handle(warn(world, first))
    (*_, upon_warning) = world.fleet.launches
    assert {one.partition(":")[2] for one in (upon_warning.peers or "").split()} == {*addresses.values()}
    assert (upon_warning.peers or "").split()[-1].endswith(str(first.address))
    settle(world, controller)
    assert rows(world).replicas[max(rows(world).replicas)].address


def test_a_warning_reads_no_more_without_peers() -> None:
    """What comes next isn't to wait for what a service doesn't use; nor has a launch such a tag."""
    reads: dict[bool, int] = {}
    for spec in (demo_spec(), PEERS):
        world, controller = serving(spec)
        load, calls = world.store.load, list[str]()

        def counted(service: str, load: Callable[[str], Rows] = load, calls: list[str] = calls) -> Rows:
            calls.append(service)
            return load(service)

        world.store.load = counted  # type: ignore[method-assign]
        controller.handle(warn(world, active(world)[0]))
        reads[spec.peers] = len(calls)
        assert (world.fleet.launches[-1].peers is None) == (not spec.peers)
    assert reads[True] == reads[False] + 1
