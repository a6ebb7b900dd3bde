"""Puts the controller together for AWS: the one place that knows which adapter is behind which port."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime

from spotrelay.aws.clients import Clients, Deadline
from spotrelay.aws.dead_letters import SqsDeadLetters
from spotrelay.aws.fleet import Ec2Fleet
from spotrelay.aws.loads import CloudWatchLoads
from spotrelay.aws.notices import EventBridgeNotices
from spotrelay.aws.prober import FunctionProber
from spotrelay.aws.router import TargetGroupRouter
from spotrelay.aws.services import ParameterServices
from spotrelay.aws.store import DynamoStore
from spotrelay.aws.table import Table
from spotrelay.aws.ticker import SqsTicker
from spotrelay.control.controller import Controller
from spotrelay.control.intake import Intake
from spotrelay.core.names import Env
from spotrelay.core.ports import Ports, Telemetry


class MissingSettingError(LookupError):
    """The environment lacks what the control plane's stack gives its functions."""


class SystemClock:
    """`ports.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def intake(
    env: Mapping[str, str],
    telemetry: Telemetry,
    clients: Clients | None = None,
    deadline: Deadline | None = None,
) -> Intake:
    """Everything over the table, queues and parameters that the environment names.

    It calls nothing and builds no client: that is done at first use. A handler makes one and keeps it.

    Raises:
        MissingSettingError: the environment lacks a setting.
    """
    clients = clients or Clients()
    clock = SystemClock()
    table = setting(env, Env.TABLE)
    ports = Ports(
        store=DynamoStore(Table(clients, table)),
        fleet=Ec2Fleet(clients, clock.now, deadline),
        router=TargetGroupRouter(clients),
        prober=FunctionProber(clients, deadline),
        loads=CloudWatchLoads(clients),
        ticker=SqsTicker(clients, setting(env, Env.TICK_QUEUE_URL), setting(env, Env.LEAVE_QUEUE_URL)),
        notices=EventBridgeNotices(clients, deadline),
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
