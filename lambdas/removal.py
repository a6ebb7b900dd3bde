"""Holds up the end of a service's stack until the last of the service's instances has ended.

CloudFormation calls it for the custom resource of `stacks.removal`. When a stack goes, the service's document
goes first: of that the control plane learns, and drains and terminates the replicas. This waits for it, while
load balancer and network are still there. It ends nothing itself, and has no right to.

Whatever happens, CloudFormation gets an answer: without one it would wait until the resource's own time-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3

from lambdas.answering import answer
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, TAG_SERVICE, service_parameter

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

POLL_S = 5.0
"""Between looks: instances take tens of seconds to end, and EC2's request limits are the whole account's."""

LAUNCHED_WITHIN_S = 15.0
"""Nothing left counts only after this: a launch that was under way as the document went is seen by then."""

MARGIN_S = 30.0
"""Before the function's own time-out it gives up, so that it can still say why."""

MAX_NAMED = 10
"""Instances that a failure names; CloudFormation takes answers of at most 4096 bytes."""

NOT_ENDED = ("pending", "running", "shutting-down", "stopping", "stopped")
"""Every state but `terminated`: until then an instance holds its network interface."""


class StillThereError(Exception):
    """The stack must not go on: which instances are in its way, and what to do."""


@dataclass(frozen=True, slots=True)
class ServiceEnd:
    """The end of one service. `sleep` and `monotonic_s` are there for tests."""

    service: str
    ec2: EC2Client
    ssm: SSMClient
    sleep: Callable[[float], None] = field(default=time.sleep)
    monotonic_s: Callable[[], float] = field(default=time.monotonic)

    def wait(self, within_s: float) -> None:
        """Wait until no instance of the service is left.

        Returns at once while the document is there: then the service isn't being removed, only this resource
        is, by the rollback of a deployment.

        Raises:
            StillThereError: some are there after `within_s` seconds, or there's no control plane to end them.
        """
        started = self.monotonic_s()
        while service_parameter(self.service) not in (present := self._parameters()):
            left, waited_s = self._left(), self.monotonic_s() - started
            if not left and waited_s >= LAUNCHED_WITHIN_S:
                return
            if left and CONTROL_PLANE_PARAMETER not in present:
                raise StillThereError(self._still_there(left, self._without_control_plane(left)))
            if left and waited_s + POLL_S > within_s:
                raise StillThereError(self._still_there(left, self._out_of_time()))
            self.sleep(POLL_S)

    def _parameters(self) -> set[str]:
        names = [service_parameter(self.service), CONTROL_PLANE_PARAMETER]
        return {parameter["Name"] for parameter in self.ssm.get_parameters(Names=names)["Parameters"]}

    def _left(self) -> Mapping[str, str]:
        """Instance ID → state."""
        return dict(self._described())

    def _described(self) -> Iterator[tuple[str, str]]:
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{TAG_SERVICE}", "Values": [self.service]},
                {"Name": "instance-state-name", "Values": list(NOT_ENDED)},
            ]
        )
        for page in pages:
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    yield instance["InstanceId"], instance["State"]["Name"]

    def _still_there(self, left: Mapping[str, str], remedy: str) -> str:
        named = ", ".join(f"{id_} ({left[id_]})" for id_ in sorted(left)[:MAX_NAMED])
        more = f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
        return f"{self.service} still has {len(left)} instances: {named}{more}. {remedy}"

    def _without_control_plane(self, left: Mapping[str, str]) -> str:
        ids = " ".join(sorted(left)[:MAX_NAMED])
        return (
            f"There is no control plane to end them: parameter {CONTROL_PLANE_PARAMETER} is missing. End them"
            f" yourself, with aws ec2 terminate-instances --instance-ids {ids}, then delete this stack again."
        )

    def _out_of_time(self) -> str:
        return (
            "The control plane drains and terminates them. If they drain or shut down, delete this stack"
            " again, which goes on waiting. If they just run, its alarms (HeldBack, ActionRequired) and the"
            f" log of its reconcile function say why, and spotrelay retire {self.service} tells it once more"
            f" that the service is gone. It leaves alone what isn't its own: take the tag {TAG_SERVICE} off."
        )


def handler(event: dict[str, Any], context: LambdaContext) -> None:
    """Answer CloudFormation: at once, or for a removal once nothing is left."""
    service = event["ResourceProperties"]["Service"]
    reason = ""
    try:
        if event["RequestType"] == "Delete":
            within_s = context.get_remaining_time_in_millis() / 1000 - MARGIN_S
            ServiceEnd(service, boto3.client("ec2"), boto3.client("ssm")).wait(within_s)
    except StillThereError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - see above: there is always an answer
        reason = f"Nobody knows whether {service} still has instances: {error!r}. Delete this stack again."
    answer(event, f"replicas-of-{service}", reason)
