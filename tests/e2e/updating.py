"""A service's stack is updated, as `cdk deploy` does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.demo.deployment import SERVICE_STACK
from tests.e2e.faults.bench import Bench

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]

Change = Callable[[str], str]


def update(bench: Bench, change: Change, ends: str = "UPDATE_COMPLETE", **given: str) -> None:
    """Update the service's stack as a deployment of a changed service file does; `ends`: in which status.

    `given`: of parameters, as `cdk deploy --parameters` has them. The CDK keeps every other one.
    """
    cloudformation = bench.operator.session.client("cloudformation")
    stack = SERVICE_STACK + bench.service
    body: Any = cloudformation.get_template(StackName=stack)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    for resource in template["Resources"].values():
        resource.pop("Metadata", None)
    changed = json.loads(change(json.dumps(template)))
    parameters: Any = [
        {"ParameterKey": name, "ParameterValue": given[name]}
        if name in given
        else {"ParameterKey": name, "UsePreviousValue": True}
        for name in changed["Parameters"]
    ]
    cloudformation.update_stack(
        StackName=stack,
        # CloudFormation takes 51,200 bytes.
        TemplateBody=json.dumps(changed, separators=(",", ":")),
        Parameters=parameters,
        Capabilities=CAPABILITIES,
    )

    def status() -> str:
        return str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])

    bench.eventually(lambda: not status().endswith("_IN_PROGRESS"), f"{stack} is at rest")
    assert status() == ends
