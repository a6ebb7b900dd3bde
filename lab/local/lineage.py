"""How Lambda notices a function that invokes itself over and over: each invocation is counted in a header.

Lambda gives an invocation the trace header of the message that caused it, botocore hands that on with each
call, SQS keeps it with a message, and so it comes back: with one more of the function. What it counts by
isn't documented in full; here it is the function's name
(https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

HEADER = "x-amzn-trace-id"

_FIELD = re.compile(r"(?:^|;)\s*(\w+)=([^;]*)")


@dataclass(frozen=True, slots=True)
class Chain:
    """Invocations that one event caused, one after the other."""

    root: str
    """Which chain it is, in X-Ray's words."""
    counts: Mapping[str, int]
    """How often each function was invoked in it, by `_key`."""

    @classmethod
    def of(cls, headers: Iterable[str | None]) -> Chain:
        """The longest of the chains in these trace headers; a new one if none of them says any."""
        chains = [_parsed(header) for header in headers if header]
        return max(chains, key=lambda chain: max(chain.counts.values(), default=0), default=_new())

    def invocations(self, function: str) -> int:
        """How often the function was invoked in it."""
        return self.counts.get(_key(function), 0)

    def invoking(self, function: str) -> Chain:
        """The chain as the next invocation of the function has it."""
        return Chain(self.root, {**self.counts, _key(function): self.invocations(function) + 1})

    def header(self) -> str:
        """What an invocation of it hands on."""
        lineage = "|".join(f"{key}:{count}" for key, count in self.counts.items())
        return f"Root={self.root};Parent={secrets.token_hex(8)};Sampled=0;Lineage={lineage}"


def _new() -> Chain:
    return Chain(f"1-{int(time.time()):08x}-{secrets.token_hex(12)}", {})


def _parsed(header: str) -> Chain:
    # Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0;Lineage=a87bd80c:1|68fd508a:5
    # botocore sends the line between two functions as %7C.
    fields = dict(_FIELD.findall(unquote(header)))
    counts = re.findall(r"(\w+):(\d+)", fields.get("Lineage", ""))
    return Chain(fields.get("Root") or _new().root, {key: int(count) for key, count in counts})


def _key(function: str) -> str:
    return hashlib.sha256(function.encode()).hexdigest()[:8]
