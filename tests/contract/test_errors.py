"""`aws.errors`: what isn't met on the way in the other suites."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from spotrelay.aws.errors import translated
from spotrelay.ports import PortError, Throttled, Unavailable


def _client_error(code: str, status: int) -> ClientError:
    metadata = {"HTTPStatusCode": status}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": metadata}, "Operation")  # type: ignore[typeddict-item]  # a real answer has more metadata


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        EndpointConnectionError(endpoint_url="https://ec2"),
        ResponseParserError("half an answer"),
        _client_error("InternalError", 500),
        _client_error("", 502),
        _client_error("RequestTimeout", 400),
        _client_error("TransactionInProgressException", 400),
    ],
)
def test_no_clear_answer(error: Exception) -> None:
    """Where nobody can say whether the call took effect, it is Unavailable."""
    with pytest.raises(Unavailable), translated():
        raise error


@pytest.mark.parametrize(
    "code", ["RequestLimitExceeded", "ThrottlingException", "RequestThrottled", "SlowDown"]
)
@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_throttle_is_one_whatever_its_status(code: str, status: int) -> None:
    """EC2 throttles with a 503: the code counts before the status."""
    with pytest.raises(Throttled), translated():
        raise _client_error(code, status)


@pytest.mark.parametrize(
    "error",
    [_client_error("AccessDenied", 403), _client_error("", 400), NoCredentialsError(), ValueError("ours")],
)
def test_everything_else_goes_through(error: Exception) -> None:
    """What no caller can act on stays as it is."""
    with pytest.raises(type(error)) as raised, translated():
        raise error
    assert raised.value is error
    assert not isinstance(raised.value, PortError)


def test_the_cause_is_kept() -> None:
    """AWS's own error stays visible behind ours, with its request ID."""
    cause: BotoCoreError | ClientError = _client_error("InternalError", 500)
    with pytest.raises(Unavailable) as raised, translated():
        raise cause
    assert raised.value.__cause__ is cause
