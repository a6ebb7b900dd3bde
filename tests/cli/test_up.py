"""What `spotrelay up` says of the way to a service."""

from __future__ import annotations

from spotrelay.cli.up import way_in

OWN = "web-0123456789.us-east-1.elb.amazonaws.com"


def test_an_address_in_clear_text_is_the_load_balancers() -> None:
    """Nothing is to be done for it."""
    assert way_in({"Endpoint": OWN, "Address": f"http://{OWN}"}) == (f"http://{OWN}", ())


def test_a_domain_must_lead_to_the_load_balancer() -> None:
    """The address is the one that the certificate is for; where it must lead to is said beside it."""
    address, remarks = way_in({"Endpoint": OWN, "Address": "https://chat.example.com"})
    assert address == "https://chat.example.com"
    assert remarks == (f"chat.example.com must lead to {OWN}: by a CNAME or an alias record in your DNS",)


def test_an_address_that_cannot_be_verified_says_so() -> None:
    """With a certificate and no domain, what is lacking is named."""
    address, (remark,) = way_in({"Endpoint": OWN, "Address": f"https://{OWN}"})
    assert address == f"https://{OWN}"
    assert "can't verify" in remark
    assert "spotrelay.domain" in remark


def test_nobody_knows_the_way_through_a_balancer_of_the_users() -> None:
    """A stack without a load balancer of its own has no address."""
    assert way_in({"ParameterName": "/spotrelay/services/web"}) == (None, ())
