"""No request fails that a surviving instance could have served: the whole stack, and clients that stream.

The order is that of time: first what is over soon, then the stories that take two minutes, then what would
disturb them.
"""

from __future__ import annotations

from lab.local.environment import EC2_WARNING_S
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.replica import ReplicaState
from tests.e2e.availability.conftest import DRAIN_S
from tests.e2e.availability.stories import Stories
from tests.e2e.clients import CLIENTS, Clients
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S

DRAIN_DEADLINE_S = EC2_WARNING_S - DRAIN_S - timing.DRAIN_SETTLE_S
"""From a warning until requests may be cut."""

ENOUGH = 2
"""Of three, all but one."""


def test_an_instance_that_cannot_be_terminated_holds_up_nobody(stories: Stories) -> None:
    """A new replica comes into rotation all the same; once it may be terminated, the instance goes."""
    story = stories.stuck
    bench = story.bench
    bench.until_alarm(Metric.ACTION_REQUIRED)
    (kept,) = (r for r in bench.watch.look().present if r.state is ReplicaState.DRAINING)
    bench.want(len(story.before))
    seen = bench.watch.until(
        lambda seen: len(seen.ready) == len(story.before), "as many as wanted serve", WITHIN_S
    )
    assert seen.replicas[kept.id].state is ReplicaState.DRAINING
    assert _state(bench, str(kept.instance_id)) == "running"
    bench.cloud.clear_faults()
    bench.settled(has_history=False)
    assert _state(bench, str(kept.instance_id)) == "terminated"
    story.clients.were_served()


def test_everything_is_warned_while_every_pool_is_dry(stories: Stories) -> None:
    """No request fails or is cut: what is warned serves on until others do, or till the drain deadline."""
    story = stories.taken
    bench, ids = story.bench, [r.instance_id for r in story.before]

    def interruptions() -> list[dict[str, float | None]]:
        return [i for i in bench.cloud.interruptions() if i["instance_id"] in ids]

    bench.watch.until(
        lambda _: all(i["reclaimed_at"] for i in interruptions()),
        "EC2 takes what it warned",
        EC2_WARNING_S + 30,
    )
    story.clients.were_served()
    facts = bench.settled()
    known = max(r.id for r in story.before)
    # Where the machine is busy a fallback may be given up before it was ready.
    ready = (r.entered.get(ReplicaState.READY) for r in facts.ever if r.id > known)
    came = [at.timestamp() for at in ready if at]
    early = []
    for interruption in interruptions():
        warned, left = interruption["warned_at"], interruption["deregistered_at"]
        assert warned
        assert left
        if sum(at <= left for at in came) < ENOUGH and left - warned < DRAIN_DEADLINE_S:
            early.append(f"{interruption['instance_id']} after {left - warned:.1f} s")
    # Warnings may come in several batches. Whoever reads the first one knows that the two others serve, not
    # yet that they are warned, too.
    assert len(early) <= len(ids) - ENOUGH, f"left the rotation before others served: {early}"


def test_standbys_bridge_starts_that_take_longer_than_the_warning(stories: Stories) -> None:
    """All of the fleet is taken while Spot is dry, no cold start gets ready: no answer fails or is cut."""
    story = stories.slow
    bench, ids = story.bench, [r.instance_id for r in story.before if r.serves]
    bench.watch.until(
        lambda _: all(i["reclaimed_at"] for i in bench.cloud.interruptions() if i["instance_id"] in ids),
        "EC2 takes what it warned",
        EC2_WARNING_S + 30,
    )
    ready = bench.watch.look().ready
    story.clients.were_served()
    stories.long.were_served()
    stood_by = {r.instance_id for r in story.before if not r.serves}
    assert {r.instance_id for r in ready} == stood_by, "nobody else could serve by now"
    stories.gate.unlink()


def test_a_hung_server_costs_what_was_in_flight(stories: Stories) -> None:
    """Once its checks fail nothing is sent to it, and another serves before it is given up."""
    story = stories.hung
    bench, hung = story.bench, story.before[0]
    facts = bench.settled()
    seen = story.clients.stop()
    (row,) = (r for r in facts.ended if r.id == hung.id)
    assert row.unhealthy_since
    (after,) = (r for r in facts.ever if r.replaces == hung.id)
    assert after.entered[ReplicaState.READY] <= row.entered[ReplicaState.DRAINING]
    noticed = row.unhealthy_since.timestamp()
    sent = [r for r in story.clients.requests() if r["target"] == hung.instance_id]
    assert [r for r in sent if r["started"] > noticed] == []
    in_flight = [r for r in sent if not r["ended"] or r["ended"] > noticed]
    assert seen.failed + seen.cut <= len(in_flight) <= CLIENTS, seen.failures


def test_a_foreign_instance_with_our_tag_is_left_alone(stories: Stories, demo: Bench) -> None:
    """It is neither terminated nor put into rotation, and the alarm asks whose it is."""
    foreign = stories.foreign
    with Clients(demo) as clients:
        demo.until_alarm(Metric.HELD_BACK)
        clients.were_served()
    assert _state(demo, foreign) == "running"
    assert foreign not in demo.settled(has_history=False).targets


def _state(bench: Bench, instance_id: str) -> str:
    return next(str(i["state"]) for i in bench.cloud.instances() if i["instance_id"] == instance_id)
