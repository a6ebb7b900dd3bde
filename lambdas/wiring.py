"""What every function of the control plane is wired from, once per execution environment."""

from __future__ import annotations

import gc
import os
from functools import cache

from aws_lambda_powertools.logging import Logger

from spotrelay.aws import compose
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.intake import Intake
from spotrelay.names import METRICS_NO_SERVICE

logger = Logger(service=METRICS_NO_SERVICE)
telemetry = PowertoolsTelemetry(logger)

# What was imported stays. Otherwise the first clients, tens of thousands of objects, make the collector look
# through all of it in vain: a twentieth of a cold start.
gc.freeze()


@cache
def intake() -> Intake:
    """Made at the first message: importing this calls nothing and reads no setting."""
    return compose.intake(os.environ, telemetry)
