"""What `spotrelay up` says of the way to a service, and of how to ask it something."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spotrelay.operator.cli.request import ways_to_ask
from spotrelay.operator.request import Entrance
from spotrelay.plane.core.spec import ReadinessProbe
from tests.examples import demo_spec

OWN = "web-0123456789.us-east-1.elb.amazonaws.com"


def of(outputs: dict[str, str]) -> Entrance:
    """The way in that a stack with these outputs has."""
    found = Entrance.of(outputs)
    assert found
    return found


def test_an_address_in_clear_text_is_the_load_balancers() -> None:
    """Nothing is to be done for it."""
    found = of({"Endpoint": OWN, "Address": f"http://{OWN}"})
    assert (found.address, found.remarks) == (f"http://{OWN}", ())


def test_a_domain_must_lead_to_the_load_balancer() -> None:
    """The address is the one that the certificate is for; where it must lead to is said beside it."""
    found = of({"Endpoint": OWN, "Address": "https://chat.example.com"})
    assert found.address == "https://chat.example.com"
    assert found.remarks == (
        f"chat.example.com must lead to {OWN}: by a CNAME or an alias record in your DNS",
    )


def test_an_address_that_cannot_be_verified_says_so() -> None:
    """With a certificate and no domain, what is lacking is named."""
    found = of({"Endpoint": OWN, "Address": f"https://{OWN}"})
    assert found.address == f"https://{OWN}"
    (remark,) = found.remarks
    assert "can't verify" in remark
    assert "spotrelay.domain" in remark


def test_nobody_knows_the_way_through_a_balancer_of_the_users() -> None:
    """A stack without a load balancer of its own has no address."""
    assert Entrance.of({"ParameterName": "/spotrelay/services/web"}) is None


def test_what_to_send_is_said_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of ours, and a curl of the service's own probe; who can't reach it is told, and why."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    spec = replace(demo_spec(), readiness_probe=ReadinessProbe("/health", None))
    plane: Any = SimpleNamespace(services=SimpleNamespace(get=lambda *_, **__: spec))
    public = ways_to_ask(plane, Entrance(f"http://{OWN}", OWN), "demo")
    assert public.lines == ["try it: spotrelay request demo", f"or: curl http://{OWN}/health"]
    internal = Entrance(f"http://internal-{OWN}", f"internal-{OWN}")
    assert "it is internal" in ways_to_ask(plane, internal, "demo").lines[-1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    local = ways_to_ask(plane, internal, "demo")
    assert local.curl == f"curl http://127.0.0.1:4566/health -H 'Host: internal-{OWN}'"
    assert local.lines[-1] == f"or: {local.curl}"
