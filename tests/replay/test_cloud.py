"""The market of the replay: every rule of who gets what, and who loses it when."""

import itertools
from dataclasses import replace
from random import Random

import pytest

from lab.replay.capacity import dry_spells
from lab.replay.cloud import ADVISED, LOST, NEVER, UP, WARNED, Machine, ReplayCloud, floors
from lab.replay.recommendations import AHEAD_S, recommendations
from lab.replay.settings import ReplaySettings, ReplaySettingsError
from lab.replay.traces import ANY_NUMBER, PoolTrace, Trace
from tests.replay.markets import ON_DEMAND, SPOT, market, pool

PLAIN = ReplaySettings(cold_start_s=100.0, warning_s=120.0)


def told(cloud: ReplayCloud, to: float) -> list[tuple[float, str]]:
    """What happens until then: time and kind."""
    return [(event.at, event.kind.value) for event in cloud.advance(to)]


def granted(cloud: ReplayCloud, count: int) -> list[Machine]:
    """Spot instances, as many as there are."""
    return cloud.launch(SPOT, count)[0]


def test_a_drop_takes_the_excess_and_warns_it_before() -> None:
    """Of three instances in a pool that sinks to one, two are warned 120 s before, and lost when it sinks."""
    cloud = ReplayCloud(market([(0, 4), (1000, 1)]), PLAIN)
    machines = granted(cloud, 3)
    assert told(cloud, 500) == [(100, "up")] * 3
    assert told(cloud, 2000) == [(880, "warned")] * 2 + [(1000, "lost")] * 2
    assert sorted(m.lost_at for m in machines) == [1000, 1000, NEVER]
    assert [m.is_alive for m in machines].count(True) == len(cloud.machines()) == 1


def test_no_more_is_given_than_will_be_held() -> None:
    """From the warning on a pool gives out what it will hold after the drop, and again more once it rises."""
    cloud = ReplayCloud(market([(0, 4), (1000, 1), (1500, 4)]), PLAIN)
    granted(cloud, 1)
    cloud.advance(879)
    assert len(granted(cloud, 1)) == 1
    cloud.advance(900)
    assert granted(cloud, 1) == []
    cloud.advance(1499)
    assert granted(cloud, 1) == []
    cloud.advance(1500)
    assert len(granted(cloud, 9)) == 3


def test_a_place_that_is_given_back_is_free_at_once() -> None:
    """While others of its pool are being taken, the place of an instance that nobody warned can be had."""
    cloud = ReplayCloud(market([(0, 4), (1000, 1)]), PLAIN)
    machines = granted(cloud, 4)
    cloud.advance(900)
    (staying,) = (m for m in machines if not m.is_warned)
    cloud.terminate(staying)
    assert len(granted(cloud, 2)) == 1


def test_without_warnings_losses_come_unannounced() -> None:
    """With a warning of 0 s nothing is warned: the loss is all there is."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0)]), ReplaySettings(cold_start_s=100, warning_s=0))
    (machine,) = granted(cloud, 1)
    assert told(cloud, 2000) == [(100, "up"), (1000, "lost")]
    assert machine.warned_at == NEVER
    assert machine.ended_at == machine.lost_at == 1000


def test_a_lost_warning_is_seen_by_who_looks() -> None:
    """The event of a warning may be lost; the machine is warned all the same, and taken."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0)]), ReplaySettings(cold_start_s=100, warning_loss=1.0))
    (machine,) = granted(cloud, 1)
    assert told(cloud, 900) == [(100, "up")]
    assert list(cloud.warned()) == [machine]
    assert told(cloud, 1000) == [(1000, "lost")]
    assert list(cloud.warned()) == []


def test_the_share_of_lost_warnings_is_kept() -> None:
    """Of many warnings about the given share is lost."""
    cloud = ReplayCloud(market([(0, 1000), (1000, 0)]), ReplaySettings(warning_loss=0.25))
    granted(cloud, 1000)
    warned = [e for e in cloud.advance(900) if e.kind is WARNED]
    assert 700 < len(warned) < 800
    assert len(cloud.warned()) == 1000


def test_which_is_taken_depends_on_the_seed_alone() -> None:
    """Two runs with one seed take the same machines, another seed takes others."""

    def taken(seed: int) -> list[str]:
        cloud = ReplayCloud(market([(0, 100), (1000, 50)]), ReplaySettings(seed=seed))
        granted(cloud, 100)
        return [e.machine.id for e in cloud.advance(2000) if e.kind is LOST]

    assert taken(1) == taken(1) != taken(2)


def test_a_recommendation_names_who_is_taken() -> None:
    """Minutes before a pool sinks, as many as it will lose are recommended to leave, and these are lost."""
    cloud = ReplayCloud(market([(0, 3), (1000, 1)]), replace(PLAIN, recommendations=1.0))
    granted(cloud, 3)
    events = cloud.advance(2000)
    advised = [e.machine for e in events if e.kind is ADVISED]
    assert len(advised) == 2
    assert all(AHEAD_S[0] <= 1000 - e.at <= AHEAD_S[1] for e in events if e.kind is ADVISED)
    assert {m.id for m in advised} == {e.machine.id for e in events if e.kind is LOST}


def test_only_who_is_there_is_recommended_to_leave() -> None:
    """What is launched later gets no recommendation, and nothing is recommended unless it is asked for."""
    cloud = ReplayCloud(market([(0, 3), (1000, 0)]), replace(PLAIN, recommendations=1.0))
    cloud.advance(800)
    granted(cloud, 2)
    assert told(cloud, 2000) == [(880, "warned")] * 2 + [(900, "up")] * 2 + [(1000, "lost")] * 2
    assert recommendations(market([(0, 3), (1000, 0)]), PLAIN) == []


def test_the_shares_of_recommendations_are_kept() -> None:
    """About the given share of all drops is announced, and the given share of all announcements is false."""
    trace = market([(t * 10.0, 1 - t % 2) for t in range(4001)], duration_s=40_010)
    settings = replace(PLAIN, recommendations=0.5, false_recommendations=0.75)
    made = recommendations(trace, settings)
    assert made == sorted(made) == recommendations(trace, settings)
    assert made != recommendations(trace, replace(settings, seed=1))
    true = recommendations(trace, replace(settings, false_recommendations=0))
    assert 900 < len(true) < 1100, "of two thousand drops"
    assert 3600 < len(made) < 4400


def test_a_false_recommendation_takes_nobody() -> None:
    """The whole pool gets it, and lives on."""
    settings = replace(PLAIN, recommendations=1.0, false_recommendations=0.99)
    cloud = ReplayCloud(market([(0, 4), (9000, 3)]), settings)
    granted(cloud, 3)
    assert {kind for _, kind in told(cloud, 9000)} == {"up", "advised"}


def test_a_short_dip_is_foreseen() -> None:
    """A dip shorter than the warning is warned of once, and takes once."""
    cloud = ReplayCloud(market([(0, 2), (1000, 0), (1010, 2), (1020, 1)]), PLAIN)
    granted(cloud, 2)
    cloud.advance(500)
    assert told(cloud, 1015) == [(880, "warned")] * 2 + [(1000, "lost")] * 2
    assert len(granted(cloud, 2)) == 1


def test_steps_down_within_one_warning_take_one_after_the_other() -> None:
    """Who is beyond the first step is lost with it, who is beyond the second with that."""
    cloud = ReplayCloud(market([(0, 3), (1000, 2), (1050, 0)]), PLAIN)
    granted(cloud, 3)
    cloud.advance(200)
    assert told(cloud, 2000) == [
        (880, "warned"),
        (930, "warned"),
        (930, "warned"),
        (1000, "lost"),
        (1050, "lost"),
        (1050, "lost"),
    ]


def test_the_present_is_looked_ahead_from_at_the_start() -> None:
    """What sinks within the first two minutes isn't given out at all."""
    cloud = ReplayCloud(market([(0, 3), (60, 1)]), PLAIN)
    assert len(granted(cloud, 3)) == 1


def test_floors_are_the_least_within_the_warning() -> None:
    """On random traces the floor is what a plain look ahead finds each second, and only changes are told."""
    random = Random(5)  # noqa: S311
    for _ in range(200):
        times = [0, *sorted(random.sample(range(1, 200), random.randint(0, 12)))]
        steps = [(float(t), random.randint(0, 4)) for t in times]
        capacity = tuple(s for i, s in enumerate(steps) if i == 0 or s[1] != steps[i - 1][1])
        warning_s = random.choice([0, 1, 20, 90])
        found = list(floors(PoolTrace(pool(), capacity), ReplaySettings(warning_s=warning_s)))
        assert all(a[1] != b[1] and a[0] < b[0] for a, b in itertools.pairwise(found))

        def held(second: int, capacity: tuple[tuple[float, int], ...] = capacity) -> int:
            return [h for t, h in capacity if t <= second][-1]

        for second in range(200):
            floor = [f for t, f, _ in found if t <= second][-1]
            assert floor == min(held(s) for s in range(second, second + warning_s + 1))


def test_no_pool_ever_holds_more_than_the_trace_says() -> None:
    """Whatever is launched and ended, use stays within what was recorded, warned machines included."""
    random = Random(7)  # noqa: S311
    for seed in range(50):
        times = [0.0, *sorted(random.uniform(1, 2000) for _ in range(40))]
        trace = market([(t, random.randint(0, 5)) for t in times], duration_s=2000)
        capacity = trace.pools[0].capacity
        cloud = ReplayCloud(trace, ReplaySettings(seed=seed, warning_s=random.choice([0, 60, 120])))
        for now in sorted(random.uniform(0, 2000) for _ in range(200)):
            cloud.advance(now)
            granted(cloud, random.randint(0, 3))
            for machine in list(cloud.machines()):
                if random.random() < 0.2:
                    cloud.terminate(machine)
            assert len(cloud.machines()) <= [h for t, h in capacity if t <= now][-1]


def test_a_launch_takes_from_the_deepest_pools_and_names_who_refused() -> None:
    """Spot goes where there is most; what no pool gives is refused by all of them, and counted once."""
    cloud = ReplayCloud(market([(0, 0)], [(0, 8)], [(0, 1)]), ReplaySettings(cold_start_s=1))
    cloud.advance(10)
    machines, refused = cloud.launch(SPOT, 3)
    assert {m.offering.pool for m in machines} == {pool("us-east-1b")}
    assert refused == []
    machines, refused = cloud.launch(SPOT, 9)
    assert len(machines) == 6
    assert set(refused) == set(cloud.pools)
    assert cloud.ledger.refusals == 1


def test_equal_pools_are_chosen_by_chance() -> None:
    """No pool is preferred for its place in the list: over many launches each gets its share."""
    cloud = ReplayCloud(market([(0, ANY_NUMBER)], [(0, ANY_NUMBER)]), PLAIN)
    for _ in range(400):
        granted(cloud, 1)
    first = sum(m.offering.pool == cloud.pools[0] for m in cloud.machines())
    assert 150 < first < 250


def test_one_pool_can_be_named() -> None:
    """`launch_in` takes from that pool or not at all."""
    cloud = ReplayCloud(market([(0, 0)], [(0, 1)]), PLAIN)
    dry, wet = cloud.pools
    assert cloud.launch_in(dry, SPOT) is None
    machine = cloud.launch_in(wet, SPOT)
    assert machine is not None
    assert machine.offering.pool == wet
    assert cloud.launch_in(wet, SPOT) is None


def test_on_demand_is_always_there_and_never_taken() -> None:
    """On-demand comes from a dry pool, and stays."""
    cloud = ReplayCloud(market([(0, 0)]), PLAIN)
    machines, refused = cloud.launch(ON_DEMAND, 5)
    assert len(machines) == 5
    assert refused == []
    assert told(cloud, 10_000) == [(100, "up")] * 5


def test_on_demand_is_refused_in_a_dry_spell_and_only_there() -> None:
    """From the warning of the last Spot's loss until there is Spot again; what runs on-demand stays."""
    cloud = ReplayCloud(
        market([(0, 1), (2000, 0)], [(0, 2), (1000, 0), (4000, 1)]),
        ReplaySettings(cold_start_s=100, warning_s=120, on_demand_dry=1.0),
    )
    cloud.advance(1500)
    assert len(cloud.launch(ON_DEMAND, 1)[0]) == 1, "one pool still has Spot"
    cloud.advance(1879)
    (machine,), _ = cloud.launch(ON_DEMAND, 1, cloud.pools[1:])
    assert machine.offering.pool == cloud.pools[1]
    for now in (1880, 3999):
        cloud.advance(now)
        assert cloud.launch(ON_DEMAND, 2, cloud.pools[1:]) == ([], [cloud.pools[1]])
        assert cloud.launch(ON_DEMAND, 1) == ([], list(cloud.pools))
    assert cloud.ledger.refusals == 4
    assert len(cloud.machines()) == 2
    cloud.advance(4000)
    assert len(cloud.launch(ON_DEMAND, 1)[0]) == 1


def test_a_refusal_before_measuring_began_counts_for_nothing() -> None:
    """On-demand's refusals are counted like Spot's."""
    cloud = ReplayCloud(market([(0, 0), (9000, 1)]), ReplaySettings(cold_start_s=100, on_demand_dry=1.0))
    cloud.launch(ON_DEMAND, 1)
    assert cloud.ledger.refusals == 0


def _spells(count: int) -> Trace:
    """So many spells without any Spot, each of 100 s."""
    return market([(at * 100.0, at % 2) for at in range(2 * count)], duration_s=200.0 * count)


def test_a_share_of_the_spells_is_dry() -> None:
    """None at 0, all at 1, about so many in between; who is dry at one share is dry at a larger one."""
    trace = _spells(1000)

    def dry(share: float, seed: int = 0) -> set[tuple[float, float]]:
        return set(dry_spells(trace, ReplaySettings(warning_s=0, on_demand_dry=share, seed=seed)))

    assert dry(0) == set()
    assert dry(1) == {(at * 200.0, at * 200.0 + 100) for at in range(1000)}
    assert 70 < len(dry(0.1)) < 130
    assert dry(0.1) < dry(0.5) < dry(1)
    assert dry(0.1) != dry(0.1, seed=1)


def test_a_spell_lasts_while_no_pool_has_any() -> None:
    """What changes in a pool that is no help doesn't begin another one; the last ends with the trace."""
    trace = market([(0, 0), (500, 1), (1000, 0)], [(0, 0), (1500, 3), (2000, 0)], duration_s=3000)
    assert dry_spells(trace, ReplaySettings(warning_s=0, on_demand_dry=1.0)) == [
        *((0, 500), (1000, 1500), (2000, 3000))
    ]


def test_dry_spells_change_no_other_draw() -> None:
    """Which is taken, and which pool of equals is chosen, is as without them."""

    def taken(share: float) -> list[str]:
        cloud = ReplayCloud(
            market([(0, 50), (1000, 20), (2000, 0)], [(0, 50)]), ReplaySettings(on_demand_dry=share)
        )
        granted(cloud, 100)
        return [f"{e.machine.id} {e.machine.offering.pool}" for e in cloud.advance(2000) if e.kind is LOST]

    assert taken(0.0) == taken(1.0)


def test_who_ends_or_waits_does_not_come_up() -> None:
    """A machine comes up once, at the time that holds last, and not at all if it ended before."""
    cloud = ReplayCloud(market([(0, 3)]), PLAIN)
    ended, late, usual = granted(cloud, 3)
    cloud.terminate(ended)
    cloud.postpone(late, 250)
    assert [(e.at, e.machine) for e in cloud.advance(1000) if e.kind is UP] == [(100, usual), (250, late)]
    with pytest.raises(ValueError, match="is up since 100"):
        cloud.postpone(usual, 2000)


def test_an_idle_trace_costs_only_its_changes() -> None:
    """Whoever waits for the next event passes each change of the trace once, however long the trace."""
    steps = [(i * 195.0, i % 2 * ANY_NUMBER) for i in range(2000)]
    trace = market(steps, duration_s=1e9)
    cloud = ReplayCloud(trace, PLAIN)
    wakes = 0
    while (at := cloud.next_event_at()) != NEVER:
        assert cloud.advance(at) == []
        wakes += 1
    assert wakes <= len(steps)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"replicas": 0}, "replicas is 0: give 1 or more"),
        ({"cold_start_s": 0}, "cold start is 0: give more than 0 seconds"),
        ({"cold_start_s": float("nan")}, "cold start is nan"),
        ({"warning_s": -1}, "warning is -1: give 0 seconds"),
        ({"recommendations": 1.5}, "recommendations is 1.5: give a share from 0 to 1"),
        ({"false_recommendations": 1}, "false recommendations is 1: give a share from 0 to 0.99"),
        ({"warning_loss": 1.5}, "warning loss is 1.5: give a share from 0 to 1"),
        ({"on_demand_dry": 1.5}, "on-demand dry is 1.5: give a share from 0 to 1"),
        ({"od_price_ratio": float("inf")}, "on-demand price ratio is inf"),
        ({"drain_s": -1}, "drain is -1: give 0 seconds or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    """Each is named, with its value and what to give instead."""
    with pytest.raises(ReplaySettingsError, match=message):
        ReplaySettings(**wrong)  # type: ignore[arg-type]


def test_a_trace_may_have_no_change_at_all() -> None:
    """A pool that always holds the same has no events of its own."""
    cloud = ReplayCloud(Trace("flat", (PoolTrace(pool(), ((0.0, 2),)),), 100.0), PLAIN)
    assert cloud.next_event_at() == NEVER
