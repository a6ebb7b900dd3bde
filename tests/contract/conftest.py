"""AWS in process, and the store in its two forms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws  # before any client is made: moto hooks itself into botocore when imported

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from spotrelay.plane.core.ports import Store
from spotrelay.plane.memory import MemoryStore

REGION = "us-east-1"
TABLE = "spotrelay"


@pytest.fixture(scope="session", autouse=True)
def _hermetic() -> Iterator[None]:
    """Nothing of this machine's own settings reaches a client or a logger."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_LAMBDA_LOG_LEVEL", "POWERTOOLS_LOG_LEVEL"):
            environment.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            environment.setenv(name, "/dev/null")
        # moto would read Amazon's hundreds of images anew for each test.
        environment.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        yield


class Strict:
    """A session whose clients hold every request against AWS's models, which the deployed ones don't."""

    def __init__(self) -> None:
        self._session = boto3.Session("testing", "testing", region_name=REGION)
        self.region_name = REGION

    def client(self, service: Any, config: Config, region_name: str = REGION) -> Any:
        """A client that is as strict as boto3's are by default."""
        strict = config.merge(Config(parameter_validation=True))
        return self._session.client(service, region_name=region_name, config=strict)


@cache
def shared_clients() -> Clients:
    """Clients for all tests, because EC2's takes a while to build."""
    return Clients(cast("boto3.Session", Strict()))


@pytest.fixture
def clients() -> Clients:
    """Clients of the emulated AWS, the same for all tests."""
    return shared_clients()


@pytest.fixture
def aws(clients: Clients) -> Iterator[Clients]:
    """An empty AWS account."""
    with mock_aws():
        yield clients


@pytest.fixture
def table(aws: Clients) -> Table:
    """A table like the control plane's."""
    return make_table(aws)


class Monotonic:
    """The seconds by which answers are kept; they pass only when told to."""

    def __init__(self) -> None:
        self._at_s = 0.0

    def __call__(self) -> float:
        """How many have passed."""
        return self._at_s

    def advance(self, duration_s: float) -> None:
        """Let some pass."""
        self._at_s += duration_s


@pytest.fixture
def monotonic() -> Monotonic:
    """The clock of what the test's adapter keeps."""
    return Monotonic()


@pytest.fixture(params=["memory", "aws"])
def store(request: pytest.FixtureRequest, monotonic: Monotonic) -> Store:
    """The store, either way."""
    if request.param == "memory":
        return MemoryStore()
    return DynamoStore(request.getfixturevalue("table"), monotonic)


def make_table(clients: Clients, name: str = TABLE) -> Table:
    """Create a table with the control plane's keys."""
    clients.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": TABLE_PARTITION_KEY, "AttributeType": "S"},
            {"AttributeName": TABLE_SORT_KEY, "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": TABLE_PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": TABLE_SORT_KEY, "KeyType": "RANGE"},
        ],
    )
    return Table(clients, name)
