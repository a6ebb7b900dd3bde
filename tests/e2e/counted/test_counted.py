"""What the board and alarms count and no other test provokes, by the deployed functions: see `emitted`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lab.demo.operator import Operator
from lab.local.environment import ZONES
from spotrelay.operator.look.watch import NotInTimeError
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import METRICS_NO_SERVICE, Alarm, Metric
from spotrelay.plane.core.pools import PurchaseOption, Survey
from spotrelay.plane.core.quotas import quota_for
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Changes
from tests.e2e.damage import Damage
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S

RARE = "rare"

SURVEYS, SEEN_WITHIN_S = 4, 20.0
"""A survey's tick comes within seconds, unless another is at work."""

FOREVER_S = 600.0
"""The test ends the fault itself, once it has seen what it wanted to."""


@pytest.fixture
def rare(operator: Operator) -> Iterator[Bench]:
    """The light service, whole."""
    bench = Bench(operator, RARE)
    bench.settled(has_history=False)
    yield bench
    bench.cloud.clear_faults()


@contextmanager
def counted(bench: Bench, metric: Metric, service: str = METRICS_NO_SERVICE) -> Iterator[None]:
    """What is done meanwhile makes the product count the metric."""
    before = bench.count(metric, service)
    yield
    bench.eventually(lambda: bench.count(metric, service) > before, f"{metric} is counted")


def newest(bench: Bench) -> Replica:
    """The last that came to serve; the oldest is spared for the test of what nobody knows."""
    return max(bench.watch.look().ready, key=lambda r: r.id)


def test_launches_that_the_brake_holds(rare: Bench) -> None:
    """Two more are wanted and one may be launched a minute: the other waits, and is counted."""
    replicas = rare.spec.replicas
    with counted(rare, Metric.LAUNCHES_HELD, RARE):
        rare.change(replicas=replicas + 2, max_launches_per_minute=1)
    rare.change(replicas=replicas, max_launches_per_minute=1000)
    rare.whole(replicas)


def test_events_that_the_bus_does_not_take(rare: Bench) -> None:
    """What EventBridge refuses is counted, and the replacement comes all the same."""
    with counted(rare, Metric.EVENTS_UNSENT):
        rare.cloud.inject_fault("PutEvents", "InternalException", status=500, for_s=FOREVER_S)
        victim = newest(rare)
        rare.warn(victim)
    rare.cloud.clear_faults()
    assert len(rare.whole(rare.spec.replicas).replacements(victim.id)) == 1


def test_a_survey_that_ec2_does_not_answer(rare: Bench) -> None:
    """The question is counted, and what else was asked is known."""
    with counted(rare, Metric.SURVEY_UNANSWERED):
        rare.cloud.inject_fault("GetSpotPlacementScores", "InternalError", status=500, for_s=FOREVER_S)
        before = datetime.now(UTC)
        surveyed(rare)
        found = known(rare, lambda survey: survey.at > before)
    assert (found.scores, bool(found.spot_prices)) == ({}, True)


def test_zones_that_score_low_while_another_does_not(rare: Bench) -> None:
    """All of the service's zones low is counted at once, and that another is better after half an hour."""
    *own, other = ZONES
    subnets = dict(rare.spec.subnets)
    for zone in own:
        rare.cloud.dry_up(zone=zone, warn=False)
    try:
        with counted(rare, Metric.ALL_ZONES_SCORE_LOW):
            surveyed(rare, subnets={id_: zone for id_, zone in subnets.items() if zone != other})
            found = known(rare, lambda survey: {*survey.scores} == {*own} and max(survey.scores.values()) < 4)
        assert found.elsewhere[other] > max(found.scores.values())
        with counted(rare, Metric.BETTER_ELSEWHERE, RARE):
            # Half an hour is nobody's wait: what was found is older than it is.
            earlier = found.at - timedelta(seconds=timing.SCORES_LAST_S + 60)
            rare.operator.store.note_survey(replace(found, at=earlier, earlier=()))
            rare.make_cold("SurveyFunction")  # it has kept what it has found itself
            surveyed(rare)
        rare.until_rings(Alarm.BETTER_ELSEWHERE)
    finally:
        for zone in own:
            rare.cloud.bring_back(zone=zone)
        rare.change(subnets=subnets)
    surveyed(rare)
    rare.until_rings(Alarm.BETTER_ELSEWHERE, rings=False)


def test_an_instance_that_nobody_knows_and_that_does_not_serve(rare: Bench) -> None:
    """Its row is lost and it isn't in rotation: it is taken in, drained and terminated."""
    oldest = min(rare.watch.look().ready, key=lambda r: r.id)
    id_ = str(oldest.instance_id)
    launched_at = next(i["launched_at"] for i in rare.cloud.instances() if i["instance_id"] == id_)
    # Before that its launch might still be about to record it.
    time.sleep(max(launched_at + timing.ORPHAN_GRACE_S - time.time(), 0))
    with counted(rare, Metric.ORPHANS_TERMINATED, RARE):
        # No tick may see one without the other.
        rare.cloud.inject_fault(
            "DescribeInstances", "InternalError", status=500, for_s=FOREVER_S, role=rare.reconcile
        )
        Damage.to(rare.operator).lose_row(RARE, oldest.id)
        elb = rare.operator.session.client("elbv2")
        target = {"Id": id_, "Port": oldest.port or rare.spec.port}
        elb.deregister_targets(TargetGroupArn=rare.spec.target_group_arn, Targets=[target])
        rare.cloud.clear_faults()
    rare.eventually(lambda: state_of(rare, id_) == "terminated", "it is terminated")
    rare.whole(rare.spec.replicas)


def test_a_version_that_never_becomes_ready(operator: Operator) -> None:
    """The fifth in a row dies at birth: launches stop, and that rings. Those that serve serve on."""
    rare = Bench(operator, RARE)
    spec, serving = rare.spec, {r.id for r in rare.watch.look().ready}
    # The four before it would take ten minutes of back-off.
    before = Backoff(timing.CRASH_LOOP_FAILURES - 1, datetime.now(UTC), spec.version)
    operator.store.commit(Changes(RARE, backoff=before))
    rare.cloud.let_die("Client.VolumeLimitExceeded", 2)  # on demand dies, too
    with counted(rare, Metric.CRASH_LOOPING, RARE):
        rare.want(spec.replicas + 1)
    rare.until_rings(Alarm.CRASH_LOOPING)
    assert serving <= {r.id for r in rare.watch.look().ready}
    # As if a new version had been deployed, which is what it takes.
    operator.store.commit(Changes(RARE, backoff=Backoff()))
    rare.want(spec.replicas)
    rare.whole(spec.replicas)
    rare.until_rings(Alarm.CRASH_LOOPING, rings=False)


def test_a_quota_that_is_too_small(rare: Bench) -> None:
    """A survey finds it, and a launch is blocked by it: both are counted, and the second rings."""
    quota = quota_for(rare.spec.pools[0].instance_type, PurchaseOption.SPOT)
    assert quota
    rare.cloud.set_quota(quota.code, 0)
    try:
        with counted(rare, Metric.QUOTAS_SHORT):
            surveyed(rare)
        with counted(rare, Metric.LAUNCHES_BLOCKED, RARE):
            rare.warn(rare.victim())
        rare.until_rings(Alarm.CANNOT_LAUNCH)
    finally:
        rare.cloud.set_quota(quota.code, None)
        forget_refusals(rare)
    # In its place on-demand serves, until Spot is tried again.
    rare.watch.until(lambda seen: len(seen.ready) >= rare.spec.replicas, "as many as wanted serve", WITHIN_S)


def test_an_image_that_is_gone(rare: Bench) -> None:
    """A survey finds it before a loss does."""
    (image,) = images(rare)
    rare.cloud.lose_image(image)
    try:
        with counted(rare, Metric.IMAGES_GONE):
            surveyed(rare)
    finally:
        rare.cloud.find_image(image)


def test_an_announced_retirement_is_met_ahead(rare: Bench) -> None:
    """A survey finds it, and the replica goes once another serves in its place."""
    victim = rare.victim()
    rare.cloud.announce(str(victim.instance_id))
    for _ in range(SURVEYS):  # what a survey tells while a tick is at work, the next one tells again
        surveyed(rare)
        with suppress(NotInTimeError):
            rare.watch.until(
                lambda seen: seen.replicas[victim.id].replaced_by is not None, "it is replaced", SEEN_WITHIN_S
            )
            break
    gone = rare.until_state(victim.id, ReplicaState.TERMINATED)
    heir = rare.watch.look().replicas[gone.replaced_by or 0]
    assert heir.entered[ReplicaState.READY] <= gone.entered[ReplicaState.DRAINING]
    assert heir.reason.startswith("EC2 announces instance-retirement, not before ")
    assert gone.warned_at is None
    rare.whole(rare.spec.replicas)


def forget_refusals(bench: Bench) -> None:
    """Have every pool tried again at once: nobody waits for the end of its cooldown."""
    store = Operator(bench.operator.deployment).store  # a store keeps what it has read
    known = store.recall(bench.service, bench.spec.region, datetime.now(UTC)).cooldowns
    store.forgive([cooldown.scope for cooldown in known])


def images(bench: Bench) -> set[str]:
    """What EC2 says that the replicas' instances were launched from."""
    ids = [str(r.instance_id) for r in bench.watch.look().ready]
    found = bench.operator.session.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
    return {instance["ImageId"] for reservation in found for instance in reservation["Instances"]}


def surveyed(bench: Bench, **settings: object) -> None:
    """Deploy the service anew, which has it surveyed. The surge, which changes, bears no weight here."""
    bench.change(surge=json.loads(bench.document())["surge"] + 1, **settings)


def known(bench: Bench, is_meant: Callable[[Survey], bool]) -> Survey:
    """The survey, once it is the one that is meant, as a launch that starts then would know it."""
    found: list[Survey] = []

    def find() -> bool:
        store = Operator(bench.operator.deployment).store  # a store keeps what it has read
        survey = store.recall(RARE, bench.spec.region, datetime.now(UTC)).survey
        if survey and is_meant(survey):
            found.append(survey)
        return bool(found)

    bench.eventually(find, "a survey")
    return found[0]


def state_of(bench: Bench, instance_id: str) -> str:
    """An instance's, as EC2 has it."""
    return next(str(i["state"]) for i in bench.cloud.instances() if i["instance_id"] == instance_id)
