"""What every function of the control plane is wired from, once per execution environment."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from spotrelay.aws import compose
from spotrelay.aws.clients import Clients, Deadline
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.control.intake import Intake

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

telemetry = PowertoolsTelemetry()
clients = Clients()
deadline = Deadline()

# What was imported stays: whenever the collector runs, it need not look through that.
gc.freeze()


@contextmanager
def invocation(context: LambdaContext) -> Iterator[None]:
    """One invocation: it begins nothing that it can't end in time, and writes at its end what it counted.

    Whatever it calls, it calls on connections that haven't rested for long.
    """
    deadline.begin(context.get_remaining_time_in_millis() / 1000)
    with clients.in_use(), telemetry.invocation(context):
        yield


@cache
def intake() -> Intake:
    """Made at the first message: importing this calls nothing and reads no setting."""
    return compose.intake(os.environ, telemetry, clients, deadline)
