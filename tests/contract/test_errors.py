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

from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.ports import Denied, PortError, Throttled, Unavailable


def _client_error(code: str, status: int, words: str = "no") -> ClientError:
    answer = {"Error": {"Code": code, "Message": words}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Operation")  # type: ignore[arg-type]  # a real answer has more metadata


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
    ("code", "status"),
    [
        ("AccessDenied", 403),
        ("AccessDeniedException", 400),
        ("InvalidAMIID.NotFound", 400),
        ("OperationNotPermitted", 400),
        ("UnauthorizedOperation", 403),
        ("ValidationException", 400),
        ("ResourceNotFoundException", 404),
        # Cancelled for a reason that no repeat mends.
        ("TransactionCanceledException", 400),
        ("SomethingThatAwsWillAddLater", 418),
        ("", 400),
        ("", 0),
    ],
)
def test_every_other_refusal_is_denied(code: str, status: int) -> None:
    """What AWS refuses for a reason that a person must mend has its code and its words."""
    with pytest.raises(Denied, match="Operation operation: because") as raised, translated():
        raise _client_error(code, status, "because")
    assert raised.value.code == code
    assert isinstance(raised.value, PortError)
    assert not isinstance(raised.value, Throttled | Unavailable)


@pytest.mark.parametrize("error", [NoCredentialsError(), ValueError("ours"), KeyError("ours")])
def test_everything_else_goes_through(error: Exception) -> None:
    """What AWS didn't say stays as it is: a mistake of ours."""
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
