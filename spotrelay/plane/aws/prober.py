"""`ports.Prober` as a function in the service's network: the controller's own functions are outside of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.clients import PROBE_S, Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import prober_function
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.slots import port
from spotrelay.plane.core.spec import ServiceSpec

if TYPE_CHECKING:  # type stubs, and what only ticks need: a warning waits for every import of a cold start
    from mypy_boto3_lambda import LambdaClient

    from spotrelay.plane.core.answers import Answers, Trouble
    from spotrelay.plane.core.scaling import Ongoing, OngoingTarget

MAX_PER_CALL = 500
"""Lambda lets a function have 1,024 files open, and each replica that it asks is one. A service has twice its
replicas starting at most, since on-demand may stand in for each: 2,000, in four calls at the same time."""

MAX_MEASURED_PER_CALL = 100
"""The function reads up to a mebibyte of each replica's metrics, and has 256 for all."""

COUNT_TIMEOUT_S = 3.0
"""The same for the count of what a silent replica has done, after its probe has taken its whole time-out: the
function ends within 25 s."""

MEASURE_TIMEOUT_S = 5.0
"""A server gives its metrics in milliseconds, or is so busy that another minute must do."""


class FunctionProber:
    """`ports.Prober`, through the function that is in the replicas' network."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def ask(self, spec: ServiceSpec, addresses: Mapping[str, str], serving: Collection[str] = ()) -> Answers:
        """Invoke the service's prober function with the instances' URLs.

        Raises:
            Throttled: too many functions run in the account.
            Unavailable: the function failed, didn't answer, or is asleep and being woken by this call; or the
                invocation may end before the answer comes.
        """
        from spotrelay.plane.core.answers import Answers, Work

        probe = spec.readiness_probe
        if probe is None or not addresses:
            return Answers(frozenset(addresses))
        urls = {
            id_: f"http://{address}:{port(id_) or spec.port}{probe.path}"
            for id_, address in addresses.items()
        }
        request: dict[str, Any] = {
            "post_data": probe.post_data,
            "headers": probe.headers,
            "timeout_s": probe.timeout_s,
        }
        busy, most = spec.busy, MAX_PER_CALL
        if busy and serving:
            most = MAX_MEASURED_PER_CALL
            request["count"] = {
                "urls": {
                    id_: f"http://{addresses[id_]}:{port(id_) or spec.port}{busy.path}"
                    for id_ in sorted(serving)
                },
                "finished": busy.finished,
                "ongoing": busy.ongoing,
                "timeout_s": COUNT_TIMEOUT_S,
            }
        answers = Answers()
        for said in self._asked(spec.service, urls, request, most):
            # A function of the version before says less, while the service's stack is being updated.
            work = {id_: Work(*counted) for id_, counted in said.get("work", {}).items()}
            refusing = frozenset(said.get("refusing", ()))
            answers |= Answers(frozenset(said["answering"]), refusing, work, _trouble(said))
        return answers

    def ongoing(
        self, service: str, target: OngoingTarget, addresses: Mapping[str, tuple[str, int]]
    ) -> Ongoing:
        """Invoke the service's prober function with the URLs of the metrics pages.

        Raises: as `ask` does.
        """
        from spotrelay.plane.core.scaling import Ongoing

        if not addresses:
            return Ongoing()
        urls = {id_: f"http://{address}:{at}{target.path}" for id_, (address, at) in addresses.items()}
        request = {"metrics": target.metrics, "timeout_s": MEASURE_TIMEOUT_S}
        requests: dict[str, float] = {}
        unknown: dict[str, str] = {}
        for answer in self._asked(service, urls, request, MAX_MEASURED_PER_CALL):
            requests |= answer["ongoing"]
            unknown |= answer["unknown"]
        return Ongoing(requests, unknown)

    def _asked(
        self, service: str, urls: Mapping[str, str], request: Mapping[str, Any], most: int
    ) -> list[dict[str, Any]]:
        """What the service's function says of these URLs, so many of them in a call."""
        if not self._clients.has_time(PROBE_S):
            raise Unavailable("not enough time is left in this invocation: the next tick asks")
        each = [*urls.items()]
        requests = [{"urls": dict(each[at : at + most]), **request} for at in range(0, len(each), most)]
        # Built here, because threads could build several.
        ask = partial(_ask, self._clients.lambda_, prober_function(service))
        # One after the other, each might take the request's time-out.
        with ThreadPoolExecutor(len(requests)) as threads:
            return [*threads.map(ask, requests)]


def _trouble(said: Mapping[str, Any]) -> dict[str, Trouble]:
    from spotrelay.plane.core.answers import Trouble

    status = {id_: Trouble(f"answers its probe with {line}") for id_, line in said.get("status", {}).items()}
    crashing = {
        id_: Trouble(f"crashes: {ends} starts have failed. It said last:\n{words}", is_crash=True)
        for id_, (ends, words) in said.get("crashing", {}).items()
    }
    return status | crashing


def _ask(client: LambdaClient, function: str, request: Mapping[str, Any]) -> dict[str, Any]:
    with translated():
        answer = client.invoke(FunctionName=function, Payload=json.dumps(request))
        payload = answer["Payload"].read()
    if answer.get("FunctionError"):
        raise Unavailable(f"{function}: {payload[:1000].decode(errors='replace')}")
    said: dict[str, Any] = json.loads(payload)
    return said
