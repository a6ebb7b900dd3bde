"""What serves goes on serving, whatever the table, Parameter Store or EC2 say.

These come when the stories are over: whatever the functions call then, a test here is the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from lab.demo.operator import Operator
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, TAG_SERVICE, Metric
from spotrelay.plane.core.replica import ReplicaState
from tests.e2e.availability.conftest import ACCELERATORS
from tests.e2e.availability.stories import SLOW, Stories
from tests.e2e.clients import Clients
from tests.e2e.damage import Damage
from tests.e2e.faults.bench import SETTLED_WITHIN_S, Bench
from tests.e2e.faults.rules import Facts

SERVICES = len(("demo", SLOW, *ACCELERATORS))
"""The demo's and the stories'."""

ROUNDS = 3
"""Ticks of every service that see something strange, where a test says several."""

TAKING = {"TerminateInstances", "DeregisterTargets"}
"""What takes away something that serves."""

Answer = Literal["empty", "partial"]


@pytest.fixture(scope="module", autouse=True)
def over(operator: Operator, stories: Stories) -> None:
    """The stories are over, whichever of their tests were run."""
    stuck = stories.stuck.bench
    stuck.cloud.clear_faults()
    stuck.want(len(stories.stuck.before))
    # As the log asks for.
    tags = [{"Key": TAG_SERVICE}]
    operator.session.client("ec2").delete_tags(Resources=[stories.foreign], Tags=tags)
    # A stopped instance that no row knows is ended, which a test that empties the table shall not see.
    stories.gate.unlink(missing_ok=True)
    stories.slow.bench.want_standbys(0)
    for name in (SLOW, *ACCELERATORS):
        Bench(operator, name).settled(has_history=False)


@contextmanager
def spared(bench: Bench, *, allowed: Collection[str] = ()) -> Iterator[Callable[[], set[str]]]:
    """Clients use a service: none of their requests may fail, and nothing that serves be taken away.

    What it yields tells the actions that the functions called so far.
    """
    before, since = bench.settled(has_history=False), bench.last_call()

    def called() -> set[str]:
        roles = ("OnSignalRole", "ReconcileRole")
        return {call["action"] for role in roles for call in bench.calls(role, since)}

    with Clients(bench) as clients:
        yield called
        clients.were_served()
    assert not (called() & TAKING).difference(allowed)
    after = bench.settled(has_history=False)
    assert before.rotation.items() <= after.rotation.items(), "what served is in rotation still"
    _no_id_is_given_twice(before, after)


@pytest.mark.parametrize(
    ("answer", "rounds"),
    [("empty", 1), ("empty", ROUNDS), ("partial", ROUNDS)],
    ids=["once", "often", "half"],
)
def test_ec2_does_not_show_the_instances(demo: Bench, answer: Answer, rounds: int) -> None:
    """A successful answer without the instances, or with some of them, ends nothing, and rings."""
    with spared(demo) as called:
        _strange(demo, "DescribeInstances", answer, rounds)
        assert "CreateFleet" not in called()


def test_the_parameters_are_missing(demo: Bench) -> None:
    """A document that can't be found for a while, and nobody has deleted, ends nothing, and rings."""
    with spared(demo) as called:
        _strange(demo, "GetParameters", "empty", ROUNDS)
        assert "CreateFleet" not in called()


def test_a_table_from_before_two_replacements(stories: Stories, demo: Bench) -> None:
    """The rows of lost instances end, and the replacements that nobody knows of any more are kept."""
    _grown(demo)
    with spared(demo, allowed={"DeregisterTargets"}):
        Damage.to(demo.operator).restore(stories.backup, demo.service)
        demo.settled(has_history=False)


def test_the_table_is_emptied(operator: Operator) -> None:
    """Everything that serves gets a row again."""
    bench = Bench(operator, "taken")
    _grown(bench)
    with spared(bench) as called:
        Damage.to(operator).empty_table()
        bench.settled(has_history=False)
        assert "CreateFleet" not in called()
    for name in ACCELERATORS:
        Bench(operator, name).settled(has_history=False)


def test_a_row_is_lost(operator: Operator) -> None:
    """Its instance gets another, with a new ID."""
    bench = Bench(operator, "stuck")
    _grown(bench)
    with spared(bench) as called:
        Damage.to(operator).lose_row(bench.service, bench.victim().id)
        bench.settled(has_history=False)
        assert "CreateFleet" not in called()


def test_the_highest_id_is_lost(operator: Operator) -> None:
    """Nothing ends, and the next replica gets an ID that nobody has had."""
    bench = Bench(operator, "hung")
    before = bench.settled(has_history=False)
    with spared(bench):
        Damage.to(operator).lose_meta(bench.service)
        bench.want(len(before.present) + 1)
        bench.settled(has_history=False)
    assert max(r.id for r in bench.watch.look().present) == before.highest_id + 1


def test_another_control_plane_has_the_services(demo: Bench) -> None:
    """Then ours touches nothing, though a replica dies; when that is put right, the loss is healed."""
    ssm = demo.operator.session.client("ssm")
    claim = ssm.get_parameter(Name=CONTROL_PLANE_PARAMETER)["Parameter"]["Value"]
    _set(ssm, json.dumps({**json.loads(claim), "table": "another"}))
    try:
        demo.make_cold("OnSignalFunction")
        victim, since = demo.victim(), demo.last_call()
        demo.operator.session.client("ec2").terminate_instances(InstanceIds=[victim.instance_id])
        demo.eventually(lambda: str(victim.instance_id) not in _healthy(demo), "the balancer has noticed")
        with Clients(demo) as clients:
            _rings(demo, demo.count(Metric.HELD_BACK) + 2 * SERVICES)
            clients.were_served()
        roles = ("OnSignalRole", "ReconcileRole")
        called = {call["action"] for role in roles for call in demo.calls(role, since)}
        assert not called & (TAKING | {"CreateFleet", "RegisterTargets", "TransactWriteItems"})
        row = demo.watch.look().replicas[victim.id]
        assert row.state is ReplicaState.READY, "nothing is written, either"
    finally:
        _set(ssm, claim)
    facts = demo.settled(has_history=False)
    assert [r.replaces for r in facts.present].count(victim.id) == 1


def _strange(bench: Bench, action: str, answer: Answer, rounds: int) -> None:
    """Let every service's tick get a wrong answer so many times, and see it ring."""
    before = bench.count(Metric.HELD_BACK)
    bench.cloud.inject_fault(action, answer=answer, count=rounds * SERVICES, role=bench.reconcile)
    bench.struck()
    _rings(bench, before + rounds)


def _rings(bench: Bench, times: float) -> None:
    """Wait until something has been held back so many times, and an alarm says so."""
    bench.eventually(lambda: bench.count(Metric.HELD_BACK) >= times, "what is held back is counted")
    bench.until_alarm(Metric.HELD_BACK)


def _grown(bench: Bench) -> None:
    """Wait until no instance is so young that its launch may still be about to record it.

    Others would be launched before it is taken in, and one too many be ended later.
    """
    bench.watch.until(lambda _: all(map(_is_grown, bench.cloud.instances())), "grown", SETTLED_WITHIN_S)


def _is_grown(instance: Mapping[str, Any]) -> bool:
    return bool(time.time() - instance["launched_at"] > timing.ORPHAN_GRACE_S)


def _healthy(bench: Bench) -> set[str]:
    elb = bench.operator.session.client("elbv2")
    answer = elb.describe_target_health(TargetGroupArn=bench.spec.target_group_arn)
    targets = {t["Target"]["Id"]: t["TargetHealth"]["State"] for t in answer["TargetHealthDescriptions"]}
    return {id_ for id_, state in targets.items() if state == "healthy"}


def _set(ssm: Any, claim: str) -> None:
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=claim, Type="String", Overwrite=True)


def _no_id_is_given_twice(before: Facts, after: Facts) -> None:
    was = {r.id: r.instance_id for r in before.ever}
    now = {r.id: r.instance_id for r in after.ever}
    assert all(now[id_] == was[id_] for id_ in was.keys() & now.keys() if was[id_])
    assert all(id_ > max(was) for id_ in now.keys() - was.keys())
