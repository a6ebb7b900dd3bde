"""What the clients change about boto3."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from botocore.utils import parse_timestamp
from moto import mock_aws

from spotrelay.aws.clients import Clients, parsed_time


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T07:00:00.000Z",
        "2026-11-21T07:00:00Z",
        "2026-11-21T08:00:00+01:00",
        "2026-11-21T07:00:00",
        "20261121T070000Z",
        "Sat, 21 Nov 2026 07:00:00 GMT",
        "1795000000",
        "1795000000.123",
        1795000000,
        1795000000.123,
        0,
    ],
)
def test_a_time_is_what_botocore_reads(value: Any) -> None:
    """Every format that AWS uses gives the moment that botocore's own parser gives."""
    assert parsed_time(value) == parse_timestamp(value)


def test_what_is_no_time_is_an_error_as_in_botocore() -> None:
    """Neither parser makes a time of a text that is none."""
    with pytest.raises(ValueError, match="soon"):
        parsed_time("soon")


def test_described_times_are_read_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of a function's own session gives the times of `datetime`, not those of botocore's parser."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        ec2 = Clients().ec2
        ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)
        (volume,) = ec2.describe_volumes()["Volumes"]
    assert volume["CreateTime"].tzinfo is UTC
