"""What defines each policy that SpotRelay is compared with, on markets made by hand."""

import math
from collections.abc import Sequence

import pytest

from lab.replay.baselines import BASELINES, Baseline
from lab.replay.baselines.news import News
from lab.replay.baselines.optimal import optimal_cost
from lab.replay.capacity import usable_share
from lab.replay.cloud import LOST, Event, Machine, ReplayCloud
from lab.replay.run import drive
from lab.replay.settings import ReplaySettings
from lab.replay.traces import PoolTrace, Trace
from spotrelay.plane.core.pools import CapacityPool
from tests.replay.markets import ON_DEMAND, SPOT, ZONES, market, pool

A, B, C, D = (pool(zone) for zone in ZONES[:4])
PLENTY = [(0.0, 9)]
DRY = [(0.0, 0)]
LOSS_S = 1000.0
"""When the markets made here take something, with their warning two minutes before."""
DRIES = [(0.0, 9), (LOSS_S, 0)]

SEEDS = range(20)


def played(name: str, trace: Trace, seed: int = 0, **settings: float) -> list[Machine]:
    """Every machine that a policy had, in order of launch; two replicas, a cold start of 100 s."""
    values = ReplaySettings(**{"replicas": 2, "cold_start_s": 100, **settings}, seed=seed)  # type: ignore[arg-type]
    cloud = ReplayCloud(trace, values)
    drive(BASELINES[name](trace, values), cloud, trace.duration_s)
    return cloud.history


def spot(machines: Sequence[Machine]) -> list[Machine]:
    """Those on Spot."""
    return [machine for machine in machines if machine.is_spot]


def pools(machines: Sequence[Machine]) -> list[CapacityPool]:
    """Where they are."""
    return [machine.offering.pool for machine in machines]


def after_loss(machines: Sequence[Machine]) -> list[Machine]:
    """Those launched once something was lost."""
    return [machine for machine in machines if machine.launched_at >= LOSS_S]


def regions(**capacities: list[tuple[float, int]]) -> Trace:
    """A market with a pool for each zone, whose name is given with underscores."""
    named = {name.replace("_", "-"): held for name, held in capacities.items()}
    return Trace("by hand", tuple(PoolTrace(pool(z), tuple(c)) for z, c in named.items()), 10_000.0)


# --- all of them


@pytest.mark.parametrize("name", BASELINES)
def test_a_policy_is_found_by_its_own_name_and_says_what_it_is_and_where_that_is_from(name: str) -> None:
    """The registry can't disagree with a policy's file, and every policy is described and sourced."""
    policy = BASELINES[name]
    assert policy.name == name
    assert policy.summary
    assert policy.source


@pytest.mark.parametrize("name", BASELINES)
def test_a_seed_decides_everything(name: str) -> None:
    """A policy that draws does the same again for the same seed."""
    trace = market(DRIES, [(0, 1), (3000, 0), (3500, 2)], [(0, 0), (2000, 3)], PLENTY)

    def life() -> list[tuple[str, float, float]]:
        return [(str(m.offering), m.launched_at, m.ended_at) for m in played(name, trace, seed=7)]

    assert life() == life()


class Counted:
    """A policy, and how often it is woken."""

    def __init__(self, policy: Baseline) -> None:
        self.name, self.hears_warnings = policy.name, policy.hears_warnings
        self._policy = policy
        self.wakes = 0

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Count, and let the policy act."""
        self.wakes += 1
        return self._policy.wake(cloud, events)


@pytest.mark.parametrize("name", BASELINES)
def test_a_policy_sleeps_while_nothing_happens(name: str) -> None:
    """A year without an event takes a handful of wake-ups: idle time costs nothing, polling or not."""
    trace = market(PLENTY, PLENTY, PLENTY, PLENTY, duration_s=365 * 86_400.0)
    settings = ReplaySettings()
    counted = Counted(BASELINES[name](trace, settings))
    drive(counted, ReplayCloud(trace, settings), trace.duration_s)  # type: ignore[arg-type]
    assert counted.wakes <= 20


@pytest.mark.parametrize("name", [name for name, policy in BASELINES.items() if not policy.hears_warnings])
def test_who_doesnt_hear_warnings_launches_nothing_before_the_loss(name: str) -> None:
    """The two minutes of warning are of no use to a policy that polls."""
    trace = market(DRIES, DRIES, DRIES, PLENTY)
    for seed in SEEDS:
        launched = {m.launched_at for m in played(name, trace, seed, cold_start_s=300)}
        assert not {at for at in launched if 300 < at < LOSS_S}


# --- optimal


def test_the_oracle_has_as_many_on_spot_as_there_is_capacity_and_the_rest_on_demand() -> None:
    """Its cost is exact: both on Spot for a half, one for a quarter, none for a quarter of the time."""
    trace = market([(0, 1), (750, 0)], [(0, 5), (500, 0)], duration_s=1000)
    settings = ReplaySettings(replicas=2, od_price_ratio=4)
    assert optimal_cost(trace, settings, 0, 1000) == pytest.approx(
        (0.5 * 2 / 4 + 0.25 * 5 / 4 + 0.25 * 2) / 2
    )


def test_the_oracle_pays_for_the_time_that_is_measured_only() -> None:
    """What was before the start or comes after the end costs nothing, on a change or between two."""
    trace = market([(0, 0), (500, 2), (900, 0)])
    settings = ReplaySettings(replicas=2, od_price_ratio=4)
    assert optimal_cost(trace, settings, 600, 800) == 1 / 4
    assert optimal_cost(trace, settings, 500, 900) == 1 / 4
    assert optimal_cost(trace, settings, 400, 600) == pytest.approx((1 + 1 / 4) / 2)


def test_capacity_beyond_the_replicas_is_of_no_use() -> None:
    """A pool that could hold more doesn't make up for a time at which it holds nothing."""
    assert usable_share([PoolTrace(A, ((0.0, 9), (50.0, 0)))], 3, 0, 100) == 0.5


# --- on-demand


def test_on_demand_launches_once_and_never_spot() -> None:
    """N on-demand replicas from the first moment to the last."""
    machines = played("on-demand", market(DRIES, PLENTY))
    assert [(m.offering.purchase_option, m.launched_at, m.ended_at) for m in machines] == [
        (ON_DEMAND, 0, math.inf)
    ] * 2


def test_on_demand_tries_again_what_was_refused() -> None:
    """A fleet that begins in a dry spell is there a minute after it ends, at the latest."""
    machines = played("on-demand", market([(0, 0), (1000, 1)]), on_demand_dry=1.0)
    assert len(machines) == 2
    assert all(1000 <= machine.launched_at <= 1060 for machine in machines)


# --- spothedge


def test_spothedge_has_one_more_than_needed_each_in_a_pool_of_its_own() -> None:
    """N + 1 Spot replicas spread over pools as long as there are unused ones."""
    for seed in SEEDS:
        machines = spot(played("spothedge", market(PLENTY, PLENTY, PLENTY, PLENTY), seed))
        assert len(machines) == 3
        assert len(set(pools(machines))) == 3


def test_spothedge_bridges_the_first_cold_start_on_demand_and_drops_it_once_spot_is_ready() -> None:
    """All N on-demand at first, none any more when a probe and a decision have seen that Spot is ready."""
    for seed in SEEDS:
        machines = played("spothedge", market(PLENTY, PLENTY, PLENTY), seed)
        bridge = [m for m in machines if not m.is_spot]
        assert [m.launched_at for m in bridge] == [0, 0]
        assert all(100 < m.ended_at <= 100 + 10 + 20 for m in bridge)


def test_spothedge_keeps_an_on_demand_replica_for_the_spot_replica_that_it_cant_get() -> None:
    """Its fallback counts ready Spot against N + 1: with N ready one on-demand replica stays."""
    machines = played("spothedge", market([(0, 2)]))
    assert [m.is_spot for m in machines if m.is_alive].count(False) == 1


def test_spothedge_acts_on_a_loss_when_its_probe_and_its_loops_have_come_to_it() -> None:
    """The replacement on Spot and the one on-demand start together, 15 to 65 s after the loss."""
    delays = set()
    for seed in SEEDS:
        late = after_loss(played("spothedge", market(DRIES, PLENTY, PLENTY), seed))
        assert {m.is_spot for m in late} == {True, False}
        (at,) = {m.launched_at for m in late}
        delays.add(at - LOSS_S)
    assert min(delays) >= 15
    assert max(delays) <= 65
    assert max(delays) - min(delays) > 10


def test_spothedge_avoids_a_pool_that_took_a_replica_or_refused_one() -> None:
    """Its replacement goes to a pool that is still active, though the lost one's has capacity again."""
    back = [(0.0, 9), (LOSS_S, 0), (LOSS_S + 1, 9)]
    for seed in SEEDS:
        late = spot(after_loss(played("spothedge", market(back, PLENTY, PLENTY, PLENTY, PLENTY), seed)))
        assert A not in pools(late)


def test_spothedge_forgives_all_pools_when_none_is_left() -> None:
    """However long nothing works it goes on trying everywhere, each 20 s, and finds what comes back."""
    gone = [(0.0, 9), (LOSS_S, 0), (5000.0, 9)]
    for seed in SEEDS:
        machines = spot(played("spothedge", market(gone, gone, gone), seed))
        again = [m.launched_at for m in machines if m.launched_at >= 5000]
        assert len(again) == 3
        assert max(again) <= 5020


# --- spothedge-warned


def test_spothedge_warned_launches_with_the_warning() -> None:
    """A replacement and an on-demand replica are on their way two minutes before the loss, none later."""
    for seed in SEEDS:
        machines = played("spothedge-warned", market(DRIES, PLENTY, PLENTY), seed)
        late = [m for m in machines if m.launched_at > 0]
        assert {(m.is_spot, m.launched_at) for m in late} == {(True, LOSS_S - 120), (False, LOSS_S - 120)}


def test_spothedge_warned_polls_for_what_no_warning_came_for() -> None:
    """With all warnings lost it is SpotHedge again."""
    late = [
        m
        for m in played("spothedge-warned", market(DRIES, PLENTY, PLENTY), warning_loss=1)
        if m.launched_at > 0
    ]
    assert late
    assert all(LOSS_S + 15 <= m.launched_at <= LOSS_S + 65 for m in late)


# --- asg


def test_asg_uses_the_region_that_could_have_carried_most_and_no_other() -> None:
    """A group can't span regions, so it waits in its own while another has room; never on-demand."""
    trace = regions(
        eu_west_1a=[(0, 1)], us_east_1a=DRIES, us_east_1b=[(0, 9), (9000, 0)], eu_west_1b=[(0, 1)]
    )
    for seed in SEEDS:
        machines = played("asg", trace, seed, replicas=3)
        assert {m.offering.pool.region for m in machines} == {"us-east-1"}
        assert spot(machines) == machines
        assert not [m for m in machines if m.launched_at > 9000]


def test_asg_replaces_within_a_minute_of_the_loss_in_the_zone_with_the_fewest() -> None:
    """Each zone has one at first; the lost one comes back in its zone, once a check has failed."""
    back = [(0.0, 9), (LOSS_S, 0), (LOSS_S + 0.5, 9)]
    for seed in SEEDS:
        machines = played("asg", market(back, PLENTY), seed)
        assert pools(machines[:2]) == [A, B]
        (replacement,) = machines[2:]
        assert LOSS_S < replacement.launched_at <= LOSS_S + 60
        if replacement.launched_at > LOSS_S + 0.5:
            assert replacement.offering.pool == A


def test_asg_goes_to_another_zone_at_once_if_one_refuses() -> None:
    """A dry zone is no reason to wait while another has room."""
    machines = played("asg", market(DRY, PLENTY))
    assert [(m.offering.pool, m.launched_at) for m in machines] == [(B, 0), (B, 0)]


# --- round-robin


def test_round_robin_tries_the_next_pool_of_its_circle_every_half_minute() -> None:
    """It takes pools in turn until one has room, two replicas two turns with each look; no on-demand."""
    starts = set()
    for seed in SEEDS:
        machines = played("round-robin", market(DRY, DRY, DRY, [(0, 1)]), seed, replicas=1)
        assert pools(machines) == [D]
        starts.add(machines[0].launched_at)
    assert starts == {0, 30}


def test_round_robin_has_one_more_than_needed_and_a_lost_one_moves_on() -> None:
    """N + 1 replicas in pools that follow each other; a lost one starts in the next, with the next look."""
    moved = 0
    for seed in SEEDS:
        machines = played("round-robin", market(DRIES, PLENTY, PLENTY, PLENTY), seed)
        first = pools(machines[:3])
        (following,) = {A, B, C, D} - set(first)
        assert pools(machines[3:]) == ([following] if A in first else [])
        assert all(LOSS_S < m.launched_at <= LOSS_S + 30 for m in machines[3:])
        moved += len(machines[3:])
    assert moved


# --- even-spread


def test_even_spread_waits_for_its_own_pools() -> None:
    """The spread is static: while its pool is dry a replica is missing, however much room the others have."""
    back = [(0.0, 9), (LOSS_S, 0), (5000.0, 9)]
    for seed in SEEDS:
        machines = played("even-spread", market(back, PLENTY, PLENTY), seed)
        assert sorted(pools(machines[:3])) == [A, B, C]
        assert pools(machines[3:]) == [A]
        assert 5000 <= machines[3].launched_at <= 5030


def test_even_spread_fills_pools_evenly() -> None:
    """Five replicas in two pools are three and two, all on Spot: N + 1 as in the published figures."""
    machines = played("even-spread", market(PLENTY, PLENTY), replicas=4)
    assert sorted(pools(machines).count(p) for p in (A, B)) == [2, 3]
    assert spot(machines) == machines


# --- single-pool


def test_single_pool_stays_in_the_pool_that_could_have_carried_most() -> None:
    """Its one pool is the best over the whole trace, and while that is dry it has nothing."""
    best = [(0.0, 2), (LOSS_S, 0), (2000.0, 2)]
    machines = played("single-pool", market([(0, 1)], best, [(0, 9), (3000, 0)]))
    assert set(pools(machines)) == {B}
    assert [m.launched_at for m in machines[:2]] == [0, 0]
    assert all(2000 <= m.launched_at <= 2060 for m in machines[2:])
    assert len(machines) == 4


# --- what they share


def test_news_comes_when_it_is_known_and_in_that_order() -> None:
    """What happened first may be known last; nothing is told twice."""
    cloud = ReplayCloud(market(PLENTY), ReplaySettings())
    machine = cloud.launch_in(A, SPOT)
    assert machine is not None
    first, second = Event(1, LOST, machine), Event(2, LOST, machine)
    news = News()
    news.add(20, first)
    news.add(10, second)
    assert news.next_at == 10
    assert news.known(9.9) == []
    assert news.known(10) == [second]
    assert news.known(30) == [first]
    assert news.known(30) == []
    assert news.next_at == math.inf
