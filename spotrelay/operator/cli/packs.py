"""Which pack replicas of a service will start from."""

from __future__ import annotations

from spotrelay.file.instance.packs import bootstrap_bucket
from spotrelay.file.service import Service
from spotrelay.operator.aws.packs import Found, below, made
from spotrelay.operator.cli import cdk
from spotrelay.plane.aws.clients import Clients


def bucket(account: str, region: str) -> str:
    """Where they are."""
    return bootstrap_bucket(cdk.qualifier(), account, region)


def newest(clients: Clients, bucket: str, service: Service) -> Found | None:
    """The newest pack of a service's present set-up.

    Raises:
        PortError: S3 can't be asked.
    """
    return next(iter(made(clients, bucket, below(service))), None)
