"""What runs in a function: an invocation, and the controller over AWS, put together once per environment.

It is the one place that knows which adapter is behind which port.
"""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.dead_letters import SqsDeadLetters
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.aws.loads import CloudWatchLoads
from spotrelay.plane.aws.notices import EventBridgeNotices
from spotrelay.plane.aws.prober import FunctionProber
from spotrelay.plane.aws.router import TargetGroupRouter
from spotrelay.plane.aws.services import ParameterServices
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.aws.telemetry import PowertoolsTelemetry
from spotrelay.plane.aws.ticker import SqsTicker
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core.names import Env
from spotrelay.plane.core.ports import Ports, Telemetry

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

telemetry = PowertoolsTelemetry()
clients = Clients()

# What was imported stays: whenever the collector runs, it need not look through that.
gc.freeze()


@contextmanager
def invocation(context: LambdaContext) -> Iterator[None]:
    """One invocation: it begins nothing that it can't end in time, and writes at its end what it counted.

    Whatever it calls, it calls on connections that haven't rested for long.
    """
    remaining_s = context.get_remaining_time_in_millis() / 1000
    with clients.in_use(remaining_s), telemetry.invocation(context):
        yield


@cache
def intake() -> Intake:
    """Made at the first message: importing this calls nothing and reads no setting."""
    return compose(os.environ, telemetry, clients)


class MissingSettingError(LookupError):
    """The environment lacks what the control plane's stack gives its functions."""


class SystemClock:
    """`ports.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def compose(env: Mapping[str, str], telemetry: Telemetry, clients: Clients) -> Intake:
    """Everything over the table, queues and parameters that the environment names.

    It calls nothing and builds no client: that is done at first use.

    Raises:
        MissingSettingError: the environment lacks a setting.
    """
    clock = SystemClock()
    table = setting(env, Env.TABLE)
    ports = Ports(
        store=DynamoStore(Table(clients, table)),
        fleet=Ec2Fleet(clients, clock.now),
        router=TargetGroupRouter(clients),
        prober=FunctionProber(clients),
        loads=CloudWatchLoads(clients),
        ticker=SqsTicker(clients, setting(env, Env.TICK_QUEUE_URL), setting(env, Env.LEAVE_QUEUE_URL)),
        notices=EventBridgeNotices(clients),
        services=ParameterServices(clients, setting(env, Env.SERVICES_PATH), table),
        telemetry=telemetry,
        clock=clock,
        new_id=lambda: new_id(clock.now()),
    )
    dead_letters = SqsDeadLetters(clients, setting(env, Env.DEAD_LETTER_QUEUE_URL))
    return Intake(Controller(ports), dead_letters, telemetry)


def new_id(now: datetime) -> str:
    """32 characters: the millisecond in hexadecimal, so that IDs sort by time, and 80 random bits."""
    return f"{int(now.timestamp() * 1000):012x}{secrets.token_hex(10)}"


def setting(env: Mapping[str, str], name: Env) -> str:
    """What the environment says.

    Raises:
        MissingSettingError: nothing.
    """
    value = env.get(name)
    if not value:
        raise MissingSettingError(
            f"environment variable {name} is not set: the control plane's stack sets it, so deploy that again"
        )
    return value
