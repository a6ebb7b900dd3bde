"""What EC2 announces for running instances: retirements, stops, reboots, maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceStatusEventTypeDef

CODES = ("instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot")
"""All that there are. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStatusEvent.html"""

OVER = ("[Completed]", "[Canceled]")
"""How the description begins of one that EC2 shows for up to a week though it is over, or called off."""


def announced(clients: Clients) -> Mapping[str, str]:
    """By instance of the account and region, the announcement that is due first.

    Raises:
        PortError: EC2 can't be asked.
    """
    # Few instances have any: a filter spares pages of all that run, and IDs that EC2 may not know any more.
    with translated():
        pages = clients.ec2_surveying.get_paginator("describe_instance_status").paginate(
            Filters=[{"Name": "event.code", "Values": list(CODES)}]
        )
        found = [status for page in pages for status in page["InstanceStatuses"]]
    coming = {s["InstanceId"]: [e for e in s.get("Events", []) if not _is_over(e)] for s in found}
    return {id_: _words(min(events, key=_from)) for id_, events in coming.items() if events}


def _is_over(event: InstanceStatusEventTypeDef) -> bool:
    return event.get("Description", "").startswith(OVER)


def _from(event: InstanceStatusEventTypeDef) -> str:
    """When it begins, at the earliest; first of all what doesn't say it."""
    at = event.get("NotBefore")
    return f"{at:%Y-%m-%d %H:%M}" if at else ""


def _words(event: InstanceStatusEventTypeDef) -> str:
    begins = _from(event)
    return event.get("Code", "an event") + (f", not before {begins} UTC" if begins else "")
