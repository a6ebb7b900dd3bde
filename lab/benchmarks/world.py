"""The services that are measured, as stacks and controller would have left them in AWS, and messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from lab.benchmarks.loopback.account import LoopbackAccount
from lab.benchmarks.loopback.client import Loopback
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import SERVICES_PATH, Env, service_parameter
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnWarning, ServiceSpec
from spotrelay.plane.serving.incidents import CAUSES

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from spotrelay.plane.aws.clients import Clients

TABLE = "spotrelay"

BATCH = 10
"""Messages per invocation: the most that SQS hands over at once, and what the control plane asks for."""

# A service such as services/llama3.yaml has ten to fifteen types; three zones is what a region has at least.
INSTANCE_TYPES = tuple(f"{family}.{n}xlarge" for family in ("g5", "g6") for n in (2, 4, 8, 12, 16, 24, 48))
SUBNETS = {f"subnet-0a1b2c3d4e5f6071{zone}": f"us-east-1{zone}" for zone in "abc"}

SETTLED_IN = 3
"""Pools that a service's replicas are in. EC2 takes back a pool as a whole, and launches rarely end in many:
were they spread over all, a burst would leave no pool worth asking."""


@dataclass
class _Context:
    """What a log line tells of Lambda's context."""

    aws_request_id: str
    function_name: str = "on_signal"
    memory_limit_in_mb: int = 1769
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:on_signal"

    def get_remaining_time_in_millis(self) -> int:
        """A whole time-out: nothing is put off for want of time."""
        return 60_000


def context(request_id: str = "8f507cfc-xmpl-4697-b07a-ac58fc914c95") -> LambdaContext:
    """An invocation's context."""
    return cast("LambdaContext", _Context(request_id))


def settings(server: Loopback) -> dict[str, str]:
    """The environment that the control plane's stack gives its functions."""
    return {
        Env.TABLE: TABLE,
        Env.TICK_QUEUE_URL: f"{server.url}/000000000000/ticks",
        Env.LEAVE_QUEUE_URL: f"{server.url}/000000000000/leaves",
        Env.DEAD_LETTER_QUEUE_URL: f"{server.url}/000000000000/dead-letters",
        Env.SERVICES_PATH: SERVICES_PATH,
        "POWERTOOLS_SERVICE_NAME": "SpotRelay",
    }


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """A service at rest: so many replicas, all ready, on Spot, in the first pools in turn."""

    name: str
    replicas: int
    number: int = 0
    """Tells its instances from other services'."""

    @property
    def spec(self) -> ServiceSpec:
        """Its runtime document."""
        return ServiceSpec(
            service=self.name,
            version=1,
            replicas=self.replicas,
            use_spot=True,
            instance_types=INSTANCE_TYPES,
            ordered=False,
            subnets=SUBNETS,
            launch_template_id="lt-0a1b2c3d4e5f60718",
            target_group_arn=f"arn:aws:elasticloadbalancing:us-east-1:000000000000:targetgroup/{self.name}/6d0ecf831eec9f09",
            port=8081,
            # The brake is for mistakes. Here as many are lost as are asked for.
            max_launches_per_minute=1_000_000,
            # As the alternatives do, which deregister at the warning.
            on_warning=OnWarning.LEAVE,
            alarms=tuple(alarm.value for alarm in CAUSES),
        )

    def instance_id(self, replica: int) -> str:
        """The instance that the replica runs on."""
        return f"i-{self.number:x}{replica:016x}"

    def load_into(self, server: Loopback) -> None:
        """Make the server answer as AWS would with this service in it."""
        rows = list(self._rows())
        server.load(
            items=_items(self.name, rows),
            parameters={service_parameter(self.name): json.dumps(self.spec.to_dict())},
            instances={
                self.name: [
                    {
                        "id": str(row.instance_id),
                        "instance_type": row.offering.pool.instance_type,
                        "zone": row.offering.pool.zone,
                        "service": self.name,
                        "launch": str(row.launch_id),
                    }
                    for row in rows
                    if row.offering
                ]
            },
        )

    def _rows(self) -> Iterator[Replica]:
        began = datetime.now(UTC) - timedelta(days=1)
        up = [ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY]
        pools = itertools.cycle(self.spec.pools[:SETTLED_IN])
        for id_ in range(1, self.replicas + 1):
            yield Replica(
                service=self.name,
                id=id_,
                version=1,
                state=ReplicaState.READY,
                reason="fewer replicas than desired",
                entered={state: began + timedelta(seconds=60 * n) for n, state in enumerate(up)},
                offering=Offering(next(pools), PurchaseOption.SPOT),
                instance_id=self.instance_id(id_),
                port=8081,
                launch_id=f"{int(began.timestamp() * 1000):012x}{id_:020x}",
            )


def _items(service: str, rows: Sequence[Replica]) -> list[Mapping[str, Any]]:
    """The rows as the production store writes them."""
    from spotrelay.plane.aws.store import DynamoStore
    from spotrelay.plane.aws.table import Table

    into = LoopbackAccount()
    store = DynamoStore(Table(cast("Clients", _Clients(into)), TABLE))
    for start in range(0, len(rows), Changes.MAX_ROWS):
        part = rows[start : start + Changes.MAX_ROWS]
        # A row gets its instance as it becomes PROVISIONING; that is when the instance gets its entry.
        got = tuple(replace(row, state=ReplicaState.PROVISIONING) for row in part)
        store.commit(Changes(service, highest_id=(start, start + len(part)), create=got))
        store.commit(Changes(service, update=tuple(part), serving=(start, start + len(part))))
    # It has been at rest for long: its alarms have heard so.
    quiet = dict.fromkeys(CAUSES, AlarmState())
    store.note_incidents(service, Incidents(version=1, alarms=quiet, serves=True))
    return list(into.items)


class _Clients:
    """Stands in for `Clients`: a DynamoDB that is in this process."""

    def __init__(self, account: LoopbackAccount) -> None:
        self._account = account

    @property
    def dynamodb(self) -> _Clients:
        return self

    def transact_write_items(self, **request: Any) -> None:
        self._account.json_call("dynamodb.TransactWriteItems", json.dumps(request).encode())

    def put_item(self, **request: Any) -> None:
        self._account.json_call("dynamodb.PutItem", json.dumps(request).encode())


def warning(instance_id: str, at: datetime | None = None) -> str:
    """EC2's event, as EventBridge puts it on the queue."""
    moment = (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps(
        {
            "version": "0",
            "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": "123456789012",
            "time": moment,
            "region": "us-east-1",
            "resources": [f"arn:aws:ec2:us-east-1b:instance/{instance_id}"],
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


def sqs_event(bodies: Sequence[str]) -> dict[str, Any]:
    """What Lambda hands to a function that a queue feeds."""
    return {"Records": [_record(n, body) for n, body in enumerate(bodies)]}


def _record(n: int, body: str) -> dict[str, Any]:
    return {
        "messageId": f"059f36b4-87a3-44ab-83d2-{n:012d}",
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1795000000000",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1795000000010",
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:signals",
        "awsRegion": "us-east-1",
    }


def batches(bodies: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The messages, ten at a time."""
    for start in range(0, len(bodies), BATCH):
        yield sqs_event(bodies[start : start + BATCH])
