"""The network that all services share: who has a public address, and how the others get out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stacks.application import NETWORK, SERVICE_PREFIX
from stacks.settings import AppSettings
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import Properties, Template, exported, flat, function, refers_to

DEMO = {"services": str(SERVICE_FILES["demo"])}


def made(tmp_path: Path, context: dict[str, Any], **environment: str) -> tuple[Template, Template]:
    """The network's template and that of the demo service."""
    settings = AppSettings.from_context({**DEMO, **context}.get, environment)
    out = synthesize(tmp_path / "out", settings)
    return Template.read(out, NETWORK), Template.read(out, SERVICE_PREFIX + "demo")


def subnets(network: Template, name: str) -> dict[str, Properties]:
    """The public or the private ones."""
    return {id_: s for id_, s in network.all("AWS::EC2::Subnet").items() if id_.startswith(f"Vpc{name}")}


def used(network: Template, values: list[Any]) -> set[str]:
    """Logical IDs of the subnets that a service's stack refers to."""
    return {exported(network, flat(value)).strip("<>") for value in values}


def default_routes(network: Template) -> dict[str, str]:
    """Subnet → what its default route leads to, where it has one."""
    tables = {
        refers_to(a["RouteTableId"]): refers_to(a["SubnetId"])
        for a in network.all("AWS::EC2::SubnetRouteTableAssociation").values()
    }
    return {
        tables[refers_to(route["RouteTableId"])]: next(iter(route.keys() & {"GatewayId", "NatGatewayId"}))
        for route in network.all("AWS::EC2::Route").values()
        if route["DestinationCidrBlock"] == "0.0.0.0/0"
    }


def test_replicas_have_no_public_address_and_a_way_out(network: Template, service_stack: Template) -> None:
    """They are in private subnets, of which each leads to one NAT gateway; none is given a public address."""
    private = subnets(network, "Private")
    document = flat(service_stack.only("AWS::SSM::Parameter")["Value"])
    tokens = set(re.findall(rf"<{NETWORK}:[^>]+>", document))
    zones = {f"{id_}.AvailabilityZone" for id_ in private}
    assert {exported(network, token).strip("<>") for token in tokens} == set(private) | zones
    assert not any(s["MapPublicIpOnLaunch"] for s in network.all("AWS::EC2::Subnet").values())
    assert {default_routes(network)[id_] for id_ in private} == {"NatGatewayId"}
    assert len(network.all("AWS::EC2::NatGateway")) == 1
    prober = function(service_stack, "probe")
    assert used(network, prober["VpcConfig"]["SubnetIds"]) == set(private)


def test_what_comes_from_s3_passes_no_nat_gateway(network: Template) -> None:
    """The endpoint is in the route table of every subnet, and of the kind that costs nothing."""
    endpoint = network.only("AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert len(endpoint["RouteTableIds"]) == len(network.all("AWS::EC2::Subnet"))


def test_an_internal_load_balancer_is_in_private_subnets(network: Template, service_stack: Template) -> None:
    """One that has no public address needs no public subnet."""
    balancer = service_stack.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert used(network, balancer["Subnets"]) == set(subnets(network, "Private"))


def test_replicas_with_public_addresses_need_no_nat_gateway(tmp_path: Path) -> None:
    """If asked for: instances in public subnets, and nothing that is paid by the hour."""
    network, service = made(tmp_path, {"public_addresses": "true"})
    public = subnets(network, "Public")
    assert all(s["MapPublicIpOnLaunch"] for s in public.values())
    assert {default_routes(network)[id_] for id_ in public} == {"GatewayId"}
    assert not network.all("AWS::EC2::NatGateway")
    assert not network.all("AWS::EC2::EIP")
    prober = function(service, "probe")
    assert used(network, prober["VpcConfig"]["SubnetIds"]) == set(public)
    balancer = service.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert balancer["Scheme"] == "internal"
    assert used(network, balancer["Subnets"]) == set(subnets(network, "Private"))


def test_more_nat_gateways_are_in_as_many_zones(tmp_path: Path) -> None:
    """With one in each zone the loss of a zone leaves the others their way out."""
    network, _ = made(tmp_path, {"nat_gateways": "3"})
    gateways = network.all("AWS::EC2::NatGateway").values()
    assert {refers_to(gateway["SubnetId"]) for gateway in gateways} == set(subnets(network, "Public"))


def test_a_region_with_two_zones_gets_two(tmp_path: Path) -> None:
    """us-west-1 shows most accounts two zones: asking for a third would fail the deployment."""
    network, _ = made(tmp_path, {}, CDK_DEFAULT_REGION="us-west-1")
    zones = [flat(s["AvailabilityZone"]) for s in subnets(network, "Private").values()]
    assert zones == ["<zone 0>", "<zone 1>"]


def test_naming_more_zones_moves_no_subnet(tmp_path: Path, network: Template) -> None:
    """A zone that is added at the end changes no range of addresses, so it replaces nothing."""
    zones = ",".join(f"us-east-1{letter}" for letter in "abcdef")
    more, _ = made(tmp_path, {"zones": zones})
    ranges = {id_: s["CidrBlock"] for id_, s in more.all("AWS::EC2::Subnet").items()}
    before = {id_: s["CidrBlock"] for id_, s in network.all("AWS::EC2::Subnet").items()}
    assert len(ranges) == 12
    assert before.items() <= ranges.items()


def test_the_network_is_the_same_whatever_services_it_has(tmp_path: Path, network: Template) -> None:
    """Whoever deploys one of several services doesn't touch the network of the others."""
    alone, _ = made(tmp_path, {})
    assert alone.body == network.body


def test_no_choice_of_a_service_takes_an_export_away(tmp_path: Path, network: Template) -> None:
    """The network is deployed before the services: what these still import must stay there."""
    public, _ = made(tmp_path, {"internet_facing": "true", "api_keys": "web", "public_addresses": "true"})
    assert public.body["Outputs"].keys() == network.body["Outputs"].keys()


def test_without_services_there_is_nothing_to_pay_for(tmp_path: Path) -> None:
    """The control plane alone brings no network, nor does a service in a network that exists."""
    assert not (synthesize(tmp_path / "out", AppSettings()) / f"{NETWORK}.template.json").exists()
    given = {
        "vpc_id": "vpc-00000001",
        "subnets": "subnet-00000001=us-east-1a,subnet-00000002=us-east-1b",
    }
    with pytest.raises(FileNotFoundError):
        made(tmp_path / "given", given)
