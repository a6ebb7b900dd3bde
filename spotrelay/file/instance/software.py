"""What is known of the servers and packages that scripts name: variables that they want, and notices.

A script is read for names and nothing else: whoever isn't named in it gets neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spotrelay.file.model import Service
from spotrelay.file.source.document import Location

KEEP_ALIVE = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"

KEEP_ALIVE_SPARE_S = 10
"""By so much a server must keep an idle connection longer than the load balancer. If the server closes one
when the balancer sends a request on it, the client gets 502. Source: ELB's guide, HTTP 502 in *Troubleshoot
your Application Load Balancers*."""

LONG_ANSWER_S = 300
"""An answer of 4,096 tokens takes an L4 four minutes (17 tokens a second, 8B in half precision)."""

LEAST_CONTAINER_GIB = 128
"""Docker's store keeps an image's compressed layers beside the unpacked ones: 30 GiB for vLLM's, beside the
75 of the instance's own image, and the model."""


@dataclass(frozen=True, slots=True)
class _Server:
    """One that closes idle connections after seconds, and how it is told otherwise."""

    name: str
    closes_s: int
    option: str


_SERVERS = (
    # Source: each one's own reference of its options.
    _Server("uvicorn", 5, "--timeout-keep-alive"),
    _Server("gunicorn", 2, "--keep-alive"),
    _Server("hypercorn", 5, "--keep-alive"),
)

_GENERATES = re.compile(r"\b(vllm|sglang|lmdeploy|text-generation-launcher|llama-server|ollama)\b")

_VLLM = re.compile(r"\bvllm\b")

_ENGINE = re.compile(r"\b(vllm|sglang|llama-server)\b")

COMPILING = ("vllm", "sglang")
"""Engines that compile at their first start on each kind of accelerator."""

_OLD_VLLM = re.compile(r"\bvllm==(0\.(\d|1[01])(\.\w+)*)(?![\w.])")
_PINNED_TRANSFORMERS = re.compile(r"\btransformers *(\[[\w,]+\])? *(==|<|~=)")


def environment(service: Service) -> Mapping[str, str]:
    """Variables that the service's server wants, unless its file sets them."""
    if KEEP_ALIVE in service.envs or not _VLLM.search(_text(service)):
        return {}
    return {KEEP_ALIVE: str(service.idle_timeout_s + KEEP_ALIVE_SPARE_S)}


def engine(service: Service) -> str | None:
    """What `run` starts, by its name; None: another one, or several."""
    names = {match[1] for match in _ENGINE.finditer(f"{service.run}\n{service.container or ''}")}
    return names.pop() if len(names) == 1 else None


def notices(service: Service) -> Iterator[tuple[Location, str]]:
    """What a known server or package does that its user may not expect."""
    text = _text(service)
    keeps_s = service.idle_timeout_s + KEEP_ALIVE_SPARE_S
    for server in _SERVERS:
        if re.search(rf"\b{server.name}\b", service.run) and server.option not in service.run:
            yield (
                ("run",),
                f"{server.name} closes an idle connection after {server.closes_s} s, and the load balancer"
                f" keeps it for {service.idle_timeout_s}: now and then a client gets 502. Add"
                f" {server.option} {keeps_s}",
            )
    if re.search(r"\bllama-server\b", service.run):
        # Seen in tests/engine: CPPHTTPLIB_KEEPALIVE_TIMEOUT_SECOND (ggml-org/llama.cpp#7694).
        yield (
            ("run",),
            "llama-server closes an idle connection after 5 s, which no option of it changes: now and then a"
            " client gets 502. Let clients repeat such a request, as OpenAI's do by themselves",
        )
    if (found := _GENERATES.search(text)) and service.idle_timeout_s < LONG_ANSWER_S:
        yield (
            ("spotrelay", "idle_timeout_seconds"),
            f"an answer of {found[1]} that isn't streamed and takes longer than {service.idle_timeout_s} s"
            f" fails with 504: choose {LONG_ANSWER_S} or more, or let clients stream or ask for less",
        )
    if (old := _OLD_VLLM.search(text)) and not _PINNED_TRANSFORMERS.search(text):
        yield (
            ("setup",),
            f"vllm=={old[1]} installs the newest transformers, which it can't use from 5 on: add"
            " 'transformers<5'",
        )
    if service.may_have_standbys and _VLLM.search(text):
        yield (
            ("spotrelay", "standby"),
            "vllm loads for three to five minutes at each start, also when a standby is resumed, and a warned"
            " replica serves on for less than two: then one is missing. Keep one more than you need",
        )
    if service.container and service.has_nvidia and service.disk.size_gib < LEAST_CONTAINER_GIB:
        yield (
            ("resources", "disk_size"),
            f"{service.disk.size_gib} GiB may be too few: Docker keeps an image's layers twice, compressed"
            f" and unpacked, beside the 75 of the instance's own image: choose {LEAST_CONTAINER_GIB} or more",
        )


def _text(service: Service) -> str:
    return f"{service.setup or ''}\n{service.run}\n{service.container or ''}"
