"""What every function of the control plane is wired from, once per execution environment."""

from __future__ import annotations

import gc
import os
from functools import cache

from spotrelay.aws import compose
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.intake import Intake

telemetry = PowertoolsTelemetry()

# What was imported stays: whenever the collector runs, it need not look through that.
gc.freeze()


@cache
def intake() -> Intake:
    """Made at the first message: importing this calls nothing and reads no setting."""
    return compose.intake(os.environ, telemetry)
