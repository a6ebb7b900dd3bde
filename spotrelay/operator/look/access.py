"""A deployed control plane, found as whoever has credentials for its account and region finds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients, Session
from spotrelay.plane.aws.services import ParameterServices
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, SERVICES_PATH, service_parameter

if TYPE_CHECKING:
    import boto3

    from spotrelay.operator.aws.targets import RegisteredTargets
    from spotrelay.plane.aws.days import DynamoDays
    from spotrelay.plane.aws.experiments import OperatorExperiments
    from spotrelay.plane.aws.fleet import Ec2Fleet
    from spotrelay.plane.aws.requests import ServedRequests
    from spotrelay.plane.core.held import Override


class UnreadableControlPlaneError(Exception):
    """The control plane's parameter doesn't say where it is: one line, with the remedy."""


class ControlPlane:
    """The control plane of a region: its rows, its services' documents, and how to tell it something."""

    def __init__(
        self,
        clients: Clients,
        table: str,
        tick_queue_url: str,
        *,
        log_groups: Sequence[str] = (),
        drill_function: str | None = None,
    ) -> None:
        self._clients = clients
        self.log_groups = tuple(log_groups)
        """Where its functions log. A control plane of before operators had commands doesn't say."""
        self._tick_queue_url = tick_queue_url
        self._table = Table(clients, table)
        self._drill_function = drill_function
        self.store = DynamoStore(self._table)
        self.services = ParameterServices(clients, SERVICES_PATH, table)

    # The rest is loaded by the commands that need it: `status`, which everybody waits for, doesn't.

    @cached_property
    def days(self) -> DynamoDays:
        """What each day cost, and how likely Spot was to be had."""
        from spotrelay.plane.aws.days import DynamoDays

        return DynamoDays(self._table)

    @cached_property
    def fleet(self) -> Ec2Fleet:
        """Its instances."""
        from spotrelay.plane.aws.fleet import Ec2Fleet

        return Ec2Fleet(self._clients)

    @cached_property
    def experiments(self) -> OperatorExperiments | None:
        """For drills; None: the control plane is of before it had a function for them."""
        from spotrelay.plane.aws.experiments import OperatorExperiments

        return OperatorExperiments(self._clients, self._drill_function) if self._drill_function else None

    @cached_property
    def requests(self) -> ServedRequests:
        """What the load balancers counted."""
        from spotrelay.plane.aws.requests import ServedRequests

        return ServedRequests(self._clients)

    @cached_property
    def targets(self) -> RegisteredTargets:
        """What is in the target groups."""
        from spotrelay.operator.aws.targets import RegisteredTargets

        return RegisteredTargets(self._clients)

    @property
    def clients(self) -> Clients:
        """For what no port asks, because only people want to know it."""
        return self._clients

    @property
    def region(self) -> str:
        """Where it is."""
        return str(self._clients.ssm.meta.region_name)

    @classmethod
    def found_with(cls, session: boto3.Session | Session) -> ControlPlane | None:
        """The one in the session's account and region; None: nothing is deployed there.

        Raises:
            UnreadableControlPlaneError: its parameter was overwritten.
            BotoCoreError, ClientError: AWS can't be asked.
        """
        clients = Clients(session)
        value = _parameter(clients, CONTROL_PLANE_PARAMETER)
        if value is None:
            return None
        try:
            claim = json.loads(value)
            table, queue_url = str(claim["table"]), str(claim["tick_queue_url"])
            log_groups = [str(group) for group in claim.get("log_groups", ())]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UnreadableControlPlaneError(
                f"parameter {CONTROL_PLANE_PARAMETER} in {clients.ssm.meta.region_name} doesn't name a table"
                " and a tick queue: deploy the control plane again"
            ) from None
        drill_function = claim.get("drill_function")
        return cls(clients, table, queue_url, log_groups=log_groups, drill_function=drill_function)

    def is_deployed(self, service: str) -> bool:
        """Whether the service has a runtime document, readable or not.

        Raises:
            BotoCoreError, ClientError: AWS can't be asked.
        """
        return _parameter(self._clients, service_parameter(service)) is not None

    def tell(self, service: str, kind: str) -> None:
        """Send the service's message of this kind to the tick queue.

        Raises:
            BotoCoreError, ClientError: it couldn't be sent.
        """
        self._send(json.dumps({"service": service, "kind": kind}))

    def override(self, service: str, override: Override) -> None:
        """Send a person's word for what is held back of the service to the tick queue.

        Raises:
            BotoCoreError, ClientError: it couldn't be sent.
        """
        from spotrelay.plane.events.ticks import Tick, TickKind

        self._send(Tick(service, kind=TickKind.OVERRIDE, override=override).to_json())

    def _send(self, body: str) -> None:
        self._clients.sqs.send_message(QueueUrl=self._tick_queue_url, MessageBody=body)


def _parameter(clients: Clients, name: str) -> str | None:
    answer = clients.ssm.get_parameters(Names=[name])
    return next((parameter["Value"] for parameter in answer["Parameters"]), None)
