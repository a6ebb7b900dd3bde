"""Events that aren't what they should be, through the deployed rules, queues, functions and permissions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from lab.local.environment import ACCOUNT, REGION
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.ticker import SqsTicker
from spotrelay.plane.core.names import EVENT_SOURCE, Env, Metric
from spotrelay.plane.core.notices import NoticeKind
from spotrelay.plane.core.replica import ReplicaState
from stacks.control_plane import TICK_CONCURRENCY
from tests import schemas
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import SERVICE, WARNING, WITHIN_S, Stand, event

SLOW_TICKS = 40 * TICK_CONCURRENCY
"""Of four seconds each, so that the last of them wait for longer than anybody here."""


def test_malformed_events_are_set_aside_and_the_rest_of_the_batch_is_processed(stand: Stand) -> None:
    """What can't be read goes to the dead-letter queue and raises its alarm; a warning beside it is met."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    broken = event(WARNING, {"instance-action": "terminate"})
    good = event(WARNING, {"instance-id": victim.instance_id, "instance-action": "terminate"})
    stand.deliver("{not JSON", broken, good)
    drained = stand.until_state(victim.id, ReplicaState.DRAINING)
    assert drained.reason == "interruption warning"
    # EC2 takes it only now: a tick that finds it marked for its end can't have been quicker than the batch.
    stand.cloud.warn(victim.instance_id, deliver="lost")
    dead_letters = stand.outputs["DeadLetterQueueUrl"]
    stand.eventually(
        lambda: stand.alarm_states(dead_letters) == {"ALARM"}, "the alarm of the dead-letter queue"
    )
    letters = stand.dead_letters()
    assert {message["Body"] for message in letters} == {"{not JSON", broken}
    assert {message["MessageAttributes"]["source"]["StringValue"] for message in letters} == {"signals"}
    seen = stand.watch.until(lambda seen: len(seen.ready) == 3, "three replicas that serve", WITHIN_S)
    assert len(seen.replacements(victim.id)) == 1


def test_an_unknown_event_is_ignored_and_counted(stand: Stand) -> None:
    """AWS may add event types at any time: one that we don't know does nothing but count."""
    Bench(stand.operator, SERVICE).nothing_is_under_way()
    before = stand.count(Metric.SIGNALS_IGNORED)
    since = stand.last_call()
    stand.deliver(event("EC2 Instance Got A Promotion", {"instance-id": "i-0123456789abcdef0"}))
    stand.eventually(lambda: stand.count(Metric.SIGNALS_IGNORED) == before + 1, "one ignored signal counted")
    assert stand.calls("OnSignalRole", since) == []
    assert stand.dead_letters() == []


def test_a_foreign_instance_costs_one_read_and_no_call_to_ec2(stand: Stand) -> None:
    """EC2 tells us of every instance in the account: those that aren't ours are dropped after a look-up."""
    ec2 = stand.operator.session.client("ec2")
    foreign = ec2.run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        InstanceMarketOptions={"MarketType": "spot"},
    )["Instances"][0]["InstanceId"]
    stand.eventually(
        lambda: any(i["instance_id"] == foreign and i["state"] == "running" for i in stand.cloud.instances()),
        "the foreign instance runs",
    )
    Bench(stand.operator, SERVICE).nothing_is_under_way()
    before = stand.count(Metric.FOREIGN_INSTANCES)
    since = stand.last_call()
    stand.cloud.warn(foreign)
    stand.eventually(lambda: stand.count(Metric.FOREIGN_INSTANCES) > before, "a foreign instance counted")
    calls = [call["action"] for call in stand.calls("OnSignalRole", since)]
    assert calls
    assert set(calls) == {"BatchGetItem"}
    assert all(r.instance_id != foreign for r in stand.watch.look().replicas.values())


def test_a_warning_that_comes_late_makes_no_second_replacement(stand: Stand) -> None:
    """A warning about a replica that is draining, or gone, changes nothing."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.DRAINING)
    stand.deliver(stand.warning(victim.instance_id))
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    stand.deliver(stand.warning(victim.instance_id))
    seen = stand.whole(stand.spec.replicas)
    assert len(seen.replacements(victim.id)) == 1
    regular = [
        r.id for r in seen.replicas.values() if not r.is_fallback
    ]  # one may stand in on a busy machine
    assert max(regular) == seen.replacements(victim.id)[0].id
    assert stand.dead_letters() == []


def test_a_leave_waits_for_no_tick(stand: Stand) -> None:
    """While every turn of the ticks is taken, and more of them wait, it is looked at who must leave."""
    ticks = stand.outputs["TickQueueUrl"]
    functions = stand.operator.session.client("lambda")
    name = stand.outputs["ReconcileFunction"]
    env = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    ticker = SqsTicker(Clients(stand.operator.session), env[Env.TICK_QUEUE_URL], env[Env.LEAVE_QUEUE_URL])
    store = stand.operator.store
    # Ticks that find it taken read nothing: what is read is the leave's.
    stand.eventually(
        lambda: store.acquire(stand.service, "test", datetime.now(UTC), 3 * WITHIN_S), "no tick is at work"
    )
    # How each tick begins; botocore would wait longer.
    stand.cloud.inject_fault("UpdateItem", role=stand.outputs["ReconcileRole"], delay_s=4.0, for_s=WITHIN_S)
    try:
        for _ in range(SLOW_TICKS):
            ticker.schedule(stand.service)
        stand.eventually(lambda: stand.taken(ticks) == TICK_CONCURRENCY, "ticks take all turns")
        since = stand.last_call()
        ticker.schedule_leave(stand.service, 0)
        stand.eventually(
            lambda: any(call["action"] == "GetItem" for call in stand.calls("ReconcileRole", since)),
            "somebody looks who must leave",
        )
        assert stand.due(ticks), "ticks still wait for their turn"
    finally:
        stand.operator.session.client("sqs").purge_queue(QueueUrl=ticks)
        stand.cloud.clear_faults()
        store.release(stand.service, "test")
    stand.nothing_waits(ticks)


def test_our_own_events_reach_a_rule_of_somebody_else_s(stand: Stand) -> None:
    """A loss and its replacement are told to whoever listens on the bus, and each event fits its schema."""
    sqs, events = (stand.operator.session.client(name) for name in ("sqs", "events"))
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    url = sqs.create_queue(QueueName="what-happened", Attributes={"Policy": policy})["QueueUrl"]
    events.put_rule(Name="what-happened", EventPattern=json.dumps({"source": [EVENT_SOURCE]}))
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:what-happened"
    events.put_targets(Rule="what-happened", Targets=[{"Id": "queue", "Arn": arn}])
    unsent, denied = (stand.count(metric) for metric in (Metric.EVENTS_UNSENT, Metric.CALLS_DENIED))
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.warn(victim.instance_id)
    heard: dict[str, dict[str, Any]] = {}

    def has_heard() -> bool:
        taken = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for message in taken:
            told = json.loads(message["Body"])
            schemas.VALIDATORS[NoticeKind(told["detail-type"])].validate(told["detail"])
            if told["detail"]["service"] == stand.service:
                heard[told["detail-type"]] = told["detail"]
        return {"ReplicaLost", "ReplicaReplaced", "ReplicaReady"} <= heard.keys()

    stand.eventually(has_heard, "the loss and its replacement are told")
    replaced = heard["ReplicaReplaced"]
    assert (replaced["replica"], replaced["instance"]) == (victim.id, victim.instance_id)
    assert replaced["warned"]
    assert replaced["lost_at"] <= replaced["by"]["launched_at"] < replaced["by"]["ready_at"]
    # What an invocation counted is written at its end; events are sent before.
    stand.eventually(lambda: stand.count(Metric.WARNING_TO_READY_MS, stand.service) > 0, "it is counted")
    assert stand.count(Metric.LOSSES_WARNED, stand.service) >= 1
    assert (stand.count(Metric.EVENTS_UNSENT), stand.count(Metric.CALLS_DENIED)) == (unsent, denied)
