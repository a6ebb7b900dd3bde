"""`ports.Services`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from spotrelay.aws.clients import Clients
from spotrelay.aws.services import KEPT_S, ParameterServices
from spotrelay.memory import MemoryServices, MemoryTelemetry
from spotrelay.model import ReadinessProbe, ServiceSpec, SpecError
from spotrelay.names import SERVICES_PATH, service_parameter
from spotrelay.ports import Services
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
    telemetry: MemoryTelemetry = field(default_factory=MemoryTelemetry)
    now_s: float = 0.0

    def services(self) -> ParameterServices:
        """The services, as a function sees them that starts now."""
        return ParameterServices(self.clients, SERVICES_PATH, self.telemetry, lambda: self.now_s)

    def deploy(self, spec: ServiceSpec) -> None:
        """Write the document as the service's stack does."""
        self.write(spec.service, json.dumps(spec.to_dict()))

    def write(self, service: str, text: str) -> None:
        """Write anything in the document's place."""
        self.clients.ssm.put_parameter(
            Name=service_parameter(service), Value=text, Type="String", Overwrite=True
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
    assert world.services.get("demo") is None


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


def test_names_bring_the_documents(parameters: Parameters) -> None:
    """Naming the services reads their documents too: no further call is needed for any of them."""
    parameters.deploy(demo_spec())
    services = parameters.services()
    services.names()
    with Stubber(parameters.clients.ssm):  # which answers nothing
        assert services.get("demo") == demo_spec()


def test_an_unreadable_document_hides_no_other(parameters: Parameters) -> None:
    """A broken document is on record and named all the same; the others are read."""
    parameters.deploy(demo_spec("good"))
    parameters.write("broken", "{")
    services = parameters.services()
    assert services.names() == ["broken", "good"]
    assert services.get("good") == demo_spec("good")
    ((event, facts),) = parameters.telemetry.records
    assert (event, facts["service"]) == ("unreadable_document", "broken")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        json.dumps({**demo_spec().to_dict(), "schema": 2}),
        json.dumps(demo_spec("x").to_dict()),
    ],
)
def test_an_unreadable_document_is_not_a_missing_one(parameters: Parameters, text: str) -> None:
    """A document that can't be read is an error: taken for a missing one, it would end the service."""
    parameters.write("demo", text)
    with pytest.raises(SpecError):
        parameters.services().get("demo")


def test_a_failed_read_is_not_a_missing_document(clients: Clients) -> None:
    """Nor is a call that failed."""
    services = Parameters(clients).services()
    with Stubber(clients.ssm) as stubber:
        stubber.add_client_error("get_parameter", "AccessDeniedException", "no", 400)
        with pytest.raises(ClientError):
            services.get("demo")
