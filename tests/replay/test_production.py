"""The production controller in the replay: it is what is deployed, and the driver adds nothing to it."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from lab.replay.cloud import NEVER, Machine, ReplayCloud
from lab.replay.ports import (
    BOOT_S,
    CREATE_FLEET_S,
    SHOWN_S,
    ReplayError,
    ReplayTelemetry,
    ReplayTicker,
    moment,
)
from lab.replay.production import EVENT_S, INVOKE_S, SCHEDULE_S, SERVICE, ReplayDeployment
from lab.replay.result import Life
from lab.replay.run import run
from lab.replay.settings import ReplaySettings
from lab.replay.traces import PoolTrace, Trace
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import LaunchRequest
from spotrelay.plane.core.spec import OnRebalance, OnWarning
from spotrelay.plane.core.timing import DRAIN_SETTLE_S, LAST_ONE_STAYS_S
from spotrelay.plane.events import InterruptionWarning, StateChange, parse
from spotrelay.plane.events.ticks import Tick, TickKind, parse_tick
from tests.replay.markets import ON_DEMAND, SPOT, market, pool

ONE = ReplaySettings(replicas=1, cold_start_s=60, on_warning=OnWarning.LEAVE)

ONE_LOSS = market([(0, 1), (3000, 0)], [(0, 0), (1000, 1)])
"""The first pool has the only capacity, then the second has some as well, then the first is gone."""


ONE_POOL_GOES = market([(0, 3), (3000, 0)], [(0, 0), (1000, 3)])
"""The first pool has all there is, then the second has as much, then the first is gone."""

THREE = ReplaySettings(replicas=3, cold_start_s=90)
"""A replacement takes less than the warning, and longer than any warned replica but the last may serve on."""


def replayed(trace: Trace, settings: ReplaySettings = ONE) -> ReplayDeployment:
    """The whole trace under the production controller."""
    deployment = ReplayDeployment(ReplayCloud(trace, settings))
    deployment.run(trace.duration_s)
    return deployment


def spot(deployment: ReplayDeployment) -> list[Machine]:
    """Its Spot machines, in order of launch."""
    return [m for m in deployment.cloud.history if m.is_spot]


def test_one_loss_leads_to_one_replacement() -> None:
    """A warned replica leaves rotation and is replaced once, from the other pool; EC2 is who ends it."""
    deployment = replayed(ONE_LOSS)
    first, second = spot(deployment)
    assert first.warned_at == 2880
    assert first.ended_at == first.lost_at == 3000
    assert first.drained_at == NEVER, "it is EC2's, and finishes its work"
    reaction_s = first.out_at - first.warned_at
    assert EVENT_S[0] + INVOKE_S <= reaction_s <= EVENT_S[1] + INVOKE_S + 1
    assert second.offering.pool == deployment.cloud.pools[1]
    assert (
        reaction_s + CREATE_FLEET_S <= second.launched_at - first.warned_at <= reaction_s + CREATE_FLEET_S + 1
    )
    assert second.ended_at == NEVER
    ended = deployment.store.history(SERVICE, 10)
    assert first.id in [r.instance_id for r in ended]
    assert deployment.telemetry.counts[Metric.INTERRUPTION_WARNINGS] == 1
    assert deployment.telemetry.counts[Metric.CONFLICTS] == 0


@pytest.mark.parametrize("on_warning", [OnWarning.NEEDED, OnWarning.SERVE_ON])
def test_whoever_is_needed_serves_on(on_warning: OnWarning) -> None:
    """One pool has all replicas, and goes: one of them serves until a replacement does."""
    result = run(ONE_POOL_GOES, "spotrelay", replace(THREE, on_warning=on_warning))
    assert result.zero_outages == 0
    assert result.availability == 1.0
    lost, replacements = result.timeline[:3], result.timeline[3:]
    first_up_at = min(life.up_at for life in replacements)
    assert first_up_at < max(life.out_at for life in lost) < 3000 - LAST_ONE_STAYS_S


@pytest.mark.parametrize("drain_s", [30, 60])
def test_who_serves_on_leaves_in_time(drain_s: float) -> None:
    """Where replacements are too late, requests get their drain; the last one stays until its end is near."""
    settings = ReplaySettings(replicas=3, cold_start_s=300, on_warning=OnWarning.SERVE_ON, drain_s=drain_s)
    result = run(ONE_POOL_GOES, "spotrelay", settings)
    stays_s = sorted(life.ended_at - life.out_at for life in result.timeline if life.is_lost)
    safe_s = drain_s + DRAIN_SETTLE_S
    # A message is a second late at most, and an invocation may be another's turn.
    assert LAST_ONE_STAYS_S - 3 < stays_s[0] <= LAST_ONE_STAYS_S
    assert all(safe_s - 3 < stay_s <= safe_s for stay_s in stays_s[1:])
    assert result.zero_outages == 1


def test_who_leaves_at_once_may_leave_nobody() -> None:
    """One pool has all replicas, and goes: for a cold start every request fails, though all of them live."""
    result = run(ONE_POOL_GOES, "spotrelay", replace(THREE, on_warning=OnWarning.LEAVE))
    assert result.availability == 1.0
    assert result.zero_outages == 1
    assert 85 < result.zero_longest_s < 95, (
        "a cold start, less the time from the first one's leave to the last's"
    )


@pytest.mark.parametrize(("on_rebalance", "least"), [(OnRebalance.IGNORE, 0), (OnRebalance.REPLACE, 3)])
def test_recommendations_reach_the_controller(on_rebalance: OnRebalance, least: int) -> None:
    """One pool has all replicas and is recommended to be left: who follows serves elsewhere when it goes."""
    settings = replace(THREE, cold_start_s=200, recommendations=1.0, on_rebalance=on_rebalance)
    result = run(ONE_POOL_GOES, "spotrelay", settings)
    elsewhere = [life for life in result.timeline if life.up_at < 3000 and life.ended_at == NEVER]
    assert len(elsewhere) == least
    assert (result.in_rotation == 1.0) is (least == 3)


def test_nobody_else_hears_recommendations() -> None:
    """The other policies do the same with them as without."""
    lives = [
        run(ONE_POOL_GOES, "spothedge-warned", replace(THREE, recommendations=share)).timeline
        for share in (0, 1)
    ]
    assert lives[0] == lives[1]


def test_a_seed_decides_everything() -> None:
    """Two runs with one seed agree to the last digit, in what was counted and in every machine's life."""
    trace = market([(i * 700.0, (i * 7) % 4) for i in range(14)], [(i * 900.0, i % 3) for i in range(11)])
    settings = ReplaySettings(cold_start_s=90, warning_loss=0.5)
    results = [replace(run(trace, "spotrelay", s), wall_s=0) for s in (settings, settings)]
    assert results[0] == results[1]
    other = run(trace, "spotrelay", replace(settings, seed=1))
    assert other.timeline != results[0].timeline


def test_a_warning_that_nobody_hears_is_found_by_the_minute() -> None:
    """Though the fleet was at rest: the next scheduled tick sees which request is marked."""
    deployment = replayed(ONE_LOSS, replace(ONE, warning_loss=1.0))
    first, second = spot(deployment)
    assert 2 < first.out_at - first.warned_at < SCHEDULE_S + 3
    assert second.launched_at > first.out_at
    assert first.ended_at == 3000


def test_without_warnings_the_end_itself_is_the_signal() -> None:
    """The loss is heard of, and replaced within seconds."""
    first, second = spot(replayed(ONE_LOSS, replace(ONE, warning_s=0)))
    assert first.ended_at == 3000
    assert 3000 + EVENT_S[0] < second.launched_at < 3000 + 10


def test_idle_minutes_cost_nothing() -> None:
    """A year in which nothing happens has as many ticks as a day of it, and one launch."""
    year, day = (replayed(market([(0, 1)], duration_s=days * 86_400.0)) for days in (365, 1))
    assert year.ticks == day.ticks < 100
    assert len(year.cloud.history) == 1


@pytest.mark.parametrize("on_warning", OnWarning)
def test_skipped_minutes_would_have_changed_nothing(
    on_warning: OnWarning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every minute's tick the same machines live, and as long but for a tick's duration."""
    trace = market(
        [(0, 2), (4000, 0), (7000, 3), (20_000, 1)],
        [(0, 0), (6000, 2), (15_000, 0), (25_000, 2)],
        duration_s=40_000,
    )
    settings = ReplaySettings(replicas=2, cold_start_s=100, warning_loss=0.3, on_warning=on_warning)
    skipped = replayed(trace, settings)
    monkeypatch.setattr(ReplayDeployment, "_rows", lambda _: None)
    complete = replayed(trace, settings)
    assert complete.ticks > 1.5 * skipped.ticks
    lives = [[Life.of(m) for m in d.cloud.history] for d in (skipped, complete)]
    assert len(lives[0]) == len(lives[1]) > 5
    for one, other in zip(*lives, strict=True):
        assert (one.option, one.pool, one.is_lost) == (other.option, other.pool, other.is_lost)
        for name in ("launched_at", "up_at", "out_at", "ended_at"):
            # A tick that runs when a message comes makes it wait: some calls, a launch at most.
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=6)


def test_it_rests_only_when_the_time_decides_nothing() -> None:
    """While on-demand stands in, each minute's tick runs; with every replica on Spot again, none does."""
    trace = market([(0, 1), (3000, 0), (9000, 1)], duration_s=30_000)
    deployment = ReplayDeployment(ReplayCloud(trace, ONE))
    deployment.run(4000)
    before = deployment.ticks
    deployment.run(8000)
    assert deployment.ticks - before >= 4000 / SCHEDULE_S
    deployment.run(20_000)
    before = deployment.ticks
    deployment.run(30_000)
    assert deployment.ticks == before
    assert [m.is_spot for m in deployment.cloud.machines()] == [True]


def test_pools_of_several_regions_are_one_market() -> None:
    """Zones of two regions serve one service, and machines are known under the recording's own pools."""
    east, west = pool("us-east-1a"), pool("us-west-2a")
    trace = Trace(
        "two", (PoolTrace(east, ((0.0, 1), (3000.0, 0))), PoolTrace(west, ((0.0, 0), (1000.0, 1)))), 10_000
    )
    assert [m.offering.pool for m in spot(replayed(trace))] == [east, west]


def test_a_type_that_a_zone_lacks_is_refused_there() -> None:
    """Where the recording has one type in one zone and another in the next, the two others don't exist."""
    small, large = CapacityPool("r-1", "r-1a", "small"), CapacityPool("r-1", "r-1b", "large")
    trace = Trace("types", (PoolTrace(small, ((0.0, 0),)), PoolTrace(large, ((0.0, 1),))), 10_000)
    deployment = replayed(trace, replace(ONE, replicas=2))
    assert len(deployment.spec.pools) == 4
    assert [m.offering.pool for m in spot(deployment)] == [large]


def test_the_functions_get_what_eventbridge_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings and state changes are JSON events that production parses, a second after they happened."""
    deployment = ReplayDeployment(ReplayCloud(ONE_LOSS, ONE))
    heard: list[tuple[float, str]] = []
    handle = deployment._handle

    def listen(batch: Mapping[str, str]) -> None:
        heard.extend((deployment.cloud.now, body) for body in batch.values())
        handle(batch)

    monkeypatch.setattr(deployment, "_handle", listen)
    deployment.run(ONE_LOSS.duration_s)
    first, second = spot(deployment)
    told = []
    for now, body in heard:
        signal = parse(json.loads(body))
        assert isinstance(signal, InterruptionWarning | StateChange)
        late_s = (moment(now) - signal.at).total_seconds()
        assert EVENT_S[0] <= late_s <= EVENT_S[1] + INVOKE_S + 5, "later only if another invocation runs"
        told.append((signal.instance_id, getattr(signal, "state", "warned")))
    ends = ["warned", InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED]
    assert [what for id_, what in told if id_ == first.id] == [InstanceState.RUNNING, *ends]
    assert [what for id_, what in told if id_ == second.id] == [InstanceState.RUNNING]


def test_nobody_serves_before_being_registered() -> None:
    """A model that is loaded before the instance is in the target group waits for its health checks."""
    (machine,) = spot(replayed(market([(0, 1)]), replace(ONE, cold_start_s=2)))
    assert machine.up_at > machine.launched_at + 10
    (machine,) = spot(replayed(market([(0, 1)])))
    assert machine.up_at == machine.launched_at + 60


def test_what_is_no_tick_is_a_message_of_its_own() -> None:
    """The tick queue gets it after the delay, in whole seconds and never early."""
    sent: list[tuple[Tick, float]] = []
    ticker = ReplayTicker(lambda body, delay_s: sent.append((parse_tick(body), delay_s)))
    ticker.schedule_leave("x", 68.2)
    ticker.schedule_override("x", Override(), 5)
    assert sent == [(Tick("x", kind=TickKind.LEAVE), 69), (Tick("x", kind=TickKind.OVERRIDE), 5)]


def test_ec2_says_since_when_an_instance_is_warned() -> None:
    """For each that is warned and lives, and of the others that they aren't; it refuses to terminate none."""
    deployment = ReplayDeployment(ReplayCloud(ONE_LOSS, ONE))
    deployment.run(2900)
    (machine,) = deployment.cloud.warned()
    others = {i.id for i in deployment.fleet.observe(SERVICE) if i.state.is_alive} - {machine.id}
    said = dict(deployment.fleet.warned([machine.id, *others]))
    assert said.pop(machine.id) == moment(2880)
    assert set(said.values()) <= {None}
    assert deployment.fleet.terminate([machine.id]) == {}
    assert deployment.fleet.warned([machine.id]) == {}


def test_ec2_shows_what_has_ended_for_an_hour() -> None:
    """An instance is pending, running, shutting down, terminated, and then forgotten."""
    deployment = replayed(replace(ONE_LOSS, duration_s=12.0))
    (machine,) = spot(deployment)
    shown = []
    for time in (12, machine.launched_at + BOOT_S + 1, 3001, 3040, 3040 + SHOWN_S):
        deployment.run(time)
        deployment.cloud.advance(time)
        shown.append([i.state.value for i in deployment.fleet.observe(SERVICE) if i.id == machine.id])
    assert shown == [["pending"], ["running"], ["shutting-down"], ["terminated"], []]


def test_a_failure_in_production_code_ends_the_replay() -> None:
    """Where nothing fails, what production survives with a log line is a mistake, and is shown."""
    deployment = ReplayDeployment(ReplayCloud(ONE_LOSS, ONE))
    deployment.run(2000)
    deployment.store.read = None  # type: ignore[assignment, method-assign]
    with pytest.raises(ReplayError, match=r"signals_failed.*'replayed'"):
        deployment.run(10_000)


def test_failures_are_what_telemetry_is_told() -> None:
    """Log lines of failures raise, all others pass."""
    telemetry = ReplayTelemetry(ReplayCloud(ONE_LOSS, ONE))
    telemetry.record("launch", service="x")
    with pytest.raises(ReplayError, match="malformed_message"):
        telemetry.record("malformed_message", error="no JSON")


def test_a_dry_market_is_served_on_demand() -> None:
    """With no Spot at all the service stands on on-demand, at full strength and full price."""
    result = run(market([(0, 0)]), "spotrelay", ReplaySettings(replicas=2, cold_start_s=60))
    assert result.availability == result.in_rotation == 1.0
    assert result.cost == pytest.approx(1.0)
    assert {life.option for life in result.timeline} == {ON_DEMAND}


def test_plenty_of_spot_is_all_that_is_bought() -> None:
    """With Spot always there nothing else is launched, and the oracle's price is paid."""
    result = run(market([(0, 9)]), "spotrelay", ReplaySettings(replicas=2, cold_start_s=60))
    assert [life.option for life in result.timeline] == [SPOT, SPOT]
    assert result.cost == pytest.approx(result.optimal_cost)


def test_a_dry_spell_is_waited_out() -> None:
    """Nothing starts from the warning on; once there is Spot again, the service does."""
    trace = market([(0, 1), (3000, 0), (5000, 1)], duration_s=9000)
    settings = replace(ONE, on_demand_dry=1.0)
    deployment = replayed(trace, settings)
    launched = [m.launched_at for m in deployment.cloud.history]
    assert not [at for at in launched if 3000 - 120 <= at < 5000]
    assert [at for at in launched if 5000 <= at < 5060]
    (serving,) = deployment.cloud.machines()
    assert serving.is_spot


@pytest.mark.parametrize(
    ("option", "code"), [(SPOT, "UnfulfillableCapacity"), (ON_DEMAND, "InsufficientInstanceCapacity")]
)
def test_refusals_are_in_ec2s_words(option: PurchaseOption, code: str) -> None:
    """Each way of buying has its own, and every pool that was asked is named."""
    deployment = ReplayDeployment(ReplayCloud(market([(0, 0)], [(0, 0)]), replace(ONE, on_demand_dry=1.0)))
    pools = (CapacityPool("replay-1", "replay-1a", "v100:1"), CapacityPool("replay-1", "replay-1b", "v100:1"))
    answer = deployment.fleet.launch(LaunchRequest("launch-1", deployment.spec, option, pools, 1))
    assert answer.instances == ()
    assert [(r.code, r.offering) for r in answer.refusals] == [(code, Offering(p, option)) for p in pools]


def test_a_replica_moves_where_spot_has_become_cheaper() -> None:
    """At the hourly survey that shows it, and with the new one ready before the old one drains."""
    prices = [((0.0, 1.0), (5000.0, 1.5)), ((0.0, 1.2), (5000.0, 0.5))]
    capacities = market([(0, 3)], [(0, 3)], duration_s=20_000)
    pools = tuple(replace(p, prices=price) for p, price in zip(capacities.pools, prices, strict=True))
    trace = replace(capacities, pools=pools, prices="made-up:0")
    stays, moves = (spot(replayed(trace, replace(ONE, rebalance_cost=share))) for share in (None, 0.2))
    assert [m.offering.pool for m in stays] == [pool()]
    assert [m.offering.pool for m in moves] == [pool(), pool("us-east-1b")]
    old, new = moves
    assert 7200 <= new.launched_at < 7200 + SCHEDULE_S + 10, "the first survey with the new prices"
    assert old.out_at > new.up_at
