"""What an operator of the local cloud has in hand: its controls, and the control plane deployed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3

from lab.demo.deployment import Deployment
from lab.demo.environment import OPERATOR_KEY
from lab.demo.errors import DemoError
from lab.demo.settings import REGION
from lab.local.client import LocalCloud
from spotrelay.operator.look.access import ControlPlane
from spotrelay.plane.core.spec import ServiceSpec


class LocalSession(boto3.Session):
    """A session whose AWS is the local cloud at `endpoint`, whatever the environment says."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            aws_access_key_id=OPERATOR_KEY,
            aws_secret_access_key=OPERATOR_KEY,
            region_name=REGION,
        )
        self._endpoint = endpoint

    def client(self, *args: Any, **kwargs: Any) -> Any:
        """A boto3 client of this operator's account."""
        return super().client(*args, **{"endpoint_url": self._endpoint, **kwargs})


class Operator:
    """Access to a deployment in the local cloud.

    Raises:
        DemoError: there is no control plane.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.session = LocalSession(deployment.endpoint)
        self.cloud = LocalCloud(deployment.endpoint)
        plane = ControlPlane.found_with(self.session)
        if plane is None:
            raise DemoError("the control plane is deployed and has no parameter; see the log of cdk deploy")
        self.store = plane.store
        self._services = plane.services

    def spec(self, service: str) -> ServiceSpec:
        """The runtime document of a service.

        Raises:
            DemoError: it isn't deployed.
        """
        spec = self._services.get(service)
        if spec is None:
            raise DemoError(
                f"service {service} is deployed and has no runtime document; see the log of cdk deploy"
            )
        return spec

    def load_balancer(self, service: str) -> str:
        """Name of a service's load balancer, by which the local cloud keeps its request log."""
        host = self.deployment.hosts[service]
        answer = self.session.client("elbv2").describe_load_balancers()
        names = [
            balancer["LoadBalancerName"]
            for balancer in answer["LoadBalancers"]
            if balancer["DNSName"] == host
        ]
        if not names:
            raise DemoError(f"no load balancer answers to {host}; see the log of cdk deploy")
        return str(names[0])

    def save_function_logs(self, directory: Path) -> None:
        """Copy what the functions logged into one file each: it is gone with the local cloud otherwise."""
        logs = self.session.client("logs")
        for page in logs.get_paginator("describe_log_groups").paginate():
            for group in page["logGroups"]:
                name = str(group["logGroupName"])
                pages = logs.get_paginator("filter_log_events").paginate(logGroupName=name)
                lines = [event["message"].rstrip("\n") + "\n" for found in pages for event in found["events"]]
                path = directory / f"function-{name.rsplit('/', 1)[-1]}.log"
                path.write_text("".join(lines), encoding="utf-8")
