"""Who reaches a service: nobody outside by default; by name, and then with a key or from named networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.application import SERVICE_PREFIX
from stacks.load_balancer import EVERYBODY, PRIVATE
from stacks.settings import AppSettings
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import Template, flat, ingress, refers_to

CERTIFICATE = "arn:aws:acm:us-east-1:000000000000:certificate/1"
MAX_CONDITION = 128
"""Characters that a listener rule compares."""

MAX_FIXED_RESPONSE = 1024
"""Characters of a fixed response's body."""


def made(tmp_path: Path, context: dict[str, Any]) -> tuple[Template, str]:
    """The demo service's template, and the warnings that the CDK's command line shows."""
    settings = AppSettings.from_context({"services": str(SERVICE_FILES["demo"]), **context}.get)
    out = synthesize(tmp_path / "out", settings)
    metadata = "".join(path.read_text(encoding="utf-8") for path in out.glob("*metadata.json"))
    return Template.read(out, SERVICE_PREFIX + "demo"), metadata


@pytest.fixture(scope="module")
def with_keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Template, str]:
    """Public, with two keys, without a certificate."""
    return made(tmp_path_factory.mktemp("keys"), {"internet_facing": "true", "api_keys": "web,batch"})


def test_nobody_outside_gets_in(service_stack: Template) -> None:
    """By default the load balancer is internal, and lets private addresses in at port 80 alone."""
    assert service_stack.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internal"
    assert ingress(service_stack) == {(cidr, 80) for cidr in PRIVATE}


def test_an_internal_service_can_be_narrowed(tmp_path: Path) -> None:
    """The networks that are named, and no other private address."""
    template, warnings = made(tmp_path, {"allowed_cidrs": "10.1.0.0/16"})
    assert template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internal"
    assert ingress(template) == {("10.1.0.0/16", 80)}
    assert "plain-http" not in warnings


def test_without_a_key_a_request_is_refused(with_keys: tuple[Template, str]) -> None:
    """The listener's own answer is 401, as JSON; forwarding takes the rule on the header."""
    template, _ = with_keys
    listener = template.only("AWS::ElasticLoadBalancingV2::Listener")
    (action,) = listener["DefaultActions"]
    assert (action["Type"], action["FixedResponseConfig"]["StatusCode"]) == ("fixed-response", "401")
    assert json.loads(action["FixedResponseConfig"]["MessageBody"])["error"]["code"] == "invalid_api_key"
    rule = template.only("AWS::ElasticLoadBalancingV2::ListenerRule")
    (group,) = template.all("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert [refers_to(a["TargetGroupArn"]) for a in rule["Actions"]] == [group]
    (condition,) = rule["Conditions"]
    assert condition["HttpHeaderConfig"]["HttpHeaderName"] == "Authorization"
    keys = [f"<{id_}>" for id_ in template.all("AWS::SecretsManager::Secret")]
    values = [flat(value) for value in condition["HttpHeaderConfig"]["Values"]]
    assert values == [f"Bearer {{{{resolve:secretsmanager:{key}:SecretString:::}}}}" for key in keys]


def test_a_key_is_made_at_deployment_and_can_be_no_pattern(with_keys: tuple[Template, str]) -> None:
    """Letters and digits, for * and ? are wildcards to ELB; it fits into a rule; outputs say where it is."""
    template, _ = with_keys
    secrets = template.all("AWS::SecretsManager::Secret")
    for secret in secrets.values():
        assert secret["GenerateSecretString"]["ExcludePunctuation"]
        assert 32 <= secret["GenerateSecretString"]["PasswordLength"] <= MAX_CONDITION - len("Bearer ")
    outputs = {name: flat(output["Value"]) for name, output in template.body["Outputs"].items()}
    assert [outputs["ApiKeyweb"], outputs["ApiKeybatch"]] == [f"<{id_}>" for id_ in secrets]


def test_with_keys_everybody_may_connect_unless_networks_are_named(
    with_keys: tuple[Template, str], tmp_path: Path
) -> None:
    """A key stands in for a network; both together are possible."""
    template, _ = with_keys
    assert ingress(template) == {(cidr, 80) for cidr in EVERYBODY}
    both = {"internet_facing": "true", "api_keys": "web", "allowed_cidrs": "203.0.113.0/24"}
    assert ingress(made(tmp_path, both)[0]) == {("203.0.113.0/24", 80)}


def test_a_key_in_clear_text_is_warned_of(with_keys: tuple[Template, str], tmp_path: Path) -> None:
    """Public without a certificate says so at synth, and what to do; with one it doesn't."""
    _, warnings = with_keys
    assert "API keys, requests and answers cross the internet in clear text: name a certificate" in warnings
    context = {"internet_facing": "true", "api_keys": "web", "certificate_arn": CERTIFICATE}
    template, warnings = made(tmp_path, context)
    assert "clear text" not in warnings
    types = {
        x["Port"]: x["DefaultActions"][0]["Type"]
        for x in template.all("AWS::ElasticLoadBalancingV2::Listener").values()
    }
    assert types == {443: "fixed-response", 80: "fixed-response"}
    assert "no certificate is for the load balancer's own name" in warnings
    assert ingress(template) == {(cidr, port) for cidr in EVERYBODY for port in (80, 443)}


def test_a_certificate_can_be_added_to_a_service_that_runs(
    with_keys: tuple[Template, str], tmp_path: Path
) -> None:
    """The listener at port 80 stays, and refuses only once the other one forwards, its rule included."""
    before, _ = with_keys
    context = {"internet_facing": "true", "api_keys": "web,batch", "certificate_arn": CERTIFICATE}
    after, _ = made(tmp_path, context)
    type_ = "AWS::ElasticLoadBalancingV2::Listener"
    ((http, _),) = before.all(type_).items()
    assert after.all(type_)[http]["Port"] == 80
    (https,) = set(after.all(type_)) - {http}
    (rule,) = after.all("AWS::ElasticLoadBalancingV2::ListenerRule")
    assert {https, rule} <= after.comes_after(http)


def test_with_a_certificate_clear_text_is_refused(tmp_path: Path) -> None:
    """At port 80 nothing is forwarded, nor led elsewhere: it says that https is to be used, as JSON."""
    template, _ = made(tmp_path, {"certificate_arn": CERTIFICATE})
    (plain,) = (
        listener
        for listener in template.all("AWS::ElasticLoadBalancingV2::Listener").values()
        if listener["Port"] == 80
    )
    (action,) = plain["DefaultActions"]
    assert action["Type"] == "fixed-response"
    fixed = action["FixedResponseConfig"]
    assert (fixed["StatusCode"], fixed["ContentType"]) == ("403", "application/json")
    error = json.loads(fixed["MessageBody"])["error"]
    assert error["code"] == "https_required"
    assert "https" in error["message"]
    assert len(fixed["MessageBody"]) <= MAX_FIXED_RESPONSE


def test_the_address_is_the_name_that_the_certificate_is_for(tmp_path: Path) -> None:
    """The file's domain, with the scheme of the listener; without one the load balancer's own name."""
    file = tmp_path / "demo.yaml"
    text = SERVICE_FILES["demo"].read_text(encoding="utf-8")
    file.write_text(
        text.replace("\nspotrelay:\n", "\nspotrelay:\n  domain: chat.example.com\n"), encoding="utf-8"
    )
    for context, expected in (
        ({}, "http://chat.example.com"),
        ({"certificate_arn": CERTIFICATE}, "https://chat.example.com"),
    ):
        template, warnings = made(tmp_path / expected[:5], {**context, "services": str(file)})
        assert template.body["Outputs"]["Address"]["Value"] == expected
        assert "load balancer's own name" not in warnings
    template, _ = made(tmp_path / "own", {"certificate_arn": CERTIFICATE})
    (balancer,) = template.all("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert flat(template.body["Outputs"]["Address"]["Value"]) == f"https://<{balancer}.DNSName>"
