"""Every touch of MiniStack's insides, in one place. Pinned to 1.5.33: read this file again when that changes.

MiniStack has no extension points, so we import its modules late (it reads its settings at import), read its
stores, replace some of its functions and add five CloudFormation types. What we rely on:

- `ministack.app.app`, the ASGI application, and `AUTH`, which makes it check signatures and IAM policies;
- the request-scoped account and region (context variables), without which its stores look empty;
- `eventbridge._dispatch_event` and the records it takes: the only way to emit events as `aws.ec2`, and with a
  time of our own;
- `_parse_rate_seconds` and the two schedulers' tick intervals, to compress time;
- `lambda_svc._run_sqs_batch`, which gets the queue's own messages, to compress time for them, too;
- `lambda_svc._recursive_loop_drop`, `_invoke` and `_xray_trace_id_for_invocation`, `sqs.handle_request` and
  `_build_send_sys_attrs`: MiniStack counts only direct invocations, and no chain that goes through a queue;
- `sqs._HANDLERS`, SQS's actions, which lack those of a redrive, and `sqs._dispatch`, which each call passes;
- `lambda_runtime.Worker`, which reads a function's log in a thread and takes what has come when it looks;
- `cloudwatch_logs._append_log_events`, which every log line of a function passes, and
  `lambda_svc._emit_lambda_logs`, which writes them as Lambda did years ago; `_compile_filter_pattern`;
- `lambda_svc._execute_function_dispatch`, which every invocation passes, though not all are counted;
- `cloudwatch._evaluate_alarm`, which ignores dimensions, so that one queue's depth sets off another's alarm;
- `sts.register_session`, by which MiniStack gives functions their roles, and we instances theirs;
- `ssm._put_parameter`, which takes values that Parameter Store refuses;
- `eventbridge._put_events`, which takes entries and calls that EventBridge refuses;
- `iam_actions.extract_resource_arn`, which IAM asks what a request is about, and which misses some;
- `iam_evaluator.enforce`, which IAM's every decision passes, and the condition keys: those of DynamoDB lack
  one, those of EventBridge all, and nothing says whose a resource is;
- `cloudwatch._dispatch_alarm_actions` and `eventbridge._invoke_target`, which ask no resource policy;
- `cloudwatch._put_metric_alarm` and `provisioners._cw_metric_alarm_record`, which know no metric math, and
  with `cloudwatch._put_composite_alarm` two lists of names;
- `alb._apply_tls_settings`, which asks nobody whether a certificate exists, and `acm._certificates`;
- `provisioners._RESOURCE_HANDLERS`, CloudFormation's resource types, which lack security group rules, elastic
  addresses, NAT gateways and composite alarms, and of functions `RecursiveLoop`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, cast

from lab.local import wire
from lab.local.cloudformation import keep_what_is_needed, refuse_beyond_quotas, refuse_in_zone
from lab.local.environment import ACCOUNT, REGION
from lab.local.http import AsgiApp, HttpRequest, Response
from lab.local.lineage import HEADER, Chain
from lab.local.logs import LogPipe, Report, any_term
from lab.local.redrive import Redrive, RefusedError
from spotrelay.plane.core.names import TABLE_PARTITION_KEY

SCHEDULER_TICK_S = 0.5
"""How often MiniStack looks for due schedules. Its own 10 s would hide what a compressed schedule does."""

UNKNOWN_SERVICES = {"AWSPriceListService": "pricing", "ServiceQuotasV20190624": "servicequotas"}
"""Services that MiniStack doesn't know: the target of their calls to IAM's name."""


POISON_RECEIVES = 3
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html"""

UNKNOWN_REST_SERVICES = ("fis",)
"""Those whose calls are told by method and path, and which are named in the signature only."""

ALARM_ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who signed a request; `role` is empty for the operator."""

    arn: str
    role: str


@dataclass(frozen=True, slots=True)
class Denial:
    """IAM's answer to a call that isn't allowed. `unauthenticated` has no principal to speak of."""

    message: str
    unauthenticated: Response | None = None


class MiniStack:
    """MiniStack, running in this process. It reads the environment: see `lab.local.environment`."""

    def __init__(self) -> None:
        self._app = import_module("ministack.app")
        self._act: Callable[[JsonObject, str, str, str], None] = lambda *_: None
        self._check_math: Callable[[list[JsonObject]], object] = lambda _: None
        self._knows_math = False
        self._is_strict = False
        self._chains: Counter[str] = Counter()
        self._asked_queues: dict[str, float] = {}
        # It was for MiniStack. Functions inherit this environment, and their own logger would obey it, too.
        os.environ.pop("LOG_LEVEL", None)
        self._core = {
            name: import_module(f"ministack.core.{name}")
            for name in ("iam_actions", "iam_evaluator", "lambda_runtime", "responses", "router")
        }
        self._services = {
            name: import_module(f"ministack.services.{name}")
            for name in (
                "acm",
                "alb",
                "cloudwatch",
                "cloudwatch_logs",
                "ec2",
                "eventbridge",
                "iam",
                "lambda_svc",
                "scheduler",
                "sns",
                "sqs",
                "ssm",
                "sts",
            )
        }

    @property
    def asgi(self) -> AsgiApp:
        """The application. It takes TLS for granted when a request says `x-forwarded-proto: https`."""
        return cast("AsgiApp", self._app.app)

    # --- requests and IAM ---

    def identify(self, request: HttpRequest) -> tuple[str, str]:
        """The service and action that a request is for, as in IAM policies; empty where it is neither."""
        unknown = unknown_service(request)
        if unknown in UNKNOWN_REST_SERVICES:
            return unknown, wire.rest_action(unknown, request)
        if unknown:
            return unknown, request.headers["x-amz-target"].partition(".")[2]
        params = self._params(request)
        service = str(
            self._core["router"].detect_service(request.method, request.path, request.headers, params)
        )
        action = self._core["iam_actions"].extract_iam_action(
            service, request.method, request.path, request.headers, request.body, params
        )
        return (service, str(action).partition(":")[2]) if action else (service, "")

    def enter(self, request: HttpRequest) -> None:
        """Make the request the current one: account, region, signature. Holds for the running task."""
        router, responses = self._core["router"], self._core["responses"]
        evaluator = self._core["iam_evaluator"]
        key = router.extract_access_key_id(request.headers, request.query)
        responses.set_request_account_id(self._app._request_account_scope(key))
        responses.set_request_region(router.extract_region(request.headers, request.query))
        evaluator.pin_request_origin(request.client, True)
        evaluator.pin_signed_request(request.method, request.raw_path, request.query, request.raw_headers)
        evaluator.pin_signed_body(request.body)
        evaluator.pin_request_caller(request.headers, request.query)

    def region(self) -> str:
        """The region of the current request."""
        return str(self._core["responses"].get_region())

    def caller(self, request: HttpRequest) -> Caller:
        """Who signed the request, without checking the signature."""
        key = self._core["router"].extract_access_key_id(request.headers, request.query)
        identity = self._core["iam_evaluator"].resolve_caller_identity(key) or {}
        return Caller(str(identity.get("userArn", "")), _role_of(identity))

    def denial(
        self, request: HttpRequest, action: str, resource: str, context: Mapping[str, Any]
    ) -> Denial | None:
        """Why IAM forbids the current request `action` (as in `ec2:RunInstances`) on `resource`, if it does.

        `context` holds condition keys such as `aws:ResourceTag/team`.
        """
        service = action.partition(":")[0]
        key = self._core["router"].extract_access_key_id(request.headers, request.query)
        evaluator, actions = self._core["iam_evaluator"], self._core["iam_actions"]
        denied = evaluator.enforce(key, action, service, self.region(), resource, dict(context))
        if denied is None:
            return None
        if isinstance(denied, evaluator.AuthError):
            status, headers, body = actions.access_denied_response(
                service,
                action,
                "",
                str(uuid.uuid4()),
                error_code=denied.code,
                message=denied.message,
                headers=request.headers,
            )
            return Denial(str(denied.message), Response(status, body, headers))
        explicit = denied.decision == "Deny"
        return Denial(actions.identity_denial_message(action, denied.principal_arn, resource, explicit))

    def error(self, request: HttpRequest, service: str, code: str, message: str, status: int) -> Response:
        """An error in the protocol that the service speaks."""
        _, headers, body = self._core["iam_actions"].access_denied_response(
            service, "", "", str(uuid.uuid4()), error_code=code, message=message, headers=request.headers
        )
        return Response(status, body, headers)

    def _params(self, request: HttpRequest) -> dict[str, list[str]]:
        merged = self._app._routing_params(
            request.method, request.path, request.headers, request.body, request.query
        )
        return cast("dict[str, list[str]]", merged)

    # --- what EC2 and the load balancer have to know ---

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Our account and region for code that no request started."""
        with self._core["responses"].request_scope(ACCOUNT, REGION):
            yield

    def subnet(self, subnet_id: str) -> JsonObject | None:
        """The subnet's record: SubnetId, VpcId, AvailabilityZone, …"""
        self._services["ec2"]._ensure_defaults_initialized()
        return cast("JsonObject | None", self._services["ec2"]._subnets.get(subnet_id))

    def default_subnets(self) -> list[JsonObject]:
        """The default VPC's subnets, one per zone."""
        self._services["ec2"]._ensure_defaults_initialized()
        return [s for s in self._services["ec2"]._subnets.values() if s.get("DefaultForAz")]

    def launch_template(self, template_id: str | None, name: str | None) -> JsonObject | None:
        """The template's record: LaunchTemplateId, …, Versions with their LaunchTemplateData."""
        templates = self._services["ec2"]._launch_templates
        if template_id:
            return cast("JsonObject | None", templates.get(template_id))
        return next((t for t in templates.values() if t["LaunchTemplateName"] == name), None)

    def role_of_instance_profile(self, arn: str | None, name: str | None) -> tuple[str, str] | None:
        """ARNs of the instance profile and of its role, or None if there is no such profile."""
        iam = self._services["iam"]
        profile = iam._lookup_instance_profile(name=name or "", arn=arn or "")
        if not profile:
            return None
        roles = profile.get("Roles") or []
        role = roles[0] if roles else {}
        record = role if isinstance(role, dict) else (iam._roles.get(role) or {})
        return str(profile["Arn"]), str(record.get("Arn", ""))

    def assumed_by(self, role_arn: str, service: str, session: str) -> str | None:
        """An access key by which an AWS service is the role; None if no such role trusts the service."""
        record = self._services["iam"]._roles.get(role_arn.rpartition("/")[2]) or {}
        document = record.get("AssumeRolePolicyDocument") or "{}"
        trust = json.loads(document) if isinstance(document, str) else document
        trusted = [
            principals
            for statement in trust.get("Statement", [])
            for principals in [(statement.get("Principal") or {}).get("Service", [])]
        ]
        if record.get("Arn") != role_arn or not any(service in principals for principals in trusted):
            return None
        return self.role_credentials(role_arn, session)[0]

    def denial_of(self, key: str, action: str, resource: str, context: Mapping[str, Any]) -> str | None:
        """Why IAM forbids whom the access key stands for `action`; None if it doesn't."""
        evaluator: Any = self._core["iam_evaluator"]
        denied = evaluator.enforce(key, action, action.partition(":")[0], REGION, resource, dict(context))
        if denied is None:
            return None
        arn = (evaluator.resolve_caller_identity(key) or {}).get("userArn", key)
        return f"User: {arn} is not authorized to perform: {action} on resource: {resource}"

    def role_credentials(self, role_arn: str, session: str) -> tuple[str, str, str]:
        """Access key, secret and token by which an instance is its role."""
        key, secret, token = (
            f"ASIA{secrets.token_hex(8).upper()}",
            secrets.token_hex(20),
            secrets.token_hex(20),
        )
        _, _, _, _, account, resource = role_arn.split(":", 5)
        name = resource.rpartition("/")[2]
        self._services["sts"].register_session(
            key,
            {
                "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
                "UserId": f"{name}:{session}",
                "SecretAccessKey": secret,
                "SessionToken": token,
            },
        )
        return key, secret, token

    def mirror_tags(self, resource_id: str, tags: Mapping[str, str]) -> None:
        """Let MiniStack's DescribeTags see the tags of a resource of ours."""
        store = self._services["ec2"]._tags
        if tags:
            store[resource_id] = [{"Key": k, "Value": v} for k, v in tags.items()]
        else:
            store.pop(resource_id, None)

    def tags_of(self, resource: str) -> dict[str, str]:
        """Tags of an EC2 resource by its ID, or of a load balancing resource by its ARN."""
        store = self._services["alb" if resource.startswith("arn:") else "ec2"]._tags
        return {tag["Key"]: tag.get("Value", "") for tag in store.get(resource) or []}

    def target_groups(self) -> list[JsonObject]:
        """Target groups, each with its `Attributes`."""
        alb = self._services["alb"]
        with self.scope():
            return [
                {**group, "Attributes": {a["Key"]: a["Value"] for a in alb._tg_attrs.get(arn) or []}}
                for arn, group in alb._tgs.items()
            ]

    def load_balancers(self) -> list[JsonObject]:
        """Load balancers, each with its `Listeners`, these with their `Rules`, `Attributes` and `Zones`."""
        alb = self._services["alb"]
        with self.scope():
            rules = [rule for rule in alb._rules.values() if not rule["IsDefault"]]
            listeners = [
                {**li, "Rules": [rule for rule in rules if rule["ListenerArn"] == li["ListenerArn"]]}
                for li in alb._listeners.values()
            ]
            return [
                {
                    **lb,
                    "Listeners": [li for li in listeners if li["LoadBalancerArn"] == arn],
                    "Attributes": {a["Key"]: a["Value"] for a in alb._lb_attrs.get(arn) or []},
                    # What it says of them itself is always the first zone.
                    "Zones": [str(s["AvailabilityZone"]) for id_ in lb["Subnets"] if (s := self.subnet(id_))],
                }
                for arn, lb in alb._lbs.items()
            ]

    def certificate(self, arn: str) -> tuple[str, str] | None:
        """A certificate with its chain, and its key, in PEM; None if nobody has imported such a one."""
        with self.scope():
            found = self._services["acm"]._certificates.get(arn)
        if not (found and found["_private_key"]):
            return None
        return f"{found['_pem_body']}\n{found['_pem_chain']}", found["_private_key"]

    def ask_for_certificates(self) -> None:
        """Refuse a listener for HTTPS without a certificate that exists, as ELB does; MiniStack takes any."""
        alb: Any = self._services["alb"]
        certificates, apply = self._services["acm"]._certificates, alb._apply_tls_settings

        def applied(listener: JsonObject, arns: list[str], policy: Any) -> None:
            if listener.get("Protocol") == "HTTPS":
                if not (arns or listener.get("Certificates")):
                    raise ValueError("A certificate must be specified for HTTPS listeners")
                if missing := [arn for arn in arns if arn not in certificates]:
                    raise ValueError(f"CertificateNotFound: Certificate '{missing[0]}' not found")
            apply(listener, arns, policy)

        alb._apply_tls_settings = applied

    # --- events and schedules ---

    def emit(
        self,
        detail_type: str,
        detail: JsonObject,
        resources: list[str],
        *,
        at: datetime,
        source: str = "aws.ec2",
        deliveries: int = 1,
    ) -> None:
        """An event on the default bus that happened `at`, delivered so many times with one ID."""
        record = {
            "EventId": str(uuid.uuid4()),
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "EventBusName": "default",
            "Time": int(at.timestamp()),
            "Resources": resources,
            "Account": ACCOUNT,
            "Region": REGION,
        }
        with self.scope():
            for _ in range(deliveries):
                self._services["eventbridge"]._dispatch_event(dict(record))

    def compress_schedules(self, factor: float) -> None:
        """Let `rate(…)`, of rules and of EventBridge Scheduler, last only `factor` of its time."""
        bus: Any = self._services["eventbridge"]
        scheduler: Any = self._services["scheduler"]
        parse = bus._parse_rate_seconds

        def compressed(expression: str) -> float | None:
            seconds = parse(expression)
            return None if seconds is None else seconds * factor

        bus._parse_rate_seconds = compressed
        bus._SCHEDULER_TICK_INTERVAL = SCHEDULER_TICK_S
        scheduler._SCHEDULE_TICK_INTERVAL = SCHEDULER_TICK_S

    def compress_redelivery(self, factor: float) -> None:
        """Let what a function failed on come back after `factor` of its queue's visibility timeout.

        Never while the function still works on it, as on AWS, where that timeout is the longer one: functions
        run at their usual speed here, so a timeout shortened from the start could end before they do.
        """
        functions: Any = self._services["lambda_svc"]
        queues, run = self._services["sqs"]._queues, functions._run_sqs_batch

        def ran(
            mapping: JsonObject,
            function: JsonObject,
            event: Any,
            batch: list[JsonObject],
            url: str,
            *rest: Any,
        ) -> None:
            run(mapping, function, event, batch, url, *rest)
            timeout_s = float(queues[url]["attributes"]["VisibilityTimeout"])
            for message in batch:  # those that were processed are in no queue any more
                message["visible_at"] = max(message["visible_at"] - (1 - factor) * timeout_s, time.time())

        functions._run_sqs_batch = ran

    def redrive_dead_letters(self) -> None:
        """Let SQS move what is in a dead-letter queue back."""
        queues: Any = self._services["sqs"]
        redrive = Redrive(lambda: list(queues._queues.values()))

        def of(act: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject, str], JsonObject]:
            def acted(request: JsonObject, _url: str) -> JsonObject:
                try:
                    return act(request)
                except RefusedError as refusal:
                    raise queues._Err(refusal.code, str(refusal)) from refusal

            return acted

        queues._HANDLERS |= {
            "StartMessageMoveTask": of(redrive.start),
            "ListMessageMoveTasks": of(redrive.tasks),
        }

    def count_chains(self) -> None:
        """Drop an invocation that comes too late in a chain, as Lambda does, whatever way the chain goes.

        What is dropped of a queue stays there, until it has been received too often.
        """
        functions: Any = self._services["lambda_svc"]
        queues: Any = self._services["sqs"]
        drop, run, invoke = functions._recursive_loop_drop, functions._run_sqs_batch, functions._invoke
        handle, attributes_of = queues.handle_request, queues._build_send_sys_attrs
        invoked: ContextVar[Chain | None] = ContextVar("the chain that an invocation is in", default=None)
        sent: ContextVar[str] = ContextVar("the trace header of a request to SQS", default="")

        def is_dropped(name: str, function: JsonObject, depth: int) -> Any:
            chain = invoked.get()
            depth = max(depth, chain.invocations(name) if chain else 0)
            self._chains[name] = max(self._chains[name], depth)
            return drop(name, function, depth)

        def ran(
            mapping: JsonObject, function: JsonObject, event: Any, batch: list[JsonObject], *rest: Any
        ) -> None:
            name = str(mapping["FunctionName"])
            chain = Chain.of(message["sys"].get("AWSTraceHeader") for message in batch)
            invoked.set(chain.invoking(name))  # the thread is this batch's
            if is_dropped(name, function, 0) is None:
                run(mapping, function, event, batch, *rest)

        async def called(name: str, event: Any, headers: Mapping[str, str], *rest: Any, **named: Any) -> Any:
            invoked.set(Chain.of([headers.get(HEADER)]).invoking(name))
            return await invoke(name, event, headers, *rest, **named)

        async def handled(method: str, path: str, headers: Mapping[str, str], *rest: Any) -> Any:
            sent.set(headers.get(HEADER, ""))
            return await handle(method, path, headers, *rest)

        def attributes(now: float, given: JsonObject) -> JsonObject:
            header = {"AWSTraceHeader": sent.get()} if sent.get() else {}
            return {**header, **attributes_of(now, given)}

        def trace(config: JsonObject, header: str | None = None) -> str:
            return header or (invoked.get() or Chain.of([]).invoking(config["FunctionName"])).header()

        functions._recursive_loop_drop, functions._run_sqs_batch, functions._invoke = is_dropped, ran, called
        queues.handle_request, queues._build_send_sys_attrs = handled, attributes
        functions._xray_trace_id_for_invocation = trace

    def longest_chains(self) -> dict[str, int]:
        """By function: how often it was invoked, or would have been, in the longest chain so far."""
        return dict(self._chains)

    def limit_concurrency(self, most: int) -> None:
        """Let no more functions run at the same time in the whole account; more are throttled."""
        functions: Any = self._services["lambda_svc"]
        functions._ACCOUNT_CONCURRENCY_CAP = most

    # --- logs, metrics, alarms ---

    def keep_whole_logs(self) -> None:
        """Give an invocation's log all that it wrote.

        MiniStack takes lines until none has come for 5 ms, but on a busy machine its own reader pauses for
        longer: the last lines, metrics among them, then wait for the process's next invocation.
        """
        worker = self._core["lambda_runtime"].Worker

        def read(self: Any) -> None:
            self.log = LogPipe(self._proc.stderr)
            self.log.pump()

        def drain(self: Any) -> str:
            return str(self.log.take())

        worker._read_stderr = read
        worker._drain_stderr = worker._drain_stderr_bounded = drain

    def write_reports(self) -> None:
        """Have an invocation's log say what Lambda says of it, in the function's format."""
        functions: Any = self._services["lambda_svc"]
        logs: Any = self._services["cloudwatch_logs"]
        emit, append = functions._emit_lambda_logs, logs._append_log_events
        whole: ContextVar[list[str]] = ContextVar("an invocation's whole log")

        def emitted(
            function: JsonObject, request_id: str, said: str, error: bool, took_ms: int, **named: Any
        ) -> None:
            config = function.get("config") or function
            is_json = (config.get("LoggingConfig") or {}).get("LogFormat") == "JSON"
            version, memory_mib = config.get("Version", "$LATEST"), int(config.get("MemorySize", 128))
            report = Report(request_id, version, error, took_ms, memory_mib, is_json)
            token = whole.set(report.lines(said))
            try:
                emit(function, request_id, said, error, took_ms, **named)
            finally:
                whole.reset(token)

        def appended(stream: JsonObject, events: list[JsonObject]) -> None:
            lines = whole.get(None)
            if lines is not None:
                events = [{**events[0], "message": line} for line in lines]
            append(stream, [{"eventId": uuid.uuid4().hex, **event} for event in events])

        functions._emit_lambda_logs, logs._append_log_events = emitted, appended

    def search_any_term(self) -> None:
        """Let a log's search understand optional terms: MiniStack takes question marks for wildcards."""
        logs: Any = self._services["cloudwatch_logs"]
        compiled = logs._compile_filter_pattern
        logs._compile_filter_pattern = lambda pattern: any_term(pattern) or compiled(pattern)

    def on_log_lines(self, see: Callable[[Iterable[str]], None]) -> None:
        """Call `see` with every batch of log lines, in the account and region that wrote them."""
        logs: Any = self._services["cloudwatch_logs"]
        append = logs._append_log_events

        def appended(stream: JsonObject, events: list[JsonObject]) -> None:
            append(stream, events)
            see([str(event["message"]) for event in events])

        logs._append_log_events = appended

    def record_metric(
        self, namespace: str, name: str, value: float, unit: str, dimensions: Mapping[str, str]
    ) -> None:
        """One datum, now, in the current account and region."""
        self._services["cloudwatch"].record_metric(namespace, name, value, unit, dict(dimensions))

    def count_every_invocation(self) -> None:
        """Let every invocation make AWS/Lambda metrics: MiniStack forgets those that a queue causes."""
        functions: Any = self._services["lambda_svc"]
        count, dispatch = functions._emit_lambda_metrics, functions._execute_function_dispatch

        def dispatched(
            function: JsonObject, config: JsonObject, event: Any, request_id: str, started: float
        ) -> Any:
            result = dispatch(function, config, event, request_id, started)
            failed = isinstance(result, dict) and bool(result.get("error"))
            took_ms = 1000 * (time.time() - started)
            count(config["FunctionName"], duration_ms=took_ms, error=failed, throttle=False)
            return result

        def counted(name: str, *, duration_ms: float, error: bool, throttle: bool) -> None:
            if throttle:  # a refused invocation is never dispatched; any other is counted there
                count(name, duration_ms=duration_ms, error=error, throttle=throttle)

        functions._execute_function_dispatch = dispatched
        functions._emit_lambda_metrics = counted

    def queue_metrics(self) -> dict[str, dict[str, float]]:
        """What AWS/SQS would say now, by queue and metric."""
        sqs, now = self._services["sqs"], time.time()
        with self.scope():
            found = {}
            for queue in sqs._queues.values():
                sqs._refresh_counts(queue)
                attributes = queue["attributes"]
                # What was received three times goes to the queue's end, and doesn't count any more.
                waiting = (m for m in list(queue["messages"]) if m["receive_count"] < POISON_RECEIVES)
                sent = [float(message["sent_at"]) for message in waiting]
                found[str(queue["name"])] = {
                    "ApproximateNumberOfMessagesVisible": float(attributes["ApproximateNumberOfMessages"]),
                    "ApproximateNumberOfMessagesNotVisible": float(
                        attributes["ApproximateNumberOfMessagesNotVisible"]
                    ),
                    "ApproximateAgeOfOldestMessage": now - min(sent, default=now),
                }
            return found

    def note_queue_calls(self) -> None:
        """Remember when each queue was last called, whatever for: SQS measures it for hours after that."""
        queues: Any = self._services["sqs"]
        dispatch = queues._dispatch

        async def noted(action: str, request: JsonObject, url: str) -> Any:
            if url:
                self._asked_queues[url.rstrip("/").rpartition("/")[2]] = time.time()
            return await dispatch(action, request, url)

        queues._dispatch = noted

    def asked_queues(self) -> dict[str, float]:
        """By queue that anybody called: when it was last."""
        return dict(self._asked_queues)

    def polled_queues(self) -> set[str]:
        """The names of the queues that functions are fed from: they are never idle."""
        mappings = self._services["lambda_svc"]._iter_all_esms()
        sources = (str(one.get("EventSourceArn", "")) for _, _, one in mappings if one.get("Enabled", True))
        return {arn.rpartition(":")[2] for arn in sources if ":sqs:" in arn}

    def alarms(self) -> list[JsonObject]:
        """Metric alarms, as PutMetricAlarm made them."""
        return list(self._services["cloudwatch"]._alarms.values())

    def data_points(self, namespace: str, name: str, dimensions: Mapping[str, str]) -> list[JsonObject]:
        """A metric's data: Timestamp (epoch seconds), Value, Count, …"""
        cloudwatch = self._services["cloudwatch"]
        key = (namespace, name, cloudwatch._dims_key(dict(dimensions)))
        return list(cloudwatch._metrics.get(key) or [])

    def age_data_points(self, by_s: float) -> None:
        """Have every datum of every metric be so much older."""
        for points in list(self._services["cloudwatch"]._metrics.values()):
            for point in points:
                point["Timestamp"] -= by_s

    def statistic(self, points: list[JsonObject], name: str) -> float:
        """Sum, Average, p90, … of data points; there must be at least one."""
        cloudwatch = self._services["cloudwatch"]
        return float(cloudwatch._stat_value(cloudwatch._calc_stats(points), name, points))

    def answer_metric_data(self, answer: Callable[..., list[JsonObject]], refused: type[ValueError]) -> None:
        """Answer GetMetricData with our function, whose arguments are those of `metric_data.answer`."""
        cloudwatch: Any = self._services["cloudwatch"]
        of_forms = cloudwatch._get_metric_data

        def get(params: JsonObject, data: JsonObject, is_cbor: bool, is_json: bool = False) -> Any:
            if not (is_cbor or is_json):
                return of_forms(params, data, is_cbor, is_json)  # no client of ours sends forms
            try:
                results = answer(
                    data.get("MetricDataQueries") or (),
                    cloudwatch._parse_ts(data.get("StartTime")),
                    cloudwatch._parse_ts(data.get("EndTime")),
                    now=time.time(),
                    is_ascending=data.get("ScanBy") == "TimestampAscending",
                    points=self.data_points,
                    statistic=self.statistic,
                )
            except refused as refusal:
                return cloudwatch._error("ValidationError", str(refusal), 400, is_json, is_cbor)
            for result in results:
                result["Timestamps"] = [cloudwatch._ts_iso(at) for at in result["Timestamps"]]
            if is_cbor:
                shown = [cloudwatch._cbor_metric_data_result(result) for result in results]
                return cloudwatch._cbor_ok({"MetricDataResults": shown})
            return cloudwatch._json_ok({"MetricDataResults": results})

        cloudwatch._get_metric_data = get

    def set_alarm_state(self, alarm: JsonObject, state: str, reason: str, at: float) -> None:
        """Move the alarm to another state, with history and actions."""
        cloudwatch: Any = self._services["cloudwatch"]
        old = alarm["StateValue"]
        alarm.update(StateValue=state, StateReason=reason, StateUpdatedTimestamp=int(at))
        cloudwatch._record_history(alarm["AlarmName"], old, state, reason)
        cloudwatch._dispatch_alarm_actions(alarm, old, state, reason)
        cloudwatch._evaluate_parent_alarms(alarm)

    def accept_metric_math(self, check: Callable[[list[JsonObject]], object]) -> None:
        """Let PutMetricAlarm take `Metrics`, which MiniStack drops; `check` raises ValueError on bad ones."""
        cloudwatch: Any = self._services["cloudwatch"]
        put = cloudwatch._put_metric_alarm

        def accepted(params: JsonObject, data: JsonObject, is_cbor: bool, is_json: bool = False) -> Any:
            queries = data.get("Metrics") if is_cbor or is_json else None
            if not queries:
                return put(params, data, is_cbor, is_json)
            try:
                check(queries)
            except ValueError as refusal:
                return cloudwatch._error("ValidationError", str(refusal), 400, is_json, is_cbor)
            answer = put(params, data, is_cbor, is_json)
            if answer[0] == 200:
                alarm = cloudwatch._alarms[data["AlarmName"]]
                _make_math_alarm(alarm, queries)
                cloudwatch._evaluate_alarm(alarm)
            return answer

        cloudwatch._put_metric_alarm = accepted
        self._check_math = check

    def refuse_names_of_the_other_kind(self) -> None:
        """Let no metric alarm have a composite one's name, nor the reverse: CloudWatch has one list."""
        cloudwatch: Any = self._services["cloudwatch"]
        for call, others in (
            ("_put_metric_alarm", cloudwatch._composite_alarms),
            ("_put_composite_alarm", cloudwatch._alarms),
        ):
            setattr(cloudwatch, call, _unless_taken(cloudwatch, getattr(cloudwatch, call), others))

    def replace_alarm_evaluation(self, evaluate: Callable[[JsonObject], None]) -> None:
        """Evaluate alarms with our function wherever MiniStack would with its own."""
        cloudwatch: Any = self._services["cloudwatch"]
        cloudwatch._evaluate_alarm = evaluate

    # --- permissions ---

    def on_permission(self, see: Callable[[str, str, bool], None]) -> None:
        """Call `see` with role, action and outcome whenever IAM decides on what a role asks for."""
        evaluator: Any = self._core["iam_evaluator"]
        enforce = evaluator.enforce
        roles: dict[str, str] = {}

        def enforced(key: str, action: str, *rest: Any, **named: Any) -> Any:
            denied = enforce(key, action, *rest, **named)
            if key not in roles:
                roles[key] = _role_of(evaluator.resolve_caller_identity(key))
            if roles[key]:
                see(roles[key], action, denied is None)
            return denied

        evaluator.enforce = enforced

    def name_leading_keys(self) -> None:
        """Give IAM `dynamodb:LeadingKeys`, the partition keys that a request names; MiniStack doesn't look.

        In a transaction each item is judged by its own.
        """
        actions: Any = self._core["iam_actions"]
        context_of, checks_of = actions.dynamodb_service_context, actions.dynamodb_transaction_checks
        of_items: ContextVar[Iterator[str]] = ContextVar("leading keys of a transaction's items")

        def context(body: bytes) -> JsonObject:
            found: JsonObject = context_of(body)
            keys = [key for keys in _keys_by_item(body) for key in keys]
            return {**found, **({"dynamodb:LeadingKeys": keys} if keys else {})}

        def checks(action: str, body: bytes, *rest: Any) -> Any:
            of_items.set(key for keys in _keys_by_item(body) for key in keys)
            return checks_of(action, body, *rest)

        def key_of_item(given: JsonObject) -> JsonObject:
            is_item = "dynamodb:EnclosingOperation" in given
            return {"dynamodb:LeadingKeys": [next(of_items.get(), "")]} if is_item else {}

        actions.dynamodb_service_context = context
        actions.dynamodb_transaction_checks = checks
        self._add_condition_keys(key_of_item)

    def name_resource_accounts(self) -> None:
        """Give IAM `aws:ResourceAccount`, whose a resource is: MiniStack's stores are each one account's."""
        responses: Any = self._core["responses"]
        self._add_condition_keys(lambda _: {"aws:ResourceAccount": responses.get_account_id()})

    def _add_condition_keys(self, more: Callable[[JsonObject], JsonObject]) -> None:
        """Have IAM decide by these condition keys, too; `more` is told those that MiniStack gives."""
        evaluator: Any = self._core["iam_evaluator"]
        enforce = evaluator.enforce

        def enforced(
            key: str, action: str, service: str, region: str, resource_arn: str = "*",
            service_context: JsonObject | None = None,
        ) -> Any:  # fmt: skip
            given = service_context or {}
            return enforce(key, action, service, region, resource_arn, {**given, **more(given)})

        evaluator.enforce = enforced

    def name_event_sources(self) -> None:
        """Give IAM `events:source` and `events:detail-type` of each entry of PutEvents; each must be allowed.

        Source: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-conditions.html
        """
        actions: Any = self._core["iam_actions"]
        evaluator: Any = self._core["iam_evaluator"]
        buses_of, enforce = actions.eventbridge_resource_arns, evaluator.enforce
        named: ContextVar[tuple[JsonObject, ...]] = ContextVar("entries of a PutEvents", default=())

        def buses(body: bytes, *rest: Any) -> Any:
            with contextlib.suppress(ValueError, AttributeError):
                entries = json.loads(body or b"{}").get("Entries") or []
                named.set(tuple(entry for entry in entries if isinstance(entry, dict)))
            return buses_of(body, *rest)

        def enforced(
            key: str, action: str, service: str, region: str, resource_arn: str = "*",
            service_context: JsonObject | None = None,
        ) -> Any:  # fmt: skip
            if action != "events:PutEvents":
                return enforce(key, action, service, region, resource_arn, service_context)
            told = {(str(entry.get("Source", "")), str(entry.get("DetailType", ""))) for entry in named.get()}
            denied = None
            for source, kind in sorted(told) or [("", "")]:
                given = {**(service_context or {}), "events:source": source, "events:detail-type": kind}
                denied = denied or enforce(key, action, service, region, resource_arn, given)
            return denied

        actions.eventbridge_resource_arns = buses
        evaluator.enforce = enforced

    def ask_resource_policies(self) -> None:
        """Deliver an alarm to a topic, and a rule's event to either, only if its policy lets the service.

        To a topic EventBridge tells nothing of the rule, so a statement with a condition never lets it:
        https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html#eb-sns-permissions
        """
        cloudwatch: Any = self._services["cloudwatch"]
        bus: Any = self._services["eventbridge"]
        dispatch, invoke = cloudwatch._dispatch_alarm_actions, bus._invoke_target
        sns, sqs = self._services["sns"], self._services["sqs"]

        def may(
            allows: Callable[..., bool], target: str, service: str, source: str, account: str = ACCOUNT
        ) -> bool:
            self._core["iam_evaluator"].pin_request_origin("", True)  # AWS's services come over TLS
            allowed = allows(target, service, source, account)
            if not allowed:
                _log.warning("%s: its policy doesn't let %s write to it for %s", target, service, source)
            return allowed

        def dispatched(alarm: JsonObject, *rest: Any) -> None:
            def reached(name: str) -> list[str]:
                source = str(alarm.get("AlarmArn", ""))
                return [
                    target
                    for target in alarm.get(name) or []
                    if ":sns:" not in target
                    or may(sns.topic_policy_allows, target, "cloudwatch.amazonaws.com", source)
                ]

            dispatch({**alarm, **{name: reached(name) for name in ALARM_ACTIONS}}, *rest)

        def invoked(target: JsonObject, event: JsonObject, rule: JsonObject, *rest: Any) -> None:
            arn = str(target.get("Arn", ""))
            source, bus = str(rule.get("Arn", "")), "events.amazonaws.com"
            is_let = (
                may(sqs.queue_policy_allows, arn, bus, source)
                if ":sqs:" in arn
                else ":sns:" not in arn or may(sns.topic_policy_allows, arn, bus, "", "")
            )
            if is_let:
                invoke(target, event, rule, *rest)

        cloudwatch._dispatch_alarm_actions = dispatched
        bus._invoke_target = invoked

    # --- seeds and the end ---

    def name_resources(self) -> None:
        """Let IAM see which parameters and whose log's lines are asked for; MiniStack doesn't look, or so.

        Of several parameters each must be allowed: the one that isn't is what the request is judged by.
        """
        actions: Any = self._core["iam_actions"]
        enforce, key_of = self._core["iam_evaluator"].enforce, self._core["router"].extract_access_key_id
        resource_of = actions.extract_resource_arn

        def arn(name: str) -> str:
            return f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/{name.strip('/')}"

        def named(
            service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, *rest: Any
        ) -> str:
            target = headers.get("x-amz-target", "").rpartition(".")[2]
            if service == "ssm" and target == "GetParametersByPath":
                with contextlib.suppress(ValueError, KeyError, AttributeError):
                    return arn(json.loads(body)["Path"])
            if service == "ssm" and target == "GetParameters":
                with contextlib.suppress(ValueError, KeyError, AttributeError, IndexError):
                    asked = [arn(name) for name in json.loads(body)["Names"]]
                    key = key_of(headers, {})
                    denied = (
                        one for one in asked if enforce(key, "ssm:GetParameters", "ssm", REGION, one, {})
                    )
                    return next(denied, asked[0])
            found = str(resource_of(service, method, path, headers, body, *rest))
            # A log group's lines are in its streams: a policy that names the group alone doesn't allow them.
            return f"{found}:log-stream:" if service == "logs" and target == "FilterLogEvents" else found

        actions.extract_resource_arn = named

    def check_parameter_values(self, why_refused: Callable[[str, str], str | None]) -> None:
        """Let PutParameter, CloudFormation's too, refuse a value (the second argument is its tier)."""
        parameters: Any = self._services["ssm"]
        put, error = parameters._put_parameter, self._core["responses"].error_response_json

        def checked(request: JsonObject) -> Any:
            refusal = why_refused(str(request.get("Value", "")), str(request.get("Tier") or "Standard"))
            return error("ValidationException", refusal, 400) if refusal else put(request)

        parameters._put_parameter = checked

    def check_own_events(
        self,
        why_no_call: Callable[[list[JsonObject]], str | None],
        refusal_of: Callable[[JsonObject], tuple[str, str] | None],
    ) -> None:
        """Let PutEvents refuse calls (in these words) and entries (code and message), each by itself."""
        eventbridge: Any = self._services["eventbridge"]
        put, responses = eventbridge._put_events, self._core["responses"]

        def checked(request: JsonObject, *args: Any, **kwargs: Any) -> Any:
            entries: list[JsonObject] = request.get("Entries") or []
            if why := why_no_call(entries):
                return responses.error_response_json("ValidationException", why, 400)
            refused = {at: refusal for at, entry in enumerate(entries) if (refusal := refusal_of(entry))}
            taken = [entry for at, entry in enumerate(entries) if at not in refused]
            results = json.loads(put({**request, "Entries": taken}, *args, **kwargs)[2]) if taken else {}
            given = iter(results.get("Entries", []))
            told = [
                dict(zip(("ErrorCode", "ErrorMessage"), refused[at], strict=True))
                if at in refused
                else next(given)
                for at in range(len(entries))
            ]
            failed = sum("ErrorCode" in entry for entry in told)
            return responses.json_response({"FailedEntryCount": failed, "Entries": told})

        eventbridge._put_events = checked

    def prepare_cloudformation(self) -> None:
        """Teach CloudFormation AWS::EC2::SecurityGroupIngress and …Egress, EIP and NatGateway,
        AWS::CloudWatch::CompositeAlarm, and alarms on metric math.

        The first call imports CloudFormation, which takes a second; MiniStack, too, puts that off.
        """
        provisioners = import_module("ministack.services.cloudformation.provisioners")
        for direction, store in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
            name = f"AWS::EC2::SecurityGroup{direction}"
            if name not in provisioners._RESOURCE_HANDLERS:
                handlers = self._rule_handlers(store, provisioners._ec2_sg_permissions)
                provisioners._RESOURCE_HANDLERS[name] = handlers
        provisioners._RESOURCE_HANDLERS.setdefault(
            "AWS::CloudWatch::CompositeAlarm", self._composite_handlers()
        )
        if not self._knows_math:
            self._knows_math = True
            self._teach_math(provisioners)
            self._teach_recursion(provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"])
        provisioners._RESOURCE_HANDLERS.setdefault("AWS::EC2::EIP", self._address_handlers())
        provisioners._RESOURCE_HANDLERS.setdefault("AWS::EC2::NatGateway", self._nat_handlers())
        if not self._is_strict:
            self._is_strict = True
            ec2 = self._services["ec2"]
            refuse_in_zone(provisioners._RESOURCE_HANDLERS, ec2._subnets)
            refuse_beyond_quotas(provisioners._RESOURCE_HANDLERS, ec2._addresses)
            cloudformation = import_module("ministack.services.cloudformation")
            keep_what_is_needed(cloudformation.stacks, cloudformation._stacks)

    def is_deploying(self) -> bool:
        """Whether CloudFormation is at work on a stack."""
        stacks = import_module("ministack.services.cloudformation")._stacks
        return any(stack.get("StackStatus", "").endswith("_IN_PROGRESS") for stack in stacks.values())

    def _composite_handlers(self) -> dict[str, Callable[..., Any]]:
        cloudwatch: Any = self._services["cloudwatch"]

        def put(logical_id: str, properties: JsonObject, stack: str) -> tuple[str, JsonObject]:
            name = properties.get("AlarmName") or f"{stack}-{logical_id}"
            data = {**properties, "AlarmName": name}
            status, _, answer = cloudwatch._put_composite_alarm({}, data, False, is_json=True)
            if status != 200:
                raise ValueError(answer.decode())
            return name, {"Arn": cloudwatch._composite_alarms[name]["AlarmArn"]}

        def update(
            name: str, old: JsonObject, new: JsonObject, stack: str, logical_id: str | None = None
        ) -> tuple[str, JsonObject]:
            made = put(logical_id or name, {"AlarmName": name, **new}, stack)
            if made[0] != name:
                delete(name, old)
            return made

        def delete(name: str, _properties: JsonObject) -> None:
            status, _, answer = cloudwatch._delete_alarms({}, {"AlarmNames": [name]}, False, is_json=True)
            if status != 200:
                raise ValueError(answer.decode())

        return {"create": put, "update": update, "update_with_logical_id": True, "delete": delete}  # type: ignore[dict-item]

    def _teach_math(self, provisioners: Any) -> None:
        """Let AWS::CloudWatch::Alarm take `Metrics`."""
        record = provisioners._cw_metric_alarm_record

        def recorded(name: str, properties: JsonObject) -> JsonObject:
            if name in self._services["cloudwatch"]._composite_alarms:
                raise ValueError(_taken(name))
            queries = properties.get("Metrics")
            if not queries:
                return cast("JsonObject", record(name, properties))
            self._check_math(queries)
            placeholder = {"MetricName": "-", "Namespace": "-"}
            alarm = record(name, {k: v for k, v in properties.items() if k != "Metrics"} | placeholder)
            _make_math_alarm(alarm, queries)
            return cast("JsonObject", alarm)

        provisioners._cw_metric_alarm_record = recorded

    def _teach_recursion(self, handlers: dict[str, Callable[..., Any]]) -> None:
        """Let AWS::Lambda::Function take `RecursiveLoop`."""
        functions: Any = self._services["lambda_svc"]
        create, update = handlers["create"], handlers["update"]

        def configured(made: tuple[str, JsonObject], properties: JsonObject) -> tuple[str, JsonObject]:
            wanted = {"RecursiveLoop": properties.get("RecursiveLoop", "Terminate")}
            status, _, answer = functions._put_function_recursion_config(made[0], wanted)
            if status != 200:
                raise ValueError(answer.decode())
            return made

        handlers["create"] = lambda id_, new, stack: configured(create(id_, new, stack), new)
        handlers["update"] = lambda name, old, new, *rest: configured(update(name, old, new, *rest), new)

    def _address_handlers(self) -> dict[str, Callable[..., Any]]:
        ec2 = self._services["ec2"]

        def create(_logical_id: str, properties: JsonObject, _stack: str) -> tuple[str, JsonObject]:
            _, _, answer = ec2._allocate_address({"Domain": [properties.get("Domain", "vpc")]})
            id_, address = _text_in(answer, "allocationId"), _text_in(answer, "publicIp")
            return address, {"AllocationId": id_, "PublicIp": address}

        def delete(address: str, _properties: JsonObject) -> None:
            for id_ in [id_ for id_, found in ec2._addresses.items() if found["PublicIp"] == address]:
                ec2._release_address({"AllocationId": [id_]})

        return {"create": create, "delete": delete}

    def _nat_handlers(self) -> dict[str, Callable[..., Any]]:
        ec2 = self._services["ec2"]

        def create(_logical_id: str, properties: JsonObject, _stack: str) -> tuple[str, JsonObject]:
            vpc_id = ec2._subnets[properties["SubnetId"]]["VpcId"]
            gateways = ec2._internet_gateways.values()
            if not any(at["VpcId"] == vpc_id for gateway in gateways for at in gateway["Attachments"]):
                raise ValueError(f"Network {vpc_id} has no Internet gateway attached (Gateway.NotAttached)")
            asked = {name: [properties[name]] for name in ("SubnetId", "AllocationId")}
            _, _, answer = ec2._create_nat_gateway(asked)
            id_ = _text_in(answer, "natGatewayId")
            return id_, {"NatGatewayId": id_}

        def delete(id_: str, _properties: JsonObject) -> None:
            ec2._delete_nat_gateway({"NatGatewayId": [id_]})

        return {"create": create, "delete": delete}

    def _rule_handlers(
        self, store: str, permissions_of: Callable[[list[JsonObject]], list[JsonObject]]
    ) -> dict[str, Callable[..., Any]]:
        groups = self._services["ec2"]._security_groups

        def create(_logical_id: str, properties: JsonObject, _stack: str) -> tuple[str, JsonObject]:
            groups[properties["GroupId"]][store] += permissions_of([properties])
            rule_id = f"sgr-{uuid.uuid4().hex[:17]}"
            return rule_id, {"Id": rule_id}

        def delete(_rule_id: str, properties: JsonObject) -> None:
            rules = groups.get(properties["GroupId"], {}).get(store, [])
            for rule in permissions_of([properties]):
                if rule in rules:
                    rules.remove(rule)

        return {"create": create, "delete": delete}

    def parameters(self) -> dict[str, tuple[str, int]]:
        """Every parameter: name → (ARN, version)."""
        with self.scope():
            return {
                name: (str(p["ARN"]), int(p["Version"]))
                for name, p in self._services["ssm"]._parameters.items()
            }

    def seed_public_parameters(self, parameters: Mapping[str, str]) -> None:
        """Public SSM parameters whose values are AMI IDs; one that is there gets another value."""
        self._services["ssm"]._PUBLIC_AMI_PARAMETERS.update(parameters)

    def stop(self) -> None:
        """Kill the function processes."""
        self._core["lambda_runtime"].reset()


def _unless_taken(cloudwatch: Any, put: Callable[..., Any], others: Mapping[str, JsonObject]) -> Any:
    """`put`, which refuses the names of `others`."""

    def checked(params: JsonObject, data: JsonObject, is_cbor: bool, is_json: bool = False) -> Any:
        name = str(data.get("AlarmName") or next(iter(params.get("AlarmName") or [""])))
        if name in others:
            return cloudwatch._error("ValidationError", _taken(name), 400, is_json, is_cbor)
        return put(params, data, is_cbor, is_json)

    return checked


def _taken(name: str) -> str:
    return f"An alarm of the other kind has the name {name}"


def _make_math_alarm(alarm: JsonObject, queries: list[JsonObject]) -> None:
    """An alarm on metric math has queries, and none of what says a single metric."""
    for name in ("MetricName", "Namespace", "Statistic", "ExtendedStatistic", "Period", "Dimensions", "Unit"):
        alarm.pop(name, None)
    alarm["Metrics"] = queries


def unknown_service(request: HttpRequest) -> str:
    """The service that a request is for, by IAM's name, if MiniStack doesn't know it; empty if it does."""
    target = request.headers.get("x-amz-target", "").partition(".")[0]
    if target in UNKNOWN_SERVICES:
        return UNKNOWN_SERVICES[target]
    signed = _SIGNED_FOR.search(request.headers.get("authorization", ""))
    return signed[1] if signed and signed[1] in UNKNOWN_REST_SERVICES else ""


_SIGNED_FOR = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/([^/]+)/aws4_request")


def _text_in(answer: bytes, name: str) -> str:
    """The first element of that name in an answer of MiniStack's EC2."""
    return answer.decode().partition(f"<{name}>")[2].partition("<")[0]


def _role_of(identity: Mapping[str, Any] | None) -> str:
    """The name of the role behind a caller's identity; empty for the operator."""
    arn = str((identity or {}).get("userArn", ""))
    return arn.split("/")[1] if ":assumed-role/" in arn else ""


def _keys_by_item(body: bytes) -> Iterator[list[str]]:
    """The partition keys that a DynamoDB request names, item by item; none for what names them otherwise."""
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        return
    parts = [part for item in request.get("TransactItems", []) for part in item.values()] or [request]
    for part in parts:
        items = [part.get("Item") or part.get("Key") or {}]
        for asked in (part.get("RequestItems") or {}).values():
            items += asked.get("Keys", []) if isinstance(asked, dict) else []
        keys = [item[TABLE_PARTITION_KEY] for item in items if TABLE_PARTITION_KEY in item]
        yield [str(key["S"]) for key in (*keys, *_queried(part))]


def _queried(part: JsonObject) -> Iterator[JsonObject]:
    """The partition key of a Query, which is in its expression: that one must be equal to something."""
    names, values = (part.get(f"ExpressionAttribute{kind}") or {} for kind in ("Names", "Values"))
    for name, value in re.findall(r"([#\w]+)\s*=\s*(:\w+)", part.get("KeyConditionExpression") or ""):
        if names.get(name, name) == TABLE_PARTITION_KEY and value in values:
            yield values[value]
