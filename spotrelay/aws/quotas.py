"""What the account's quotas are, from Service Quotas."""

from __future__ import annotations

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.quotas import Quota


class Quotas:
    """Asks Service Quotas, in the region of the clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def value(self, quota: Quota) -> float:
        """Its present value.

        Raises:
            PortError: AWS doesn't say.
        """
        with translated():
            answer = self._clients.service_quotas.get_service_quota(
                ServiceCode=quota.service, QuotaCode=quota.code
            )
        return float(answer["Quota"]["Value"])
