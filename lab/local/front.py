"""The ASGI application in front of MiniStack: it answers what is ours and lets the rest through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote_plus

from lab.local import wire
from lab.local.balancer import Balancer
from lab.local.calls import CallLog, error_code_of
from lab.local.cloud import EmulatedCloud
from lab.local.context import Context, Handler, Result, UnauthenticatedError
from lab.local.control import PREFIX as CONTROL_PREFIX
from lab.local.control import Control
from lab.local.ec2 import is_about_instances
from lab.local.elbv2 import Routing
from lab.local.environment import REGION
from lab.local.faults import ApiFault, Faults, kill_caller
from lab.local.http import (
    ClientGoneError,
    HttpRequest,
    Message,
    Receive,
    Response,
    Scope,
    Send,
    read_body,
    replay,
    rewrite,
)
from lab.local.metadata import PREFIX as METADATA_PREFIX
from lab.local.metadata import Metadata
from lab.local.ministack import MiniStack, unknown_service
from lab.local.request_limits import RequestLimits
from lab.local.thinning import Answer, thin, thin_json
from lab.local.wire import AwsError
from spotrelay.operator.advice.interruptions import BUCKET, KEY

_log = logging.getLogger(__name__)

BALANCER_PREFIX = "/_alb/"
"""MiniStack's own prefix for clients that can't set a Host header: /_alb/<load balancer>/path."""

ADVISOR_PATH = f"/{BUCKET}/{KEY}"
"""The Spot Instance Advisor's file, which lies in a bucket that anybody may read."""

MAX_ERROR_BODY = 64 * 1024
"""How much of an error's body is kept to find its code."""

DEPLOYMENTS = frozenset({"CreateStack", "UpdateStack", "ExecuteChangeSet"})

DEPLOYED_WITHIN_S, DEPLOYED_POLL_S = 10.0, 0.05
"""The CDK would wait five seconds for what is done in one. What takes longer is under way when it looks; its
client waits a minute for an answer."""

TLS = (b"x-forwarded-proto", b"https")
"""AWS is reached over TLS. We stand for its far end, so policies that demand aws:SecureTransport are met."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An AWS call; `service` and `action` as in IAM policies, `role` empty for the operator."""

    service: str
    action: str
    role: str
    request: HttpRequest


class Front:
    """Routes a request: control API, metadata, load balancer, our AWS actions, MiniStack. Logs AWS calls."""

    def __init__(
        self,
        ministack: MiniStack,
        cloud: EmulatedCloud,
        balancer: Balancer,
        routing: Routing,
        control: Control,
        calls: CallLog,
        faults: Faults,
        handlers: Mapping[tuple[str, str], Handler],
    ) -> None:
        self._ministack = ministack
        self._cloud = cloud
        self._balancer = balancer
        self._routing = routing
        self._control = control
        self._metadata = Metadata(cloud, ministack)
        self._calls = calls
        self._faults = faults
        self._handlers = handlers
        self._limits = RequestLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self._ministack.asgi(scope, receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except ClientGoneError:
            _log.debug("a client went away before its request was complete")

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(CONTROL_PREFIX):
            await self._control.answer(HttpRequest.of(scope, await read_body(receive))).send(send)
            return
        if path.startswith(METADATA_PREFIX):
            await self._metadata.answer(HttpRequest.of(scope, await read_body(receive))).send(send)
            return
        if path == ADVISOR_PATH and self._cloud.recordings.advisor:
            headers = {"content-type": "application/json"}
            await Response(200, self._cloud.recordings.advisor, headers).send(send)
            return
        target = self._load_balancer(scope)
        if target:
            name, inner = target
            await self._balancer.proxy(inner, receive, send, name)
            return
        await self._aws(scope, receive, send)

    def _load_balancer(self, scope: Scope) -> tuple[str, Scope] | None:
        """The load balancer that a request is for, and the request as that sees it."""
        path: str = scope["path"]
        if path.startswith(BALANCER_PREFIX):
            name, _, rest = path.removeprefix(BALANCER_PREFIX).partition("/")
            raw = (scope.get("raw_path") or path.encode()).removeprefix(BALANCER_PREFIX.encode())
            inner = {**scope, "path": f"/{rest}", "raw_path": b"/" + raw.partition(b"/")[2]}
            self._routing.refresh()
            return name, inner
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        name = self._routing.load_balancer_at(host) or ""
        return (name, scope) if name else None

    async def _aws(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest.of(scope)
        if _is_read_by_us(request):
            body = await read_body(receive)
            request = HttpRequest.of(scope, body)
            receive = replay(body, receive)
        service, action = self._ministack.identify(request)
        role = self._ministack.caller(request).role
        call = _Call(service, action, role, request)
        parameters = unquote_plus(request.body.decode("latin-1"))
        fault = self._faults.take(service, action, role, parameters)
        if fault:
            await asyncio.sleep(fault.delay_s)
        if fault is None or not fault.breaks:
            await self._carry_out(call, scope, receive, send, fault.answer if fault else "")
            return
        if fault.after:
            await self._carry_out(call, scope, receive, _nowhere)
        else:
            await read_body(receive)  # or the server would have to drop the connection
        if not fault.kill:
            await self._fail(call, fault, send)
        elif not kill_caller(scope["client"]):
            _log.error("%s called %s and isn't a process of ours: it lives on", role, action)

    async def _carry_out(
        self, call: _Call, scope: Scope, receive: Receive, send: Send, answer: Answer = ""
    ) -> None:
        """Let the call take effect, and answer it with all that there is, or less."""
        handler = self._handlers.get((call.service, call.action))
        response = self._answer(call, handler, answer) if handler else None
        if response:
            self._log_answer(call, response)
            await response.send(send)
            return
        if call.service == "cloudformation":
            self._ministack.prepare_cloudformation()
            if call.action in DEPLOYMENTS:
                send = partial(self._once_deployed, send)
        if answer:
            send = rewrite(send, partial(thin_json, call.action, answer))
        over_tls = {**scope, "headers": [*scope["headers"], TLS]}
        await self._pass_on(call, over_tls, receive, send)

    async def _once_deployed(self, send: Send, message: Message) -> None:
        """Answer when the stack is done: who deploys looks at it at once, and then every five seconds."""
        until = time.monotonic() + DEPLOYED_WITHIN_S
        while self._ministack.is_deploying() and time.monotonic() < until:
            await asyncio.sleep(DEPLOYED_POLL_S)
        await send(message)

    async def _fail(self, call: _Call, fault: ApiFault, send: Send) -> None:
        """Answer with the fault's error. A call that has taken effect is in the log as it went."""
        message = f"Injected by the local cloud: {fault.error_code}"
        answer = self._ministack.error(call.request, call.service, fault.error_code, message, fault.status)
        response = Response(fault.status, answer.body, answer.headers)
        if not fault.after:
            self._log_answer(call, response)
        await response.send(send)

    def _log_answer(self, call: _Call, response: Response) -> None:
        code = error_code_of(response.status, response.headers, response.body)
        self._calls.add(call.service, call.action, call.role, response.status, code)

    def _answer(self, call: _Call, handler: Handler, answer: Answer) -> Response | None:
        """Our answer; None if the call turns out to be MiniStack's."""
        service, action = call.service, call.action
        try:
            result = self._handle(service, action, handler, call.request)
            if result is not None and answer:
                result = thin(action, answer, result)
        except AwsError as error:
            return wire.answer(service, action, error)
        except UnauthenticatedError as error:
            return error.response
        except Exception:  # noqa: BLE001 - a bug of ours must reach the client as AWS's own bugs do
            _log.exception("%s:%s failed by a bug of the local cloud", service, action)
            message = "A bug of the local cloud; its log has the traceback"
            return wire.answer(service, action, AwsError("InternalError", message, status=500))
        return None if result is None else wire.answer(service, action, result)

    def _handle(self, service: str, action: str, handler: Handler, request: HttpRequest) -> Result | None:
        self._ministack.enter(request)
        params = wire.parse(service, action, request)
        if not is_about_instances(action, params):
            return None
        if self._ministack.region() != REGION:
            raise AwsError("UnsupportedOperation", f"The local cloud's instances are all in {REGION}")
        self._limits.take(action)
        return handler(Context(self._cloud, self._ministack, request, params, self._faults.is_denied))

    async def _pass_on(self, call: _Call, scope: Scope, receive: Receive, send: Send) -> None:
        """Let MiniStack answer, and log the call once it has."""
        status, headers, body = 0, {}, b""

        async def observed(message: Message) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in message["headers"]}
            elif status >= 400 and len(body) < MAX_ERROR_BODY:
                body += message.get("body", b"")
            await send(message)

        await self._ministack.asgi(scope, receive, observed)
        if call.action or status >= 400:
            code = error_code_of(status, headers, body)
            self._calls.add(call.service, call.action, call.role, status, code)


def _is_read_by_us(request: HttpRequest) -> bool:
    """Bodies that name the action (the query protocol), or that we answer; of others the head is enough."""
    names_action = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    return names_action or bool(unknown_service(request))


async def _nowhere(_: Message) -> None:
    """Where an answer goes that gets lost."""
