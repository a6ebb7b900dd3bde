"""The number of replicas that follows the load."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.reporting import SHOWN_UNKNOWN, Reporting
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption, Survey
from spotrelay.plane.core.ports import Denied, Throttled, Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import ScaleRequest, Source
from spotrelay.plane.core.scaling import (
    LOAD_KNOWN_S,
    Load,
    MetricTarget,
    Needed,
    Ongoing,
    OngoingTarget,
    OngoingTotal,
    Scaling,
    Schedule,
)
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving.autoscaling import decide, serving_types, with_ongoing
from tests.examples import demo_spec, on_demand_pool
from tests.unit.cases import a_replica, rows_of
from tests.unit.worlds import (
    Troubled,
    active,
    counted,
    dry,
    in_rotation,
    rows,
    settle,
    world_of,
)
from tests.unit.worlds import warn as warned

NOW = EPOCH + seconds(10_000)
QPS = Scaling(min_replicas=1, max_replicas=10, target_qps_per_replica=2.0)
ONGOING = OngoingTarget(target=8.0, metrics=("running", "waiting"))
STREAMS = Scaling(min_replicas=1, max_replicas=10, ongoing=ONGOING)
QUEUE = MetricTarget(namespace="N", name="M", target=8.0, is_total=True)
TWO = ("g5.xlarge",) * 2


def held(replicas: int, **since: datetime) -> ScaleRequest:
    """The load's number on record."""
    return ScaleRequest(replicas, None, **since)


def after(
    scaling: Scaling, replicas: int, load: Load, waited_s: float = 1e6, serving: tuple[str, ...] = ()
) -> int:
    """The number after the load has been asking for another for so long."""
    since = NOW - seconds(waited_s)
    before = held(replicas, rising_since=since, falling_since=since)
    return decide(scaling, before, load, serving, NOW).replicas


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0, 1), (1.9, 1), (2.0, 1), (2.1, 2), (6.0, 3), (6.0 + 1e-12, 3), (19, 10), (1000, 10)],
)
def test_as_many_as_have_the_rate(rate: float, expected: int) -> None:
    """The requests a second by what each is to have, rounded up, within the bounds."""
    assert after(QPS, 5, Load(rate)) == expected


@pytest.mark.parametrize(
    ("before", "rate", "delay_s"), [(2, 8.0, QPS.upscale_delay_s), (8, 2.0, QPS.downscale_delay_s)]
)
def test_it_follows_once_the_load_has_asked_for_the_delay(before: int, rate: float, delay_s: float) -> None:
    """SkyServe's 300 s up and 1200 s down: a second sooner it stays, and its waiting is on record."""
    wanted = 4 if before == 2 else 1
    began = decide(QPS, held(before), Load(rate), (), NOW)
    assert (began.replicas, began.rising_since or began.falling_since) == (before, NOW)
    early = decide(QPS, began, Load(rate), (), NOW + seconds(delay_s - 1))
    assert early == began
    assert decide(QPS, early, Load(rate), (), NOW + seconds(delay_s)) == held(wanted)


@pytest.mark.parametrize(("rate", "left"), [(10.0, None), (2.0, "falling_since")])
def test_equal_or_opposite_starts_anew(rate: float, left: str | None) -> None:
    """What asked for more doesn't any more: the next time it waits as long again."""
    found = decide(QPS, held(5, rising_since=NOW - seconds(299)), Load(rate), (), NOW)
    expected = held(5, **({left: NOW} if left else {}))
    assert found == expected


def test_from_none_to_some_at_once() -> None:
    """Whoever found nobody has waited long enough."""
    scaling = replace(QPS, min_replicas=0)
    assert decide(scaling, held(0), Load(0.01), (), NOW) == held(1)
    assert decide(scaling, held(0), Load(9.0), (), NOW) == held(5)
    assert decide(scaling, held(0), Load(0.0), (), NOW) == held(0)


def test_since_when_the_load_is_unknown_is_kept() -> None:
    """While something serves that should be measured; what is known again, or of nobody, is forgotten."""
    found = decide(QPS, held(5), Load(), ("g5.xlarge",), NOW)
    assert found == held(5, unknown_since=NOW)
    assert decide(QPS, found, Load(), ("g5.xlarge",), NOW + seconds(60)) == found
    assert decide(QPS, found, Load(10.0), ("g5.xlarge",), NOW).unknown_since is None
    assert decide(QPS, found, Load(), (), NOW).unknown_since is None
    part = Load(10.0, is_rate_partial=True)
    assert decide(QPS, held(5), part, ("g5.xlarge",), NOW).unknown_since == NOW
    presumed = replace(part, is_silence_presumed=True)
    assert decide(QPS, held(5), presumed, ("g5.xlarge",), NOW).unknown_since is None


def test_nothing_known_holds() -> None:
    """Neither up nor down; who waited to go waits anew, who waited to come goes on waiting."""
    long_ago = NOW - seconds(1e6)
    assert decide(QPS, held(5, falling_since=long_ago), Load(), (), NOW) == held(5)
    rising = held(5, rising_since=long_ago)
    assert decide(QPS, rising, Load(), (), NOW) == rising


@given(
    st.integers(0, 20),
    st.builds(Load, *[st.none() | st.floats(0, 1000)] * 3, st.booleans()),
    st.none() | st.integers(-3000, 0),
    st.none() | st.integers(-3000, 0),
    st.integers(0, 12),
)
def test_it_never_leaves_its_bounds_and_never_falls_for_want_of_data(
    before: int, load: Load, rising: int | None, falling: int | None, serving: int
) -> None:
    """Whatever is measured, and whatever is on record."""
    scaling = replace(
        QPS,
        min_replicas=2,
        metric=MetricTarget(namespace="AWS/EC2", name="CPUUtilization", target=50.0),
        ongoing=ONGOING,
    )
    asked = ScaleRequest(
        before,
        None,
        None if rising is None else NOW + seconds(rising),
        None if falling is None else NOW + seconds(falling),
    )
    found = decide(scaling, asked, load, ["g5.xlarge"] * serving, NOW)
    assert 2 <= found.replicas <= 10
    is_known = None not in (load.requests_per_s, load.metric, load.ongoing) and not load.is_ongoing_partial
    if not is_known and before <= 10:
        assert found.replicas >= before


def test_several_targets_count_by_their_highest_number() -> None:
    """More by any that is known; fewer only by all of them."""
    scaling = replace(QPS, metric=QUEUE)
    assert after(scaling, 3, Load(2.0, metric=40.0)) == 5
    assert after(scaling, 3, Load(12.0, metric=8.0)) == 6
    assert after(scaling, 3, Load(None, metric=40.0)) == 5
    assert after(scaling, 3, Load(None, metric=0.0)) == 3
    assert after(scaling, 3, Load(2.0, metric=None)) == 3
    assert after(scaling, 3, Load(2.0, metric=0.0)) == 1


@pytest.mark.parametrize(
    ("is_total", "value", "expected"), [(False, 90.0, 6), (False, 25.0, 2), (True, 90.0, 2), (True, 25.0, 1)]
)
def test_a_metric_stays_at_its_target(is_total: bool, value: float, expected: int) -> None:
    """Three that serve at 90 % are six at 45 %; 90 messages in a queue are two replicas' at 45 each."""
    metric = MetricTarget(namespace="N", name="M", target=45.0, is_total=is_total)
    scaling = Scaling(min_replicas=1, max_replicas=10, metric=metric)
    assert after(scaling, 3, Load(metric=value), serving=("g5.xlarge",) * 3) == expected


def test_an_average_of_no_replicas_says_nothing() -> None:
    """Where none serves, nobody's utilisation is old news; requests wake a service that has none."""
    metric = MetricTarget(namespace="N", name="M", target=45.0)
    scaling = Scaling(min_replicas=0, max_replicas=10, metric=metric)
    assert after(scaling, 3, Load(0.0, metric=1.0)) == 3
    assert after(scaling, 0, Load(0.1)) == 1
    assert after(scaling, 3, Load(0.0, metric=0.0), serving=("g5.xlarge",)) == 0


@pytest.mark.parametrize(
    ("ongoing", "expected"), [(0, 1), (8, 1), (9, 2), (40, 5), (40 + 1e-12, 5), (1e9, 10)]
)
def test_as_many_as_have_the_requests_in_progress(ongoing: float, expected: int) -> None:
    """All of them by what each replica is to have, rounded up, within the bounds."""
    assert after(STREAMS, 3, Load(ongoing=ongoing), serving=TWO) == expected


def test_a_part_of_a_minute_has_at_least_its_requests() -> None:
    """It may bring more replicas, and never takes one away."""
    assert after(QPS, 3, Load(40.0), serving=TWO) > 3 > after(QPS, 3, Load(0.0), serving=TWO)
    assert after(QPS, 3, Load(40.0, is_rate_partial=True), serving=TWO) == after(
        QPS, 3, Load(40.0), serving=TWO
    )
    assert after(QPS, 3, Load(0.0, is_rate_partial=True), serving=TWO) == 3
    by_queue = Scaling(min_replicas=0, max_replicas=10, metric=QUEUE)
    assert after(by_queue, 3, Load(0.0, metric=0.0), serving=TWO) == 0
    assert after(by_queue, 3, Load(0.0, is_rate_partial=True, metric=0.0), serving=TWO) == 3


def test_who_does_not_tell_its_requests_has_at_least_none() -> None:
    """What the others have is a lower bound: it may bring more replicas, and never takes one away."""
    assert after(STREAMS, 3, Load(ongoing=40.0, is_ongoing_partial=True), serving=TWO) == 5
    assert after(STREAMS, 3, Load(ongoing=8.0, is_ongoing_partial=True), serving=TWO) == 3
    assert after(STREAMS, 3, Load(ongoing=8.0), serving=TWO) == 1
    assert after(STREAMS, 3, Load(), serving=TWO) == 3
    waited = held(3, falling_since=NOW - seconds(1e6))
    found = decide(STREAMS, waited, Load(ongoing=8.0, is_ongoing_partial=True), TWO, NOW)
    assert found == held(3, unknown_since=NOW)


def test_requests_of_no_replica_say_nothing() -> None:
    """Where none serves, nobody has told anything: the number holds, and a request wakes what has none."""
    assert after(STREAMS, 3, Load(ongoing=0.0)) == 3
    asleep = replace(STREAMS, min_replicas=0)
    assert after(asleep, 0, Load(0.0, ongoing=40.0)) == 0
    assert after(asleep, 0, Load(0.1, ongoing=0.0)) == 1
    assert after(asleep, 1, Load(0.0, ongoing=0.0), serving=TWO[:1]) == 0
    assert after(asleep, 1, Load(0.0, ongoing=1.0), serving=TWO[:1]) == 1


def test_requests_in_progress_and_a_rate_count_by_the_higher_number() -> None:
    """Short requests by their rate, long ones by how many there are."""
    both = replace(QPS, ongoing=ONGOING)
    assert after(both, 3, Load(12.0, ongoing=8.0), serving=TWO) == 6
    assert after(both, 3, Load(2.0, ongoing=40.0), serving=TWO) == 5
    assert after(both, 3, Load(None, ongoing=8.0), serving=TWO) == 3


def test_a_document_of_before_has_no_such_target() -> None:
    """And one of today comes back as it was."""
    stored = json.loads(json.dumps(asdict(STREAMS)))
    assert Scaling.from_dict(stored) == STREAMS
    assert Scaling.from_dict({k: v for k, v in stored.items() if k != "ongoing"}).ongoing is None


def test_the_target_may_depend_on_the_accelerator() -> None:
    """Of those that serve the strongest are counted first; what isn't there yet counts as the weakest."""
    scaling = replace(QPS, qps_by_instance_type={"g6e.xlarge": 8.0, "g5.xlarge": 4.0})
    there = ("g6e.xlarge", "g5.xlarge", "g4dn.xlarge")
    assert after(scaling, 3, Load(8.0), serving=there) == 1
    assert after(scaling, 3, Load(9.0), serving=there) == 2
    assert after(scaling, 3, Load(14.0), serving=there) == 3
    assert after(scaling, 3, Load(14.1), serving=there) == 4
    assert after(scaling, 3, Load(8.0)) == 4


def test_those_count_first_that_stay() -> None:
    """The on-demand base stays, however weak it is, and no fallback belongs to it."""
    scaling = replace(QPS, qps_by_instance_type={"g6.xlarge": 4.0})
    spec = replace(demo_spec(), scaling=scaling, base_on_demand=1)
    weak = on_demand_pool("us-east-1a", "g5.xlarge")
    strong = Offering(replace(weak.pool, instance_type="g6.xlarge"), PurchaseOption.SPOT)
    base = a_replica(1, ReplicaState.READY, purchase_option=PurchaseOption.ON_DEMAND, offering=weak)
    fallback = replace(base, id=2, is_fallback=True)
    spot = a_replica(3, ReplicaState.READY, offering=strong)
    starts = replace(spot, id=4, state=ReplicaState.STARTING)
    known = rows_of(fallback, spot, starts, replace(base, id=5))
    assert serving_types(spec, scaling, known) == ["g5.xlarge", "g6.xlarge", "g5.xlarge"]
    no_base = replace(spec, base_on_demand=0)
    assert serving_types(no_base, scaling, known) == ["g6.xlarge", "g5.xlarge", "g5.xlarge"]
    only = rows_of(fallback, spot)
    assert serving_types(spec, scaling, only) == ["g6.xlarge", "g5.xlarge"]


DAY = Schedule(cron="0 8 * * *", min_replicas=4, max_replicas=8, time_zone="Europe/Berlin")
NIGHT = Schedule(cron="0 20 * * *", min_replicas=0, max_replicas=2, time_zone="Europe/Berlin")


@pytest.mark.parametrize(("utc_hour", "expected"), [(6, 2), (7, 4), (18, 4), (19, 2)])
def test_the_schedule_that_fired_last_counts(utc_hour: int, expected: int) -> None:
    """At once, without a delay: by day at least four, by night at most two."""
    scaling = replace(QPS, schedules=(DAY, NIGHT))
    now = EPOCH.replace(hour=utc_hour)
    assert decide(scaling, held(3), Load(6.0), (), now).replicas == expected


def test_of_schedules_that_fire_together_the_last_one_counts() -> None:
    """In the order of the file."""
    both = (DAY, replace(NIGHT, cron=DAY.cron))
    assert decide(replace(QPS, schedules=both), held(3), Load(6.0), (), EPOCH).replicas == 2
    assert decide(replace(QPS, schedules=both[::-1]), held(3), Load(6.0), (), EPOCH).replicas == 4


# By the controller.


def scaled(scaling: Scaling = QPS, **facts: Any) -> tuple[Troubled, Controller]:
    """A service of three replicas that all serve, at the load that they are for."""
    world = world_of(replace(demo_spec(), scaling=scaling, **facts))
    controller = Controller(world.ports())
    world.loads.loads["demo"] = Load(6.0)
    settle(world, controller)
    assert len(in_rotation(world)) == 3 + facts.get("overprovision", 0)
    return world, controller


def pass_time(world: Troubled, controller: Controller, duration_s: float) -> None:
    """Let time pass, with a tick each minute."""
    for _ in range(int(duration_s // 60) + 1):
        world.clock.advance(60)
        controller.tick("demo")


def on_record(world: Troubled) -> int | None:
    """The load's number on record."""
    request = rows(world).requests.get(Source.LOAD)
    return request.replicas if request else None


def test_more_load_brings_more_replicas_and_less_takes_them_away() -> None:
    """After the delays, and never fewer in rotation than the number in between."""
    world, controller = scaled()
    world.loads.loads["demo"] = Load(10.0)
    pass_time(world, controller, QPS.upscale_delay_s - 120)
    assert len(counted(world)) == 3
    pass_time(world, controller, 120)
    settle(world, controller)
    assert len(in_rotation(world)) == 5
    world.loads.loads["demo"] = Load(2.0)
    pass_time(world, controller, QPS.downscale_delay_s - 120)
    assert len(in_rotation(world)) == 5
    pass_time(world, controller, 120)
    settle(world, controller)
    assert len(in_rotation(world)) == 1


def test_a_look_that_finds_nothing_new_writes_nothing() -> None:
    """One question a tick, and no write, be there no requests."""
    world, controller = scaled()
    world.loads.loads["demo"] = Load(0.0)
    pass_time(world, controller, QPS.downscale_delay_s)
    settle(world, controller)
    world.loads.loads["demo"] = Load(0.0, is_rate_partial=True, is_silence_presumed=True)
    world.calls.clear()
    controller.tick("demo")
    assert world.calls.count("loads.observe") == 1
    assert "store.note_request" not in world.calls


def test_what_may_be_over_asks_again_before_it_counts() -> None:
    """Requests of some minutes ago would bring replicas at once, and there have been none since."""
    world, controller = scaled(replace(QPS, min_replicas=3, upscale_delay_s=0))
    old = Load(20.0, is_rate_partial=True, is_silence_presumed=True)
    asked: list[Needed] = []

    def observe(_: ServiceSpec, needed: Needed, __: datetime) -> None:
        asked.append(needed)
        world.loads.loads["demo"] = Load(0.0) if needed.silence else old

    world.meddle("loads.observe", observe, times=None)
    while world.clock.now().minute % 5 != 1:
        world.clock.advance(1)
    controller.tick("demo")
    assert [needed.silence for needed in asked] == [False, True]
    assert on_record(world) == 3
    world.calls.clear()
    controller.tick("demo")
    assert "store.note_request" not in world.calls


def test_a_service_without_scaling_asks_nothing() -> None:
    """Nor does one go by what the load asked of an earlier service file."""
    world = world_of(demo_spec())
    controller = Controller(world.ports())
    world.store.note_request("demo", Source.LOAD, held(9))
    settle(world, controller)
    assert "loads.observe" not in world.calls
    assert len(in_rotation(world)) == 3


@pytest.mark.parametrize("error", [Unavailable("no answer"), Denied("not allowed", "AccessDenied")])
def test_nobody_goes_because_nobody_could_measure(error: Exception) -> None:
    """The number holds, the tick does all else and doesn't fail; what AWS refuses is counted."""
    world, controller = scaled()
    world.loads.loads["demo"] = Load(0.0)
    world.refuse("loads.observe", error, times=None)
    pass_time(world, controller, 2 * QPS.downscale_delay_s)
    assert len(in_rotation(world)) == 3
    assert (world.telemetry.counts[Metric.CALLS_DENIED] > 0) is isinstance(error, Denied)


def test_a_number_that_cannot_be_kept_is_not_gone_by() -> None:
    """What is on record counts, and the message comes again; nothing is left undone meanwhile."""
    world, controller = scaled()
    world.loads.loads["demo"] = Load(2.0)
    pass_time(world, controller, QPS.downscale_delay_s - 60)
    world.refuse("store.note_request", Unavailable("no answer"))
    world.clock.advance(120)
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert len(counted(world)) == 3
    controller.tick("demo")
    assert on_record(world) == 1


def test_what_is_there_stays_when_the_number_is_lost_or_was_never_known() -> None:
    """Of a service that begins to follow its load none goes before the delay, and none after damage."""
    world, controller = scaled()
    world.services.specs["demo"] = replace(demo_spec(replicas=1), scaling=QPS)
    world.store.damage("demo").requests.clear()
    world.loads.loads["demo"] = Load()
    pass_time(world, controller, 2 * QPS.downscale_delay_s)
    assert on_record(world) == 3
    assert len(in_rotation(world)) == 3


def test_a_person_s_number_outranks_the_load_s_for_its_time() -> None:
    """The load's is kept up meanwhile, and counts afterwards."""
    world, controller = scaled()
    request = ScaleRequest(4, world.clock.now() + seconds(3600))
    world.store.note_request("demo", Source.OPERATOR, request)
    world.loads.loads["demo"] = Load(12.0)
    pass_time(world, controller, QPS.upscale_delay_s)
    assert (len(counted(world)), on_record(world)) == (4, 6)
    world.clock.advance(3600)
    settle(world, controller)
    assert len(in_rotation(world)) == 6


def test_a_warning_goes_by_the_load_s_number() -> None:
    """Of five by the load one serves on that would leave at once by the file's three."""
    world, controller = scaled()
    world.store.note_request("demo", Source.LOAD, held(5))
    victim = active(world)[0]
    controller.handle(warned(world, victim))
    assert victim.instance_id in in_rotation(world)


def test_a_service_that_has_gone_to_sleep_wakes() -> None:
    """None after the delay, and the first request that finds nobody brings one back."""
    world, controller = scaled(replace(QPS, min_replicas=0))
    world.loads.loads["demo"] = Load(0.0)
    pass_time(world, controller, QPS.downscale_delay_s)
    settle(world, controller)
    assert in_rotation(world) == set()
    world.loads.loads["demo"] = Load()
    pass_time(world, controller, 3600)
    assert counted(world) == []
    world.loads.loads["demo"] = Load(0.02)
    controller.tick("demo")
    assert len(counted(world)) == 1


def test_an_unknown_time_zone_holds_the_number() -> None:
    """It rings, and nothing else is left undone."""
    lost = replace(DAY, time_zone="Europe/Atlantis")
    world = world_of(replace(demo_spec(), scaling=replace(QPS, schedules=(lost,))))
    controller = Controller(world.ports())
    settle(world, controller)
    assert len(in_rotation(world)) == 3
    assert world.telemetry.counts[Metric.HELD_BACK] > 0


# What replicas tell.


def told(world: Troubled, act: Callable[[], object]) -> dict[Metric, int]:
    """What was counted of the replicas' requests meanwhile."""
    of_requests = (Metric.ONGOING_REQUESTS, Metric.ONGOING_UNKNOWN)
    before = {metric: world.telemetry.counts[metric] for metric in of_requests}
    act()
    return {metric: world.telemetry.counts[metric] - before[metric] for metric in of_requests}


def test_the_minute_s_tick_asks_those_that_serve() -> None:
    """And reports the sum, and who didn't tell. Ticks that follow a change don't ask: they come often."""
    world, controller = scaled(STREAMS)
    first, second, third = (r.instance_id or "" for r in active(world))
    world.prober.requests |= {first: 5.0, second: 6.0, third: 100.0}
    world.prober.silent.add(third)
    asked: list[Any] = []
    world.meddle("prober.ongoing", lambda *arguments: asked.append(arguments), times=None)
    found = told(world, lambda: controller.tick("demo"))
    assert found == {Metric.ONGOING_REQUESTS: 11, Metric.ONGOING_UNKNOWN: 1}
    ((service, target, addresses),) = asked
    assert (service, target, set(addresses)) == ("demo", ONGOING, {first, second, third})
    assert {port for _, port in addresses.values()} == {world.services.specs["demo"].port}
    assert any(
        name == "ongoing_unknown" and third in str(facts["why"]) for name, facts in world.telemetry.records
    )
    world.calls.clear()
    controller.tick("demo", world.clock.now())
    assert "prober.ongoing" not in world.calls


@pytest.mark.parametrize("error", [Unavailable("no answer"), Denied("not allowed", "AccessDenied")])
def test_where_nobody_can_ask_all_are_unknown(error: Exception) -> None:
    """It is counted as that, it is told, and the tick doesn't fail."""
    world, controller = scaled(STREAMS)
    world.refuse("prober.ongoing", error)
    found = told(world, lambda: controller.tick("demo"))
    assert found == {Metric.ONGOING_REQUESTS: 0, Metric.ONGOING_UNKNOWN: 3}
    assert any(name == "ongoing_unknown" and "error" in facts for name, facts in world.telemetry.records)
    assert (world.telemetry.counts[Metric.CALLS_DENIED] > 0) is isinstance(error, Denied)


@pytest.mark.parametrize(
    ("age_s", "unknown", "expected"),
    [
        (0, 0, Load(1.0, ongoing=9.0)),
        (LOAD_KNOWN_S, 2, Load(1.0, ongoing=9.0, is_ongoing_partial=True)),
        (LOAD_KNOWN_S + 1, 0, Load(1.0)),
    ],
)
def test_what_was_told_counts_for_a_while(age_s: float, unknown: int, expected: Load) -> None:
    """Beside what CloudWatch knows; while some didn't tell, as a lower bound."""
    total = OngoingTotal(NOW - seconds(age_s), 9.0, unknown)
    assert with_ongoing(Load(1.0), total, NOW) == expected
    assert with_ongoing(Load(1.0), None, NOW) == Load(1.0)


def test_the_number_follows_what_replicas_told_at_the_tick_before() -> None:
    """It is in the table: no metric is read for it, so nobody forges one, and CloudWatch may be silent."""
    world, controller = scaled(STREAMS)
    world.prober.requests |= {r.instance_id or "": 16.0 for r in active(world)}
    world.refuse("loads.observe", Unavailable("CloudWatch doesn't answer"), times=None)
    pass_time(world, controller, STREAMS.upscale_delay_s + 60)
    assert on_record(world) == 6
    world.prober.silent |= {r.instance_id or "" for r in active(world)}
    pass_time(world, controller, 2 * STREAMS.downscale_delay_s)
    assert on_record(world) == 6


def test_a_sum_that_cannot_be_kept_is_told() -> None:
    """The tick has done everything else by then, and the next one asks again."""
    world, controller = scaled(STREAMS)
    before = world.store.load("demo").ongoing
    world.prober.requests |= {r.instance_id or "": 1.5 for r in active(world)}
    world.refuse("store.note_ongoing", Throttled("too fast"))
    controller.tick("demo")
    assert any(name == "ongoing_not_kept" for name, _ in world.telemetry.records)
    assert world.store.load("demo").ongoing == before
    controller.tick("demo")
    assert world.store.load("demo").ongoing == OngoingTotal(world.clock.now(), 4.5, 0)


def test_an_instance_that_is_not_seen_is_unknown() -> None:
    """One without an address can't be asked, and may have many."""
    world, controller = scaled(STREAMS)
    lost = active(world)[0].instance_id or ""
    seen = world.fleet.instances[lost]
    world.fleet.instances[lost] = replace(seen, address=None)
    assert told(world, lambda: controller.tick("demo"))[Metric.ONGOING_UNKNOWN] == 1


def test_of_many_that_do_not_tell_a_few_are_shown() -> None:
    """A log line is as long as CloudWatch takes it, however many replicas there are."""
    world = world_of()
    unknown = {f"i-{n}": "late" for n in range(500)}
    Reporting(world.telemetry).ongoing("demo", Ongoing({}, unknown), OngoingTotal(NOW, 0, 500))
    ((_, facts),) = world.telemetry.records
    assert (facts["replicas"], facts["why"]) == (500, dict(sorted(unknown.items())[:SHOWN_UNKNOWN]))


def test_nobody_is_asked_without_need() -> None:
    """Not what doesn't serve yet, nor where the number doesn't follow it."""
    world = world_of(replace(demo_spec(), scaling=STREAMS))
    Controller(world.ports()).tick("demo")
    assert "prober.ongoing" not in world.calls
    assert Metric.ONGOING_UNKNOWN not in world.telemetry.counts
    world, controller = scaled(QPS)
    world.calls.clear()
    controller.tick("demo")
    assert "prober.ongoing" not in world.calls


# Which go, and how they are bought.


@pytest.mark.parametrize("use_spot", [True, False])
@pytest.mark.parametrize("is_stronger", [True, False])
def test_the_dearest_go_first(use_spot: bool, is_stronger: bool) -> None:
    """Of three that serve, the one whose type costs most there, however long it has been there.

    Unless it is the strongest, too: the load counts on it.
    """
    by_type = {"g6.xlarge": 3.0 if is_stronger else 2.0}
    world, controller = scaled(replace(QPS, qps_by_instance_type=by_type), use_spot=use_spot)
    replicas = active(world)
    pools = [r.offering.pool for r in replicas if r.offering]
    dearest = CapacityPool(pools[0].region, "us-east-1b", "g6.xlarge")
    kept = world.store.damage("demo").replicas
    oldest = kept[min(kept)]
    assert oldest.offering is not None
    kept[oldest.id] = replace(oldest, offering=replace(oldest.offering, pool=dearest))
    prices = {**dict.fromkeys(pools, 0.4), dearest: 0.5}
    assert {pool.instance_type for pool in pools} == {"g5.xlarge"}
    spec = world.services.specs["demo"]
    of_types = {"g5.xlarge": 0.4, "g6.xlarge": 0.5}
    survey = Survey("demo", spec.asked, world.clock.now(), tuple(prices), of_types, prices)
    world.store.note_survey(survey)
    world.store.note_request("demo", Source.LOAD, held(2))
    world.loads.loads["demo"] = Load(4.0)
    controller.tick("demo")
    assert (oldest.id in counted(world)) is is_stronger
    assert len(counted(world)) == 2


def test_on_demand_beyond_the_base_goes_before_spot() -> None:
    """One that was bought on-demand, of a base that has become smaller, before newer ones on Spot."""
    world, controller = scaled(base_on_demand=1)
    world.services.specs["demo"] = replace(world.services.specs["demo"], base_on_demand=0)
    world.store.note_request("demo", Source.LOAD, held(2))
    world.loads.loads["demo"] = Load(4.0)
    controller.tick("demo")
    left = [r for r in active(world) if r.state is ReplicaState.READY]
    assert [r.purchase_option for r in left] == [PurchaseOption.SPOT] * 2


def test_prices_that_cannot_be_read_hold_up_nobody() -> None:
    """The newest goes, and the message comes again."""
    world, controller = scaled()
    world.store.note_request("demo", Source.LOAD, held(2))
    world.loads.loads["demo"] = Load(4.0)
    world.refuse("store.recall", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert counted(world) == [1, 2]


def test_overprovisioned_replicas_are_on_spot_beyond_the_number() -> None:
    """Three by the load and one more; an operator's number is the whole number."""
    world, controller = scaled(overprovision=1)
    assert len(counted(world)) == 4
    request = ScaleRequest(0, world.clock.now() + seconds(3600))
    world.store.note_request("demo", Source.OPERATOR, request)
    controller.tick("demo")
    assert counted(world) == []


def test_nothing_is_bought_on_demand_beyond_the_number() -> None:
    """Where Spot gives none of four, three are bought: the base, and fallbacks for the rest of the three."""
    spec = replace(demo_spec(), overprovision=1, base_on_demand=1)
    world = world_of(spec)
    dry(world, PurchaseOption.SPOT)
    controller = Controller(world.ports())
    settle(world, controller, 12)
    bought = [r for r in active(world) if r.purchase_option is PurchaseOption.ON_DEMAND]
    assert len(bought) == 3
    assert sum(r.is_fallback for r in bought) == 2


def test_the_settings_round_trip() -> None:
    """Through the runtime document, with what a later version may add to them."""
    metric = MetricTarget(namespace="N", name="M", target=2, dimensions={"A": "b"}, is_total=True)
    scaling = replace(QPS, metric=metric, schedules=(DAY, NIGHT), qps_by_instance_type={"g5.xlarge": 3.0})
    spec = replace(demo_spec(), scaling=scaling)
    stored = spec.to_dict()
    assert ServiceSpec.from_json(json.dumps(stored)) == spec
    stored["scaling"] = {**json.loads(json.dumps(stored))["scaling"], "later": 1}
    assert ServiceSpec.from_json(json.dumps(stored)) == spec
