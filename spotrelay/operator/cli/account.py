"""What an account lacks for a service, before anything is deployed: quotas, and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotrelay.file.compile.check import at_most
from spotrelay.file.service import Service
from spotrelay.operator.cli import packs
from spotrelay.operator.cli.errors import AWS_SAYS, EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.models import Found, found
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.start_plans import Seen, looked_at
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import NO_SUCH_RESOURCE
from spotrelay.plane.aws.quotas import Quotas
from spotrelay.plane.core.ports import Denied, PortError
from spotrelay.plane.core.quotas import (
    CONCURRENCY,
    LEAST_CONCURRENCY,
    Quota,
    Shortage,
    services_carried,
    shortages,
)

PERMISSIONS = (
    "servicequotas:GetServiceQuota",
    "servicequotas:GetAWSDefaultServiceQuota",
    "lambda:GetAccountSettings",
)


@dataclass(frozen=True, slots=True)
class Account:
    """An account in a region."""

    region: str
    _quotas: Quotas
    _clients: Clients

    def lacks(self, service: Service) -> list[str]:
        """A line for each quota that is too small for the service.

        Raises:
            CommandError, BotoCoreError: the account can't be asked.
        """
        found = self._shortages(service)
        return [f"{s.option}, {self.region}: {s}; {s.remedy(self.region)}" for s in found]

    def models(self, services: Sequence[Service]) -> Found:
        """What is wrong with the services' models in their buckets, and what is well to know of them.

        Raises:
            PortError, BotoCoreError: S3 can't be asked.
        """
        return found(self._clients, services)

    def starts(self, services: Sequence[Service], models: Found) -> tuple[dict[str, Seen], list[str]]:
        """By service that says how long a start may take: what is there for it; and what can't be seen.

        Raises:
            PortError, BotoCoreError: the account can't be asked.
        """
        found, unseen = dict[str, Seen](), list[str]()
        sizes = {source: one.size for source, one in models.stored.items()}
        for service in services:
            if service.start_within_s is None:
                continue
            found[service.name] = Seen(sizes)
            if service.pack is None:
                continue
            account = str(self._clients.sts.get_caller_identity()["Account"])
            bucket = packs.bucket(account, self.region)
            try:
                made = packs.there(self._clients, bucket, service)
            except Denied as error:
                unseen.append(
                    f"{service.name}: whether it has a pack can't be seen: these credentials need"
                    f" s3:ListBucket for {bucket}, if the account has one. {AWS_SAYS} {error}"
                )
                continue
            found[service.name] = replace(looked_at(self._clients, bucket, service, made), sizes=sizes)
        return found, unseen

    def barely_has(self, service: Service) -> list[str]:
        """A line for each quota that has room for all replicas of the service, and for no replacement beside.

        Raises:
            CommandError, BotoCoreError: the account can't be asked.
        """
        if self._shortages(service):
            return []
        return [
            f"{s.option}, {self.region}: {s.quota} is {s.vcpus:.0f} vCPU, which {service.name} fills: what"
            " EC2 takes back counts for two minutes more, and its replacement is refused meanwhile;"
            f" {s.remedy(self.region)}"
            for s in self._shortages(service, spare=1)
        ]

    def warnings(self, services: int) -> list[str]:
        """What may be too little for the control plane, one day, with so many services.

        Raises:
            CommandError, BotoCoreError: the account can't be asked.
        """
        value = self._value(CONCURRENCY)
        carried = services_carried(value)
        if value >= LEAST_CONCURRENCY and carried >= services:
            return []
        return [
            f"Lambda, {self.region}: {CONCURRENCY} is {value:.0f}, which carries {carried} services that"
            " start, lose or drain replicas at the same time; more wait for them. In a storm of interruptions"
            f" the control plane may want {LEAST_CONCURRENCY}; ask for more: {CONCURRENCY.page(self.region)}"
        ]

    def _shortages(self, service: Service, spare: int = 0) -> list[Shortage]:
        vcpus = {type_.name: type_.vcpus for type_ in service.instance_types}
        return shortages(at_most(service), vcpus, self._value, spare=spare)

    def _value(self, quota: Quota) -> float:
        try:
            return self._quotas.value(quota)
        except Denied as error:
            if error.code == NO_SUCH_RESOURCE:
                raise CommandError(f"{self.region} has no quota {quota}: {error}", EXIT_FAILED) from error
            needed = f"--account needs the permissions {', '.join(PERMISSIONS)}"
            raise CommandError(f"{needed}. {AWS_SAYS} {error}", EXIT_NO_ACCESS) from error
        except PortError as error:
            raise CommandError(
                f"the quotas couldn't be looked up, try again: {error}", EXIT_FAILED
            ) from error


def account_in(where: Where) -> Account:
    """The account of the credentials.

    Raises:
        BotoCoreError: there is no region, or its configuration is broken.
    """
    clients = Clients(where.session())
    return Account(str(clients.service_quotas.meta.region_name), Quotas(clients), clients)
