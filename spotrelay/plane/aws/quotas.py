"""What the account's quotas are, from Service Quotas and Lambda."""

from __future__ import annotations

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import NO_SUCH_RESOURCE, translated
from spotrelay.plane.core.ports import Denied
from spotrelay.plane.core.quotas import CONCURRENCY, Quota


class Quotas:
    """Asks for them, in the region of the clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def value(self, quota: Quota) -> float:
        """Its present value.

        Service Quotas knows only what was once changed, and AWS's default beside it. A new account may have
        less concurrency than that, which only Lambda says
        (https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html,
        hashicorp/terraform-provider-aws#19745).

        Raises:
            PortError: AWS doesn't say.
        """
        if quota == CONCURRENCY:
            with translated():
                settings = self._clients.lambda_.get_account_settings()
            return float(settings["AccountLimit"]["ConcurrentExecutions"])
        service_quotas = self._clients.service_quotas
        asked = {"ServiceCode": quota.service, "QuotaCode": quota.code}
        try:
            with translated():
                answer = service_quotas.get_service_quota(**asked)
        except Denied as error:
            if error.code != NO_SUCH_RESOURCE:
                raise
            with translated():
                answer = service_quotas.get_aws_default_service_quota(**asked)
        return float(answer["Quota"]["Value"])
