"""A trial on the page: one request to a service's own address, and what comes of it, told as it comes.

What is sent and what comes back is bounded, and kept nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spotrelay.messages import harmless
from spotrelay.operator.request import (
    ERROR_SHOWN,
    Bounds,
    Entrance,
    Exchange,
    Request,
    Sender,
    UnansweredError,
    is_chat,
    of_probe,
    remedy,
)
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.snapshot import ServiceSnapshot

METHODS = ("GET", "POST")

BOUNDS = Bounds(silence_s=60, longest_s=120, size=1 << 20)
"""A minute is a load balancer's own patience by default; two are a person's with a large model. A mebibyte is
all that anybody reads."""

MOST_SENT = 64 * 1024
"""Bytes of a request: a long prompt."""

SHORTEST_S = 0.1
"""Pieces that come within less than this came in one packet: that is no speed."""


class BadTrialError(ValueError):
    """What should be sent can't be: one line that says why."""


def asked(spec: ServiceSpec, said: Mapping[str, Any]) -> Request:
    """What a form says: a `prompt` for a chat; else `method`, `path` and `body`.

    Raises:
        BadTrialError: it says no request that may be sent.
    """
    values = {name: said.get(name, "") for name in ("prompt", "method", "path", "body", "key")}
    if not all(isinstance(value, str) for value in values.values()):
        raise BadTrialError("not a trial's form")
    if not values["key"].isascii() or not values["key"].isprintable():
        raise BadTrialError("the API key has characters that no key has")
    probe = spec.readiness_probe
    if is_chat(probe):
        if not values["prompt"].strip():
            raise BadTrialError("the prompt is empty: write one")
        made = of_probe(probe, values["prompt"])
    else:
        made = _request(of_probe(probe), values["method"], values["path"], values["body"])
    if len(made.body or b"") + len(made.path) > MOST_SENT:
        raise BadTrialError(f"that is more than {MOST_SENT // 1024} KiB: send less")
    return made


def _request(usual: Request, method: str, path: str, body: str) -> Request:
    if method not in METHODS:
        raise BadTrialError(f"method {method!r}: choose one of {', '.join(METHODS)}")
    # It is put behind the address: whatever else it began with would lead to another host.
    if not path.startswith("/") or path.startswith("//") or not path.isprintable():
        raise BadTrialError(f"path {path!r}: it begins with one /, such as /health")
    if method == "GET":
        headers = {name: value for name, value in usual.headers.items() if name.lower() != "content-type"}
        return Request(method, path, headers=headers)
    headers = {"Content-Type": "application/json", **usual.headers}
    return replace(usual, method=method, path=path, body=body.encode(), headers=headers)


def events(
    seen: ServiceSnapshot, request: Request, key: str = "", via: str | None = None
) -> Generator[dict[str, Any], None, None]:
    """Send it once. First come status and replica, then each piece of text, then the sum.

    Times are seconds since it was sent; `problem` is None if the answer is whole. `via`: see `Sender`.

    Raises nothing that a service or a network can cause. Whoever closes it closes the connection.
    """
    entrance = Entrance.at(seen.address or "")
    began = time.monotonic()
    try:
        answer = Sender(entrance, key, via, BOUNDS).send(request)
    except UnansweredError as error:
        yield _end([], time.monotonic() - began, str(error))
        return
    try:
        yield {
            "status": answer.status,
            "after_s": time.monotonic() - began,
            "replica": _who(answer.replica, seen),
        }
        times: list[float] = []
        if 200 <= answer.status < 300:
            for text in _texts(answer):
                times.append(time.monotonic() - began)
                yield {"text": text, "after_s": times[-1]}
            problem = answer.cut and f"the answer isn't whole after {len(times)} pieces: {answer.cut}"
        else:
            problem = _refusal(answer, seen.service, entrance)
        yield _end(times, time.monotonic() - began, problem or None)
    finally:
        answer.close()


def _texts(answer: Exchange) -> Iterator[str]:
    if answer.is_text:
        yield from answer.texts()
    else:
        size = sum(len(piece) for piece in answer.pieces())
        yield f"[{size} bytes of {answer.content_type or 'an unknown type'}]"


def _end(times: list[float], after_s: float, problem: str | None) -> dict[str, Any]:
    took_s = times[-1] - times[0] if times else 0.0
    return {
        "pieces": len(times),
        "first_s": times[0] if times else None,
        "per_s": (len(times) - 1) / took_s if took_s >= SHORTEST_S else None,
        "after_s": after_s,
        "problem": problem,
    }


def _who(told: str | None, seen: ServiceSnapshot) -> str | None:
    """The replica whose instance's ID the answer has, with its pool; else what it says of itself."""
    if not told:
        return None
    found = next((r for r in seen.present if r.instance_id and r.instance_id in told), None)
    return f"replica {found.id} in {found.offering}" if found else harmless(told)[:100]


def _refusal(answer: Exchange, service: str, entrance: Entrance) -> str:
    if answer.status == 401:
        why = "an API key is asked for, or this one isn't known: docs/networking.md, API keys"
    else:
        why = remedy(answer.status, service, entrance) or "it was refused"
    said = harmless(b"".join(answer.pieces())[:ERROR_SHOWN].decode(errors="replace")).strip()
    return f"{answer.status}: {why}" + (f". It said: {said}" if said and not said.startswith("<") else "")
