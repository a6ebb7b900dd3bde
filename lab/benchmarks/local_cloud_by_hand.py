"""What the path is measured against: a function that EventBridge calls itself, and that makes three calls.

They are those that one replacement can't do without: put on record what is lost, what replaces it, its ID and
the launch, or that may be made twice or be forgotten; then deregister, as the product does only once it is on
record, or two functions could each take out one of the last two; then launch.

It has the permissions of the product's own function, so that IAM has the same to check, and everything that
it needs to know is in its code: no look-up, no idea whose instance it is. Its instances run nothing: their
booting takes no time from what is measured.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import Any

from lab.benchmarks.local_cloud import Stand
from spotrelay.plane.core.names import TAG_LAUNCH, TAG_SERVICE

NAME = "by-hand"
"""Of the function, its rule, its load balancer and its service."""

ROW_LENGTH = 600
"""Of a row's text, as the product's are."""

SOURCE = ["aws.ec2"]
PATTERN = {"source": SOURCE, "detail-type": ["EC2 Spot Instance Interruption Warning"]}

STOCK = 20
"""Instances to be interrupted: as many as the product's service has replicas."""

CODE = """
import json, pathlib
import botocore.session

session = botocore.session.get_session()  # all of boto3 that it takes, and sooner imported
ec2, elbv2, dynamodb = map(session.create_client, ("ec2", "elbv2", "dynamodb"))
request = json.loads(pathlib.Path(__file__).with_name("request.json").read_text())

def handler(event, context):
    print(event)  # as every function does
    instance_id = event["detail"]["instance-id"]
    record(instance_id)
    elbv2.deregister_targets(**request["deregister"], Targets=[{"Id": instance_id}])
    ec2.create_fleet(**request["launch"])

def record(instance_id):
    table, row = request["table"], {"S": "." * request["row_length"]}
    key = lambda sort: {"PK": {"S": "SERVICE#bench-" + instance_id}, "SK": {"S": sort}}
    put = lambda sort: {"TableName": table, "Item": {**key(sort), "row": row},
                        "ConditionExpression": "attribute_not_exists(PK)"}
    counts = {"TableName": table, "Key": key("META"),
              "UpdateExpression": "SET highest_id = :id, serving = :n",
              "ConditionExpression": "attribute_not_exists(highest_id) AND attribute_not_exists(serving)",
              "ExpressionAttributeValues": {":id": {"N": "1"}, ":n": {"N": "1"}}}
    dynamodb.transact_write_items(TransactItems=[
        {"Update": counts}, *({"Put": put(sort)} for sort in ("LOST", "REPLACEMENT", "INTENT"))])
"""


class ByHand:
    """The function and its rule, a load balancer, and instances: nothing that the product knows of."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        client = stand.client
        self._ec2, self._elbv2, self._lambda = client("ec2"), client("elbv2"), client("lambda")
        self._target_group = self._entrance()
        self._template = self._idle_template()
        self._registered: set[str] = set()
        role = client("iam").get_role(RoleName=stand.outputs["OnSignalRole"])["Role"]["Arn"]
        request = {
            "deregister": {"TargetGroupArn": self._target_group},
            "launch": self._fleet(1),
            "table": stand.outputs["TableName"],
            "row_length": ROW_LENGTH,
        }
        function = self._lambda.create_function(
            FunctionName=NAME,
            Runtime="python3.14",
            Role=role,
            Handler="function.handler",
            Code={"ZipFile": _zipped({"function.py": CODE, "request.json": json.dumps(request)})},
            Timeout=30,
            MemorySize=1769,
        )["FunctionArn"]
        self._have_called(client("events"), function)

    def victims(self) -> list[str]:
        """Spot instances in rotation that nobody has warned."""
        missing = STOCK - len(self._there("pending", "running"))
        if missing > 0:
            self._ec2.create_fleet(**self._fleet(missing))
        running = self._stand.eventually(
            lambda: self._there("running"), STOCK, "instances of the function by hand run", poll_s=0.2
        )
        new = [{"Id": id_} for id_ in running if id_ not in self._registered]
        if new:
            self._elbv2.register_targets(TargetGroupArn=self._target_group, Targets=new)
            self._registered.update(target["Id"] for target in new)
        return list(running)

    def _have_called(self, events: Any, function: str) -> None:
        """A rule, disabled, that gives the function every warning."""
        arn = events.put_rule(Name=NAME, EventPattern=json.dumps(PATTERN), State="DISABLED")["RuleArn"]
        self._lambda.add_permission(
            FunctionName=NAME,
            StatementId=NAME,
            Action="lambda:InvokeFunction",
            Principal="events.amazonaws.com",
            SourceArn=arn,
        )
        events.put_targets(Rule=NAME, Targets=[{"Id": "1", "Arn": function}])

    def _there(self, *states: str) -> list[str]:
        return [
            row["instance_id"]
            for row in self._stand.cloud.instances()
            if row["service"] == NAME and row["state"] in states and row["warned_at"] is None
        ]

    def _entrance(self) -> str:
        """A load balancer like the service's; its target group's ARN."""
        subnets = list(self._stand.spec.subnets)
        vpc = self._ec2.describe_subnets(SubnetIds=subnets[:1])["Subnets"][0]["VpcId"]
        group = self._elbv2.create_target_group(
            Name=NAME,
            Protocol="HTTP",
            Port=self._stand.spec.port,
            VpcId=vpc,
            TargetType="instance",
            HealthCheckPath="/",
            HealthCheckIntervalSeconds=300,
            Tags=[{"Key": TAG_SERVICE, "Value": NAME}],
        )["TargetGroups"][0]["TargetGroupArn"]
        balancer = self._elbv2.create_load_balancer(Name=NAME, Subnets=subnets, Type="application")
        self._elbv2.create_listener(
            LoadBalancerArn=balancer["LoadBalancers"][0]["LoadBalancerArn"],
            Protocol="HTTP",
            Port=80,
            DefaultActions=[{"Type": "forward", "TargetGroupArn": group}],
        )
        return str(group)

    def _idle_template(self) -> str:
        """The service's launch template with user data of the same length that starts nothing; its ID."""
        spec = self._stand.spec
        versions = self._ec2.describe_launch_template_versions(
            LaunchTemplateId=spec.launch_template_id, Versions=[str(spec.version)]
        )["LaunchTemplateVersions"]
        data = versions[0]["LaunchTemplateData"]
        # Told, but not to be said.
        data.get("MetadataOptions", {}).pop("State", None)
        length = len(base64.b64decode(data["UserData"]))
        data["UserData"] = base64.b64encode(b"#!/bin/true".ljust(length)).decode()
        made = self._ec2.create_launch_template(
            LaunchTemplateName=NAME,
            LaunchTemplateData=data,
            TagSpecifications=[
                {"ResourceType": "launch-template", "Tags": [{"Key": TAG_SERVICE, "Value": NAME}]}
            ],
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def _fleet(self, count: int) -> dict[str, Any]:
        """The product's own request: a template as large, the same pools, and tags as many."""
        spec = self._stand.spec
        subnet_in = {zone: subnet for subnet, zone in spec.subnets.items()}
        tags = [{"Key": TAG_SERVICE, "Value": NAME}, {"Key": TAG_LAUNCH, "Value": NAME}]
        return {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": self._template,
                        "Version": "1",
                    },
                    "Overrides": [
                        {"InstanceType": pool.instance_type, "SubnetId": subnet_in[pool.zone]}
                        for pool in spec.pools
                    ],
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": "spot",
            },
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [*tags, {"Key": "Name", "Value": NAME}]},
                {"ResourceType": "fleet", "Tags": tags},
            ],
        }


class Rules:
    """Which rules are enabled: those of one contestant at a time, as if it had the account to itself."""

    def __init__(self, stand: Stand) -> None:
        self._events = stand.client("events")
        pages = self._events.get_paginator("list_rules").paginate()
        rules = [rule for page in pages for rule in page["Rules"]]
        about_ec2 = [
            str(rule["Name"])
            for rule in rules
            if json.loads(rule.get("EventPattern", "{}")).get("source") == SOURCE
        ]
        self.product = frozenset(about_ec2) - {NAME}
        """Its warnings, rebalance recommendations and state changes."""
        self._enabled = frozenset(self.product)

    def only(self, names: frozenset[str]) -> None:
        """Let these rules alone be asked."""
        for rule in self._enabled - names:
            self._events.disable_rule(Name=rule)
        for rule in names - self._enabled:
            self._events.enable_rule(Name=rule)
        self._enabled = names


def _zipped(files: dict[str, str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return archive.getvalue()
