"""Puts the survey together for AWS; not in `runtime`, because the fast path's cold starts need none of it."""

from __future__ import annotations

from collections.abc import Mapping

from spotrelay.plane.accounting.ledger import Ledger
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.days import DynamoDays
from spotrelay.plane.aws.dead_letters import MeasuredQueue
from spotrelay.plane.aws.prices import Prices
from spotrelay.plane.aws.runtime import SystemClock, setting
from spotrelay.plane.aws.services import ParameterServices
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.surveyor import AwsSurveyor
from spotrelay.plane.aws.table import Table
from spotrelay.plane.aws.ticker import SqsAnnouncer
from spotrelay.plane.core.names import Env
from spotrelay.plane.core.ports import Telemetry
from spotrelay.plane.placement.surveying import Surveying


def surveying(env: Mapping[str, str], telemetry: Telemetry, clients: Clients | None = None) -> Surveying:
    """What surveys the services of the environment's parameters; it calls nothing until it is used.

    Raises:
        MissingSettingError: the environment lacks a setting.
    """
    clients = clients or Clients()
    table = setting(env, Env.TABLE)
    return Surveying(
        services=ParameterServices(clients, setting(env, Env.SERVICES_PATH), table),
        surveyor=AwsSurveyor(clients, telemetry),
        store=DynamoStore(Table(clients, table)),
        announcer=SqsAnnouncer(clients, setting(env, Env.TICK_QUEUE_URL)),
        telemetry=telemetry,
        clock=SystemClock(),
        written_until=ledger(env, telemetry, clients).written_until,
    )


def ledger(env: Mapping[str, str], telemetry: Telemetry, clients: Clients | None = None) -> Ledger:
    """What writes the days of the services of the environment's parameters; as `surveying`.

    Raises:
        MissingSettingError: the environment lacks a setting.
    """
    clients = clients or Clients()
    name = setting(env, Env.TABLE)
    table = Table(clients, name)
    return Ledger(
        services=ParameterServices(clients, setting(env, Env.SERVICES_PATH), name),
        store=DynamoStore(table),
        days=DynamoDays(table),
        prices=Prices(clients),
        telemetry=telemetry,
        clock=SystemClock(),
    )


def dead_letters(
    env: Mapping[str, str], telemetry: Telemetry, clients: Clients | None = None
) -> MeasuredQueue:
    """The dead-letter queue that the environment names; as `surveying`.

    Raises:
        MissingSettingError: the environment lacks a setting.
    """
    return MeasuredQueue(clients or Clients(), setting(env, Env.DEAD_LETTER_QUEUE_URL), telemetry)
