"""What an account lacks for a service, before anything is deployed: its quotas."""

from __future__ import annotations

from collections.abc import Iterator

import boto3

from spotrelay.aws.clients import Clients
from spotrelay.aws.quotas import Quotas
from spotrelay.cli.control_plane import CommandError, explained
from spotrelay.ports import Denied, PortError
from spotrelay.quotas import shortages
from spotrelay.service import Service


def lacks(service: Service, region: str | None) -> Iterator[str]:
    """A line for each quota of the region that is too small; None: of the one that the configuration names.

    Raises:
        CommandError: the account can't be asked.
    """
    vcpus = {type_.name: type_.vcpus for type_ in service.instance_types}
    with explained():
        clients = Clients(boto3.Session(region_name=region))
        here = str(clients.service_quotas.meta.region_name)
        try:
            found = shortages(service, vcpus, Quotas(clients).vcpus)
        except Denied as error:
            raise CommandError(
                f"{error}: --account needs the permission servicequotas:GetServiceQuota"
            ) from error
        except PortError as error:
            raise CommandError(f"the quotas couldn't be looked up, try again: {error}") from error
    for short in found:
        yield f"{short.option}, {here}: {short}; {short.remedy(here)}"
