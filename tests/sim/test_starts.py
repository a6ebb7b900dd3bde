"""Starts whose pack, cache or peers fail: each takes longer by its share, and never longer than it may."""

from __future__ import annotations

from random import Random

import pytest

from lab.sim import scenario
from lab.sim.cloud import LOAD_S, SimCloud, market
from lab.sim.run import run
from lab.sim.scheduler import Scheduler
from lab.sim.starts import BUCKET, COMPILE, SET_UP, SINCE, SPARE_S, LateStarts, Starts
from spotrelay.plane.core.pools import OPTIONS, CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import LaunchRequest

SPEC = scenario.draw(0, 3).specs[0]
POOL, OTHER = (CapacityPool("us-east-1", "us-east-1a", type_) for type_ in ("g5.xlarge", "g6.xlarge"))
ON_DEMAND = PurchaseOption.ON_DEMAND
FAULTS_S = 100.0


def ready_at(starts: Starts | None, peers: int, *, dies: bool) -> float:
    """When a server answers that is launched a while after the beginning, beside peers that serve."""
    capacity = {Offering(one, option): 9 for one in (POOL, OTHER) for option in OPTIONS.values()}
    cloud = SimCloud(Scheduler(), Random(1), market(capacity, 1))  # noqa: S311 - the same each time
    cloud.groups[SPEC.service] = {}
    if starts is not None:
        cloud.starts = LateStarts(starts, Random(1), FAULTS_S)  # noqa: S311 - the same each time
    there = [cloud.add(SPEC.service, Offering(POOL, ON_DEMAND), age_s=600) for _ in range(peers)]
    cloud.register(SPEC, [peer.id for peer in there], {})
    cloud.scheduler.run(FAULTS_S / 2)
    cloud.scheduler.now = FAULTS_S / 2
    launched = cloud.launch(LaunchRequest("l", SPEC, ON_DEMAND, (POOL,), 1)).instances[0].id
    for peer in there if dies else ():
        cloud.end(peer)
    cloud.scheduler.run(2 * FAULTS_S)
    return cloud.instances[launched].ready_at


@pytest.mark.parametrize(
    ("starts", "peers", "dies", "share"),
    [
        (Starts(), 2, False, 0.0),
        (Starts(pack_fails=1.0), 0, False, SET_UP),
        (Starts(pack_gone_at=0.4), 0, False, SET_UP),
        (Starts(pack_gone_at=0.6), 0, False, 0.0),
        (Starts(cached=POOL.instance_type), 0, False, 0.0),
        (Starts(cached=OTHER.instance_type), 0, False, COMPILE),
        (Starts(lying=0.0), 2, False, 0.0),
        (Starts(lying=0.0), 0, False, BUCKET),
        (Starts(lying=0.0), 2, True, BUCKET),
        (Starts(lying=1.0), 2, False, BUCKET),
        (Starts(1.0, None, OTHER.instance_type, 1.0), 2, False, 1.0),
    ],
)
def test_what_fails_takes_its_share(starts: Starts, peers: int, dies: bool, share: float) -> None:
    """A failed pack means set-up, a cache for another GPU a compilation, and no honest peer the bucket."""
    usual = ready_at(None, peers, dies=dies)
    later_s = ready_at(starts, peers, dies=dies) - usual
    assert later_s == pytest.approx(share * (SPEC.initial_delay_s - LOAD_S[1] - SPARE_S))


def test_no_start_takes_longer_than_it_may() -> None:
    """Otherwise every replica of a service would be given up, and no rule could ask for a whole one."""
    assert SET_UP + COMPILE + BUCKET == 1.0
    assert all(scenario.draw(seed, 3).specs[0].initial_delay_s > LOAD_S[1] + SPARE_S for seed in range(50))


def test_a_tenth_of_the_runs_has_them() -> None:
    """The standard run's are as they were: what others find depends on them."""
    drawn = [scenario.draw(seed, 3).starts for seed in range(SINCE, SINCE + 500)]
    assert 30 < sum(one != Starts() for one in drawn) < 70
    assert {one.lying for one in drawn} == {None, 0.0, 0.5}
    assert all(scenario.draw(seed, 3).starts == Starts() for seed in range(SINCE - 100, SINCE))


def test_every_rule_holds_while_starts_differ() -> None:
    """They only take longer: nothing is given up too early for it, lost or replaced twice."""
    seeds = [seed for seed in range(SINCE, SINCE + 300) if scenario.draw(seed, 5).starts != Starts()]
    assert [run(seed).violation for seed in seeds] == [None] * len(seeds)
