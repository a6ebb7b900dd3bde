"""Clients that stream answers through a service's load balancer while a test hurts the service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from lab.demo.load import Load, LoadSnapshot
from tests.e2e.stand import POLL_S, WITHIN_S, Stand

CLIENTS = 4
"""Enough that every replica has somebody's answer under way, and little work for a small machine."""

MODEL = "spotrelay-demo"
"""As the service files have it."""

TOKENS = 20
"""An answer takes a second, so that no drain is the reason for a cut."""


class Clients:
    """So many clients of a service, each sending one streaming request after the other and never one again.

    They send from the beginning of the `with` block, which begins once answers come, until `stop` or its end.
    """

    def __init__(self, stand: Stand, number: int = CLIENTS, tokens: int = TOKENS) -> None:
        elb = stand.operator.session.client("elbv2")
        (group,) = elb.describe_target_groups(TargetGroupArns=[stand.spec.target_group_arn])["TargetGroups"]
        (front,) = elb.describe_load_balancers(LoadBalancerArns=group["LoadBalancerArns"])["LoadBalancers"]
        self._cloud = stand.cloud
        self._balancer = str(front["LoadBalancerName"])
        self._load = Load(self._cloud.endpoint, [front["DNSName"]], number, model=MODEL, max_tokens=tokens)
        self._final: LoadSnapshot | None = None

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """The load balancer's own log of the requests; see `LocalCloud.requests`."""
        return self._cloud.requests(self._balancer)

    def stop(self) -> LoadSnapshot:
        """Send nothing more and wait for what is in flight; what came of all requests."""
        if self._final is None:
            self._final = self._load.stop()
        return self._final

    def were_served(self) -> None:
        """Stop them. Fails if a single request failed or was cut, and says which."""
        seen = self.stop()
        assert (seen.failed, seen.cut) == (0, 0), (
            f"{seen.failed} failed, {seen.cut} cut: {seen.failures[:10]}"
        )
        assert seen.finished == seen.sent > 0

    def __enter__(self) -> Self:
        self._load.start()
        deadline = time.monotonic() + WITHIN_S
        while not self._load.snapshot().finished:
            assert time.monotonic() < deadline, f"no answer within {WITHIN_S:.0f} s: {self._load.snapshot()}"
            time.sleep(POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._final is None:
            seen = self._load.snapshot()
            error.add_note(
                f"clients: {seen.sent} sent, {seen.failed} failed, {seen.cut} cut {seen.failures[:10]}"
            )
        self._load.kill()
