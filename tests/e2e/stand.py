"""A deployment in a local cloud, and what a test needs to act on it and to look at it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import boto3

from lab.demo.operator import Operator
from lab.local.environment import EC2_WARNING_S, REGION
from spotrelay.operator.aws.log_lines import lines
from spotrelay.operator.look.watch import Snapshot, Watch
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import (
    CONTROL_PLANE_PARAMETER,
    COUNTED,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    Alarm,
    Metric,
    alarms_prefix,
    service_parameter,
)
from spotrelay.plane.core.ports import Conflict
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.incidents import CAUSES

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

SERVICE = "demo"

WARNING = "EC2 Spot Instance Interruption Warning"
"""The event's `detail-type`."""

MINUTE_S = 6.0
"""How long the schedule's minute is: ticks at rest, which tests wait for, are ten times as frequent."""

WITHIN_S = 240.0
"""A bound on what takes seconds, or a minute where a killed tick's lease holds, for machines that are busy
otherwise; nothing is judged by its speed."""

POLL_S = 0.5
"""Each look is two queries or more: workers that look five times a second would keep a processor busy."""


Record = TypeVar("Record", Incidents, AlarmState, Replica)


class Stand:
    """A service, deployed. Tests share it: each leaves a whole fleet behind."""

    def __init__(self, operator: Operator, service: str = SERVICE) -> None:
        self.operator = operator
        self.service = service
        self.cloud = operator.cloud
        self.outputs = operator.deployment.control_plane
        self.watch = Watch(operator.store, service, lambda _: None, sleep=lambda _: time.sleep(POLL_S))
        self._sqs = operator.session.client("sqs")
        self._cloudwatch = operator.session.client("cloudwatch")

    @property
    def spec(self) -> ServiceSpec:
        """The service's runtime document, never an old one."""
        return ServiceSpec.from_json(self.document())

    def whole(self, replicas: int, within_s: float = WITHIN_S) -> Snapshot:
        """Wait for exactly so many replicas, all serving."""
        return self.watch.until(
            lambda seen: len(seen.ready) == len(seen.present) == replicas,
            f"{replicas} replicas that serve",
            within_s,
        )

    def want(self, replicas: int) -> None:
        """Change the number of replicas, as deploying a changed service file does."""
        self.change(replicas=replicas)

    def change(self, **settings: object) -> None:
        """Change settings of the runtime document, as deploying a changed service file does."""
        value = json.dumps({**json.loads(self.document()), **settings})
        ssm = self.operator.session.client("ssm")
        ssm.put_parameter(Name=service_parameter(self.service), Value=value, Type="String", Overwrite=True)

    def document(self) -> str:
        """The service's parameter."""
        ssm = self.operator.session.client("ssm")
        return str(ssm.get_parameter(Name=service_parameter(self.service))["Parameter"]["Value"])

    def until_state(self, replica_id: int, state: ReplicaState) -> Replica:
        """Wait until the replica is in the state."""
        seen = self.watch.until(
            lambda seen: seen.replicas[replica_id].state is state, f"replica {replica_id} {state}", WITHIN_S
        )
        return seen.replicas[replica_id]

    def targets(self) -> set[str]:
        """The instances in the service's target group, whatever their health."""
        elb = self.operator.session.client("elbv2")
        found = elb.describe_target_health(TargetGroupArn=self.spec.target_group_arn)
        return {target["Target"]["Id"] for target in found["TargetHealthDescriptions"]}

    def balancer(self) -> Mapping[str, Any]:
        """The service's load balancer, as ELB describes it."""
        elb = self.operator.session.client("elbv2")
        (group,) = elb.describe_target_groups(TargetGroupArns=[self.spec.target_group_arn])["TargetGroups"]
        found = elb.describe_load_balancers(LoadBalancerArns=group["LoadBalancerArns"])
        return dict(*found["LoadBalancers"])

    def deliver(self, *bodies: str) -> None:
        """Put messages into the signal queue, in one batch, and wait until none is left there."""
        queue = self.outputs["SignalQueueUrl"]
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        self._sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        self.nothing_waits(queue)

    def nothing_waits(self, queue: str) -> None:
        """Wait until no message of a queue is due, under way, or hidden after a failure."""
        self.eventually(lambda: self._waiting(queue) == 0, f"{queue} is empty")

    @contextmanager
    def nobody_takes(self, queue_arn: str) -> Iterator[None]:
        """No function is fed from a queue meanwhile."""
        functions: Any = self.operator.session.client("lambda")
        (mapping,) = functions.list_event_source_mappings(EventSourceArn=queue_arn)["EventSourceMappings"]
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        try:
            yield
        finally:
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)

    def due(self, queue: str) -> int:
        """Messages of a queue that wait for their turn."""
        return self._number(queue, "ApproximateNumberOfMessages")

    def taken(self, queue: str) -> int:
        """Messages of a queue that are under way, or hidden after a failure."""
        return self._number(queue, "ApproximateNumberOfMessagesNotVisible")

    def assume(self, name: str, *actions: str) -> boto3.Session:
        """A new principal of the account that may do so much, and nothing else."""
        iam, sts = (self.operator.session.client(service) for service in ("iam", "sts"))
        trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy(trust))["Role"]["Arn"]
        if actions:
            grant = {"Effect": "Allow", "Action": actions, "Resource": "*"}
            iam.put_role_policy(RoleName=name, PolicyName="grant", PolicyDocument=_policy(grant))
        keys = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
        return boto3.Session(
            keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name=REGION
        )

    def dead_letters(self) -> list[Mapping[str, Any]]:
        """Take everything out of the dead-letter queue: as SQS gives it."""
        url = self.outputs["DeadLetterQueueUrl"]
        found: list[Mapping[str, Any]] = []
        while messages := self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            for message in messages:
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found += messages
        return found

    def warning(self, instance_id: str) -> str:
        """The interruption warning of a warned instance: two minutes before its end, as EC2's is."""
        record = next(i for i in self.cloud.interruptions() if i["instance_id"] == instance_id)
        end = datetime.fromtimestamp(record["warned_at"], UTC) + timedelta(
            seconds=self.cloud.settings()["warning_s"]
        )
        return event(
            WARNING,
            {"instance-id": instance_id, "instance-action": "terminate"},
            end - timedelta(seconds=EC2_WARNING_S),
        )

    def count(self, metric: Metric, service: str = METRICS_NO_SERVICE) -> float:
        """What the functions' logs have counted in the last hour, summed."""
        counted = self._counted(service, datetime.now(UTC) - timedelta(hours=1))
        return float(sum(one.get(metric, 0) for one in counted))

    def _ticks(self, since: datetime) -> list[Mapping[str, Any]]:
        """What each tick of the service that has ended since then counted."""
        return [one for one in self._counted(self.service, since) if Metric.REPLICAS_READY in one]

    def _counted(self, service: str, since: datetime) -> Iterator[Mapping[str, Any]]:
        """What invocations that ended since then counted of a service, each."""
        for _, line in lines(Clients(self.operator.session), self._log_groups(), COUNTED, since):
            if (line.get("message"), line.get(METRICS_DIMENSION)) == (COUNTED, service):
                yield line

    def _log_groups(self) -> list[str]:
        ssm = self.operator.session.client("ssm")
        value = ssm.get_parameter(Name=CONTROL_PLANE_PARAMETER)["Parameter"]["Value"]
        groups: list[str] = json.loads(value)["log_groups"]
        return groups

    def alarm_states(self, queue_url: str) -> set[str]:
        """States of the alarms on the queue's depth."""
        name = queue_url.rsplit("/", 1)[-1]
        pages = self._cloudwatch.get_paginator("describe_alarms").paginate()
        alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
        return {
            alarm["StateValue"]
            for alarm in alarms
            if {"Name": "QueueName", "Value": name}
            in [
                *alarm.get("Dimensions", []),
                *(
                    dimension
                    for query in alarm.get("Metrics", [])
                    for dimension in query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", [])
                ),
            ]
        }

    def until_alarm(self, metric: Metric, state: str = "ALARM", service: str = METRICS_NO_SERVICE) -> None:
        """Wait until every alarm on a metric of ours is in the state; there must be one."""
        dimension = {"Name": METRICS_DIMENSION, "Value": service}

        def states() -> set[str]:
            alarms = self._cloudwatch.describe_alarms_for_metric(
                Namespace=METRICS_NAMESPACE, MetricName=str(metric), Dimensions=[dimension]
            )["MetricAlarms"]
            # Those of another service, too, from the local cloud, which doesn't look at the dimensions.
            return {alarm["StateValue"] for alarm in alarms if alarm["Dimensions"] == [dimension]}

        assert states(), f"no alarm looks at {metric} of {service}"
        self.eventually(lambda: states() == {state}, f"the alarm on {metric} in state {state}")

    def ringing(self) -> set[Alarm]:
        """The service's alarms that ring, of those that ticks feed."""
        by_name = {f"{alarms_prefix(self.service)}{alarm}": alarm for alarm in CAUSES}
        found = self._cloudwatch.describe_alarms(AlarmNames=list(by_name), StateValue="ALARM")
        return {by_name[alarm["AlarmName"]] for alarm in found["MetricAlarms"]}

    def until_rings(self, alarm: Alarm, *, rings: bool = True) -> None:
        """Let minutes pass until it rings, or no longer does."""

        def is_so() -> bool:
            if (alarm in self.ringing()) is rings:
                return True
            self.pass_minutes()
            return False

        self.eventually(is_so, f"{self.service}: {alarm} {'rings' if rings else 'has cleared'}")

    def pass_minutes(self, minutes: float = 1) -> None:
        """Let them pass for CloudWatch and for what is on record of the alarms, and a tick run in them.

        Two ticks end: the first may have read the record before it was older, and then it tells nothing.
        """
        self.cloud.age_metrics(minutes * 60)
        self.age_incidents(minutes * 60)
        self.two_ticks_end()

    def two_ticks_end(self) -> None:
        """Wait until they have: the second began after this."""
        began = datetime.now(UTC)
        self.eventually(lambda: len(self._ticks(began)) >= 2, f"two ticks of {self.service} end")

    def age_incidents(self, by_s: float) -> None:
        """Have all that is on record of the service's alarms have happened so much earlier."""
        store = self.operator.store

        def refusals() -> None:
            rows = store.load(self.service).replicas.values()
            if refused := tuple(_earlier(r, by_s, "blocked_at") for r in rows if r.blocked_at):
                store.commit(Changes(self.service, update=refused))

        def incidents() -> None:
            record = store.load(self.service).incidents
            alarms = {
                alarm: _earlier(state, by_s, "since", "minute") for alarm, state in record.alarms.items()
            }
            earlier = _earlier(
                record, by_s, "nothing_since", "missing_since", "unlaunched_since", "blocked_at"
            )
            store.note_incidents(self.service, replace(earlier, alarms=alarms))

        self.written(refusals)
        self.written(incidents)

    def written(self, write: Callable[[], None]) -> None:
        """Write to the table what was read from it, unless a tick has just written it: then once more."""

        def is_done() -> bool:
            try:
                write()
            except Conflict:
                return False
            return True

        self.eventually(is_done, "a row is written")

    def make_cold(self, output: str) -> None:
        """Start a function anew, so that it has read nothing; `output` of the stack names it."""
        functions = self.operator.session.client("lambda")
        name = self.outputs[output]
        variables = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})

    def calls(self, role: str, since: int = 0) -> list[dict[str, Any]]:
        """AWS calls that a function's role made after call number `since`; `role` as an output names it."""
        return [call for call in self.cloud.calls(since) if call["role"] == self.outputs[role]]

    def last_call(self) -> int:
        """Number of the latest AWS call."""
        calls = self.cloud.calls()
        return int(calls[-1]["n"]) if calls else 0

    def eventually(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not within {WITHIN_S:.0f} s"
            time.sleep(POLL_S)

    def _waiting(self, queue: str) -> int:
        """Messages that are due, under way, or hidden after a failure.

        Not those that are delayed: a service with fallbacks always has a tick announced for later.
        """
        return self.due(queue) + self.taken(queue)

    def _number(self, queue: str, name: QueueAttributeNameType) -> int:
        attributes = self._sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"]
        return int(attributes[name])


def _earlier(record: Record, by_s: float, *names: str) -> Record:
    """It with those of these times that it has moved into the past."""
    found = {name: at - seconds(by_s) for name in names if (at := getattr(record, name))}
    return replace(record, **found)


def _policy(statement: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def event(detail_type: str, detail: Mapping[str, Any], at: datetime | None = None) -> str:
    """An event of EC2's as EventBridge puts it into a queue; of now, if nothing else is said."""
    at = at or datetime.now(UTC)
    return json.dumps(
        {
            "version": "0",
            "id": secrets.token_hex(16),
            "detail-type": detail_type,
            "source": "aws.ec2",
            "account": "000000000000",
            "time": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "region": "us-east-1",
            "resources": [],
            "detail": dict(detail),
        }
    )
