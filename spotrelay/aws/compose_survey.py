"""Puts the survey together for AWS; not in `compose`, because the fast path's cold starts need none of it."""

from __future__ import annotations

from collections.abc import Mapping

from spotrelay.aws.clients import Clients
from spotrelay.aws.compose import SystemClock, setting
from spotrelay.aws.services import ParameterServices
from spotrelay.aws.store import DynamoStore
from spotrelay.aws.surveyor import AwsSurveyor
from spotrelay.aws.table import Table
from spotrelay.core.names import Env
from spotrelay.core.ports import Telemetry
from spotrelay.placement.surveying import Surveying


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
        telemetry=telemetry,
        clock=SystemClock(),
    )
