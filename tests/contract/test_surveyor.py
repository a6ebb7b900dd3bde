"""`ports.Surveyor` on AWS: what it asks, to the byte, and what it makes of every kind of answer.

`tests/local/test_offers.py` runs it against a market.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.aws.announcements import CODES
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.offers import KEPT_S
from spotrelay.plane.aws.prices import PLAIN_LINUX, Prices
from spotrelay.plane.aws.quotas import Quotas
from spotrelay.plane.aws.scores import question
from spotrelay.plane.aws.surveyor import AwsSurveyor
from spotrelay.plane.core.mending import FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import CapacityPool, Image, PurchaseOption, Survey
from spotrelay.plane.core.ports import Denied, Throttled, Unavailable
from spotrelay.plane.core.quotas import CONCURRENCY, quota_for
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryTelemetry
from tests.contract.conftest import Monotonic
from tests.contract.rows import NOW
from tests.examples import demo_spec

WANTED = Requirements(accelerators=(Accelerators("L4", 1), Accelerators("A10G", 1)), arch="x86_64")
SPEC = replace(demo_spec(), requirements=WANTED)
TYPES = ("g6.xlarge", "g6.2xlarge", "g5.xlarge")
"""As the survey orders them: by the accelerators in the file's order, small before large."""

ZONE_IDS = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1", "us-east-1c": "use1-az2"}
FILTERS = [
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64"]},
    {"Name": "supported-usage-class", "Values": ["spot"]},
]


def described(name: str, gpu: str | None, vcpus: int = 4, count: int = 1) -> dict[str, Any]:
    """An instance type as EC2 describes it."""
    chip = {"Name": gpu, "Manufacturer": "NVIDIA", "Count": count, "MemoryInfo": {"SizeInMiB": 22888}}
    return {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": vcpus * 4096},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        **({"GpuInfo": {"Gpus": [chip]}} if gpu else {}),
    }


ALL = [
    described("m7i.large", None),
    described("g5.xlarge", "A10G"),
    described("g6.2xlarge", "L4", 8),
    described("g6.xlarge", "L4"),
    described("g5.12xlarge", "A10G", 48, 4),
]


def product(*usd: str) -> str:
    """An entry of the price list."""
    dimensions = {
        f"sku.offer.{n}": {"unit": "Hrs", "pricePerUnit": {"USD": price}} for n, price in enumerate(usd)
    }
    return json.dumps({"terms": {"OnDemand": {"sku.offer": {"priceDimensions": dimensions}}}})


@dataclass
class Answers:
    """What AWS will answer, in the order in which it is asked."""

    ec2: Stubber
    pricing: Stubber
    surveyor: AwsSurveyor
    telemetry: MemoryTelemetry
    monotonic: Monotonic
    quotas: dict[str, float]
    """By code; those that are missing have room."""

    def types(self, *pages: Sequence[dict[str, Any]], filters: object = ANY) -> None:
        """DescribeInstanceTypes, page by page."""
        for n, page in enumerate(pages):
            more = {"NextToken": str(n + 1)} if n + 1 < len(pages) else {}
            token = {"NextToken": str(n)} if n else {}
            self.ec2.add_response(
                "describe_instance_types", {"InstanceTypes": page, **more}, {"Filters": filters, **token}
            )

    def offerings(self, *pages: Sequence[tuple[str, str]], types: Sequence[str] = TYPES) -> None:
        """DescribeInstanceTypeOfferings, page by page: (type, zone)."""
        asked = {
            "LocationType": "availability-zone",
            "Filters": [{"Name": "instance-type", "Values": sorted(types)}],
        }
        for n, page in enumerate(pages):
            rows = [{"InstanceType": name, "Location": zone} for name, zone in page]
            more = {"NextToken": str(n + 1)} if n + 1 < len(pages) else {}
            token = {"NextToken": str(n)} if n else {}
            self.ec2.add_response(
                "describe_instance_type_offerings", {"InstanceTypeOfferings": rows, **more}, asked | token
            )

    def listed(self, instance_type: str, *entries: str) -> None:
        """GetProducts about one type."""
        wanted = {"regionCode": "us-east-1", "instanceType": instance_type, **PLAIN_LINUX}
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        self.pricing.add_response(
            "get_products", {"PriceList": list(entries)}, {"ServiceCode": "AmazonEC2", "Filters": filters}
        )

    def spot(self, *rows: tuple[str, str, str, float], types: Sequence[str] = TYPES) -> None:
        """DescribeSpotPriceHistory: (zone, type, price, how many seconds ago)."""
        answer = [
            {
                "AvailabilityZone": zone,
                "InstanceType": name,
                "SpotPrice": usd,
                "Timestamp": NOW - seconds(ago),
            }
            for zone, name, usd, ago in rows
        ]
        self.ec2.add_response(
            "describe_spot_price_history",
            {"SpotPriceHistory": answer},
            {"InstanceTypes": sorted(types), "ProductDescriptions": ["Linux/UNIX"], "StartTime": NOW},
        )

    def zones(self) -> None:
        """DescribeAvailabilityZones."""
        rows = [{"ZoneName": name, "ZoneId": id_} for name, id_ in ZONE_IDS.items()]
        self.ec2.add_response("describe_availability_zones", {"AvailabilityZones": rows}, {})

    def scores(self, asked: dict[str, Any], *rows: dict[str, Any]) -> None:
        """GetSpotPlacementScores."""
        self.ec2.add_response("get_spot_placement_scores", {"SpotPlacementScores": list(rows)}, asked)

    def discovery(self) -> None:
        """What comes before prices and scores: all three types in both zones."""
        self.types(ALL)
        self.offerings([(name, zone) for name in TYPES for zone in ("us-east-1a", "us-east-1b")])

    def prices(self) -> None:
        """A price of everything."""
        for name in TYPES:
            self.listed(name, product("1.0"))
        self.spot(*[(zone, name, "0.4", 60) for name in TYPES for zone in ("us-east-1a", "us-east-1b")])

    def two_types(self) -> None:
        """All but the scores, with too few types in one zone to be asked for them."""
        self.types(ALL[1:3])
        self.offerings(
            [("g5.xlarge", "us-east-1a"), ("g6.2xlarge", "us-east-1a")], types=["g5.xlarge", "g6.2xlarge"]
        )
        self.listed("g6.2xlarge", product("1.0"))
        self.listed("g5.xlarge", product("1.0"))
        self.spot(types=["g5.xlarge", "g6.2xlarge"])

    def survey(self, spec: ServiceSpec = SPEC) -> Survey:
        """Survey, and see that all answers were asked for."""
        survey = self.surveyor.survey(spec, NOW)
        self.ec2.assert_no_pending_responses()
        self.pricing.assert_no_pending_responses()
        return survey

    def events(self) -> list[str]:
        """What is on record."""
        return [event for event, _ in self.telemetry.records]


ZONES_ASKED = {
    "InstanceTypes": ["g5.xlarge", "g6.2xlarge", "g6.xlarge"],
    "TargetCapacity": 1,
    "TargetCapacityUnitType": "units",
    "SingleAvailabilityZone": True,
    "RegionNames": ["us-east-1"],
}


def zone_score(zone: str, score: int) -> dict[str, Any]:
    """A row of an answer by zone."""
    return {"Region": "us-east-1", "AvailabilityZoneId": ZONE_IDS[zone], "Score": score}


@pytest.fixture
def aws(clients: Clients, monotonic: Monotonic) -> Iterator[Answers]:  # it asks nothing of moto
    """A surveyor that has asked nothing yet."""
    telemetry = MemoryTelemetry()
    quotas: dict[str, float] = {}
    surveyor = AwsSurveyor(clients, telemetry, monotonic, lambda quota: quotas.get(quota.code, 1000))
    with Stubber(clients.ec2_surveying) as ec2, Stubber(clients.pricing) as pricing:
        yield Answers(ec2, pricing, surveyor, telemetry, monotonic, quotas)


def of_versions(aws: Answers, *versions: tuple[int, str]) -> None:
    """DescribeLaunchTemplateVersions, which shows those of a range that there are."""
    rows = [{"VersionNumber": v, "LaunchTemplateData": {"ImageId": image}} for v, image in versions]
    aws.ec2.add_response(
        "describe_launch_template_versions",
        {"LaunchTemplateVersions": rows},
        {"LaunchTemplateId": SPEC.launch_template_id, "MinVersion": "4", "MaxVersion": "7"},
    )


def shown(aws: Answers, *images: tuple[str, str]) -> None:
    """DescribeImages: those that there are, and their states."""
    rows = [
        {"ImageId": id_, "State": state, "CreationDate": "2026-09-01T06:07:08.000Z"} for id_, state in images
    ]
    asked = [{"Name": "image-id", "Values": ["ami-a", "ami-b", "ami-c"]}]
    aws.ec2.add_response("describe_images", {"Images": rows}, {"Filters": asked, "IncludeDeprecated": True})


def test_images_are_those_that_can_be_launched_from(aws: Answers) -> None:
    """One that EC2 doesn't show is gone, and so is one in another state; nor is a deleted version any."""
    of_versions(aws, (7, "ami-a"), (6, "ami-x"), (5, "ami-b"), (4, "ami-c"))
    shown(aws, ("ami-a", "available"), ("ami-c", "deregistered"))
    made_at = datetime(2026, 9, 1, 6, 7, 8, tzinfo=UTC)
    assert aws.surveyor.images(SPEC, {4, 5, 7}) == {
        7: Image("ami-a", made_at),
        5: Image("ami-b", None),
        4: Image("ami-c", None),
    }


def test_images_that_nobody_may_ask_about_are_refused(aws: Answers) -> None:
    """Whoever asks is told so: that says nothing of the images."""
    aws.ec2.add_client_error("describe_launch_template_versions", "UnauthorizedOperation", "no", 403)
    with pytest.raises(Denied):
        aws.surveyor.images(SPEC, {4})


def status(instance_id: str, *events: tuple[str, str, int | None]) -> dict[str, Any]:
    """DescribeInstanceStatus of one instance: code, description, days from now."""
    shown = [
        {
            "Code": code,
            "Description": words,
            **({} if days is None else {"NotBefore": NOW + timedelta(days=days)}),
        }
        for code, words, days in events
    ]
    return {"InstanceId": instance_id, "Events": shown}


def test_what_ec2_announces_is_told_in_words(aws: Answers) -> None:
    """Of several what comes first; not what is over or called off. Every page is read."""
    asked = {"Filters": [{"Name": "event.code", "Values": list(CODES)}]}
    pages = [
        [
            status("i-1", ("system-reboot", "The host", 9), ("instance-retirement", "Degraded", 3)),
            status("i-2", ("instance-stop", "[Completed] Degraded", -3)),
        ],
        [
            status(
                "i-3", ("instance-stop", "[Canceled] Degraded", 3), ("system-maintenance", "The host", None)
            ),
            status("i-4"),
        ],
    ]
    first = {"InstanceStatuses": pages[0], "NextToken": "1"}
    aws.ec2.add_response("describe_instance_status", first, asked)
    aws.ec2.add_response(
        "describe_instance_status", {"InstanceStatuses": pages[1]}, {**asked, "NextToken": "1"}
    )
    at = NOW + timedelta(days=3)
    assert aws.surveyor.announced() == {
        "i-1": f"instance-retirement, not before {at:%Y-%m-%d %H:%M} UTC",
        "i-3": "system-maintenance",
    }


def test_announcements_that_nobody_may_ask_about_are_refused(aws: Answers) -> None:
    """Whoever asks is told so."""
    aws.ec2.add_client_error("describe_instance_status", "UnauthorizedOperation", "no", 403)
    with pytest.raises(Denied):
        aws.surveyor.announced()


def test_a_whole_survey(aws: Answers) -> None:
    """Every page is read; pools are what zones with a subnet have, with prices by pool and scores by zone."""
    aws.types(ALL[:2], ALL[2:], filters=FILTERS)
    aws.offerings(
        [("g6.xlarge", "us-east-1a"), ("g6.xlarge", "us-east-1b"), ("g6.xlarge", "us-east-1c")],
        [("g6.2xlarge", "us-east-1b"), ("g5.xlarge", "us-east-1a")],
    )
    aws.listed("g6.xlarge", product("0.8048000000"))
    aws.listed("g6.2xlarge", product("0.9776000000"))
    aws.listed("g5.xlarge", product("1.0060000000"))
    aws.spot(
        ("us-east-1a", "g6.xlarge", "0.3100", 7200),
        ("us-east-1a", "g6.xlarge", "0.3000", 60),
        ("us-east-1b", "g6.2xlarge", "0.4000", 60),
        ("us-east-1c", "g6.xlarge", "0.1000", 60),
    )
    aws.zones()
    aws.scores(
        ZONES_ASKED, zone_score("us-east-1b", 9), zone_score("us-east-1a", 3), zone_score("us-east-1c", 7)
    )
    pool = [
        CapacityPool("us-east-1", *where)
        for where in (
            ("us-east-1a", "g6.xlarge"),
            ("us-east-1b", "g6.xlarge"),
            ("us-east-1b", "g6.2xlarge"),
            ("us-east-1a", "g5.xlarge"),
        )
    ]
    assert aws.survey() == Survey(
        "demo",
        WANTED,
        NOW,
        tuple(pool),
        {"g6.xlarge": 0.8048, "g6.2xlarge": 0.9776, "g5.xlarge": 1.006},
        {pool[0]: 0.3, pool[2]: 0.4},
        {"us-east-1a": 3, "us-east-1b": 9},
        {"us-east-1c": 7},
    )
    assert aws.events() == []


def test_exact_amounts_and_named_types_are_left_to_ec2(aws: Answers) -> None:
    """What EC2 can filter it does; types are named by a filter, as a request by names may fail."""
    wanted = Requirements(
        cpus=Amount(4, at_least=False),
        memory_gib=Amount(16, at_least=False),
        instance_types=("g6.xlarge", "g5.xlarge"),
        arch="x86_64",
        use_spot=False,
    )
    aws.types(
        ALL,
        filters=[
            {"Name": "instance-type", "Values": ["g5.xlarge", "g6.xlarge"]},
            {"Name": "memory-info.size-in-mib", "Values": ["16384"]},
            {"Name": "processor-info.supported-architecture", "Values": ["x86_64"]},
            {"Name": "vcpu-info.default-vcpus", "Values": ["4"]},
        ],
    )
    aws.offerings(
        [("g5.xlarge", "us-east-1a"), ("g6.xlarge", "us-east-1a")], types=["g5.xlarge", "g6.xlarge"]
    )
    aws.listed("g6.xlarge", product("0.8"))
    aws.listed("g5.xlarge", product("1.0"))
    survey = aws.survey(replace(SPEC, requirements=wanted, use_spot=False))
    assert [str(p) for p in survey.pools] == ["us-east-1a/g6.xlarge", "us-east-1a/g5.xlarge"]
    assert (survey.spot_prices, survey.scores) == ({}, {})


def test_a_document_without_requirements_means_its_types(aws: Answers) -> None:
    """A service that lists nothing but types gets those that exist."""
    aws.types(ALL)
    aws.offerings([("g5.xlarge", "us-east-1b")], types=["g5.xlarge", "g6.xlarge"])
    aws.listed("g5.xlarge", product("1.0"))
    aws.spot(types=["g5.xlarge"])
    survey = aws.survey(demo_spec())
    assert [str(p) for p in survey.pools] == ["us-east-1b/g5.xlarge"]


def test_zones_of_the_file_limit_the_pools(aws: Answers) -> None:
    """A zone that the file doesn't allow has no pool and no score, though it has a subnet."""
    aws.discovery()
    aws.prices()
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 8), zone_score("us-east-1b", 9))
    survey = aws.survey(replace(SPEC, requirements=replace(WANTED, zones=("us-east-1a",))))
    assert {p.zone for p in survey.pools} == {"us-east-1a"}
    assert survey.scores == {"us-east-1a": 8}


def test_a_service_without_a_gpu_gets_types_without_one(aws: Answers) -> None:
    """Asked for by its size alone, an m7i is found among all that EC2 describes."""
    aws.types(ALL)
    aws.offerings([("m7i.large", "us-east-1b")], types=["m7i.large"])
    aws.listed("m7i.large", product("0.1"))
    aws.spot(types=["m7i.large"])
    wanted = Requirements(cpus=Amount(4, at_least=True), arch="x86_64")
    survey = aws.survey(replace(SPEC, requirements=wanted))
    assert [str(p) for p in survey.pools] == ["us-east-1b/m7i.large"]


def test_each_alternative_has_its_own_zones(aws: Answers) -> None:
    """A pool belongs to an alternative that allows type and zone; one of another region asks nothing."""
    l4, a10g = (replace(Requirements(), accelerators=(one,)) for one in WANTED.accelerators)
    wanted = Requirements(
        arch="x86_64",
        use_spot=False,
        alternatives=(
            replace(l4, zones=("us-east-1b",)),
            replace(a10g, zones=("us-east-1a",), cpus=Amount(4, at_least=False)),
            replace(l4, regions=("eu-west-1",), cpus=Amount(16, at_least=False)),
            replace(l4, cpus=Amount(4, at_least=False)),
        ),
    )
    arch = FILTERS[:1]
    four = [*arch, {"Name": "vcpu-info.default-vcpus", "Values": ["4"]}]
    aws.types(ALL, filters=arch)
    aws.types([ALL[1], ALL[3]], filters=four)
    aws.offerings([(name, zone) for name in TYPES for zone in ("us-east-1a", "us-east-1b")])
    for name in ("g6.xlarge", "g6.2xlarge", "g5.xlarge"):
        aws.listed(name, product("1.0"))
    survey = aws.survey(replace(SPEC, requirements=wanted, use_spot=False))
    assert [str(p) for p in survey.pools] == [
        "us-east-1b/g6.xlarge",
        "us-east-1b/g6.2xlarge",
        "us-east-1a/g5.xlarge",
        "us-east-1a/g6.xlarge",
    ]


def test_the_second_survey_asks_only_what_changes(aws: Answers) -> None:
    """Types, offerings, list prices and zone IDs are kept for hours; Spot prices and scores aren't."""
    aws.discovery()
    aws.prices()
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 8))
    first = aws.survey()
    spot = [(zone, name, "0.5", 0) for name in TYPES for zone in ("us-east-1a", "us-east-1b")]
    aws.spot(*spot)
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 2))
    second = aws.survey(replace(SPEC, service="another"))
    assert (second.service, second.pools) == ("another", first.pools)
    assert (set(second.spot_prices.values()), second.scores) == ({0.5}, {"us-east-1a": 2})
    aws.monotonic.advance(KEPT_S)
    aws.discovery()
    aws.spot(*spot)
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 2))
    assert aws.survey().on_demand_prices == first.on_demand_prices


@given(st.permutations(TYPES))
def test_the_same_service_asks_the_same_for_scores(types: list[str]) -> None:
    """The question is the same whatever order the types come in."""
    asked = question(types, ["us-east-1"], by_zone=True)
    assert json.dumps(asked) == json.dumps(question(TYPES, ["us-east-1"], by_zone=True))


def test_a_large_fleet_asks_for_what_one_launch_needs(aws: Answers) -> None:
    """An account may ask for what it has used lately: all replicas in each zone would be refused."""
    aws.discovery()
    aws.prices()
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 8))
    assert aws.survey(replace(SPEC, replicas=40)).scores == {"us-east-1a": 8}


def test_several_regions_are_scored_as_such(aws: Answers) -> None:
    """With several regions allowed there is one more question, about regions; the answer is on record."""
    aws.discovery()
    aws.prices()
    regions = {"SingleAvailabilityZone": False, "RegionNames": ["eu-west-1", "us-east-1"]}
    aws.scores(
        {**ZONES_ASKED, **regions}, {"Region": "eu-west-1", "Score": 9}, {"Region": "us-east-1", "Score": 2}
    )
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 2))
    aws.survey(replace(SPEC, requirements=replace(WANTED, regions=("us-east-1", "eu-west-1"))))
    assert aws.telemetry.records == [
        ("region_scores", {"service": "demo", "scores": {"eu-west-1": 9, "us-east-1": 2}})
    ]


def test_two_types_are_not_scored(aws: Answers) -> None:
    """With fewer than three types every score is low, says AWS: it isn't asked for, and that is on record."""
    aws.two_types()
    assert aws.survey().scores == {}
    assert aws.events() == ["scores_not_asked"]


@pytest.mark.parametrize(
    ("code", "status", "metric", "event"),
    [
        ("MaxConfigLimitExceeded", 400, Metric.SURVEY_REFUSED, "survey_refused"),
        ("UnauthorizedOperation", 403, Metric.SURVEY_REFUSED, "survey_refused"),
        ("RequestLimitExceeded", 503, Metric.SURVEY_UNANSWERED, "survey_unanswered"),
        ("InternalError", 500, Metric.SURVEY_UNANSWERED, "survey_unanswered"),
    ],
)
def test_a_refused_score_is_no_score(
    aws: Answers, code: str, status: int, metric: Metric, event: str
) -> None:
    """A limit is counted as a refusal, a throttle as no answer, both with AWS's words; the rest is found."""
    aws.discovery()
    aws.prices()
    aws.zones()
    aws.ec2.add_client_error("get_spot_placement_scores", code, "no more today", status)
    survey = aws.survey()
    assert (survey.scores, len(survey.pools), len(survey.spot_prices)) == ({}, 6, 6)
    assert aws.telemetry.counts == {metric: 1}
    ((recorded, facts),) = aws.telemetry.records
    assert (recorded, facts["service"], facts["asked_for"]) == (event, "demo", "zone scores")
    assert code in str(facts["error"])
    refused = [FindingKind.SURVEY_REFUSED] if metric is Metric.SURVEY_REFUSED else []
    assert [finding.kind for finding in survey.findings] == refused, "no answer is nobody's to mend"


def test_an_empty_answer_is_no_answer(aws: Answers) -> None:
    """Scores for none of the service's zones are counted as unanswered."""
    aws.discovery()
    aws.prices()
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1c", 9))
    assert aws.survey().scores == {}
    assert aws.telemetry.counts == {Metric.SURVEY_UNANSWERED: 1}


def test_prices_that_are_refused_hold_nothing_up(aws: Answers) -> None:
    """List prices found before a refusal are kept; Spot prices that are refused are missing; scores come."""
    aws.discovery()
    aws.listed("g6.xlarge", product("0.8"))
    aws.pricing.add_client_error("get_products", "ThrottlingException", "slow down", 400)
    aws.ec2.add_client_error("describe_spot_price_history", "UnauthorizedOperation", "no", 403)
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 8))
    survey = aws.survey()
    assert (survey.on_demand_prices, survey.spot_prices) == ({"g6.xlarge": 0.8}, {})
    assert survey.scores == {"us-east-1a": 8}
    assert aws.telemetry.counts == {Metric.SURVEY_UNANSWERED: 1, Metric.SURVEY_REFUSED: 1}
    assert aws.events() == ["survey_unanswered", "prices_missing", "survey_refused"]


def test_odd_entries_of_the_price_list(aws: Answers) -> None:
    """Of several entries the cheapest counts; free ones, other currencies and reserved terms don't."""
    yuan = {"unit": "Hrs", "pricePerUnit": {"CNY": "7.0"}}
    in_yuan = json.dumps({"terms": {"OnDemand": {"s.o": {"priceDimensions": {"s.o.r": yuan}}}}})
    aws.discovery()
    aws.listed("g6.xlarge", product("0.0000000000"), product("0.9", "0.8"))
    aws.listed("g6.2xlarge", in_yuan, json.dumps({"terms": {"Reserved": {}}}))
    aws.listed("g5.xlarge")
    aws.spot()
    aws.zones()
    aws.scores(ZONES_ASKED, zone_score("us-east-1a", 8))
    assert aws.survey().on_demand_prices == {"g6.xlarge": 0.8}
    assert aws.telemetry.records[0] == (
        "prices_missing",
        {"service": "demo", "types": ["g6.2xlarge", "g5.xlarge"]},
    )


def test_nothing_eligible_is_an_answer(aws: Answers) -> None:
    """A region without any of the types gives a survey without pools, and nothing more is asked."""
    aws.types(ALL[:1])
    assert aws.survey() == Survey("demo", WANTED, NOW, ())


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("InternalError", 500, Unavailable),
        ("UnauthorizedOperation", 403, Denied),
    ],
)
def test_without_pools_there_is_no_survey(
    aws: Answers, code: str, status: int, error: type[Exception]
) -> None:
    """If not even the pools can be found out, the survey fails rather than say that there are none."""
    aws.ec2.add_client_error("describe_instance_types", code, "no", status)
    with pytest.raises(error):
        aws.survey()


@pytest.mark.parametrize(
    ("region", "served_from"),
    [
        ("us-west-2", "us-east-1"),
        ("eu-north-1", "eu-central-1"),
        ("ap-southeast-2", "ap-south-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_prices_are_asked_where_they_are_served(region: str, served_from: str) -> None:
    """The price list has endpoints in three regions only; the nearest is taken."""
    clients = Clients(boto3.Session("testing", "testing", region_name=region))
    assert clients.pricing.meta.region_name == served_from


def test_a_quota_that_is_too_small_is_told(aws: Answers) -> None:
    """Who deploys into a new account hears of it from the first survey: counted, and with what to do."""
    aws.quotas["L-3819A6DF"] = 0
    aws.two_types()
    (finding,) = aws.survey().findings
    assert finding.kind is FindingKind.QUOTA_SHORT
    assert all(word in finding.words for word in ("spot", "L-3819A6DF", "/servicequotas/"))
    assert aws.telemetry.counts[Metric.QUOTAS_SHORT] == 1
    (told,) = (facts for event, facts in aws.telemetry.records if event == "quota_short")
    assert (told["service"], told["vcpus"], told["purchase_option"]) == ("demo", 0, "spot")
    assert told["needed"] == 4 * SPEC.replicas
    assert "L-3819A6DF" in str(told["quota"])
    assert "/servicequotas/" in str(told["remedy"])


def test_the_value_of_a_quota(clients: Clients) -> None:
    """By its code; AWS's default where none was ever applied; what AWS refuses is Denied."""
    g = quota_for("g5.xlarge", PurchaseOption.ON_DEMAND)
    assert g
    with Stubber(clients.service_quotas) as stubber:
        asked = {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"}
        stubber.add_response("get_service_quota", {"Quota": {"Value": 8.0}}, asked)
        assert Quotas(clients).value(g) == 8
        stubber.add_client_error("get_service_quota", "AccessDeniedException", "no", 400)
        with pytest.raises(Denied):
            Quotas(clients).value(g)
        stubber.add_client_error("get_service_quota", "NoSuchResourceException", "no", 400)
        stubber.add_response("get_aws_default_service_quota", {"Quota": {"Value": 0.0}}, asked)
        assert Quotas(clients).value(g) == 0
        stubber.assert_no_pending_responses()


def test_the_concurrency_that_an_account_has(clients: Clients) -> None:
    """Service Quotas tells a new account AWS's default, which it doesn't have: Lambda is asked."""
    with Stubber(clients.lambda_) as stubber:
        stubber.add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": 10}}, {})
        assert Quotas(clients).value(CONCURRENCY) == 10


def test_no_types_are_not_all_types() -> None:
    """EC2 takes an empty list for every type that it has, in all zones: that is never what is asked."""
    clients = Clients(boto3.Session("testing", "testing", region_name="us-east-1"))
    with Stubber(clients.ec2_surveying):
        assert Prices(clients).spot_since("us-east-1", (), NOW) == {}
