"""What services cost in a region, at the prices that AWS tells whoever has credentials.

The catalog's dated copy of list prices isn't used: docs/decisions/2026-11-23-costs.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from spotrelay.file.compile.costs import LOOK_BACK, Costs, costs
from spotrelay.file.service import Service, in_region
from spotrelay.operator.cli.errors import AWS_SAYS, EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.options import Where
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.prices import Prices
from spotrelay.plane.core.ports import Denied, PortError


@dataclass(frozen=True, slots=True)
class PriceList:
    """A region's prices, each asked for once."""

    region: str
    _prices: Prices

    def why_not(self, service: Service) -> str | None:
        """Why the service costs nothing there; None if it may run there."""
        allowed = service.requirements.regions
        if service.requirements.allows_region(self.region):
            return None
        return (
            f"{service.path}: may run in {', '.join(allowed)} only, so there is no cost in {self.region}:"
            f" say --region {allowed[0]}"
        )

    def costs(self, service: Service) -> Costs:
        """What the service's instances cost there.

        Raises:
            CommandError: AWS doesn't tell.
            BotoCoreError: there are no credentials.
        """
        there = in_region(service, self.region)
        now = datetime.now(UTC).replace(microsecond=0)  # as the answer tells it
        try:
            listed = {name: self._prices.on_demand(self.region, name) for name in there.instance_type_names}
            types = there.instance_type_names if there.use_spot else ()
            spot = self._prices.spot_since(self.region, types, now - LOOK_BACK)
        except Denied as error:
            needed = "--prices needs the permissions pricing:GetProducts and ec2:DescribeSpotPriceHistory"
            raise CommandError(f"{needed}. {AWS_SAYS} {error}", EXIT_NO_ACCESS) from error
        except PortError as error:
            raise CommandError(
                f"the prices couldn't be looked up, try again: {error}", EXIT_FAILED
            ) from error
        return costs(there, self.region, listed, spot, now)


def prices_in(where: Where) -> PriceList:
    """Those of the region.

    Raises:
        BotoCoreError: there is no region, or its configuration is broken.
    """
    clients = Clients(where.session())
    return PriceList(str(clients.ec2_surveying.meta.region_name), Prices(clients))
