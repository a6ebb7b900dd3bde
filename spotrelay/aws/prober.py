"""`ports.Prober` as a function in the service's network: the controller's own functions are outside of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.model import ServiceSpec
from spotrelay.names import prober_function
from spotrelay.ports import Unavailable


class FunctionProber:
    """See `ports.Prober`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def answering(self, spec: ServiceSpec, addresses: Mapping[str, str]) -> frozenset[str]:
        """See `ports.Prober.answering`.

        Raises:
            Unavailable: the function itself failed.
        """
        probe = spec.readiness_probe
        if probe is None or not addresses:
            return frozenset(addresses)
        request = {
            "urls": {id_: f"http://{address}:{spec.port}{probe.path}" for id_, address in addresses.items()},
            "post_data": probe.post_data,
            "timeout_s": probe.timeout_s,
        }
        with translated():
            answer = self._clients.lambda_.invoke(
                FunctionName=prober_function(spec.service), Payload=json.dumps(request)
            )
            payload = answer["Payload"].read()
        if answer.get("FunctionError"):
            raise Unavailable(f"{prober_function(spec.service)}: {payload[:1000].decode(errors='replace')}")
        return frozenset(json.loads(payload)["answering"])
