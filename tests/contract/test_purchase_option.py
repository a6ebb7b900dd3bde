"""A purchase option is a value: one that only this file knows is bought, lost, shown and paid for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from botocore.stub import ANY, Stubber

import spotrelay
from spotrelay.operator import drill
from spotrelay.operator.drill import RefusedError
from spotrelay.plane.accounting import days
from spotrelay.plane.aws import items
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.fleet import Ec2Fleet, instance_of
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import (
    OPTIONS,
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PriceKind,
    PurchaseOption,
    QuotaKind,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import LaunchRequest
from spotrelay.plane.core.quotas import needs
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement.launching import FALLBACK_DELAY_S
from spotrelay.plane.placement.plan import plan
from spotrelay.plane.serving import reconcile, slots
from spotrelay.plane.serving.standby_count import most_at_risk
from spotrelay.plane.view.snapshot import ServiceSnapshot
from spotrelay.plane.view.status import status
from tests.contract.rows import NOW, row
from tests.examples import demo_spec
from tests.unit import cases
from tests.unit.cases import a_replica, an_instance, rows_of, seen_of
from tests.unit.worlds import Troubled, active, dry, reclaim, serving, settle, warn, world_of

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND

BORROWED = PurchaseOption(
    name="reserved-capacity",
    label="borrowed capacity",
    is_interruptible=True,
    has_spot_requests=False,
    can_be_stopped=False,
    fallback=ON_DEMAND,
    is_scored=False,
    price_kind=PriceKind.LIST,
    quota_kind=QuotaKind.RUNNING_ON_DEMAND,
    metric=Metric.REPLICAS_ON_DEMAND,
    uses_reservations=False,
    lifecycle="interruptible-capacity-reservation",
    fleet_options="ReservedCapacityOptions",
    strategy="prioritized",
    ordered_strategy="prioritized",
)
"""Made up, with words that EC2 knows: its owner takes it back, and it costs what on-demand does."""


class Borrowing(ServiceSpec):
    """A service whose replicas are bought so, as a setting of the service file would say."""

    @property
    def purchase_option(self) -> PurchaseOption:
        """The made-up one."""
        return BORROWED


def borrowing(**settings: object) -> ServiceSpec:
    """The demo's service, bought so."""
    spec = demo_spec()
    known = {name: getattr(spec, name) for name in ServiceSpec.__dataclass_fields__}
    return Borrowing(**{**known, **settings})


POOLS = borrowing().pools


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands among the others, as in `core.pools`."""
    monkeypatch.setitem(OPTIONS, BORROWED.name, BORROWED)


def bought(world: Troubled) -> list[tuple[PurchaseOption, PurchaseOption | None]]:
    """How each replica is to be bought, and how its instance was."""
    return [(r.purchase_option, r.offering.purchase_option if r.offering else None) for r in active(world)]


# Placement, commits and rows, through the controller.


def test_it_is_asked_for_in_every_pool() -> None:
    """Without prices and scores of its own, all pools are asked; those that cool wait for its fallback."""
    memory = PoolMemory(
        (Cooldown(Scope.of(Offering(POOLS[0], BORROWED)), Cause.LOSS, NOW, NOW + seconds(60), "warning"),),
        # Neither says anything about it: the one is low, and the other above what the service pays for Spot.
        Survey(
            "demo",
            borrowing().asked,
            NOW,
            POOLS,
            {"g5.xlarge": 1.0, "g6.xlarge": 1.0},
            dict.fromkeys(POOLS, 9.0),
            {"us-east-1a": 1, "us-east-1b": 1},
        ),
    )
    spec = borrowing(max_price_share=0.5)
    made = plan(spec, BORROWED, memory, NOW, is_return=True)
    assert [(step.purchase_option, step.pools) for step in made.steps] == [(BORROWED, POOLS[1:])]
    assert made.max_prices == {}
    last = plan(spec, BORROWED, memory, NOW, is_last_resort=True)
    assert [step.pools for step in last.steps] == [POOLS[1:], POOLS[:1]]


def test_all_replicas_are_bought_so_but_for_the_base() -> None:
    """What the file wants of on-demand is bought on demand, as beside Spot."""
    world, _ = serving(borrowing(base_on_demand=1))
    assert sorted(bought(world), key=str) == [(ON_DEMAND, ON_DEMAND), *[(BORROWED, BORROWED)] * 2]


def test_a_warned_one_is_replaced_and_its_pool_left_alone() -> None:
    """A warning is about it, too: what replaces it is bought the same way, in other pools."""
    world, controller = serving(borrowing())
    lost = active(world)[0]
    assert lost.offering is not None
    controller.handle(warn(world, lost))
    new = active(world)[-1]
    assert (new.replaces, new.purchase_option, new.state) == (lost.id, BORROWED, ReplicaState.PROVISIONING)
    memory = world.store.recall("demo", "us-east-1", world.clock.now())
    assert memory.cooling(lost.offering, world.clock.now())
    assert not memory.cooling(Offering(lost.offering.pool, SPOT), world.clock.now())
    assert lost.offering.pool not in world.fleet.launches[-1].pools


def test_its_fallback_stands_in_until_it_is_back() -> None:
    """Where it is refused, on-demand serves; once it serves itself again, that goes, and both are said."""
    world, controller = serving(borrowing())
    dry(world, BORROWED)
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    assert FALLBACK_DELAY_S in [delay_s for _, _, delay_s in world.ticker.scheduled]
    controller.tick("demo")
    fallback = active(world)[-1]
    assert (fallback.purchase_option, fallback.is_fallback) == (ON_DEMAND, True)
    assert fallback.reason == "borrowed capacity isn't ready"
    settle(world, controller)
    controller.handle(reclaim(world, victim))
    world.fleet.capacity.clear()
    settle(world, controller, rounds=int(1.2 * timing.LOSS_COOLDOWN_S / timing.TICK_IN_TRANSITION_S))
    assert bought(world) == [(BORROWED, BORROWED)] * 3
    ended = {r.id: r.reason for r in world.store.history("demo", 9)}
    assert ended[fallback.id] == "borrowed capacity is back"


def test_standbys_are_bought_as_what_can_be_stopped() -> None:
    """EC2 doesn't stop what it may take back: a standby is on demand."""
    world = world_of(borrowing(standby=1))
    settle(world, Controller(world.ports()), rounds=30)
    assert [r.purchase_option for r in active(world) if r.is_standby] == [ON_DEMAND]


@pytest.mark.parametrize(("option", "moved"), [(SPOT, ["Replace"]), (BORROWED, [])])
def test_nobody_moves_for_spots_prices(option: PurchaseOption, moved: list[str]) -> None:
    """That Spot is cheaper elsewhere is no reason to move what isn't on Spot."""
    offering = Offering(POOLS[0], option)
    there = [a_replica(n, ReplicaState.READY, purchase_option=option, offering=offering) for n in (1, 2, 3)]
    prices = {POOLS[0]: 1.0, **dict.fromkeys(POOLS[1:], 0.1)}
    survey = Survey("demo", borrowing().asked, cases.NOW, POOLS, spot_prices=prices)
    seen = seen_of(
        *there,
        instances=[an_instance(r.id, offering=offering) for r in there],
        health={r.id: TargetState.HEALTHY for r in there},
        pools=PoolMemory(survey=survey),
    )
    assert [step.name for step in reconcile.decide(borrowing(rebalance_cost=0.2), seen, cases.NOW)] == moved


def test_what_has_no_spot_request_is_not_asked_about() -> None:
    """Neither whether EC2 takes it back, which its request would say, nor for a drill, which needs one."""
    rows = rows_of(a_replica(1, ReplicaState.READY, offering=Offering(POOLS[0], BORROWED)))
    shown = an_instance(1, offering=Offering(POOLS[0], BORROWED))
    assert slots.on_spot(rows, []) == slots.on_spot(rows_of(), [shown]) == set()
    world, _ = serving(borrowing())
    assert world.fleet.warned(world.fleet.instances) == {}
    with pytest.raises(RefusedError, match="0 of 3 replicas are on Spot"):
        drill.plan(borrowing(), world.store.load("demo"), 1)


# What is written comes back.


def test_a_row_and_a_cooldown_of_it_come_back() -> None:
    """As items of the table: how it is to be bought, how it was, and what is left alone."""
    there = row(1, purchase_option=BORROWED, offering=Offering(POOLS[0], BORROWED), instance_id="i-1")
    written = items.replica_item(there)
    assert items.replica_of(written) == replace(there, revision=items.replica_of(written).revision)
    assert items.replica_of(written).purchase_option is BORROWED
    scope = Scope.of(Offering(POOLS[0], BORROWED))
    cooldown = Cooldown(scope, Cause.LOSS, NOW, NOW + seconds(60), "warning")
    item = items.cooldowns_item([cooldown], 1)
    assert items.cooldowns_of("us-east-1", item) == {scope: cooldown}


# EC2.


@pytest.fixture
def launching(clients: Clients) -> Iterator[Stubber]:
    """Answers for CreateFleet, whose requests are held against EC2's model."""
    with Stubber(clients.ec2_launching) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def test_ec2_is_asked_for_it_by_its_words(launching: Stubber, clients: Clients) -> None:
    """Its type of capacity, its options, and the launch template without reservations."""
    error = {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": "none is left"}
    launching.add_response(
        "create_fleet",
        {"Errors": [error]},
        {
            "Type": "instant",
            "ClientToken": "launch-1",
            "LaunchTemplateConfigs": ANY,
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "reserved-capacity",
            },
            "ReservedCapacityOptions": {"AllocationStrategy": "prioritized"},
            "TagSpecifications": ANY,
        },
    )
    spec = borrowing(on_demand_template=LaunchTemplate("lt-reserved", "7"))
    assert spec.template(BORROWED) == LaunchTemplate("lt-1", "1")
    request = LaunchRequest("launch-1", spec, BORROWED, POOLS, 1)
    assert len(Ec2Fleet(clients, lambda: NOW).launch(request).refusals) == 1


@pytest.mark.parametrize(
    ("lifecycle", "option"),
    [
        ({"InstanceLifecycle": "interruptible-capacity-reservation"}, BORROWED),
        ({"InstanceLifecycle": "spot"}, SPOT),
        ({"InstanceLifecycle": "scheduled"}, ON_DEMAND),
        ({}, ON_DEMAND),
    ],
)
def test_ec2s_instances_are_known_by_their_lifecycle(
    lifecycle: dict[str, str], option: PurchaseOption
) -> None:
    """Each option's own; what is none of ours is taken for on-demand."""
    described = {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": "running"},
        "LaunchTime": NOW,
        **lifecycle,
    }
    found = instance_of(described, "us-east-1")  # type: ignore[arg-type]  # what is read of one
    assert found.offering == Offering(POOLS[0], option)


# What is told and paid.


def served(option: PurchaseOption) -> Replica:
    """A replica that has served for an hour."""
    times = dict.fromkeys((ReplicaState.PROVISIONING, ReplicaState.READY), NOW - seconds(3600))
    return row(
        1,
        state=ReplicaState.READY,
        entered=times,
        purchase_option=option,
        offering=Offering(POOLS[0], option),
        instance_id="i-1",
    )


def test_it_is_shown_and_counted() -> None:
    """In a status and the metrics, by its name and at its price; what is left alone of it is shown, too."""
    survey = Survey("demo", borrowing().asked, NOW, POOLS, {"g5.xlarge": 1.5})
    short, long = (
        Cooldown(Scope.of(Offering(POOLS[0], option)), Cause.LOSS, NOW, NOW + seconds(for_s), "warning")
        for option, for_s in ((SPOT, 60), (BORROWED, 90))
    )
    there = world_of().store.load("demo")
    seen = ServiceSnapshot(
        "demo",
        "us-east-1",
        NOW,
        borrowing(replicas=1),
        replace(there, replicas={1: served(BORROWED)}),
        memory=PoolMemory((short, long), survey),
    )
    told = status(seen)
    assert [r.purchase_option for r in told.replicas] == ["reserved-capacity"]
    assert (told.on_demand, told.usd_per_hour, told.on_demand_usd_per_hour) == (1, 1.5, 1.5)
    assert seen.cooling == ((POOLS[0], long),)
    world, controller = serving(borrowing())
    controller.tick("demo")
    counts = world.telemetry.counts
    assert (counts[Metric.REPLICAS_SPOT], counts[Metric.REPLICAS_ON_DEMAND]) == (0, 3)


def test_it_costs_the_list_price() -> None:
    """An hour of it is one of on-demand in a day's account, and a loss of it one of its pool."""
    survey = Survey("demo", borrowing().asked, NOW, POOLS, {"g5.xlarge": 1.5})
    lost = replace(served(BORROWED), state=ReplicaState.TERMINATED, warned_at=NOW - seconds(60))
    lost = replace(lost, entered={**lost.entered, ReplicaState.TERMINATED: NOW})
    memory = PoolMemory(survey=survey)
    day = days.of("demo", NOW.date(), [lost], memory, {}, survey.on_demand_prices, NOW, 0.0)
    assert (day.spent.on_demand_usd, day.spent.on_demand_hours) == (1.5, 1.0)
    assert (day.pools[str(POOLS[0])].launched, day.pools[str(POOLS[0])].lost) == (1, 1)


def test_it_takes_room_of_its_quota_and_may_be_lost() -> None:
    """It counts for the quota that it names, and standbys bridge its losses."""
    spec = borrowing(base_on_demand=1)
    found = {need.option: str(need.quota) for (need,) in needs(spec, {"g5.xlarge": 4})}
    assert set(found) == {BORROWED, ON_DEMAND}
    assert found[BORROWED] == found[ON_DEMAND]
    assert most_at_risk(spec) == 2


# Who names an option, and who makes pools.

NAMED_IN = {
    "plane/core/pools.py": "where they are defined; an offering's on-demand price is one of them",
    "plane/core/spec.py": "which of them the service file means",
    "plane/core/replica.py": "what a row is to be bought as of which nobody says it",
    "plane/aws/fleet.py": "what an instance is taken for that was bought in a way that we never buy",
    "operator/adoption.py": "an adopted instance beyond the base is recorded as one to be replaced on Spot",
}
"""The modules that name an option, with the reason. All others ask what it may do."""

MADE_IN = {
    "plane/core/spec.py": "of the types and zones of the service file",
    "plane/aws/surveyor.py": "of what EC2 offers",
    "plane/aws/prices.py": "of what EC2 says a price is of",
    "plane/aws/fleet.py": "of what EC2 says of an instance",
    "plane/aws/items.py": "of what was written, whatever it has",
}
"""The modules that make a pool, with what of. A field with a default concerns those of them that know it."""


def _modules_with(pattern: str) -> set[str]:
    root = Path(spotrelay.__file__).parent
    files = (file for file in root.rglob("*.py") if re.search(pattern, file.read_text("utf-8")))
    return {file.relative_to(root).as_posix() for file in files}


def test_few_modules_name_an_option() -> None:
    """Whoever names one must be changed for a new one: each has a reason."""
    names = [name for name, value in vars(PurchaseOption).items() if isinstance(value, PurchaseOption)]
    assert _modules_with(rf"\bPurchaseOption\.({'|'.join(names)})\b") == set(NAMED_IN)


def test_only_rows_are_read_by_an_options_name() -> None:
    """A name is for what is written and sent: nobody else finds an option by it, or asks for it."""
    assert _modules_with(r"\bOPTIONS(\[|\.get\()|\boption_named\(|option(\.name)? [!=]= ") == {
        "plane/core/pools.py",
        "plane/aws/items.py",
    }


def test_few_modules_make_a_pool() -> None:
    """Each of them knows another part of the facts; nobody else takes a pool apart and puts it together."""
    assert _modules_with(r"\bCapacityPool\(") == set(MADE_IN)


@dataclass(frozen=True, slots=True, order=True)
class GroupedPool(CapacityPool):
    """A pool with one fact more, as one would be added."""

    group: str = ""


def test_a_pools_new_field_is_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field with a default goes through rows and surveys, and what was written before has the default."""
    grouped = GroupedPool("us-east-1", "us-east-1a", "g5.xlarge", "rack-1")
    there = row(1, offering=Offering(POOLS[0], BORROWED))
    before = items.replica_item(there)
    monkeypatch.setattr(items, "CapacityPool", GroupedPool)
    plain = GroupedPool("us-east-1", "us-east-1a", "g5.xlarge")
    assert items.replica_of(before).offering == Offering(plain, BORROWED)
    now = items.replica_item(replace(there, offering=Offering(grouped, BORROWED)))
    assert items.replica_of(now).offering == Offering(grouped, BORROWED)
    survey = Survey("demo", borrowing().asked, NOW, (grouped,), spot_prices={grouped: 0.5})
    found = items.survey_of(items.survey_item(survey))
    assert (found.pools, dict(found.spot_prices)) == ((grouped,), {grouped: 0.5})
