"""Starts a drill for an operator: EC2 interrupts Spot instances of ours, and nothing else happens.

Which instances FIS may interrupt says the role that it gets, not who asks.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.experiments import Experiments
from spotrelay.plane.aws.runtime import clients, invocation, setting, telemetry
from spotrelay.plane.core.names import Env

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def experiments() -> Experiments:
    """Made at the first call."""
    return Experiments(clients)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """The ID of an experiment, `experiment`, that interrupts `instance_ids`; `service` is whose they are.

    Raises: as `Experiments.start` does.
    """
    role, service = setting(os.environ, Env.DRILL_ROLE), str(event["service"])
    instance_ids = [str(id_) for id_ in event["instance_ids"]]
    with invocation(context):
        experiment = experiments().start(role, instance_ids, service)
        telemetry.record("drill", service=service, instances=instance_ids, experiment=experiment)
    return {"experiment": experiment}
