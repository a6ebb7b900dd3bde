"""`ports.Prober` as a function in the service's network: the controller's own functions are outside of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from spotrelay.aws.clients import PROBE_S, Clients, Deadline
from spotrelay.aws.errors import translated
from spotrelay.core.names import prober_function
from spotrelay.core.ports import Unavailable
from spotrelay.core.slots import port
from spotrelay.core.spec import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

MAX_PER_CALL = 500
"""Lambda lets a function have 1,024 files open, and each replica that it asks is one. A service has twice its
replicas starting at most, since on-demand may stand in for each: 2,000, in four calls at the same time."""


class FunctionProber:
    """See `ports.Prober`."""

    def __init__(self, clients: Clients, deadline: Deadline | None = None) -> None:
        self._clients = clients
        self._deadline = deadline or Deadline()

    def answering(self, spec: ServiceSpec, addresses: Mapping[str, str]) -> frozenset[str]:
        """See `ports.Prober.answering`.

        Raises:
            Throttled: too many functions run in the account.
            Unavailable: the function failed, didn't answer, or is asleep and being woken by this call; or the
                invocation may end before the answer comes.
        """
        probe = spec.readiness_probe
        if probe is None or not addresses:
            return frozenset(addresses)
        if not self._deadline.leaves(PROBE_S):
            raise Unavailable("not enough time is left in this invocation: the next tick asks")
        urls = [
            (id_, f"http://{address}:{port(id_) or spec.port}{probe.path}")
            for id_, address in addresses.items()
        ]
        requests = [
            {
                "urls": dict(urls[at : at + MAX_PER_CALL]),
                "post_data": probe.post_data,
                "headers": probe.headers,
                "timeout_s": probe.timeout_s,
            }
            for at in range(0, len(urls), MAX_PER_CALL)
        ]
        # Built here, because threads could build several.
        ask = partial(_ask, self._clients.lambda_, prober_function(spec.service))
        # One after the other, each might take the probe's time-out.
        with ThreadPoolExecutor(len(requests)) as threads:
            return frozenset().union(*threads.map(ask, requests))


def _ask(client: LambdaClient, function: str, request: Mapping[str, Any]) -> list[str]:
    with translated():
        answer = client.invoke(FunctionName=function, Payload=json.dumps(request))
        payload = answer["Payload"].read()
    if answer.get("FunctionError"):
        raise Unavailable(f"{function}: {payload[:1000].decode(errors='replace')}")
    answering: list[str] = json.loads(payload)["answering"]
    return answering
