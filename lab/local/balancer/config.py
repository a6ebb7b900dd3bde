"""What a load balancer is told: plain values, in the units and with the defaults of the ELBv2 API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

TRAFFIC_PORT = "traffic-port"

Algorithm = Literal["round_robin", "least_outstanding_requests"]


def parse_matcher(matcher: str) -> tuple[range, ...]:
    """Reads a matcher's HTTP codes: "200", "200,202" or "200-299". Raises ValueError for anything else."""
    ranges = []
    for part in matcher.split(","):
        first, _, last = part.strip().partition("-")
        try:
            ranges.append(range(int(first), int(last or first) + 1))
        except ValueError:
            raise ValueError(
                f'matcher {matcher!r}: expected HTTP codes: "200", "200,202", "200-299"'
            ) from None
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How the targets of a group are checked: GET `path`, every `interval_s`, on a connection of its own."""

    path: str = "/"
    port: str = TRAFFIC_PORT
    interval_s: float = 30.0
    timeout_s: float = 5.0
    healthy_threshold: int = 5
    unhealthy_threshold: int = 2
    matcher: str = "200"

    def __post_init__(self) -> None:
        parse_matcher(self.matcher)

    def accepts(self, status: int) -> bool:
        """Whether a response with this status passes the check."""
        return any(status in codes for codes in parse_matcher(self.matcher))

    def port_of(self, target_port: int) -> int:
        """The port that is checked on a target which gets its traffic on `target_port`."""
        return target_port if self.port == TRAFFIC_PORT else int(self.port)


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """A target group; `port` is where targets that are registered without a port get their traffic."""

    arn: str
    port: int
    health_check: HealthCheck = field(default_factory=HealthCheck)
    deregistration_delay_s: float = 300.0
    algorithm: Algorithm = "round_robin"


@dataclass(frozen=True, slots=True)
class Gate:
    """A default action with a fixed response, and perhaps a listener rule on one header before it.

    Requests whose header has one of the values are forwarded; as with ELB, case does not count, * and ? are
    wildcards. All others get the response: without values, all.
    """

    header: str
    values: tuple[str, ...]
    status: int
    content_type: str
    body: str

    def opens_for(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request with these headers, names in lower case, is forwarded."""
        name = self.header.lower().encode()
        found = [value.decode("latin-1") for key, value in headers if key == name]
        return any(_fits(wanted, value) for wanted in self.values for value in found)


def _fits(wanted: str, value: str) -> bool:
    wildcards = {"*": ".*", "?": "."}
    pattern = "".join(wildcards.get(character, re.escape(character)) for character in wanted)
    return re.fullmatch(pattern, value, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a load balancer shows its clients, in PEM: the certificate, the chain behind it, and the key."""

    chain: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecureListener:
    """A listener for HTTPS; see `BalancerConfig`. None has a certificate that can't be served."""

    target_group_arn: str | None
    gate: Gate | None = None
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class BalancerConfig:
    """A load balancer with a listener for HTTP, and perhaps one for HTTPS.

    Each forwards what passes its gate, if any, to one target group. Without a target group every request gets
    503. Targets outside of its `zones` get none; None: all zones. With `drops_invalid_headers` a target never
    sees headers whose names have other characters than letters, digits and hyphens.
    """

    name: str
    target_group_arn: str | None = None
    idle_timeout_s: float = 60.0
    zones: frozenset[str] | None = None
    gate: Gate | None = None
    https: SecureListener | None = None
    drops_invalid_headers: bool = False

    @property
    def forwards_to(self) -> str | None:
        """The ARN of the target group that it uses: that of HTTPS, where there is one."""
        return (self.https and self.https.target_group_arn) or self.target_group_arn
