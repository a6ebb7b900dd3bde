"""What the path is measured against: a function that EventBridge calls itself, and that makes one call.

It has the permissions of the product's own function, so that IAM has the same to check, and everything that
it needs to know is in its code: no look-up, no record, no idea whose instance it is. One rule has it
deregister, another has it launch: so its processes, of which there are as many as instances lost at once, do
for both.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.local_cloud import Stand, eventually
from spotrelay.names import TAG_LAUNCH, TAG_SERVICE

NAME = "minimal"

DEREGISTER, LAUNCH = f"{NAME}-deregister", f"{NAME}-launch"
"""The two rules."""

PATTERN = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}

STOCK = 60
"""Instances to be interrupted: as many as the product's service has replicas."""

STARTING_AT_ONCE = 4
"""Processes: more only get in each other's way on two processors."""

TIMEOUT_S = 300
"""Of an invocation: until the last of the processes has started, when the machine has other work, too."""

CODE = """
import json, pathlib, time
import boto3

ec2, elbv2 = boto3.client("ec2"), boto3.client("elbv2")
request = json.loads(pathlib.Path(__file__).with_name("request.json").read_text())

def handler(event, context):
    if "deregister" in event:
        elbv2.deregister_targets(**request["deregister"], Targets=[{"Id": event["deregister"]}])
    elif "launch" in event:
        ec2.create_fleet(**request["launch"])
    else:
        start = pathlib.Path(event["start"])
        (start / context.aws_request_id).touch()
        while not (start / "go").exists():
            time.sleep(0.1)
"""


class Minimal:
    """The function and its rules, a load balancer, and instances: nothing that the product knows of."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        client = stand.operator.session.client
        self._ec2, self._elbv2, self._lambda = client("ec2"), client("elbv2"), client("lambda")
        self._target_group = self._entrance()
        self._registered: set[str] = set()
        role = client("iam").get_role(RoleName=stand.outputs["OnSignalRole"])["Role"]["Arn"]
        request = {"deregister": {"TargetGroupArn": self._target_group}, "launch": self._fleet(1)}
        function = self._lambda.create_function(
            FunctionName=NAME,
            Runtime="python3.14",
            Role=role,
            Handler="function.handler",
            Code={"ZipFile": _zipped({"function.py": CODE, "request.json": json.dumps(request)})},
            Timeout=TIMEOUT_S,
            MemorySize=1769,
        )["FunctionArn"]
        for rule, does in ((DEREGISTER, "deregister"), (LAUNCH, "launch")):
            self._have_called(client("events"), rule, function, does)

    def warm_up(self, processes: int) -> None:
        """Start so many processes: as if they were provisioned, so that none of them ever starts cold.

        The product isn't given that: it has the processes that its fleet's own events have started.
        """
        with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as directory:
            here = Path(directory)
            event = json.dumps({"start": directory}).encode()

            def wait_until_started(count: int) -> None:
                eventually(
                    lambda: len(list(here.iterdir())) >= count,
                    f"{count} processes of the minimal function",
                )

            for asked in range(1, processes + 1):
                self._lambda.invoke(FunctionName=NAME, InvocationType="Event", Payload=event)
                wait_until_started(asked - STARTING_AT_ONCE + 1)
            wait_until_started(processes)
            # Each waits for the last: one that is done would be given the next invocation.
            (here / "go").touch()
            self._stand.settle()

    def victims(self, count: int) -> list[str]:
        """So many Spot instances in rotation that nobody has warned. New ones come up meanwhile."""
        missing = STOCK - len(self._there("pending", "running"))
        if missing > 0:
            self._ec2.create_fleet(**self._fleet(missing))
        return eventually(lambda: self._in_rotation(count), f"{count} instances in rotation", poll_s=0.1)

    def _in_rotation(self, count: int) -> list[str] | None:
        running = self._there("running")
        new = [id_ for id_ in running if id_ not in self._registered]
        if new:
            targets = [{"Id": id_} for id_ in new]
            self._elbv2.register_targets(TargetGroupArn=self._target_group, Targets=targets)
            self._registered.update(new)
        healthy = self._healthy()
        found = [id_ for id_ in running if id_ in healthy]
        return found[:count] if len(found) >= count else None

    def _have_called(self, events: Any, rule: str, function: str, does: str) -> None:
        """A rule, disabled, that has the function do it with the warned instance."""
        arn = events.put_rule(Name=rule, EventPattern=json.dumps(PATTERN), State="DISABLED")["RuleArn"]
        self._lambda.add_permission(
            FunctionName=NAME,
            StatementId=rule,
            Action="lambda:InvokeFunction",
            Principal="events.amazonaws.com",
            SourceArn=arn,
        )
        asked = {
            "InputPathsMap": {"id": "$.detail.instance-id"},
            "InputTemplate": f'{{"{does}": <id>}}',
        }
        events.put_targets(Rule=rule, Targets=[{"Id": "1", "Arn": function, "InputTransformer": asked}])

    def _healthy(self) -> set[str]:
        described = self._elbv2.describe_target_health(TargetGroupArn=self._target_group)
        return {
            row["Target"]["Id"]
            for row in described["TargetHealthDescriptions"]
            if row["TargetHealth"]["State"] == "healthy"
        }

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
            HealthCheckIntervalSeconds=5,
            HealthCheckTimeoutSeconds=4,
            HealthyThresholdCount=2,
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

    def _fleet(self, count: int) -> dict[str, Any]:
        """The product's own request: the same template, the same pools, and tags as many."""
        spec = self._stand.spec
        subnet_in = {zone: subnet for subnet, zone in spec.subnets.items()}
        tags = [{"Key": TAG_SERVICE, "Value": NAME}, {"Key": TAG_LAUNCH, "Value": NAME}]
        return {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": spec.launch_template_id,
                        "Version": str(spec.version),
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
    """Which rule hears of warnings: one at a time, as if each contestant had the account to itself."""

    def __init__(self, stand: Stand) -> None:
        self._events = stand.operator.session.client("events")
        pages = self._events.get_paginator("list_rules").paginate()
        hearing = [
            str(rule["Name"])
            for page in pages
            for rule in page["Rules"]
            if json.loads(rule.get("EventPattern", "{}")) == PATTERN
        ]
        self.product = next(name for name in hearing if name not in (DEREGISTER, LAUNCH))
        self._all = [self.product, DEREGISTER, LAUNCH]

    def only(self, name: str) -> None:
        """Let this rule alone be asked."""
        for rule in self._all:
            if rule != name:
                self._events.disable_rule(Name=rule)
        self._events.enable_rule(Name=name)


def _zipped(files: dict[str, str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name, text)
    return archive.getvalue()
