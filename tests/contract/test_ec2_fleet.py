"""`aws.fleet`: the requests that EC2 gets, and every kind of answer that it may give."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from botocore.stub import Stubber

from spotrelay.plane.aws.clients import TELL_S, Clients
from spotrelay.plane.aws.fleet import BEING_TAKEN_BACK, Ec2Fleet
from spotrelay.plane.core.instances import Instance, Refusal, RefusalKind
from spotrelay.plane.core.pools import PurchaseOption, option_named
from spotrelay.plane.core.ports import Denied, Fleet, LaunchRequest, Throttled, Unavailable
from spotrelay.plane.core.spec import LaunchTemplate
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryClock, MemoryFleet
from tests.contract.rows import NOW
from tests.examples import demo_spec, on_demand_pool, spot_pool

SPEC = demo_spec()
REQUEST = LaunchRequest("launch-1", SPEC, PurchaseOption.SPOT, SPEC.pools, 3)
CAPACITY = "InsufficientInstanceCapacity"


@pytest.fixture
def launching(clients: Clients) -> Iterator[Stubber]:
    """Answers for CreateFleet."""
    with Stubber(clients.ec2_launching) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def ec2(clients: Clients) -> Iterator[Stubber]:
    """Answers for EC2's other calls."""
    with Stubber(clients.ec2) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def starting(clients: Clients) -> Iterator[Stubber]:
    """Answers for StartInstances."""
    with Stubber(clients.ec2_starting) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def fleet(clients: Clients) -> Ec2Fleet:
    """The fleet, at a time that stands still."""
    return Ec2Fleet(clients, lambda: NOW)


def _source(instance_type: str, subnet: str) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"},
        "Overrides": {"InstanceType": instance_type, "SubnetId": subnet},
    }


def _started(instance_type: str, subnet: str, *ids: str) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _source(instance_type, subnet),
        "Lifecycle": "spot",
        "InstanceIds": list(ids),
        "InstanceType": instance_type,
    }


def _error(code: str, instance_type: str, subnet: str) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _source(instance_type, subnet),
        "Lifecycle": "spot",
        "ErrorCode": code,
        "ErrorMessage": f"why {code}",
    }


def test_the_whole_request(launching: Stubber, fleet: Ec2Fleet) -> None:
    """A Spot launch asks once, for every pool, with the token and the tags that heal what got lost."""
    ours = [
        {"Key": "spotrelay:service", "Value": "demo"},
        {"Key": "spotrelay:launch", "Value": "launch-1"},
    ]
    launching.add_response(
        "create_fleet",
        {"Instances": [_started("g5.xlarge", "subnet-a", "i-1", "i-2", "i-3")]},
        {
            "Type": "instant",
            "ClientToken": "launch-1",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"},
                    "Overrides": [
                        {"InstanceType": "g5.xlarge", "SubnetId": "subnet-a"},
                        {"InstanceType": "g5.xlarge", "SubnetId": "subnet-b"},
                        {"InstanceType": "g6.xlarge", "SubnetId": "subnet-a"},
                        {"InstanceType": "g6.xlarge", "SubnetId": "subnet-b"},
                    ],
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 3, "DefaultTargetCapacityType": "spot"},
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [
                        *ours,
                        {"Key": "spotrelay:highest-id", "Value": "42"},
                        {"Key": "Name", "Value": "spotrelay demo"},
                    ],
                },
                {"ResourceType": "fleet", "Tags": ours},
            ],
        },
    )
    fleet.launch(replace(REQUEST, highest_id=42))


@pytest.mark.parametrize(
    ("option", "ordered", "options", "strategy", "priorities"),
    [
        (PurchaseOption.SPOT, False, "SpotOptions", "price-capacity-optimized", [None] * 4),
        (PurchaseOption.SPOT, True, "SpotOptions", "capacity-optimized-prioritized", [0, 0, 1, 1]),
        (PurchaseOption.ON_DEMAND, False, "OnDemandOptions", "lowest-price", [None] * 4),
        (PurchaseOption.ON_DEMAND, True, "OnDemandOptions", "prioritized", [0, 0, 1, 1]),
    ],
)
def test_priorities_go_where_they_count(
    clients: Clients,
    fleet: Ec2Fleet,
    option: PurchaseOption,
    ordered: bool,
    options: str,
    strategy: str,
    priorities: list[int | None],
) -> None:
    """An order of types becomes priorities, with the one strategy that heeds them; else none are sent."""
    sent = _sent(
        clients, fleet, replace(REQUEST, spec=replace(SPEC, ordered=ordered), purchase_option=option)
    )
    assert sent[options]["AllocationStrategy"] == strategy
    overrides = sent["LaunchTemplateConfigs"][0]["Overrides"]
    assert [o.get("Priority") for o in overrides] == priorities
    assert {"SpotOptions", "OnDemandOptions"} & sent.keys() == {options}
    reserved_first = {"UsageStrategy": "use-capacity-reservations-first"}
    is_spot = option is PurchaseOption.SPOT
    assert sent[options].get("CapacityReservationOptions") == (None if is_spot else reserved_first)


@pytest.mark.parametrize(
    ("option", "template"),
    [
        (PurchaseOption.SPOT, {"LaunchTemplateId": "lt-1", "Version": "1"}),
        (PurchaseOption.ON_DEMAND, {"LaunchTemplateId": "lt-2", "Version": "5"}),
    ],
)
def test_only_on_demand_targets_reservations(
    clients: Clients, fleet: Ec2Fleet, option: PurchaseOption, template: dict[str, str]
) -> None:
    """Where there is a launch template for on-demand, Spot is launched from the other one."""
    spec = replace(SPEC, on_demand_template=LaunchTemplate("lt-2", "5"))
    sent = _sent(clients, fleet, replace(REQUEST, spec=spec, purchase_option=option))
    (config,) = sent["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"] == template


def test_who_hosts_several_weighs_as_much(clients: Clients, fleet: Ec2Fleet) -> None:
    """Capacity is counted in replicas then, and a price cap is one replica's; else nothing is weighed."""
    types = {pool.instance_type for pool in REQUEST.pools}
    shared = replace(REQUEST.spec, slots={"g5.xlarge": 4})
    request = replace(REQUEST, spec=shared, max_prices={"g5.xlarge": 2.0})
    for override in _sent_overrides(clients, fleet, request):
        is_shared = override["InstanceType"] == "g5.xlarge"
        assert override["WeightedCapacity"] == (4 if is_shared else 1)
        assert override.get("MaxPrice") == ("0.5000" if is_shared else None)
    assert {"g5.xlarge"} < types
    assert not any("WeightedCapacity" in override for override in _sent_overrides(clients, fleet, REQUEST))


def test_each_type_has_its_price_cap(clients: Clients, fleet: Ec2Fleet) -> None:
    """The most to pay goes to every pool of a type that has a cap; the others are left to EC2's own."""
    overrides = _sent_overrides(clients, fleet, replace(REQUEST, max_prices={"g5.xlarge": 0.5}))
    assert [(o["InstanceType"], o.get("MaxPrice")) for o in overrides] == [
        ("g5.xlarge", "0.5000"),
        ("g5.xlarge", "0.5000"),
        ("g6.xlarge", None),
        ("g6.xlarge", None),
    ]


@pytest.mark.parametrize(
    ("price", "text"), [(0.4159, "0.4159"), (12, "12.0000"), (0.00009, "0.0001"), (98.3208, "98.3208")]
)
def test_a_price_cap_is_a_plain_decimal(clients: Clients, fleet: Ec2Fleet, price: float, text: str) -> None:
    """EC2 takes USD per hour in a few decimals: never an exponent, whatever the price."""
    overrides = _sent_overrides(clients, fleet, replace(REQUEST, max_prices={"g5.xlarge": price}))
    assert overrides[0]["MaxPrice"] == text


def test_labels_are_the_instances_tags(clients: Clients, fleet: Ec2Fleet) -> None:
    """Beside SpotRelay's own, and not on the fleet, which is gone at once."""
    sent = _sent(clients, fleet, replace(REQUEST, spec=replace(SPEC, labels={"team": "search"})))
    label = {"Key": "team", "Value": "search"}
    with_label = {one["ResourceType"]: label in one["Tags"] for one in sent["TagSpecifications"]}
    assert with_label == {"instance": True, "fleet": False}
    assert {"spotrelay:service", "team"} <= {tag["Key"] for tag in sent["TagSpecifications"][0]["Tags"]}


@pytest.mark.parametrize("peers", [None, "none", "a:10.0.0.4 b:10.0.16.7"])
def test_peers_are_named_in_a_tag_of_the_instances(
    clients: Clients, fleet: Ec2Fleet, peers: str | None
) -> None:
    """Where a service has them, and then always: that there are none is said, too."""
    sent = _sent(clients, fleet, replace(REQUEST, peers=peers))
    tags = {one["ResourceType"]: one["Tags"] for one in sent["TagSpecifications"]}
    found = {type_: [t["Value"] for t in tags[type_] if t["Key"] == "spotrelay:peers"] for type_ in tags}
    assert found == {"instance": [] if peers is None else [peers], "fleet": []}


def _sent(clients: Clients, fleet: Ec2Fleet, request: LaunchRequest) -> dict[str, Any]:
    """What a launch asks of CreateFleet."""
    sent: list[dict[str, Any]] = []
    events, event = clients.ec2_launching.meta.events, "provide-client-params.ec2.CreateFleet"
    events.register_first(event, lambda params, **_: sent.append(params), unique_id="seen")
    with Stubber(clients.ec2_launching) as stubber:
        stubber.add_response("create_fleet", {"Errors": [_error(CAPACITY, "g5.xlarge", "subnet-a")]})
        fleet.launch(request)
    events.unregister(event, unique_id="seen")
    return sent[0]


def _sent_overrides(clients: Clients, fleet: Ec2Fleet, request: LaunchRequest) -> list[dict[str, Any]]:
    """What the request asks of each pool."""
    overrides: list[dict[str, Any]] = _sent(clients, fleet, request)["LaunchTemplateConfigs"][0]["Overrides"]
    return overrides


def test_a_partial_answer_is_taken_whole(launching: Stubber, fleet: Ec2Fleet) -> None:
    """An answer with instances and errors gives both, each with its pool."""
    launching.add_response(
        "create_fleet",
        {
            "Instances": [
                _started("g5.xlarge", "subnet-b", "i-1"),
                _started("g6.xlarge", "subnet-a", "i-2"),
            ],
            "Errors": [_error(CAPACITY, "g5.xlarge", "subnet-a")],
        },
    )
    result = fleet.launch(REQUEST)
    assert [(i.id, i.offering, i.launched_at) for i in result.instances] == [
        ("i-1", spot_pool("us-east-1b", "g5.xlarge"), NOW),
        ("i-2", spot_pool("us-east-1a", "g6.xlarge"), NOW),
    ]
    offering = spot_pool("us-east-1a", "g5.xlarge")
    assert result.refusals == (Refusal(RefusalKind.CAPACITY, CAPACITY, f"why {CAPACITY}", offering),)


def test_a_refusal_counts_once(launching: Stubber, fleet: Ec2Fleet) -> None:
    """EC2 may name a pool once per missing instance; for us it refused once, with each code."""
    launching.add_response(
        "create_fleet",
        {
            "Errors": [
                _error(CAPACITY, "g5.xlarge", "subnet-a"),
                _error(CAPACITY, "g5.xlarge", "subnet-a"),
                _error("UnfulfillableCapacity", "g5.xlarge", "subnet-a"),
                _error(CAPACITY, "g5.xlarge", "subnet-b"),
            ]
        },
    )
    refusals = fleet.launch(REQUEST).refusals
    assert [(r.code, str(r.offering)) for r in refusals] == [
        (CAPACITY, "us-east-1a/g5.xlarge/spot"),
        ("UnfulfillableCapacity", "us-east-1a/g5.xlarge/spot"),
        (CAPACITY, "us-east-1b/g5.xlarge/spot"),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"InstanceIds": ["i-1"], "InstanceType": "g6.xlarge", "AvailabilityZone": "us-east-1b"},
        {"InstanceIds": ["i-1"], "InstanceType": "g6.xlarge", "SubnetId": "subnet-b"},
        {"InstanceIds": ["i-1"], "LaunchTemplateAndOverrides": _source("g6.xlarge", "subnet-b")},
    ],
)
def test_every_way_to_name_a_pool(launching: Stubber, fleet: Ec2Fleet, entry: dict[str, Any]) -> None:
    """An instance's pool is found in the entry itself or in its overrides, by subnet or by zone."""
    launching.add_response("create_fleet", {"Instances": [entry]})
    assert fleet.launch(REQUEST).instances[0].offering == spot_pool("us-east-1b", "g6.xlarge")


@pytest.mark.parametrize(
    ("entry", "pool"),
    [
        ({"InstanceIds": ["i-1"], "InstanceType": "g6.xlarge"}, spot_pool("us-east-1a", "g6.xlarge")),
        ({"InstanceIds": ["i-1"]}, spot_pool("us-east-1a", "g5.xlarge")),
    ],
)
def test_no_instance_is_lost(
    launching: Stubber, fleet: Ec2Fleet, entry: dict[str, Any], pool: object
) -> None:
    """An instance whose pool the answer doesn't tell is recorded with the likeliest one."""
    launching.add_response("create_fleet", {"Instances": [entry]})
    assert [(i.id, i.offering) for i in fleet.launch(REQUEST).instances] == [("i-1", pool)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", RefusalKind.CAPACITY),
        ("UnfulfillableCapacity", RefusalKind.CAPACITY),
        ("SpotMaxPriceTooLow", RefusalKind.CAPACITY),
        ("ReservationCapacityExceeded", RefusalKind.CAPACITY),
        ("Unsupported", RefusalKind.CAPACITY),
        ("InvalidFleetConfiguration", RefusalKind.UNSUPPORTED),
        ("MaxSpotInstanceCountExceeded", RefusalKind.QUOTA),
        ("InstanceLimitExceeded", RefusalKind.MARKET_LIMIT),
        ("MaxFleetCountExceeded", RefusalKind.MARKET_LIMIT),
        ("VcpuLimitExceeded", RefusalKind.QUOTA),
        ("InsufficientFreeAddressesInSubnet", RefusalKind.ADDRESSES),
        ("UnauthorizedOperation", RefusalKind.PERMISSION),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", RefusalKind.PERMISSION),
        ("PendingVerification", RefusalKind.PERMISSION),
        ("VolumeLimitExceeded", RefusalKind.MARKET_LIMIT),
        ("InvalidParameterValue", RefusalKind.REQUEST),
        ("InvalidBlockDeviceMapping", RefusalKind.REQUEST),
        ("InvalidSnapshot.NotFound", RefusalKind.REQUEST),
        ("InvalidKMSKey.InvalidState", RefusalKind.REQUEST),
        ("MissingParameter", RefusalKind.REQUEST),
        ("VolumeTypeNotAvailableInZone", RefusalKind.REQUEST),
        ("InsufficientVolumeCapacity", RefusalKind.CAPACITY),
        ("MaxIOPSLimitExceeded", RefusalKind.MARKET_LIMIT),
        ("AccountDisabled", RefusalKind.PERMISSION),
        ("CustomerKeyHasBeenRevoked", RefusalKind.REQUEST),
        ("TagPolicyViolation", RefusalKind.REQUEST),
        ("SomethingThatAwsWillAddLater", RefusalKind.OTHER),
    ],
)
def test_codes_in_an_answer(launching: Stubber, fleet: Ec2Fleet, code: str, kind: RefusalKind) -> None:
    """Each of EC2's codes is one kind of refusal, with EC2's words kept; one that is new is OTHER."""
    launching.add_response("create_fleet", {"Errors": [_error(code, "g5.xlarge", "subnet-a")]})
    (refusal,) = fleet.launch(replace(REQUEST, purchase_option=PurchaseOption.ON_DEMAND)).refusals
    offering = on_demand_pool("us-east-1a", "g5.xlarge")
    assert replace(refusal, remedy="") == Refusal(kind, code, f"why {code}", offering)
    assert bool(refusal.remedy) is kind.is_lasting, "what no retry mends comes with what a person can do"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "Your requested instance type (g5.xlarge) is not supported in your requested Availability Zone"
            " (us-east-1e). Please retry your request by not specifying an Availability Zone.",
            RefusalKind.UNSUPPORTED,
        ),
        (
            "The requested configuration is currently not supported. Please check the documentation for"
            " supported configurations.",
            RefusalKind.CAPACITY,
        ),
    ],
)
def test_what_is_not_supported_now_may_be_in_minutes(
    launching: Stubber, fleet: Ec2Fleet, words: str, kind: RefusalKind
) -> None:
    """Only a zone that hasn't got the type hasn't got it tomorrow."""
    error = {**_error("Unsupported", "g5.xlarge", "subnet-a"), "ErrorMessage": words}
    launching.add_response("create_fleet", {"Errors": [error]})
    (refusal,) = fleet.launch(REQUEST).refusals
    assert (refusal.kind, refusal.message) == (kind, words)


@pytest.mark.parametrize(
    ("option", "code", "words", "remedy"),
    [
        ("spot", "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", "(L-3819A6DF)"),
        ("on-demand", "VcpuLimitExceeded", "your current vCPU limit of 0", "(L-DB2E81BA)"),
        (
            "on-demand",
            "VcpuLimitExceeded",
            "your current vCPU limit of 0",
            "https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA",
        ),
        ("spot", "InstanceLimitExceeded", "too many", "/servicequotas/home/services/ec2/quotas"),
        ("spot", "MaxFleetCountExceeded", "You've reached your quota", "AWS Support"),
        (
            "spot",
            "UnauthorizedOperation",
            "User: arn is not authorized to perform: iam:PassRole on resource: arn",
            "allow iam:PassRole to the functions' roles",
        ),
        (
            "spot",
            "UnauthorizedOperation",
            "User: arn is not authorized to perform: ec2:RunInstances on resource: arn",
            "-c template_conditions=false",
        ),
        (
            "spot",
            "UnauthorizedOperation",
            "You are not authorized. Encoded authorization failure message: AbC",
            "aws sts decode-authorization-message",
        ),
        (
            "spot",
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "no permission to create the service-linked role",
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        ),
        ("spot", "InvalidKMSKey.InvalidState", "The KMS key is disabled", "the key that encrypts the disks"),
        ("spot", "InsufficientFreeAddressesInSubnet", "none left", "larger ones"),
        ("spot", "InvalidBlockDeviceMapping", "smaller than the snapshot", "correct the service file"),
        ("spot", "InsufficientInstanceCapacity", "none", ""),
    ],
)
def test_a_refusal_says_what_to_do(
    launching: Stubber, fleet: Ec2Fleet, option: str, code: str, words: str, remedy: str
) -> None:
    """Which quota, and where to ask; which action; which key: by EC2's code and its words."""
    error = {**_error(code, "g5.xlarge", "subnet-a"), "ErrorMessage": words}
    launching.add_response("create_fleet", {"Errors": [error]})
    (refusal,) = fleet.launch(replace(REQUEST, purchase_option=option_named(option))).refusals
    assert (remedy in refusal.remedy) if remedy else (refusal.remedy == "")
    assert refusal.message == words


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("MaxFleetCountExceeded", RefusalKind.MARKET_LIMIT),
        ("VcpuLimitExceeded", RefusalKind.QUOTA),
        ("InsufficientFreeAddressesInSubnet", RefusalKind.ADDRESSES),
    ],
)
def test_a_quota_may_come_as_an_exception(
    launching: Stubber, fleet: Ec2Fleet, code: str, kind: RefusalKind
) -> None:
    """A request refused as a whole for a quota is a refusal of no pool in particular."""
    launching.add_client_error("create_fleet", code, "too many", 400)
    (refusal,) = fleet.launch(REQUEST).refusals
    assert (refusal.kind, refusal.code, refusal.offering) == (kind, code, None)


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "UnauthorizedOperation"])
def test_a_repeat_that_is_refused_says_nothing_of_the_first_attempt(
    launching: Stubber, fleet: Ec2Fleet, code: str
) -> None:
    """Its answer may have got lost, and its instances run: the intent must stay until the tick has looked."""
    repeated = {"RetryAttempts": 1}
    launching.add_client_error("create_fleet", code, "no", 400, response_meta=repeated)
    with pytest.raises(Unavailable):
        fleet.launch(REQUEST)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("Throttling", 400, Throttled),
        ("InternalError", 500, Unavailable),
        ("ServiceUnavailable", 503, Unavailable),
        ("UnauthorizedOperation", 403, Denied),
        ("InvalidAMIID.NotFound", 400, Denied),
        ("IdempotentParameterMismatch", 400, Denied),
    ],
)
def test_exceptions(
    launching: Stubber, fleet: Ec2Fleet, code: str, status: int, error: type[Exception]
) -> None:
    """A throttle launched nothing, a server error may have, and what is denied did nothing."""
    launching.add_client_error("create_fleet", code, "no", status)
    with pytest.raises(error) as raised:
        fleet.launch(REQUEST)
    if isinstance(raised.value, Denied) and code != "IdempotentParameterMismatch":
        assert raised.value.remedy


@pytest.mark.parametrize(("remaining_s", "is_asked"), [(49, False), (51, True)])
def test_nothing_is_launched_that_may_not_get_on_record(
    launching: Stubber, fleet: Ec2Fleet, clients: Clients, remaining_s: float, is_asked: bool
) -> None:
    """With less time than both attempts may take, EC2 isn't asked: the launch waits for a tick."""
    with clients.in_use(remaining_s):
        if is_asked:
            launching.add_response("create_fleet", {"Errors": [_error(CAPACITY, "g5.xlarge", "subnet-a")]})
            assert fleet.launch(REQUEST).refusals
        else:
            with pytest.raises(Throttled, match="time is left"):
                fleet.launch(REQUEST)


def test_an_answer_with_nothing_in_it_is_no_answer(launching: Stubber, fleet: Ec2Fleet) -> None:
    """Neither instances nor errors: the launch may have happened, so it must not be repeated elsewhere."""
    launching.add_response("create_fleet", {"FleetId": "fleet-1"})
    with pytest.raises(Unavailable, match="launch-1"):
        fleet.launch(REQUEST)


def test_a_repeated_launch_repeats_its_answer() -> None:
    """In memory, as in EC2 by its ClientToken, a launch ID launches once."""
    fleet: Fleet = MemoryFleet(MemoryClock())
    assert fleet.launch(REQUEST) == fleet.launch(REQUEST)
    assert len(fleet.observe("demo")) == 3


def test_memory_refuses_like_ec2() -> None:
    """In memory, a pool without room gives what it has and refuses the rest by EC2's code."""
    room = {spot_pool("us-east-1a", "g5.xlarge"): 1, spot_pool("us-east-1b", "g5.xlarge"): 0}
    pools = tuple(offering.pool for offering in room)
    result = MemoryFleet(MemoryClock(), room).launch(replace(REQUEST, pools=pools))
    assert len(result.instances) == 1
    assert (RefusalKind.CAPACITY, CAPACITY, spot_pool("us-east-1b", "g5.xlarge")) in {
        (r.kind, r.code, r.offering) for r in result.refusals
    }


def test_memory_says_what_an_instance_was_launched_from() -> None:
    """In memory, as on EC2 by a tag that moto doesn't set."""
    fleet = MemoryFleet(MemoryClock())
    fleet.launch(REQUEST)
    assert {i.launch_template_id for i in fleet.observe("demo")} == {"lt-1"}


def test_observing_page_by_page(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """Every page of DescribeInstances is read, by the service's tag."""
    filters = [{"Name": "tag:spotrelay:service", "Values": ["demo"]}]
    for page, (state, token) in enumerate([("pending", "more"), ("shutting-down", None)]):
        described = {
            "InstanceId": f"i-{page}",
            "InstanceType": "g5.xlarge",
            "State": {"Name": state},
            "Placement": {"AvailabilityZone": "us-east-1a"},
            "LaunchTime": NOW + seconds(page),
            "Tags": _tags({"spotrelay:launch": f"launch-{page}"} if page else {}),
        }
        answer: dict[str, Any] = {"Reservations": [{"Instances": [described]}, {"Instances": []}]}
        asked: dict[str, Any] = {"Filters": filters}
        ec2.add_response(
            "describe_instances",
            answer | ({"NextToken": token} if token else {}),
            asked | ({} if token else {"NextToken": "more"}),
        )
    observed = fleet.observe("demo")
    assert [(i.id, i.state, i.launch_id, i.launched_at) for i in observed] == [
        ("i-0", "pending", None, NOW),
        ("i-1", "shutting-down", "launch-1", NOW + seconds(1)),
    ]
    assert observed[0].offering == on_demand_pool("us-east-1a", "g5.xlarge")


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _observed(ec2: Stubber, fleet: Ec2Fleet, tags: Mapping[str, str], **facts: object) -> Instance:
    """An instance with these tags, as observed."""
    described = {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "LaunchTime": NOW,
        "Tags": _tags(tags),
        **facts,
    }
    ec2.add_response("describe_instances", {"Reservations": [{"Instances": [described]}]})
    (instance,) = fleet.observe("demo")
    return instance


def test_what_an_instance_bears(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """What it was launched from is said by EC2's own tag, and how far IDs were given by ours."""
    ours = {"spotrelay:highest-id": "42", "launchtemplate:id": "lt-theirs"}
    instance = _observed(ec2, fleet, {**ours, "aws:ec2launchtemplate:id": "lt-1"})
    assert (instance.launch_template_id, instance.highest_id) == ("lt-1", 42)
    instance = _observed(ec2, fleet, {})
    assert (instance.launch_template_id, instance.highest_id) == (None, 0)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, ""),
        ({"Code": "pending", "Message": "pending"}, "pending"),
        (
            {"Code": "Server.SpotInstanceTermination", "Message": "Server.SpotInstanceTermination: taken"},
            "Server.SpotInstanceTermination: taken",
        ),
        ({"Code": "Client.InternalError", "Message": "no key"}, "Client.InternalError: no key"),
    ],
)
def test_why_an_instance_ended(
    ec2: Stubber, fleet: Ec2Fleet, reason: Mapping[str, str] | None, text: str
) -> None:
    """EC2's code and words are kept, the code once, and EC2's own doing is told apart."""
    instance = _observed(ec2, fleet, {}, **({"StateReason": reason} if reason else {}))
    assert instance.state_reason == text
    assert instance.ended_by_ec2 is instance.was_reclaimed is text.startswith("Server.")


@pytest.mark.parametrize(
    ("text", "highest_id"),
    [
        ("0", 0),
        ("007", 7),
        ("999999999", 999_999_999),
        ("", 0),
        ("many", 0),
        ("-1", 0),
        ("+1", 0),
        ("1.5", 0),
        (" 7", 0),
        ("1_000", 0),
        ("²", 0),
        ("0x10", 0),
        ("1000000000", 0),
        pytest.param("9" * 256, 0, id="long"),
    ],
)
def test_a_tag_that_was_edited_says_nothing(
    ec2: Stubber, fleet: Ec2Fleet, text: str, highest_id: int
) -> None:
    """Anybody may write anything into our tag: one that is no ID is none, and hides no instance."""
    assert _observed(ec2, fleet, {"spotrelay:highest-id": text}).highest_id == highest_id


def test_warned_page_by_page(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """EC2 says of each instance that it is asked about what becomes of it; a request without one is none."""
    filters = [{"Name": "instance-id", "Values": ["i-1", "i-2", "i-3"]}]
    ec2.add_response(
        "describe_spot_instance_requests",
        {
            "SpotInstanceRequests": [
                _request("i-1", NOW - seconds(90)),
                {"SpotInstanceRequestId": "sir-1", "Status": {"UpdateTime": NOW}},
            ],
            "NextToken": "t",
        },
        {"Filters": filters},
    )
    ec2.add_response(
        "describe_spot_instance_requests",
        {"SpotInstanceRequests": [_request("i-2", NOW - seconds(1)), _request("i-3", NOW, "fulfilled")]},
        {"Filters": filters, "NextToken": "t"},
    )
    said = fleet.warned(["i-3", "i-1", "i-2", "i-1"])
    assert said == {"i-1": NOW - seconds(90), "i-2": NOW - seconds(1), "i-3": None}


def _request(
    instance_id: str, at: datetime, code: str = "instance-terminated-no-capacity", state: str | None = None
) -> dict[str, Any]:
    """A Spot request as it is since that time."""
    return {
        "InstanceId": instance_id,
        # When the request was made says nothing about when it was marked.
        "CreateTime": NOW - seconds(86_400),
        "State": state or ("active" if code in ("fulfilled", "marked-for-stop") else "closed"),
        "Status": {"Code": code, "UpdateTime": at},
    }


@pytest.mark.parametrize(
    ("code", "state", "said"),
    [
        ("instance-terminated-no-capacity", "closed", {"i-1": NOW}),
        ("instance-terminated-by-price", "closed", {"i-1": NOW}),
        ("instance-terminated-by-experiment", "closed", {"i-1": NOW}),
        ("instance-stopped-no-capacity", "disabled", {"i-1": NOW}),
        ("marked-for-termination", "active", {"i-1": NOW}),
        ("marked-for-stop", "active", {"i-1": NOW}),
        ("fulfilled", "active", {"i-1": None}),
        ("fulfilled", "cancelled", {}),
        ("request-canceled-and-instance-running", "cancelled", {}),
        ("instance-terminated-by-user", "closed", {}),
        ("a-code-of-next-year", "active", {}),
    ],
)
def test_what_a_request_says_of_its_instance(
    ec2: Stubber, fleet: Ec2Fleet, code: str, state: str, said: dict[str, datetime | None]
) -> None:
    """EC2's own codes for its taking an instance back, for not doing so, and those that say neither."""
    request = _request("i-1", NOW, code, state)
    ec2.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": [request]})
    assert fleet.warned(["i-1"]) == said


def test_of_two_requests_the_warning_counts(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """Whatever else is on record of an instance, that EC2 takes it back isn't overheard."""
    both = [_request("i-1", NOW), _request("i-1", NOW, "fulfilled")]
    for requests in (both, both[::-1]):
        ec2.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": requests})
        assert fleet.warned(["i-1"]) == {"i-1": NOW}


def test_more_than_a_filter_takes_are_looked_for_in_one_call(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """Two hundred are asked about by name; of more, all that EC2 takes back are looked for, and ours kept."""
    ids = [f"i-{number:03d}" for number in range(201)]
    by_name = [{"Name": "instance-id", "Values": ids[:200]}]
    ec2.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": []}, {"Filters": by_name})
    assert fleet.warned(ids[:200]) == {}
    by_code = [{"Name": "status-code", "Values": list(BEING_TAKEN_BACK)}]
    shown = [_request("i-007", NOW), _request("i-others", NOW)]
    ec2.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": shown}, {"Filters": by_code})
    assert fleet.warned(ids) == {"i-007": NOW}


def test_a_warning_of_an_unknown_time_counts_from_now(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """An instance isn't taken for safe because EC2 doesn't say since when it isn't."""
    request = {"InstanceId": "i-1", "Status": {"Code": "marked-for-stop"}}
    ec2.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": [request]})
    assert fleet.warned(["i-1"]) == {"i-1": NOW}


@pytest.fixture
def telling(clients: Clients) -> Iterator[Stubber]:
    """Answers for what is only told on."""
    with Stubber(clients.ec2_telling) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def test_the_latest_of_a_console_is_asked_for(telling: Stubber, fleet: Ec2Fleet) -> None:
    """What EC2 kept when the instance came to run says nothing of its start; empty is an answer."""
    said = b64encode(b"it boots").decode()  # as EC2 answers
    asked = {"InstanceId": "i-1", "Latest": True}
    telling.add_response("get_console_output", {"InstanceId": "i-1", "Output": said}, asked)
    telling.add_response("get_console_output", {"InstanceId": "i-1"}, asked)
    assert [fleet.console("i-1"), fleet.console("i-1")] == ["it boots", ""]


def test_types_before_nitro_have_no_console_that_says_anything(telling: Stubber, fleet: Ec2Fleet) -> None:
    """EC2 refuses their latest output, and will: that is nothing that a person could mend."""
    telling.add_client_error("get_console_output", "UnsupportedOperation", "no latest output")
    assert fleet.console("i-1") == ""


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("UnauthorizedOperation", 403, Denied), ("RequestLimitExceeded", 503, Throttled)],
)
def test_a_console_that_is_not_shown(
    telling: Stubber, fleet: Ec2Fleet, code: str, status: int, error: type[Exception]
) -> None:
    """It is asked once: whoever asks goes on without."""
    telling.add_client_error("get_console_output", code, "no", status)
    with pytest.raises(error):
        fleet.console("i-1")


def test_no_console_is_asked_for_in_the_last_seconds(clients: Clients, fleet: Ec2Fleet) -> None:
    """Lambda would end the invocation in the midst of it, and have the tick come again."""
    with clients.in_use(TELL_S - 0.5), pytest.raises(Throttled, match="not enough time"):
        fleet.console("i-1")


def test_memory_warns_with_the_time() -> None:
    """In memory, as on EC2, an instance is warned from the time on that is said."""
    fleet = MemoryFleet(MemoryClock())
    assert fleet.warned(["i-1"]) == {}
    fleet.interrupted["i-1"] = NOW
    assert fleet.warned(["i-1"]) == {"i-1": NOW}
    assert fleet.warned(["i-2"]) == {}


def test_terminating_in_batches(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """Instances are terminated a hundred at a time, each once."""
    ids = [f"i-{n:03d}" for n in range(150)]
    ec2.add_response("terminate_instances", {}, {"InstanceIds": ids[:100]})
    ec2.add_response("terminate_instances", {}, {"InstanceIds": ids[100:]})
    assert fleet.terminate([*ids, *ids[:10]]) == {}


def _refuse(
    ec2: Stubber,
    code: str,
    *instance_ids: str,
    words: str = "no",
    call: str = "terminate_instances",
    status: int = 400,
) -> None:
    """The next request is to be about these instances, and refused."""
    asked = {"InstanceIds": list(instance_ids)}
    ec2.add_client_error(call, code, words, status, expected_params=asked)


def test_terminating_one_by_one_after_an_unknown_one(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """One unknown ID makes EC2 refuse the batch: the others are terminated one by one, and it is fine."""
    _refuse(ec2, "InvalidInstanceID.NotFound", "i-1", "i-2")
    _refuse(ec2, "InvalidInstanceID.NotFound", "i-1")
    ec2.add_response("terminate_instances", {}, {"InstanceIds": ["i-2"]})
    assert fleet.terminate(["i-1", "i-2"]) == {}


@pytest.mark.parametrize("code", ["OperationNotPermitted", "UnauthorizedOperation", "AccessDenied"])
def test_what_may_not_be_terminated_costs_the_others_nothing(
    ec2: Stubber, fleet: Ec2Fleet, code: str
) -> None:
    """One that is protected makes EC2 refuse its batch: it comes back with EC2's words, the others go."""
    protected = f"i-{3:03d}"
    ids = [f"i-{n:03d}" for n in range(101)]
    _refuse(ec2, code, *ids[:100])
    for instance_id in ids[:100]:
        if instance_id == protected:
            _refuse(ec2, code, instance_id, words="it is protected")
        else:
            ec2.add_response("terminate_instances", {}, {"InstanceIds": [instance_id]})
    ec2.add_response("terminate_instances", {}, {"InstanceIds": ids[100:]})
    refused = fleet.terminate(ids)
    assert refused.keys() == {protected}
    assert code in refused[protected]
    assert "it is protected" in refused[protected]


def test_one_that_is_alone_is_asked_about_once(ec2: Stubber, fleet: Ec2Fleet) -> None:
    """A batch of one tells all there is: no second call, whether it is unknown or protected."""
    _refuse(ec2, "InvalidInstanceID.NotFound", "i-1")
    assert fleet.terminate(["i-1"]) == {}
    _refuse(ec2, "OperationNotPermitted", "i-1")
    assert fleet.terminate(["i-1"]).keys() == {"i-1"}


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("RequestLimitExceeded", 503, Throttled), ("InternalError", 500, Unavailable)],
)
def test_a_termination_that_failed_is_seen(
    ec2: Stubber, fleet: Ec2Fleet, code: str, status: int, error: type[Exception]
) -> None:
    """A throttle or a server error isn't taken for a refusal: it is raised, and the tick comes back to it."""
    ec2.add_client_error("terminate_instances", code, "no", status)
    with pytest.raises(error):
        fleet.terminate(["i-1", "i-2"])


@pytest.mark.parametrize(
    ("code", "status", "kind", "remedy"),
    [
        # EC2 calls a lack of capacity its own fault.
        (CAPACITY, 500, RefusalKind.CAPACITY, ""),
        (CAPACITY, 400, RefusalKind.CAPACITY, ""),
        ("VcpuLimitExceeded", 400, RefusalKind.QUOTA, "ask for more of the quota"),
        ("InstanceLimitExceeded", 400, RefusalKind.MARKET_LIMIT, "ask for more of the quota"),
        ("UnauthorizedOperation", 403, RefusalKind.PERMISSION, "allow ec2:StartInstances"),
        ("Unsupported", 400, RefusalKind.CAPACITY, ""),
        ("InvalidInstanceID.NotFound", 400, RefusalKind.OTHER, ""),
        ("NeverHeardOf", 400, RefusalKind.OTHER, ""),
    ],
)
def test_what_cannot_be_started_costs_the_others_nothing(
    starting: Stubber, fleet: Ec2Fleet, code: str, status: int, kind: RefusalKind, remedy: str
) -> None:
    """EC2 starts all or none: after a refusal each is asked for alone, and the reasons come back."""
    words = "perform: ec2:StartInstances on it"
    for ids in (("i-1", "i-2", "i-3"), ("i-1",)):
        _refuse(starting, code, *ids, words=words, call="start_instances", status=status)
    starting.add_response("start_instances", {}, {"InstanceIds": ["i-2"]})
    _refuse(starting, code, "i-3", words=words, call="start_instances", status=status)
    refused = fleet.start(["i-1", "i-2", "i-3", "i-1"])
    assert refused.keys() == {"i-1", "i-3"}
    refusal = refused["i-1"]
    assert (refusal.kind, refusal.code, refusal.offering) == (kind, code, None)
    assert words in refusal.message
    assert refusal.remedy.startswith(remedy)
    assert bool(refusal.remedy) is bool(remedy)


def test_no_more_starts_are_asked_for_than_ec2_takes(starting: Stubber, fleet: Ec2Fleet) -> None:
    """Of many that EC2 refuses together three are asked for alone, and nothing is said of the rest."""
    ids = [f"i-{n}" for n in range(6)]
    for asked in (ids, ids[:1], ids[1:2], ids[2:3]):
        _refuse(starting, CAPACITY, *asked, call="start_instances", status=500)
    assert fleet.start(ids).keys() == {"i-0", "i-1", "i-2"}


def test_what_ec2_said_of_some_is_kept_when_it_throttles_the_rest(starting: Stubber, fleet: Ec2Fleet) -> None:
    """The refusal comes back; of those that weren't answered nothing is known."""
    for ids in (("i-1", "i-2", "i-3"), ("i-1",)):
        _refuse(starting, CAPACITY, *ids, call="start_instances", status=500)
    _refuse(starting, "RequestLimitExceeded", "i-2", call="start_instances", status=503)
    assert fleet.start(["i-1", "i-2", "i-3"]).keys() == {"i-1"}


@pytest.mark.parametrize("refused", [(), (("i-1", "i-2"),)])
def test_starts_of_which_nothing_is_known_are_an_error(
    starting: Stubber, fleet: Ec2Fleet, refused: tuple[tuple[str, ...], ...]
) -> None:
    """A throttle before any answer is raised, so that it is logged and the message comes again."""
    for ids in refused:
        _refuse(starting, CAPACITY, *ids, call="start_instances", status=500)
    starting.add_client_error("start_instances", "RequestLimitExceeded", "no", 503)
    with pytest.raises(Throttled):
        fleet.start(["i-1", "i-2"])


def test_a_refused_start_is_asked_for_once(clients: Clients) -> None:
    """EC2 refuses for want of capacity with a status that botocore would repeat."""
    assert vars(clients.ec2_starting.meta.config)["retries"]["total_max_attempts"] == 1


@pytest.mark.parametrize(("remaining_s", "is_asked"), [(11, False), (13, True)])
def test_nothing_is_started_that_may_not_get_on_record(
    starting: Stubber, fleet: Ec2Fleet, clients: Clients, remaining_s: float, is_asked: bool
) -> None:
    """With less time than a start and its record may take, it waits for the next tick."""
    with clients.in_use(remaining_s):
        if is_asked:
            starting.add_response("start_instances", {}, {"InstanceIds": ["i-1"]})
            assert fleet.start(["i-1"]) == {}
        else:
            with pytest.raises(Throttled, match="time is left"):
                fleet.start(["i-1"])


def test_what_still_stops_is_no_refusal(starting: Stubber, fleet: Ec2Fleet) -> None:
    """It can be started in a moment: nothing is wrong with it, nor with where it is."""
    _refuse(starting, "IncorrectInstanceState", "i-1", call="start_instances")
    assert fleet.start(["i-1"]) == {}


@pytest.mark.parametrize("code", ["IncorrectInstanceState", "InvalidInstanceID.NotFound"])
def test_what_cannot_be_stopped_any_more_is_fine(ec2: Stubber, fleet: Ec2Fleet, code: str) -> None:
    """It is gone, or on its way."""
    _refuse(ec2, code, "i-1", call="stop_instances")
    assert fleet.stop(["i-1"]) == {}


@pytest.mark.parametrize("code", ["OperationNotPermitted", "UnauthorizedOperation", "UnsupportedOperation"])
def test_what_may_not_be_stopped_comes_back_with_the_words(ec2: Stubber, fleet: Ec2Fleet, code: str) -> None:
    """One that is protected makes EC2 refuse its batch; the others stop."""
    _refuse(ec2, code, "i-1", "i-2", call="stop_instances")
    _refuse(ec2, code, "i-1", words="it is protected", call="stop_instances")
    ec2.add_response("stop_instances", {}, {"InstanceIds": ["i-2"]})
    refused = fleet.stop(["i-1", "i-2"])
    assert refused.keys() == {"i-1"}
    assert code in refused["i-1"]
    assert "it is protected" in refused["i-1"]


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("RequestLimitExceeded", 503, Throttled), ("InternalError", 500, Unavailable)],
)
def test_a_start_or_stop_without_an_answer_is_seen(
    ec2: Stubber, starting: Stubber, fleet: Ec2Fleet, code: str, status: int, error: type[Exception]
) -> None:
    """Neither a throttle nor a server error is a refusal: it is raised, and the tick finds out."""
    starting.add_client_error("start_instances", code, "no", status)
    ec2.add_client_error("stop_instances", code, "no", status)
    for call in (fleet.start, fleet.stop):
        with pytest.raises(error):
            call(["i-1", "i-2"])
