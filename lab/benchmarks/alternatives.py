"""What SpotRelay's handling of a batch is measured beside, written the way one would write it by hand.

`Bare` makes the six calls that a batch of warnings of one service can't do without, if every loss is to be
replaced once, by a replica with the next ID, and found again after a crash, and nothing else:

1. BatchGetItem: whose instances are these? A rule can't ask for a tag, so foreign ones come along.
2. UpdateItem: the next IDs.
3. TransactWriteItems: the losses, their replacements and the intent to launch, each under its condition, or a
   crash between here and the answer leaves instances that nobody knows, and a repeated event replaces twice.
4. DeregisterTargets, once it is on record: else two functions could each take out one of the last two.
5. CreateFleet: the replacements.
6. TransactWriteItems: which instance each of them got, and the intent is done.

It parses no configuration, keeps no lesson of the loss, tells nobody, and brings no tick that would finish
what fails; and of a batch that comes twice it loses the IDs.

`Sample` is what AWS's own samples and most of their heirs do: EventBridge calls the function with one event,
which looks the instance up, takes it out of the load balancer and launches another. No table, no memory: an
event that comes twice launches twice. The two samples in github.com/awslabs/ec2-spot-labs differ in one thing
that shows: the one that takes instances out of a target group makes its boto3 clients for each event, the one
that detaches them from an Auto Scaling group (ec2-spot-interruption-handler) once. So there are both.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3

from lab.benchmarks.world import TABLE
from spotrelay.plane.core.spec import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_elbv2 import ElasticLoadBalancingv2Client


def _fleet(spec: ServiceSpec, token: str, count: int) -> dict[str, Any]:
    """CreateFleet's parameters: every type in every zone."""
    return {
        "Type": "instant",
        "ClientToken": token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": spec.launch_template_id, "Version": "1"},
                "Overrides": [
                    {"InstanceType": instance_type, "SubnetId": subnet}
                    for instance_type in spec.instance_types
                    for subnet in spec.subnets
                ],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": "spot"},
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": "spotrelay:service", "Value": spec.service}]}
        ],
    }


class Bare:
    """The calls that can't be done without."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._spec = spec
        self._overrides = _fleet(spec, "", 0)
        self._dynamodb = boto3.client("dynamodb")
        self._ec2 = boto3.client("ec2")
        self._elbv2 = boto3.client("elbv2")

    def handle(self, event: Mapping[str, Any]) -> None:
        """One batch."""
        warned = [json.loads(record["body"])["detail"]["instance-id"] for record in event["Records"]]
        keys = [{"PK": {"S": f"INSTANCE#{instance_id}"}, "SK": {"S": "META"}} for instance_id in warned]
        found = self._dynamodb.batch_get_item(RequestItems={TABLE: {"Keys": keys, "ConsistentRead": True}})
        replica_of = {item["PK"]["S"][9:]: int(item["replica"]["N"]) for item in found["Responses"][TABLE]}
        replaced_by = self._next_ids(list(replica_of.values()))
        launch_id, now = uuid.uuid4().hex, datetime.now(UTC).isoformat()
        intent = self._key(f"LAUNCH#{launch_id}")
        self._dynamodb.transact_write_items(
            TransactItems=[
                *(self._lost(old, new, now) for old, new in replaced_by.items()),
                *(self._replacement(old, new, launch_id, now) for old, new in replaced_by.items()),
                {"Put": {"TableName": TABLE, "Item": {**intent, "at": {"S": now}}}},
            ]
        )
        self._elbv2.deregister_targets(
            TargetGroupArn=self._spec.target_group_arn,
            Targets=[{"Id": instance_id, "Port": self._spec.port} for instance_id in replica_of],
        )
        answer = self._ec2.create_fleet(
            **{
                **self._overrides,
                "ClientToken": launch_id,
                "TargetCapacitySpecification": {
                    "TotalTargetCapacity": len(replaced_by),
                    "DefaultTargetCapacityType": "spot",
                },
            }
        )
        launched = [(i, fleet) for fleet in answer["Instances"] for i in fleet["InstanceIds"]]
        got = list(zip(replaced_by.values(), launched, strict=True))
        self._dynamodb.transact_write_items(
            TransactItems=[
                *(self._got(new, instance_id, fleet, now) for new, (instance_id, fleet) in got),
                *(self._entry(new, instance_id) for new, (instance_id, _) in got),
                {"Delete": {"TableName": TABLE, "Key": intent}},
            ]
        )

    def _next_ids(self, replaced: Sequence[int]) -> dict[int, int]:
        """Who replaces whom: the highest ID so far and those after it."""
        counted = self._dynamodb.update_item(
            TableName=TABLE,
            Key=self._key("META"),
            UpdateExpression="ADD highest_id :count",
            ExpressionAttributeValues={":count": {"N": str(len(replaced))}},
            ReturnValues="ALL_NEW",
        )
        highest = int(counted["Attributes"]["highest_id"]["N"])
        return {old: highest - n for n, old in enumerate(reversed(replaced))}

    def _lost(self, id_: int, replaced_by: int, now: str) -> TransactWriteItemTypeDef:
        return self._update(
            id_,
            "SET #s = :draining, warned_at = :now, replaced_by = :by, revision = :one",
            "#s = :ready",
            {
                ":draining": {"S": "DRAINING"},
                ":ready": {"S": "READY"},
                ":now": {"S": now},
                ":one": {"N": "1"},
                ":by": {"N": str(replaced_by)},
            },
        )

    def _replacement(self, replaces: int, id_: int, launch_id: str, now: str) -> TransactWriteItemTypeDef:
        item = {
            **self._replica_key(id_),
            "service": {"S": self._spec.service},
            "id": {"N": str(id_)},
            "version": {"N": "1"},
            "state": {"S": "REQUESTED"},
            "reason": {"S": "interruption warning"},
            "entered": {"M": {"REQUESTED": {"S": now}}},
            "launch_id": {"S": launch_id},
            "replaces": {"N": str(replaces)},
            "revision": {"N": "0"},
        }
        return {"Put": {"TableName": TABLE, "Item": item, "ConditionExpression": "attribute_not_exists(PK)"}}

    def _got(
        self, id_: int, instance_id: str, fleet: Mapping[str, Any], now: str
    ) -> TransactWriteItemTypeDef:
        chosen = fleet["LaunchTemplateAndOverrides"]["Overrides"]
        return self._update(
            id_,
            "SET #s = :provisioning, instance = :instance, kind = :type, subnet = :subnet, at = :now",
            "#s = :requested",
            {
                ":provisioning": {"S": "PROVISIONING"},
                ":requested": {"S": "REQUESTED"},
                ":instance": {"S": instance_id},
                ":type": {"S": chosen["InstanceType"]},
                ":subnet": {"S": chosen["SubnetId"]},
                ":now": {"S": now},
            },
        )

    def _entry(self, id_: int, instance_id: str) -> TransactWriteItemTypeDef:
        item = {
            "PK": {"S": f"INSTANCE#{instance_id}"},
            "SK": {"S": "META"},
            "service": {"S": self._spec.service},
            "replica": {"N": str(id_)},
        }
        return {"Put": {"TableName": TABLE, "Item": item}}

    def _update(
        self, id_: int, expression: str, condition: str, values: Mapping[str, Any]
    ) -> TransactWriteItemTypeDef:
        return {
            "Update": {
                "TableName": TABLE,
                "Key": self._replica_key(id_),
                "UpdateExpression": expression,
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {"#s": "state"},
                "ExpressionAttributeValues": values,
            }
        }

    def _replica_key(self, id_: int) -> dict[str, Any]:
        return self._key(f"REPLICA#{id_:09d}")

    def _key(self, sort: str) -> dict[str, Any]:
        return {"PK": {"S": f"SERVICE#{self._spec.service}"}, "SK": {"S": sort}}


class Sample:
    """One event, one instance, three calls."""

    def __init__(self, spec: ServiceSpec, *, keeps_clients: bool) -> None:
        self._spec = spec
        self._clients = self._make_clients() if keeps_clients else None

    def handle(self, event: Mapping[str, Any]) -> None:
        """One warning."""
        ec2, elbv2 = self._clients or self._make_clients()
        instance_id = event["detail"]["instance-id"]
        described = ec2.describe_instances(InstanceIds=[instance_id])
        instance = described["Reservations"][0]["Instances"][0]
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        if tags["spotrelay:service"] != self._spec.service:
            return
        elbv2.deregister_targets(
            TargetGroupArn=self._spec.target_group_arn, Targets=[{"Id": instance_id, "Port": self._spec.port}]
        )
        ec2.create_fleet(**_fleet(self._spec, uuid.uuid4().hex, 1))

    def handle_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """One invocation after the other."""
        for event in events:
            self.handle(event)

    @staticmethod
    def _make_clients() -> tuple[EC2Client, ElasticLoadBalancingv2Client]:
        return boto3.client("ec2"), boto3.client("elbv2")
