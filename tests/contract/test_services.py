"""`ports.Services`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from botocore.stub import Stubber

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.services import KEPT_S, ParameterServices
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, SERVICES_PATH, service_parameter
from spotrelay.plane.core.ports import (
    Denied,
    OtherControlPlane,
    Services,
    Throttled,
    Unavailable,
    UnreadableDocument,
)
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.memory import MemoryServices
from tests.contract.conftest import TABLE
from tests.examples import demo_spec


@dataclass
class World:
    """The services, and how one is deployed and removed."""

    services: Services
    deploy: Callable[[ServiceSpec], object]
    remove: Callable[[str], object]


@dataclass
class Parameters:
    """Parameter Store, with a clock for the documents that are kept."""

    clients: Clients
    now_s: float = 0.0

    def services(self) -> ParameterServices:
        """The services, as a function sees them that starts now."""
        return ParameterServices(self.clients, SERVICES_PATH, TABLE, lambda: self.now_s)

    def deploy(self, spec: ServiceSpec) -> None:
        """Write the document as the service's stack does."""
        self.write(spec.service, json.dumps(spec.to_dict()))

    def write(self, service: str, text: str) -> None:
        """Write anything in the document's place."""
        self.clients.ssm.put_parameter(
            Name=service_parameter(service), Value=text, Type="String", Overwrite=True
        )

    def claim(self, text: str) -> None:
        """Say whose services these are."""
        self.clients.ssm.put_parameter(
            Name=CONTROL_PLANE_PARAMETER, Value=text, Type="String", Overwrite=True
        )

    def remove(self, service: str) -> None:
        """Delete the document."""
        self.clients.ssm.delete_parameter(Name=service_parameter(service))


@pytest.fixture
def parameters(aws: Clients) -> Parameters:
    """An empty Parameter Store."""
    return Parameters(aws)


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    """The services, either way."""
    if request.param == "memory":
        memory = MemoryServices()
        return World(
            memory,
            lambda spec: memory.specs.update({spec.service: spec}),
            lambda service: memory.specs.pop(service),
        )
    parameters: Parameters = request.getfixturevalue("parameters")
    return World(parameters.services(), parameters.deploy, parameters.remove)


def test_nothing_is_deployed(world: World) -> None:
    """Without services there are no names, and none has a document."""
    assert list(world.services.names()) == []
    assert world.services.get("demo") is None


def test_a_deployed_service(world: World) -> None:
    """A deployed service is named, and its document comes back with every field."""
    spec = replace(
        demo_spec(),
        ordered=True,
        drain_s=12.5,
        initial_delay_s=300,
        use_spot=False,
        readiness_probe=ReadinessProbe("/v1/chat/completions", {"max_tokens": 1}, 7),
    )
    world.deploy(spec)
    assert list(world.services.names()) == ["demo"]
    assert world.services.get("demo") == spec
    assert world.services.get("dem") is None


def test_a_service_that_comes_late(world: World) -> None:
    """A service deployed after it was asked for in vain is there at once."""
    assert world.services.get("demo") is None
    world.deploy(demo_spec())
    assert world.services.get("demo") == demo_spec()


def test_names_are_read_afresh(world: World) -> None:
    """A service is named from its deployment to its removal, however recently it was read."""
    world.deploy(demo_spec())
    world.deploy(demo_spec("other"))
    assert list(world.services.names()) == ["demo", "other"]
    world.remove("demo")
    assert list(world.services.names()) == ["other"]
    assert world.services.get("demo", fresh=True) is None


def test_a_fresh_look_sees_what_changed(world: World) -> None:
    """Read afresh, a document is what was deployed last, and None from the removal on."""
    world.deploy(demo_spec())
    assert world.services.get("demo") == demo_spec()
    world.deploy(demo_spec(replicas=5))
    assert world.services.get("demo", fresh=True) == demo_spec(replicas=5)
    assert world.services.get("demo") == demo_spec(replicas=5)
    world.remove("demo")
    assert world.services.get("demo", fresh=True) is None


def test_more_services_than_a_page(world: World) -> None:
    """More services than Parameter Store gives at once (10) are all named."""
    expected = [f"service-{n:02d}" for n in range(23)]
    for service in expected:
        world.deploy(demo_spec(service))
    assert list(world.services.names()) == expected


def test_a_document_is_kept_for_a_minute(parameters: Parameters) -> None:
    """A changed document is seen a minute after the old one was read, not before."""
    services = parameters.services()
    parameters.deploy(demo_spec())
    assert services.get("demo") == demo_spec()
    parameters.deploy(demo_spec(replicas=5))
    parameters.now_s = KEPT_S - 0.001
    assert services.get("demo") == demo_spec()
    parameters.now_s = KEPT_S
    assert services.get("demo") == demo_spec(replicas=5)


def test_names_bring_no_documents(parameters: Parameters) -> None:
    """What comes along with the names is not gone by: whose services they are isn't known then."""
    parameters.deploy(demo_spec())
    services = parameters.services()
    services.names()
    parameters.deploy(demo_spec(replicas=5))
    assert services.get("demo") == demo_spec(replicas=5)
    services.names()
    parameters.claim(json.dumps({"table": "other"}))
    other = parameters.services()
    other.names()
    with pytest.raises(OtherControlPlane):
        other.get("demo")


def test_document_and_claim_come_in_one_call(clients: Clients) -> None:
    """A batch of warnings waits for one answer only, and the claim is as fresh as the document."""
    name = service_parameter("demo")
    with Stubber(clients.ssm) as stubber:
        stubber.add_response(
            "get_parameters",
            {"Parameters": [{"Name": name, "Value": json.dumps(demo_spec().to_dict())}]},
            {"Names": [name, "/spotrelay/control-plane"]},
        )
        services = Parameters(clients).services()
        assert services.get("demo") == demo_spec()
        assert services.get("demo") == demo_spec()


@pytest.mark.parametrize(
    "claim", [{"table": TABLE}, {"table": TABLE, "tick_queue_url": "https://ticks", "more": [1]}]
)
def test_what_is_claimed_for_this_one_is_read(parameters: Parameters, claim: object) -> None:
    """The control plane that the parameter names acts, whatever else the parameter says."""
    parameters.deploy(demo_spec())
    parameters.claim(json.dumps(claim))
    assert parameters.services().get("demo") == demo_spec()
    assert parameters.services().get("other") is None


@pytest.mark.parametrize(
    "claim",
    [
        json.dumps({"table": "spotrelay-2"}),
        json.dumps({"table": None}),
        json.dumps({"table": [TABLE]}),
        json.dumps({"tick_queue_url": "https://ticks"}),
        json.dumps([TABLE]),
        json.dumps(TABLE),
        "null",
        TABLE,
        "{",
        pytest.param("[" * 4000, id="deep"),
    ],
)
def test_what_another_one_claims_is_left_alone(parameters: Parameters, claim: str) -> None:
    """Also if it can't be read whose it is; and a missing document is no news of this one's then."""
    parameters.deploy(demo_spec())
    parameters.claim(claim)
    services = parameters.services()
    for service in ("demo", "other"):
        for fresh in (True, False):
            with pytest.raises(OtherControlPlane, match=CONTROL_PLANE_PARAMETER):
                services.get(service, fresh=fresh)


def test_a_claim_says_who_and_who_not(parameters: Parameters) -> None:
    """The error names both tables, for whoever looks into the log of either."""
    parameters.claim(json.dumps({"table": "spotrelay-2"}))
    with pytest.raises(OtherControlPlane, match=f"table spotrelay-2 .* this one has table {TABLE}"):
        parameters.services().get("demo")


def test_a_document_that_others_claim_is_kept_no_longer(parameters: Parameters) -> None:
    """Once a fresh look finds another control plane, the document of before doesn't count again."""
    parameters.deploy(demo_spec())
    services = parameters.services()
    assert services.get("demo") == demo_spec()
    parameters.claim(json.dumps({"table": "other"}))
    for fresh in (True, False):
        with pytest.raises(OtherControlPlane):
            services.get("demo", fresh=fresh)


def test_an_unreadable_document_hides_no_other(parameters: Parameters) -> None:
    """A broken document is named all the same, so that its tick is heard of; the others are read."""
    parameters.deploy(demo_spec("good"))
    parameters.write("broken", "{")
    services = parameters.services()
    assert services.names() == ["broken", "good"]
    assert services.get("good") == demo_spec("good")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        "null",
        "7",
        pytest.param("[" * 4000, id="deep"),
        pytest.param(f'{{"schema": {"1" * 4000}}}', id="long"),
        json.dumps({**demo_spec().to_dict(), "replicas": math.inf}),
        json.dumps({**demo_spec().to_dict(), "replicas": -1}),
        json.dumps({**demo_spec().to_dict(), "instance_types": []}),
        json.dumps({**demo_spec().to_dict(), "on_warning": "panic"}),
        json.dumps({**demo_spec().to_dict(), "schema": 2}),
        json.dumps({k: v for k, v in demo_spec().to_dict().items() if k != "port"}),
        json.dumps(demo_spec("x").to_dict()),
    ],
)
def test_an_unreadable_document_is_not_a_missing_one(parameters: Parameters, text: str) -> None:
    """A document that can't be read is an error: taken for a missing one, it would end the service."""
    parameters.write("demo", text)
    for fresh in (True, False):
        with pytest.raises(UnreadableDocument, match=r"/spotrelay/services/demo.* deploy|no instance types"):
            parameters.services().get("demo", fresh=fresh)


def test_a_document_that_became_unreadable_is_kept_no_longer(parameters: Parameters) -> None:
    """Once a fresh look couldn't read it, the one of before doesn't count again."""
    parameters.deploy(demo_spec())
    services = parameters.services()
    assert services.get("demo") == demo_spec()
    parameters.write("demo", "{")
    for fresh in (True, False):
        with pytest.raises(UnreadableDocument):
            services.get("demo", fresh=fresh)


def test_a_document_of_before_there_was_a_choice_is_read(parameters: Parameters) -> None:
    """One that doesn't say when a warned replica leaves is one that says nothing special."""
    older = {k: v for k, v in demo_spec().to_dict().items() if k != "on_warning"}
    parameters.write("demo", json.dumps(older))
    assert parameters.services().get("demo") == demo_spec()


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDeniedException", 400, Denied),
        ("ThrottlingException", 400, Throttled),
        ("InternalServerError", 500, Unavailable),
    ],
)
def test_a_failed_read_is_not_a_missing_document(
    clients: Clients, code: str, status: int, error: type[Exception]
) -> None:
    """Nor is a call that failed."""
    services = Parameters(clients).services()
    with Stubber(clients.ssm) as stubber:
        stubber.add_client_error("get_parameters", code, "no", status)
        with pytest.raises(error):
            services.get("demo")
