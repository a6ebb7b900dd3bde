"""Spot interruptions on request: AWS Fault Injection Service (FIS)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.ports import PortError

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


class Experiments:
    """Interrupts Spot instances as EC2 does: a rebalance recommendation, the warning, the end."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @contextmanager
    def interrupting(
        self, role_arn: str, instance_ids: Sequence[str], tags: Mapping[str, str]
    ) -> Iterator[str]:
        """The ID of an experiment that interrupts the instances; `role_arn` is what FIS acts as.

        Nothing is left of it at the end but FIS's own record of the experiment.

        Raises:
            PortError: it couldn't be started, or what it was made from couldn't be deleted.
        """
        _, partition, _, _, account, _ = role_arn.split(":", 5)
        arns = [f"arn:{partition}:ec2:{self._region}:{account}:instance/{id_}" for id_ in instance_ids]
        with translated():
            template = self._fis.create_experiment_template(
                clientToken=uuid.uuid4().hex,
                description="Spot interruptions of a spotrelay drill",
                roleArn=role_arn,
                stopConditions=[{"source": "none"}],
                targets={
                    "replicas": {
                        "resourceType": "aws:ec2:spot-instance",
                        "resourceArns": arns,
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
                tags=dict(tags),
            )["experimentTemplate"]["id"]
        try:
            with translated():
                experiment = self._fis.start_experiment(
                    clientToken=uuid.uuid4().hex, experimentTemplateId=template, tags=dict(tags)
                )["experiment"]["id"]
            yield str(experiment)
        except BaseException:
            # What went wrong says more than that the template couldn't be deleted either.
            with suppress(PortError, BotoCoreError):
                self._delete(template)
            raise
        self._delete(template)

    def _delete(self, template: str) -> None:
        with translated():
            self._fis.delete_experiment_template(id=template)

    def state(self, experiment: str) -> ExperimentState:
        """What became of it so far.

        Raises:
            PortError: FIS doesn't say.
        """
        with translated():
            state = self._fis.get_experiment(id=experiment)["experiment"]["state"]
        return ExperimentState(state["status"], state.get("reason", ""))

    def stop(self, experiment: str) -> None:
        """Send no more interruptions. What was warned is taken all the same."""
        with suppress(PortError, BotoCoreError), translated():
            self._fis.stop_experiment(id=experiment)

    @property
    def _fis(self) -> Any:
        return self._clients.fis

    @property
    def _region(self) -> str:
        return str(self._fis.meta.region_name)
