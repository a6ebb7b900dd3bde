"""Deployments that CloudFormation must refuse, because they would take away what serves."""

from __future__ import annotations

import json
from typing import Any

from spotrelay.demo.deployment import CONTROL_PLANE_STACK, SERVICE_STACK
from spotrelay.demo.operator import Operator
from tests.e2e.availability.stories import Stories
from tests.e2e.clients import Clients
from tests.e2e.faults.bench import Bench

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]


def test_another_port_is_refused_under_running_replicas(demo: Bench) -> None:
    """Its target group would be a new one, without targets: the stack stays as it was."""
    cloudformation = demo.operator.session.client("cloudformation")
    before, document = demo.settled(has_history=False), demo.spec
    template = _template(demo.operator, SERVICE_STACK)
    with Clients(demo) as clients:
        cloudformation.update_stack(
            StackName=SERVICE_STACK,
            TemplateBody=template.replace(str(document.port), str(document.port + 1)),
            Capabilities=CAPABILITIES,
        )
        assert _ended(demo, SERVICE_STACK) == "UPDATE_ROLLBACK_COMPLETE"
        clients.were_served()
    assert "custom-named resource" in _why(demo.operator, SERVICE_STACK)
    after = demo.settled(has_history=False)
    assert (after.targets, demo.spec) == (before.targets, document)


def test_a_second_control_plane_is_refused(operator: Operator, stories: Stories) -> None:
    """The parameter that says whose the services are exists already: no second function comes to be."""
    name = "SpotRelay-Another"
    with Clients(stories.taken.bench) as clients:
        operator.session.client("cloudformation").create_stack(
            StackName=name, TemplateBody=_template(operator, CONTROL_PLANE_STACK), Capabilities=CAPABILITIES
        )
        assert _ended(stories.taken.bench, name) == "ROLLBACK_COMPLETE"
        clients.were_served()
    assert "ParameterAlreadyExists" in _why(operator, name)
    assert "AWS::Lambda::Function" not in {event["ResourceType"] for event in _events(operator, name)}


def _template(operator: Operator, stack: str) -> str:
    """The template as it was deployed, but for what the CDK notes in it for itself: a call takes 50 KB."""
    body: Any = operator.session.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    for resource in template["Resources"].values():
        resource.pop("Metadata", None)
    return json.dumps(template, separators=(",", ":"))


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
