"""A service's stack is updated, as `cdk deploy` does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.demo.deployment import SERVICE_STACK
from tests.e2e.faults.bench import Bench

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]

KEPT = [{"ParameterKey": "TargetGroupPort", "UsePreviousValue": True}]
"""As `cdk deploy` does it for every parameter that the stack has."""

Change = Callable[[str], str]


def update(bench: Bench, change: Change) -> None:
    """Update the service's stack as a deployment of a changed service file does."""
    cloudformation = bench.operator.session.client("cloudformation")
    stack = SERVICE_STACK + bench.service
    body: Any = cloudformation.get_template(StackName=stack)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    for resource in template["Resources"].values():
        resource.pop("Metadata", None)
    changed = change(json.dumps(template, separators=(",", ":")))
    cloudformation.update_stack(
        StackName=stack, TemplateBody=changed, Parameters=KEPT, Capabilities=CAPABILITIES
    )

    def status() -> str:
        return str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])

    bench.eventually(lambda: not status().endswith("_IN_PROGRESS"), f"{stack} is at rest")
    assert status() == "UPDATE_COMPLETE"
