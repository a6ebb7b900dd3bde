"""The AWS clients, how long their calls may take, how much time is left for one, and answers that are kept.

There is one session, and each client is built when it is first used: the first costs some 65 ms, EC2's as
much again, the others little; a signal about somebody else's instance needs DynamoDB's alone.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import botocore.session
from botocore.config import Config
from botocore.loaders import JSONFileLoader, Loader
from botocore.utils import parse_timestamp

if TYPE_CHECKING:  # type stubs, which a Lambda function doesn't have, and boto3, see `Session`
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_elbv2 import ElasticLoadBalancingv2Client
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

HOT = Config(
    # The contract tests have boto3 hold every request against AWS's models. To do so again at each call takes
    # a seventh of a batch's time: a transaction has hundreds of attributes.
    parameter_validation=False,
    # What CloudTrail shows. botocore puts its own together anew for each call, which takes a twentieth of it.
    user_agent=f"SpotRelay Botocore/{botocore.__version__}",
)
"""For what a warning is waiting for."""

QUICK = HOT.merge(
    Config(
        # "adaptive" would hold back calls on this side, for everybody, on the strength of one throttled call.
        retries={"mode": "standard", "total_max_attempts": 3},
        # botocore waits 60 s for each by default: half of an interruption's two minutes, lost in one hung
        # call. These calls take milliseconds: what takes longer is broken, and another attempt may not be.
        connect_timeout=2,
        read_timeout=5,
    )
)

LAUNCHING = HOT.merge(
    Config(
        # One repeat, with the same ClientToken, so that a passing server error doesn't cost the minute that
        # the tick waits before it gives up on a launch. `Ec2Fleet` asks for nothing unless the invocation has
        # time for both, and to put the outcome on record.
        retries={"mode": "standard", "total_max_attempts": 2},
        connect_timeout=2,
        # An instant fleet answers once every pool has been tried: seconds, and the more pools the longer. Not
        # waiting for the answer doesn't undo the launch: it turns instances into ones that must be adopted.
        read_timeout=20,
    )
)

STARTING = QUICK.merge(
    # EC2 answers a lack of capacity with a status of 500, which botocore would repeat twice. Each costs
    # one of the few StartInstances that an account has, and the answer would be the same.
    Config(retries={"mode": "standard", "total_max_attempts": 1})
)

START_S = 7.0
"""The longest that it takes to ask for a start: its time-outs."""

LAUNCH_S = 45.0
"""The longest that a launch takes: twice its time-outs, and a back-off of a second at most in between."""

PROBING = Config(
    # Whoever isn't heard now is asked again by the next tick.
    retries={"mode": "standard", "total_max_attempts": 1},
    connect_timeout=2,
    # The function answers within a service file's longest probe time-out (20 s) and a moment, or its own
    # time-out ends it (25 s, stacks/prober.py). The rest is for its cold start, which that doesn't count.
    # `FunctionProber` asks nobody unless the tick has as much time left.
    read_timeout=30,
)

TELLING = Config(
    # What isn't told now the next tick tells: no reason to hold this one up.
    retries={"mode": "standard", "total_max_attempts": 1},
    connect_timeout=2,
    read_timeout=5,
)

TELL_S = 7.0
"""The longest that it takes to tell something, or to have something told: its time-outs."""

PROBE_S = 32.0
"""The longest that it takes to ask a prober: its time-outs."""

SURVEYING = Config(
    # Nobody waits for a survey, and the whole account shares EC2's request limits: more patience.
    retries={"mode": "standard", "total_max_attempts": 6},
    connect_timeout=2,
    # A page of a hundred described types is a megabyte.
    read_timeout=20,
)

REST_S = 120.0
"""How long connections may rest between two invocations: twice the time between a service's ticks at rest.

What lies between us and AWS drops what was idle for 350 s, and may tell nobody. A function's sandbox may rest
for hours, and then a call on such a connection waits for its whole read time-out, before it is repeated on a
new one. Sources: https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html and
https://github.com/boto/botocore/issues/2916
"""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PRICE_LIST_REGIONS = {"ap": "ap-south-1", "cn": "cn-northwest-1", "eu": "eu-central-1"}
"""Where AWS's price list is served from, by the first part of a region. Each one has all prices."""


class Clients:
    """Every client that the adapters use."""

    def __init__(
        self,
        session: boto3.Session | Session | None = None,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = session
        # Not the monotonic clock, which may stand still with a frozen sandbox.
        self._now_s = now_s
        self._used_at_s = now_s()
        self._monotonic_s = monotonic_s
        self._ends_at_s = math.inf

    @contextmanager
    def in_use(self, remaining_s: float) -> Iterator[None]:
        """One invocation that has so much time. It uses no connection that has rested for over `REST_S`."""
        self._ends_at_s = self._monotonic_s() + remaining_s
        if self._now_s() - self._used_at_s > REST_S:
            for name, client in vars(self).items():
                if not name.startswith("_"):
                    client.close()
        try:
            yield
        finally:
            self._used_at_s, self._ends_at_s = self._now_s(), math.inf

    def has_time(self, needed_s: float) -> bool:
        """Whether what may take so long can be begun: Lambda ends an invocation in the midst of what it does.

        Outside of a function there is no limit.
        """
        return self._ends_at_s - self._monotonic_s() >= needed_s

    def make(self, *names: str) -> None:
        """Make these now, in one thread, as botocore asks: several threads may use one."""
        for name in names:
            getattr(self, name)

    @cached_property
    def cloudformation(self) -> Any:
        """For stacks, which only an operator's commands ask about."""
        return self._session.client("cloudformation", config=SURVEYING)

    @cached_property
    def cloudwatch(self) -> Any:
        """For what a service has to do; its types would be one more package for one call."""
        return self._session.client("cloudwatch", config=QUICK)

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """For the table."""
        return self._session.client("dynamodb", config=QUICK)

    @cached_property
    def ec2(self) -> EC2Client:
        """For all of EC2 but launches."""
        return self._session.client("ec2", config=QUICK)

    @cached_property
    def ec2_launching(self) -> EC2Client:
        """For CreateFleet."""
        return self._session.client("ec2", config=LAUNCHING)

    @cached_property
    def ec2_starting(self) -> EC2Client:
        """For StartInstances."""
        return self._session.client("ec2", config=STARTING)

    @cached_property
    def ec2_surveying(self) -> EC2Client:
        """For what EC2 offers."""
        return self._session.client("ec2", config=SURVEYING)

    @cached_property
    def ec2_telling(self) -> EC2Client:
        """For what is only told on."""
        return self._session.client("ec2", config=TELLING)

    @cached_property
    def elbv2(self) -> ElasticLoadBalancingv2Client:
        """For target groups."""
        return self._session.client("elbv2", config=QUICK)

    @cached_property
    def fis(self) -> Any:
        """For drills; its types would be one more package for five calls."""
        return self._session.client("fis", config=SURVEYING)

    @cached_property
    def events(self) -> Any:
        """For events of our own; its types would be one more package for one call."""
        return self._session.client("events", config=TELLING)

    @cached_property
    def iam(self) -> Any:
        """For a role of EC2's own; its types would be one more package for one call."""
        return self._session.client("iam", config=SURVEYING)

    @cached_property
    def lambda_(self) -> LambdaClient:
        """For the probers."""
        return self._session.client("lambda", config=PROBING)

    @cached_property
    def logs(self) -> Any:
        """For what functions logged; its types would be one more package for one call."""
        return self._session.client("logs", config=SURVEYING)

    @cached_property
    def pricing(self) -> PricingClient:
        """For list prices, from the nearest region that serves them."""
        here = (self._session.region_name or "").partition("-")[0]
        region = PRICE_LIST_REGIONS.get(here, "us-east-1")
        return self._session.client("pricing", region_name=region, config=SURVEYING)

    @cached_property
    def s3(self) -> Any:
        """For models, which only an operator's commands look for; its types would be one more package."""
        return self._session.client("s3", config=SURVEYING)

    @cached_property
    def secrets_manager(self) -> Any:
        """For API keys, which only an operator's command reads; its types would be one more package."""
        return self._session.client("secretsmanager", config=SURVEYING)

    @cached_property
    def service_quotas(self) -> Any:
        """For quotas; its types would be one more package for one call."""
        return self._session.client("service-quotas", config=SURVEYING)

    @cached_property
    def sqs(self) -> SQSClient:
        """For the tick queue."""
        return self._session.client("sqs", config=QUICK)

    @cached_property
    def ssm(self) -> SSMClient:
        """For the runtime documents."""
        return self._session.client("ssm", config=QUICK)

    @cached_property
    def sts(self) -> Any:
        """For whose credentials these are."""
        return self._session.client("sts", config=QUICK)

    @cached_property
    def _session(self) -> boto3.Session:
        # One for all: a session of its own for each of four clients took half as long again.
        return cast("boto3.Session", self._given or Session())


class Kept(Generic[K, V]):
    """Answers by key, each fresh for `for_s`: an execution environment often serves several invocations."""

    def __init__(self, for_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._for_s = for_s
        self._monotonic_s = monotonic_s
        self._values: dict[K, tuple[float, V]] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The kept value, or what `ask` gives; if that raises, nothing is kept."""
        kept = self._values.get(key)
        if kept and self._monotonic_s() - kept[0] < self._for_s:
            return kept[1]
        value = ask()
        self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep what was learned otherwise; it is fresh as of now."""
        self._values[key] = self._monotonic_s(), value

    def forget(self, key: K) -> None:
        """Ask the next time: it is known to be outdated."""
        self._values.pop(key, None)


SERVICES = (
    *("cloudformation", "cloudwatch", "dynamodb", "ec2", "elbv2", "events", "fis", "iam", "lambda", "logs"),
    *("pricing", "s3", "secretsmanager", "service-quotas", "sqs", "ssm", "sts"),
)
"""What there are clients for, as botocore calls them."""


class ModelFiles(JSONFileLoader):
    """Reads a model into plain dicts, which keep their order.

    botocore's ordered ones are of before dicts did, and take twice as long to read: a tenth of all clients.
    """

    def load_file(self, file_path: str) -> Any:
        """What is in the file; `file_path` lacks its ending. None: there is none."""
        for ending, unpacked in ((".json", bytes), (".json.gz", gzip.decompress)):
            path = Path(f"{file_path}{ending}")
            if path.is_file():
                return json.loads(unpacked(path.read_bytes()))
        return None


class Models(Loader):
    """Finds the services' models."""

    FILE_LOADER_CLASS = ModelFiles

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's
        """Those that are used: to look through four hundred directories takes as long as a client."""
        return [*SERVICES]


class Session:
    """What is used of `boto3.Session`. To import boto3 itself takes another tenth of a cold start.

    Without a region or a profile, what the environment says.
    """

    def __init__(self, region: str | None = None, profile: str | None = None) -> None:
        self._core = botocore.session.Session(profile=profile)
        if region:
            self._core.set_config_variable("region", region)
        self._core.register_component("data_loader", Models())
        self._core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed_time)

    @property
    def region_name(self) -> str | None:
        """The one that it was given, or the environment's."""
        region: str | None = self._core.get_config_variable("region")
        return region

    def client(self, service: str, **options: Any) -> Any:
        """A client of a service; `options` are `boto3.Session.client`'s."""
        return self._core.create_client(service, **options)


def parsed_time(value: Any) -> datetime:
    """A timestamp of an answer, as botocore reads it, but in no time where it is ISO 8601.

    Each instance that EC2 describes comes with four, and to guess their format took a quarter of a tick.
    """
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return parse_timestamp(value)
    return at if at.tzinfo else parse_timestamp(value)
