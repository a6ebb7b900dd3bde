"""A service with a certificate and keys, by the operator's command and over TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import ROOT
from spotrelay.plane.core.names import SERVICE_STACK
from tests.certificates import SelfSigned
from tests.e2e.lifecycle.conftest import Command

SECURE = "secure"
DOMAIN = "chat.example.com"
CHAT = {"model": "spotrelay-demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
PATH = "/v1/chat/completions"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_has_a_key_is_served_over_tls_and_nobody_else(
    operator: Operator, spotrelay: Command, tmp_path: Path
) -> None:
    """Up names the domain, whose certificate verifies; port 80 forwards nothing, with a key or without.

    What is refused in clear text is no failure of the service's: no 5xx is counted.
    """
    signed = SelfSigned.of(DOMAIN)
    acm = operator.session.client("acm")
    arn = acm.import_certificate(Certificate=signed.certificate, PrivateKey=signed.key)["CertificateArn"]
    text = (ROOT / "services" / "demo.yaml").read_text(encoding="utf-8")
    text = text.replace("name: demo", f"name: {SECURE}").replace("replicas: 3", "replicas: 1")
    file = tmp_path / f"{SECURE}.yaml"
    own = f"spotrelay:\n  certificate_arn: {arn}\n  domain: {DOMAIN}\n"
    file.write_text(text.replace("\nspotrelay:\n", f"\n{own}"), encoding="utf-8")

    code, out, err = spotrelay("up", str(file), "--context", "api_keys=web")
    assert code == 0, err
    stack = operator.session.client("cloudformation").describe_stacks(StackName=SERVICE_STACK + SECURE)
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack["Stacks"][0]["Outputs"]}
    assert f": https://{DOMAIN}\n" in out
    assert f"{DOMAIN} must lead to {outputs['Endpoint']}" in out

    secrets = operator.session.client("secretsmanager")
    key = secrets.get_secret_value(SecretId=outputs["ApiKeyweb"])["SecretString"]
    bearer = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    balancers = operator.session.client("elbv2").describe_load_balancers()["LoadBalancers"]
    (name,) = (b["LoadBalancerName"] for b in balancers if b["DNSName"] == outputs["Endpoint"])
    port = operator.cloud.https_port(name)
    assert port

    status, answer = signed.ask(port, DOMAIN, "POST", PATH, CHAT, bearer)
    assert status == 200
    assert json.loads(answer)["choices"][0]["message"]["content"]
    status, answer = signed.ask(port, DOMAIN, "POST", PATH, CHAT)
    assert (status, json.loads(answer)["error"]["code"]) == (401, "invalid_api_key")
    with pytest.raises(ssl.SSLCertVerificationError):
        signed.ask(port, outputs["Endpoint"], "POST", PATH, CHAT, bearer)

    served = len(operator.cloud.requests(name))
    connection = http.client.HTTPConnection(urlsplit(operator.cloud.endpoint).netloc)
    connection.request("POST", PATH, json.dumps(CHAT), {**bearer, "Host": outputs["Endpoint"]})
    plain = connection.getresponse()
    assert plain.status == 403
    error = json.loads(plain.read())["error"]
    assert error["code"] == "https_required"
    assert "https" in error["message"]
    connection.close()
    assert [request["target"] for request in operator.cloud.requests(name)[served:]] == [None]
    assert not any("ELB_5" in metric for metric in operator.cloud.counters(name))

    code, _, err = spotrelay("down", SECURE, "--yes")
    assert code == 0, err
