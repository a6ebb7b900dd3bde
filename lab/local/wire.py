"""The wire formats of the services that we answer for, from botocore's own models through moto's codecs.

Handlers see plain dicts, spelled as boto3 spells them.
"""

from __future__ import annotations

import json
import re
import uuid
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import SERIALIZERS, SerializationContext
from moto.core.utils import get_service_model

from lab.local import shapes
from lab.local.http import HttpRequest, Response

BOTOCORE_NAMES = {
    "ec2": "ec2",
    "elasticloadbalancing": "elbv2",
    "fis": "fis",
    "pricing": "pricing",
    "servicequotas": "service-quotas",
}
"""IAM's name of a service to botocore's."""

WARMED_UP = ("ec2", "elasticloadbalancing")
"""Those that a first client is likely to ask for."""


class AwsError(Exception):
    """An error that AWS would answer with."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def parse(service: str, action: str, request: HttpRequest) -> dict[str, Any]:
    """The request's parameters.

    Raises:
        AwsError: a required parameter is missing, or a value isn't what the model says.
    """
    model = _operation(service, action)
    try:
        parsed = _parsed(model, request)
    except ValueError as error:
        raise AwsError("InvalidParameterValue", f"{action}: {error}") from error
    shape = model.input_shape
    for name in getattr(shape, "required_members", []):
        if name not in parsed:
            raise AwsError("MissingParameter", f"The request must contain the parameter {name}")
    return parsed


def rest_action(service: str, request: HttpRequest) -> str:
    """The operation of a REST service that a request is for; empty if it is none."""
    model = _model(service)
    for name in model.operation_names:
        operation = cast("OperationModel", model.operation_model(name))
        if operation.http["method"] == request.method and _in_path(operation, request) is not None:
            return str(name)
    return ""


def answer(service: str, action: str, result: dict[str, Any] | AwsError) -> Response:
    """A handler's result, or the error that it raised, as the client expects it."""
    model = _operation(service, action)
    context = SerializationContext(str(uuid.uuid4()))
    reply = SERIALIZERS[model.service_model.protocol](model, context).serialize(result)
    body = reply["body"]
    status = result.status if isinstance(result, AwsError) else reply["status_code"]
    headers = {**reply["headers"], "x-amzn-requestid": context.request_id}
    return Response(status, body.encode() if isinstance(body, str) else body, headers)


def warm_up() -> None:
    """Load the large models, which takes half a second, before the first client waits for it."""
    for service in WARMED_UP:
        _model(service)


def _parsed(model: OperationModel, request: HttpRequest) -> dict[str, Any]:
    protocol = model.service_model.protocol
    if protocol == "rest-json":
        values = {**json.loads(request.body or b"{}"), **(_in_path(model, request) or {})}
        if problem := shapes.problem(model.input_shape, values):
            raise AwsError("ValidationException", f"1 validation error detected: {problem}")
        return values
    if protocol == "json":
        # Our clients are botocore's: types are what the model says.
        values = json.loads(request.body or b"{}")
        if not isinstance(values, dict):
            raise ValueError("the body is no object")
        return values
    # Of a request the query protocols' parsers look at the values only.
    parser: Any = PROTOCOL_PARSERS[model.service_model.protocol](model)
    parsed: dict[str, Any] = parser.parse({"values": dict(_pairs(request))})
    return parsed


def _pairs(request: HttpRequest) -> list[tuple[str, str]]:
    query = [(name, values[0]) for name, values in request.query.items()]
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return query
    return query + parse_qsl(request.body.decode(), keep_blank_values=True)


def _in_path(model: OperationModel, request: HttpRequest) -> dict[str, str] | None:
    """The parameters that are part of a REST request's path; None if the path is another operation's."""
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", model.http["requestUri"])
    match = re.fullmatch(pattern, request.raw_path.partition("?")[0])
    return match and {name: unquote(value) for name, value in match.groupdict().items()}


@cache
def _model(service: str) -> ServiceModel:
    return get_service_model(BOTOCORE_NAMES[service])


def _operation(service: str, action: str) -> OperationModel:
    return cast("OperationModel", _model(service).operation_model(action))
