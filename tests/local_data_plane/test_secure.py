"""HTTPS: a port for each load balancer that has a certificate, as long as it has one."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest
from hypercorn.config import Config

from lab.local.balancer import BalancerConfig, Certificate, SecureListener, TargetGroup
from lab.local.secure import SecurePorts
from tests.certificates import SelfSigned
from tests.local_data_plane.support import FRONT, GROUP, PORT, QUICK, FakeTarget, site

DOMAIN = "chat.example.com"


def quiet(config: Config) -> Config:
    """A server that says nothing."""
    config.errorlog = None
    return config


def test_requests_over_tls_are_told_apart_and_end_with_the_load_balancer() -> None:
    """A target hears how it was reached; HTTP has its own listener; the port goes with the load balancer."""

    async def scenario() -> None:
        signed = SelfSigned.of(DOMAIN)
        certificate = Certificate(signed.certificate.decode(), signed.key.decode())
        trusted = ssl.create_default_context(cadata=signed.certificate.decode())
        async with site() as here, FakeTarget().running() as target:
            secure = SecurePorts("127.0.0.1", here.balancer, quiet)
            here.configure(front=BalancerConfig(FRONT, https=SecureListener(GROUP, None, certificate)))
            here.add("i-1", target.address)
            await here.until_state("i-1", "healthy")
            secure.refresh()
            port = secure.port(FRONT)
            try:
                url = f"https://127.0.0.1:{port}/quick"
                async with here.client.post(url, data=b"x", ssl=trusted, server_hostname=DOMAIN) as answer:
                    assert answer.status == 201
                (headers,) = target.headers
                assert (headers["x-forwarded-proto"], headers["x-forwarded-port"]) == ("https", "443")
                async with here.post("/quick") as answer:
                    assert answer.status == 503, "this listener forwards to nobody"
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await here.client.post(url, ssl=trusted, server_hostname="other.example.com")
                here.balancer.configure([], [TargetGroup(GROUP, PORT, QUICK)])
                secure.refresh()
                assert secure.port(FRONT) is None
            finally:
                await secure.close()

    asyncio.run(scenario())
