"""The local cloud's load balancers: their ASGI data plane, their request logs and counters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.local.balancer.config import BalancerConfig, Certificate, TargetGroup
from lab.local.balancer.registry import Registry
from lab.local.balancer.relay import (
    Receive,
    Relay,
    Scope,
    Send,
    disconnected,
    reach_nobody,
    read_body,
    send_error,
    send_fixed,
)
from lab.local.balancer.target import LoggedRequest, Target

# A request's record is some 150 bytes: room for hours of a demo, and an end to it.
_LOG_LENGTH = 100_000
# What the ALB's access log says when the client closed the connection before it got a response.
_CLIENT_CLOSED = 460


@dataclass(slots=True)
class _Front:
    config: BalancerConfig
    log: deque[LoggedRequest] = field(default_factory=lambda: deque(maxlen=_LOG_LENGTH))
    counters: Counter[str] = field(default_factory=Counter)
    response_times: list[float] = field(default_factory=list)
    """In seconds; those that nobody has asked for yet."""


class Balancer:
    """Every load balancer and target group of the local cloud. Call it from the event loop's thread only.

    `address_of` gives the address of an instance, or None when it isn't running; `zone_of` its zone.
    """

    def __init__(
        self, address_of: Callable[[str], str | None], zone_of: Callable[[str], str | None] = lambda _: None
    ) -> None:
        self._address_of = address_of
        self._registry = Registry(address_of, zone_of)
        self._fronts: dict[str, _Front] = {}
        self._relay: Relay | None = None

    async def start(self) -> None:
        """Begins health checks and serving."""
        await self._registry.start()
        self._relay = Relay()

    async def close(self) -> None:
        """Ends health checks and serving; what is in flight is broken off."""
        await self._registry.close()
        if self._relay is not None:
            await self._relay.close()
            self._relay = None

    def configure(
        self, load_balancers: Iterable[BalancerConfig], target_groups: Iterable[TargetGroup]
    ) -> None:
        """Makes these all the load balancers and target groups there are; what stays keeps targets and log.

        Cheap when nothing has changed: call it after whatever may have changed something.
        """
        wanted = {config.name: config for config in load_balancers}
        for name in self._fronts.keys() - wanted.keys():
            del self._fronts[name]
        for name, config in wanted.items():
            self._fronts.setdefault(name, _Front(config)).config = config
        self._registry.configure(target_groups, {c.forwards_to or "": c.zones for c in wanted.values()})

    def register(self, target_group_arn: str, targets: Iterable[tuple[str, int | None]]) -> None:
        """Registers instances by ID and port (None: the group's). One that is draining comes back at once.

        Raises UnknownTargetGroupError.
        """
        self._registry.register(target_group_arn, targets)

    def deregister(self, target_group_arn: str, targets: Iterable[tuple[str, int | None]]) -> None:
        """Drains targets: no new request from now on. One that isn't registered is no error, as on AWS.

        A target that was registered with a port of its own must be named with it.
        Raises UnknownTargetGroupError.
        """
        self._registry.deregister(target_group_arn, targets)

    def health(
        self, target_group_arn: str, targets: Iterable[tuple[str, int | None]] | None = None
    ) -> list[dict[str, Any]]:
        """What DescribeTargetHealth says of all targets, or of those asked for.

        Each is {"id", "port", "state", "reason", "description"}. Raises UnknownTargetGroupError.
        """
        return self._registry.health(target_group_arn, targets)

    def requests(self, load_balancer_name: str) -> list[dict[str, Any]]:
        """The load balancer's request log, oldest first, as `LoggedRequest`; empty for an unknown one."""
        front = self._fronts.get(load_balancer_name)
        return [] if front is None else [asdict(request) for request in front.log]

    def counters(self, load_balancer_name: str) -> dict[str, int]:
        """Totals since the start, under the names of CloudWatch's AWS/ApplicationELB metrics.

        Two are ours: "Cut" (responses broken off) and "ClientClosed".
        """
        front = self._fronts.get(load_balancer_name)
        return {} if front is None else dict(front.counters)

    def take_response_times(self, load_balancer_name: str) -> list[float]:
        """Seconds until the target's headers came, of the requests that ended since it was last asked."""
        front = self._fronts.get(load_balancer_name)
        if front is None:
            return []
        taken, front.response_times = front.response_times, []
        return taken

    def target_group(self, load_balancer_name: str) -> str | None:
        """The ARN of the target group that it forwards to, if any."""
        front = self._fronts.get(load_balancer_name)
        return front.config.forwards_to if front else None

    def certificates(self) -> dict[str, Certificate]:
        """By load balancer, the certificate of each that has one for HTTPS."""
        listeners = {name: front.config.https for name, front in self._fronts.items()}
        return {name: https.certificate for name, https in listeners.items() if https and https.certificate}

    async def proxy(self, scope: Scope, receive: Receive, send: Send, load_balancer_name: str) -> None:
        """The data plane: an ASGI application that serves one request on behalf of a load balancer.

        The scope's scheme says which of its listeners the request came to.
        A response that its target breaks off is left unfinished, and the ASGI server then closes the
        connection without the end of the body: the client sees the cut.
        """
        if scope["type"] != "http":
            raise NotImplementedError("the local load balancer speaks HTTP only, no WebSocket")
        if self._relay is None:
            raise RuntimeError("the load balancer isn't started; await Balancer.start() first")
        front = self._fronts.get(load_balancer_name) or _Front(BalancerConfig(load_balancer_name))
        body = await read_body(receive)
        if body is None:
            return
        config = front.config
        listener = config.https if config.https and scope.get("scheme") == "https" else config
        gate = listener.gate
        is_shut = gate is not None and not gate.opens_for(scope["headers"])
        target = None if is_shut else self._registry.choose(listener.target_group_arn)
        request = LoggedRequest(None if target is None else target.id, time.time())
        front.log.append(request)
        try:
            if gate is not None and is_shut:
                await send_fixed(send, request, gate.status, gate.content_type, gate.body)
            elif target is None:
                await send_error(send, request, 503)
            else:
                # The ALB may not know yet that an instance is gone: it tries to connect.
                if (address := self._address_of(target.id)) is None:
                    work = reach_nobody(send, request, f"{target.id} isn't running")
                else:
                    origin = f"http://{address}:{target.port}"
                    work = self._relay.forward(scope, body, send, request, origin, config)
                await self._serve(work, target, request, receive, send)
        finally:
            if request.ended is None:
                request.ended = time.time()
            _count(front.counters, request)
            if request.answered is not None:
                front.response_times.append(request.answered - request.started)

    async def _serve(
        self,
        work: Coroutine[Any, Any, None],
        target: Target,
        request: LoggedRequest,
        receive: Receive,
        send: Send,
    ) -> None:
        """Runs `work` until it ends, the client goes, or the target is taken away from it."""
        forwarding = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(disconnected(receive))
        target.in_flight[request] = forwarding.cancel
        try:
            await asyncio.wait((forwarding, leaving), return_when=asyncio.FIRST_COMPLETED)
            if request.ended is not None:
                # ASGI servers report a disconnect after the last piece, too.
                await asyncio.wait((forwarding,))
            if not forwarding.done():
                request.error = "the client closed the connection"
                request.status = request.status or _CLIENT_CLOSED
            elif not forwarding.cancelled():
                forwarding.result()
            elif request.ended is None:
                request.error = "still in flight when the deregistration delay was over"
                request.cut = request.answered is not None
                if request.answered is None:
                    await send_error(send, request, 504)
        finally:
            forwarding.cancel()
            leaving.cancel()
            # Until the connection to the target is let go.
            await asyncio.gather(forwarding, leaving, return_exceptions=True)
            del target.in_flight[request]


def _count(counters: Counter[str], request: LoggedRequest) -> None:
    """Adds an ended request; see `Balancer.counters`."""
    if request.target is not None:
        counters["RequestCount"] += 1
    if request.cut:
        counters["Cut"] += 1
    if request.answered is not None:
        counters[f"HTTPCode_Target_{request.status // 100}XX_Count"] += 1
    elif request.status == _CLIENT_CLOSED:
        counters["ClientClosed"] += 1
    elif request.status:
        counters[f"HTTPCode_ELB_{request.status // 100}XX_Count"] += 1
        if request.status >= 500:
            counters[f"HTTPCode_ELB_{request.status}_Count"] += 1
