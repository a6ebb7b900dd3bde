"""Deployments that CloudFormation must refuse, because they would take away what serves; and a removal.

It takes a minute, so it is begun before the others: nobody needs that service any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.demo.deployment import CONTROL_PLANE_STACK, SERVICE_STACK
from lab.demo.operator import LocalSession, Operator
from spotrelay.plane.core.names import TAG_SERVICE, alarms_prefix
from spotrelay.plane.core.replica import ReplicaState
from stacks.removal import SERVICES_GO_FIRST
from tests.e2e.availability.stories import Stories
from tests.e2e.clients import Clients
from tests.e2e.faults.bench import Bench
from tests.e2e.stand import WITHIN_S

REMOVED = "hung"
REMOVED_STACK = f"SpotRelay-Service-{REMOVED}"

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]


@pytest.fixture(scope="module", autouse=True)
def removed(operator: Operator, stories: Stories) -> Iterator[tuple[Clients, str]]:
    """The clients of a service whose stack goes, of which they don't know, and that stack's ID."""
    assert stories.hung.bench.service == REMOVED
    bench = Bench(operator, REMOVED)
    bench.settled(has_history=False)
    assert len(left_of(operator.session, REMOVED)) > 10, (
        "what is looked for is there as long as the service is"
    )
    with Clients(bench) as clients:
        cloudformation = operator.session.client("cloudformation")
        # By its name it can't be asked for any more once it is deleted.
        id_ = str(cloudformation.describe_stacks(StackName=REMOVED_STACK)["Stacks"][0]["StackId"])
        cloudformation.delete_stack(StackName=REMOVED_STACK)
        yield clients, id_


def test_another_port_of_the_target_group_is_refused_under_running_replicas(demo: Bench) -> None:
    """Who doesn't keep that parameter's value would get another group: the stack stays as it was."""
    cloudformation = demo.operator.session.client("cloudformation")
    before, document, stack = demo.settled(has_history=False), demo.spec, SERVICE_STACK + demo.service
    template = _template(demo.operator, stack)
    with Clients(demo) as clients:
        cloudformation.update_stack(
            StackName=stack,
            TemplateBody=template.replace(str(document.port), str(document.port + 1)),
            Capabilities=CAPABILITIES,
        )
        assert _ended(demo, stack) == "UPDATE_ROLLBACK_COMPLETE"
        clients.were_served()
    assert "custom-named resource" in _why(demo.operator, stack)
    after = demo.settled(has_history=False)
    assert (after.rotation, demo.spec) == (before.rotation, document)


def test_a_second_control_plane_is_refused(operator: Operator, stories: Stories) -> None:
    """The parameter that says whose the services are exists already: no second function comes to be."""
    name = "SpotRelay-Another"
    with Clients(stories.taken.bench) as clients:
        operator.session.client("cloudformation").create_stack(
            StackName=name,
            TemplateURL=_uploaded(operator, _template(operator, CONTROL_PLANE_STACK)),
            Capabilities=CAPABILITIES,
        )
        assert _ended(stories.taken.bench, name) == "ROLLBACK_COMPLETE"
        clients.were_served()
    assert "ParameterAlreadyExists" in _why(operator, name)
    assert "AWS::Lambda::Function" not in {event["ResourceType"] for event in _events(operator, name)}


def test_a_redeployment_under_load(demo: Bench) -> None:
    """Every function is replaced, and the new ones replace what EC2 takes and do what a new document wants.

    The warning comes after the update, which kills a tick that is under way here, unlike on AWS: its lease
    holds for a minute.
    """
    cloudformation = demo.operator.session.client("cloudformation")
    present = len(demo.settled(has_history=False).present)
    template = json.loads(_template(demo.operator, CONTROL_PLANE_STACK))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Environment"]["Variables"]["NEXT_VERSION"] = "1"
    with Clients(demo) as clients:
        cloudformation.update_stack(
            StackName=CONTROL_PLANE_STACK,
            TemplateURL=_uploaded(demo.operator, json.dumps(template)),
            Capabilities=CAPABILITIES,
        )
        assert _ended(demo, CONTROL_PLANE_STACK) == "UPDATE_COMPLETE"
        victim = demo.victim()
        demo.warn(victim)
        demo.want(present + 1)
        demo.watch.until(lambda seen: len(seen.ready) == present + 1, "as many as wanted serve", WITHIN_S)
        clients.were_served()
    assert [r.replaces for r in demo.watch.look().present].count(victim.id) == 1


def test_the_control_plane_stays_while_there_are_services(operator: Operator) -> None:
    """CloudFormation names one of their stacks, and the control plane stays as it was."""
    cloudformation = operator.session.client("cloudformation")
    (before,) = cloudformation.describe_stacks(StackName=CONTROL_PLANE_STACK)["Stacks"]
    refused = rf"Export {SERVICES_GO_FIRST} .* SpotRelay-Service-"
    with pytest.raises(ClientError, match=refused):
        cloudformation.delete_stack(StackName=CONTROL_PLANE_STACK)
    (stack,) = cloudformation.describe_stacks(StackName=CONTROL_PLANE_STACK)["Stacks"]
    assert stack["StackStatus"] == before["StackStatus"]


def test_a_removed_service_is_drained_and_leaves_nothing(
    operator: Operator, removed: tuple[Clients, str]
) -> None:
    """No answer is cut, the replicas end before their network does, and a listing finds nothing."""
    clients, stack_id = removed
    # Nothing is asked of the demo's service, which may still wait for what EC2 takes.
    assert _ended(Bench(operator, "demo"), stack_id) == "DELETE_COMPLETE"
    assert clients.stop().cut == 0
    ended = operator.store.history(REMOVED, 3)
    assert {(r.state, r.reason) for r in ended} == {(ReplicaState.TERMINATED, "service removed")}
    assert left_of(operator.session, REMOVED) == []
    deleted = [
        event["ResourceType"]
        for event in reversed(_events(operator, stack_id))
        if event["ResourceStatus"] == "DELETE_COMPLETE"
    ]
    assert deleted.index("AWS::SSM::Parameter") < deleted.index("Custom::SpotRelayReplicas")


def left_of(account: LocalSession, service: str) -> list[str]:
    """Everything in the account that was made for a service: what bears its tag or its stack's name."""
    client = account.client
    ec2, elb = client("ec2"), client("elbv2")
    tagged = [{"Name": f"tag:{TAG_SERVICE}", "Values": [service]}]
    found = [
        instance["InstanceId"]
        for page in ec2.get_paginator("describe_instances").paginate(Filters=tagged)
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
        if instance["State"]["Name"] != "terminated"
    ]
    for describe, kind, id_ in (
        (ec2.describe_volumes, "Volumes", "VolumeId"),
        (ec2.describe_network_interfaces, "NetworkInterfaces", "NetworkInterfaceId"),
        (ec2.describe_launch_templates, "LaunchTemplates", "LaunchTemplateId"),
        (ec2.describe_security_groups, "SecurityGroups", "GroupId"),
        (ec2.describe_subnets, "Subnets", "SubnetId"),
        (ec2.describe_route_tables, "RouteTables", "RouteTableId"),
        (ec2.describe_internet_gateways, "InternetGateways", "InternetGatewayId"),
        (ec2.describe_vpcs, "Vpcs", "VpcId"),
    ):
        found += [thing[id_] for thing in describe(Filters=tagged)[kind]]
    groups = [g["TargetGroupArn"] for g in elb.describe_target_groups()["TargetGroups"]]
    balancers = [b["LoadBalancerArn"] for b in elb.describe_load_balancers()["LoadBalancers"]]
    tag = {"Key": TAG_SERVICE, "Value": service}
    described = elb.describe_tags(ResourceArns=[*groups, *balancers])["TagDescriptions"]
    found += [resource["ResourceArn"] for resource in described if tag in resource["Tags"]]
    named = [
        thing[name]
        for client_, list_, kind, name in (
            ("iam", "list_roles", "Roles", "RoleName"),
            ("iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
            ("lambda", "list_functions", "Functions", "FunctionName"),
            ("logs", "describe_log_groups", "logGroups", "logGroupName"),
            ("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
            ("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
            ("ssm", "describe_parameters", "Parameters", "Name"),
        )
        for page in client(client_).get_paginator(list_).paginate()
        for thing in page[kind]
    ]
    marks = (f"-Service-{service}", alarms_prefix(service), f"spotrelay-{service}-")
    return found + [
        name for name in named if name.endswith(f"/{service}") or any(mark in name for mark in marks)
    ]


def _template(operator: Operator, stack: str) -> str:
    """The template as it was deployed, but for what the CDK notes in it for itself."""
    body: Any = operator.session.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    for resource in template["Resources"].values():
        resource.pop("Metadata", None)
    return json.dumps(template, separators=(",", ":"))


def _uploaded(operator: Operator, template: str) -> str:
    """Where the template is to be had, put there as the CDK does it: a call itself takes 50 KB."""
    s3 = operator.session.client("s3")
    (bucket,) = (b["Name"] for b in s3.list_buckets()["Buckets"] if "-assets-" in b["Name"])
    s3.put_object(Bucket=bucket, Key="changed.template.json", Body=template.encode())
    return f"https://s3.us-east-1.amazonaws.com/{bucket}/changed.template.json"


def _ended(bench: Bench, stack: str) -> str:
    """Wait until nothing happens to the stack; its status."""
    cloudformation = bench.operator.session.client("cloudformation")

    def status() -> str:
        return str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])

    bench.eventually(lambda: not status().endswith("_IN_PROGRESS"), f"{stack} is at rest")
    return status()


def _events(operator: Operator, stack: str) -> list[dict[str, str]]:
    pages = operator.session.client("cloudformation").get_paginator("describe_stack_events")
    return [event for page in pages.paginate(StackName=stack) for event in page["StackEvents"]]


def _why(operator: Operator, stack: str) -> str:
    """Everything that the stack's events say about failures."""
    failures = (e for e in _events(operator, stack) if e["ResourceStatus"].endswith("_FAILED"))
    return "\n".join(e.get("ResourceStatusReason", "") for e in failures)
