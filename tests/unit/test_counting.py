"""What is counted is what happened: nothing that was only tried, and whatever AWS refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Conflict, Denied, Unavailable
from spotrelay.plane.core.spec import OnWarning, ReadinessProbe
from tests.examples import demo_spec
from tests.unit.worlds import (
    active,
    in_rotation,
    instance_of,
    recorded,
    serving,
    settle,
    table,
    warn,
)


def test_what_could_not_be_taken_out_is_not_counted_as_out() -> None:
    """The load balancer didn't answer: counted, and timed, is the second try, which took it out."""
    world, controller = serving()
    world.refuse("router.deregister", Unavailable("no answer"))
    signals = warn(world, active(world)[0])
    assert controller.handle(signals) == signals
    assert world.telemetry.counts[Metric.DEREGISTERED] == 0
    assert world.telemetry.counts[Metric.WARNING_TO_DEREGISTERED_MS] == 0
    world.clock.advance(20)
    assert controller.handle(signals) == []
    assert world.telemetry.counts[Metric.DEREGISTERED] == 1
    assert world.telemetry.counts[Metric.WARNING_TO_DEREGISTERED_MS] >= 20_000


def test_the_warning_of_one_that_drains_counts() -> None:
    """It is a warning about a replica of ours like any other, and its duplicate is none."""
    world, controller = serving()
    victim = active(world)[-1]
    world.services.specs["demo"] = demo_spec(replicas=2)
    controller.tick("demo")
    signals = warn(world, victim)
    assert controller.handle(signals) == controller.handle(signals) == []
    assert world.telemetry.counts[Metric.INTERRUPTION_WARNINGS] == 1


@pytest.mark.parametrize("call", ["store.cool", "prober.ask"])
def test_what_is_refused_counts_though_nothing_depends_on_it(call: str) -> None:
    """Nothing else fails with it: without the alarm nobody would ever know that a permission is missing."""
    spec = replace(demo_spec(), readiness_probe=ReadinessProbe("/", {}), on_warning=OnWarning.LEAVE)
    world, controller = serving(spec)
    world.refuse(call, Denied("not allowed"))
    assert controller.handle(warn(world, active(world)[0])) == []
    settle(world, controller)
    assert world.telemetry.counts[Metric.CALLS_DENIED] == 1


def test_an_orphan_that_a_lost_race_left_out_is_not_counted() -> None:
    """Taken in by the next tick, it counts once."""
    world, controller = serving()
    row = table(world).replicas.pop(1)
    world.store.unlearn(row.instance_id)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    world.refuse("store.commit", Conflict("somebody else was faster"))
    controller.tick("demo")
    assert world.telemetry.counts[Metric.ORPHANS_ADOPTED] == 0
    controller.tick("demo")
    assert world.telemetry.counts[Metric.ORPHANS_ADOPTED] == 1
    assert [line["instance_id"] for line in recorded(world, "TakeIn")] == [row.instance_id]
    assert instance_of(row) in in_rotation(world)


def test_an_override_comes_again_while_another_tick_is_at_work() -> None:
    """A tick that isn't made comes by itself; what a person said wouldn't."""
    world, controller = serving()
    world.store.acquire("demo", "another", world.clock.now(), timing.LEASE_S)
    controller.tick("demo")
    given = Override(given_at=world.clock.now())
    controller.tick("demo", override=given)
    assert world.calls == ["store.acquire"] * 2 + ["ticker.schedule_override"]
    assert world.ticker.overrides == [("demo", given, timing.OVERRIDE_AGAIN_S[0])]
    for _ in range(20):
        controller.tick("demo", override=world.ticker.overrides[-1][1])
    delays = tuple(delay_s for _, _, delay_s in world.ticker.overrides)
    assert delays == timing.OVERRIDE_AGAIN_S, "not for ever: each message may be delivered twice"
    assert sum(delays) > timing.LEASE_S
    assert "another tick" in str(recorded(world, "override_lapsed")[0]["why"])
