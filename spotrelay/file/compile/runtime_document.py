"""The runtime document: what the controller is told of a service, in a parameter of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from spotrelay.file.instance.userdata import LONGEST_REGION
from spotrelay.file.model import Service
from spotrelay.plane.core.incidents import alarms_of
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSettings, ServiceSpec

MAX_CHARACTERS = 8192
"""Parameter Store's limit for an advanced parameter. One of more than 4096 characters is charged for."""

MOST_ZONES = 6
"""No region has more (us-east-1), and there is one subnet per zone."""

LONGEST_BALANCER = f"internal-{'x' * 32}-0123456789.{LONGEST_REGION}.elb.amazonaws.com.cn"
"""The name of a load balancer: https://docs.aws.amazon.com/elasticloadbalancing/latest/application/"""

_PROBE = "<readiness_probe>"
"""Stands for the probe until the rest is written. Nothing else that a file says can hold a `<`."""


def document(
    service: Service,
    *,
    subnets: Mapping[str, str],
    launch_template_id: str,
    version: str,
    target_group_arn: str,
    load_balancer: str,
    address: str,
    on_demand_template: LaunchTemplate | None = None,
) -> str:
    """The document's JSON. What isn't from the file may be a CDK token; `version` is a number, or one."""
    settings = {field.name: getattr(service, field.name) for field in fields(ServiceSettings)}
    values = ServiceSpec(
        **settings,
        service=service.name,
        version=0,
        instance_types=service.instance_type_names,
        subnets=subnets,
        launch_template_id=launch_template_id,
        target_group_arn=target_group_arn,
        load_balancer=load_balancer,
        address=address,
        alarms=tuple(sorted(alarms_of(service, len(service.instance_types)))),
        on_demand_template=on_demand_template,
    ).to_dict()
    probe = json.dumps(values["readiness_probe"])
    text = json.dumps({**values, "version": version, "readiness_probe": _PROBE})
    # A token is text, and the version a number: take the quotes off that JSON puts around it.
    text = text.replace(f'"version": {json.dumps(version)}', f'"version": {version}', 1)
    return text.replace(json.dumps(_PROBE), _harmless(probe))


def size(service: Service) -> int:
    """Characters of the document, where all that isn't known yet is as long as it can be."""
    zone, template_id, version = f"{LONGEST_REGION}a", "lt-" + "0" * 17, "99999"
    return len(
        document(
            service,
            subnets={f"subnet-{number:017x}": zone for number in range(MOST_ZONES)},
            launch_template_id=template_id,
            version=version,
            target_group_arn=f"arn:aws-us-gov:elasticloadbalancing:{LONGEST_REGION}:000000000000:targetgroup/"
            + "x" * 32
            + "/"
            + "0" * 16,
            load_balancer="app/" + "x" * 32 + "/" + "0" * 16,
            address=f"https://{service.domain or LONGEST_BALANCER}",
            on_demand_template=LaunchTemplate(template_id, version)
            if service.capacity_reservations
            else None,
        )
    )


def _harmless(text: str) -> str:
    """JSON that says the same without what others would replace: `{{…}}` and the CDK's marks.

    Parameter Store refuses `{{…}}`, which a chat template may well hold. Outside of a string JSON has no two
    braces in a row and no `$`.
    """
    return text.replace("{{", "{\\u007b").replace("${", "$\\u007b").replace("#{", "#\\u007b")
