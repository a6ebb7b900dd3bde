"""Twice the replicas are twice the work to decide about, in steps of the interpreter, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import LaunchIntent
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, ServiceSpec
from spotrelay.plane.serving import changes, reconcile, strength
from spotrelay.plane.serving.observation import Observation
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, seen_of

REQUESTED, READY = ReplicaState.REQUESTED, ReplicaState.READY

Case = Callable[[int], tuple[ServiceSpec, Observation]]


def steps(work: Callable[[], object]) -> int:
    """Calls of Python functions, generators' resumptions and comparisons of rows among them."""
    taken = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal taken
        taken += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return taken


def _seen(replicas: list[Replica], *intents: LaunchIntent) -> Observation:
    ids = [r.id for r in replicas]
    return seen_of(
        *replicas,
        instances=[an_instance(id_, launch_id=f"launch-{id_}") for id_ in ids],
        health=dict.fromkeys(ids, TargetState.HEALTHY),
        intents=intents,
    )


def at_rest(count: int) -> tuple[ServiceSpec, Observation]:
    """All ready, on Spot."""
    return demo_spec(replicas=count), _seen([a_replica(n, READY) for n in range(1, count + 1)])


def on_demand(count: int) -> tuple[ServiceSpec, Observation]:
    """All ready, and all of them the on-demand base."""
    rows = [a_replica(n, READY, purchase_option=PurchaseOption.ON_DEMAND) for n in range(1, count + 1)]
    return demo_spec(replicas=count, use_spot=False), _seen(rows)


def stood_in_for(count: int) -> tuple[ServiceSpec, Observation]:
    """Half of them fallbacks."""
    rows = [a_replica(n, READY, is_fallback=n % 2 == 0) for n in range(1, count + 1)]
    return demo_spec(replicas=count // 2), _seen(rows)


def shrinking(count: int) -> tuple[ServiceSpec, Observation]:
    """Half of them too many."""
    return demo_spec(replicas=count // 2), at_rest(count)[1]


def lost(count: int) -> tuple[ServiceSpec, Observation]:
    """All warned, and no event told."""
    spec, seen = at_rest(count)
    return spec, replace(seen, warned=dict.fromkeys(seen.instances, NOW))


def to_be_left(count: int) -> tuple[ServiceSpec, Observation]:
    """Half recommended to be left, the other half their replacements."""
    half = count // 2
    rows = [a_replica(n, READY, rebalance_at=LONG_AGO, replaced_by=half + n) for n in range(1, half + 1)]
    rows += [a_replica(half + n, ReplicaState.STARTING, since_s=5, replaces=n) for n in range(1, half + 1)]
    spec = replace(demo_spec(replicas=half), on_rebalance=OnRebalance.REPLACE, surge=half)
    return spec, _seen(rows)


def taken_back(count: int) -> tuple[ServiceSpec, Observation]:
    """Half serve, and the other half came to try a version that an operator gave up since."""
    half = count // 2
    rows = [a_replica(n, READY, replaced_by=half + n) for n in range(1, half + 1)]
    rows += [a_replica(half + n, ReplicaState.STARTING, version=2, replaces=n) for n in range(1, half + 1)]
    seen = _seen(rows)
    coming = {f"i-{half + n}": TargetState.INITIAL for n in range(1, half + 1)}
    spec = replace(demo_spec(replicas=half), on_update=OnUpdate.BLUE_GREEN)
    return spec, replace(seen, health={**seen.health, **coming})


def unanswered(count: int) -> tuple[ServiceSpec, Observation]:
    """Each launched by an intent of its own whose answer got lost."""
    rows = [a_replica(n, REQUESTED, launch_id=f"launch-{n}") for n in range(1, count + 1)]
    intents = [LaunchIntent(f"launch-{n}", "demo", (n,), LONG_AGO) for n in range(1, count + 1)]
    return demo_spec(replicas=count), _seen(rows, *intents)


@pytest.mark.parametrize(
    "case",
    [at_rest, on_demand, stood_in_for, shrinking, lost, to_be_left, taken_back, unanswered],
    ids=lambda c: c.__name__,
)
def test_work_grows_with_the_replicas(case: Case) -> None:
    """Four times the replicas take four times the steps to decide, put into rows and look ahead."""

    def taken(count: int) -> int:
        spec, seen = case(count)

        def work() -> None:
            actions = reconcile.decide(spec, seen, NOW)
            changes.changes("demo", spec, seen.rows, actions, NOW, lambda: "launch")
            strength.next_look(spec, seen, NOW)

        return steps(work)

    few = taken(50)
    assert taken(200) <= 4.2 * few
