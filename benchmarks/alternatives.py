"""What SpotRelay's handling of a batch is measured beside, written the way one would write it by hand.

`Bare` makes the five calls that a batch of warnings of one service can't do without, if every loss is to be
replaced once and found again after a crash, and nothing else:

1. BatchGetItem: whose instances are these? A rule can't ask for a tag, so foreign ones come along.
2. DeregisterTargets: what the clients feel.
3. TransactWriteItems: the losses, their replacements and the intent to launch, each under its condition, or a
   crash between here and the answer leaves instances that nobody knows, and a repeated event replaces twice.
4. CreateFleet: the replacements.
5. TransactWriteItems: which instance each of them got, and the intent is done.

It parses no configuration, keeps no lesson of the loss, tells nobody, and brings no tick that would finish
what fails.

`Sample` is what AWS's own samples and most of their heirs do (spot-labs' ec2-spot-interruption-handler and
the functions that people derive from it): EventBridge calls the function with one event, which looks the
instance up, takes it out of the load balancer and launches another. No table, no memory: an event that comes
twice launches twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.world import TABLE
from spotrelay.model import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


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
        replica_of = {item["PK"]["S"][9:]: item["replica"]["N"] for item in found["Responses"][TABLE]}
        self._elbv2.deregister_targets(
            TargetGroupArn=self._spec.target_group_arn,
            Targets=[{"Id": instance_id, "Port": self._spec.port} for instance_id in replica_of],
        )
        launch_id, now = uuid.uuid4().hex, datetime.now(UTC).isoformat()
        intent = {"PK": {"S": f"SERVICE#{self._spec.service}"}, "SK": {"S": f"LAUNCH#{launch_id}"}}
        ids = list(replica_of.values())
        self._dynamodb.transact_write_items(
            TransactItems=[
                *(self._lost(id_, now) for id_ in ids),
                *(self._replacement(id_, launch_id, now) for id_ in ids),
                {"Put": {"TableName": TABLE, "Item": {**intent, "at": {"S": now}}}},
            ]
        )
        answer = self._ec2.create_fleet(
            **{
                **self._overrides,
                "ClientToken": launch_id,
                "TargetCapacitySpecification": {
                    "TotalTargetCapacity": len(ids),
                    "DefaultTargetCapacityType": "spot",
                },
            }
        )
        launched = [(i, fleet) for fleet in answer["Instances"] for i in fleet["InstanceIds"]]
        self._dynamodb.transact_write_items(
            TransactItems=[
                *(self._got(id_, i, fleet, now) for id_, (i, fleet) in zip(ids, launched, strict=True)),
                *(self._entry(id_, i) for id_, (i, _) in zip(ids, launched, strict=True)),
                {"Delete": {"TableName": TABLE, "Key": intent}},
            ]
        )

    def _lost(self, id_: str, now: str) -> TransactWriteItemTypeDef:
        return self._update(
            id_,
            "SET #s = :draining, warned_at = :now, replaced_by = :by, revision = :one",
            "#s = :ready",
            {":draining": {"S": "DRAINING"}, ":ready": {"S": "READY"}, ":now": {"S": now}, ":one": {"N": "1"}}
            | {":by": {"N": f"9{id_}"}},
        )

    def _replacement(self, id_: str, launch_id: str, now: str) -> TransactWriteItemTypeDef:
        item = {
            **self._key(f"9{id_}"),
            "service": {"S": self._spec.service},
            "id": {"N": f"9{id_}"},
            "version": {"N": "1"},
            "state": {"S": "REQUESTED"},
            "reason": {"S": "interruption warning"},
            "entered": {"M": {"REQUESTED": {"S": now}}},
            "launch_id": {"S": launch_id},
            "replaces": {"N": id_},
            "revision": {"N": "0"},
        }
        return {"Put": {"TableName": TABLE, "Item": item, "ConditionExpression": "attribute_not_exists(PK)"}}

    def _got(
        self, id_: str, instance_id: str, fleet: Mapping[str, Any], now: str
    ) -> TransactWriteItemTypeDef:
        chosen = fleet["LaunchTemplateAndOverrides"]["Overrides"]
        return self._update(
            f"9{id_}",
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

    def _entry(self, id_: str, instance_id: str) -> TransactWriteItemTypeDef:
        item = {
            "PK": {"S": f"INSTANCE#{instance_id}"},
            "SK": {"S": "META"},
            "service": {"S": self._spec.service},
            "replica": {"N": f"9{id_}"},
        }
        return {"Put": {"TableName": TABLE, "Item": item}}

    def _update(
        self, id_: str, expression: str, condition: str, values: Mapping[str, Any]
    ) -> TransactWriteItemTypeDef:
        return {
            "Update": {
                "TableName": TABLE,
                "Key": self._key(id_),
                "UpdateExpression": expression,
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {"#s": "state"},
                "ExpressionAttributeValues": values,
            }
        }

    def _key(self, id_: str) -> dict[str, Any]:
        return {"PK": {"S": f"SERVICE#{self._spec.service}"}, "SK": {"S": f"REPLICA#{int(id_):09d}"}}


class Sample:
    """One event, one instance, three calls."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._spec = spec
        self._ec2 = boto3.client("ec2")
        self._elbv2 = boto3.client("elbv2")

    def handle(self, event: Mapping[str, Any]) -> None:
        """One warning."""
        instance_id = event["detail"]["instance-id"]
        described = self._ec2.describe_instances(InstanceIds=[instance_id])
        instance = described["Reservations"][0]["Instances"][0]
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        if tags["spotrelay:service"] != self._spec.service:
            return
        self._elbv2.deregister_targets(
            TargetGroupArn=self._spec.target_group_arn, Targets=[{"Id": instance_id, "Port": self._spec.port}]
        )
        self._ec2.create_fleet(**_fleet(self._spec, uuid.uuid4().hex, 1))

    def handle_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """One invocation after the other."""
        for event in events:
            self.handle(event)
