"""The ALB's health check: one GET on a fresh connection."""

from __future__ import annotations

import aiohttp
from yarl import URL

from lab.local.balancer.config import HealthCheck
from lab.local.balancer.target import CheckFailure


class Probe:
    """Sends health checks. Create it inside the event loop; `close` it."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            # As the ALB does: a connection of its own for every check, so that a full server is seen as such.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            headers={"User-Agent": "ELB-HealthChecker/2.0"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def check(self, address: str, target_port: int, check: HealthCheck) -> CheckFailure | None:
        """None if the target at `address` passes; otherwise why it doesn't."""
        url = URL(f"http://{address}:{check.port_of(target_port)}{check.path}", encoded=True)
        timeout = aiohttp.ClientTimeout(total=check.timeout_s)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                status = response.status
        except TimeoutError:
            return CheckFailure("Target.Timeout", "Request timed out")
        except (aiohttp.ClientError, OSError):
            return CheckFailure("Target.FailedHealthChecks", "Health checks failed")
        if check.accepts(status):
            return None
        return CheckFailure(
            "Target.ResponseCodeMismatch", f"Health checks failed with these codes: [{status}]"
        )

    async def close(self) -> None:
        """Drops whatever is in flight."""
        await self._session.close()
