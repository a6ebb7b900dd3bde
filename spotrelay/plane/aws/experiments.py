"""Spot interruptions on request: AWS Fault Injection Service (FIS).

FIS has no permission for *these interruptions and nothing else*: who may start experiments can start somebody
else's, with the role that it names. So a function of ours may, and people may have that function do it. See
docs/decisions/2026-11-26-drill-function.md.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import TAG_SERVICE
from spotrelay.plane.core.ports import PortError, Unavailable

INTERRUPTION = "aws:ec2:send-spot-instance-interruptions"
DURATION = "PT2M"
"""From the start to the end of the instances: EC2's own two minutes, so that the warning comes at once."""

MOST_INSTANCES = 5
"""That one action interrupts."""

UNSUPPORTED = {
    "ap-northeast-3": "Osaka",
    "ap-southeast-3": "Jakarta",
    "cn-north-1": "Beijing",
    "cn-northwest-1": "Ningxia",
    "me-central-1": "UAE",
}
"""Regions without the action, by "Initiate a Spot Instance interruption" in EC2's user guide."""

OVER = frozenset({"completed", "stopped", "failed", "cancelled"})
"""States that an experiment doesn't leave."""

_INSTANCE = re.compile(r"i-[0-9a-f]+")


class Experiments:
    """Starts what interrupts Spot instances as EC2 does: a rebalance recommendation, the warning, the end."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def start(self, role_arn: str, instance_ids: Sequence[str], service: str) -> str:
        """The ID of an experiment that interrupts the instances; `role_arn` is what FIS acts as.

        Raises:
            ValueError: these are no instances that an experiment could interrupt.
            PortError: it couldn't be started.
        """
        if not 1 <= len(instance_ids) <= MOST_INSTANCES:
            raise ValueError(
                f"an experiment interrupts 1 to {MOST_INSTANCES} instances, not {instance_ids!r}"
            )
        if wrong := [id_ for id_ in instance_ids if not _INSTANCE.fullmatch(id_)]:
            raise ValueError(f"{wrong[0]!r} is no instance's ID")
        _, partition, _, _, account, _ = role_arn.split(":", 5)
        fis, tags = self._clients.fis, {TAG_SERVICE: service}
        region = fis.meta.region_name
        with translated():
            template = fis.create_experiment_template(
                clientToken=uuid.uuid4().hex,
                description="Spot interruptions of a spotrelay drill",
                roleArn=role_arn,
                stopConditions=[{"source": "none"}],
                targets={
                    "replicas": {
                        "resourceType": "aws:ec2:spot-instance",
                        "resourceArns": [
                            f"arn:{partition}:ec2:{region}:{account}:instance/{id_}" for id_ in instance_ids
                        ],
                        "selectionMode": "ALL",
                    }
                },
                actions={
                    "interrupt": {
                        "actionId": INTERRUPTION,
                        "parameters": {"durationBeforeInterruption": DURATION},
                        "targets": {"SpotInstances": "replicas"},
                    }
                },
                tags=tags,
            )["experimentTemplate"]["id"]
        try:
            with translated():
                started = fis.start_experiment(
                    clientToken=uuid.uuid4().hex, experimentTemplateId=template, tags=tags
                )
        finally:
            # What runs goes on without its template:
            # https://docs.aws.amazon.com/fis/latest/userguide/delete-template.html
            # One that stays costs nothing. Whether it started, and as which, is what has to be known.
            with suppress(PortError, BotoCoreError), translated():
                fis.delete_experiment_template(id=template)
        return str(started["experiment"]["id"])


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """What became of an experiment so far."""

    status: str
    reason: str
    """FIS's own words."""

    @property
    def has_failed(self) -> bool:
        """Whether it interrupts nothing, or no longer what it should."""
        return self.status in OVER and self.status != "completed"


class OperatorExperiments:
    """What an operator may do with experiments: have `function` start one, watch it, and stop it."""

    def __init__(self, clients: Clients, function: str) -> None:
        self._clients = clients
        self._function = function

    def start(self, instance_ids: Sequence[str], service: str) -> str:
        """The ID of an experiment that interrupts the instances.

        Raises:
            PortError: it couldn't be started.
        """
        request = json.dumps({"instance_ids": [*instance_ids], "service": service})
        with translated():
            answer = self._clients.lambda_.invoke(FunctionName=self._function, Payload=request)
            said = json.loads(answer["Payload"].read())
        if answer.get("FunctionError"):
            raise Unavailable(f"{self._function}: {said.get('errorMessage', said)}")
        return str(said["experiment"])

    def state(self, experiment: str) -> ExperimentState:
        """What became of it so far.

        Raises:
            PortError: FIS doesn't say.
        """
        with translated():
            state = self._clients.fis.get_experiment(id=experiment)["experiment"]["state"]
        return ExperimentState(state["status"], state.get("reason", ""))

    def stop(self, experiment: str) -> None:
        """Send no more interruptions. What was warned is taken all the same."""
        with suppress(PortError, BotoCoreError), translated():
            self._clients.fis.stop_experiment(id=experiment)
